"""The table of all cells. A new cell is a new row; the contracts do the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from strategies import bond_schema
from torch import Tensor

from graphfold.batching import Batch, Cell, Down, Network, Pass, Rounds, Up, build_schedule
from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.layers import (
    AlignmentCell,
    AttentiveFPCell,
    AttentiveFPFirstCell,
    AttentiveTreeLSTMCell,
    BagCell,
    ChildSumTreeLSTMCell,
    DeepSetCell,
    DMPNNAtomCell,
    DMPNNBondCell,
    FingerprintCell,
    FragmentCell,
    GATCell,
    GATv2Cell,
    GCNCell,
    GGNNCell,
    GINCell,
    GINECell,
    InsideCell,
    LabelCell,
    LeafCell,
    LeafLSTMCell,
    MPNNCell,
    MVLeafCell,
    MVRNNCell,
    NaryTreeLSTMCell,
    NeighboursCell,
    OutsideCell,
    PNACell,
    ReadersCell,
    RelationTreeLSTMCell,
    RNTNCell,
    TreeCodingCell,
    TreeConvolutionCell,
    TreeFCCell,
    TreeGRUCell,
    TreePoolingCell,
    TreeRNNCell,
    WeaveAtomCell,
    WeavePairCell,
)

SIZE = 3
EDGES = (Column("kind", "int64", size=4), Column("length"), Column("ring", "bool"))

WORD = NodeType("word", 0)
PAIRS = Schema(types=(WORD, NodeType("pair", 2)))
TRIPLES = Schema(types=(WORD, NodeType("triple", 3)))
PHRASES = Schema(types=(WORD, NodeType("phrase", None)))
LABELLED = Schema(types=(WORD, NodeType("phrase", None)), inputs=EdgeType("inputs", EDGES))
#: The edges say which inputs are atoms.
FRAGMENTS = Schema(PHRASES.types, EdgeType("inputs", (Column("is_atom", "bool"),)))
ATOMS = bond_schema(EDGES)
BONDS = (Rounds("bond", 2),)

MakeCell = Callable[[], Cell]
MakeCells = Callable[[], list[dict[str, Cell | list[Cell]]]]


@dataclass(frozen=True)
class Case:
    """One way to use a cell.

    Args:
        name: of the row.
        schema: of the graphs that it runs over.
        make: makes the cells of each pass.
        widths: type name -> width of the features.
        passes: the passes.
        any_arity: whether the schema's last type may have any number of children or neighbours.
        random: whether training draws random numbers.
        ordered: whether the order of any number of children makes a difference.
    """

    name: str
    schema: Schema
    make: MakeCells
    widths: dict[str, int]
    passes: tuple[Pass, ...] = (Up(),)
    any_arity: bool = False
    random: bool = False
    ordered: bool = False

    @property
    def runs(self) -> tuple[str, ...]:
        """Ways to run the network; cells of trees have to be compiled."""
        return ("auto" if self.has_rounds else "compiled", "eager")

    @property
    def has_rounds(self) -> bool:
        """Whether it is message passing."""
        return any(isinstance(item, Rounds) for item in self.passes)

    def network(self, run: str = "auto") -> Network:
        """A network in float64, always with the same weights."""
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return Network(
                self.schema, *zip(self.passes, self.make(), strict=True), run=run
            ).double()

    def features(self, dag: TypedDAG) -> dict[str, Tensor]:
        """Random features in float64, which require a gradient."""
        generator = torch.Generator().manual_seed(2)
        types = zip(dag.schema.types, dag.num_nodes_by_type, strict=True)
        return {
            t.name: torch.randn(
                count, self.widths.get(t.name, 0), dtype=torch.float64, generator=generator
            ).requires_grad_()
            for t, count in types
        }

    def run(
        self, dag: TypedDAG, network: Network, x: dict[str, Tensor], policy: str = "depth"
    ) -> dict[str, Tensor]:
        """All fields of all nodes, in node order; always with the same random numbers."""
        batch = Batch(dag, build_schedule(dag, self.passes, policy))
        with torch.random.fork_rng():
            torch.manual_seed(3)
            states = network(batch, x)
            return {name: states[name] for name in sorted(states)}


def tree(name: str, schema: Schema, leaf: MakeCell, inner: MakeCell, **options: int) -> Case:
    """Words for leaves, under the schema's other type."""
    other = schema.types[1].name
    return Case(
        name,
        schema,
        lambda: [{"word": leaf(), other: inner()}],
        widths={"word": SIZE, other: options.get("features", 0)},
        any_arity=schema.types[1].arity is None,
        random="dropout" in name,
    )


def passes(
    name: str, schema: Schema, order: list[Pass], make: Callable[[str], Any], ordered: bool = False
) -> Case:
    """Several passes over the words and the schema's other type."""
    other = schema.types[1].name
    return Case(
        name,
        schema,
        lambda: make(other),
        widths={"word": SIZE},
        passes=tuple(order),
        any_arity=schema.types[1].arity is None,
        random="dropout" in name,
        ordered=ordered,
    )


def rounds(name: str, make: MakeCell, per_round: bool = False) -> Case:
    """Two rounds over bonds."""
    return Case(
        name,
        ATOMS,
        lambda: [{"atom": [make(), make()] if per_round else make()}],
        widths={"atom": SIZE},
        passes=BONDS,
        any_arity=True,
        random="dropout" in name,
    )


H = SIZE


def tree_convolution(other: str) -> list[dict[str, Cell]]:
    dropout = 0.5 if other == "pair" else 0.0
    convolution, pooling = TreeConvolutionCell(H, dropout), TreePoolingCell(H)
    return [
        {"word": TreeCodingCell(SIZE, H), other: TreeCodingCell(0, H)},
        {"word": convolution, other: convolution},
        {"word": pooling, other: pooling},
    ]


def deep(other: str) -> list[dict[str, Cell]]:
    return [
        {"word": LeafLSTMCell(SIZE, H), other: NaryTreeLSTMCell(0, H)},
        {"word": LeafLSTMCell(SIZE, H, own=["h"]), other: NaryTreeLSTMCell(0, H, own=["h"])},
    ]


def bidirectional(other: str) -> list[dict[str, Cell]]:
    down = ChildSumTreeLSTMCell(0, H, dropout=0.5, own=["h"])
    return [
        {"word": LeafLSTMCell(SIZE, H), other: ChildSumTreeLSTMCell(0, H)},
        {"word": down, other: down},
    ]


def inside_outside(other: str, dropout: float = 0.0) -> list[dict[str, Cell]]:
    label = LabelCell(H, EDGES)
    return [
        {"word": label, other: label},
        {"word": InsideCell(SIZE, H), other: InsideCell(0, H, dropout)},
        {"word": OutsideCell(SIZE, H), other: OutsideCell(0, H, dropout)},
    ]


def neighbours(other: str) -> list[dict[str, Cell]]:
    readers = NeighboursCell(H, "around", "readers")
    return [
        {"word": BagCell(SIZE, H), other: BagCell(0, H)},
        {"word": NeighboursCell(H), other: NeighboursCell(H)},
        {"word": readers, other: readers},
    ]


CASES = [
    tree("tree_fc", PAIRS, lambda: LeafCell(SIZE, H), lambda: TreeFCCell(H)),
    tree("tree_rnn", PAIRS, lambda: LeafCell(SIZE, H), lambda: TreeRNNCell(0, H)),
    tree(
        "tree_rnn with features and dropout",
        TRIPLES,
        lambda: LeafCell(SIZE, H),
        lambda: TreeRNNCell(2, H, arity=3, dropout=0.5),
        features=2,
    ),
    tree("nary_tree_lstm", PAIRS, lambda: LeafLSTMCell(SIZE, H), lambda: NaryTreeLSTMCell(0, H)),
    tree(
        "nary_tree_lstm with features",
        TRIPLES,
        lambda: LeafCell(SIZE, H, ["h", "c"]),
        lambda: NaryTreeLSTMCell(2, H, arity=3),
        features=2,
    ),
    tree(
        "nary_tree_lstm with dropout",
        PAIRS,
        lambda: LeafLSTMCell(SIZE, H, dropout=0.3),
        lambda: NaryTreeLSTMCell(0, H, dropout=0.5),
    ),
    tree(
        "child_sum_tree_lstm",
        PHRASES,
        lambda: ChildSumTreeLSTMCell(SIZE, H),
        lambda: ChildSumTreeLSTMCell(2, H),
        features=2,
    ),
    tree(
        "child_sum_tree_lstm with dropout",
        PHRASES,
        lambda: LeafLSTMCell(SIZE, H),
        lambda: ChildSumTreeLSTMCell(0, H, dropout=0.5),
    ),
    tree("tree_gru", PHRASES, lambda: TreeGRUCell(SIZE, H), lambda: TreeGRUCell(2, H), features=2),
    tree(
        "tree_gru with dropout",
        PHRASES,
        lambda: LeafCell(SIZE, H),
        lambda: TreeGRUCell(0, H, dropout=0.5),
    ),
    tree("rntn", PAIRS, lambda: LeafCell(SIZE, H), lambda: RNTNCell(0, H)),
    tree(
        "rntn with features and dropout",
        TRIPLES,
        lambda: LeafCell(SIZE, H),
        lambda: RNTNCell(2, H, arity=3, dropout=0.5),
        features=2,
    ),
    tree("mv_rnn", PAIRS, lambda: MVLeafCell(SIZE, H, rank=2), lambda: MVRNNCell(H)),
    tree("mv_rnn with dropout", PAIRS, lambda: MVLeafCell(SIZE, H), lambda: MVRNNCell(H, 0.5)),
    tree(
        "relation_tree_lstm",
        LABELLED,
        lambda: RelationTreeLSTMCell(SIZE, H, EDGES),
        lambda: RelationTreeLSTMCell(2, H, EDGES),
        features=2,
    ),
    tree(
        "relation_tree_lstm with matrices and dropout",
        LABELLED,
        lambda: LeafLSTMCell(SIZE, H),
        lambda: RelationTreeLSTMCell(0, H, EDGES, bases=2, dropout=0.5),
    ),
    tree(
        "relation_tree_lstm with matrices",
        LABELLED,
        lambda: LeafLSTMCell(SIZE, H),
        lambda: RelationTreeLSTMCell(2, H, EDGES, bases=3),
        features=2,
    ),
    tree(
        "attentive_tree_lstm",
        PHRASES,
        lambda: AttentiveTreeLSTMCell(SIZE, H),
        lambda: AttentiveTreeLSTMCell(2, H),
        features=2,
    ),
    tree(
        "attentive_tree_lstm with dropout",
        PHRASES,
        lambda: LeafLSTMCell(SIZE, H),
        lambda: AttentiveTreeLSTMCell(0, H, dropout=0.5),
    ),
    tree("bag of subtrees", PHRASES, lambda: BagCell(SIZE, H), lambda: BagCell(0, H, True)),
    tree("bag", PHRASES, lambda: BagCell(SIZE, H), lambda: BagCell(2, H), features=2),
    tree("deep_set", PHRASES, lambda: DeepSetCell(SIZE, H), lambda: DeepSetCell(2, H), features=2),
    tree(
        "deep_set with dropout",
        PHRASES,
        lambda: LeafCell(SIZE, H),
        lambda: DeepSetCell(0, H, 5, dropout=0.5),
    ),
    passes("neighbours", PHRASES, [Up(), Up(), Down()], neighbours),
    passes("inside_outside", LABELLED, [Down(), Up(), Down()], inside_outside),
    passes(
        "inside_outside with dropout",
        LABELLED,
        [Down(), Up(), Down()],
        lambda other: inside_outside(other, 0.5),
    ),
    passes("tree_convolution", PHRASES, [Up(), Up(), Up()], tree_convolution, ordered=True),
    passes("tree_convolution with dropout", PAIRS, [Up(), Up(), Up()], tree_convolution),
    passes("deep tree_lstm", PAIRS, [Up(), Up()], deep),
    passes("bidirectional tree_lstm with dropout", PHRASES, [Up(), Down()], bidirectional),
    tree(
        "fragment",
        FRAGMENTS,
        lambda: LeafCell(SIZE, H),
        lambda: FragmentCell(2, H),
        features=2,
    ),
    tree(
        "fragment with dropout",
        FRAGMENTS,
        lambda: LeafCell(SIZE, H),
        lambda: FragmentCell(0, H, dropout=0.5),
    ),
    *(
        Case(
            name,
            FRAGMENTS,
            lambda dropout=dropout: [  # type: ignore[misc]
                {"word": LeafCell(SIZE, H), "phrase": FragmentCell(0, H)},
                {"word": ReadersCell(H, dropout), "phrase": ReadersCell(H, dropout)},
            ],
            widths={"word": SIZE},
            passes=(Up(), Down()),
            random=dropout > 0,
        )
        for name, dropout in (("readers", 0.0), ("readers with dropout", 0.5))
    ),
    rounds("alignment", lambda: AlignmentCell(SIZE, H)),
    rounds("alignment with dropout", lambda: AlignmentCell(SIZE, H, dropout=0.5)),
    rounds("gcn", lambda: GCNCell(H)),
    rounds("gcn with dropout", lambda: GCNCell(H, "tanh", dropout=0.5, residual=True), True),
    rounds("gin", lambda: GINCell(H, "tanh", learn_epsilon=True)),
    rounds("gin with dropout", lambda: GINCell(H, dropout=0.5), True),
    rounds("gine", lambda: GINECell(H, EDGES, "tanh", learn_epsilon=True)),
    rounds("gine with dropout", lambda: GINECell(H, EDGES, dropout=0.5), True),
    rounds("fingerprint", lambda: FingerprintCell(H, 4, EDGES, max_degree=2), True),
    rounds("fingerprint with dropout", lambda: FingerprintCell(H, 4, max_degree=0, dropout=0.5)),
    rounds("gat", lambda: GATCell(H, EDGES, 3, "tanh", residual=True)),
    rounds("gatv2", lambda: GATv2Cell(H, EDGES, 3, "tanh", jumping="sum")),
    rounds("ggnn", lambda: GGNNCell(H, EDGES, jumping="max"), True),
    rounds("mpnn", lambda: MPNNCell(H, EDGES, 4)),
    rounds("pna", lambda: PNACell(H, 0.8, EDGES, "tanh", residual=True)),
    rounds("pna with dropout", lambda: PNACell(H, 0.8, dropout=0.5, jumping="max"), True),
    rounds("weave atoms", lambda: WeaveAtomCell(H)),
    rounds("weave pairs", lambda: WeavePairCell(H)),
    rounds("dmpnn", lambda: DMPNNBondCell(H, "tanh")),
    rounds("dmpnn with dropout", lambda: DMPNNBondCell(H, dropout=0.5, bias=True), True),
    Case(
        "dmpnn to the end",
        ATOMS,
        lambda: [{"atom": DMPNNBondCell(H)}, {"atom": DMPNNAtomCell(H)}],
        widths={"atom": SIZE},
        passes=(*BONDS, Rounds("bond", 1)),
        any_arity=True,
    ),
    Case(
        "attentive_fp with dropout",
        ATOMS,
        lambda: [{"atom": AttentiveFPFirstCell(H, EDGES, 0.5)}, {"atom": AttentiveFPCell(H)}],
        widths={"atom": SIZE},
        passes=(Rounds("bond", 1), *BONDS),
        any_arity=True,
        random=True,
    ),
    Case(
        "gcn after an embedding",
        ATOMS,
        lambda: [{"atom": LeafCell(5, H)}, {"atom": GCNCell(H)}],
        widths={"atom": 5},
        passes=(Up(), *BONDS),
        any_arity=True,
    ),
]
