"""Every engine refuses inputs of a pass that have too few or too many rows.

Native code reads rows by number, so too few would be memory of others, and too many a sign that
they belong to another batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_cells import SCHEMA, SIZE, make_batch, make_x, random_dag, rounds
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Down, Network, Up, build_schedule
from graphfold.batching.backends.native import NativeMemory
from graphfold.dag import GraphBuilder
from graphfold.errors import ConfigError, ShapeError

pytestmark = pytest.mark.usefixtures("backend")

every_engine = pytest.mark.parametrize("engine", ["reference", "compiled", "eager"])
one_off = pytest.mark.parametrize("change", [-1, 1])
DAG = random_dag(4, 1)
NUM_NODES = dict(zip(("word", "phrase", "pair"), DAG.num_nodes_by_type, strict=True))


def resized(rows: Tensor, change: int) -> Tensor:
    """One row less, or one more."""
    return rows[:-1] if change < 0 else torch.cat([rows, rows[:1]])


class EveryInput(Cell):
    """Reads an input, edges, and what it has computed of both; one of its results may be resized.

    Args:
        place: whose rows are resized: "before", "before_edges", "initial", "after", or nothing.
        change: by how many rows.
    """

    def __init__(self, place: str = "", change: int = 0) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)
        self.place, self.change = place, change

    def _resize(self, place: str, rows: Tensor) -> Tensor:
        return resized(rows, self.change) if place == self.place else rows

    def before(self, x):
        both = {"one": x, "other": self.linear(x)} if isinstance(x, Tensor) else x
        return {**both, "one": self._resize("before", both["one"])}

    def before_edges(self, edge):
        if "weight" not in edge:  # a relation without columns
            return {}
        return {"w": self._resize("before_edges", edge["weight"].nan_to_num().unsqueeze(1))}

    def initial(self, x):
        return {"h": self._resize("initial", x["other"])}

    def forward(self, x, children):
        total = children.sum("h") + x["one"] + x["other"]
        if "w" in children.edge:
            total = total + children.sum(children.edge["w"])
        return {"h": torch.tanh(total)}

    def after(self, state):
        return {"score": self._resize("after", state["h"])}


def network_of(engine: str, item=None, place: str = "", change: int = 0, **options) -> Network:
    cell = EveryInput(place, change)
    cells = [{"word": cell, "phrase": cell, "pair": cell}]
    return Network(SCHEMA, *zip([item or Up()], cells, strict=True), run=engine, **options).double()


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if native code runs."""

    def run(*_: object) -> None:
        raise AssertionError("native code has been called")

    monkeypatch.setattr(NativeMemory, "run", run)


def refuse(engine: str, message: str, run: Callable[[], object]) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        run()


@every_engine
@pytest.mark.parametrize("item", [Up(), Down(), rounds(2)], ids=["up", "down", "rounds"])
def test_all_is_well_with_the_rows_that_are_needed(engine, item):
    network, x = network_of(engine, item), make_x(DAG)
    states = network(make_batch(DAG, network), x)
    reference = network_of("reference", item)
    reference.load_state_dict(network.state_dict())
    torch.testing.assert_close(dict(states), dict(reference(make_batch(DAG, reference), x)))


@pytest.mark.usefixtures("no_native")
@one_off
@every_engine
@pytest.mark.parametrize("item", [Up(), Down(), rounds(2)], ids=["up", "down", "rounds"])
@pytest.mark.parametrize("name", NUM_NODES)
def test_rows_of_x(name, item, engine, change):
    network, x = network_of(engine, item), make_x(DAG)
    count = NUM_NODES[name]
    end = (
        f"has {count + change} rows, but {count} are needed: one for each node of type '{name}', "
        "in node order. Encode this batch's graphs."
    )
    batch, wrong = make_batch(DAG, network), resized(x[name], change)
    refuse(engine, f"x['{name}'] {end}", lambda: network(batch, {**x, name: wrong}))
    both = {"one": x[name], "other": wrong}
    refuse(engine, f"x['{name}']['other'] {end}", lambda: network(batch, {**x, name: both}))


@pytest.mark.usefixtures("no_native")
@one_off
@every_engine
def test_rows_of_x_where_equal_nodes_are_computed_once(engine, change):
    builder = GraphBuilder(SCHEMA)
    for _ in range(3):
        builder.output(builder.node("phrase", builder.nodes("word", 3)))
        builder.finish()
    dag = builder.build()
    network, x = network_of(engine), make_x(dag)
    schedule = build_schedule(dag, network.passes, share=True)
    assert schedule.sources is not None
    assert [len(own.node) for own in schedule.sources] == [1, 1, 0]
    batch = Batch(dag, schedule)
    refuse(
        engine,
        f"x['word'] has {9 + change} rows, but 9 are needed: one for each node of type 'word', in "
        "node order. Encode this batch's graphs.",
        lambda: network(batch, {**x, "word": resized(x["word"], change)}),
    )
    counts = [len(own.node) for own in schedule.sources]
    of_sources = {n: rows[:count] for (n, rows), count in zip(x.items(), counts, strict=True)}
    with pytest.raises(ShapeError, match=f"has {1 + change} rows, but 9 are needed"):
        network(batch, {**of_sources, "word": resized(of_sources["word"], change)})


@pytest.mark.usefixtures("no_native")
@every_engine
def test_rows_of_a_type_that_the_batch_lacks(engine):
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("word"))
    builder.finish()
    dag = builder.build()
    network, x = network_of(engine), make_x(dag)
    x["pair"] = torch.zeros(1, SIZE, dtype=torch.float64)
    with pytest.raises(ShapeError, match=r"x\['pair'\] has 1 rows, but 0 are needed"):
        network(make_batch(dag, network), x)


@pytest.mark.usefixtures("no_native")
@every_engine
def test_an_input_that_is_a_number(engine):
    network, x = network_of(engine), make_x(DAG)
    with pytest.raises(ShapeError, match=r"x\['word'\] has no rows, only a number, but \d+ are"):
        network(make_batch(DAG, network), {**x, "word": torch.tensor(0.5)})


@pytest.mark.usefixtures("no_native")
@one_off
@every_engine
@pytest.mark.parametrize("place", ["before", "before_edges", "initial"])
def test_wrong_rows_from_before_are_refused(place, engine, change):
    network = network_of(engine, rounds(2) if place == "initial" else Up(), place, change)
    with pytest.raises(ShapeError) as caught:
        network(make_batch(DAG, network), make_x(DAG))
    if place == "initial":
        assert re.search(r"EveryInput\(h=3\) returns 'h' of shape", str(caught.value))
    else:
        count = DAG.num_inputs if place == "before_edges" else NUM_NODES["word"]
        name = "w" if place == "before_edges" else "one"
        assert str(caught.value) == (
            f"what EveryInput(h=3).{place} returns['{name}'] has {count + change} rows, but "
            f"{count} are needed: one for each that the cell was given. Return them in their order."
        )


@pytest.mark.on_cpu
@one_off
@every_engine
@pytest.mark.parametrize("item", [Up(), rounds(2)], ids=["up", "rounds"])
def test_wrong_rows_from_after_are_refused(item, engine, change):
    network = network_of(engine, item, "after", change)
    with pytest.raises(
        ShapeError, match=r"what EveryInput.*\.after returns\['score'\] has \d+ rows"
    ):
        network(make_batch(DAG, network), make_x(DAG))


@pytest.mark.usefixtures("no_native")
@one_off
@every_engine
def test_rows_of_an_edge_column(engine, change):
    network, count = network_of(engine), DAG.num_inputs
    columns = {**DAG.columns}
    columns["inputs"] = {"weight": resized(DAG.columns["inputs"]["weight"], change)}
    dag = replace(DAG, columns=columns)
    refuse(
        engine,
        f"columns['inputs']['weight'] has {count + change} rows, but {count} are needed: one for "
        "each edge. Build the graph with a value for every edge.",
        lambda: network(make_batch(dag, network), make_x(dag)),
    )


class Table(EveryInput):
    """Makes one row for all edges of a relation without columns."""

    def before_edges(self, edge):
        return {"w": torch.ones(1, SIZE, dtype=torch.float64)}


@pytest.mark.usefixtures("no_native")
@every_engine
@pytest.mark.parametrize("item", [Up("next"), rounds(2)], ids=["up", "rounds"])
def test_a_table_for_edges_without_columns(item, engine):
    builder = GraphBuilder(SCHEMA)
    nodes = builder.nodes("word", 4)
    builder.edges("next", nodes[:-1], nodes[1:])
    builder.output(nodes[-1])
    builder.finish()
    dag = builder.build()
    network = Network(SCHEMA, (item, {"word": Table()}), run=engine).double()
    with pytest.raises(
        ShapeError, match=r"before_edges returns\['w'\] has 1 rows, but 3 are needed"
    ):
        network(make_batch(dag, network), make_x(dag))


@pytest.mark.usefixtures("no_native")
@pytest.mark.parametrize("width", [SIZE - 1, SIZE + 1])
@every_engine
@pytest.mark.parametrize("item", [Up(), rounds(2)], ids=["up", "rounds"])
def test_a_wrong_width_of_absent_children_is_refused(item, engine, width):
    network = network_of(engine, item, learned_absent=["h"])
    network.absent["h"] = nn.Parameter(torch.zeros(width, dtype=torch.float64))
    refuse(
        engine,
        f"absent['h'] has the shape [{width}], but the field 'h' has the width 3. Give it the "
        "shape [3].",
        lambda: network(make_batch(DAG, network), make_x(DAG)),
    )


def one_tree(pairs: list[tuple[int, int]]):
    """Three words and two pairs that join them."""
    builder = GraphBuilder(SCHEMA)
    builder.nodes("word", 3)
    for pair in pairs:
        top = builder.node("pair")
        builder.inputs(top, list(pair), weight=[1.0, 1.0])
    builder.output(top)
    builder.finish()
    return builder.build()


def test_a_schedule_of_other_graphs():
    left, right = one_tree([(0, 1), (3, 2)]), one_tree([(1, 2), (0, 3)])
    assert left.num_nodes_by_type == right.num_nodes_by_type
    schedule = build_schedule(left, [Up()])
    message = (
        "the schedule was built for other graphs than these 1 with 5 nodes. Build it from the "
        "graphs of the batch: build_schedule(dag, passes)."
    )
    with pytest.raises(ShapeError, match=re.escape(message)):
        Batch(right, schedule)
    with pytest.raises(ShapeError, match="other graphs than these 4"):
        Batch(DAG, schedule)
    with pytest.raises(ShapeError, match="other graphs"):
        Batch(right, build_schedule(left, [Up()], share=True))
    assert Batch(one_tree([(0, 1), (3, 2)]), schedule).num_graphs == 1  # the same graphs, made anew


def test_relations_are_a_part_of_the_graphs_that_a_schedule_is_for():
    def ring(turn: int):
        builder = GraphBuilder(SCHEMA)
        nodes = list(builder.nodes("word", 3))
        builder.edges("next", nodes, nodes[turn:] + nodes[:turn])
        builder.output(0)
        builder.finish()
        return builder.build()

    with pytest.raises(ShapeError, match="other graphs"):
        Batch(ring(1), build_schedule(ring(2), [rounds()]))


@pytest.mark.usefixtures("no_native")
@every_engine
def test_a_schedule_of_other_passes(engine):
    network = network_of(engine, Down())
    message = (
        "the schedule was built for the passes [Up(edges='inputs')], but the model has "
        "[Down(edges='inputs')]. Build it from the passes of the model."
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        network(Batch(DAG, build_schedule(DAG, [Up()])), make_x(DAG))


@pytest.mark.on_cpu
@every_engine
def test_a_shared_tensor_of_another_size_is_a_new_program(engine):
    class Shared(EveryInput):
        def forward(self, x, children):
            return {"h": x["one"] + children.shared["rows"].sum(0) + children.sum("h")}

    cell = Shared()
    cells = [{"word": cell, "phrase": cell, "pair": cell}]
    network, x = Network(SCHEMA, *zip([Up()], cells, strict=True), run=engine).double(), make_x(DAG)
    batch, word = make_batch(DAG, network), DAG.nodes_of_type("word")
    for count in (3, 2, 4):
        rows = torch.ones(count, SIZE, dtype=torch.float64)
        states = network(batch, x, {"rows": rows})
        torch.testing.assert_close(states["h"][word], x["word"] + count)


@pytest.mark.on_cpu
@every_engine
def test_a_weight_that_is_replaced_by_a_smaller_one(engine):
    network, x = network_of(engine), make_x(DAG)
    batch = make_batch(DAG, network)
    network(batch, x)
    cell = network.cells[0]["word"][0]
    cell.linear.weight = nn.Parameter(torch.zeros(SIZE, SIZE - 1, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="mat1 and mat2|size mismatch|shapes cannot"):
        network(batch, x)
