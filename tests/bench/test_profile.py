"""Where a step's time goes: kinds of operations, groups of one row, gradients per group."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.profiler import record_function
from training.tiny_runs import listops, run, write_corpora

from graphfold.batching import Batch, Cell, Children, Network, Up, build_schedule
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.kernels.c_compiler import can_compile
from graphfold.bench.op_times import ELEMENTWISE, GATHER, MEMORY, PRODUCTS, kind_of, op_seconds
from graphfold.bench.treefc import GivenCell, random_trees
from graphfold.bench.unbatched import Fallbacks, GradientsPerGroup, count_launches
from graphfold.layers import TreeFCCell


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", PRODUCTS),
        ("aten::mm", PRODUCTS),
        ("aten::index_select", GATHER),
        ("aten::index_add_", GATHER),
        ("aten::_embedding_bag", GATHER),
        ("aten::cat", GATHER),
        ("torch_scatter::segment_sum_csr", GATHER),
        ("aten::zero_", MEMORY),
        ("aten::copy_", MEMORY),
        ("aten::tanh", ELEMENTWISE),
        ("graphfold::kernel", ELEMENTWISE),
        ("graphfold::product", PRODUCTS),
        ("graphfold::pack", MEMORY),
        ("graphfold::message_sum", GATHER),
        ("aten::sum", ELEMENTWISE),
        ("aten::t", None),
        ("aten::linear", None),
        ("aten::view", None),
        ("AddmmBackward0", None),
        ("Optimizer.step#Adagrad.step", None),
    ],
)
def test_kinds_of_operations(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_operations_of_a_named_block_do_not_count(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(64, 64)

    def work() -> None:
        x.tanh()
        with record_function("aside"):
            x @ x

    assert op_seconds(work, leave_out="other")[PRODUCTS] > 0
    seconds = op_seconds(work, leave_out="aside")
    assert seconds[PRODUCTS] == 0
    assert seconds[ELEMENTWISE] > 0
    assert capfd.readouterr() == ("", "")


def test_launches_are_counted_by_pass_and_type() -> None:
    dag = random_trees(2)
    batch = Batch(dag, build_schedule(dag, [Up()]))
    leaf, node = count_launches([batch, batch], [Up()])
    assert (leaf.type_name, leaf.rows, leaf.groups, leaf.single_groups) == ("leaf", 256, 1, 0)
    assert (node.pass_name, node.rows, node.groups) == ("Up", 254, int(dag.depth.max()))
    alone = Batch(dag, build_schedule(dag, [Up()], "one_by_one"))
    assert count_launches([alone], [Up()])[1].single_groups == 254


class ScaledCell(Cell):
    """A cell with a weight that no linear product uses."""

    arity = 2

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": 3}
        self.linear = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: NodeInput, children: Children) -> State:
        return {"h": self.linear(children.stack("h").flatten(1)) * self.scale}


@pytest.mark.parametrize(
    ("cell", "uses"), [(TreeFCCell(3), []), (ScaledCell(), [("cells.0.node.0.scale", "mul")])]
)
def test_gradients_per_group_are_found(cell: Cell, uses: list[tuple[str, str]]) -> None:
    dag = random_trees(1)
    network = Network(dag.schema, [Up()], [{"leaf": GivenCell(3), "node": cell}])
    x = {"leaf": torch.randn(128, 3, requires_grad=True), "node": torch.empty(127, 0)}
    with GradientsPerGroup(network) as watch:
        network(Batch(dag, build_schedule(dag, [Up()])), x)
    assert list(watch.uses) == uses


class BranchingCell(TreeFCCell):
    """A cell whose code depends on its values, so that no trace can stand for it."""

    def forward(self, x: NodeInput, children: Children) -> State:
        state = super().forward(x, children)
        return {"h": -state["h"]} if float(state["h"].detach().sum()) > 1e6 else state


@pytest.mark.skipif(not can_compile(), reason="no C compiler, so nothing is traced")
@pytest.mark.parametrize("cell", [TreeFCCell(3), BranchingCell(3)])
def test_cells_that_fall_back_are_named(cell: Cell) -> None:
    dag = random_trees(1)
    cells = {"leaf": GivenCell(3), "node": cell}
    network = Network(dag.schema, [Up()], [cells], fuse=True)
    x = {"leaf": torch.randn(128, 3, requires_grad=True), "node": torch.empty(127, 0)}
    logger = logging.getLogger("graphfold.batching")
    before = logger.level, list(logger.handlers)
    with Fallbacks() as watch:
        network(Batch(dag, build_schedule(dag, [Up()])), x)
    named = [message for message in watch.messages if "BranchingCell runs as it is" in message]
    assert len(named) == isinstance(cell, BranchingCell)
    assert (logger.level, list(logger.handlers)) == before


def test_profile_of_an_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    settings = [*listops(), f"data.cache_dir={tmp_path}"]
    assert run("bench", "profile", *settings, "--json", path) == 0
    text = capsys.readouterr().out
    parts = ["loader", "schedule", "optimizer", PRODUCTS, GATHER, ELEMENTWISE, "dispatch"]
    assert all(part in text for part in [*parts, "rows per group"])
    report = json.loads(path.read_text())
    assert report["experiment"] == "listops_tree_lstm"
    assert sum(report["share"].values()) == pytest.approx(1)
    assert {line["type_name"] for line in report["launches"]} == {"token", "pair"}
    assert report["gradients_per_group"] == []
    assert isinstance(report["fallbacks"], list)
    assert {"cpu", "isa", "torch", "products"} <= report.keys()


def test_profile_of_an_experiment_with_blocks(tmp_path: Path) -> None:
    root, path = write_corpora(tmp_path / "corpora"), tmp_path / "profile.json"
    settings = [f"data.root={root}", f"data.cache_dir={tmp_path}", "model.hidden_size=6"]
    blocks = ["experiment=sst_blocks", "data.batch_size=5", *settings]
    assert run("bench", "profile", *blocks, "--json", path) == 0
    report = json.loads(path.read_text())
    names = [line["type_name"] for line in report["launches"]]
    assert any(name.startswith("phrase_state") for name in names)  # what the blocks compute
    assert sum(report["share"].values()) == pytest.approx(1)
