"""An adapter of somebody else's: pairs of sentences whose number says how often each counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphfold.dag import Column, GraphBuilder
from graphfold.dag.schema import RECORD_WEIGHT
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.readers.pairs import PairsAdapter

#: The adapter by its dotted path, as a config names it.
NAME = "training.weighed_pairs.WeighedPairs"


class WeighedPairs(Adapter):
    """Reads what `PairsAdapter` does; the number in id.txt is the weight of the pair."""

    words = PairsAdapter.words

    def __init__(self) -> None:
        self.pairs = PairsAdapter()
        schema = self.pairs.schema
        weight = Column(RECORD_WEIGHT, "float32", role="weight")
        self.schema = replace(schema, graph_features=(*schema.graph_features, weight))

    def sources(self, path: Path) -> list[Path]:
        return self.pairs.sources(path)

    def records(self, path: Path) -> Iterator[Record]:
        return self.pairs.records(path)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        self.pairs.parse(record, _Weighing(graph))  # type: ignore[arg-type]


class _Weighing:
    """A builder of graphs that gives each graph its weight."""

    def __init__(self, graph: GraphBuilder) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def finish(self, **values: Any) -> None:
        self._graph.finish(**values, **{RECORD_WEIGHT: float(values["pair_id"])})
