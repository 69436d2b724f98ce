"""What the site needs beside Sphinx, MyST and Furo: five small things.

- the side bar, which the pages themselves do not hold: they are read on GitHub, too;
- links to files and folders of the repository lead to pages with their code;
- the directive `reference`: one public name per line, each documented from its docstring;
- docstrings, which are plain text with `code` and fences, get no other markup by chance;
- names in signatures and docstrings lead to the place where a name is public.
"""

from __future__ import annotations

import ast
import dataclasses
import html
import importlib
import inspect
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Equations of a docstring, and where its sections begin.
INDENTED = re.compile(r"(?<=\n)\n((?: {4}.*\n|\n(?= {4}))+)")
SECTIONS = re.compile(r"^(?=(?:Args|Shape|Raises|Returns|Attributes|Example):$)", re.MULTILINE)
#: The hint of a number with limits, which the text beside it tells.
LIMITED = re.compile(r"(?:~?typing\.)?Annotated\[([^,]+), [^\]]*?Limits\([^\]]*\)\]")
FENCE = re.compile(r"^```\{reference\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_config_value("navigation", {}, "env")
    app.add_directive("reference", Reference)
    app.connect("source-read", add_side_bar)
    app.connect("doctree-read", link_to_code)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", restore_colon, priority=900)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("autodoc-process-bases", name_public_bases)
    app.connect("missing-reference", find_public_name)
    app.connect("html-collect-pages", code_pages)
    app.connect("html-page-context", keep_side_bar, priority=100)  # before furo
    app.connect("build-finished", copy_first_page)
    return {"version": "1", "parallel_read_safe": False}


# The side bar ----------------------------------------------------------------------------------


def add_side_bar(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds the tables of contents to the first page, which does not show them."""
    if page == app.config.root_doc:
        for caption, pages in app.config.navigation.items():
            listed = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n{listed}\n```\n"


def copy_first_page(app: Sphinx, exception: Exception | None) -> None:
    """The README is index.html, too: all its links are relative."""
    if exception is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


# Code of the repository ------------------------------------------------------------------------


def link_to_code(app: Sphinx, doctree: nodes.document) -> None:
    """Leads links to files and folders of the repository to pages with their code."""
    page = app.env.docname
    for node in list(doctree.findall(is_link_of_myst)):
        path = (ROOT / page).parent.joinpath(node["reftarget"]).resolve()
        if not path.exists():
            continue  # MyST says so
        name = path.relative_to(ROOT)
        app.env.metadata[page].setdefault("code", []).append(str(name))
        link = nodes.reference("", "", internal=True)
        link["refuri"] = os.path.relpath(f"code/{name}.html", Path(page).parent)
        link += node.children[0].children if path.is_dir() else [child.deepcopy() for child in node]
        node.replace_self(link)


def is_link_of_myst(node: nodes.Node) -> bool:
    """Whether a node is a link to a file that is no page, or to what is no file."""
    kinds = (addnodes.download_reference, addnodes.pending_xref)
    return isinstance(node, kinds) and node.get("reftype") == "myst" and not node["refdomain"]


def code_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The pages of files and folders that a page links to, and of the files in such folders."""
    linked = {name for data in app.env.metadata.values() for name in data.get("code", ())}
    paths = {ROOT / name for name in linked}
    for folder in [path for path in paths if path.is_dir()]:
        paths.update(path for path in folder.rglob("*") if is_shown(path))
    for path in sorted(paths):
        name = str(path.relative_to(ROOT))
        body = listing(path) if path.is_dir() else code(path)
        title = f"<h1><code>{html.escape(name)}</code></h1>"
        yield f"code/{name}", {"title": name, "body": title + body}, "page.html"


def keep_side_bar(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Gives all code of one depth the same side bar: to make it takes longer than the page."""
    if page.startswith("code/"):
        make, depth = context["toctree"], page.count("/")
        bars: dict[int, str] = vars(app).setdefault("graphfold_side_bars", {})
        context["toctree"] = lambda **options: (
            bars.get(depth) or bars.setdefault(depth, make(**options))
        )


def is_shown(path: Path) -> bool:
    """Whether a path in a folder is a part of the repository."""
    return "__pycache__" not in path.parts and not path.name.startswith(".")


def listing(folder: Path) -> str:
    """A list of a folder's files with their first sentences."""
    items = [
        f'<li><a href="{folder.name}/{path.name}.html">{path.name}</a> {first_sentence(path)}</li>'
        for path in sorted(folder.iterdir())
        if is_shown(path)
    ]
    return f"<ul>{''.join(items)}</ul>"


def first_sentence(path: Path) -> str:
    """What the docstring of a Python file, or the first comment of another one, begins with."""
    if path.is_dir():
        path /= "__init__.py"
    if path.suffix == ".py" and path.is_file():
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    else:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        text = next((line.lstrip("#/* ") for line in lines if line[:1] in "#/"), "")
    return html.escape(text.split("\n\n")[0])


def code(path: Path) -> str:
    """A file, highlighted."""
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    marked = highlight(path.read_text(encoding="utf-8"), lexer, HtmlFormatter(nowrap=True))
    return f'<div class="highlight"><pre>{marked}</pre></div>'


# The reference ---------------------------------------------------------------------------------


class Reference(SphinxDirective):
    """Documents the names that the lines of its body begin with, from their docstrings."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        lines = ["```{eval-rst}"]
        for name in (line.split()[0] for line in self.content if line.strip()):
            value = resolve(name)
            lines += [f".. {kind_of(value)}:: {name}"]
            if inspect.isclass(value):
                lines += ["   :members:"]
                lines += ["   :show-inheritance:"] if public_bases(value) else []
            lines += [""]
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))


def resolve(name: str) -> Any:
    """The object with a dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def kind_of(value: Any) -> str:
    """The directive of autodoc for an object."""
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, Exception) else "autoclass"
    return "autofunction" if inspect.isroutine(value) else "autodata"


def public_bases(cls: type) -> list[type]:
    """The bases of a class that the reference documents, too."""
    return [base for base in cls.__bases__ if where_defined(base) in known_places()]


def name_public_bases(app: Sphinx, name: str, cls: type, options: Any, bases: list[type]) -> None:
    """Leaves the other bases out: they are how a class is written, not what it is."""
    bases[:] = public_bases(cls)


def public_names(folder: Path) -> list[str]:
    """The names that the pages of a folder document."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))]
    lines = (line for text in texts for body in FENCE.findall(text) for line in body.splitlines())
    return [line.split()[0] for line in lines]


def plain_docstring(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Makes reStructuredText of a docstring: fences become code, and signs stay signs."""
    if what == "data" and value.__doc__ == type(value).__doc__:
        lines.clear()  # the docstring of dict or tuple
    if what in ("attribute", "property") and lines:
        lines[0] = lines[0].replace(":", "\0")  # or napoleon takes what is before it for a type
    if dataclasses.is_dataclass(value) and isinstance(value, type) and "Args:" not in lines:
        lines += field_comments(value)
    prose, *sections = SECTIONS.split("\n".join(lines), maxsplit=1)
    prose = INDENTED.sub(r"\n```text\n\1```\n", prose + "\n")
    parts = CODE.split(prose + "".join(sections))
    parts[::3] = map(escape, parts[::3])
    for number in range(2, len(parts), 3):
        language, body = parts[number - 1 : number + 1]
        parts[number - 1 : number + 1] = f".. code-block:: {language}\n", indent(body, "   ")
    lines[:] = "\n".join(parts).splitlines()


def restore_colon(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Undoes what `plain_docstring` does to the first line for napoleon."""
    lines[:] = [line.replace("\0", ":") for line in lines]


def skip_foreign(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leaves out methods of other libraries, and members that the class itself describes."""
    module = getattr(member, "__module__", None) or "graphfold"
    is_foreign = inspect.isroutine(member) and not module.startswith("graphfold")
    return True if is_foreign or (member.__doc__ or "").startswith("See the class") else None


def field_comments(cls: type) -> list[str]:
    """The comments beside the fields of a dataclass, as a section of its docstring."""
    fields = re.findall(r"^    (\w+): [^#\n]+#:? (.+)$", inspect.getsource(cls), re.MULTILINE)
    names = {field.name for field in dataclasses.fields(cls)}
    said = [f"    {name}: {comment}" for name, comment in fields if name in names]
    return ["", "Args:", *said, ""] if said else []


def readable_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, arguments: str, returns: str
) -> tuple[str, str]:
    """Writes defaults that a function makes so that Sphinx reads them; leaves out limits."""
    if arguments:
        arguments = LIMITED.sub(r"\1", arguments.replace("<factory>", "..."))
    return arguments, returns


def escape(prose: str) -> str:
    """Text in which `*`, `|` and a last `_` are no markup; between backticks they are none."""
    parts = re.split(r"(`[^`]*`)", prose)
    parts[::2] = [re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def find_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Leads a name as it stands in the code (`Cell`, or where it is defined) to its entry."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removesuffix("()")
    places = known_places()
    owner, _, attribute = target.rpartition(".")
    name = places.get(target) or (f"{places[owner]}.{attribute}" if places.get(owner) else "")
    entries = env.get_domain("py").objects
    if name not in entries:
        return None
    page, node_id = entries[name].docname, entries[name].node_id
    return make_refnode(app.builder, node["refdoc"], page, node_id, content, name)


def where_defined(value: Any) -> str:
    """The full name of a class or function in the code."""
    return f"{value.__module__}.{value.__qualname__}"


@cache
def known_places() -> dict[str, str]:
    """Other names of what the reference documents -> the name in the reference."""
    places: dict[str, str] = {}
    for name in public_names(Path(__file__).parent / "reference"):
        value, short = resolve(name), name.rpartition(".")[2]
        places[short] = "" if short in places else name  # two of one name: no link
        if inspect.isclass(value) or inspect.isroutine(value):
            places[where_defined(value)] = name
    return places
