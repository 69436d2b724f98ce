"""One optimisation step: the denominator of the whole step, clipping, and memory that runs out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
from training.one_step import DESCENT, both_agree, new_loop, take_step
from training.tiny_runs import listops

from graphfold.batching import Batch, build_schedule
from graphfold.dag import Column, NodeType, Schema, select
from graphfold.layers import RegressionHead
from graphfold.training.loop.loop import Loop
from graphfold.training.loop.optimisation import add_gradients
from graphfold.training.process.ranks import add_over_processes
from graphfold.training.scoring import HeadMetrics, rows_of

Step = Callable[..., torch.Tensor]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Step:
    """Trains for one epoch with plain descent, rate 1; returns how the parameters moved.

    The same overrides are tried once.
    """
    cache = tmp_path_factory.mktemp("cache")

    @functools.cache
    def run(*overrides: str, patch: Callable[[Loop], None] | None = None) -> torch.Tensor:
        words = (
            *overrides,
            f"data.root={corpora}",
            f"data.cache_dir={cache}",
            "model.hidden_size=6",
            "trainer.precision=32-true",
        )
        return take_step(*words, patch=patch)[0]

    return run


COMPILED = ["experiment=sst_tree_lstm", "model.dropout=0.0"]
SST = [*COMPILED, "model.run=eager"]  # to compile takes longer than an epoch


@pytest.mark.parametrize("reduction", ["per_graph", "per_node"])
def test_accumulated_batches_give_the_step_of_one_large_batch(step: Step, reduction: str) -> None:
    loss = f"loss.reduction={reduction}"
    whole = step(*SST, loss, "data.batch_size=12")
    parts = step(*SST, loss, "data.batch_size=5", "trainer.accumulate_grad_batches=3")
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-5)
    assert whole.abs().max() > 1e-3


def test_the_gradient_is_clipped_to_its_norm(step: Step) -> None:
    free = step(*SST, "data.batch_size=12", "trainer.gradient_clip_val=null")
    clipped = step(*SST, "data.batch_size=12", "trainer.gradient_clip_val=0.01")
    assert free.norm() > 0.1
    assert clipped.norm() == pytest.approx(0.01, rel=1e-4)
    torch.testing.assert_close(clipped / clipped.norm(), free / free.norm(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("clip", ["null", "0.01"])
def test_losses_that_are_scaled_give_the_same_step(step: Step, clip: str) -> None:
    """Half precision on a GPU scales losses, since small gradients would be zero."""

    def patch(loop: Loop) -> None:
        begin = loop.begin

        def begin_with_scaler() -> None:
            begin()
            loop.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

        loop.begin = begin_with_scaler  # type: ignore[method-assign,assignment]

    words = [*SST, "data.batch_size=5", "trainer.accumulate_grad_batches=3"]
    words += [f"trainer.gradient_clip_val={clip}"]
    torch.testing.assert_close(step(*words, patch=patch), step(*words), atol=1e-6, rtol=1e-5)


def fail_above(limit: int, error: BaseException) -> Callable[[Loop], None]:
    """Makes the model run out of memory on batches of more than `limit` graphs."""

    def patch(loop: Loop) -> None:
        original = loop.model.forward

        def forward(batch: Batch) -> torch.Tensor:
            if batch.num_graphs > limit:
                raise error
            return original(batch)

        loop.model.forward = forward  # type: ignore[method-assign]

    return patch


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"),
    ],
)
def test_a_batch_that_runs_out_of_memory_is_split(step: Step, error: BaseException) -> None:
    whole = step(*SST, "data.batch_size=12")
    with pytest.warns(UserWarning, match=r"a batch of \d+ graphs .* was split in two"):
        halves = step(*SST, "data.batch_size=12", patch=fail_above(3, error))
    torch.testing.assert_close(halves, whole, atol=1e-6, rtol=1e-5)


def test_a_batch_of_blocks_is_split_too(step: Step) -> None:
    blocks = ["experiment=sst_blocks", "model.dropout=0.0", "data.batch_size=12"]
    whole = step(*blocks)
    with pytest.warns(UserWarning, match=r"a batch of \d+ graphs .* was split in two"):
        halves = step(*blocks, patch=fail_above(3, MemoryError()))
    torch.testing.assert_close(halves, whole, atol=1e-6, rtol=1e-5)


def test_memory_that_runs_out_in_backward_leaves_no_half_gradient(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [MemoryError(), MemoryError(), *[mock.DEFAULT] * 9]
    failing = mock.Mock(side_effect=failures, wraps=add_gradients)

    def patch(_: Loop) -> None:
        monkeypatch.setattr(f"{Loop.__module__}.add_gradients", failing)

    whole = step(*COMPILED, "data.batch_size=12")
    with pytest.warns(UserWarning, match="was split in two"):
        halves = step(*COMPILED, "data.batch_size=12", patch=patch)
    torch.testing.assert_close(halves, whole, atol=1e-6, rtol=1e-5)


def test_one_graph_that_does_not_fit_is_an_error(step: Step) -> None:
    with pytest.warns(UserWarning, match="split"), pytest.raises(MemoryError):
        step(*SST, "data.batch_size=12", patch=fail_above(0, MemoryError()))


def test_another_error_is_not_taken_for_memory(step: Step) -> None:
    with pytest.raises(RuntimeError, match="something else"):
        step(*SST, patch=fail_above(0, RuntimeError("something else")))


def test_a_graph_without_a_value_does_not_count_in_the_mean(tmp_path: Path) -> None:
    loop, data = new_loop(*listops(), f"data.cache_dir={tmp_path}")
    dag = select(data.encoded(), range(4))
    dag.columns["graph"]["answer"][1:] = -1
    batch = Batch(dag, build_schedule(dag, loop.model.passes))
    head = loop.model.head
    with torch.no_grad():
        rows = rows_of(loop.model, batch)
    for reduction in ("per_node", "per_graph"):
        loss = HeadMetrics.of(head, None, reduction)(rows)["loss"]
        assert loss == pytest.approx(rows.loss[0].item())
        assert loss > 0


#: Molecules whose targets have holes, one in nearly every row.
SPARSE = ["smiles,y,z,w"] + [
    f"{'C' * (1 + n // 3)}{'NOS'[n % 3]},{n % 7 if n % 2 else ''},"
    f"{100 * n if n % 3 else ''},{1 + n % 4}"
    for n in range(24)
]


@pytest.fixture
def sparse(tmp_path: Path) -> tuple[str, ...]:
    """Overrides of trainings on `SPARSE`."""
    (tmp_path / "m.csv").write_text("\n".join(SPARSE) + "\n")
    return (
        "data=smiles", "model=gcn", "model.hidden_size=6", "model.dropout=0.0", "model.run=eager",
        f"data.path={tmp_path}/m.csv", f"data.cache_dir={tmp_path}", "data.target_columns=[y,z]",
        "data.policy=depth", "model.cells.0._every_.norm=null",
    )  # fmt: skip


WEIGHTS = {
    "no weights": [],
    "of records and targets": ["data.weight_column=w", "+model.head.target_weights={y: 0.5}"],
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_loss_is_the_mean_over_measured_values(weights: str, sparse: tuple[str, ...]) -> None:
    words = [*sparse, *WEIGHTS[weights], "trainer.precision=64-true"]
    loop, data = new_loop(*DESCENT, *words)
    dag, head = data.encoded("train"), loop.model.double().head
    assert isinstance(head, RegressionHead)
    with torch.no_grad():
        raw = loop.model(loop.model.plan(dag))
    values = torch.stack([dag.graph_column(name) for name in "yz"], 1).double()
    known = ~values.isnan()
    assert 0 < known.sum() < known.numel()
    square = (raw - (values - head.mean) / head.std).square()
    of_records = dag.weights()
    assert (of_records is not None) == ("data.weight_column=w" in words)
    weight = known * torch.tensor(head.target_weights)
    if of_records is not None:
        weight = weight * of_records.unsqueeze(1)
    want = float((square * weight)[known].sum() / weight.sum())
    assert take_step(*words, "optimizer.lr=0")[1] == pytest.approx(want)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_holes_weigh_the_same_in_parts_of_a_batch(weights: str, sparse: tuple[str, ...]) -> None:
    words = [*sparse, *WEIGHTS[weights]]
    whole = take_step(*words)
    parts = take_step(*words, "data.batch_size=3", "trainer.accumulate_grad_batches=100")
    both_agree(parts, whole)


def test_a_target_of_weight_0_is_no_target() -> None:
    schema = Schema(types=(NodeType("atom", 0),), graph_targets=(Column("a"), Column("b")))
    targets, raw = torch.tensor([[1.0, 7.0], [float("nan"), 2.0], [4.0, 3.0]]), torch.ones(3, 2)
    means = []
    for head, columns in (
        (RegressionHead(3, schema, target_weights={"b": 0}), [0, 1]),
        (RegressionHead(3, schema, targets=["a"]), [0]),
    ):
        losses = head.losses(raw[:, columns], targets[:, columns])
        count = head.denominator(targets[:, columns], torch.arange(3), torch.ones(3))
        means.append(float(losses.sum() / count))
    assert means == [(0 + 9) / 2] * 2


def test_nodes_are_added_up_and_graphs_and_targets_averaged() -> None:
    """Two graphs of two and one nodes, and a target that the second graph lacks."""
    schema = Schema(types=(NodeType("word", 0),), node_targets=(Column("a"), Column("b")))
    head = RegressionHead(3, schema, "node")
    nan = float("nan")
    targets = torch.tensor([[1.0, 2.0], [3.0, nan], [5.0, nan]])
    graph, times = torch.tensor([0, 0, 1]), torch.tensor([1.0, 2.0])
    losses = head.losses(torch.zeros(3, 2), targets).double()
    per_graph = losses @ times[graph].double() / head.denominator(targets, graph, times)
    assert float(per_graph) == pytest.approx((1 + 9 + 4 + 2 * 25) / (1 + 1 + 2))
    per_node = losses @ times[graph].double() / head.denominator(targets, graph, times, "per_node")
    assert float(per_node) == pytest.approx((1 + 9 + 4 + 2 * 25) / (1 + 1 + 1 + 2))


def test_gradients_shared_by_autograd_are_copied() -> None:
    """Of a sum, autograd gives both terms one and the same gradient tensor."""
    a, b = parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    for _ in range(2):
        add_gradients(((a + b) * torch.arange(3.0)).sum(), parameters)
    assert a.grad is not None
    assert b.grad is not None
    a.grad *= 2
    assert a.grad.tolist() == [0, 4, 8]
    assert b.grad.tolist() == [0, 2, 4]


def test_tables_have_sparse_gradients_where_nothing_needs_dense_ones(
    tmp_path: Path,
) -> None:
    words = listops(
        f"data.cache_dir={tmp_path}", "optimizer=adagrad", "trainer.gradient_clip_val=null"
    )
    for more, sparse in (
        ((), True),
        (("trainer.gradient_clip_val=1",), False),
        (("trainer.accumulate_grad_batches=2",), False),
        (("optimizer.weight_decay=0.1",), False),
        (("optimizer=adam",), False),
    ):
        loop, _ = new_loop(*words, *more)
        loop.begin()
        optimizer = loop.optimizer
        assert len(optimizer.param_groups) == (2 if sparse else 1)
        assert sum(len(group["params"]) for group in optimizer.param_groups) == len(
            list(loop.model.parameters())
        )


@pytest.mark.parametrize(
    ("monitor", "given", "mode"),
    [
        ("val/root_accuracy", "", "max"),
        ("val/loss", "", "min"),
        ("val/loss", "+lr_scheduler.mode=max", "max"),
    ],
)
def test_the_plateau_is_one_of_the_monitored_metric(
    monitor: str, given: str, mode: str, tmp_path: Path, corpora: Path
) -> None:
    words = [*SST, "lr_scheduler=plateau", f"monitor={monitor}", *([given] if given else [])]
    loop, _ = new_loop(*words, f"data.root={corpora}", f"data.cache_dir={tmp_path}")
    loop.begin()
    assert loop.lr_scheduler.mode == mode


def test_a_parameter_without_gradient_in_any_process_stays_without(monkeypatch):
    """Process 0 has gradients of the first two parameters, process 1 of the second and third."""
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
    parameters[0].grad, parameters[1].grad = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    of_process_1 = torch.tensor([0.0, 0, 10, 20, 30, 40, 0, 0, *(0, 1, 1, 0)])
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat: flat.add_(of_process_1))
    add_over_processes(parameters)
    grads = [p.grad if p.grad is None else p.grad.tolist() for p in parameters]
    assert grads == [[1, 2], [13, 24], [30, 40], None]
