"""Names of torch that it does not promise: one file has them, and each has something instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)

from graphfold import _torch
from graphfold._torch import NotInTorch
from graphfold.batching.compiler.trace import Signature, Sizes, trace
from graphfold.batching.compiler.values import Untraceable
from graphfold.blocks.inference.infer import MOST_NUMBERS, infer_output_type
from graphfold.blocks.inference.types import TensorType
from graphfold.layers import TreeRNNCell

PACKAGE = Path(_torch.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "_torch.py")

#: What the functions of `_torch` look up.
NAMES = [
    ("torch.autograd.forward_ad", "_current_level"),
    ("torch._C", "_are_functorch_transforms_active"),
    ("torch._C", "_get_dispatch_mode"),
    ("torch._C", "_len_torch_dispatch_stack"),
    ("torch._C._autograd", "_top_saved_tensors_default_hooks"),
    ("torch._C._autograd", "_pop_saved_tensors_default_hooks"),
    ("torch._C._autograd", "_push_saved_tensors_default_hooks"),
    ("torch._C", "_TorchDispatchModeKey"),
    ("torch._C._functorch", "is_legacy_batchedtensor"),
    ("torch._functorch.pyfunctorch", "temporarily_clear_interpreter_stack"),
    ("torch.utils._python_dispatch", "_disable_current_modes"),
    ("torch._subclasses.fake_tensor", "FakeTensor"),
    ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    ("torch._subclasses.fake_tensor", "DataDependentOutputException"),
    ("torch._subclasses.fake_tensor", "DynamicOutputShapeException"),
    ("torch._subclasses.fake_tensor", "UnsupportedFakeTensorException"),
    ("torch._subclasses.fake_tensor", "UnsupportedOperatorException"),
    ("torch.utils._python_dispatch", "TorchDispatchMode"),
    ("torch.utils.data._utils.collate", "default_collate_fn_map"),
    *(("torch.nn.modules.module", name) for name in _torch.GLOBAL_HOOKS),
]
CACHES = (
    _torch._in_transform,
    _torch._fake_kind,
    _torch._is_legacy_batched,
    _torch._is_faking,
    _torch._modes_and_hooks,
    _torch._handling_mode,
    _torch._global_hooks,
)


def private_names(path: Path) -> Iterator[str]:
    """Names of torch with a part that begins with an underscore, however they are written."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            found = [text] if "(" not in text and "[" not in text else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value] if " " not in node.value else []
        for name in found:
            first, *rest = name.split(".")
            is_private = any(p.startswith("_") and not p.endswith("__") for p in rest)
            if first in ("torch", "nn", "forward_ad") and is_private:
                yield f"{path.name}:{node.lineno}: {name}"  # type: ignore[attr-defined]


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch that has none of the names."""
    monkeypatch.setattr(_torch, "_find", lambda module, name: None)
    monkeypatch.setattr(_torch, "_forward_ad", lambda: None)
    for cache in CACHES:
        cache.cache_clear()
    yield
    for cache in CACHES:
        cache.cache_clear()


def test_no_other_file_has_private_names_of_torch():
    names = [name for path in FILES for name in private_names(path)]
    assert names == [], "graphfold/_torch.py is where such names go"


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_torch_has_the_name(module, name):
    assert _torch._find(module, name) is not None


def test_torch_has_the_names_that_objects_are_looked_at_for():
    assert vars(nn.Linear(1, 1)).keys() >= set(_torch.HOOKS)


def test_transforms():
    seen: list[tuple[bool, bool]] = []

    def look(x):
        seen.append((_torch.is_in_transform(), _torch.is_in_forward_mode()))
        return x

    torch.func.vmap(look)(torch.ones(2))
    with forward_ad.dual_level():
        look(None)
    look(None)
    assert seen == [(True, False), (False, True), (False, False)]


@pytest.mark.usefixtures("missing")
def test_without_names_nothing_is_on():
    with forward_ad.dual_level():
        assert not _torch.is_in_forward_mode()
    assert not torch.func.vmap(lambda x: x * _torch.is_in_transform())(torch.ones(2)).any()
    hook = register_module_forward_hook(lambda *_: None)
    assert not _torch.has_global_hooks()
    hook.remove()


@pytest.mark.parametrize(
    "register",
    [
        register_module_forward_hook,
        register_module_forward_pre_hook,
        register_module_full_backward_hook,
        register_module_full_backward_pre_hook,
    ],
)
def test_global_hooks(register):
    assert not _torch.has_global_hooks()
    hook = register(lambda *_: None)
    assert _torch.has_global_hooks()
    hook.remove()


def test_operations_are_handled():
    seen = []

    def handle(func, args, kwargs):
        seen.append((func, len(args), kwargs))
        return func(*args, **kwargs)

    x = torch.ones(2)
    with _torch.handling_operations(handle):
        torch.add(x, x, alpha=2)
    assert seen == [(torch.ops.aten.add.Tensor, 2, {"alpha": 2})]


@pytest.mark.usefixtures("missing")
def test_without_names_there_is_no_trace():
    with pytest.raises(NotInTorch, match="cannot record operations"):
        _torch.handling_operations(print)
    with pytest.raises(NotInTorch, match="no tensors without numbers"):
        _torch.fake_tensors()
    signature = Signature(torch.float32, None, (), (), (), (), (), False)
    with pytest.raises(Untraceable, match="NotInTorch: .*no tensors without numbers"):
        trace(TreeRNNCell(0, 2), signature, Sizes(2, 3))


def types_of(width: int) -> tuple[TensorType, TensorType]:
    return TensorType([width]), TensorType([1])


def test_output_types_are_found_without_numbers():
    kind, result = types_of(MOST_NUMBERS)
    made = []
    found = infer_output_type("it", lambda x: made.append(type(x)) or x.sum(1, keepdim=True), kind)
    assert found == result
    assert torch.Tensor not in made


@pytest.mark.usefixtures("missing")
def test_without_names_output_types_are_found_with_zeros():
    kind, result = types_of(MOST_NUMBERS // 16)
    made = []
    found = infer_output_type("it", lambda x: made.append(type(x)) or x.sum(1, keepdim=True), kind)
    assert found == result
    assert set(made) == {torch.Tensor}


def test_what_needs_numbers_is_caught():
    with _torch.fake_tensors():
        x = torch.ones(3)
    assert _torch.is_fake(x)
    assert not _torch.is_fake(torch.ones(3))
    with pytest.raises(_torch.needs_numbers()), _torch.fake_tensors():
        x.sum().item()


def move() -> None:
    tensors, others = [torch.zeros(2), torch.ones(3)], [torch.ones(2), torch.full((3,), 5.0)]
    _torch.move_towards(tensors, others, 0.25)
    assert [tensor.tolist() for tensor in tensors] == [[0.25] * 2, [2.0] * 3]


def test_tensors_are_moved_at_once():
    move()


@pytest.mark.usefixtures("missing")
def test_without_names_tensors_are_moved_one_by_one():
    move()
