"""Passes, cells and schema of a network, and the errors where they do not fit."""

from __future__ import annotations

import copy
import pickle

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

from graphfold.batching import Batch, Cell, Down, Network, Up, build_schedule
from graphfold.batching.engine.compiled.choice import RUNS
from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.errors import ConfigError, KindError, SchemaError, ShapeError
from graphfold.layers import ChildSumTreeLSTMCell, LeafLSTMCell, NaryTreeLSTMCell


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
        Network(schema, (Up(), {"word": OnlyH(), "phrase": PhraseCell()}))


def test_a_field_that_the_batch_lacks_is_an_error_before_anything_runs():
    network = make_network(cells=[{**tree_cells(), "word": OnlyH()}])
    dag = chain(2)
    with pytest.raises(SchemaError, match="children of type 'word' have only 'h'"):
        network(make_batch(dag, network), make_x(dag))


def test_a_network_is_shown_as_a_tree_with_widths_and_sizes():
    schema = Schema((NodeType("word", 0), NodeType("pair", 2)))
    cells = {"word": LeafLSTMCell(5, 4), "pair": NaryTreeLSTMCell(0, 4)}
    network = Network(schema, (Up(), cells))
    pair = sum(parameter.numel() for parameter in cells["pair"].parameters())
    assert repr(network).splitlines() == [
        "Network(run=auto",
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
    network = Network(SCHEMA, *zip([Up(), Up()], cells, strict=True)).double()
    dag = random_dag(2, 0)
    network(make_batch(dag, network), x := make_x(dag))
    lines = [line for line in repr(network).splitlines() if "word: " in line]
    ways = [("eager (Looking" in line, "compiled (native)" in line) for line in lines]
    assert ways == [(first is Looking, first is WordCell), (first is WordCell, first is Looking)]
    compiled, eager = (1, 2) if first is WordCell else (2, 1)
    how = network.execution["word"]
    assert how.startswith("eager (Looking: ")
    assert f") in pass {eager} (Up); compiled (native) in pass {compiled} (Up)" in how
    network.run = "reference"
    network(make_batch(dag, network), x)
    assert network.execution == {}
    assert "compiled" not in repr(network)
    assert "eager" not in repr(network)


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


@pytest.mark.parametrize(
    ("step", "came"),
    [
        ([Up()], "this is a list"),
        (Up(), "this is an Up"),
        ((Up(), {}, {}), "this is a tuple"),
        (({}, Up()), "this is a dict and an Up"),
    ],
)
def test_a_step_is_a_pair_of_a_pass_and_cells(step, came):
    with pytest.raises(KindError, match=f"pairs of a pass and its cells, but {came}"):
        Network(SCHEMA, step)


@pytest.mark.parametrize(("cells", "came"), [([PairCell()], "a list"), (PairCell, "the class")])
def test_cells_are_a_mapping_or_one_cell(cells, came):
    with pytest.raises(KindError, match=f"the cells of a pass are {came}.*or one cell for all"):
        Network(SCHEMA, (Up(), cells))


def test_rounds_and_cells_go_together():
    with pytest.raises(ConfigError, match="2 cells for 3 rounds"):
        make_network([rounds(3)], [{"word": [MessageCell(), MessageCell()]}])
    with pytest.raises(ConfigError, match="no run 'quick'"):
        make_network(run="quick")


FLOATS = (Column("vector", shape=(2,)), Column("length"))


def trees(features=FLOATS):
    """((a b) c) and (d e), whose words have features."""
    schema = Schema((NodeType("word", 0, features=features), NodeType("phrase", 2)))
    builder = GraphBuilder(schema)
    for count in (3, 2):
        own = {"vector": [[0.5, -1.0]] * count, "length": range(count), "tag": [1] * count}
        own = {column.name: own[column.name] for column in features}
        root, *others = builder.nodes("word", count, **own)
        for other in others:
            root = builder.node("phrase", [root, other])
        builder.output(root)
        builder.finish()
    return builder.build()


def tree_network(dag, *steps, **options):
    torch.manual_seed(0)
    cells = {"word": LeafLSTMCell(3, 4), "phrase": NaryTreeLSTMCell(0, 4)}
    return Network(dag.schema, *(steps or [(Up(), cells)]), **options)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_that_are_floats_are_the_input(run, dtype):
    dag = trees()
    network = tree_network(dag, run=run).to(dtype)
    own = dag.features("word")
    x = torch.cat([own["vector"], own["length"].unsqueeze(1)], 1).to(dtype)
    given = {"word": x, "phrase": torch.empty(3, 0, dtype=dtype)}
    want = network(make_batch(dag, network), given)
    for graphs, inputs in ((dag, None), (dag, {"word": x}), (make_batch(dag, network), {})):
        torch.testing.assert_close(dict(network(graphs, inputs)), dict(want), rtol=0, atol=0)
    shared = Batch(dag, build_schedule(dag, network.passes, share=True))
    torch.testing.assert_close(dict(network(shared)), dict(want))


def test_codes_are_no_input():
    dag = trees((Column("tag", "int64", size=3), Column("length")))
    with pytest.raises(ShapeError, match="type 'word' has a cell but no input: its features tag"):
        tree_network(dag)(dag)


def test_an_input_of_a_type_that_the_schema_lacks():
    dag = trees()
    with pytest.raises(ShapeError, match="x names wrod, which the schema lacks. Did you mean"):
        tree_network(dag)(dag, {"wrod": torch.zeros(5, 3)})


@pytest.mark.parametrize("run", RUNS)
def test_features_that_do_not_fit_the_cell(run):
    dag = trees(FLOATS[:1])
    with pytest.raises(
        ShapeError, match=r"no x\['word'\], so LeafLSTMCell.before got the features"
    ):
        tree_network(dag, run=run)(dag)


def test_graphs_are_planned_once_for_the_same_passes(monkeypatch):
    planned = []

    def plan(dag, passes):
        planned.append(passes)
        return build_schedule(dag, passes)

    monkeypatch.setattr("graphfold.batching.batch.build_schedule", plan)
    dag = trees()
    network, other = tree_network(dag), tree_network(dag)
    with torch.inference_mode():
        first = network(dag)["h"]
    network(dag)["h"].sum().backward()  # the plan serves training, too
    torch.testing.assert_close(other(dag)["h"], first.clone())
    assert planned == [(Up(),)]
    tree_network(dag, (Down(), ChildSumTreeLSTMCell(0, 4)))(dag, {"word": torch.empty(5, 0)})
    assert planned == [(Up(),), (Down(),)]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda dag: pickle.loads(pickle.dumps(dag))])
def test_copies_of_graphs_are_planned_anew(copied):
    dag = trees()
    network = tree_network(dag)
    want = network(dag)["h"]
    other = copied(dag)
    assert not other.plans
    torch.testing.assert_close(network(other)["h"], want, rtol=0, atol=0)


def test_graphs_that_were_changed_after_they_were_planned():
    dag = trees()
    network = tree_network(dag)
    network(dag)
    dag.input_index[:2] = dag.input_index[:2].flip(0)
    with pytest.raises(ShapeError, match="were changed in place after they had been planned"):
        network(dag)


def test_one_cell_for_all_types():
    dag = trees()
    torch.manual_seed(0)
    cell = ChildSumTreeLSTMCell(3, 4)
    x = {"word": torch.randn(5, 3), "phrase": torch.randn(3, 3)}
    by_type = Network(dag.schema, (Up(), {"word": cell, "phrase": cell}))
    for_all = Network(dag.schema, (Up(), cell))
    torch.testing.assert_close(for_all(dag, x)["h"], by_type(dag, x)["h"], rtol=0, atol=0)
    assert len(list(for_all.parameters())) == len(list(cell.parameters()))


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
    network.run = "reference"
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
    assert list(make_network().state_dict()) == list(make_network(run="eager").state_dict())


def test_an_empty_graph_in_last_place_keeps_its_place():
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("word"))
    builder.finish()
    dag = builder.build()
    network = make_network()
    assert network(make_batch(dag, network), make_x(dag))["h"].shape == (1, SIZE)
