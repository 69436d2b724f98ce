"""Checks of compiled cells against eager cells and against one node at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.batching import Batch, Network, build_schedule
from graphfold.dag import TypedDAG


def states_and_gradients(
    network: Network, dag: TypedDAG, x: dict[str, Tensor], policy: str = "depth"
) -> dict[str, Tensor]:
    """All states, and the gradients of a sum in which every element counts differently."""
    batch = Batch(dag, build_schedule(dag, network.passes, policy))
    leaves = {name: value.detach().clone().requires_grad_() for name, value in x.items()}
    states = network(batch, leaves)
    outcome = {name: states[name] for name in sorted(states)}
    loss = sum((v * torch.linspace(-1, 2, v.numel()).view_as(v)).sum() for v in outcome.values())
    learned = {name: p for name, p in network.named_parameters() if p.requires_grad}
    named = {**learned, **{f"x {name}": x for name, x in leaves.items()}}
    if not torch.is_grad_enabled():
        return outcome
    tensors = list(named.values())
    grads = [None] * len(tensors)  # where there is no node at all
    if loss.requires_grad:
        grads = torch.autograd.grad(loss, tensors, allow_unused=True)
    zeros = (
        torch.zeros_like(tensor) if grad is None else grad
        for grad, tensor in zip(grads, named.values(), strict=True)
    )
    return outcome | {f"gradient of {name}": grad for name, grad in zip(named, zeros, strict=True)}


def assert_same_both_ways(
    network: Network,
    dag: TypedDAG,
    x: dict[str, Tensor],
    policy: str = "depth",
    reference: str = "eager",
    rtol: float = 1e-10,
) -> None:
    """Checks compiled and eager cells against another engine, with and without gradients."""
    before = network.run
    network.run = reference
    want = states_and_gradients(network, dag, x, policy)
    network.run = "auto"
    for run in ("compiled", "eager"):
        network.run = run
        assert_gives(want, network, dag, x, policy, rtol)
        with torch.no_grad():
            assert_gives(want, network, dag, x, policy, rtol)
    network.run = before


def assert_gives(
    want: dict[str, Tensor],
    network: Network,
    dag: TypedDAG,
    x: dict[str, Tensor],
    policy: str = "depth",
    rtol: float = 1e-10,
) -> None:
    """Checks the states of a network, and its gradients where they are on."""
    actual = states_and_gradients(network, dag, x, policy)
    wanted = {name: want[name] for name in actual}
    torch.testing.assert_close(actual, wanted, rtol=rtol, atol=rtol)
