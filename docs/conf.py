"""The site of `make docs`: the pages of this repository, and the reference from docstrings.

The source is the repository's root, so that every relative link of a page means on the site what it
means on GitHub. The README is the first page.
"""

import sys
from pathlib import Path

from graphfold import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "graphfold"
copyright = "the authors of graphfold, Apache License 2.0"
version = release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "site_pages",  # docs/site_pages.py
]
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
# Folders that nobody should walk through.
exclude_patterns = ["build", "graphfold", "tests", "configs", "runs", "data", ".*", "**/.*"]

# The side bar: caption -> pages.
navigation = {
    "Begin": [
        "docs/first_steps",
        "docs/notebooks/molecules",
        "docs/notebooks/trees",
        "docs/gallery",
    ],
    "By your data": ["docs/molecules", "docs/trees"],
    "Write your own": [
        "docs/python",
        "docs/sklearn",
        "docs/training_loop",
        "docs/cells",
        "docs/blocks",
        "docs/adapters",
    ],
    "Run it": [
        "docs/several_machines",
        "docs/large_data",
        "docs/predict_large_data",
        "docs/serving",
        "docs/options",
    ],
    "How it works": ["docs/engine", "docs/benchmarks"],
    "Reference": [f"docs/reference/{name}" for name in (
        "training", "prediction", "data", "graphs", "engine", "cells", "models", "blocks",
        "metrics", "errors",
    )],
    "The project": ["CONTRIBUTING", "CHANGELOG"],
}  # fmt: skip

myst_heading_anchors = 6
myst_enable_extensions = ["linkify"]  # addresses in the text are links, as on GitHub
myst_linkify_fuzzy_links = False
myst_links_external_new_tab = False
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_merge_streams = True

default_role = "py:obj"  # `Cell` in a docstring is code, and a link where there is such a name
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Shape", "params_style")]
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes are fields of their class, not entries of their own
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
smartquotes_action = "D"  # dashes alone: quotes are those of code

html_theme = "furo"
html_title = "graphfold"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
