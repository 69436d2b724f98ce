"""The names that a user may choose from: `graphfold list`, and the page docs/options.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphfold.datasets.adapters.registry import ADAPTERS, adapter_paths
from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.training.config.definitions import Definition, definitions, exports, strings_in
from graphfold.training.config.folder import config_folder

#: What a model gives its parts, so that no config has to.
_GIVEN = ("input_size", "schema", "level", "scalers", "arity", "edge_columns")

#: The modules of metrics, by the task that they are for.
_TASKS = ("regression", "binary", "multiclass", "interval", "deviation", "sets")


@dataclass(frozen=True)
class Choices:
    """The names of one kind.

    Args:
        title: what they are.
        usage: how one is chosen.
        names: name -> a line about it.
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
    found = [
        Choices(f"{group}", f"{group}=NAME", dict(_options(folders, group)))
        for group in dict.fromkeys([*first, *sorted(groups)])
    ]
    adapters = {name: _adapter(path) for name, path in adapter_paths().items()}
    return [
        *found,
        Choices("corpora", "folders under data.root", {k: c.title for k, c in CORPORA.items()}),
        Choices("adapters", "data.adapter=NAME, graphfold check-adapter NAME", adapters),
        Choices("splits", "data.split=NAME", dict(_splits())),
        Choices("groups", "data.groups=NAME", dict(_groups())),
        *(_metrics(task) for task in _TASKS),
        _layers("heads", "model.head._target_=graphfold.layers.NAME", "heads"),
        _layers("readouts", "model.readout._target_=graphfold.layers.NAME", "readouts"),
        _layers("cells", "_target_: graphfold.layers.NAME in model.cells", "trees", "molecules"),
    ]


def format_choices(found: Iterable[Choices]) -> str:
    """For a terminal: a block for each kind, a line for each name."""
    blocks = []
    for choices in found:
        width = max(map(len, choices.names), default=0)
        lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in choices.names.items()]
        blocks.append("\n".join([f"{choices.title} ({choices.usage})", *lines]))
    return "\n\n".join(blocks)


def options_page() -> str:
    """docs/options.md: every choice of graphfold's own, and the keys of the config."""
    parts = [_INTRODUCTION, "## The config\n", "What `graphfold train` starts from:\n"]
    for name in ("train.yaml", "data/_base.yaml", "trainer/default.yaml"):
        text = (config_folder() / name).read_text(encoding="utf-8").rstrip()
        parts.append(f"`configs/{name}`:\n\n```yaml\n{text}\n```\n")
    for choices in list_choices():
        names = choices.names
        if choices.title == "adapters":  # not those of packages that happen to be installed
            names = {name: text for name, text in names.items() if name in ADAPTERS}
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


def _adapter(path: str) -> str:
    """The summary of an adapter of graphfold; of another package the path of its class."""
    module, _, name = path.partition(":")
    own = module.startswith("graphfold.")
    return definitions(module)[name].summary if own else path


def _splits() -> Iterator[tuple[str, str]]:
    modules = ("split_ways", "folds")
    ways = {k: v for m in modules for k, v in definitions(f"graphfold.datasets.splits.{m}").items()}
    for name in strings_in("graphfold.datasets.splits.split_records", "SPLITS"):
        yield name, ways[f"{name}_split"].summary


def _groups() -> Iterator[tuple[str, str]]:
    found = definitions("graphfold.datasets.splits.groups")
    for name in strings_in("graphfold.datasets.splits.groups", "GROUPINGS"):
        yield name, found[f"{name}_groups"].summary


def _metrics(task: str) -> Choices:
    """The decorated functions of the module of a task."""
    found = {}
    for name, function in definitions(f"graphfold.metrics.{task}").items():
        marks = [text for text in function.decorators if text.startswith("metric(")]
        if marks:
            less = "higher_is_better=False" in marks[0]
            found[name] = f"{function.summary} {'Lower' if less else 'Higher'} is better."
    return Choices(f"metrics of {task}", "metrics=[NAME,..], monitor=val/NAME", found)


def _layers(title: str, usage: str, *folders: str) -> Choices:
    """The classes that `graphfold.layers` exports from some of its folders."""
    homes = tuple(f"graphfold.layers.{folder}." for folder in folders)
    found = {}
    for name, module in exports("graphfold.layers").items():
        if module.startswith(homes) and not definitions(module)[name].is_abstract:
            definition = definitions(module)[name]
            found[name] = f"{definition.summary} {_options_of(definition)}".rstrip()
    return Choices(title, usage, dict(sorted(found.items())))


def _options_of(definition: Definition) -> str:
    """The arguments that a config may set."""
    own = {k: v for k, v in definition.arguments.items() if k not in _GIVEN}
    words = [name if default is None else f"{name}={default}" for name, default in own.items()]
    return f"Options: {', '.join(words)}." if words else ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
