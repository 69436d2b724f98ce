"""Splits the records of a corpus by what its graphs say: labels, scaffolds, files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.splits.split import Split
from graphfold.datasets.splits.split_ways import (
    Fractions,
    given_split,
    kfold_split,
    random_split,
    scaffold_balanced_split,
    scaffold_split,
    stratified_split,
)
from graphfold.errors import ConfigError, did_you_mean

SPLITS = ("given", "random", "stratified", "scaffold", "scaffold_balanced", "kfold")


class SplitSettings(NamedTuple):
    """How to split; see `DataModule`."""

    method: str | None = None
    fractions: Fractions = (0.8, 0.1, 0.1)
    seed: int = 0
    num_folds: int = 5
    fold: int = 0
    stratify_by: str | None = None


def split_records(
    dag: TypedDAG, parts: Sequence[str | None], counts: Sequence[int], settings: SplitSettings
) -> Split:
    """Splits all records of `dag`.

    Args:
        dag: the records of all files, in order.
        parts: the part of a given split that each file is.
        counts: how many records each file has.
        settings: the method; None for "given" where there is a train part, else "random".

    Raises:
        ConfigError: if the method cannot be applied to such graphs.
        DataError: if there are too few records for it.
    """
    method, fractions, seed, num_folds, fold, label = settings
    if method is None:
        method = "given" if "train" in parts else "random"
    if method == "given":
        return given_split(parts, counts, fractions, seed)
    if method == "stratified":
        return stratified_split(labels_of(dag, label), fractions, seed)
    if method == "scaffold":
        return scaffold_split(scaffolds_of(dag), fractions)
    if method == "scaffold_balanced":
        return scaffold_balanced_split(scaffolds_of(dag), fractions, seed)
    if method == "kfold":
        return kfold_split(dag.num_graphs, num_folds, fold, seed)
    return random_split(dag.num_graphs, fractions, seed)


def labels_of(dag: TypedDAG, name: str | None) -> Tensor:
    """[num_graphs] the label of each graph, for a stratified split.

    A column of whole graphs, or a node target at the first output node (the root of a tree).

    Args:
        dag: the graphs.
        name: the column; None for the only target of integers.

    Raises:
        ConfigError: if there is no such column, or several could be meant, or it holds measurements
            and not labels.
    """
    graph_columns = {c.name: "graph" for c in dag.schema.spaces()["graph"] if not c.shape}
    node_targets = {c.name: "node" for c in dag.schema.node_targets if not c.shape}
    known = {**node_targets, **graph_columns}
    if name is None:
        name = _only_label(dag)
    if name not in known:
        raise ConfigError(
            f"data.stratify_by is '{name}', which no record has.{did_you_mean(name, known)} Use "
            f"one of {', '.join(known) or 'none'}."
        )
    if known[name] == "graph":
        values = dag.graph_column(name)
    else:
        values = dag.node_targets[name][dag.output_index[dag.output_ptr[:-1]]]
    if values.is_floating_point() and not (values.isnan() | (values == values.round())).all():
        raise ConfigError(
            f"data.stratify_by={name} holds measurements, not labels. Name a column of labels, or "
            "use data.split=random."
        )
    return values


def scaffolds_of(dag: TypedDAG) -> list[str]:
    """[num_graphs] the Bemis-Murcko scaffold of each molecule.

    Raises:
        ConfigError: if the graphs are no molecules: they lack the string `smiles`.
    """
    if ("graph", "smiles") not in dag.dictionaries:
        raise ConfigError(
            "a scaffold split needs molecules with a SMILES. Use data.split=random, stratified or "
            "kfold."
        )
    from graphfold.datasets.molecules.scaffold import murcko_scaffolds

    return murcko_scaffolds([smiles or "" for smiles in dag.strings("graph", "smiles")])


def _only_label(dag: TypedDAG) -> str:
    targets = (*dag.schema.graph_targets, *dag.schema.node_targets)
    labels = [c.name for c in targets if not c.shape and not c.torch_dtype.is_floating_point]
    if len(labels) != 1:
        raise ConfigError(
            f"data.split=stratified needs one label, but the targets with labels are: "
            f"{', '.join(labels) or 'none'}. Set data.stratify_by."
        )
    return labels[0]
