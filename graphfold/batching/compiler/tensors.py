"""The tensors that a cell reads and keeps, looked up in each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from graphfold.batching.compiler.values import Untraceable


@dataclass(frozen=True, eq=False)
class TensorOf:
    """A tensor that a cell reads.

    Args:
        path: the names of the modules on the way to it.
        name: of the parameter or buffer.
        held: the tensor itself if it is neither.
    """

    path: tuple[str, ...] = ()
    name: str = ""
    held: Tensor | None = None

    def find(self, cell: nn.Module) -> Tensor:
        """The tensor that is there now."""
        if self.held is not None:
            return self.held
        module: nn.Module = cell
        for name in self.path:
            module = module._modules[name]  # type: ignore[assignment]
        found = module._parameters.get(self.name)
        return module._buffers[self.name] if found is None else found  # type: ignore[return-value]


def find_tensors(cell: nn.Module, tensors: Sequence[Tensor]) -> list[TensorOf]:
    """The places where a cell keeps some tensors.

    Raises:
        Untraceable: if one requires a gradient and is no parameter of the cell.
    """
    names = {
        id(tensor): name
        for named in (cell.named_buffers, cell.named_parameters)
        for name, tensor in named(remove_duplicate=False)
    }
    found = []
    for tensor in tensors:
        *path, name = names.get(id(tensor), "").split(".")
        if name:
            found.append(TensorOf(tuple(path), name))
        elif tensor.requires_grad:
            raise Untraceable(
                f"it reads a tensor of shape {list(tensor.shape)} that requires a gradient and is "
                "neither an argument nor a registered parameter"
            )
        else:
            found.append(TensorOf(held=tensor))
    return found


@dataclass(frozen=True)
class RunningStatistics:
    """The running statistics of one `torch.nn.BatchNorm1d`.

    Args:
        mean: the name of the mean over a group.
        variance: the name of the mean of squares, from which the former has been taken.
        running: where the cell keeps a mean of means, and one of unbiased variances.
        momentum: how much the last counts.
    """

    mean: str
    variance: str
    running: Sequence[TensorOf]
    momentum: float

    def update(self, cell: nn.Module, mean: Tensor, variance: Tensor, num_rows: int) -> None:
        """Lets the last batch count; its mean and variance are of that many rows."""
        unbiased = variance * (num_rows / (num_rows - 1))
        for running, last in zip(self.running, (mean, unbiased), strict=True):
            running.find(cell).lerp_(last, self.momentum)
