"""Kernels of Triton that compute many values of a group at once, number by number.

What is stored is computed from what is read by one kernel. Values between them lie nowhere: each is
an expression of the number that it is, and views of values are arithmetic of places. A number of a
value of n rows has the place `row * size + column`, so a view tells where the operand lies.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import itertools
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar

import torch

from graphfold.batching.backends.torch_program import Few
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.values import (
    COPY,
    EDGES,
    NODES,
    Operation,
    Value,
    View,
    contiguous,
)

#: What a kernel reads besides values: rows that lie elsewhere, and which; the nodes of edges.
ROWS, INDEX, PARENT = "rows", "index", "parent"
#: Numbers that one program of a kernel computes.
BLOCK = 512
#: What a reduction along a row may add up; more is left to torch.
MAX_TERMS = 8

#: What a file of a kernel begins with. Small arguments lose no digits: the error of `exp(x) - 1` is
#: that of `log(exp(x))`, and cancels (Higham 2002, Accuracy and Stability, section 1.14.1).
_HEAD = '''"""A kernel that was written for one cell."""

import triton
import triton.language as tl


@triton.jit
def _expm1(x):
    u = tl.exp(x)
    log = tl.log(u)
    is_far = (u == 1) | (u < 1e-6) | (log == 0) | (u > 1e6)
    safe = tl.where(is_far, 1, log)
    return tl.where(u == 1, x, tl.where(is_far, u - 1, (u - 1) * (x / safe)))


@triton.jit
def _log1p(x):
    u = 1 + x
    is_flat = (u == 1) | (x > 1e6)
    near = tl.log(u) * (x / tl.where(is_flat, 1, u - 1))
    return tl.where(u == 1, x, tl.where(is_flat, tl.log(u), near))


@triton.jit
def _tanh(x):
    less = _expm1(-2 * tl.abs(x))
    size = -less / (less + 2)
    return tl.where(x < 0, -size, size)


'''


def is_fusable(value: Value) -> bool:
    """True if each number of a value is computed of few others."""
    operation, views = value.operation, value.inputs
    if value.size == 0 or not all(math.prod(view.shape) for view in views):
        return False
    if not all(math.isfinite(view.value.literal or 0) for view in views):
        return False
    if operation in (op.REDUCE_SUM, op.REDUCE_MAX):
        return math.prod(views[0].shape) <= MAX_TERMS * value.size
    if operation is op.ASSEMBLE:
        return all(map(_is_side_by_side, value.number, views))
    return bool(operation.triton) or operation in _MOVES


def _is_side_by_side(region: View, grad: View) -> bool:
    """True if a region is columns of its value, and not stretched."""
    is_own = region.space == region.value.space and region.row == region.value.size
    return is_own and region.is_contiguous and grad.space == region.space


#: What only moves numbers.
_MOVES = (
    *(COPY, op.DETACH, op.FILL, op.CAT, op.EXPAND),
    *(op.GATHER, op.GATHER_PREVIOUS, op.LOOK_UP, op.PULL),
)


class FusedKernel:
    """The source of a kernel, and the tensors that it takes.

    Args:
        dtype: of what is read and stored.
        is_inside: tells whether a value is computed by this kernel, wherever it is needed.

    Attributes:
        reads: what is read, each for an argument: a value; (gathered value, ROWS) and (gathered
            value, INDEX); (pulled value, a part of `Few`); or PARENT.
        stores: the values that are stored.
    """

    def __init__(self, dtype: torch.dtype, is_inside: Callable[[Value], bool]) -> None:
        self._number = "tl.float64" if dtype == torch.float64 else "tl.float32"
        self._is_inside = is_inside
        self.reads: list[Any] = []
        self.stores: list[Value] = []
        self._names = (f"v{number}" for number in itertools.count())
        self._lines: list[str] = []
        self._known: dict[Any, str] = {}
        self._stages: list[tuple[str, list[str]]] = []
        self._special: Mapping[Operation, Callable[[Value, str, str], str]] = {
            **dict.fromkeys((op.REDUCE_SUM, op.REDUCE_MAX), self._reduced),
            op.CAT: self._joined,
            op.ASSEMBLE: self._assembled,
            op.EXPAND: self._expanded,
            op.PULL: self._pulled,
        }

    def store(self, values: Sequence[Value]) -> None:
        """Computes and stores values, grouped by their sizes."""
        by_size: dict[tuple[str, int], list[Value]] = {}
        for value in values:
            by_size.setdefault((value.space, value.size), []).append(value)
        for (space, size), own in by_size.items():
            self._lines, self._known = [], {}
            for value in own:
                name = self._as_number(self._value(value, "at", "mask"))
                self._lines.append(f"tl.store(out{len(self.stores)} + at, {name}, mask=mask)")
                self.stores.append(value)
            self._stages.append((_COUNTS.get(space, "{size}").format(size=size), self._lines))

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """(space, numbers per row) of each size that is stored."""
        return list(dict.fromkeys((value.space, value.size) for value in self.stores))

    @property
    def source(self) -> str:
        """The function in Python."""
        body = ""
        for number, (count, lines) in reversed([*enumerate(self._stages)]):
            setup = ["at = block * BLOCK + tl.arange(0, BLOCK)", f"mask = at < count{number}"]
            rest = f"else:\n    block -= blocks{number}\n{indent(body, '    ')}" if body else ""
            body = (
                f"count{number} = {count}\n"
                f"blocks{number} = (count{number} + BLOCK - 1) // BLOCK\n"
                f"if block < blocks{number}:\n"
                + "".join(f"    {line}\n" for line in (*setup, *lines))
                + rest
            )
        names = [f"in{n}" for n in range(len(self.reads))]
        names += [f"out{n}" for n in range(len(self.stores))]
        # One kernel for all groups, wherever their rows begin.
        options = f"do_not_specialize={['num_nodes', 'num_edges', *names]}"
        head = f"def kernel(num_nodes, num_edges, {', '.join(names)}, BLOCK: tl.constexpr):"
        body = f"block = tl.program_id(0).to(tl.int64)\n{body}"
        return f"{_HEAD}@triton.jit({options})\n{head}\n{indent(body, '    ')}"

    # Expressions. `at` names the places of the numbers that are wanted, `mask` where they are.

    def _let(self, expression: str) -> str:
        """A name for an expression, the same for the same one."""
        if expression not in self._known:
            self._known[expression] = name = next(self._names)
            self._lines.append(f"{name} = {expression}")
        return self._known[expression]

    def _constant(self, number: float) -> str:
        return self._let(f"tl.full((BLOCK,), {number!r}, {self._number})")

    def _as_number(self, name: str) -> str:
        """A name of numbers, also for truth values."""
        return self._let(f"{name}.to({self._number})")

    def _argument(self, read: Any) -> str:
        if read not in self.reads:
            self.reads.append(read)
        return f"in{self.reads.index(read)}"

    def _load(self, read: Any, at: str, mask: str, dtype: str = "") -> str:
        pointer = self._argument(read)
        return self._let(
            f"tl.load({pointer} + {at}, mask={mask}, other=0).to({dtype or self._number})"
        )

    def _value(self, value: Value, at: str, mask: str) -> str:
        """The numbers of a value at some places."""
        if value.literal is not None:
            return self._constant(value.literal)
        if not self._is_inside(value):
            return self._load(value, at, mask)
        key = value, at, mask
        if key not in self._known:
            self._known[key] = self._computed(value, at, mask)
        return self._known[key]

    def _computed(self, value: Value, at: str, mask: str) -> str:
        operation = value.operation
        if operation.fetched is not None:
            return self._gathered(value, at, mask)
        if operation in self._special:
            return self._special[operation](value, at, mask)
        operands = [self._operand(view, value.size, at, mask) for view in value.inputs]
        if not operation.triton:  # the same numbers
            return operands[0]
        operands = [self._as_number(operand) for operand in operands]
        named = dict(zip("xyz", operands, strict=False))
        constants = {"one": self._constant(1.0), "zero": self._constant(0.0)}
        return self._let(operation.triton.format(**named, **constants))

    def _operand(self, view: View, size: int, at: str, mask: str) -> str:
        """The numbers of a view, lined up with a value of so many numbers that reads it."""
        return self._value(view.value, self._place(view, size, at), mask)

    def _numbers(self, view: View, at: str, mask: str) -> str:
        """The numbers of a view at its own places, none of them truth values."""
        return self._as_number(self._operand(view, math.prod(view.shape), at, mask))

    def _place(self, view: View, size: int, at: str) -> str:
        """The places in its value of the numbers of a view."""
        if view.is_contiguous and view.offset == 0 and view.row == size == math.prod(view.shape):
            return at
        row, column = self._row_and_column(at, size)
        terms = [f"{row} * {view.row}"] if view.row else []
        terms += [str(view.offset)] if view.offset else []
        terms += self._steps(view, column)
        return self._let(" + ".join(terms) if terms else f"{at} * 0")

    def _steps(self, view: View, column: str) -> list[str]:
        """The terms of a place that the columns of a view add."""
        if view.is_contiguous:
            return [column] if math.prod(view.shape) > 1 else []
        terms = []
        for size, step, below in zip(view.shape, view.steps, contiguous(view.shape), strict=True):
            if step and size > 1:
                terms.append(f"({column} // {below} % {size}) * {step}")
        return terms

    def _row_and_column(self, at: str, size: int) -> tuple[str, str]:
        return self._let(f"{at} // {size}"), self._let(f"{at} % {size}")

    def _gathered(self, value: Value, at: str, mask: str) -> str:
        place = self._in_rows((value, INDEX), value.size, at, mask)
        return self._load((value, ROWS), place, mask)

    def _pulled(self, value: Value, at: str, mask: str) -> str:
        """The sum of what the readers of each row have left, and of the upstream gradient."""
        named = {part: self._argument((value, part)) for part in Few._fields}
        row, column = self._row_and_column(at, value.size)
        there = self._let(f"{mask} & ({named['most']} > 0)")
        begin = self._load((value, "ptr"), row, there, "tl.int64")
        end = self._load((value, "ptr"), f"{row} + 1", there, "tl.int64")
        has_upstream = self._let(f"{mask} & ({named['has_upstream']} != 0)")
        upstream, total = self._load((value, "upstream"), at, has_upstream), next(self._names)
        self._lines += [
            f"{total}, step = {upstream}, 0",
            f"while step < {named['most']}:",
            f"    own = {mask} & ({begin} + step < {end})",
            f"    reader = tl.load({named['reader']} + {begin} + step, mask=own, other=0)",
            f"    place = reader.to(tl.int64) * {value.size} + {column}",
            f"    left = tl.load({named['values']} + place, mask=own, other=0)",
            f"    {total} += left.to({self._number})",
            "    step += 1",
        ]
        return total

    def _expanded(self, value: Value, at: str, mask: str) -> str:
        """Of each edge, the row of its node."""
        of_node = self._in_rows(PARENT, value.size, at, mask)
        return self._operand(value.inputs[0], value.size, of_node, mask)

    def _in_rows(self, index: Any, size: int, at: str, mask: str) -> str:
        """The columns of a view in the rows that an index names."""
        row = self._load(index, self._let(f"{at} // {size}"), mask, "tl.int64")
        column = self._let(f"{at} % {size}")
        return self._let(f"{row} * {size} + {column}")

    def _reduced(self, value: Value, at: str, mask: str) -> str:
        """The sum, or maximum, along the dimensions that have become one."""
        (view,) = value.inputs
        dims = list(zip(view.shape, value.shape, view.steps, strict=True))
        kept = [step if size == own else 0 for size, own, step in dims]
        gone = [[i * step for i in range(size)] for size, own, step in dims if size != own]
        names = []
        for offsets in itertools.product(*gone):
            part = view.arranged(value.shape, kept, view.offset + sum(offsets))
            names.append(self._as_number(self._operand(part, value.size, at, mask)))
        found, *rest = names
        joined = op.ADD if value.operation is op.REDUCE_SUM else op.MAXIMUM
        for name in rest:
            found = self._let(joined.triton.format(x=found, y=name))
        return found

    def _joined(self, value: Value, at: str, mask: str) -> str:
        """Parts side by side along a dimension."""
        dim: int = value.number
        below = math.prod(value.shape[dim + 1 :])
        row, column = self._row_and_column(at, value.size)
        width, found, start = value.shape[dim], "", 0
        before = self._let(f"{column} // {below * width}")
        there = self._let(f"{column} // {below} % {width}")
        for view in value.inputs:
            size = view.shape[dim]
            own = self._let(f"{mask} & ({there} >= {start}) & ({there} < {start + size})")
            dims = f"({before} * {size} + {there} - {start}) * {below} + {column} % {below}"
            inner = self._let(f"{row} * {math.prod(view.shape)} + {dims}")
            number = self._numbers(view, inner, own)
            found = number if not found else self._let(f"tl.where({own}, {number}, {found})")
            start += size
        return found

    def _assembled(self, value: Value, at: str, mask: str) -> str:
        """The sum of the gradients of columns, each where its columns are."""
        row, column = self._row_and_column(at, value.size)
        found = self._constant(0.0)
        for region, grad in zip(value.number, value.inputs, strict=True):
            start, size = region.offset, math.prod(region.shape)
            if (start, size) == (0, value.size):
                found = self._let(f"{found} + {self._numbers(grad, at, mask)}")
                continue
            own = self._let(f"{mask} & ({column} >= {start}) & ({column} < {start + size})")
            inner = self._let(f"{row} * {size} + {column} - {start}")
            number = self._numbers(grad, inner, own)
            found = self._let(f"{found} + tl.where({own}, {number}, {self._constant(0.0)})")
        return found


#: The number of numbers of a size; of a group there is one row.
_COUNTS = {
    NODES: "num_nodes.to(tl.int64) * {size}",
    EDGES: "num_edges.to(tl.int64) * {size}",
}


@cache
def _folder() -> Path:
    """The folder of all sources: Triton reads functions from files, and caches what it makes."""
    folder = tempfile.mkdtemp(prefix="graphfold_triton_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _compile(source: str) -> Any:
    """The kernel that Triton makes of a source when it is called for the first time."""
    path = _folder() / f"kernel_{hashlib.sha256(source.encode()).hexdigest()[:16]}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


class Launcher:
    """Runs a kernel.

    Args:
        kernel: the kernel.

    Attributes:
        launches: the number of kernels that have been launched in this process.
    """

    launches: ClassVar[int] = 0

    def __init__(self, kernel: FusedKernel) -> None:
        self._function = _compile(kernel.source)
        self._sizes, self._num_reads = kernel.sizes, len(kernel.reads)
        self._handles: dict[torch.device, Any] = {}

    def run(self, num_nodes: int, num_edges: int, *tensors: Any) -> None:
        """Computes a group from what `FusedKernel.reads` lists, into the tensors to be stored."""
        counts = {NODES: num_nodes, EDGES: num_edges}
        numbers = [counts.get(space, 1) * size for space, size in self._sizes]
        blocks = sum((number + BLOCK - 1) // BLOCK for number in numbers)
        if not blocks:
            return
        reads = [
            x if isinstance(x, int) or x.is_contiguous() else x.contiguous()
            for x in tensors[: self._num_reads]
        ]
        arguments = num_nodes, num_edges, *reads, *tensors[self._num_reads :], BLOCK
        device = tensors[-1].device
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._launch(device, blocks, arguments)
        else:
            self._launch(device, blocks, arguments)

    def _launch(self, device: torch.device, blocks: int, arguments: Sequence[Any]) -> None:
        """Calls what Triton has compiled for a device; looking that up takes twice as long."""
        Launcher.launches += 1
        handle = self._handles.get(device)
        if handle is None:
            self._handles[device] = self._function[(blocks,)](*arguments)  # None if interpreted
        else:
            handle[(blocks, 1, 1)](*arguments)
