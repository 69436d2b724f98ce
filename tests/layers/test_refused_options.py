"""Options of cells, readouts and added nodes that are refused, one row for each message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from strategies import MIXED_SCHEMA, bond_schema

from graphfold.dag import Column, NodeType, Schema
from graphfold.errors import GraphfoldError
from graphfold.layers import (
    AlignmentCell,
    AttentiveReadout,
    DMPNNBondCell,
    FeatureEncoder,
    GATv2Cell,
    GCNCell,
    GGNNCell,
    GINECell,
    LeafCell,
    LeafLSTMCell,
    NaryTreeLSTMCell,
    PNACell,
    RegressionHead,
    RelationTreeLSTMCell,
    ScaledSumReadout,
    Set2SetReadout,
    SumReadout,
    TypeReadout,
)
from graphfold.layers.graph_model import choose_addition
from graphfold.layers.node_pairs import NodePairs
from graphfold.layers.virtual_node import VirtualNode

KIND = Column("kind", "int64", size=4)
BOND = bond_schema((KIND,))
NAN = float("nan")

#: Words of the message -> what raises it.
REFUSED: dict[str, Callable[[], Any]] = {
    "no activation 'tahn'. Did you mean 'tanh'": lambda: GCNCell(4, activation="tahn"),
    "no norm 'group'. Use batch or layer": lambda: GCNCell(4, norm="group"),
    r"no jumping 'mean'\. Use sum or max, or null": lambda: GCNCell(4, jumping="mean"),
    r"GCNCell\(hidden_size=4\) starts from .* 3 wide": lambda: GCNCell(4).initial(
        torch.zeros(2, 3)
    ),
    r"DMPNNBondCell\(hidden_size=6\) starts from .* 3 wide": lambda: DMPNNBondCell(6).initial(
        torch.zeros(2, 3)
    ),
    "hidden_size=4 among 0 heads": lambda: GATv2Cell(4, heads=0),
    "hidden_size=4 among 3 heads": lambda: GATv2Cell(4, heads=3),
    "columns of codes are: none": lambda: GGNNCell(4, (Column("length"),)),
    "'kinds'. Did you mean 'kind'": lambda: GGNNCell(4, (KIND,), "kinds"),
    "no columns to encode": lambda: GINECell(4, ()),
    "mean_log_degree is 0.0.* has to be positive": lambda: PNACell(4, 0.0),
    "mean_log_degree is nan.* has to be positive": lambda: PNACell(4, NAN),
    "mean_log_degree is 'auto'.* has to be positive": lambda: PNACell(4, "auto"),  # type: ignore
    "bases=-1 is no number of matrices": lambda: RelationTreeLSTMCell(3, 3, (KIND,), bases=-1),
    "reads the relation of each child, but the inputs of these data have no": lambda: (
        RelationTreeLSTMCell(3, 3, ())
    ),
    "features of width 3, but has hidden_size=4": lambda: AlignmentCell(3, 4),
    "LeafCell has input_size=0, .* Give its type a feature": lambda: LeafCell(0, 4),
    "LeafLSTMCell has input_size=0, but a leaf is made of": lambda: LeafLSTMCell(0, 4),
    "the features are a mapping of a, b, but this cell reads": lambda: LeafCell(3, 4).before(
        {"a": torch.zeros(1, 3), "b": torch.zeros(1, 3)}
    ),
    "dropout=-0.1 is not a probability": lambda: NaryTreeLSTMCell(0, 4, dropout=-0.1),
    "dropout=1.0 is not a probability": lambda: FeatureEncoder(MIXED_SCHEMA, 4, dropout=1.0),
    "dropout=2.0 is not a probability": lambda: RegressionHead(
        4, MIXED_SCHEMA, targets=["score"], dropout=2.0
    ),
    "a path has at least one edge": lambda: NodePairs("bond", 0),
    "adds pairs or a virtual node. Set one": lambda: choose_addition("bond", {"relation": "bond"}),
    "a type 'virtual' already": lambda: VirtualNode("bond").schema(
        Schema((NodeType("virtual", 0),), relations=BOND.relations)
    ),
    "bnod": lambda: VirtualNode("bnod").schema(BOND),
    "cannot reduce over 'output'. Did you mean 'outputs'": lambda: SumReadout(3, over="output"),
    "divide_by=0 is not positive. Use a number": lambda: ScaledSumReadout(3, divide_by=0),
    "divide_by=nan is not positive. Use a number": lambda: ScaledSumReadout(3, divide_by=NAN),
    r"Set2SetReadout has 0 steps\. Set steps to at least 1": lambda: Set2SetReadout(4, steps=0),
    r"AttentiveReadout has 0 steps\. Set steps to at least": lambda: AttentiveReadout(4, steps=0),
    "no reduction 'summ'. Did you mean 'sum'": lambda: TypeReadout(3, {"word": ["summ"]}),
    "reads nothing. Name a type": lambda: TypeReadout(3, {"word": []}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_it_is_refused(message: str) -> None:
    with pytest.raises(GraphfoldError, match=message):
        REFUSED[message]()
