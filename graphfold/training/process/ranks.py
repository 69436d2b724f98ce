"""The processes of one training: which this is, how they begin, and what they add up.

torchrun and srun start processes that each run the whole command; otherwise the command starts
them itself, for fitting alone. The first one (rank 0) keeps the lock of the run folder, writes into
it, prints and scores; the others compute with it.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from graphfold import errors
from graphfold.errors import ConfigError, GraphfoldError, ProcessError, first_line
from graphfold.training.process.launch import Launch, is_first, launch
from graphfold.training.process.process import keep_memory
from graphfold.training.process.quiet import choose_warnings, printing_once
from graphfold.training.trainer import Trainer

_REMEDY = (
    "One that is killed may have run out of memory. The checkpoints of whole epochs are kept: the "
    "run goes on with resume=RUN."
)


def num_processes(trainer: Trainer) -> int:
    """The number of processes that share each step: those of a launcher, or as many as devices.

    Raises:
        ConfigError: if a launcher has started others than were asked for, or none has and the
            trainer asks for several machines.
    """
    launched = launch()
    if launched is None:
        if trainer.num_nodes > 1:
            raise ConfigError(
                f"trainer.num_nodes is {trainer.num_nodes}, but this process was started by "
                "itself. Start the command by srun, or by torchrun on each machine."
            )
        return trainer.devices
    for key, here, what in (
        ("devices", launched.local_size, f"processes of {launched.launcher} on this machine"),
        ("num_nodes", launched.num_nodes, f"machines of {launched.launcher}"),
    ):
        wanted = getattr(trainer, key)
        if wanted not in (1, here):
            raise ConfigError(
                f"trainer.{key} is {wanted}, but the {what} are {here}. Leave trainer.{key} out."
            )
    return launched.world_size


@contextmanager
def joined(trainer: Trainer) -> Iterator[None]:
    """Processes of a launcher know each other within; of others nothing is asked.

    They meet once for all members of an ensemble: who came back to the meeting point first would
    find what the others have left there.

    Raises:
        ProcessError: if they do not meet, or lose each other.
    """
    count, launched = num_processes(trainer), launch()
    if launched is None or count == 1:
        yield
        return
    with _group(_device(trainer, launched), launched.meeting_point, launched.rank, count):
        yield


def run_in_processes(trainer: Trainer, work: Callable[..., None], *arguments: Any) -> None:
    """Calls `work(device, *arguments)` in each process of a training, and waits for their end.

    One process is this one. Several are those of a launcher, of which this is one and which have
    `joined`, or they are started here, and get what they work on as copies.

    Args:
        trainer: says how many there are, and on which devices.
        work: a function of a module; what it does is to leave files.
        *arguments: what can be pickled.

    Raises:
        GraphfoldError: one that was raised in a process.
        ProcessError: if a process was killed; the others end.
        RuntimeError: if a process failed otherwise.
    """
    count = num_processes(trainer)
    launched = launch()
    if launched is not None and count > 1:
        with warnings.catch_warnings():
            if not is_first():  # each computes on batches of its own, and may warn of them
                choose_warnings()
            work(_device(trainer, launched), *arguments)
        return
    if count == 1:
        work(trainer.device(), *arguments)
        return
    trainer.device()  # refuses, here and not in a process of its own, more devices than there are
    threads = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, threads // count)
    with tempfile.TemporaryDirectory() as folder:
        # As bytes: torch would let the processes share the memory of the weights.
        passed = (
            trainer,
            count,
            threads,
            f"file://{folder}/store",
            pickle.dumps((work, arguments)),
        )
        started = start_processes(_work_in_process, passed, count, join=False)  # type: ignore[no-untyped-call]
        assert started is not None
        try:
            while not started.join():
                pass
        except ProcessRaisedException as error:
            raise _without_traceback(error) from error
        except ProcessExitedException as error:
            how = error.signal_name or f"exit code {error.exit_code}"
            what = f"process {error.error_index} of {count} ended ({how})"
            raise ProcessError(f"{what}, and the others with it. {_REMEDY}") from error
        finally:
            for process in started.processes:
                process.terminate()


def _work_in_process(
    number: int,
    trainer: Trainer,
    count: int,
    threads: int,
    meeting_point: str,
    pickled: bytes,
) -> None:
    """Works in a process of its own."""
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(count)}
    torch.set_num_threads(threads)
    keep_memory()
    work, arguments = pickle.loads(pickled)
    device = trainer.device(number)
    with _group(device, meeting_point, number, count), printing_once():
        choose_warnings()
        work(device, *arguments)


def _device(trainer: Trainer, launched: Launch) -> torch.device:
    """The device of this process; srun may show each process its own GPU and no other."""
    sees_its_own = launched.launcher == "srun" and torch.cuda.device_count() == 1
    return trainer.device(0 if sees_its_own else launched.local_rank)


@contextmanager
def _group(device: torch.device, meeting_point: str, number: int, count: int) -> Iterator[None]:
    """The processes know each other within."""
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.set_device(device)
    try:
        distributed.init_process_group(
            "nccl" if is_gpu else "gloo", init_method=meeting_point, rank=number, world_size=count
        )
    except RuntimeError as error:  # a DistError, but of torch 2.6 where a port is taken
        raise ProcessError(
            f"process {number} of {count} has not met the others at {meeting_point} "
            f"({first_line(error)}). See to it that all of them run and can reach that machine, or "
            "name another one and a free port in MASTER_ADDR and MASTER_PORT."
        ) from error
    try:
        yield
    except RuntimeError as error:
        # Gloo has no class of its own for it.
        if isinstance(error, distributed.DistError) or "gloo/transport" in str(error):
            raise ProcessError(
                f"process {number} of {count} can no longer reach the others: one of them has "
                f"ended, or the network has failed. {_REMEDY}"
            ) from error
        raise
    finally:
        distributed.destroy_process_group()


def _without_traceback(error: ProcessRaisedException) -> Exception:
    """The error of a process as it was raised there, if it is one of graphfold's."""
    cause = str(error).strip().splitlines()[-1]
    name, _, message = cause.partition(": ")
    kind = getattr(errors, name.rpartition(".")[2], None)
    if isinstance(kind, type) and issubclass(kind, GraphfoldError):
        return kind(message)
    return RuntimeError(f"in process {error.error_index}: {cause}")


def world() -> tuple[int, int]:
    """The number of this process among those that compute together, and how many they are."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def add_up(value: float, device: torch.device) -> float:
    """The sum of a number over all processes."""
    if world()[1] == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    distributed.all_reduce(total)
    return total.item()


def add_over_processes(parameters: Sequence[nn.Parameter]) -> None:
    """Replaces every gradient by its sum over all processes.

    An absent one counts as zero, and stays absent if no process has one: then no graph of the step
    used the parameter, and the optimizer leaves it as it is, as it does in one process.
    """
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    has_grad = flat.new_tensor([p.grad is not None for p in parameters])
    flat = torch.cat([flat, has_grad])
    distributed.all_reduce(flat)
    *parts, counts = torch.split(flat, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, part, count in zip(parameters, parts, counts.tolist(), strict=True):
        parameter.grad = part.view_as(parameter) if count else None


def share_buffers(model: nn.Module) -> None:
    """Gives all processes the buffers of the first one, such as statistics of normalisation."""
    for buffer in model.buffers():
        if buffer.dtype is not torch.bool:  # which gloo does not know, and nothing learns
            distributed.broadcast(buffer, 0)


def gather_objects(value: Any) -> list[Any]:
    """The values of all processes, in their order."""
    values: list[Any] = [value]
    if world()[1] > 1:
        values = [None] * world()[1]
        distributed.all_gather_object(values, value)
    return values
