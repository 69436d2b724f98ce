"""Stages: the parts of a run, one after another, and what of the model stands still in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import Rule, is_number, rule_faults

#: The keys of a stage in a config.
_STAGE = {
    "epochs": Rule(int, least=1, needed=True),
    "freeze": Rule(list[str], optional=True),
    "lr": Rule(float, least=0, optional=True),
}


@dataclass(frozen=True)
class Stage:
    """Some epochs of a run, with an optimizer of their own.

    Args:
        epochs: how many.
        freeze: names of parts of the model whose weights stay as they are.
        lr: the learning rate at its beginning; None for the optimizer's.
    """

    epochs: int
    freeze: tuple[str, ...] = ()
    lr: float | None = None


def read_stages(config: Mapping[str, Any]) -> tuple[Stage, ...]:
    """The stages of a run; without `stages` one, over all epochs, in which `freeze` holds.

    Args:
        config: a whole config without faults, see `stage_faults`.
    """
    given = config.get("stages")
    if not given:
        freeze = tuple(config.get("freeze") or ())
        return (Stage(config["trainer"]["max_epochs"], freeze),)
    return tuple(
        Stage(item["epochs"], tuple(item.get("freeze") or ()), item.get("lr")) for item in given
    )


def count_epochs(stages: Any) -> int | None:
    """The epochs of all stages as they stand in a config; None if they have a fault."""
    if not stages or any(stage_faults({"stages": stages})):
        return None
    return sum(int(item["epochs"]) for item in stages)


def stage_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """The faults of `stages` in a config."""
    stages = config.get("stages")
    if stages is None:
        return
    if not isinstance(stages, Sequence) or isinstance(stages, str) or not stages:
        yield f"stages is {stages!r}, but it must be a list such as [{{epochs: 5}}] or null."
        return
    if config.get("freeze"):
        yield "freeze and stages are both given. Write freeze in those stages where it holds."
    for number, item in enumerate(stages):
        place = f"stages[{number}]"
        if not isinstance(item, Mapping):
            yield f"{place} is {item!r}, but it must be a mapping such as {{epochs: 5}}."
            continue
        for key in item:
            if key not in _STAGE:
                hint = did_you_mean(str(key), _STAGE)
                yield f"{place} has no key '{key}'.{hint} It takes {', '.join(_STAGE)}."
        yield from rule_faults(_STAGE, item, place)


def factor_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """The faults of `lr_factors` in a config."""
    factors = config.get("lr_factors")
    if factors is None:
        return
    numbers = factors.values() if isinstance(factors, Mapping) else [-1]
    if not all(is_number(value) and value >= 0 for value in numbers):
        yield (
            f"lr_factors is {factors!r}, but it must be null or a mapping of parts of the model to "
            "numbers from 0 on, such as {encoder: 0.1}."
        )


def refuse_epochs(total: int, given: object) -> None:
    """Raises ConfigError if the user gave another number of epochs than the stages have."""
    if given != total:
        raise ConfigError(
            f"trainer.max_epochs is {given}, but the stages have {total} epochs together. Leave "
            "trainer.max_epochs out."
        )
