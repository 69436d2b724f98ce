"""TypeReadout: sums, means and maxima of each type, side by side."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from strategies import MIXED_SCHEMA, dags, with_empty_graph
from torch import Tensor

from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import SchemaError, ShapeError
from graphfold.layers import TypeReadout


def random_states(dag: TypedDAG) -> tuple[Tensor, States]:
    h = torch.randn(dag.num_nodes, 3)
    rows = torch.cat([torch.zeros(1, 3), h])
    has = dict.fromkeys(range(len(dag.schema.types)), frozenset({"h"}))
    return h, States({"h": rows}, torch.arange(1, dag.num_nodes + 1), has)


@given(dag=dags())
def test_each_part_is_reduced_by_itself(dag):
    dag = with_empty_graph(dag)
    h, states = random_states(dag)
    readout = TypeReadout(3, {"pair": ["max", "sum"], "word": ["mean"]})
    assert readout.output_size == 9
    want = torch.zeros(dag.num_graphs, 9)
    for graph in range(dag.num_graphs):
        for place, name in ((0, "pair"), (6, "word")):
            own = h[(dag.batch == graph) & (dag.op_type == MIXED_SCHEMA.type_index(name))]
            if len(own) and name == "pair":
                want[graph, :6] = torch.cat([own.amax(0), own.sum(0)])
            elif len(own):
                want[graph, place:] = own.mean(0)
    torch.testing.assert_close(readout(states, dag), want)


@given(dag=dags())
def test_faults_of_the_data(dag):
    h, states = random_states(dag)
    with pytest.raises(SchemaError, match="no node type 'atom'"):
        TypeReadout(3, {"atom": ["sum"]})(states, dag)
    none = States({"h": h}, torch.arange(dag.num_nodes), {})
    types = {dag.schema.types[int(dag.op_type[0])].name: ["sum"]}
    with pytest.raises(ShapeError, match="which has no such field"):
        TypeReadout(3, types)(none, dag)
