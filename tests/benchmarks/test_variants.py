"""The variants of a benchmark compute the same, entry by entry, or are refused."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from thinned import thinned
from torch import nn
from training.tiny_runs import MOLECULES, write_corpora

from benchmarks import host, molecules, sequence, sst, treefc
from benchmarks.baselines.loops import TreeLSTMLoop
from benchmarks.experiment import load_experiment
from benchmarks.variants import Variant, count_operations, require_equal
from graphfold.layers import NaryTreeLSTMCell

DTYPES = (torch.float32, torch.float64)
Made = Mapping[str, Variant]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_corpora(tmp_path_factory.mktemp("data"))
    rng = random.Random(0)
    lines = [f"{smiles},{rng.gauss(0, 1):.2f}" for smiles in MOLECULES * 3]
    text = "\n".join(["smiles,exp", *lines]) + "\n"
    (folder / "lipophilicity" / "Lipophilicity.csv").write_text(text)
    return folder


def settings(root: Path) -> list[str]:
    return [f"data.root={root}", f"data.cache_dir={root}/cache"]


def of_treefc(root: Path, dtype: torch.dtype, shape: str) -> Made:
    return treefc.make_variants(treefc.TreeFC(6).to(dtype), treefc.make_trees(shape, 2))


def of_sequence(root: Path, dtype: torch.dtype, shape: str) -> Made:
    cell = NaryTreeLSTMCell(6, 6, arity=1).to(dtype)
    return sequence.make_variants(cell, [[3, 1, 2], [2]])


def of_sst(root: Path, dtype: torch.dtype, shape: str) -> Made:
    own = [*sst.OVERRIDES, "model.hidden_size=6", "data.batch_size=5"]
    found = load_experiment([*own, *settings(root)])
    found.model.to(dtype)
    return sst.make_variants(found, found.batches(2))


def of_molecules(root: Path, dtype: torch.dtype, shape: str) -> Made:
    own = [*molecules.SHAPES[shape], "model.hidden_size=8", "data.batch_size=5"]
    found = load_experiment([*own, *settings(root)])
    found.model.to(dtype)
    return molecules.make_variants(found, found.batches(2))


def of_host(root: Path, dtype: torch.dtype, shape: str) -> Made:
    own = [*host.PASSES[shape].overrides, "model.hidden_size=6", "data.batch_size=5"]
    found = load_experiment([*own, *settings(root)])
    found.model.to(dtype)
    return host.step_variants(found)


BENCHMARKS = [
    (of_treefc, "identical"),
    (of_treefc, "random"),
    (of_sequence, ""),
    (of_sst, ""),
    *((of_host, shape) for shape in host.PASSES),
    *((of_molecules, shape) for shape in molecules.SHAPES),
]


#: Every benchmark in one of the precisions, that of molecules with every fourth shape.
IN_BOTH = [(*benchmark, dtype) for benchmark in BENCHMARKS for dtype in DTYPES]
FEW = [
    benchmark
    for n, benchmark in enumerate(BENCHMARKS)
    if benchmark[0] != of_molecules or n % 4 == 3
]
IN_ONE = [(*benchmark, DTYPES[number % 2]) for number, benchmark in enumerate(FEW)]


@pytest.mark.parametrize(("make", "shape", "dtype"), thinned(IN_BOTH, IN_ONE))
def test_all_variants_compute_the_same(make, shape, dtype, root):
    torch.manual_seed(0)
    made = make(root, dtype, shape)
    assert len(made) > 1
    assert {variant.results()[0].dtype for variant in made.values()} == {dtype}
    require_equal(made)


#: Each benchmark is tried with a wrong output or with a wrong gradient.
WRONG = [
    (*benchmark, wrong)
    for wrong in ("outputs", "gradients")
    for benchmark in (*BENCHMARKS[1:5], BENCHMARKS[7])
]


@pytest.mark.parametrize(("make", "shape", "wrong"), thinned(WRONG, [WRONG[0], WRONG[8]]))
def test_a_variant_with_one_wrong_entry_is_refused(make, shape, wrong, root):
    made = dict(make(root, torch.float64, shape))
    name, right = list(made.items())[-1]
    entry = 0 if wrong == "outputs" else -1

    def change(results: list[torch.Tensor]) -> list[torch.Tensor]:
        tensor = right.in_order(results)[entry].clone()
        tensor.view(-1)[0] += 1e-6 * tensor.abs().max()
        found = right.in_order(results)
        found[entry] = tensor
        return found

    require_equal(made)
    made[name] = replace(right, in_order=change)
    with pytest.raises(RuntimeError, match=f"variant {name} differs from graphfold in result"):
        require_equal(made)


def test_operations_are_counted_without_views():
    x = torch.ones(3, 3, requires_grad=True)
    assert count_operations(lambda: x.t().unsqueeze(0)) == 0
    assert count_operations(lambda: torch.add(x, x.t())) == 1
    assert count_operations(lambda: (torch.empty(3), x.new_empty(2), torch.empty_like(x))) == 0
    assert count_operations(lambda: torch.zeros(3)) == 1
    # A product and a sum; ones, the product of either factor with them, and the sum of these.
    assert count_operations(lambda: torch.autograd.grad((x * x).sum(), x)) == 6


def test_a_chain_is_torch_s_lstm():
    cell = NaryTreeLSTMCell(3, 4, arity=1)
    x = torch.randn(5, 3)
    h = TreeLSTMLoop((0, cell))(sequence.chain_graphs([5]), {0: x})
    lstm: nn.LSTM = sequence.torch_lstm(cell)
    torch.testing.assert_close(h, lstm(x)[0])
