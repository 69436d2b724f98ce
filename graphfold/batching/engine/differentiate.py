"""Gradients of one group's small graph, without the price of asking for them politely."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

#: What `torch.autograd.grad` calls in the end.
_ENGINE = getattr(torch.autograd.Variable, "_execution_engine", None)
#: What autograd's own functions ask, where there is more than one backward.
_KEEPS_GRAPH = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)


def gradients(
    outputs: Sequence[Tensor],
    output_grads: Sequence[Tensor],
    inputs: Sequence[Tensor | GradientEdge],
) -> Sequence[Tensor | None]:
    """The gradient of every input, None for one that the outputs do not depend on.

    `torch.autograd.grad` first compares shapes in Python, which takes longer than the gradients of
    a small group. Here the shapes fit by construction: so its engine is called directly, where this
    torch has it under the name that it has had for years.
    """
    if _ENGINE is None:
        return torch.autograd.grad(
            outputs,
            inputs,  # type: ignore[arg-type]
            output_grads,
            retain_graph=True,
            allow_unused=True,
        )
    found: Sequence[Tensor | None] = _ENGINE.run_backward(
        tuple(outputs),
        tuple(output_grads),
        True,  # retain_graph: the tapes are freed with the graph outside
        False,  # create_graph
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return found


def keeps_graph() -> bool:
    """Whether the backward that runs was asked to keep its graph; yes, if this torch can't tell."""
    return _KEEPS_GRAPH is None or bool(_KEEPS_GRAPH())
