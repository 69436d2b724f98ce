"""No step of training waits for a device, or sorts on it.

Every shipped model trains on the device "meta", whose tensors have no numbers: what needs one, such
as `item`, `nonzero` or a boolean index, fails there. Batches come from the CPU as to a GPU, so what
is found on the CPU has its copy there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, TypeAlias
from unittest import mock

import pytest
import torch
from thinned import every, thinned
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from training.one_step import new_loop
from training.shipped_models import CASES

from graphfold import _torch
from graphfold.batching import Batch
from graphfold.batching.backends.torch_memory import TorchBackend
from graphfold.batching.engine.compiled import choice, programs
from graphfold.layers import Model, MPNNCell
from graphfold.layers.dropout import StateDropout
from graphfold.training.loop.loop import Callback, Loop

#: Operations that sort on a device without failing on "meta".
SORTS = ("sort", "argsort", "msort", "topk", "kthvalue", "median", "embedding_dense_backward")


class Watch(TorchDispatchMode):
    """Refuses operations that sort on a device, or wait for it.

    Attributes:
        copies: whether what the CPU has found may be copied to the device.
    """

    copies = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__.rstrip("_")
        read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not any(x.is_meta for x in (*read, *tree_leaves(found)) if isinstance(x, Tensor)):
            return found
        assert name not in SORTS, f"{func} sorts on the device"
        assert name != "index_put" or not any(args[3:]), f"{func} sorts to add up"
        if any(x.is_cpu and x.dim() for x in read):
            assert name in ("_to_copy", "copy"), f"{func} waits for a tensor on the CPU"
            assert True in (*args[2:], *(kwargs or {}).values()), f"{func} waits"
            assert self.copies, "the device has been given this already"
        return found


class NoNumbers(TorchFunctionMode):
    """Refuses tensors on a device of Python's numbers: their copy is waited for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        makes = func in (torch.tensor, torch.as_tensor, Tensor.new_tensor)
        assert not (makes and found.is_meta), f"{func.__name__} copies numbers to the device"
        return found


@contextmanager
def watched() -> Iterator[None]:
    """Refuses what waits for the device or sorts on it, also while indices are found.

    Steps differentiate their batch twice; a CUDA graph could hold the second time.
    """
    add = Loop._add_gradients

    def add_twice(loop: Loop, batch: Batch) -> None:
        add(loop, batch)
        with mock.patch.object(Watch, "copies", False):
            add(loop, batch)

    with (
        mock.patch.object(_torch, "_is_in_mode", return_value=False),
        mock.patch.object(Loop, "_add_gradients", add_twice),
        NoNumbers(),
        Watch(),
    ):
        yield


@pytest.fixture
def on_meta() -> Iterator[None]:
    """The torch backend runs there; its programs are not tried, since there are no numbers.

    A GPU is waited for when programs are tried, once for each cell.
    """
    with (
        mock.patch.object(TorchBackend, "devices", ("meta",)),
        mock.patch.object(programs, "check"),
        mock.patch.object(programs, "_OF_FORM", {}),
    ):
        yield


#: Makes the context of a step.
Watcher: TypeAlias = Callable[[], AbstractContextManager[None]]


class Ended(Exception):
    """Two steps have been made."""


class WatchSecond(Callback):
    """Watches the second step, before which cells are compiled, and ends training after it."""

    def __init__(self, stack: ExitStack, watch: Watcher) -> None:
        self._stack, self._watch = stack, watch

    def on_train_batch_end(self, loop: Loop) -> None:
        if loop.step > 1:
            raise Ended
        self._stack.enter_context(self._watch())


def train_two_steps(device: str, overrides: list[str], watch: Watcher) -> Loop:
    """Trains on a device, the second step within a context."""
    loop, data = new_loop(*overrides)
    loop.begin(torch.device(device))
    batches = data.loader("train", loop.model.passes, lowering=loop.model.lowering)
    with ExitStack() as stack:
        loop.callbacks.append(WatchSecond(stack, watch))
        with pytest.raises(Ended):
            loop.train_epoch(batches)
    return loop


@pytest.mark.usefixtures("on_meta")
@pytest.mark.parametrize("case", every(3, CASES))
def test_no_step_waits_for_numbers_or_sorts(case: str, overrides: list[str]) -> None:
    loop = train_two_steps("meta", overrides, watched)
    ways = set(loop.model.network.execution.values())
    assert ways == {"eager (run=eager)" if "model.run=eager" in overrides else "compiled (torch)"}


def test_a_device_is_given_nothing_twice() -> None:
    given = pytest.raises(AssertionError, match="has been given this already")
    with watched(), mock.patch.object(Watch, "copies", False), given:
        torch.ones(2).to("meta", non_blocking=True)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_no_step_waits_for_a_gpu(case: str, overrides: list[str]) -> None:
    @contextmanager
    def errors() -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    train_two_steps("cuda", overrides, errors)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Tensors say that they are not on the CPU, so that all is done as on a GPU."""
    with mock.patch.object(Tensor, "is_cpu", property(lambda _: False), create=True):
        yield


def loss_and_gradients(model: Model, batch: Batch) -> list[Tensor | None]:
    losses = model.losses(model(batch), model.head.target_rows(batch.dag))
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    return [losses, *torch.autograd.grad(losses.sum(), learned, allow_unused=True)]


@pytest.mark.parametrize("case", thinned(CASES, ("gine", "pairs")))
def test_a_device_gives_the_numbers_of_the_cpu(case: str, overrides: list[str]) -> None:
    with mock.patch.object(choice, "BACKENDS", {"torch": TorchBackend()}):
        loop, data = new_loop(*overrides)
        model = loop.model.double()
        for module in model.modules():
            if isinstance(module, nn.Dropout | StateDropout):
                module.p = 0.0
        batch = next(iter(data.loader("train", model.passes, lowering=model.lowering)))
        want = loss_and_gradients(model, batch)
        with elsewhere():
            there = batch.map_tensors(torch.clone)
            assert there.dag.on_cpu is batch.dag
            found = loss_and_gradients(model, there)
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("on_meta")
@pytest.mark.parametrize("case", ["mpnn"])
def test_equal_edges_are_one_row_of_a_table(case: str, overrides: list[str]) -> None:
    counts = []
    find = MPNNCell.before_edges

    def count(self: MPNNCell, columns: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        counts.append(len(next(iter(columns.values()))))
        return find(self, columns)

    with mock.patch.object(MPNNCell, "before_edges", count):
        train_two_steps("meta", overrides, nullcontext)
    assert 0 < max(counts) <= 4  # single, double, aromatic bonds


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (lambda x: x.max().item(), "item"),
        (lambda x: x[x > 0], "nonzero"),
        (lambda x: x.sort(), "sorts on the device"),
        (lambda x: x.add_(torch.ones(2)), "waits|same device"),
        (lambda x: x.copy_(torch.ones(2)), "waits"),
        (lambda x: x * torch.tensor([1.0, 2.0], device=x.device), "copies numbers"),
    ],
)
def test_what_is_refused(read: Callable[[Tensor], object], why: str) -> None:
    x = torch.empty(2, device="meta")
    with pytest.raises((RuntimeError, AssertionError, NotImplementedError), match=why), watched():
        read(x)
