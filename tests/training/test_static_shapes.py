"""Batches of constant shape: padding changes no loss, no metric and no gradient."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from thinned import every
from torch import Tensor, nn
from training.one_step import new_loop
from training.shipped_models import CASES
from training.test_no_waiting import loss_and_gradients

from graphfold.batching import Batch, Up
from graphfold.batching.batch import plan_batch
from graphfold.batching.padding import NUM_SIZES, Padding, shape_of
from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG, select
from graphfold.dag.compare import difference
from graphfold.dag.validate import validate
from graphfold.errors import ConfigError
from graphfold.layers import Model
from graphfold.layers.dropout import StateDropout
from graphfold.layers.normalisation import is_batch_norm
from graphfold.training.loop.checks import check_padding
from graphfold.training.scoring import halves, rows_of

#: Models that compute graphs of their own, which cannot be padded.
OF_BLOCKS = ("block_neighbourhood", "block_tree_lstm")


@pytest.mark.filterwarnings("ignore:.* is not compiled")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", every(3, [case for case in CASES if case not in OF_BLOCKS]))
def test_padding_changes_nothing(case: str, dtype: torch.dtype, overrides: list[str]) -> None:
    loop, data = new_loop(*overrides, "data.shapes=static")
    model = loop.model.to(dtype)
    for module in model.modules():
        if isinstance(module, nn.Dropout | StateDropout):
            module.p = 0.0
    loader = data.loader("train", model.passes, lowering=model.lowering)
    padding = loader.dataset.padding
    assert padding is not None
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    if any(map(is_batch_norm, model.modules())) and dtype == torch.float32:
        tolerance = 1e-4  # it divides by the deviation of a few atoms, which magnifies rounding
    shapes = set()
    for numbers in loader.sampler:
        free = plan_batch(*loader.dataset.graphs(numbers), model.passes)
        padded = loader.dataset[numbers]
        assert padded.num_graphs > free.num_graphs
        shapes.add(shape_of(padded))
        assert difference(select(padded.dag, range(free.num_graphs)), free.dag) is None
        if padded.num_graphs == free.num_graphs + 1:
            validate(padded.computed.dag)
        want, (losses, *grads) = loss_and_gradients(model, free), loss_and_gradients(model, padded)
        assert not losses[len(want[0]) :].any()
        for one, other in zip([losses[: len(want[0])], *grads], want, strict=True):
            same(one, other, tolerance)
        with torch.no_grad():
            metrics = [loop.head_metrics(rows_of(model, batch)) for batch in (padded, free)]
        assert metrics[0] == pytest.approx(metrics[1], abs=1e-6)
    assert len(shapes) <= len(padding.sizes)


def same(one: Tensor | None, other: Tensor | None, tolerance: float) -> None:
    """Tensors are the same, up to a part of the largest number."""
    if one is None or other is None:
        assert one is other
        return
    largest = max(1.0, other.detach().abs().max().item()) if other.numel() else 1.0
    torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("case", OF_BLOCKS)
def test_models_of_blocks_are_refused(overrides: list[str]) -> None:
    loop, data = new_loop(*overrides, "data.shapes=static")
    with pytest.raises(ConfigError, match="pads the nodes of the data, but this model of blocks"):
        data.loader("train", loop.model.passes, lowering=loop.model.lowering)


@pytest.mark.filterwarnings("ignore:.* is not compiled")
def test_running_statistics_are_of_the_graphs(corpora: Path, tmp_path: Path) -> None:
    kept = []
    for shapes in ("free", "static"):
        small = ("data=esol", "model=gcn", "model.hidden_size=8", "data.num_workers=0", "seed=1")
        folders = (f"data.root={corpora}", f"data.cache_dir={tmp_path}", f"data.shapes={shapes}")
        loop, data = new_loop(*small, *folders)
        torch.manual_seed(0)
        for weight in loop.model.parameters():
            nn.init.uniform_(weight, -0.5, 0.5)
        loop.model(next(iter(data.loader("train", loop.model.passes))))
        kept.append([own for name, own in loop.model.named_buffers() if "running" in name])
    assert len(kept[0]) > 0
    torch.testing.assert_close(*kept, rtol=1e-4, atol=1e-5)


def test_other_statistics_are_refused(corpora: Path, tmp_path: Path) -> None:
    folders = (f"data.root={corpora}", f"data.cache_dir={tmp_path}", "data.shapes=static")
    loop, data = new_loop("data=esol", "model=gcn", "data.num_workers=0", *folders)
    check_padding(loop.model, data)
    loop.model.head.more = nn.BatchNorm1d(3)
    with pytest.raises(ConfigError, match=r"head\.more, a BatchNorm1d, would take statistics"):
        check_padding(loop.model, data)


def trees(*sizes: int, dtype: str = "float32") -> TypedDAG:
    """Chains, each with a target."""
    node = NodeType("node", 1)
    builder = GraphBuilder(Schema((node,), graph_targets=(Column("y", dtype),)))
    for size in sizes:
        before: int | None = None
        for _ in range(size):
            before = builder.node("node", [before])
        builder.output(before)
        builder.finish(y=1)
    return builder.build()


def test_what_fits_no_size_runs_unpadded_and_is_counted() -> None:
    padding = Padding([(trees(3, 4), None), (trees(2, 2), None)], [Up()])
    for dag in (trees(3, 4), trees(4), trees(5, 1), trees(1, 1, 1)):
        padding.plan(dag)
    assert (padding.num_padded, padding.num_unpadded) == (2, 2)
    assert str(padding) == (
        "static shapes: 2 of 4 batches fill one of 2 sizes, with 64% more nodes; "
        "2 fit none and run unpadded"
    )
    assert padding.plan(trees(5, 1)).num_graphs == 2
    assert padding.plan(trees(4)).num_graphs == padding.plan(trees(3, 4)).num_graphs == 3


def test_halves_of_a_batch_have_no_padding() -> None:
    padded = Padding([(trees(3, 4, 1), None)], [Up()]).plan(trees(3, 4, 1))
    parts = halves(padded, lambda dag, *_: plan_batch(dag, None, [Up()]), "depth")
    assert [part.dag.node_ptr.diff().tolist() for part in parts] == [[3, 4], [1]]


def test_a_target_that_cannot_be_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match="targets that may be missing, but 'y' holds bool"):
        Padding([(trees(2, dtype="bool"), None)], [Up()])


def work_of(model: Model, batch: Batch) -> int:
    """The sum over nodes of the number of weights of their cells."""
    counts = Counter[str]()
    for by_type in model.network.cells:
        for name, cells in by_type.items():
            counts[name] += sum(weight.numel() for weight in cells[0].parameters())
    dag = batch.computed.dag
    types = zip(dag.schema.types, dag.num_nodes_by_type, strict=True)
    return sum(counts[node_type.name] * number for node_type, number in types)


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment", ["sst_tree_lstm", "lipophilicity_dmpnn"], ids=["sst", "lipophilicity"]
)
def test_an_epoch_has_few_shapes(experiment: str, data_root: Path, tmp_path: Path) -> None:
    folders = (f"data.root={data_root}", f"data.cache_dir={tmp_path}", "data.shapes=static")
    loop, data = new_loop(f"experiment={experiment}", *folders)
    model = loop.model
    loader = data.loader("train", model.passes, lowering=model.lowering)
    loader.sampler.set_epoch(9)  # which has not been sampled
    shapes, free, padded = set(), 0, 0
    for numbers in loader.sampler:
        one = loader.dataset[numbers]
        other = plan_batch(*loader.dataset.graphs(numbers), model.passes)
        if one.num_graphs > other.num_graphs:
            shapes.add(shape_of(one))
            padded, free = padded + work_of(model, one), free + work_of(model, other)
    assert len(shapes) <= NUM_SIZES
    assert free < padded <= 1.25 * free
    assert loader.dataset.padding.num_unpadded <= 0.05 * len(loader)
