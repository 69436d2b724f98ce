"""From nested JSON to a tree of operators, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from graphfold.datasets.plans.plan_node import PlanNode
from graphfold.errors import RecordError


def build_tree(
    root: Mapping[str, Any],
    inputs_of: Callable[[Mapping[str, Any]], Any],
    make: Callable[[Mapping[str, Any], list[PlanNode]], PlanNode],
) -> PlanNode:
    """The tree under a JSON object.

    Args:
        root: the object of the last operator.
        inputs_of: the list of the objects that an object's operator reads.
        make: an operator, from its object and the operators that it reads.

    Raises:
        RecordError: if an operator is no object, or its inputs are no list.
    """
    stack: list[tuple[Mapping[str, Any], Iterator[Any], list[PlanNode]]] = []

    def push(item: Any) -> None:
        inputs = inputs_of(item) if isinstance(item, Mapping) else None
        if not isinstance(inputs, list | tuple):
            what = "is no object" if inputs is None else "has inputs that are no list"
            raise RecordError(f"an operator of the plan {what}")
        stack.append((item, iter(inputs), []))

    push(root)
    while True:
        item, rest, done = stack[-1]
        for following in rest:
            push(following)
            break
        else:
            node = make(item, done)
            stack.pop()
            if not stack:
                return node
            stack[-1][2].append(node)
