"""The choices of a user, for `graphfold list` and the page of options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.datasets.splits import cross_validation, split_ways
from graphfold.datasets.splits.split_records import SPLITS
from graphfold.datasets.splits.split_ways import GROUPINGS
from graphfold.options import parameters
from graphfold.registry import (
    ADAPTERS,
    CELLS,
    FEATURE_SETS,
    HEADS,
    METRICS,
    READOUTS,
    Registry,
    summary,
)
from graphfold.training.config.folder import config_folder

#: Arguments of parts that the model sets, not the config.
_SET_BY_MODEL = ("input_size", "schema", "level", "scalers", "arity", "edge_columns")


@dataclass(frozen=True)
class Choices:
    """The names of one kind.

    Args:
        title: the kind, in the plural.
        usage: the override that chooses one.
        names: name -> a line of description.
    """

    title: str
    usage: str
    names: Mapping[str, str]


def list_choices(config_dir: Path | None = None) -> list[Choices]:
    """All choices: config groups first, then what values may name.

    Args:
        config_dir: a further folder of config files, with groups and options of its own.
    """
    folders = [config_folder(), *([config_dir] if config_dir else [])]
    groups = dict.fromkeys(p.name for f in folders for p in sorted(f.iterdir()) if p.is_dir())
    first = [group for group in ("experiment", "data", "model") if group in groups]
    listed = [
        Choices(f"{group}", f"{group}=NAME", dict(_options(folders, group)))
        for group in dict.fromkeys([*first, *sorted(groups)])
    ]
    groups_of_records = {name: summary(group) for name, group in GROUPINGS.items()}
    return [
        *listed,
        Choices("corpora", "folders under data.root", {k: c.title for k, c in CORPORA.items()}),
        Choices("adapters", ADAPTERS.usage, ADAPTERS.summaries()),
        Choices("feature sets", FEATURE_SETS.usage, FEATURE_SETS.summaries()),
        Choices("splits", "data.split=NAME", _splits()),
        Choices("groups", "data.groups=NAME", groups_of_records),
        *map(_metrics, METRICS),
        *map(_layers, (HEADS, READOUTS, CELLS)),
    ]


def format_choices(choices_by_kind: Iterable[Choices]) -> str:
    """The text for a terminal: a block for each kind, a line for each name."""
    blocks = []
    for choices in choices_by_kind:
        width = max(map(len, choices.names), default=0)
        lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in choices.names.items()]
        blocks.append("\n".join([f"{choices.title} ({choices.usage})", *lines]))
    return "\n\n".join(blocks)


def options_page() -> str:
    """The page of options of the site: every choice of graphfold's own, and the config's keys."""
    parts = [_INTRODUCTION, "## The config\n", "What `graphfold train` starts from:\n"]
    for name in ("train.yaml", "data/_base.yaml", "trainer/default.yaml"):
        text = (config_folder() / name).read_text(encoding="utf-8").rstrip()
        parts.append(f"`configs/{name}`:\n\n```yaml\n{text}\n```\n")
    for choices in list_choices():
        names = choices.names
        if choices.title == "adapters":  # not those of packages that happen to be installed
            names = {name: text for name, text in names.items() if name in ADAPTERS.paths}
        lines = [f"| `{name}` | {_escape(text)} |" for name, text in names.items()]
        table = "\n".join(["| name | |", "|---|---|", *lines])
        parts.append(f"## {choices.title.capitalize()}\n\n`{choices.usage}`\n\n{table}\n")
    return "\n".join(parts)


_INTRODUCTION = """# Options

What can be chosen, and by which override. This page is made by `graphfold list --markdown`;
`graphfold list` prints the same names, with those of a folder of yours after `--config-dir`, and
`graphfold train --cfg job` the config that some overrides give.

A name of one's own is a dotted path: `data.adapter=my_package.MyAdapter`,
`metrics=[rmse,my_package.my_metric]`, `model.head._target_=my_package.MyHead`. `evaluate` and
`predict` import such a package when it is given to `--trust`.
"""


def _options(folders: Iterable[Path], group: str) -> Iterator[tuple[str, str]]:
    """The name of each config file and its first comment, or else its class."""
    for folder in folders:
        for path in sorted((folder / group).glob("[!_]*.yaml")):
            lines = path.read_text(encoding="utf-8").splitlines()
            comments = [line.lstrip("# ") for line in lines if line.startswith("# ")]
            targets = [line.partition(": ")[2] for line in lines if line.startswith("_target_: ")]
            shown = [text for text in comments if not text.startswith("@")] + targets
            yield path.stem, next(iter(shown), "")


def _splits() -> dict[str, str]:
    """The summary of the function of each split."""
    functions = {**vars(split_ways), **vars(cross_validation)}
    return {name: summary(functions[f"{name}_split"]) for name in SPLITS}


def _metrics(task: str) -> Choices:
    metrics = METRICS[task]
    names = {}
    for name, metric in metrics.parts().items():
        better = "Higher" if metric.higher_is_better else "Lower"
        names[name] = f"{metric.description} {better} is better."
    return Choices(f"metrics of {task}", metrics.usage, names)


def _layers(layers: Registry) -> Choices:
    """The classes of a kind of layer, with the options that a config may set."""
    names = {}
    for name, layer in sorted(layers.parts().items()):
        options = [p for p in parameters(layer).values() if p.name not in _SET_BY_MODEL]
        words = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in options]
        text = f"Options: {', '.join(words)}." if words else ""
        names[name] = f"{summary(layer)} {text}".rstrip()
    return Choices(f"{layers.kind}s", layers.usage, names)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
