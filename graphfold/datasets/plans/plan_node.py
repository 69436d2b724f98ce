"""PlanNode: an operator of a query plan, whichever database made the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphfold.datasets.files.json_documents import finite_number
from graphfold.errors import RecordError

#: What a database estimates of an operator before it runs. A plan has some of them.
#:
#: - `rows`: rows that the operator returns, each time that it runs.
#: - `loops`: how often it runs, for the inner side of nested loops.
#: - `width`: bytes of a row.
#: - `startup_cost`, `total_cost`: in the database's own units.
#: - `table_rows`: rows of the table that it reads.
#: - `selectivity`: the share of rows that its conditions keep.
#: - `conditions`: how many conditions it tests.
ESTIMATES = (
    "rows",
    "loops",
    "width",
    "startup_cost",
    "total_cost",
    "table_rows",
    "selectivity",
    "conditions",
)


@dataclass
class PlanNode:
    """An operator with what the database estimated of it; nothing that was measured.

    Args:
        operator: the kind of operator, such as "Hash Join".
        variant: how it does that, such as "Left"; empty if there is one way.
        estimates: some of `ESTIMATES`.
        inputs: the operators whose rows it reads, in order.
        text: what the plan says of it, for people.
    """

    operator: str
    variant: str = ""
    estimates: Mapping[str, float] = field(default_factory=dict)
    inputs: Sequence[PlanNode] = ()
    text: str = ""

    def postorder(self) -> Iterator[PlanNode]:
        """Every operator after its inputs; without recursion, for plans nested thousands deep."""
        stack = [(self, iter(self.inputs))]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                yield node
            else:
                stack.append((following, iter(following.inputs)))


def estimate(name: str, value: Any) -> float:
    """An estimate as a model reads it: the decimal logarithm, of 1 + value but for shares.

    Costs and cardinalities range over ten orders of magnitude, and their errors are ratios.

    Args:
        name: one of `ESTIMATES`.
        value: what the plan says; a number, or text of one.

    Raises:
        RecordError: if it is no number, not finite or negative.
    """
    try:
        number = finite_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        number = None
    if number is None or number < 0:
        raise RecordError(f"the estimate of {name} is {value!r}, which is no number of 0 or more")
    if name == "selectivity":
        return math.log10(max(number, 1e-9))
    return math.log10(1 + number)
