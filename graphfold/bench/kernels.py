"""The kernels of reductions over children, each on the same rows.

Random molecules: atoms with one to four neighbours, whose rows are summed or compared. `graphfold`
is the kernel "native", made of torch's operations, `scatter` torch-scatter. `train` is forward
and backward.

    graphfold bench kernels --batch-size 1,64,512 --hidden-size 300
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from graphfold.batching.kernels.segment import Reduction
from graphfold.batching.kernels.segment_kernels import KERNELS, get_kernel
from graphfold.bench.measure import Row, Work, measure
from graphfold.dag.typed_dag import pointers
from graphfold.errors import ConfigError

BATCH_SIZES = (1, 64, 512)
HIDDEN_SIZES = (300,)
ATOMS_PER_MOLECULE = 27


def rows(
    batch_sizes: list[int] | None, hidden_sizes: list[int] | None, threads: int
) -> Iterator[Row]:
    """Measures every kernel that is installed; the field `reduction` says what it computes."""
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        for batch_size in batch_sizes or BATCH_SIZES:
            for reduction in ("sum", "max"):
                problem = _Problem(batch_size, hidden_size, reduction)
                for phase, works in (("inference", problem.forward), ("train", problem.both)):
                    extra = {"reduction": reduction, "rows": len(problem.parent)}
                    setting = Row(
                        "kernels", "", "", batch_size, hidden_size, phase, threads, extra=extra
                    )
                    found = {name: Work(works(kernel), batch_size) for name, kernel in problem.all}
                    yield from measure(setting, found)


class _Problem:
    """Rows of neighbours, sorted by the atom that reads them."""

    def __init__(self, num_molecules: int, width: int, reduction: str) -> None:
        generator = torch.Generator().manual_seed(0)
        num_atoms = ATOMS_PER_MOLECULE * num_molecules
        degree = torch.randint(1, 5, (num_atoms,), generator=generator)
        self.ptr = pointers(degree)
        self.parent = torch.repeat_interleave(torch.arange(num_atoms), degree)
        self.values = torch.randn(len(self.parent), width, generator=generator)
        self.grad = torch.randn(num_atoms, width, generator=generator)
        self.all = list(_installed(reduction))

    def forward(self, kernel: Reduction) -> Callable[[], Tensor]:
        """One reduction."""
        return lambda: kernel(self.values, self.ptr, self.parent)

    def both(self, kernel: Reduction) -> Callable[[], object]:
        """One reduction and its gradient."""
        leaf = self.values.clone().requires_grad_()
        return lambda: torch.autograd.grad(kernel(leaf, self.ptr, self.parent), leaf, self.grad)


def _installed(reduction: str) -> Iterator[tuple[str, Reduction]]:
    for name in KERNELS:
        try:
            kernel = get_kernel(name)
        except ConfigError:  # its package is absent
            continue
        function = kernel.sum if reduction == "sum" else kernel.max
        yield ("graphfold" if name == "native" else name), function
