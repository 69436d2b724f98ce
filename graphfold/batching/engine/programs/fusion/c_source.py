"""C source: a region of a program's code as a kernel for CPUs, and the function that calls it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx

from graphfold.batching.engine.programs.fusion.kernel_writer import KernelWriter
from graphfold.batching.engine.programs.fusion.language import Language
from graphfold.batching.engine.programs.fusion.operations import FUNCTIONS
from graphfold.batching.engine.programs.fusion.regions import Region
from graphfold.batching.kernels.c_compiler import compile_c, declare
from graphfold.batching.kernels.profiled import profiled

#: Columns that are computed side by side: the floats of the largest vectors.
BLOCK = 16
#: Fewer elements than this are not shared out among threads.
FEW_ELEMENTS = 16384

_FUNCTIONS = Path(__file__).with_name("c_functions.h")

#: The last block of a row begins early and computes some columns again: a few steps of their own
#: for the rest of a row would take as long as many blocks.
_KERNEL = """\
void kernel({parameters}, int64_t num_rows, int64_t num_threads) {{
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1)
  for (int64_t row = 0; row < num_rows; row++)
    for (int64_t start = 0; start < {lane}; start += {block}) {{
      const int64_t first = start < {last} ? start : {last};
#pragma omp simd
      for (int64_t column = first; column < first + {block}; column++) {{
        {body}
      }}
    }}
}}
"""


def build(region: Region) -> Callable[..., Any]:
    """The function of a region: (inputs ..., out_0=None, ...) -> outputs.

    The places for outputs are contiguous, and no input lies in them. Needs a C compiler.

    Raises:
        EngineError: if the kernel cannot be compiled.
    """
    return compile_source(write(region))


class Source(NamedTuple):
    """The source of a kernel.

    Args:
        kernel: a function in C.
        launch: the Python function to call.
        num_pointers: the number of pointers that the kernel takes.
        num_integers: the number of integers after them.
    """

    kernel: str
    launch: str
    num_pointers: int
    num_integers: int


def write(region: Region) -> Source:
    """The source of a region's kernel."""
    writer = KernelWriter(region, C())
    strides = [name for node in writer.inputs for name in writer.strides(node)]
    pointers = [f"const {_type(node)} *restrict {name}" for node, name in writer.inputs.items()]
    pointers += [f"{_type(node)} *restrict {name}" for node, name in writer.outputs.items()]
    block = min(BLOCK, writer.lane)
    kernel = _KERNEL.format(
        parameters=", ".join([*pointers, *(f"int64_t {name}" for name in strides)]),
        lane=writer.lane,
        block=block,
        last=writer.lane - block,
        body="\n        ".join(writer.lines),
    )
    names = (*writer.inputs.values(), *writer.outputs.values())
    arguments = ", ".join([*(f"{name}.data_ptr()" for name in names), *strides])
    many_rows = math.ceil(FEW_ELEMENTS / writer.lane)
    calls = [
        *_stride_lines(writer),
        f"num_threads = get_num_threads() if num_rows >= {many_rows} else 1",
        f"kernel({arguments}, num_rows, num_threads)",
    ]
    return Source(kernel, writer.launch(calls), len(pointers), len(strides) + 2)


@functools.cache
def compile_source(source: Source) -> Callable[..., Any]:
    """`launch` of a source.

    Raises:
        EngineError: if the kernel cannot be compiled.
    """
    code = f"{_FUNCTIONS.read_text()}\n{source.kernel}"
    arguments = "p" * source.num_pointers + "i" * source.num_integers
    kernel = profiled("kernel", declare(compile_c(code), "kernel", arguments))
    space: dict[str, Any] = {"__name__": __name__, "torch": torch, "kernel": kernel}
    space["get_num_threads"] = torch.get_num_threads
    exec(source.launch, space)
    found: Callable[..., Any] = space["launch"]
    return found


def _type(node: fx.Node) -> str:
    return C.DTYPES[node.meta["val"].dtype]


def _stride_lines(writer: KernelWriter) -> Iterator[str]:
    """Lines of Python that find the inputs' strides; columns that lie apart are copied first."""
    for node, name in writer.inputs.items():
        value = node.meta["val"]
        if value.dim():
            names = ", ".join([*writer.strides(node), "last"])
            yield f"{names}, = {name}.stride()"
            if value.shape[-1] > 1:
                yield "if last != 1:"
                yield f"    {name} = {name}.contiguous()"
                yield f"    {names}, = {name}.stride()"


class C(Language):
    """C: a line of a kernel is for one column of one row."""

    DTYPES = {torch.float32: "float", torch.float64: "double", torch.bool: "bool"}
    has_last_stride = False

    def functions(self, dtype: torch.dtype) -> Mapping[str, str]:
        """Those of c_functions.h."""
        names = {name: f"{name}_{self.DTYPES[dtype]}" for name in FUNCTIONS}
        return {**names, "where": "where"}

    def number(self, value: float, dtype: torch.dtype) -> str:
        """Without a cast it would be a double, and all that it meets."""
        said = repr(value * 1)
        if isinstance(value, float) and not math.isfinite(value):
            said = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        return self.cast(said, dtype)

    def cast(self, value: str, dtype: torch.dtype) -> str:
        """A value as one of a dtype."""
        return f"(({self.DTYPES[dtype]})({value}))"

    def assign(self, name: str, value: str, dtype: torch.dtype) -> str:
        """The line that gives a value a name."""
        return f"const {self.DTYPES[dtype]} {name} = {value};"

    def load(self, tensor: str, terms: Sequence[str], is_one: bool) -> str:
        """What lies at an address."""
        return f"{tensor}[{' + '.join(terms) or '0'}]"

    def store(self, tensor: str, terms: Sequence[str], value: str) -> str:
        """The line that writes a value to an address."""
        return f"{tensor}[{' + '.join(terms)}] = {value};"
