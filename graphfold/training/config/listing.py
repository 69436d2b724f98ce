"""The names that a user may choose from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from graphfold.datasets.adapters.registry import adapter_paths
from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.training.config.compose import config_folder


def describe_all() -> str:
    """Experiments, corpora, adapters and models, each with a line of description."""
    folder = config_folder()
    blocks = {
        "experiments (graphfold train experiment=NAME)": dict(_configs(folder / "experiment")),
        "corpora (folders under data.root)": {name: c.title for name, c in CORPORA.items()},
        "adapters (data.adapter, or graphfold check-adapter NAME)": adapter_paths(),
        "models (model=NAME)": dict(_configs(folder / "model")),
    }
    return "\n\n".join("\n".join([title, *_lines(names)]) for title, names in blocks.items())


def _configs(folder: Path) -> Iterator[tuple[str, str]]:
    """The name of each config file and its first comment."""
    for path in sorted(folder.glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        comments = (line.lstrip("# ") for line in lines if not line.startswith("# @"))
        yield path.stem, next(comments, "")


def _lines(names: dict[str, str]) -> Iterator[str]:
    width = max(map(len, names), default=0)
    for name, text in names.items():
        yield f"  {name:<{width}}  {text}"
