"""Files on Ray: a function of a file, in the processes of a cluster or of this machine's cores."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from graphfold.datasets.storage.reading import available_cores
from graphfold.errors import ConfigError, DataError, GraphfoldError, first_line
from graphfold.inference.inputs import Input

Result = TypeVar("Result")

#: So often a file is begun again whose process died: it was killed, or its machine is gone.
RETRIES = 5

#: Bytes of the memory that Ray's processes share: only counts go through it.
_SHARED_MEMORY = 100 << 20


def on_ray(
    do: Callable[[Input], Result], inputs: Sequence[Input], workers: int | None = None
) -> Iterator[tuple[Input, Result | GraphfoldError]]:
    """Calls a function with each of some inputs, in other processes.

    On the cluster of RAY_ADDRESS, if that is set, else on the cores of this machine.

    Args:
        do: the function; it is sent to the processes, and called there. Where its process dies, it
            is called again with the same input.
        inputs: the inputs.
        workers: how many are worked on at once; None for as many as there are cores.

    Returns:
        For each input, as they are done, the result or the error that was raised. If its process
        has died too often, that is a DataError.

    Raises:
        ConfigError: if Ray is not installed, or there is no such cluster.
    """
    with _connected(workers) as ray:
        workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        shared = ray.put(do)
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        rest = iter(inputs)
        running: dict[Any, Input] = {}
        while True:
            while len(running) < workers and (given := next(rest, None)) is not None:
                running[task.remote(shared, given)] = given
            if not running:
                return
            (done, *_), _ = ray.wait([*running])
            given = running.pop(done)
            yield given, _result(ray, done, given)


def _call(do: Callable[[Input], Any], given: Input) -> Any:
    """Runs in a worker; an error about the input travels as it is."""
    try:
        return do(given)
    except GraphfoldError as error:
        return error


def _result(ray: Any, done: Any, given: Input) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        return DataError(
            f"{given.shown}: its process died {RETRIES + 1} times ({first_line(error)}). If that "
            "was for want of memory, give fewer --workers, or smaller files.",
            path=str(given.path),
        )


@contextmanager
def _connected(workers: int | None) -> Iterator[Any]:
    """Ray, connected to its cluster; one of our own ends with us."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers of every use
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "--engine ray needs Ray, which is not installed. Install it with: pip install "
            "'graphfold[ray]'."
        ) from error
    address = os.environ.get("RAY_ADDRESS")
    own = {"num_cpus": workers or available_cores(), "include_dashboard": False}
    own["object_store_memory"] = _SHARED_MEMORY
    try:
        ray.init(
            address=address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            **({} if address else own),
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"there is no cluster of Ray at RAY_ADDRESS={address} ({first_line(error)}). Correct "
            "it, or unset it for this machine's cores."
            if address
            else f"Ray cannot be started ({first_line(error)})."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
