"""Options of cells: what they change in the states of two small graphs.

Most options belong to many cells and say the same in each, so one row is tried with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from effects import walk
from effects.cell_setups import PLACES, above_another, setup
from effects.table import Rows
from layers.cells_table import EDGES

from graphfold.layers.activation import ACTIVATIONS
from graphfold.layers.molecules.message_passing import NORMS

ROWS = row = Rows()

same = torch.testing.assert_close


def ids(option: str, without: Sequence[str] = ()) -> list[str]:
    """The ids of an option in all cells that have it."""
    known = (f"{name}.{option}" for name in PLACES if name not in without)
    return [name for name in known if name in walk.options()]


def cell_of(option: str) -> str:
    return option.partition(".")[0]


def differ(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape != second.shape or not torch.allclose(first, second)


# Options of many cells


@row.changes(ids("hidden_size"), "the width of the state of a node")
def _(option):
    for width in (4, 6):
        made = setup(cell_of(option), hidden=width)
        assert made.cell.fields[made.field] == width
        assert made.state().shape[1] == width


@row.changes(ids("dropout"), "in training, and only there, entries are dropped at random")
def _(option):
    name = cell_of(option)
    plain, dropping = (setup(name, hidden=16, dropout=p) for p in (0.0, 0.5))
    assert torch.equal(plain.state(), dropping.state())
    same(plain.state(training=True), plain.state(training=False), rtol=1e-12, atol=1e-12)
    first, again, other = (dropping.state(training=True, draw=draw) for draw in (0, 0, 1))
    assert torch.equal(first, again)
    assert differ(first, other)
    assert differ(first, plain.state())


@row.changes(ids("activation"), "the function of the new state")
def _(option):
    name = cell_of(option)
    linear = setup(name, activation="none").state()
    for activation, function in ACTIVATIONS.items():
        found = setup(name, activation=activation).state()
        if name == "TreeFCCell":  # its children have it, too
            assert differ(found, linear) == (activation != "none")
        elif name != "DMPNNBondCell":  # its first state has it, too
            same(found, function(linear))
    states = [setup(name, activation=activation).state() for activation in ACTIVATIONS]
    assert all(differ(a, b) for i, a in enumerate(states) for b in states[:i])


@row.changes(ids("norm"), "batch: over the rows of a batch in training; layer: over each row")
def _(option):
    name = cell_of(option)
    plain, batch, layer = (setup(name, norm=norm) for norm in (None, *sorted(NORMS)))
    for made, depends in ((plain, False), (batch, True), (layer, False)):
        together, alone = (made.state(training=True, graphs=g) for g in ([0, 1], [0]))
        assert differ(together[:4], alone) == depends
    same(batch.state()[:4], batch.state(graphs=[0]))
    assert differ(layer.state(), plain.state())


@row.changes(ids("residual"), "the old state is added to the new one")
def _(option):
    plain, added = (setup(cell_of(option), residual=value) for value in (False, True))
    same(added.state() - plain.state(), plain.features()["atom"])


@row.changes(ids("jumping"), "the field `jump`: the sum or the maximum of the states of all rounds")
def _(option):
    name = cell_of(option)
    assert "jump" not in setup(name).states()
    for jumping, join in (("sum", torch.add), ("max", torch.maximum)):
        one, two = (setup(name, num_rounds=n, jumping=jumping).states() for n in (1, 2))
        assert differ(one["jump"], one["h"])  # the state before the first round is in it
        same(two["jump"], join(one["jump"], two["h"]))


@row.changes(ids("forget_bias"), "what the bias of the forget gates begins with")
def _(option):
    plain, biased = (setup(cell_of(option), forget_bias=b).cell.state_dict() for b in (0.0, 3.0))
    changes = {name: value - plain[name] for name, value in biased.items()}
    moved = {name: change for name, change in changes.items() if change.any()}
    assert [*moved] == ["from_h.bias"]
    assert {*moved["from_h.bias"].tolist()} <= {0.0, 3.0}
    # A gate that is wide open hands on the cells of the children: much more than one that is shut.
    wide, shut = (setup(cell_of(option), forget_bias=b).states()["c"] for b in (50.0, -50.0))
    roots = [6, 11]
    assert differ(wide[roots], shut[roots])
    assert (shut[roots].abs() <= 1).all()  # i * u alone


@row.changes(ids("own"), "a node reads these fields of its own, as an earlier pass left them")
def _(option):
    name = cell_of(option)
    plain, reading = (above_another(name, own=own) for own in ((), ["h"]))
    for made, reads in ((plain, False), (reading, True)):
        before = made.state()
        with torch.no_grad():
            made.cells[0]["word"].from_x.weight.add_(1.0)
        assert differ(before, made.state()) == reads


# Options of one cell


@row.changes(["ChildSumTreeLSTMCell.prefix"], "begins the names of the fields; their values stay")
def _():
    plain = setup("ChildSumTreeLSTMCell").states()
    named = setup("ChildSumTreeLSTMCell", prefix="up_").states()
    assert [*named] == [f"up_{name}" for name in plain]
    assert all(torch.equal(named[f"up_{name}"], value) for name, value in plain.items())


@row.changes("BagCell.subtree", "a node adds up the bags of its children")
def _():
    plain, added = (setup("BagCell", subtree=value).state() for value in (False, True))
    same(added[4], plain[4] + plain[0] + plain[1])
    same(added[:4], plain[:4])


@row.changes("DeepSetCell.inner_size", "the width of the hidden layers; null for four times")
def _():
    widths = [setup("DeepSetCell", inner_size=n).cell.inner.in_features for n in (7, None)]
    assert widths == [7, 16]


@row.changes("LeafCell.fields", "the names of the fields, each a map of its own")
def _():
    cell = setup("LeafCell", fields=["h", "c"])
    states = cell.states()
    assert [*states] == ["c", "h"]
    assert differ(states["c"][:4], states["h"][:4])


@row.changes("NeighboursCell.source", "the field of an earlier pass that is added up")
def _():
    states = setup("NeighboursCell").states()
    same(states["around"][4], states["h"][4] + states["h"][0] + states["h"][1])
    with pytest.raises(Exception, match="absent"):
        setup("NeighboursCell", source="absent").states()


@row.changes("NeighboursCell.field", "the name of the field of the sums")
def _():
    plain, named = (setup("NeighboursCell", field=name).states() for name in ("around", "sums"))
    assert torch.equal(plain["around"], named["sums"])


@row.changes(
    "RelationTreeLSTMCell.bases", "so many matrices are mixed; 0: a gate for each relation"
)
def _():
    states = [setup("RelationTreeLSTMCell", bases=n).state() for n in (0, 1, 3)]
    assert all(differ(a, b) for i, a in enumerate(states) for b in states[:i])
    shapes = [
        sum(p.numel() for p in setup("RelationTreeLSTMCell", bases=n).cell.parameters())
        for n in (1, 2, 3)
    ]
    assert shapes[2] - shapes[1] == shapes[1] - shapes[0] > 0


@row.changes("MVLeafCell.rank", "the rank of what words' matrices have beside their diagonals")
def _():
    for rank in (1, 3):
        states = setup("MVLeafCell", hidden=8, rank=rank).states()
        (matrix,) = [value for value in states.values() if value.shape[1] == 64]
        square = matrix[:4].view(4, 8, 8)
        corner = square[:, :4, 4:]  # without the diagonal
        assert {int(r) for r in torch.linalg.matrix_rank(corner)} == {rank}


@row.changes("FingerprintCell.fingerprint_size", "the width of the field `fingerprint`")
def _():
    for size in (3, 7):
        states = setup("FingerprintCell", fingerprint_size=size).states()
        assert states["fingerprint"].shape[1] == size
        same(states["fingerprint"].sum(1), torch.ones(9, dtype=torch.float64))  # of one round


@row.changes("FingerprintCell.max_degree", "atoms of this many neighbours or more share a weight")
def _():
    few, many = 0, 4  # atoms of the first graph and of the second, with 1 and 4 neighbours
    for most, shared in ((0, True), (1, True), (4, False)):
        made = setup("FingerprintCell", max_degree=most)
        before = made.state()
        with torch.no_grad():
            made.cell.by_degree.bias[min(most, many)].add_(1.0)
        moved = (made.state() - before).any(1)
        assert moved[many]
        assert moved[few] == (most <= 1)
        assert moved[1] == shared  # of three neighbours


@row.changes(["GATCell.heads", "GATv2Cell.heads"], "the width is shared among so many attentions")
def _(option):
    name = cell_of(option)
    states = [setup(name, heads=heads).state() for heads in (1, 2, 4)]
    assert {state.shape for state in states} == {(9, 4)}
    assert all(differ(a, b) for i, a in enumerate(states) for b in states[:i])
    with pytest.raises(Exception, match="multiple of the number of heads"):
        setup(name, heads=3)


@row.changes("GGNNCell.kind", "the column of edges that tells which weight is used")
def _():
    first, named = setup("GGNNCell"), setup("GGNNCell", kind="kind")
    assert torch.equal(first.state(), named.state())
    with pytest.raises(Exception, match="length"):
        setup("GGNNCell", kind="length")
    codes = [column.name for column in EDGES if column.size]
    assert codes == ["kind"]


@row.changes(["GINCell.learn_epsilon", "GINECell.learn_epsilon"], "a node weighs itself 1 + ε")
def _(option):
    name = cell_of(option)
    fixed, learned = (setup(name, learn_epsilon=value) for value in (False, True))
    assert learned.cell.update.epsilon is not None
    assert fixed.cell.update.epsilon is None
    learned.cell.load_state_dict(fixed.cell.state_dict(), strict=False)
    assert torch.equal(fixed.state(), learned.state())  # ε begins with 0
    with torch.no_grad():
        learned.cell.update.epsilon.fill_(1.0)
    assert differ(fixed.state(), learned.state())


@row.changes("MPNNCell.edge_hidden_size", "the width of the edge network's hidden layer")
def _():
    sizes = [
        sum(p.numel() for p in setup("MPNNCell", edge_hidden_size=n).cell.parameters())
        for n in (3, 4, 5)
    ]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 0


@row.changes("PNACell.mean_log_degree", "δ: neighbours are amplified by log(n + 1) / δ")
def _():
    small, large = (setup("PNACell", mean_log_degree=value).state() for value in (0.5, 2.0))
    assert differ(small, large)


@row.changes("DMPNNBondCell.bias", "whether the messages have a bias")
def _():
    with_bias, without = (setup("DMPNNBondCell", bias=value).cell for value in (True, False))
    assert without.message.bias is None
    assert with_bias.message.bias is not None
