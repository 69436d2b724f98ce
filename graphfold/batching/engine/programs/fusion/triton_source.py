"""Triton source: a region of a program's code as a kernel for CUDA, and what launches it."""

from __future__ import annotations

import functools
import itertools
import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from graphfold.batching.engine.programs.fusion.kernel_writer import KernelWriter
from graphfold.batching.engine.programs.fusion.language import Language
from graphfold.batching.engine.programs.fusion.operations import FUNCTIONS
from graphfold.batching.engine.programs.fusion.regions import Region

#: Elements per instance of a kernel: two for each thread.
BLOCK = 256

#: Of the sources compiled so far.
_NUMBERS = itertools.count()

#: An element is one column of a lane in one row. Whatever the size of a group, its kernel is the
#: same: it is compiled anew only where a stride becomes one, or is one no more.
_KERNEL = """\
@triton.jit(do_not_specialize=["num_elements"], do_not_specialize_on_alignment={parameters})
def kernel({names}, num_elements, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_elements
    row = at // {lane}
    column = at % {lane}
    {body}
"""


def build(region: Region) -> Callable[..., Any]:
    """The function of a region: (inputs ..., out_0=None, ...) -> outputs.

    The places for outputs are contiguous. Whatever the inputs' strides, they are read where they
    lie. Needs Triton.
    """
    return compile_source(write(region))


def write(region: Region) -> str:
    """The source of a region's kernel, and of `launch`, the function to call."""
    writer = KernelWriter(region, Triton())
    inputs, outputs = writer.inputs.values(), writer.outputs.values()
    strides = {name: writer.strides(node) for node, name in writer.inputs.items()}
    parameters = [*inputs, *outputs, *itertools.chain.from_iterable(strides.values())]
    kernel = _KERNEL.format(
        parameters=parameters,
        names=", ".join(parameters),
        body="\n    ".join(writer.lines),
        lane=writer.lane,
    )
    given = [f"*{name}.stride()" for name in inputs if strides[name]]
    arguments = ", ".join([*inputs, *outputs, *given])
    launch = writer.launch(
        [
            f"num_elements = num_rows * {writer.lane}",
            "if num_elements:",
            f"    with device_of({writer.rows}):",
            f"        grid = (-(-num_elements // {BLOCK}),)",
            f"        kernel[grid]({arguments}, num_elements, BLOCK={BLOCK})",
        ]
    )
    return f"{kernel}\n\n{launch}"


@functools.cache
def compile_source(source: str) -> Callable[..., Any]:
    """`launch` of a source; the kernel is compiled for the device when it is first called."""
    # Imported here: the package does without Triton until something is fused.
    import triton
    import triton.language as tl

    from graphfold.batching.engine.programs.fusion.triton_functions import tanh

    name = f"<kernel {next(_NUMBERS)}>"
    # Triton reads the source of a function from where Python would show it in a traceback.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": __name__, "torch": torch, "triton": triton, "tl": tl}
    space |= {"tanh": tanh, "device_of": torch.cuda.device_of}
    exec(compile(source, name, "exec"), space)
    launch: Callable[..., Any] = space["launch"]
    return launch


class Triton(Language):
    """Triton: a line of a kernel is for all elements of a block."""

    has_last_stride = True

    _DTYPES = {torch.float32: "tl.float32", torch.float64: "tl.float64", torch.bool: "tl.int1"}

    def functions(self, dtype: torch.dtype) -> Mapping[str, str]:
        """The same for all dtypes; tanh is ours."""
        return {name: name if name == "tanh" else f"tl.{name}" for name in FUNCTIONS}

    def number(self, value: float, dtype: torch.dtype) -> str:
        """As in Python; it takes the dtype of what it meets."""
        is_odd = isinstance(value, float) and not math.isfinite(value)
        return f'float("{value}")' if is_odd else repr(value)

    def cast(self, value: str, dtype: torch.dtype) -> str:
        """A value as one of a dtype."""
        return f"({value}).to({self._DTYPES[dtype]})"

    def fill(self, value: float, dtype: torch.dtype) -> str:
        """The same number in every column."""
        return f"tl.full([BLOCK], {self.number(value, dtype)}, {self._DTYPES[dtype]})"

    def assign(self, name: str, value: str, dtype: torch.dtype) -> str:
        """The line that gives a value a name."""
        return f"{name} = {value}"

    def load(self, tensor: str, terms: Sequence[str], is_one: bool) -> str:
        """What lies at an address."""
        return f"tl.load({' + '.join([tensor, *terms])}{'' if is_one else ', mask=inside'})"

    def store(self, tensor: str, terms: Sequence[str], value: str) -> str:
        """The line that writes a value to an address."""
        return f"tl.store({' + '.join([tensor, *terms])}, {value}, mask=inside)"
