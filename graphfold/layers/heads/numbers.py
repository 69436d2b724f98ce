"""Heads of numbers: a value alone, or with its deviation, an interval or its evidence.

Their base `NumberHead` has the scales, weights, missing values and bounds of targets.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.dag.schema import ABOVE, BELOW, bound_column
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head, mlp

#: How far a prediction may lie outside the range of the training targets, in ranges. For an unusual
#: input a network may predict any number: a logD of -7 where all targets are above -2.
MARGIN = 0.5


class NumberHead(Head):
    """Base of heads that learn standardised numbers and predict them in their units.

    The loss of a row is the weighted sum of the losses of its measured, standardised targets,
    divided by the number of targets; the loss of a step is a mean over measured values. A bounded
    target (`>5`, a value somewhere above 5) has no loss if the prediction is beyond the bound, and
    otherwise the loss of the bound itself; metrics and calibration leave it out.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: the meaning of a row, "graph", "node" or "output".
        targets: names of the targets; None for all targets of that level.
        scalers: target name -> (mean, standard deviation, least, largest value) of the training
            part, see `Scaler`; None to learn the targets unscaled.
        target_weights: target name -> weight of its values in the mean; 1 where it is not named.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Attributes:
        outputs: the number of raw outputs for each target; the first is the prediction.
        losses_by_name: the values of `model.head.loss` for this head.
        has_limits: whether the predictions of some target are limited.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets], or [num_rows, num_targets, outputs] for several

    Raises:
        ConfigError: if there are no such targets, one is not a float, or one has no scaler.
    """

    losses_may_be_negative = False
    outputs: ClassVar[int] = 1
    losses_by_name: ClassVar[tuple[str, ...]] = ()
    mean: Tensor  # [num_targets]
    std: Tensor  # [num_targets]
    least: Tensor  # [num_targets] the least prediction
    most: Tensor  # [num_targets] the largest prediction
    weight: Tensor  # [num_targets]

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, targets, target_weights)
        count = len(self.columns)
        self.layers = mlp(input_size, count * self.outputs, hidden_size, dropout)
        mean, std = self._scales(scalers)
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))
        self.register_buffer("weight", torch.tensor(self.target_weights), persistent=False)
        features = {column.name for column in schema.graph_features}
        bounds = [bound_column(name) for name in self.targets]
        self.bounds = [name if name in features and level == "graph" else None for name in bounds]
        least, most = self._limits(scalers)
        self.has_limits = any(map(math.isfinite, most))
        self.register_buffer("least", torch.tensor(least), persistent=False)
        self.register_buffer("most", torch.tensor(most), persistent=False)

    @property
    def monitor(self) -> str | None:
        """The loss, if it also judges a deviation or an interval."""
        return "loss" if self.outputs > 1 else super().monitor

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
        return not pairs and all(column.torch_dtype.is_floating_point for column in columns)

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        if column.dtype in ("float32", "float64") and not column.shape:
            return None
        return f"'{column.name}', which is not one float per row. Use ClassificationHead."

    @abstractmethod
    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        """[num_rows, num_targets] the loss of each standardised target."""

    def forward(self, rows: Tensor) -> Tensor:
        """The raw outputs, for standardised targets."""
        raw: Tensor = self.layers(rows)
        return raw if self.outputs == 1 else raw.view(len(raw), -1, self.outputs)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        values, bound = _split(targets)
        point = (raw if self.outputs == 1 else raw[..., 0]).detach()
        wanted = self.standardise(values.to(raw.dtype))
        counts = ~wanted.isnan()
        if targets.dim() == 3:  # some have bounds
            counts &= ~((bound == ABOVE) & (point >= wanted))
            counts &= ~((bound == BELOW) & (point <= wanted))
        # Values that do not count are set to the prediction itself: 0 times NaN would be NaN.
        wanted = torch.where(counts, wanted, point)
        losses = torch.where(counts, self.target_losses(raw, wanted), 0.0)
        return (losses * self.weight.to(losses.dtype)).mean(1)

    def standardise(self, values: Tensor) -> Tensor:
        """[num_rows, num_targets] standardised values, from values in the targets' units."""
        return (values - self.mean) / self.std

    def in_units(self, values: Tensor) -> Tensor:
        """[num_rows, num_targets] values in the targets' units, from standardised values."""
        return values * self.std + self.mean

    def decode(self, raw: Tensor) -> Tensor:
        """Returns `decode_unlimited`, limited to the range of the training targets and a margin.

        The margin is `MARGIN` times the width of the range. Targets with bounds (`>5`) have no
        limits. An interval is not cut off, but always contains the prediction.
        """
        prediction = self.decode_unlimited(raw)
        if len(self.parts) == 1:
            return torch.clamp(prediction, self.least, self.most)
        parts = dict(zip(self.parts, prediction.unbind(-1), strict=True))
        parts["pred"] = value = torch.clamp(parts["pred"], self.least, self.most)
        if "lower" in parts:
            parts["lower"] = torch.minimum(parts["lower"], value)
            parts["upper"] = torch.maximum(parts["upper"], value)
        return torch.stack(list(parts.values()), dim=-1)

    @abstractmethod
    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] or [..., num_parts] predictions in the targets' units."""

    @property
    def shown_parts(self) -> tuple[str, ...]:
        """All parts but the first, and "limit" if predictions are limited."""
        return (*self.parts[1:], *(["limit"] if self.has_limits else []))

    def predict(self, raw: Tensor) -> Predicted:
        """The result of `decode` with its parts; with limits, also "limit" and "unlimited".

        A prediction at a limit means only that the model computes a number beyond, for an input
        unlike the training part.
        """
        predicted = super().predict(raw)
        if not self.has_limits:
            return predicted
        unlimited, value = self.decode_unlimited(raw), predicted.value
        unlimited = unlimited if len(self.parts) == 1 else unlimited[..., 0]
        least, most = self.least.to(value), self.most.to(value)
        close = 1e-6 * (most - least).nan_to_num(0.0, 0.0)  # so close counts as at it
        side = (value >= most - close).to(value) - (value <= least + close).to(value)
        return predicted.with_parts(limit=side, unlimited=unlimited)

    def target_rows(self, dag: TypedDAG) -> Tensor:
        """[num_rows, num_targets]; with bounded targets [num_rows, num_targets, (value, bound)].

        The bound is `ABOVE` or `BELOW`, or 0 for an exact value.
        """
        values = super().target_rows(dag)
        if not any(self.bounds):
            return values
        exact = torch.zeros_like(values[:, 0])
        bounds = [exact if n is None else dag.graph_column(n).to(values) for n in self.bounds]
        return torch.stack([values, torch.stack(bounds, 1)], dim=2)

    def measured(self, targets: Tensor) -> Tensor:
        return ~_split(targets)[0].isnan()

    def compared(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        values, bound = _split(targets)
        return values, ~values.isnan() & (bound != ABOVE) & (bound != BELOW)

    def measured_values(self, targets: Tensor) -> list[dict[str, Any]]:
        values, bound = _split(targets)
        rows = super().measured_values(values)
        signs = {ABOVE: ">", BELOW: "<"}
        for row, bounds in zip(rows, bound.tolist(), strict=True):
            for name, sign in zip(self.targets, bounds, strict=True):
                if name in row and sign in signs:
                    row[name] = f"{signs[sign]}{row[name]:g}"
        return rows

    def _scales(
        self, scalers: Mapping[str, tuple[float, ...]] | None
    ) -> tuple[list[float], list[float]]:
        if scalers is None:
            return [0.0] * len(self.targets), [1.0] * len(self.targets)
        absent = ", ".join(name for name in self.targets if name not in scalers)
        if absent:
            raise ConfigError(
                f"there is no scaler for the target {absent}. Fit one on the training part."
            )
        pairs = [scalers[name][:2] for name in self.targets]
        # A target that never varies has the scale 1.
        return [float(mean) for mean, _ in pairs], [float(std) or 1.0 for _, std in pairs]

    def _limits(
        self, scalers: Mapping[str, tuple[float, ...]] | None
    ) -> tuple[list[float], list[float]]:
        """The least and the largest prediction of each target."""
        least, most = [-math.inf] * len(self.targets), [math.inf] * len(self.targets)
        for place, (name, bound) in enumerate(zip(self.targets, self.bounds, strict=True)):
            low, high = (scalers or {}).get(name, ())[2:4] or (0.0, 0.0)
            if bound is None and low < high:
                margin = MARGIN * (high - low)
                least[place], most[place] = low - margin, high + margin
        return least, most


def _split(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Values and bounds, [num_rows, num_targets] each."""
    if targets.dim() == 3:
        return targets[..., 0], targets[..., 1]
    return targets, torch.zeros_like(targets)


class RegressionHead(NumberHead):
    """Predicts numbers in their units; learns them standardised.

    The loss of a standardised target is the squared error, the absolute error, or the loss of Huber
    (1964), https://doi.org/10.1214/aoms/1177703732: half the square of an error up to `delta`, and
    linear beyond.

    The arguments are those of `NumberHead`, and:

    Args:
        loss: "mse", "mae" or "huber".
        delta: the error where Huber's loss becomes linear, in standard deviations of the target.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] standardised predictions

    Raises:
        ConfigError: as `NumberHead`, and if there is no such loss.
    """

    losses_by_name = ("mse", "mae", "huber")

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        loss: str = "mse",
        delta: float = 1.0,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )
        if loss not in self.losses_by_name:
            raise ConfigError(
                f"there is no loss '{loss}' here.{did_you_mean(loss, self.losses_by_name)} Use one "
                f"of {', '.join(self.losses_by_name)}."
            )
        if not delta > 0:
            raise ConfigError(f"delta={delta} is not positive. Give Huber's loss a width.")
        self.loss = loss
        self.delta = delta

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        if self.loss == "mse":
            return (raw - wanted).square()
        if self.loss == "mae":
            return (raw - wanted).abs()
        return functional.huber_loss(raw, wanted, reduction="none", delta=self.delta)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] in the targets' units."""
        return self.in_units(raw)


#: The least variance, in squares of the target's deviation: that of torch.nn.GaussianNLLLoss.
LEAST_VARIANCE = 1e-6


class MeanVarianceHead(NumberHead):
    """Predicts the mean and the standard deviation of a normal distribution of numbers.

    The loss of a standardised target y is equation 2 of Nix and Weigend (1994),
    https://doi.org/10.1109/ICNN.1994.374138, its negative log likelihood without the constant:

        (log σ² + (y - μ)² / σ²) / 2        σ² = softplus(a) + 1e-6

    The arguments are those of `NumberHead`.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 2] μ and a
    """

    losses_may_be_negative = True
    outputs = 2
    losses_by_name = ("mean_variance",)
    parts = ("pred", "std")

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        variance = _variance(raw)
        return 0.5 * (variance.log() + (wanted - raw[..., 0]).square() / variance)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 2] mean and standard deviation in the targets' units."""
        return torch.stack([self.in_units(raw[..., 0]), _variance(raw).sqrt() * self.std], dim=2)


def _variance(raw: Tensor) -> Tensor:
    return functional.softplus(raw[..., 1]) + LEAST_VARIANCE


class QuantileHead(NumberHead):
    """Predicts the median and a lower and an upper quantile of numbers.

    The loss of a target is the mean of the three pinball losses of Koenker and Bassett (1978),
    https://doi.org/10.2307/1913643, of its standardised value y,

        max(q (y - ŷ_q), (q - 1) (y - ŷ_q))        q = (1 - interval) / 2, 1/2, (1 + interval) / 2

    The distances from the median to the outer quantiles are softplus of two outputs, so that
    quantiles never cross.

    The arguments are those of `NumberHead`, and:

    Args:
        interval: the share of the values between the outer quantiles, such as 0.9.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 3] standardised median, lower and upper quantile

    Raises:
        ConfigError: as `NumberHead`, and if `interval` is no share.
    """

    outputs = 3
    losses_by_name = ("quantile",)
    parts = ("pred", "lower", "upper")
    quantiles: Tensor  # [3]

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        interval: float = 0.9,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )
        if not 0 < interval < 1:
            raise ConfigError(f"interval={interval} is no share. Use a number between 0 and 1.")
        quantiles = torch.tensor([0.5, (1 - interval) / 2, (1 + interval) / 2])
        self.register_buffer("quantiles", quantiles, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Median, lower and upper quantile, standardised."""
        middle, below, above = super().forward(rows).unbind(2)
        lower, upper = middle - functional.softplus(below), middle + functional.softplus(above)
        return torch.stack([middle, lower, upper], dim=2)

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        error = wanted.unsqueeze(2) - raw
        quantiles = self.quantiles.to(raw.dtype)
        return torch.maximum(quantiles * error, (quantiles - 1) * error).mean(2)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 3] median, lower and upper quantile in the targets' units."""
        return torch.stack([self.in_units(part) for part in raw.unbind(2)], dim=2)


#: Keeps ν and β positive and α above one where softplus rounds to zero.
_LEAST = 1e-6


class EvidentialHead(NumberHead):
    """Predicts a normal-inverse-gamma distribution over the mean and variance of numbers.

    Deep evidential regression, Amini et al. (2020), https://arxiv.org/abs/1910.02600. The outputs
    of a target are γ, ν > 0, α > 1 and β > 0; with Ω = 2 β (1 + ν), the loss of a standardised
    target y is (equations 8 to 10)

        log(π / ν) / 2 - α log Ω + (α + 1/2) log((y - γ)² ν + Ω) + log(Γ(α) / Γ(α + 1/2))
        + λ |y - γ| (2 ν + α)

    The first line is the negative log likelihood of Student's t distribution that the evidence
    gives y; its standard deviation, √(β (1 + 1/ν) / (α - 1)), which is the spread of the values and
    the uncertainty of the mean together, is the one that is predicted.

    The arguments are those of `NumberHead`, and:

    Args:
        evidence_penalty: λ, the weight of the penalty on evidence for wrong predictions.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 4] γ, ν, α and β

    Raises:
        ConfigError: as `NumberHead`, and if the penalty is negative.
    """

    losses_may_be_negative = True
    outputs = 4
    losses_by_name = ("evidential",)
    parts = ("pred", "std")

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        evidence_penalty: float = 0.2,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )
        if not evidence_penalty >= 0:
            raise ConfigError(f"evidence_penalty={evidence_penalty} is negative. Use 0 or more.")
        self.evidence_penalty = evidence_penalty

    def forward(self, rows: Tensor) -> Tensor:
        """γ, ν, α and β of the standardised targets."""
        gamma, *others = super().forward(rows).unbind(2)
        nu, alpha, beta = (functional.softplus(other) + _LEAST for other in others)
        return torch.stack([gamma, nu, alpha + 1, beta], dim=2)

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        gamma, nu, alpha, beta = raw.unbind(2)
        omega = 2 * beta * (1 + nu)
        error = wanted - gamma
        likelihood = (
            0.5 * (math.pi / nu).log()
            - alpha * omega.log()
            + (alpha + 0.5) * (error.square() * nu + omega).log()
            + torch.lgamma(alpha)
            - torch.lgamma(alpha + 0.5)
        )
        return likelihood + self.evidence_penalty * error.abs() * (2 * nu + alpha)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 2] prediction and standard deviation in the targets' units."""
        gamma, nu, alpha, beta = raw.unbind(2)
        variance = beta * (1 + 1 / nu) / (alpha - 1).clamp(min=_LEAST)
        return torch.stack([self.in_units(gamma), variance.sqrt() * self.std], dim=2)
