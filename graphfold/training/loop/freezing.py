"""StagedModel: which weights of a model learn in each stage of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from torch import nn

from graphfold.errors import ConfigError
from graphfold.training.config.stages import Stage
from graphfold.training.loop.part_names import is_part, refuse_unknown_parts


class StagedModel:
    """A model whose parts are frozen as the current stage says.

    A frozen part is not updated, and its modules are in evaluation mode: no dropout, and the
    statistics of normalisation stay.

    Args:
        model: the model; what does not require gradients at first never does.
        stages: the stages, in order.

    Attributes:
        number: the position of the current stage; that of the first epoch at first.

    Raises:
        ConfigError: if a name matches no weight, or a stage freezes all of them.
    """

    def __init__(self, model: nn.Module, stages: Sequence[Stage]) -> None:
        self.model = model
        self.stages = tuple(stages)
        self._learnable = {name for name, p in model.named_parameters() if p.requires_grad}
        for stage in self.stages:
            self._check(stage)
        self.number = 0
        self._freeze()

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self.stages[self.number]

    @property
    def num_epochs(self) -> int:
        """The epochs of all stages."""
        return sum(stage.epochs for stage in self.stages)

    def enter(self, epoch: int) -> bool:
        """Goes to the stage of an epoch, counted from 0; True if it is another one.

        Epochs beyond the last stage belong to it: a run may be given more of them.
        """
        ends = accumulate(stage.epochs for stage in self.stages[:-1])
        number = sum(epoch >= end for end in ends)
        is_other, self.number = number != self.number, number
        self._freeze()
        return is_other

    def hold(self) -> None:
        """Puts frozen modules into evaluation mode, and all others into training mode."""
        self.model.train()
        for name, module in self.model.named_modules():
            if is_part(name, self.stage.freeze):
                module.eval()

    def __str__(self) -> str:
        """The current stage in a line; nothing of a run that has only one and freezes nothing."""
        if len(self.stages) == 1 and not self.stage.freeze:
            return ""
        frozen = ", ".join(self.stage.freeze)
        lr = "" if self.stage.lr is None else f", lr {self.stage.lr:g}"
        place = f"stage {self.number + 1}/{len(self.stages)}: {self.stage.epochs} epochs"
        return f"{place}{lr}{f', {frozen} frozen' if frozen else ''}"

    def _freeze(self) -> None:
        for name, parameter in self.model.named_parameters():
            is_frozen = is_part(name, self.stage.freeze)
            parameter.requires_grad_(name in self._learnable and not is_frozen)

    def _check(self, stage: Stage) -> None:
        weights = [name for name, _ in self.model.named_parameters()]
        refuse_unknown_parts("freeze", stage.freeze, weights)
        if stage.freeze and all(is_part(name, stage.freeze) for name in self._learnable):
            raise ConfigError(
                f"freeze=[{', '.join(stage.freeze)}] leaves no weight to train. Freeze fewer parts."
            )
