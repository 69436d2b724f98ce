"""Factories: parts of a model that are built once the schema of the data is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

from torch import nn

from graphfold.errors import ConfigError, GraphfoldError, did_you_mean, shortened

Part = TypeVar("Part")


def build(factory: Callable[..., Part], **offers: Any) -> Part:
    """Calls `factory` with the offered arguments that it takes and does not have yet.

    Args:
        factory: a class, or a partial of it with its options; a module is returned unchanged.
        **offers: arguments by name.

    Raises:
        ConfigError: if it needs other arguments, or fails with these.
    """
    if isinstance(factory, nn.Module):
        return cast(Part, factory)
    parameters = _parameters(factory)
    options = factory.keywords if isinstance(factory, partial) else {}
    taken = {name: value for name, value in offers.items() if name in parameters.keys() - options}
    absent = [
        f"'{name}'"
        for name, parameter in parameters.items()
        if parameter.default is Parameter.empty
        and parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        and name not in taken
    ]
    if absent:
        raise ConfigError(f"{name_of(factory)} needs {', '.join(absent)}. Set it in the config.")
    try:
        return factory(**taken)
    except GraphfoldError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{name_of(factory)} cannot be made: {error}. Correct its options."
        ) from error


def require_kind(part: object, kind: type, place: str) -> None:
    """Raises ConfigError if a part of a model is of the wrong class."""
    if not isinstance(part, kind):
        raise ConfigError(f"{place} is a {type(part).__name__}. Give a {kind.__name__}.")


def _parameters(factory: Any) -> Mapping[str, Parameter]:
    """The parameters of a factory, with the defaults that a partial gives.

    Raises:
        ConfigError: if it is no factory, or a partial has an unknown argument.
    """
    if not callable(factory):
        raise ConfigError(
            f"a part of the model is {shortened(repr(factory))}, but it must be a class, or a "
            "partial of one. In a config that is a mapping with _target_ and _partial_: true."
        )
    if isinstance(factory, partial):
        names = signature(factory.func).parameters
        takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in names.values())
        wrong = [name for name in factory.keywords if name not in names and not takes_any]
        if wrong:
            raise ConfigError(
                f"{name_of(factory)} takes no '{wrong[0]}'.{did_you_mean(wrong[0], names)} It "
                f"takes: {', '.join(names)}."
            )
    return signature(factory).parameters


def argument(factory: Any, name: str) -> Any:
    """The value of an argument of `factory`, or of an attribute of a module."""
    if isinstance(factory, nn.Module):
        return getattr(factory, name, None)
    parameter = _parameters(factory).get(name)
    return None if parameter is None else parameter.default


def name_of(factory: Any) -> str:
    """The name of the class or function behind a factory."""
    inner = factory.func if isinstance(factory, partial) else factory
    return getattr(inner, "__name__", type(inner).__name__)


class Faults:
    """Collects faults, so that all of them are reported together."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Notes an error within the `with` statement and continues after it."""
        try:
            yield
        except GraphfoldError as error:
            self.messages.append(error.message)

    def report(self, place: str) -> None:
        """Raises ConfigError that lists all faults; nothing without faults."""
        if len(self.messages) == 1:
            raise ConfigError(self.messages[0])
        if self.messages:
            lines = "\n".join(f"  - {message}" for message in self.messages)
            raise ConfigError(f"{place} has {len(self.messages)} faults:\n{lines}")
