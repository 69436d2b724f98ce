"""PredictedNodes: predictions that `Adapter.write_back` writes in the format of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PredictedNodes:
    """The predictions for the nodes of one record.

    Args:
        reason: the reason for their absence; empty if there are predictions.
        spans: of each node, the first and last-plus-one character of the record that it covers, or
            None.
        values: target -> the predicted value of each node.
    """

    reason: str = ""
    spans: Sequence[Sequence[int] | None] = ()
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
