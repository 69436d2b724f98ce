"""Passes, cells and schema of a network, and the errors where they do not fit."""

from __future__ import annotations

import pytest
import torch
from engine_cells import (
    SCHEMA,
    SIZE,
    MessageCell,
    PairCell,
    PhraseCell,
    WordCell,
    chain,
    make_batch,
    make_network,
    make_x,
    message_cells,
    random_dag,
    rounds,
    tree_cells,
)

from graphfold.batching import Cell, Down, Network, Up
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import ConfigError, SchemaError, ShapeError
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell


class OnlyH(WordCell):
    """A leaf without the field c."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE}

    def forward(self, x, children):
        return {"h": super().forward(x, children)["h"]}


def test_a_field_that_declared_inputs_lack_is_an_error_at_build_time():
    schema = Schema((NodeType("word", 0), NodeType("phrase", None, inputs=("word", "phrase"))))
    with pytest.raises(
        SchemaError,
        match=r"PhraseCell\(h=3, c=3\) reads field 'c', but its children of type 'word' have only "
        "'h'",
    ):
        Network(schema, [Up()], [{"word": OnlyH(), "phrase": PhraseCell()}])


def test_a_field_that_the_batch_lacks_is_an_error_before_anything_runs():
    network = make_network(cells=[{**tree_cells(), "word": OnlyH()}])
    dag = chain(2)
    with pytest.raises(SchemaError, match="children of type 'word' have only 'h'"):
        network(make_batch(dag, network), make_x(dag))


def test_a_network_is_shown_as_a_tree_with_widths_and_sizes():
    schema = Schema((NodeType("word", 0), NodeType("pair", 2)))
    cells = {"word": LeafLSTMCell(5, 4), "pair": NaryTreeLSTMCell(0, 4)}
    network = Network(schema, [Up()], [cells])
    pair = sum(parameter.numel() for parameter in cells["pair"].parameters())
    assert repr(network).splitlines() == [
        "Network(engine=fast",
        "  Up(edges='inputs')",
        "    word: LeafLSTMCell -> h [4], c [4], 72 parameters",  # 3 gates: 5 x 4, and 4
        f"    pair: NaryTreeLSTMCell -> h [4], c [4], {pair} parameters",
        ")",
    ]


class Looking(WordCell):
    """A leaf that cannot be compiled."""

    def forward(self, x, children):
        return {**super().forward(x, children), "c": x.cumsum(1)}


@pytest.mark.filterwarnings("ignore:Looking is not compiled")
@pytest.mark.parametrize("first", [WordCell, Looking])
def test_a_network_shows_how_its_cells_ran_in_each_pass(first):
    second = Looking if first is WordCell else WordCell
    cells = [{"word": first()}, {"word": second()}]
    network = Network(SCHEMA, [Up(), Up()], cells).double()
    dag = random_dag(2, 0)
    network(make_batch(dag, network), x := make_x(dag))
    lines = [line for line in repr(network).splitlines() if "word: " in line]
    ways = [("as it is (Looking" in line, "compiled (native)" in line) for line in lines]
    assert ways == [(first is Looking, first is WordCell), (first is WordCell, first is Looking)]
    compiled, eager = (1, 2) if first is WordCell else (2, 1)
    how = network.execution["word"]
    assert how.startswith("as it is (Looking: ")
    assert f") in pass {eager} (Up); compiled (native) in pass {compiled} (Up)" in how
    network.engine = "reference"
    network(make_batch(dag, network), x)
    assert network.execution == {}
    assert "compiled" not in repr(network)
    assert "as it is" not in repr(network)


def test_only_types_of_the_last_batch_are_shown():
    network = make_network()
    dag = chain(2)
    network(make_batch(dag, network), make_x(dag))
    assert network.execution.keys() == {"word", "phrase"}
    dag = chain(0)
    network(make_batch(dag, network), make_x(dag))
    assert network.execution.keys() == {"word"}


def test_widths_must_agree():
    with pytest.raises(ShapeError, match="field 'h' with width 7, but another cell gives it 3"):
        make_network(cells=[{"word": WordCell(), "phrase": PhraseCell(7)}])


def test_arity_must_agree():
    with pytest.raises(ConfigError, match="needs 2 children, but type 'phrase' has any number"):
        make_network(cells=[{"phrase": PairCell()}])


def test_a_fixed_number_of_children_is_refused_on_the_way_down_and_in_rounds():
    for item in (Down(), rounds(1)):
        with pytest.raises(ConfigError, match=f"in {type(item).__name__} a node has any number"):
            make_network([item], [{"pair": PairCell()}])


def test_a_learned_absent_field_must_exist():
    with pytest.raises(ConfigError, match="names the field 'hh', which no cell has. Did you mean"):
        make_network(learned_absent=["hh"])


def test_a_field_of_an_earlier_pass_belongs_to_the_types_that_computed_it():
    class ReadsC(MessageCell):
        reads = ("c",)

        def forward(self, x, children):
            return {"m": children.sum("c")}

    cells = [{"word": OnlyH(), "pair": PairCell()}, {"word": ReadsC()}]
    network = make_network([Up(), rounds(1)], cells)
    builder = GraphBuilder(SCHEMA)
    builder.nodes("word", 2)
    builder.edges("next", [0], [1])
    builder.output(1)
    builder.finish()
    dag = builder.build()
    with pytest.raises(SchemaError, match="reads field 'c', but its children of type 'word' have"):
        network(make_batch(dag, network), make_x(dag))


def test_passes_and_cells_go_together():
    with pytest.raises(ConfigError, match="2 passes but cells for 1"):
        make_network([Up(), Up()], [tree_cells()])
    with pytest.raises(ConfigError, match="2 cells for 3 rounds"):
        make_network([rounds(3)], [{"word": [MessageCell(), MessageCell()]}])
    with pytest.raises(ConfigError, match="no engine 'quick'"):
        make_network(engine="quick")


def test_a_cell_without_input_is_named():
    network, dag = make_network(), chain(1)
    with pytest.raises(ShapeError, match="type 'phrase' has a cell but no input"):
        network(make_batch(dag, network), {"word": make_x(dag)["word"]})


def test_rounds_without_initial_state_are_named():
    class NoStart(MessageCell):
        initial = Cell.initial

    network, dag = make_network([rounds(1)], [{"word": NoStart()}]), chain(1)
    with pytest.raises(ConfigError, match="NoStart has no initial state"):
        network(make_batch(dag, network), make_x(dag))


def test_a_type_without_a_cell_keeps_its_state():
    dag = random_dag(3, 1)
    both = make_network([rounds(1), Up()], [message_cells(), tree_cells()])
    x = make_x(dag)
    states = both(make_batch(dag, both), x)
    alone = make_network([rounds(1)], [{n: both.cells[0][n][0] for n in both.cells[0]}])
    torch.testing.assert_close(states["m"], alone(make_batch(dag, alone), x)["m"])


def test_weights_of_their_own_for_each_round():
    dag = random_dag(3, 1)
    cells = [MessageCell(), MessageCell()]
    network = make_network([rounds(2)], [dict.fromkeys(("word", "phrase", "pair"), cells)])
    x = make_x(dag)
    got = network(make_batch(dag, network), x)["m"]
    network.engine = "reference"
    torch.testing.assert_close(got, network(make_batch(dag, network), x)["m"])
    grads = torch.autograd.grad(got.sum(), list(cells[0].parameters()))
    assert all(grad.abs().sum() > 0 for grad in grads)


def test_states_answer_in_node_order():
    dag, network = random_dag(4, 2), make_network()
    states = network(make_batch(dag, network, "critical_path"), make_x(dag))
    nodes = torch.tensor([3, 0, 5])
    assert torch.equal(states.at("h", nodes), states["h"][nodes])
    assert sorted(states) == ["c", "h", "score"]
    assert states.has("score", dag.op_type).tolist() == (dag.op_type == 2).tolist()
    assert torch.equal(
        states["score"][dag.op_type != 2], torch.zeros_like(states["score"][dag.op_type != 2])
    )


def test_state_dict_keys_do_not_depend_on_the_engine():
    assert list(make_network().state_dict()) == list(make_network(engine="autograd").state_dict())


def test_an_empty_graph_in_last_place_keeps_its_place():
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("word"))
    builder.finish()
    dag = builder.build()
    network = make_network()
    assert network(make_batch(dag, network), make_x(dag))["h"].shape == (1, SIZE)
