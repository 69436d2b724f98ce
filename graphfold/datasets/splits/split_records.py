"""Splits by name, and the facts of records that they use: labels, scaffolds, files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.files.tables import PART
from graphfold.datasets.settings import DataSettings
from graphfold.datasets.splits.cross_validation import kfold_split, repeated_kfold_split
from graphfold.datasets.splits.split import Split
from graphfold.datasets.splits.split_ways import (
    GROUPINGS,
    NONE,
    Keys,
    butina_groups,
    butina_split,
    check_fractions,
    given_split,
    group_keys,
    random_split,
    scaffold_balanced_split,
    scaffold_groups,
    scaffold_split,
    stratified_split,
)
from graphfold.datasets.storage.store import GraphCorpus
from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import refuse_unread
from graphfold.registry import import_home, is_path


@dataclass(frozen=True, eq=False)
class Records:
    """The records that a split divides.

    Args:
        corpus: the records of all files, in order, as read.
        parts: the part of a given split that each file is, or None.
        counts: how many records each file has.
    """

    corpus: GraphCorpus
    parts: Sequence[str | None]
    counts: Sequence[int]

    def __len__(self) -> int:
        return self.corpus.num_graphs

    @cached_property
    def facts(self) -> TypedDAG:
        """The records without their nodes."""
        return self.corpus.facts()

    @cached_property
    def dag(self) -> TypedDAG:
        """The records; a large corpus of several files is brought into memory."""
        return self.corpus.whole()

    def group_keys(self, name: str) -> Keys | None:
        """The key of each record; None for no groups."""
        return group_keys(self.facts, name)

    @property
    def given(self) -> list[str | None]:
        """[num_records] the part in the split column, else the part of the file; None without."""
        pairs = zip(self.parts, self.counts, strict=True)
        parts = [part for part, count in pairs for _ in range(count)]
        if ("graph", PART) not in self.facts.dictionaries:
            return parts
        column = self.facts.strings("graph", PART)
        return [cell or part for cell, part in zip(column, parts, strict=True)]


#: Divides records; each must be in exactly one part.
SplitFunction: TypeAlias = Callable[[Records, DataSettings], Split]

#: The splits by name.
SPLITS: Mapping[str, SplitFunction] = {
    "given": lambda records, s: _given(records, s),
    "random": lambda records, s: random_split(
        len(records), s.fractions, s.seed, records.group_keys(s.groups)
    ),
    "stratified": lambda records, s: stratified_split(
        labels_of(records.dag, s.stratify_by), s.fractions, s.seed
    ),
    "scaffold": lambda records, s: scaffold_split(scaffold_groups(records.facts), s.fractions),
    "scaffold_balanced": lambda records, s: scaffold_balanced_split(
        scaffold_groups(records.facts), s.fractions, s.seed
    ),
    "butina": lambda records, s: butina_split(butina_groups(records.facts), s.fractions),
    "kfold": lambda records, s: kfold_split(
        len(records), s.num_folds, s.fold, s.seed, records.group_keys(s.groups), _val_share(s)
    ),
    "repeated_kfold": lambda records, s: repeated_kfold_split(
        len(records),
        s.num_repeats,
        s.num_folds,
        s.fold,
        s.seed,
        records.group_keys(s.groups),
        _val_share(s),
    ),
}

#: Setting -> the splits that read it; a function of the user's may read all of them.
READERS: Mapping[str, Sequence[str]] = {
    "groups": ("random", "kfold", "repeated_kfold"),
    "num_folds": ("kfold", "repeated_kfold"),
    "fold": ("kfold", "repeated_kfold"),
    "num_repeats": ("repeated_kfold",),
    "stratify_by": ("stratified",),
}


def check_split(settings: DataSettings) -> None:
    """Checks the names of split and groups, and the settings of splits.

    Raises:
        ConfigError: for an unknown name, or a setting that the split does not read.
    """
    name, groups = settings.split, (NONE, *GROUPINGS)
    if name is not None and not is_path(name) and name not in SPLITS:
        raise ConfigError(
            f"data.split is '{name}'.{did_you_mean(name, SPLITS)} Use one of "
            f"{', '.join(SPLITS)}, or the dotted path of a function."
        )
    if settings.groups not in groups:
        raise ConfigError(
            f"data.groups is '{settings.groups}'.{did_you_mean(settings.groups, groups)} Use one "
            f"of {', '.join(groups)}."
        )
    _refuse_unread(settings, name or "random")


def check_assigned_parts(settings: DataSettings, option: str | None) -> None:
    """Refuses a split other than "given" if the user assigns records to parts.

    Args:
        settings: the settings.
        option: the option that assigns them, see `DataSource.divided_by`.

    Raises:
        ConfigError: if the split does not read that option.
    """
    name = settings.split
    if option is None or name in (None, "given") or name not in SPLITS:
        return
    instead = "give a list of files" if option == "data.path" else f"leave {option} out"
    raise ConfigError(
        f"{option} says which records are train, val and test, and data.split={name} does not read "
        f"it. Set data.split=given, or {instead}."
    )


def _refuse_unread(settings: DataSettings, name: str) -> None:
    """Raises ConfigError for a setting that the split of this name does not read."""
    for option, splits in READERS.items():
        if name in SPLITS and name not in splits:
            value, default = getattr(settings, option), getattr(DataSettings, option)
            remedy = f"Set data.split={' or '.join(splits)}"
            refuse_unread(f"data.{option}", value, default, f"data.split={name}", remedy)


def _given(records: Records, settings: DataSettings) -> Split:
    """The parts of the source; of the fractions only the share of val in train is read."""
    parts, fractions = records.given, settings.fractions
    if "val" in parts:
        remedy = "Leave the val part out"
        beside = "data.split=given and a val part"
        refuse_unread("data.fractions", fractions, DataSettings.fractions, beside, remedy)
    return given_split(parts, [1] * len(records), fractions, settings.seed)


def _val_share(settings: DataSettings) -> float:
    """The share of val in the records outside of test."""
    train, val, _ = check_fractions(settings.fractions)
    return val / (train + val)


def find_split(name: str) -> SplitFunction:
    """The split of a name in `SPLITS`, or at a dotted path.

    Raises:
        ConfigError: if no such function exists.
    """
    if name in SPLITS:
        return SPLITS[name]
    module, attribute = import_home(name, f"data.split={name}")
    function: SplitFunction | None = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(f"data.split={name}: there is no such function. Correct the path.")
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"data.split={name} cannot be called with records and settings ({error}). Write "
            "def split(records, settings), or name another function."
        ) from error
    return function


def split_records(records: Records, settings: DataSettings) -> Split:
    """Splits records as the settings say.

    Raises:
        ConfigError: if the split cannot be applied to such graphs, or leaves out a record or puts
            it into two parts.
        DataError: if there are too few records for it.
    """
    name = settings.split or ("given" if "train" in records.given else "random")
    _refuse_unread(settings, name)
    split = find_split(name)(records, settings)
    if not isinstance(split, Split):
        raise ConfigError(f"data.split={name} returns a {type(split).__name__}. Return a Split.")
    numbers = torch.cat([split.train, split.val, split.test]).sort().values
    if not torch.equal(numbers, torch.arange(len(records))):
        raise ConfigError(
            f"data.split={name} divides {len(records)} records into parts of "
            f"{', '.join(map(str, split.sizes().values()))}, but every record is to be in exactly "
            "one part. Correct the function."
        )
    return split


def labels_of(dag: TypedDAG, name: str | None) -> Tensor:
    """[num_graphs] the label of each graph, for a stratified split.

    A column of whole graphs, or a node target at the first output node (the root of a tree).

    Args:
        dag: the graphs.
        name: the column; None for the only target of integers.

    Raises:
        ConfigError: if there is no such column, several are possible, or it holds measurements.
    """
    graph_columns = {c.name: "graph" for c in dag.schema.spaces()["graph"] if not c.shape}
    node_targets = {c.name: "node" for c in dag.schema.node_targets if not c.shape}
    columns = {**node_targets, **graph_columns}
    if name is None:
        name = _only_label(dag)
    if name not in columns:
        raise ConfigError(
            f"data.stratify_by is '{name}', which no record has.{did_you_mean(name, columns)} Use "
            f"one of {', '.join(columns) or 'none'}."
        )
    if columns[name] == "graph":
        values = dag.graph_column(name)
    else:
        values = dag.node_targets[name][dag.output_index[dag.output_ptr[:-1]]]
    if values.is_floating_point() and not (values.isnan() | (values == values.round())).all():
        raise ConfigError(
            f"data.stratify_by={name} holds measurements, not labels. Name a column of labels, or "
            "use data.split=random."
        )
    return values


def _only_label(dag: TypedDAG) -> str:
    targets = (*dag.schema.graph_targets, *dag.schema.node_targets)
    labels = [c.name for c in targets if not c.shape and not c.torch_dtype.is_floating_point]
    if len(labels) != 1:
        raise ConfigError(
            f"data.split=stratified needs one label, but the targets with labels are: "
            f"{', '.join(labels) or 'none'}. Set data.stratify_by."
        )
    return labels[0]
