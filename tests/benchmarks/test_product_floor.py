"""The products alone: as many and as large as the computation has."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from training.tiny_runs import MOLECULES, write_corpora

from benchmarks import molecules, sequence, sst, treefc
from benchmarks.experiment import Experiment, load_experiment
from benchmarks.treefc import make_trees
from benchmarks.variants import Product, ProductFloor
from graphfold.batching import Batch, build_schedule
from graphfold.batching.native import linear
from graphfold.layers import NaryTreeLSTMCell


@pytest.fixture(autouse=True)
def products_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of linear layers are torch's, so that they can be counted."""
    monkeypatch.setattr(linear, "_fits", lambda *args: False)


class CountProducts(TorchDispatchMode):
    """Adds up the floating point operations of torch's matrix products."""

    flops = 0

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            left, right = args[-2:]
            self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return func(*args, **(kwargs or {}))


def count_flops(function: Callable[[], object]) -> int:
    with CountProducts() as counter:
        function()
    return counter.flops


def flops(floor: ProductFloor, phase: str) -> int:
    return count_flops(lambda: floor.run(phase))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_corpora(tmp_path_factory.mktemp("data"))
    rng = random.Random(0)
    lines = [f"{smiles},{rng.gauss(0, 1):.2f}" for smiles in MOLECULES * 3]
    text = "\n".join(["smiles,exp", *lines]) + "\n"
    (folder / "lipophilicity" / "Lipophilicity.csv").write_text(text)
    return folder


def experiment(root: Path, *overrides: str) -> Experiment:
    """A tiny model with cells that are not compiled, with products of torch."""
    settings = [f"data.root={root}", f"data.cache_dir={root}/cache", "data.batch_size=9"]
    return load_experiment([*overrides, "model.hidden_size=8", "model.run=eager", *settings])


def test_forward_and_backward_take_the_products_of_linear_layers():
    weight, frozen = torch.randn(5, 3), torch.randn(2, 4)
    floor = ProductFloor([Product(weight, [7, 1, 2]), Product(frozen, [6], needs_input_grad=False)])
    assert flops(floor, "inference") == 2 * (10 * 5 * 3 + 6 * 2 * 4)
    assert flops(floor, "train") == 2 * (3 * 10 * 5 * 3 + 2 * 6 * 2 * 4)


def require_floor(
    experiment: Experiment, floor_of: Callable[..., ProductFloor], share: bool
) -> ProductFloor:
    """The floor of a plan; checks that its products are as many as those of the model."""
    model, (first,) = experiment.model, experiment.batches(1)
    batch = Batch(first.dag, build_schedule(first.dag, model.passes, share=share))
    floor = floor_of(model, batch)

    def infer() -> None:
        with torch.no_grad():
            model(batch)

    assert flops(floor, "inference") == count_flops(infer)
    assert flops(floor, "train") == count_flops(lambda: experiment.step(batch))
    return floor


def test_sst_has_the_products_of_the_plan_that_runs(root):
    found = experiment(root, *sst.OVERRIDES)
    shared, every_node = (require_floor(found, sst.product_floor, share) for share in (True, False))
    assert flops(shared, "train") < flops(every_node, "train")


@pytest.mark.parametrize("shape", molecules.OF_NODES)
def test_molecules_have_the_products_of_the_plan_that_runs(root, shape):
    found = experiment(root, *molecules.SHAPES[shape])
    every_node = require_floor(found, molecules.product_floor, share=False)
    (first,) = found.batches(1)
    batch = Batch(first.dag, build_schedule(first.dag, found.model.passes, share=True))
    shared = molecules.product_floor(found.model, batch)
    assert flops(shared, "train") == count_flops(lambda: found.step(batch))
    assert flops(shared, "train") < flops(every_node, "train")


@pytest.mark.parametrize("phase", ["train", "inference"])
def test_trees_and_sequences_have_the_products_of_their_plans(phase):
    model, dag = treefc.TreeFC(4), make_trees("random", 3)
    trees = treefc.make_variants(model, dag)["cat_levels"]
    floor = treefc.product_floor(model, trees.batches[0].batch)
    assert flops(floor, phase) == count_flops(trees.work(phase).function)
    cell = NaryTreeLSTMCell(4, 4, arity=1)
    made = sequence.make_variants(cell, [[3, 1, 2]])
    chains = made["untraced"]
    floor = sequence.product_floor(cell, chains.batches[0].batch)
    # No product hands on the gradient of a first token: it has no child.
    first_tokens = 2 * 3 * 4 * 16 if phase == "train" else 0
    assert flops(floor, phase) == count_flops(chains.work(phase).function) + first_tokens
