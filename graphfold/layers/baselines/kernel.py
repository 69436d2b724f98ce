"""KernelModel: ridge regression on how alike two graphs are in their counts and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from graphfold.dag import Schema
from graphfold.errors import ConfigError
from graphfold.layers.baselines.fitted_model import TargetModel
from graphfold.layers.baselines.trees import take_sizes
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.regression import RegressionHead

#: Ridges that are tried, relative to the likeness 1 of a graph with itself.
RIDGES = (0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class KernelModel(TargetModel):
    """Kernel ridge regression, the mean of a Gaussian process; one per target, of numbers only.

    The likeness of two graphs is the mean over their inputs (`Schema.graph_inputs`): of counts

        k(a, b) = Σ_i min(a_i, b_i) / Σ_i max(a_i, b_i)

    (Ralaivola et al. 2005, https://doi.org/10.1016/j.neunet.2005.07.009, equation 10), and of all
    d floats together, which are scaled, exp(-|a - b|² / d). The ridge is the one of `RIDGES` with
    the least squared error of leaving out one record at a time, which has a closed form (Rasmussen
    and Williams 2006, equation 5.12). A record of weight 2 counts like two, of which one is left
    out at a time. Memory and time grow with the square and the cube of the number of training
    records.

    Args:
        schema: the schema of the graphs.
        head: makes the `Head`, a `RegressionHead`.
        scalers: target name -> (mean, standard deviation) of the training part.
        most_records: more training records than that are refused.

    Raises:
        ConfigError: as `FittedModel`, and if the head predicts classes; from `fit`, if there are
            too many records.
    """

    def __init__(
        self,
        schema: Schema,
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
        most_records: int = 20_000,
    ) -> None:
        super().__init__(schema, head, scalers)
        if not isinstance(self.head, RegressionHead):
            raise ConfigError(
                f"KernelModel predicts numbers, but the targets are classes of "
                f"{type(self.head).__name__}. Use model=forest or model=boosting."
            )
        self.most_records = most_records

    def empty(self) -> KernelMachine:
        """Zeros."""
        return KernelMachine(
            [(span, not c.torch_dtype.is_floating_point) for c, span in self.inputs.spans()]
        )

    def fit_target(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> KernelMachine:
        """The weights of the training records, for the best ridge."""
        if len(x) > self.most_records:
            raise ConfigError(
                f"KernelModel would compare {len(x):,} training records with each other, and "
                f"{self.most_records:,} are the most. Use model=forest, or raise "
                "model.most_records if the memory allows."
            )
        machine = self.empty()
        machine.fit(x, y, weights)
        return machine


class KernelMachine(nn.Module):
    """Training records with a weight each; loading a state takes its number of records.

    Args:
        inputs: for each input the slice of its columns, and whether it holds counts.

    Shape:
        x: [num_rows, size]
        returns: [num_rows, 1]
    """

    counts: Tensor  # [num_records, number of counts] uint8
    floats: Tensor  # [num_records, number of floats]
    weight: Tensor  # [num_records]
    mean: Tensor  # [] of the targets

    def __init__(self, inputs: Sequence[tuple[slice, bool]]) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        counts, floats = self.split(torch.zeros(0, max(span.stop for span, _ in inputs)))
        ends = [0, *accumulate(part.shape[1] for part in counts)]
        self.slices = [slice(first, last) for first, last in pairwise(ends)]
        self.register_buffer("counts", torch.cat([floats[:, :0], *counts], dim=1).byte())
        self.register_buffer("floats", floats)
        self.register_buffer("weight", torch.zeros(0))
        self.register_buffer("mean", torch.zeros(()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.weight)} records)"

    def forward(self, x: Tensor) -> Tensor:
        """The weighted sum of likenesses to the training records."""
        found = self.mean + self.likeness(x).double() @ self.weight.double()
        return found.to(x.dtype).view(-1, 1)

    def fit(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Finds the weights of the records.

        With W the diagonal matrix of the weights w and K the likenesses, they are
        (K + ridge W⁻¹)⁻¹ y = W^½ (W^½ K W^½ + ridge)⁻¹ W^½ y, those of the repeated records
        together.

        Args:
            x: [num_records, size] the inputs.
            y: [num_records] the targets.
            weights: [num_records] how often each record counts, above 0; None for once.
        """
        counts, self.floats = self.split(x)
        self.counts = torch.cat([self.floats[:, :0], *counts], dim=1).byte()
        y = y.double()
        times = torch.ones_like(y) if weights is None else weights.double()
        root = times.sqrt()
        mean = (y * times).sum() / times.sum()
        values, vectors = torch.linalg.eigh(self.likeness(x).double() * root * root[:, None])
        rotated = vectors.T @ ((y - mean) * root)
        copies = times.clamp(min=1)  # of which one is left out; of half a record, the half
        errors = []
        for ridge in RIDGES:
            inverse = 1 / (values.clamp(min=0) + ridge)
            solved = vectors @ (inverse * rotated) / root
            diagonal = vectors.square() @ inverse / copies + (1 - 1 / copies) / ridge
            errors.append(float(((solved / diagonal).square() * times).sum() / times.sum()))
        best = RIDGES[errors.index(min(errors))]
        weight = root * (vectors @ (rotated / (values.clamp(min=0) + best)))
        self.mean, self.weight = mean.float(), weight.float()

    def likeness(self, x: Tensor) -> Tensor:
        """[num_rows, num_records] between 0 and 1."""
        counts, floats = self.split(x)
        known = self.counts.to(x.dtype)
        pairs = zip(counts, self.slices, strict=True)
        kernels = [min_max(rows, known[:, columns]) for rows, columns in pairs]
        if floats.shape[1]:
            distance = torch.cdist(floats, self.floats.to(x.dtype))
            kernels.append(torch.exp(-distance.square() / floats.shape[1]))
        return torch.stack(kernels).mean(0)

    def split(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Each input of counts, and all floats in one."""
        counts = [x[:, span] for span, is_count in self.inputs if is_count]
        floats = [x[:, span] for span, is_count in self.inputs if not is_count]
        return counts, torch.cat([x[:, :0], *floats], dim=1)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes the number of records of what is loaded."""
        take_sizes(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def min_max(a: Tensor, b: Tensor) -> Tensor:
    """[len(a), len(b)] Σ min / Σ max of two sets of counts; 1 where both have none.

    A minimum of counts is the number of thresholds 1, 2, ... that both reach, so it is a sum of
    products of ones and zeros.
    """
    least = a.new_zeros(len(a), len(b))
    threshold = 1
    while True:
        both = (a >= threshold).any(0) & (b >= threshold).any(0)
        if not both.any():
            break
        least += (a[:, both] >= threshold).to(a.dtype) @ (b[:, both] >= threshold).to(a.dtype).T
        threshold += 1
    most = a.sum(1)[:, None] + b.sum(1)[None] - least
    return torch.where(most > 0, least / most.clamp(min=1), 1.0)
