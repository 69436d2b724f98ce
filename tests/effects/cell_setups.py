"""A small network around every cell, over the same two graphs, so that options can be tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from layers.cells_table import ATOMS, EDGES, FRAGMENTS, LABELLED, PAIRS
from torch import Tensor

import graphfold.layers as layers
from graphfold.batching import Batch, Cell, Down, Network, Pass, Rounds, Up, build_schedule
from graphfold.batching.states import States
from graphfold.dag import GraphBuilder, Schema, TypedDAG
from graphfold.layers.factories import build

#: Width of the features of trees; that of atoms is the width of their first state.
SIZE = 3

#: What each class has to be given, beside the width.
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "FingerprintCell": {"fingerprint_size": 4},
    "PNACell": {"mean_log_degree": 0.8},
    "GATCell": {"heads": 1},
    "GATv2Cell": {"heads": 1},
}

Cells = list[dict[str, Cell | list[Cell]]]


@dataclass(frozen=True)
class Setup:
    """A network that holds a cell.

    Args:
        cell: the cell that is looked at.
        cells: those of all passes.
        schema: of the graphs.
        passes: the passes.
        size: the width of the features.
    """

    cell: Cell
    cells: Cells
    schema: Schema
    passes: tuple[Pass, ...]
    size: int

    @property
    def field(self) -> str:
        """The field that the cell is named for: its first."""
        return next(iter(self.cell.fields))

    def states(
        self, training: bool = False, graphs: Sequence[int] = (0, 1), draw: int = 0
    ) -> dict[str, Tensor]:
        """Every field of every node, in node order.

        Args:
            training: whether in training.
            graphs: which graphs, 0 or 1, are in the batch.
            draw: the seed of what is drawn.
        """
        found = self.run(training, graphs, draw)
        return {name: found[name] for name in sorted(found)}

    def run(self, training: bool = False, graphs: Sequence[int] = (0, 1), draw: int = 0) -> States:
        """The states as readouts get them."""
        dag = self.graphs(graphs)
        network = Network(self.schema, *zip(self.passes, self.cells, strict=True), run="eager")
        batch = Batch(dag, build_schedule(dag, self.passes))
        torch.manual_seed(draw)
        found: States = network.double().train(training)(batch, self.features(graphs))
        return found

    def graphs(self, numbers: Sequence[int] = (0, 1)) -> TypedDAG:
        """The graphs that it runs over."""
        return _GRAPHS[self.schema](numbers)

    def features(self, graphs: Sequence[int] = (0, 1)) -> dict[str, Tensor]:
        """The features of the nodes of each type."""
        dag = self.graphs(graphs)
        widths = {t.name: self.size if t.arity == 0 else 0 for t in self.schema.types}
        return {name: _features(name, dag, width) for name, width in widths.items()}

    def state(self, training: bool = False, **options: Any) -> Tensor:
        """The field of the cell."""
        return self.states(training, **options)[self.field]


def setup(name: str, hidden: int = 4, num_rounds: int = 1, **options: Any) -> Setup:
    """A network around one cell, always with the same initial weights.

    Args:
        name: the class of the cell.
        hidden: the width of its states.
        num_rounds: of message passing, if that is what it is for.
        **options: of the cell.
    """
    torch.manual_seed(1)
    place = PLACES[name]
    return place(name, hidden, num_rounds, options)


def above_another(name: str, **options: Any) -> Setup:
    """A cell in the second of two passes of Tree-LSTMs."""
    torch.manual_seed(1)
    leaf, inner = "LeafLSTMCell", "NaryTreeLSTMCell"
    schema = PAIRS
    if name not in (leaf, inner):
        leaf, inner, schema = name, name, LABELLED
    other = schema.types[1].name
    below = {"word": make(leaf, 4, SIZE, {}), other: make(inner, 4, 0, {})}
    word = make(leaf, 4, SIZE, options if name == leaf else {})
    above = make(inner, 4, 0, options if name == inner else {})
    cell = above if name == inner else word
    return Setup(cell, [below, {"word": word, other: above}], schema, (Up(), Up()), SIZE)


def make(name: str, hidden: int, input_size: int, options: Mapping[str, Any]) -> Cell:
    """A cell of this class, with what a model would give it."""
    given = {**NEEDED.get(name, {}), **options}
    offers = {"hidden_size": hidden, "input_size": input_size, "edge_columns": EDGES}
    cell: Cell = build(partial(getattr(layers, name), **given), **offers)
    return cell


def _both(name: str, hidden: int, _: int, options: Mapping[str, Any]) -> Setup:
    """One class for words and phrases."""
    word, phrase = make(name, hidden, SIZE, options), make(name, hidden, 0, options)
    return Setup(phrase, [{"word": word, "phrase": phrase}], LABELLED, (Up(),), SIZE)


def _inner(leaf: str, schema: Schema = LABELLED) -> Callable[..., Setup]:
    def place(name: str, hidden: int, _: int, options: Mapping[str, Any]) -> Setup:
        cell = make(name, hidden, 0, options)
        words = {"word": make(leaf, hidden, SIZE, {}), schema.types[1].name: cell}
        return Setup(cell, [words], schema, (Up(),), SIZE)

    return place


def _leaf(inner: str, schema: Schema = LABELLED) -> Callable[..., Setup]:
    def place(name: str, hidden: int, _: int, options: Mapping[str, Any]) -> Setup:
        cell = make(name, hidden, SIZE, options)
        other = make(inner, hidden, 0, {})
        return Setup(cell, [{"word": cell, schema.types[1].name: other}], schema, (Up(),), SIZE)

    return place


def _later(before: Sequence[str], passes: Sequence[Pass], schema: Schema = LABELLED) -> Any:
    """In the last of some passes, for both types."""

    def place(name: str, hidden: int, _: int, options: Mapping[str, Any]) -> Setup:
        other = schema.types[1].name
        cells: Cells = [
            {"word": make(n, hidden, SIZE, {}), other: make(n, hidden, 0, {})} for n in before
        ]
        word, inner = make(name, hidden, SIZE, options), make(name, hidden, 0, options)
        return Setup(inner, [*cells, {"word": word, other: inner}], schema, tuple(passes), SIZE)

    return place


def _rounds(name: str, hidden: int, num_rounds: int, options: Mapping[str, Any]) -> Setup:
    cell = make(name, hidden, hidden, options)
    return Setup(cell, [{"atom": cell}], ATOMS, (Rounds("bond", num_rounds),), hidden)


def _after_bonds(name: str, hidden: int, _: int, options: Mapping[str, Any]) -> Setup:
    cell, bond = make(name, hidden, hidden, options), make("DMPNNBondCell", hidden, hidden, {})
    passes = (Rounds("bond", 1), Rounds("bond", 1))
    return Setup(cell, [{"atom": bond}, {"atom": cell}], ATOMS, passes, hidden)


def _fragments(name: str, hidden: int, _: int, options: Mapping[str, Any]) -> Setup:
    is_reader = name == "ReadersCell"
    leaf = make("LeafCell", hidden, SIZE, {})
    above = make("FragmentCell", hidden, 0, {} if is_reader else options)
    up: Cells = [{"word": leaf, "phrase": above}]
    if not is_reader:
        return Setup(above, up, FRAGMENTS, (Up(),), SIZE)
    reader = make(name, hidden, 0, options)
    down: Cells = [{"word": reader, "phrase": reader}]
    return Setup(reader, up + down, FRAGMENTS, (Up(), Down()), SIZE)


#: Where each cell stands in a network.
PLACES: Mapping[str, Callable[..., Setup]] = {
    **dict.fromkeys(
        (
            *("AttentiveTreeLSTMCell", "BagCell", "ChildSumTreeLSTMCell", "DeepSetCell"),
            *("RelationTreeLSTMCell", "TreeCodingCell", "TreeGRUCell"),
        ),
        _both,
    ),
    "LeafCell": _leaf("TreeRNNCell", PAIRS),
    "LeafLSTMCell": _leaf("NaryTreeLSTMCell", PAIRS),
    "MVLeafCell": _leaf("MVRNNCell", PAIRS),
    "MVRNNCell": _inner("MVLeafCell", PAIRS),
    "NaryTreeLSTMCell": _inner("LeafLSTMCell", PAIRS),
    "RNTNCell": _inner("LeafCell", PAIRS),
    "TreeRNNCell": _inner("LeafCell", PAIRS),
    "TreeFCCell": _inner("LeafCell", PAIRS),
    "TreeConvolutionCell": _later(["TreeCodingCell"], [Up(), Up()]),
    "TreePoolingCell": _later(["TreeCodingCell", "TreeConvolutionCell"], [Up(), Up(), Up()]),
    "NeighboursCell": _later(["BagCell"], [Up(), Up()]),
    "LabelCell": _later([], [Down()]),
    "InsideCell": _later(["LabelCell"], [Down(), Up()]),
    "OutsideCell": _later(["LabelCell", "InsideCell"], [Down(), Up(), Down()]),
    "FragmentCell": _fragments,
    "ReadersCell": _fragments,
    **dict.fromkeys(
        (
            *("AlignmentCell", "AttentiveFPCell", "AttentiveFPFirstCell", "DMPNNBondCell"),
            *("FingerprintCell", "GATCell", "GATv2Cell", "GCNCell", "GGNNCell", "GINCell"),
            *("GINECell", "MPNNCell", "PNACell", "WeaveAtomCell", "WeavePairCell"),
        ),
        _rounds,
    ),
    "DMPNNAtomCell": _after_bonds,
}


def _trees(schema: Schema) -> Callable[[Sequence[int]], TypedDAG]:
    """((a b) (c d)) and (e (f g)), with the columns that inputs have."""

    def build_graphs(graphs: Sequence[int]) -> TypedDAG:
        builder = GraphBuilder(schema)
        other = schema.types[1].name
        for graph in graphs:
            words = builder.nodes("word", 4 - graph)
            pairs = [(1, 2), (0, 3)] if graph else [(0, 1), (2, 3), (4, 5)]
            for number, pair in enumerate(pairs):
                node = builder.node(other)
                names = [column.name for column in schema.inputs.features]
                columns = {n: [_edge_value(n, number), _edge_value(n, number + 3)] for n in names}
                builder.inputs(node, pair, **columns)
            builder.output(len(words) + len(pairs) - 1)
            builder.finish()
        return builder.build()

    return build_graphs


def _molecules(graphs: Sequence[int]) -> TypedDAG:
    """A ring of three atoms with a fourth, and a star of five."""
    builder = GraphBuilder(ATOMS)
    for graph in graphs:
        pairs = [(0, 1), (0, 2), (0, 3), (0, 4)] if graph else [(0, 1), (1, 2), (2, 3), (1, 3)]
        atoms = builder.nodes("atom", 4 + graph)
        ends = [*pairs, *((b, a) for a, b in pairs)]
        names = [column.name for column in ATOMS.relations[0].features]
        columns = {n: [_edge_value(n, a + b + graph) for a, b in ends] for n in names}
        builder.edges("bond", [a for a, _ in ends], [b for _, b in ends], **columns)
        builder.output(*atoms)
        builder.finish(y=0.0)
    return builder.build()


def _edge_value(name: str, number: int) -> Any:
    return {"kind": number % 4, "length": 0.5 * number, "ring": number % 2 == 0}.get(
        name, number % 2 == 0
    )


def _features(name: str, dag: TypedDAG, size: int) -> Tensor:
    """Random features that depend on the graph alone, not on the batch."""
    of_type = dag.batch[dag.nodes_of_type(name)]
    rows = []
    for graph, num_nodes in enumerate(dag.node_ptr.diff().tolist()):  # which differ
        draw = torch.Generator().manual_seed(num_nodes)
        count = int((of_type == graph).sum())
        rows.append(torch.randn(count, size, dtype=torch.float64, generator=draw))
    return torch.cat(rows)


_GRAPHS: Mapping[Schema, Callable[[Sequence[int]], TypedDAG]] = {
    **{schema: _trees(schema) for schema in (LABELLED, PAIRS, FRAGMENTS)},
    ATOMS: _molecules,
}
