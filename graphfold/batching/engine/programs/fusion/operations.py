"""What a kernel can compute: operations of torch on single elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.lanes import rows_of

aten = torch.ops.aten

#: Dtypes of what is read and written. Half precision would have to be computed in single.
DTYPES = (torch.float32, torch.float64, torch.bool)
#: Functions that the language of kernels has to have.
FUNCTIONS = ("abs", "exp", "log", "sigmoid", "sqrt", "tanh", "where")

#: Operation -> what it computes, in the names of its arguments in torch, and of `FUNCTIONS`.
#: Comparisons are turned so that NaN stays NaN, as in torch.
EXPRESSIONS: Mapping[Any, str] = {
    aten.add: "{self} + {alpha} * {other}",
    aten.sub: "{self} - {alpha} * {other}",
    aten.rsub: "{other} - {alpha} * {self}",
    aten.mul: "{self} * {other}",
    aten.div: "{self} / {other}",
    aten.neg: "-{self}",
    aten.abs: "{abs}({self})",
    aten.reciprocal: "1 / {self}",
    aten.exp: "{exp}({self})",
    aten.log: "{log}({self})",
    aten.sqrt: "{sqrt}({self})",
    aten.rsqrt: "1 / {sqrt}({self})",
    aten.sigmoid: "{sigmoid}({self})",
    aten.tanh: "{tanh}({self})",
    aten.relu: "{where}({self} < 0, 0, {self})",
    aten.leaky_relu: "{where}({self} > 0, {self}, {self} * {negative_slope})",
    aten.silu: "{self} * {sigmoid}({self})",
    aten.clamp_min: "{where}({self} < {min}, {min}, {self})",
    aten.clamp_max: "{where}({self} > {max}, {max}, {self})",
    aten.maximum: "{where}(({self} > {other}) | ({self} != {self}), {self}, {other})",
    aten.minimum: "{where}(({self} < {other}) | ({self} != {self}), {self}, {other})",
    aten.addcmul: "{self} + {value} * {tensor1} * {tensor2}",
    aten.addcdiv: "{self} + {value} * {tensor1} / {tensor2}",
    aten.lerp: "{self} + {weight} * ({end} - {self})",
    aten.where: "{where}({condition}, {self}, {other})",
    aten.eq: "{self} == {other}",
    aten.ne: "{self} != {other}",
    aten.lt: "{self} < {other}",
    aten.le: "{self} <= {other}",
    aten.gt: "{self} > {other}",
    aten.ge: "{self} >= {other}",
    aten.logical_and: "({self} != 0) & ({other} != 0)",
    aten.logical_or: "({self} != 0) | ({other} != 0)",
    aten.logical_not: "{self} == 0",
    aten.sigmoid_backward: "{grad_output} * (1 - {output}) * {output}",
    aten.tanh_backward: "{grad_output} * (1 - {output} * {output})",
    aten.threshold_backward: "{where}({self} <= {threshold}, 0, {grad_output})",
    aten.leaky_relu_backward: (
        "{where}({self} > 0, {grad_output}, {grad_output} * {negative_slope})"
    ),
    aten.silu_backward: (
        "{grad_output} * {sigmoid}({self}) * (1 + {self} * (1 - {sigmoid}({self})))"
    ),
    aten.clone: "{self}",
    aten._to_copy: "{self}",
}
#: The powers that are no matter of logarithms.
POWERS: Mapping[Any, str] = {
    -1: "1 / {self}",
    0.5: "{sqrt}({self})",
    2: "{self} * {self}",
    3: "{self} * {self} * {self}",
}
#: What fills a tensor with the same number: the number, or the name of its argument.
FILLS: Mapping[Any, float | str] = {
    aten.zeros_like: 0,
    aten.ones_like: 1,
    aten.full_like: "fill_value",
}
#: Overloads of operations above that mean something else.
_OTHERS = (aten.div.Tensor_mode, aten.div.Scalar_mode, aten.clamp_min.Tensor, aten.clamp_max.Tensor)


def is_computable(node: fx.Node) -> bool:
    """Whether a kernel can compute a node, row by row."""
    value: Any = node.meta.get("val")
    if rows_of(value) is None or value.dim() < 2 or value.dtype not in DTYPES:
        return False
    if not isinstance(node.target, torch._ops.OpOverload) or 0 in value.shape[1:]:
        return False
    if not all(_is_readable(source, value) for source in node.all_input_nodes):
        return False
    return is_cat(node) or is_sum(node) or is_filled(node) or expression(node) is not None


def is_constant(node: fx.Node) -> bool:
    """Whether a node is a number of the code, made a tensor."""
    return node.target == aten.scalar_tensor.default


def is_filled(node: fx.Node) -> bool:
    """Whether a node is filled with one number."""
    return getattr(node.target, "overloadpacket", None) in FILLS


def number_of(node: fx.Node) -> float:
    """The number that a constant is, or that a node is filled with."""
    number = node.args[0] if is_constant(node) else FILLS[node.target.overloadpacket]  # type: ignore[union-attr]
    return arguments(node)[number] if isinstance(number, str) else number  # type: ignore[return-value]


def is_cat(node: fx.Node) -> bool:
    """Whether a node joins tensors of one dtype, not along the rows."""
    if node.target != aten.cat.default:
        return False
    dtypes = {source.meta["val"].dtype for source in node.all_input_nodes}
    return arguments(node)["dim"] % node.meta["val"].dim() > 0 and len(dtypes) == 1


def is_sum(node: fx.Node) -> bool:
    """Whether a node sums over dimensions that are neither the rows nor the last."""
    if node.target != aten.sum.dim_IntList:
        return False
    found = arguments(node)
    num_dims = found["self"].meta["val"].dim()
    dims = [dim % num_dims for dim in found["dim"] or ()]
    is_float = found["self"].meta["val"].dtype == node.meta["val"].dtype
    return bool(dims) and is_float and all(0 < dim < num_dims - 1 for dim in dims)


def expression(node: fx.Node) -> str | None:
    """What an elementwise operation computes, in the names of its arguments."""
    target: Any = node.target
    if target == aten.pow.Tensor_Scalar:
        return POWERS.get(node.args[1])
    if target == aten.clamp.default:
        return _clamp(arguments(node))
    return None if target in _OTHERS else EXPRESSIONS.get(target.overloadpacket)


def arguments(node: fx.Node) -> dict[str, Any]:
    """All arguments of an operation by name."""
    found = {}
    for place, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        given = node.args[place : place + 1] or [
            node.kwargs.get(argument.name, argument.default_value)
        ]
        found[argument.name] = given[0]
    return found


def _clamp(found: Mapping[str, Any]) -> str | None:
    given = [name for name in ("min", "max") if found[name] is not None]
    return EXPRESSIONS[getattr(aten, f"clamp_{given[0]}")] if len(given) == 1 else None


def _is_readable(node: fx.Node, like: Tensor) -> bool:
    """Whether a tensor has one row for each row of another one, or one for all of them."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.dtype not in DTYPES:
        return False
    if is_constant(node):
        return isinstance(node.args[0], (bool, int, float))
    has_rows = rows_of(value) == rows_of(like) or all(isinstance(n, int) for n in value.shape)
    return has_rows and value.device == like.device
