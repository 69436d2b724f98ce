"""What was not batched: groups of one node, gradients per group, cells that run as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from graphfold.batching import Batch, Pass, Rounds
from graphfold.batching.engine.lazy_parameters import LazyParameter
from graphfold.bench.products import group_sizes


@dataclass(frozen=True)
class Launches:
    """How the nodes of one type are grouped in one pass; the mean over some batches."""

    pass_name: str
    type_name: str
    rows: float  # computed in a batch; fewer than nodes if equal ones are shared
    groups: float  # in a batch; each is a call of the cell, in every round
    single_groups: float  # of them, those of one row
    rounds: int

    @property
    def rows_per_group(self) -> float:
        """How many rows run together."""
        return self.rows / self.groups


def count_launches(batches: Sequence[Batch], passes: Sequence[Pass]) -> list[Launches]:
    """A line for each pass and each type that occurs in it."""
    found = []
    for index, item in enumerate(passes):
        for op_type, node_type in enumerate(batches[0].dag.schema.types):
            by_batch = [group_sizes(batch, op_type, index) for batch in batches]
            sizes = list(chain.from_iterable(by_batch))
            if not sizes:
                continue
            found.append(
                Launches(
                    pass_name=type(item).__name__,
                    type_name=node_type.name,
                    rows=sum(sizes) / len(batches),
                    groups=len(sizes) / len(batches),
                    single_groups=sizes.count(1) / len(batches),
                    rounds=item.rounds if isinstance(item, Rounds) else 1,
                )
            )
    return found


class GradientsPerGroup(TorchFunctionMode):
    """Finds the parameters whose gradient the fast engine takes group by group.

    While it is active, the use of a parameter by a cell that is run as it is, without a trace, is
    noted if it is neither a product nor an embedding. Such gradients cannot be taken once over all
    rows.

    Args:
        model: the module that the parameters belong to.

    Attributes:
        uses: (name of the parameter, name of the function that uses it), in order.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.uses: dict[tuple[str, str], None] = {}
        self._names = {id(p): name for name, p in model.named_parameters()}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        lazy = [value for value in args if isinstance(value, LazyParameter)]
        before = [len(value.aliases.plain_used) for value in lazy]
        result = func(*args, **(kwargs or {}))
        for value, count in zip(lazy, before, strict=True):
            if len(value.aliases.plain_used) > count:
                self.uses[self._name(value), func.__name__] = None
        return result

    def _name(self, lazy: LazyParameter) -> str:
        stands_for: dict[int, Tensor] = lazy.aliases.by_parameter
        return next(self._names[key] for key, alias in stands_for.items() if alias is lazy)


class Fallbacks(logging.Handler):
    """Collects what the engine says of cells that it runs as they are, slower than it could.

    Attributes:
        messages: one for each such cell, with the reason.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: dict[str, None] = {}
        self._logger = logging.getLogger("graphfold.batching")
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a message."""
        self.messages[record.getMessage()] = None

    def __enter__(self) -> Fallbacks:
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
