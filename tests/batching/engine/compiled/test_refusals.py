"""Cells that are not compiled: a warning names each once, with the reason; numbers are equal."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import (
    SCHEMA,
    SIZE,
    PairCell,
    PhraseCell,
    WordCell,
    make_batch,
    make_network,
    make_x,
    random_dag,
    tree_cells,
)
from strategies import bond_schema, chain
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Batch, Children, Network, Rounds, Up, build_schedule
from graphfold.batching.engine.compiled import choice
from graphfold.dag import GraphBuilder
from graphfold.errors import EngineError
from graphfold.layers import GCNCell

Forward = Callable[[WordCell, Tensor], Tensor]


class Clipped(torch.autograd.Function):
    """Lets large gradients through in part, which a try with small ones does not show."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-20, 20)


class Odd(WordCell):
    """Does something to `h`."""

    def __init__(self, change: Forward) -> None:
        super().__init__()
        self.change = change
        self.register_buffer("codes", torch.tensor([0, 2, 1]))
        self.norm = nn.BatchNorm1d(SIZE)

    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": self.change(self, state["h"])}


def branch(cell: Odd, h: Tensor) -> Tensor:
    return h if h.sum() > 1e9 else 2 * h


def of_size(cell: Odd, h: Tensor) -> Tensor:
    return h if len(h) > 1_000_010 else 2 * h


def by_number(cell: Odd, h: Tensor) -> Tensor:
    return h * float(cell.linear.weight.detach().sum())


def in_half(cell: Odd, h: Tensor) -> Tensor:
    return h.bfloat16().to(h.dtype)


def with_integers(cell: Odd, h: Tensor) -> Tensor:
    return h * (h * 4).long()


def in_four(cell: Odd, h: Tensor) -> Tensor:
    one, other = h[:, :2, None, None, None], h[:, None, :2, None, None]
    more, last = h[:, None, None, :2, None], h[:, None, None, None, :2]
    return h * ((one * more) * (other * last)).sum((1, 2, 3, 4))[:, None]


def hooked(cell: Odd, h: Tensor) -> Tensor:
    h = h * 2
    if h.requires_grad:
        h.register_hook(lambda grad: grad.clamp(-20, 20))
    return h


def seen_change(cell: Odd, h: Tensor) -> Tensor:
    h = h * 2
    first = h[:, :2]
    h.add_(1)
    return h * first.sum(1, keepdim=True)


def counted(cell: Odd, h: Tensor) -> Tensor:
    cell.calls = getattr(cell, "calls", 0) + 1
    return h * 2


REFUSED: dict[str, tuple[Forward, str]] = {
    "branch on values": (branch, "DataDependentOutputException|data-dependent"),
    "a number of a tensor": (by_number, "DataDependentOutputException|data-dependent"),
    "group size": (of_size, "its code depends on how many nodes are in a group"),
    "other precision": (in_half, "it converts to torch.bfloat16"),
    "integers": (with_integers, "it converts to torch.int64"),
    "a change of what is seen elsewhere": (seen_change, "of which there are views"),
    "across nodes": (lambda cell, h: h - 0 * h.mean(0), "across the nodes of a group"),
    "unknown": (lambda cell, h: torch.cumsum(h, 1), "cumsum.*native code does not have"),
    "running statistics": (lambda cell, h: cell.norm.eval()(h), "does not have|changes"),
    "state that changes": (counted, "changes what it reads"),
    "a function of its own": (lambda cell, h: Clipped.apply(h), "Clipped, a function with a deriv"),
    "a hook": (hooked, "it registers hooks"),
}


def both(network: Network, reason: str) -> None:
    """Warned of once, right, and refused where compiling is demanded."""
    dag = random_dag(4, 0)
    x = make_x(dag)
    network.run = "eager"
    want = states_and_gradients(network, dag, x)
    network.run = "auto"
    with pytest.warns(UserWarning, match=f"is not compiled: .*({reason})") as said:
        actual = states_and_gradients(network, dag, x)
    assert len(said) == 1
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
    refused = {name for name, how in network.execution.items() if how.startswith("eager")}
    assert refused == ({"word"} if isinstance(network.cells[0]["word"][0], Odd) else {"phrase"})
    assert "is not compiled" not in repr(network)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        states_and_gradients(network, dag, x)  # said once
        network.run = "eager"
        actual = states_and_gradients(network, dag, x)
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
    assert set(network.execution.values()) == {"eager (run=eager)"}
    network.run = "compiled"
    with pytest.raises(EngineError, match=f"is not compiled: .*({reason})"):
        network(make_batch(dag, network), x)


@pytest.mark.parametrize("name", REFUSED)
def test_it_runs_as_it_is(name):
    change, reason = REFUSED[name]
    both(make_network(cells=[{**tree_cells(), "word": Odd(change)}]), reason)


def test_dropout():
    cell = Odd(lambda cell, h: F.dropout(h, 0.5, cell.training))
    dag, network = (
        random_dag(4, 0),
        make_network(cells=[{**tree_cells(), "word": cell}], run="compiled"),
    )
    x = make_x(dag)
    with pytest.raises(EngineError, match="Odd is not compiled: it draws random numbers"):
        network(make_batch(dag, network), x)
    network.eval()
    actual = states_and_gradients(network, dag, x)
    network.run = "eager"
    torch.testing.assert_close(actual, states_and_gradients(network, dag, x))


class Writing(PhraseCell):
    """Changes in place what it reads of its children."""

    def forward(self, x: dict[str, Tensor], children: Children) -> dict[str, Tensor]:
        state = super().forward(x, children)
        children.rows("h").zero_()
        return state


def test_writing_into_children():
    both(make_network(cells=[{**tree_cells(), "phrase": Writing()}]), "changes a tensor in place")


class Reading(PhraseCell):
    def forward(self, x: dict[str, Tensor], children: Children) -> dict[str, Tensor]:
        c = children.rows("c").new_zeros(children.group_size, SIZE)
        c = c.index_add(0, children.parent, children.rows("c"))
        return {"h": torch.tanh(c), "c": c}


def test_where_edges_lead():
    both(make_network(cells=[{**tree_cells(), "phrase": Reading()}]), "children.parent|does not")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    dag = random_dag(2, 0)
    cells = {"word": WordCell()}
    network = Network(SCHEMA, (Up(), cells)).to(dtype)
    x = {"word": make_x(dag)["word"].detach().to(dtype)}
    with pytest.warns(UserWarning, match="native code computes float32 and float64, not"):
        actual = network(make_batch(dag, network), x)["h"]
    assert actual.dtype == dtype
    assert network.execution == {"word": "compiled (torch)"}
    network.run = "eager"
    want = network(make_batch(dag, network), x)["h"]
    torch.testing.assert_close(actual, want, rtol=1e-2, atol=1e-2)


def test_more_than_three_dimensions():
    network = make_network(cells=[{**tree_cells(), "word": Odd(in_four)}], run="compiled")
    dag = random_dag(4, 0)
    with pytest.warns(UserWarning, match="Odd does not run as native code: it has tensors of more"):
        actual = states_and_gradients(network, dag, make_x(dag))
    assert network.execution["word"] == "compiled (torch)"
    network.run = "eager"
    want = states_and_gradients(network, dag, make_x(dag))
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="torch 2.6 cannot read numbers of a plan that is made inside of a transform",
)
def test_transforms_of_torch_func():
    network = make_network(cells=[{"word": WordCell(), "pair": PairCell()}])
    builder = GraphBuilder(SCHEMA)
    words = builder.nodes("word", 4)
    builder.output(builder.node("pair", [builder.node("pair", [0, 1]), words[2]]))
    builder.finish()
    dag = builder.build()
    batch, x = make_batch(dag, network), make_x(dag)

    def loss(word: Tensor) -> Tensor:
        return network(batch, {**x, "word": word})["h"].square().sum()

    (want,) = torch.autograd.grad(loss(x["word"]), [x["word"]])
    torch.testing.assert_close(torch.func.grad(loss)(x["word"].detach()), want)
    assert "transform" in network.execution["word"]
    one = torch.ones_like(x["word"])
    _, slope = torch.func.jvp(loss, (x["word"].detach(),), (one,))
    torch.testing.assert_close(slope, want.sum())
    network.run = "compiled"
    with pytest.raises(EngineError, match="transform"):
        torch.func.grad(loss)(x["word"].detach())


def test_parameters_of_functional_call():
    dag, network = random_dag(3, 0), make_network(run="compiled")
    batch, x = make_batch(dag, network), make_x(dag)
    want = network(batch, x)["h"]
    doubled = {name: 2 * value.detach() for name, value in network.named_parameters()}
    actual = torch.func.functional_call(network, doubled, (batch, x))["h"]
    assert not torch.equal(actual, want)
    torch.testing.assert_close(network(batch, x)["h"], want, rtol=0, atol=0)
    network.run = "eager"
    torch.testing.assert_close(
        torch.func.functional_call(network, doubled, (batch, x))["h"], actual
    )


def test_another_kernel_has_no_programs():
    pytest.importorskip("torch_scatter", reason="torch-scatter is not installed")
    dag, network = random_dag(3, 0), make_network(backend="scatter", run="compiled")
    with pytest.raises(EngineError, match="run=compiled compiles every cell, but backend=scatter"):
        network(make_batch(dag, network), make_x(dag))


def test_rounds_under_autocast_are_not_compiled():
    schema = bond_schema()
    dag, passes = chain(schema, "atom", "atom", 4), [Rounds("bond", 2)]
    network = Network(schema, (passes[0], {"atom": GCNCell(SIZE)}))
    batch, x = Batch(dag, build_schedule(dag, passes)), {"atom": torch.randn(5, SIZE)}
    with torch.autocast("cpu"):
        network(batch, x)
        assert network.execution == {"atom": "eager (autocast is on)"}
        network.run = "compiled"
        with pytest.raises(EngineError, match="autocast is on"):
            network(batch, x)


ACROSS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda h: h - h.mean(0),
    "softmax": lambda h: h.softmax(0),
    "first": lambda h: h + h[0],
    "order": lambda h: h.flip(0),
    "size": lambda h: h / h.shape[0],
    "products": lambda h: torch.softmax(h @ h.T, 1) @ h,
    "numbers": lambda h: h / float(h.detach().abs().sum()),
}
ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "along a row": lambda h: h.cumsum(1),
    "halves": lambda h: torch.cat([h[: len(h) // 2] * 2, h[len(h) // 2 :] * 2]),
    "row by row": lambda h: torch.stack([row * 2 for row in h]),
    "random": lambda h: h * torch.rand_like(h),
}
DEPENDS = "depends on the other nodes of its group, so its results depend on the batch"


@pytest.mark.parametrize(
    ("change", "where"),
    [*((change, "up") for change in (*ACROSS, *ALONE)), ("mean", "rounds"), ("random", "rounds")],
)
def test_the_warning_says_whether_results_depend_on_the_batch(change, where, monkeypatch):
    monkeypatch.setattr(choice, "_SAID", set())
    own = {**ACROSS, **ALONE}[change]

    class Changed(GCNCell):
        def forward(self, x, children):
            return {"h": own(super().forward(x, children)["h"])}

    passes = [Rounds("bond", 2)] if where == "rounds" else [Up()]
    network, schema = (
        Network(bond_schema(), (passes[0], {"atom": Changed(SIZE)})),
        bond_schema(),
    )
    if where == "up":
        kind = type("Leaf", (Odd,), {"arity": 0})
        network = Network(schema, (passes[0], {"atom": kind(lambda cell, h: own(h))}))
    builder = GraphBuilder(schema)
    for _ in range(3):
        builder.node("atom")
    builder.edges("bond", [0, 1], [1, 0])
    builder.output(0)
    builder.finish(y=0.0)
    dag = builder.build()
    with pytest.warns(UserWarning, match="is not compiled") as said:
        network(Batch(dag, build_schedule(dag, passes)), {"atom": torch.randn(3, SIZE)})
    assert (DEPENDS in str(said[0].message)) == (change in ACROSS)
    assert (DEPENDS in network.execution["atom"]) == (change in ACROSS)
