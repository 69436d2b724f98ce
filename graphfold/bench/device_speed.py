"""Speed on a device: Tree-LSTM on SST, Tree-FC, molecules, and the kernels that a step launches.

The workloads and baselines are those of the benchmarks sst, treefc and molecules; here the model
and the batches lie on a device, and a call ends when the device has done its work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch

from graphfold.batching import Batch, build_schedule
from graphfold.bench import molecules, sst, treefc
from graphfold.bench.device_calls import find_waits, launches
from graphfold.bench.engine_variants import EVERY_NODE, UNTRACED, can_compile_cells
from graphfold.bench.experiment import Experiment, load_experiment, load_sized, total_graphs
from graphfold.bench.measure import Row, Work, measure, time_in_turns

#: Timed passes over the training part of SST.
EPOCHS = 3

#: Batches of a corpus that a call goes through.
NUM_BATCHES = 4

#: Variant -> attributes of the network.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "graphfold": {"engine": "fast"},
    UNTRACED: {"engine": "fast", "fuse": False},
    "cat_levels": {"engine": "autograd"},
}

#: Processes that load the batches of an epoch.
WORKERS = (0, min(4, os.cpu_count() or 1))


class Sizes(NamedTuple):
    """How large the workloads are; by default those of the published figures."""

    sst: tuple[int, int] = (256, 150)  # batch, width
    treefc: tuple[int, int] = (256, 1024)
    molecules: tuple[Sequence[int], int] = ((64, 512), 300)


SIZES = Sizes()


def workloads(
    device: torch.device, overrides: Sequence[str] = (), sizes: Sizes = SIZES
) -> dict[str, Callable[[], Iterator[Row]]]:
    """Name -> what measures it.

    Args:
        device: where.
        overrides: of the config of the experiments (`data.root=...`).
        sizes: how large they are.
    """
    found: dict[str, Callable[[], Iterator[Row]]] = {
        "treefc": partial(treefc_rows, device, *sizes.treefc),
        "sst": partial(sst_rows, device, *sizes.sst, overrides),
    }
    for batch_size in sizes.molecules[0]:
        found[f"molecules, batches of {batch_size}"] = partial(
            molecule_rows, device, batch_size, sizes.molecules[1], overrides
        )
    return found


def treefc_rows(device: torch.device, batch_size: int, hidden_size: int) -> Iterator[Row]:
    """Tree-FC as Fold measures it; `ms_per_tree` and what a step launches are further keys."""
    for shape in ("random", "identical"):
        dag = treefc.make_trees(shape, batch_size)
        variants = treefc.Variants(dag, hidden_size, shape == "identical", device)
        variants.require_equal()
        for phase in ("train", "inference"):
            setting = _setting("treefc", shape, batch_size, hidden_size, phase)
            works = variants.works(phase)
            del works["one_by_one"]
            yield from _device_rows(setting, works, device, per="tree")


def sst_rows(
    device: torch.device, batch_size: int, hidden_size: int, overrides: Sequence[str] = ()
) -> Iterator[Row]:
    """Steps on batches that lie on the device, then whole epochs with the loader."""
    experiment = _on(load_sized(sst.OVERRIDES, hidden_size, batch_size, overrides), device)
    setting = _setting("sst", "", batch_size, hidden_size, "train")
    yield from _step_rows(setting, experiment, device)
    for workers in WORKERS:
        experiment.data.num_workers = workers
        yield _epoch_row(setting, experiment, device)


def molecule_rows(
    device: torch.device, batch_size: int, hidden_size: int, overrides: Sequence[str] = ()
) -> Iterator[Row]:
    """Steps of D-MPNN; `every_node` is a plan that computes equal surroundings again and again."""
    own = molecules.SHAPES["dmpnn"]
    experiment = _on(load_sized(own, hidden_size, batch_size, overrides), device)
    setting = _setting("molecules", "dmpnn", batch_size, hidden_size, "train")
    dags = [batch.dag for batch in experiment.batches(NUM_BATCHES)]
    experiment.model.train()
    works = {}
    for name, share in (("graphfold", True), (EVERY_NODE, False)):
        plans = [build_schedule(dag, experiment.model.passes, share=share) for dag in dags]
        batches = [Batch(dag, plan).to(device) for dag, plan in zip(dags, plans, strict=True)]
        works[name] = Work(partial(_train, experiment, batches, {}), total_graphs(batches))
    yield from _device_rows(setting, works, device, steps=len(dags))


def waits_of_a_step(device: torch.device, overrides: Sequence[str] = ()) -> list[str]:
    """Where a training step of SST waits for the device."""
    experiment = _on(load_experiment([*sst.OVERRIDES, "data.batch_size=32", *overrides]), device)
    batch = experiment.batches(1)[0].to(device)
    return find_waits(lambda: experiment.step(batch), device)


def _step_rows(setting: Row, experiment: Experiment, device: torch.device) -> Iterator[Row]:
    batches = [batch.to(device) for batch in experiment.batches(NUM_BATCHES)]
    network = experiment.model.network
    before = {name: vars(network)[name] for name in _names()}
    left_out = set() if can_compile_cells(network) else {UNTRACED}  # as it is they run anyway
    experiment.model.train()
    works = {}
    for name, settings in SETTINGS.items():
        if name not in left_out:
            run = partial(_train, experiment, batches, {**before, **settings})
            works[name] = Work(run, total_graphs(batches))
    yield from _device_rows(setting, works, device, steps=len(batches))
    _set(experiment, before)


def _names() -> set[str]:
    return set(chain.from_iterable(SETTINGS.values()))


def _device_rows(
    setting: Row,
    works: Mapping[str, Work],
    device: torch.device,
    per: str = "",
    steps: int = 1,
) -> Iterator[Row]:
    """A row for each variant, with what one step launches.

    Args:
        setting: what the rows have in common.
        works: variant -> what it does.
        device: what is waited for at the end of a call.
        per: what an example is, if the rows are to say how long one takes.
        steps: how many steps a call makes.
    """
    waiting = {name: Work(_finished(work, device), work.examples) for name, work in works.items()}
    for row in measure(setting, waiting):
        found: dict[str, float] = {
            name: count / steps
            for name, count in launches(works[row.variant].function, device).items()
        }
        if per:
            found[f"ms_per_{per}"] = 1e3 / row.examples_per_second
        yield replace(row, extra={**row.extra, **found})


def _epoch_row(setting: Row, experiment: Experiment, device: torch.device) -> Row:
    """Whole passes over the training part: selecting, planning, moving and training."""
    numbers = iter(range(1000))
    _set(experiment, {"engine": "fast"})

    def epoch() -> None:
        experiment.model.train()
        for batch in experiment.loader(next(numbers)):
            experiment.step(batch.to(device, non_blocking=True))

    timed = Work(epoch, len(experiment.data.split.train))
    timing = time_in_turns({"epoch": _finished(timed, device)}, 0.0, EPOCHS)["epoch"]
    return replace(
        setting,
        benchmark="sst_epoch",
        variant="graphfold",
        examples_per_second=timed.examples / timing.seconds,
        spread=timing.spread,
        extra={
            "loader_workers": experiment.data.num_workers,
            "seconds_per_epoch": timing.seconds,
        },
    )


def _train(experiment: Experiment, batches: Sequence[Batch], settings: Mapping[str, Any]) -> None:
    _set(experiment, settings)
    for batch in batches:
        experiment.step(batch)


def _set(experiment: Experiment, settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        setattr(experiment.model.network, name, value)


def _finished(work: Work, device: torch.device) -> Callable[[], None]:
    """The call, and then the wait for what it started on the device."""

    def run() -> None:
        work.function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return run


def _on(experiment: Experiment, device: torch.device) -> Experiment:
    """The experiment with model and optimizer on a device."""
    experiment.model.to(device)
    # Loading a state moves it to where the parameters are.
    experiment.optimizer.load_state_dict(experiment.optimizer.state_dict())
    return experiment


def _setting(benchmark: str, shape: str, batch_size: int, hidden_size: int, phase: str) -> Row:
    return Row(benchmark, "", shape, batch_size, hidden_size, phase, torch.get_num_threads())
