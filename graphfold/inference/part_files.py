"""split.csv and predictions.csv: the part and the predictions of each record."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.corpora.corpus import PARTS
from graphfold.datasets.data_module import DataModule
from graphfold.inference.prediction import MOST_CLASSES, node_texts
from graphfold.inference.writers import text_output
from graphfold.layers import Head
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.heads.output_column import VALUE, OutputColumn, read_columns
from graphfold.training.run.trained import TrainedModel

#: The first columns of both files: the part and the place of a record.
PLACE = ("part", "file", "line", "record")

#: Records, and rows of predictions, that are processed together.
_CHUNK = 4096


def write_split(path: Path, data: DataModule) -> None:
    """Writes the part and the place of each usable record, in the order of the files.

    Args:
        path: the file, written whole or not at all.
        data: the data of a run, prepared.
    """
    part_of = np.zeros(data.facts.num_graphs, dtype=np.int8)
    for number, part in enumerate(PARTS):
        part_of[data.split.part(part).numpy()] = number
    with _table(path) as table:
        table.writerow(PLACE)
        for records in torch.split(torch.arange(len(part_of)), _CHUNK):
            places = zip(part_of[records.numpy()].tolist(), _places(data, records), strict=True)
            table.writerows([PARTS[number], *place] for number, place in places)


def write_predictions(
    path: Path, data: DataModule, trained: TrainedModel, rows: Mapping[str, EvalRows]
) -> None:
    """Writes measured and predicted values: a line for each record, or for each labelled node.

    The columns are `PLACE`; of molecules `smiles`; of nodes `node`, the number of the node in its
    record, `root`, 1 for the root of a tree (an output node) and else 0, and `text`, the words
    under it. Then, target by target, TARGET_measured (empty for a missing value, `>5` for a bound)
    and the columns of `graphfold predict`: TARGET_pred, TARGET_prob_CLASS, TARGET_std, TARGET_lower
    and so on. Of more than `MOST_CLASSES` classes only the predicted one has its probability, as
    TARGET_prob. A prediction that is no finite number is empty.

    Args:
        path: the file, written whole or not at all.
        data: the data of the run, prepared.
        trained: the model.
        rows: part -> its predictions and targets.
    """
    head, columns = trained.head, _shown_columns(trained)
    with _table(path) as table:
        descriptions = _descriptions(head, data.select([]))
        table.writerow([*PLACE, *descriptions, *_header(columns)])
        select = data.select_facts if head.level == "graph" else data.select
        for part, all_rows in rows.items():
            for numbers, piece in _pieces(data.split.part(part), all_rows):
                places = _places(data, numbers)
                facts = _descriptions(head, select(numbers)).values()
                for row, graph, cells in _cells(head, columns, piece):
                    described = [fact[row] for fact in facts]
                    table.writerow([part, *places[graph], *described, *cells])


def _pieces(numbers: Tensor, rows: EvalRows) -> Iterator[tuple[Tensor, EvalRows]]:
    """`_CHUNK` records at a time, with their rows."""
    graphs = torch.arange(rows.num_graphs)
    for chunk in torch.split(graphs, _CHUNK):
        yield numbers[chunk], rows.at((graphs >= chunk[0]) & (graphs <= chunk[-1]))


@contextmanager
def _table(path: Path) -> Iterator[Any]:
    """A writer of CSV rows, to a file that appears when it is complete."""
    with text_output(path) as text:
        yield csv.writer(text, lineterminator="\n")


def _places(data: DataModule, numbers: Tensor) -> list[tuple[str, int, int]]:
    """File, line and record of some records; paths are relative to the common folder of all files.

    So paths do not depend on the machine, and files of one name in two folders differ.
    """
    paths = [os.path.abspath(file.path) for file in data.files]
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, folder) for path in paths]
    ends = np.cumsum([file.num_records for file in data.files])
    files = np.searchsorted(ends, numbers.numpy(), side="right").tolist()
    places = data.facts.origin[numbers, 1:].tolist()
    return [(names[file], *place) for file, place in zip(files, places, strict=True)]


def _descriptions(head: Head, dag: TypedDAG) -> dict[str, list[Any]]:
    """Name of a column -> its value for every row of a head's predictions."""
    columns: dict[str, list[Any]] = {}
    graph = head.row_graph(dag)
    if ("graph", "smiles") in dag.dictionaries:
        smiles = dag.strings("graph", "smiles")
        columns["smiles"] = [smiles[number] for number in graph.tolist()]
    if head.level != "graph":
        nodes = torch.arange(dag.num_nodes) if head.level == "node" else dag.output_index
        columns["node"] = (nodes - dag.node_ptr[graph]).tolist()
        if head.level == "node":
            columns["root"] = torch.isin(nodes, dag.output_index).int().tolist()
        if any((f"type:{kind.name}", "form") in dag.dictionaries for kind in dag.schema.types):
            texts = node_texts(dag)
            columns["text"] = [texts[node] for node in nodes.tolist()]
    return columns


def _shown_columns(trained: TrainedModel) -> list[OutputColumn]:
    """The columns of predictions; of very many classes the probability of the predicted one."""
    columns = trained.columns
    num_labels = sum(column.label is not None for column in columns)
    if num_labels <= MOST_CLASSES * len(trained.head.targets):
        return columns
    first, *others = [column for column in columns if column.label is None]
    best = OutputColumn(first.target, "prob", float, lambda p: p.value.amax(1))
    return [first, best, *others]


def _header(columns: Sequence[OutputColumn]) -> Iterator[str]:
    for column in columns:
        if column.part == VALUE:
            yield f"{column.target}_measured"
        yield column.name


def _cells(
    head: Head, columns: Sequence[OutputColumn], rows: EvalRows
) -> Iterator[tuple[int, int, list[Any]]]:
    """Row, graph and cells of each row that is written: of nodes the measured ones."""
    shown = torch.arange(len(rows.graph))
    if head.level != "graph":
        shown = shown[head.is_measured(rows.target)]
    for chunk in torch.split(shown, _CHUNK):
        prediction, target = rows.prediction[chunk], rows.target[chunk]
        is_float32 = target.dtype == torch.float32
        facts = zip(
            chunk.tolist(),
            rows.graph[chunk].tolist(),
            prediction.value.isfinite().flatten(1).all(1).tolist(),
            head.measured_values(target),
            zip(*read_columns(columns, prediction), strict=True),
            strict=True,
        )
        for row, graph, is_finite, measured, values in facts:
            cells: list[Any] = []
            for column, value in zip(columns, values, strict=True):
                if column.part == VALUE:
                    target_value = measured.get(column.target)
                    is_long = is_float32 and isinstance(target_value, float)
                    cells.append(float(f"{target_value:.7g}") if is_long else target_value)
                cells.append(value if is_finite else None)
            yield row, graph, cells
