"""Options of readouts: what they change in the rows that a head reads.

They read the states of a Tree-LSTM over two trees, which have the fields h and c.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from effects import walk
from effects.cell_setups import setup
from effects.table import Rows
from torch import Tensor

import graphfold.layers as layers
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers.readouts.pooling import Pooling
from graphfold.layers.readouts.readout import Readout

ROWS = row = Rows()

SIZE = 4

same = torch.testing.assert_close


def ids(option: str) -> list[str]:
    """The ids of an option in all readouts that have it."""
    return sorted(
        name
        for name in walk.options()
        if name.endswith(f"Readout.{option}") and not name.startswith("GraphModel")
    )


@cache
def trees() -> tuple[States, TypedDAG]:
    """The states of all nodes of two trees, and the trees; the outputs are the roots."""
    made = setup("NaryTreeLSTMCell", hidden=SIZE)
    return made.run(), made.graphs()


@cache
def two_outputs() -> tuple[States, TypedDAG]:
    """The two trees as one pair: a graph with two outputs."""
    states, dag = trees()
    one = replace(
        dag,
        num_graphs=1,
        batch=torch.zeros_like(dag.batch),
        output_ptr=torch.tensor([0, 2]),
        origin=dag.origin[:1],
    )
    return states, one


def make(name: str, **options: object) -> Readout:
    """A readout, always with the same initial weights."""
    torch.manual_seed(3)
    if name == "TypeReadout":
        options = {"types": {"word": ["sum"], "pair": ["max"]}, **options}
    readout: Readout = getattr(layers, name)(SIZE, **options).double()
    return readout


def rows(readout: Readout) -> Tensor:
    """The rows that a readout makes of the trees."""
    states, dag = two_outputs() if readout.pairs else trees()
    with torch.no_grad():
        found: Tensor = readout(states, dag)
    return found


@row.changes(ids("field"), "the field of the nodes that is read")
def _(option):
    name = option.partition(".")[0]
    states, _ = trees()
    h, c = (rows(make(name, field=field)) for field in ("h", "c"))
    assert not torch.allclose(h, c)
    # With the values of h under the name of c it reads what it read before.
    values = {"h": states["c"], "c": states["h"]}
    assert torch.equal(rows_of(make(name, field="c"), values), h)


@row.changes(ids("over"), "all nodes, or the output nodes alone")
def _(option):
    name = option.partition(".")[0]
    states, dag = trees()
    of_nodes, of_outputs = make(name, over="nodes"), make(name, over="outputs")
    assert isinstance(of_nodes, Pooling)
    with torch.no_grad():
        every = of_nodes.reduce(states["h"], dag.node_ptr)
        roots = of_nodes.reduce(states["h"][dag.output_index], dag.output_ptr)
    same(rows(of_nodes), every)
    same(rows(of_outputs), roots)
    assert not torch.allclose(every, roots)
    with pytest.raises(ConfigError, match="cannot reduce over 'leaves'"):
        make(name, over="leaves")


@row.changes(ids("steps"), "how often the recurrent unit looks at the nodes")
def _(option):
    name = option.partition(".")[0]
    found = [rows(make(name, steps=steps)) for steps in (1, 2, 3)]
    assert all(not torch.allclose(a, b) for i, a in enumerate(found) for b in found[:i])
    with pytest.raises(ConfigError, match="step"):
        make(name, steps=0)


@row.changes("AttentiveReadout.dropout", "in training, and only there, entries of contexts drop")
def _():
    plain, dropping = (make("AttentiveReadout", dropout=p) for p in (0.0, 0.5))
    same(rows(plain.eval()), rows(dropping.eval()))
    same(rows(plain.train()), rows(plain.eval()))
    draws = []
    for seed in (0, 0, 1):
        dropping.train()
        torch.manual_seed(seed)
        draws.append(rows(dropping))
    assert torch.equal(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2])


@row.changes("ScaledSumReadout.divide_by", "what the sum is divided by")
def _():
    total = rows(make("SumReadout"))
    for number in (1.0, 8.0):
        same(rows(make("ScaledSumReadout", divide_by=number)), total / number)
    with pytest.raises(ConfigError, match="divide_by=0 is not positive"):
        make("ScaledSumReadout", divide_by=0)


@row.changes("TypeReadout.types", "which reductions over which types stand side by side")
def _():
    states, dag = trees()
    found = rows(make("TypeReadout", types={"pair": ["sum", "max"], "word": ["mean"]}))
    is_pair = dag.op_type == 1
    for graph in range(2):
        own = dag.batch == graph
        pairs, words = states["h"][own & is_pair], states["h"][own & ~is_pair]
        expected = torch.cat([pairs.sum(0), pairs.max(0).values, words.mean(0)])
        same(found[graph], expected)


def rows_of(readout: Readout, values: dict[str, Tensor]) -> Tensor:
    """The rows that a readout makes of these values of the nodes."""
    _, dag = two_outputs() if readout.pairs else trees()
    fields = {name: torch.cat([value[:1] * 0, value]) for name, value in values.items()}
    has = dict.fromkeys(range(len(dag.schema.types)), frozenset(fields))
    made = States(fields, torch.arange(1, dag.num_nodes + 1), has)
    with torch.no_grad():
        found: Tensor = readout(made, dag)
    return found
