"""Graphs to draw, and what is found in their pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import torch

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter, read_records
from graphfold.inference.drawing.drawing import Drawing, draw_graph
from graphfold.inference.prediction import describe
from graphfold.layers.heads.classification import ClassificationHead
from graphfold.layers.heads.eval_rows import Predicted

SVG = "{http://www.w3.org/2000/svg}"


def read_one(adapter: Adapter, text: str) -> TypedDAG:
    """The graph of one record."""
    return read_records(adapter, Path(), [adapter.record_of(text)]).dag


def drawing_of(
    adapter: Adapter,
    text: str,
    classes: Sequence[int] | None = None,
    level: str = "node",
    wanted: Sequence[str | None] | None = None,
) -> Drawing:
    """A picture in which row k of the head has the class classes[k], with probability 0.9."""
    dag = read_one(adapter, text)
    head = ClassificationHead(2, dag.schema, level)
    count = {"node": dag.num_nodes, "output": len(dag.output_index), "graph": 1}[level]
    rows = torch.full((count, head.num_classes), 0.1 / (head.num_classes - 1))
    rows[torch.arange(count), torch.tensor(classes or [0] * count)] = 0.9
    (prediction,) = describe(dag, head, Predicted(rows), adapter.added_nodes(dag))
    return draw_graph(dag, prediction, head, wanted)


def elements(drawing: Drawing | str, tag: str) -> list[ElementTree.Element]:
    """All elements of a kind, in order; the picture must be well-formed."""
    text = drawing if isinstance(drawing, str) else drawing.svg
    return list(ElementTree.fromstring(text).iter(SVG + tag))


def texts(drawing: Drawing) -> list[str]:
    return [element.text or "" for element in elements(drawing, "text")]


def size(drawing: Drawing) -> tuple[float, float]:
    match = re.search(r'width="(\d+)" height="(\d+)"', drawing.svg)
    assert match is not None
    return float(match[1]), float(match[2])


def pills(drawing: Drawing) -> list[tuple[float, float, float, float, str]]:
    """Left, top, width, height and colour of every pill."""
    return [
        (*(float(r.get(name, "nan")) for name in ("x", "y", "width", "height")), r.get("fill", ""))
        for r in elements(drawing, "rect")
        if r.get("rx")
    ]  # type: ignore[misc]
