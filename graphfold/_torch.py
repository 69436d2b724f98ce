"""All private names of torch that graphfold uses, and the behaviour without each.

Every release of torch may rename them, so no other file of graphfold uses such a name (ruff's rule
SLF001 and tests/test_private_torch.py check it). Each is looked up when it is first needed, so a
torch without one lacks only the features that need it. Importing this file imports nothing.

Exceptions are the attributes of modules and tensors that torch's own notes use, `_parameters`,
`_buffers`, `_modules`, `_version`, and of sparse tensors `_indices` and `_values`, and the
operations `_softmax` and `_to_copy`, which are part of the core that torch documents.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
P = ParamSpec("P")
R = TypeVar("R")


class NotInTorch(RuntimeError):
    """The installed torch lacks a name, which the message describes."""


def _find(module: str, name: str) -> Any:
    """An attribute of a module of torch; None if the attribute or the module is absent."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def is_in_forward_mode() -> bool:
    """True if forward-mode differentiation is on.

    Without torch's name: no. Functions of ours that it meets are then refused by torch itself, as
    all are that have no `jvp`.
    """
    level = getattr(_forward_ad(), "_current_level", -1)
    return isinstance(level, int) and level >= 0


@functools.cache
def _forward_ad() -> Any:
    return import_module("torch.autograd.forward_ad")


def is_in_transform() -> bool:
    """True if a transform of `torch.func` is on, such as vmap.

    Without torch's name: no. Functions of ours that one meets are then refused by torch itself, as
    all are that have no `setup_context`, and a tensor of a transform has no address to read.
    """
    return bool(_in_transform()())


@functools.cache
def _in_transform() -> Callable[[], bool]:
    return _find("torch._C", "_are_functorch_transforms_active") or (lambda: False)


def is_transformed() -> bool:
    """True if torch does more to functions than they say: a transform, or forward mode.

    Ordinary operations follow these, and functions of one's own do not.
    """
    return is_in_forward_mode() or is_in_transform()


def is_batched(tensor: object) -> bool:
    """True if a tensor may stand for many of its kind: in a transform, or of many gradients.

    Without torch's names: no. Functions of ours that such a tensor meets are then refused by torch
    itself, or find no memory.
    """
    return is_in_transform() or _is_legacy_batched()(tensor)


@functools.cache
def _is_legacy_batched() -> Callable[[object], bool]:
    return _find("torch._C._functorch", "is_legacy_batchedtensor") or (lambda _: False)


def outside_modes(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs as if no mode, no transform and no hook of torch were on.

    It makes what serves later runs too, such as plans and programs. Tensors that are made under
    `torch.inference_mode`, in a transform of `torch.func` or among fake tensors are of no use
    there; and modes that record operations, and hooks that count saved tensors, such as those of
    `torch.utils.checkpoint`, would miss them the next time. The grad mode and the default device
    stay. Without torch's names it leaves the inference mode alone.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _is_in_mode():
            return function(*args, **kwargs)
        with _outside_modes():
            return function(*args, **kwargs)

    return run


def _is_in_mode() -> bool:
    import torch

    if torch.is_inference_mode_enabled() or is_in_transform():
        return True
    num_modes, top_hooks = _modes_and_hooks()
    return bool(num_modes()) or top_hooks(False) is not None


@functools.cache
def _modes_and_hooks() -> tuple[Callable[[], int], Callable[[bool], Any]]:
    num_modes = _find("torch._C", "_len_torch_dispatch_stack")
    top_hooks = _find("torch._C._autograd", "_top_saved_tensors_default_hooks")
    return num_modes or (lambda: 0), top_hooks or (lambda _: None)


@contextmanager
def _outside_modes() -> Iterator[None]:
    import torch

    modes = _find("torch.utils._python_dispatch", "_disable_current_modes") or nullcontext
    transforms = _find("torch._functorch.pyfunctorch", "temporarily_clear_interpreter_stack")
    pop = _find("torch._C._autograd", "_pop_saved_tensors_default_hooks")
    push = _find("torch._C._autograd", "_push_saved_tensors_default_hooks")
    _, top_hooks = _modes_and_hooks()
    hooks: list[Any] = []
    with modes(), (transforms or nullcontext)(), torch.inference_mode(False):
        while pop is not None and (hook := top_hooks(False)) is not None:
            hooks.append(hook)
            pop()
        try:
            yield
        finally:
            for hook in reversed(hooks):
                push(*hook)


_FAKES = "torch._subclasses.fake_tensor"


def fake_tensors() -> AbstractContextManager[object]:
    """A context in which operations compute shapes alone: tensors have no numbers.

    The mode imports much of torch's compiler, so it is imported only here.

    Raises:
        NotInTorch: without torch's name. Cells are then not compiled, and a function is called on
            real zeros to find the type of its output.
    """
    mode = _find(_FAKES, "FakeTensorMode")
    if mode is None:
        raise NotInTorch("this version of torch has no tensors without numbers (FakeTensorMode)")
    context: AbstractContextManager[object] = mode(allow_non_fake_inputs=True)
    return context


def is_faking() -> bool:
    """True if operations give tensors without numbers; see `fake_tensors`.

    Without torch's name: no. Operations of torch then say that they have no numbers.
    """
    num_modes, _ = _modes_and_hooks()
    return bool(num_modes()) and _is_faking()()


@functools.cache
def _is_faking() -> Callable[[], bool]:
    find = _find("torch._C", "_get_dispatch_mode")
    kinds = _find("torch._C", "_TorchDispatchModeKey")
    if find is None or kinds is None:
        return lambda: False
    return lambda: find(kinds.FAKE) is not None


def is_fake(tensor: object) -> bool:
    """True if a tensor is one of `fake_tensors`; False without torch's name."""
    kind = _fake_kind() if _FAKES in sys.modules else None  # else none has been made
    return kind is not None and isinstance(tensor, kind)


@functools.cache
def _fake_kind() -> Any:
    return _find(_FAKES, "FakeTensor")


def needs_numbers() -> tuple[type[Exception], ...]:
    """The errors of operations that need numbers of `fake_tensors`, and `NotInTorch`.

    Exceptions that torch lacks are left out.
    """
    names = (
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "UnsupportedFakeTensorException",
        "UnsupportedOperatorException",
    )
    errors = [_find(_FAKES, name) for name in names]
    return NotInTorch, *(error for error in errors if error is not None)


def fake_tensor_log() -> logging.Logger:
    """The logger of failures among `fake_tensors`; if torch renames it, its lines are shown."""
    return logging.getLogger(_FAKES)


#: A function that runs an operation: it gets the operation, its arguments and keyword arguments.
Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def handling_operations(handler: Handler) -> AbstractContextManager[object]:
    """Inside, a handler is called instead of each operation of torch, below autograd.

    Raises:
        NotInTorch: without torch's name. Cells then run as they are.
    """
    context: AbstractContextManager[object] = _handling_mode()(handler)
    return context


@functools.cache
def _handling_mode() -> Any:
    mode = _find("torch.utils._python_dispatch", "TorchDispatchMode")
    if mode is None:
        raise NotInTorch("this version of torch cannot record operations (TorchDispatchMode)")

    class Handling(mode):  # type: ignore[misc, valid-type]
        def __init__(self, handler: Handler) -> None:
            super().__init__()
            self._handler = handler

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self._handler(func, args, kwargs or {})

    return Handling


def is_mutating(operation: Any) -> bool:
    """True if an operation writes into an argument."""
    return bool(operation._schema.is_mutable)


def argument_names(operation: Any) -> list[str]:
    """The names of the arguments of an operation, in order."""
    return [argument.name for argument in operation._schema.arguments]


def has_hooks(tensor: Any) -> bool:
    """True if a hook waits for the gradient of a tensor."""
    return bool(tensor._backward_hooks)


#: The attributes of a module that hold its hooks; names that torch lacks are ignored.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_global_hooks() -> bool:
    """True if hooks for all modules are registered.

    Without torch's names: no. Then compiled cells do not call such hooks.
    """
    return any(_global_hooks())


#: Of the file of `torch.nn.Module`: hooks for all modules, by number.
GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


@functools.cache
def _global_hooks() -> tuple[dict[int, Any], ...]:
    registries = (_find("torch.nn.modules.module", name) for name in GLOBAL_HOOKS)
    return tuple(hooks for hooks in registries if hooks is not None)


def move_towards(tensors: Sequence[Any], others: Sequence[Any], share: float) -> None:
    """Moves tensors, in place, a share of the way to others; one call of torch moves all of them.

    Without torch's name: a call for each, which takes several times as long.
    """
    move = _find("torch", "_foreach_lerp_")
    if move is not None:
        move(tensors, others, share)
        return
    for tensor, other in zip(tensors, others, strict=True):
        tensor.lerp_(other, share)


def collate_by_default(kind: type, collate: Callable[..., Any]) -> None:
    """Has `default_collate`, and so every `DataLoader`, make one object of several of a class.

    torch documents the table, but its name is private. Without it: `default_collate` refuses the
    class, and a `collate_fn` has to be given.

    Args:
        kind: the class.
        collate: called with a list of objects, and with `collate_fn_map`.
    """
    table = _find("torch.utils.data._utils.collate", "default_collate_fn_map")
    if table is not None:
        table[kind] = collate


def uncompiled(
    forward: Callable[Concatenate[Self, P], R],
) -> Callable[Concatenate[Self, P], R]:
    """A forward that `torch.compile` calls without compiling it.

    The engine compiles cells itself; its plans differ from batch to batch, so that torch would
    trace each batch again. `torch.compiler.disable` imports torch's compiler, which takes seconds,
    and wraps the forward, so it is called only while torch compiles.
    """

    @functools.wraps(forward)
    def run(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        import torch

        if not torch.compiler.is_compiling():
            return forward(self, *args, **kwargs)
        disable: Callable[..., Any] = torch.compiler.disable
        result: R = disable(forward)(self, *args, **kwargs)
        return result

    return run


def refuse_script(module: Any) -> Any:
    """Refuses `torch.jit.script`, which calls it by the name `__prepare_scriptable__`."""
    from graphfold.errors import EngineError

    raise EngineError(
        f"{type(module).__name__} cannot be a script of torch.jit: its computation differs for "
        "every batch. Use it as it is; the engine compiles its cells."
    )
