"""Whether a network whose cells run as programs is the same as one whose cells run themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from engine_cells import SCHEMA, SIZE, PairCell, chain, make_batch, make_x, random_dag
from torch import Tensor, nn

from graphfold.batching import Cell, Children, Network, Pass, Up
from graphfold.batching.engine.programs import programs
from graphfold.batching.engine.programs.program import Program
from graphfold.dag import TypedDAG

#: Batches of one node, of some types only, of all types, and of many nodes.
DAGS = (chain(0), chain(2), random_dag(2, 1), random_dag(6, 2))


def num_programs(cell: nn.Module) -> int:
    """How many programs the engine holds for a cell; one for each state that it ran in."""
    return sum(isinstance(known, Program) for known in programs._KNOWN.get(cell, {}).values())


def cell_of(network: Network, type_name: str = "word", index: int = 0) -> Cell:
    """The cell of a type in a pass."""
    return network.cells[index][type_name][0]


def run(
    network: Network,
    dag: TypedDAG,
    x: Mapping[str, Tensor],
    loss: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
) -> dict[str, Tensor]:
    """All fields, and the gradients of all that can have one: parameters, x and edges."""
    states = network(make_batch(dag, network), x)
    found = {name: states[name] for name in sorted(states)}
    wanted = {
        **dict(network.named_parameters()),
        **{f"x {name}": tensor for name, tensor in x.items()},
        **{f"edge {name}": t for name, t in dag.columns["inputs"].items()},
    }
    wanted = {name: tensor for name, tensor in wanted.items() if tensor.requires_grad}
    total = (loss or weighted_sum)(found)
    if not total.requires_grad:  # nothing that has a gradient was used
        return {**found, **{name: torch.zeros_like(t) for name, t in wanted.items()}}
    grads = torch.autograd.grad(total, list(wanted.values()), materialize_grads=True)
    return {**found, **dict(zip(wanted, grads, strict=True))}


def weighted_sum(states: Mapping[str, Tensor]) -> Tensor:
    """A scalar in which every element of every field counts differently."""
    weights = (torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view_as(t) for t in states.values())
    return torch.stack([(t * w).sum() for t, w in zip(states.values(), weights, strict=True)]).sum()


def with_engine(network: Network, engine: str = "fast") -> Network:
    """A copy that has no programs."""
    other = copy.deepcopy(network)
    other.engine, other.trace_after = engine, None
    return other


def assert_same(got: Mapping[str, Tensor], want: Mapping[str, Tensor], tolerance: float) -> None:
    """Every tensor of the one equals that of the other."""
    torch.testing.assert_close(
        dict(got), dict(want), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def check(
    network: Network,
    dags: Sequence[TypedDAG] = DAGS,
    make: Callable[[TypedDAG], dict[str, Tensor]] = make_x,
    loss: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
    times: int = 2,
) -> None:
    """Batches one after the other: exactly what the cells give, and close to the reference.

    The first batches are run by the cells, which are traced then, the later ones by programs.
    """
    for dag in dags * times:
        x = make(dag)
        got = run(network, dag, x, loss)
        assert_same(got, run(with_engine(network), dag, x, loss), 0)
        assert_same(got, run(with_engine(network, "reference"), dag, x, loss), 1e-9)


class Apply(Cell):
    """A cell of words that is a function of its module and x.

    Args:
        function: (cell, x) -> h, or all fields.
        modules: what it has, as attributes.
    """

    arity = 0

    def __init__(self, function: Callable[..., object], **modules: object) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "c": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        found = self.function(self, x)
        return found if isinstance(found, dict) else {"h": found, "c": self.linear(x)}


class SumCell(Cell):
    """A cell of any number of children, by default the tanh of a linear map of their sum.

    Args:
        function: (cell, x, children) -> h, or all fields.
        modules: what it has, as attributes.
    """

    def __init__(self, function: Callable[..., object] | None = None, **modules: object) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "c": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        c = self.linear(children.sum("c") + x)
        found = c.tanh() if self.function is None else self.function(self, x, children)
        return found if isinstance(found, dict) else {"h": found, "c": c}


class UpCell(PairCell):
    """A pair that reads x, as all that is read has to matter for a program."""

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        state = super().forward(x, children)
        return {**state, "c": state["c"] + x}


def traced(
    word: Callable[..., object] | None = None,
    phrase: Callable[..., object] | None = None,
    passes: Sequence[Pass] = (Up(),),
    **modules: object,
) -> Network:
    """A network in float64 whose cells are traced after their first batch.

    Args:
        word: the function of the cell of words.
        phrase: the function of the cell of phrases.
        passes: one pass.
        modules: what the cell whose function is given has.
    """
    cells = {
        "word": Apply(word or _word, **(modules if word else {})),
        "phrase": SumCell(phrase, **(modules if phrase else {})),
        "pair": UpCell(),
    }
    return Network(SCHEMA, list(passes), [cells], trace_after=1).double()


def _word(cell: Apply, x: Tensor) -> Tensor:
    return torch.tanh(cell.linear(x))
