"""Faults that engines like this one have had, one test for each."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch
from engine_cells import (
    SCHEMA,
    SIZE,
    MessageCell,
    PhraseCell,
    WordCell,
    chain,
    make_batch,
    make_network,
    make_x,
    message_cells,
    random_dag,
    rounds,
    tree_cells,
)
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Down, Network, Up, build_schedule
from graphfold.batching.engine.compiled.compiled_pass import CompiledPass
from graphfold.batching.kernels import segment
from graphfold.dag import GraphBuilder
from graphfold.errors import ConfigError, EngineError

WAYS = ("auto", "eager")


def weighted_sum(states: dict[str, Tensor]) -> Tensor:
    """A scalar in which every element of every field counts differently."""
    total = torch.zeros((), dtype=torch.float64)
    for name in sorted(states):
        value = states[name]
        total = total + (value * torch.linspace(-1, 2, value.numel()).view_as(value)).sum()
    return total


def values_and_gradients(network: Network, dag, x, policy="depth", **options) -> list[Tensor]:
    states = network(make_batch(dag, network, policy), x, **options)
    tensors = [*network.parameters(), *x.values()]
    grads = torch.autograd.grad(weighted_sum(states), tensors, allow_unused=True)
    return [*(states[name] for name in sorted(states)), *grads]


class OnceMoreCell(PhraseCell):
    """Adds to what an earlier pass has computed."""

    def forward(self, x, children):
        new = super().forward(x, children)
        return {name: rows + 0.5 * children.previous(name) for name, rows in new.items()}


def all_passes() -> tuple[list, list]:
    down = {name: OnceMoreCell() for name in ("word", "phrase", "pair")}
    return [rounds(), Up(), Down()], [message_cells(), tree_cells(), down]


@functools.cache
def network_of_all_passes() -> Network:
    """Compiled once: that takes longer than to run it."""
    network = make_network(*all_passes(), learned_absent=["h"])
    torch.nn.init.normal_(network.absent["h"])
    return network


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", ["depth", "critical_path", "agenda", "one_by_one"])
@pytest.mark.parametrize("seed", range(2))
def test_every_engine_and_policy_equals_the_reference(way, policy, seed):
    dag, network = random_dag(4, seed), network_of_all_passes()
    x = make_x(dag)
    network.run = "reference"
    want = values_and_gradients(network, dag, x)
    network.run = way
    got = values_and_gradients(network, dag, x, policy)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_gradcheck_of_inputs_parameters_and_learned_absent_children():
    dag = random_dag(2, 3, size=4)
    network = make_network(learned_absent=["c"])
    x = make_x(dag)
    names = list(x)

    def run(*tensors: Tensor) -> Tensor:
        states = network(make_batch(dag, network), dict(zip(names, tensors, strict=False)))
        return torch.cat([states["h"], states["c"]])

    parameters = list(network.parameters())
    assert torch.autograd.gradcheck(run, [*x.values(), *parameters])


# --- Parameters


def test_gradients_are_returned_and_never_written():
    dag, network = random_dag(3, 0), make_network()
    loss = weighted_sum(network(make_batch(dag, network), make_x(dag)))
    torch.autograd.grad(loss, list(network.parameters()))
    assert all(p.grad is None for p in network.parameters())


def test_hooks_of_parameters_run_once_with_the_whole_gradient():
    dag, network, x = random_dag(3, 0), make_network(), make_x(random_dag(3, 0))
    weight = network.cells[0]["phrase"][0].sum.weight
    (plain,) = torch.autograd.grad(
        weighted_sum(network(make_batch(dag, network), x)), [weight], retain_graph=True
    )
    calls = []
    weight.register_hook(lambda grad: calls.append(grad) or 2 * grad)
    weighted_sum(network(make_batch(dag, network), x)).backward()
    assert len(calls) == 1
    torch.testing.assert_close(calls[0], plain)
    torch.testing.assert_close(weight.grad, 2 * plain)


def test_frozen_parameters_get_no_gradient_and_the_rest_is_unchanged():
    dag, network, x = random_dag(3, 0), make_network(), make_x(random_dag(3, 0))
    free = values_and_gradients(network, dag, x)
    network.cells[0]["pair"].requires_grad_(False)
    loss = weighted_sum(network(make_batch(dag, network), x))
    loss.backward()
    assert all(p.grad is None for p in network.cells[0]["pair"].parameters())
    torch.testing.assert_close(x["word"].grad, free[-3])


def test_tied_weights_within_a_cell_between_cells_and_outside():
    dag, x = random_dag(3, 2), make_x(random_dag(3, 2))

    def gradient(way: str) -> Tensor:
        torch.manual_seed(0)
        network = make_network(run=way)
        cells = network.cells[0]
        tied = cells["phrase"][0].rows.weight
        cells["phrase"][0].sum.weight = tied
        states = network(make_batch(dag, network), x)
        (grad,) = torch.autograd.grad(weighted_sum(states) + (tied**2).sum(), [tied])
        return grad

    torch.testing.assert_close(gradient("auto"), gradient("reference"))


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("way", [*WAYS, "reference"])
def test_parameters_of_a_type_that_the_batch_lacks_have_no_gradient(way, share):
    passes, cells = all_passes()
    cells[0] = {name: MessageCell() for name in cells[0]}
    network, dag = make_network(passes, cells, way, learned_absent=["h"]), chain(2)
    x = make_x(dag)
    batch = Batch(dag, build_schedule(dag, passes, share=share))
    weighted_sum(network(batch, x)).backward()
    without = {name for name, parameter in network.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in network.named_parameters() if ".pair." in name}
    assert {name for name, rows in x.items() if rows.grad is None} == {"pair"}
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    torch.optim.AdamW(network.parameters(), lr=0.1, weight_decay=0.1).step()
    kept = {name for name, p in network.named_parameters() if torch.equal(p, before[name])}
    assert kept == without | {"absent.h"}  # no child is absent: a gradient of zero, and it is zero
    assert not network.absent["h"].grad.any()


class RootOfCell(WordCell):
    """NaN where x is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.weight = nn.Parameter(torch.ones(SIZE))

    def forward(self, x, children):
        return {"h": torch.sqrt(self.weight * x)}


class ReadCell(Cell):
    """Reads its readers' h, or its own of before."""

    def __init__(self, field: str, reads: tuple[str, ...] = ("h",)) -> None:
        super().__init__()
        self.fields, self.reads = {field: SIZE}, reads
        self.bias = nn.Parameter(torch.zeros(SIZE))

    def forward(self, x, children):
        (field,) = self.fields
        return {field: x + self.bias + (children.sum("h") if self.reads else 0)}


def gradient_beside_nan(way: str, passes: list, cells: list) -> Tensor | None:
    """The gradient of the first pass; of words 0 .. 2, word 2 has the state NaN."""
    builder = GraphBuilder(SCHEMA)
    builder.nodes("word", 3)
    builder.edges("next", [0], [1])
    builder.output(1)
    builder.finish()
    dag, first = builder.build(), RootOfCell()
    network = make_network(passes, [{"word": first}, *({"word": cell} for cell in cells)], way)
    x = {"word": torch.tensor([[1.0] * SIZE, [1.0] * SIZE, [-1.0] * SIZE], dtype=torch.float64)}
    states = network(make_batch(dag, network), x)
    assert states["h"].isnan().any() == ("h" not in cells[-1].fields)
    (field,) = cells[-1].fields
    states.at(field, dag.output_index).sum().backward()
    return first.weight.grad


ALL_ENGINES = pytest.mark.parametrize("way", ["compiled", "eager", "reference"])


@ALL_ENGINES
def test_a_state_of_nan_that_a_later_pass_overwrites(way):
    cell = ReadCell("h", reads=())
    assert gradient_beside_nan(way, [Up(), Up()], [cell]) is None


@ALL_ENGINES
def test_a_state_of_nan_beside_states_that_are_read(way):
    """Only the reference leaves out states that nothing reads (docs/engine.md)."""
    grad = gradient_beside_nan(way, [Up(), Up("next")], [ReadCell("d")])
    want = torch.full((SIZE,), 0.5 if way == "reference" else float("nan"), dtype=torch.float64)
    torch.testing.assert_close(grad, want, equal_nan=True)


@pytest.mark.parametrize("way", [*WAYS, "reference"])
def test_a_batch_without_nodes_has_no_gradient(way):
    builder = GraphBuilder(SCHEMA)
    dag, network = builder.build(), make_network(run=way)
    states = network(make_batch(dag, network), make_x(dag))
    assert states["h"].shape == (0, SIZE)
    assert not states["h"].requires_grad


def test_an_error_of_a_cell_is_raised_unchanged():
    class Failing(WordCell):
        def forward(self, x, children):
            raise RuntimeError("on purpose")

    dag = chain(1)
    network = make_network(cells=[{**tree_cells(), "word": Failing()}])
    with (
        pytest.warns(UserWarning, match="Failing is not compiled: RuntimeError: on purpose"),
        pytest.raises(RuntimeError, match="on purpose"),
    ):
        network(make_batch(dag, network), make_x(dag))


# --- Captured tensors


class Capturing(WordCell):
    def __init__(self, captured: Tensor) -> None:
        super().__init__()
        self.captured = captured

    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": state["h"] * self.captured}


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_captured_tensor_keeps_its_gradient(is_leaf):
    base = torch.rand(SIZE, dtype=torch.float64, requires_grad=True)
    dag, x = random_dag(3, 2), make_x(random_dag(3, 2))
    cell = Capturing(base if is_leaf else base * 2)
    network = make_network(cells=[{**tree_cells(), "word": cell}])
    grads = []
    for way in ("reference", "eager"):
        network.run = way
        loss = weighted_sum(network(make_batch(dag, network), x))
        grads += torch.autograd.grad(loss, [base], retain_graph=True)
    network.run = "auto"
    with pytest.warns(UserWarning, match=r"Capturing is not compiled: it reads a tensor of shape"):
        states = network(make_batch(dag, network), x)
    grads += torch.autograd.grad(weighted_sum(states), [base], retain_graph=True)
    assert grads[0].all()
    torch.testing.assert_close(grads[1:], grads[:1] * 2)
    network.run = "compiled"
    with pytest.raises(EngineError, match="neither an argument nor a registered parameter"):
        network(make_batch(dag, network), x)


def test_a_captured_constant_is_no_offence():
    network = make_network(cells=[{**tree_cells(), "word": Capturing(torch.ones(SIZE).double())}])
    dag = chain(2)
    assert network(make_batch(dag, network), make_x(dag))["h"].requires_grad


def test_shared_tensors_get_their_gradient():
    class Sharing(WordCell):
        def forward(self, x, children):
            state = super().forward(x, children)
            return {**state, "h": state["h"] * children.shared["scale"]}

    dag, x = random_dag(3, 4), make_x(random_dag(3, 4))
    scale = torch.rand(SIZE, dtype=torch.float64, requires_grad=True)
    network = make_network(cells=[{**tree_cells(), "word": Sharing()}])
    grads = []
    for way in ("reference", *WAYS):
        network.run = way
        states = network(make_batch(dag, network), x, shared={"scale": scale})
        grads += torch.autograd.grad(weighted_sum(states), [scale])
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


# --- Grad mode, memory, retained graphs


def test_without_grad_nothing_is_kept():
    dag, network = random_dag(3, 0), make_network()
    with torch.no_grad():
        states = network(make_batch(dag, network), make_x(dag))
    assert not states["h"].requires_grad
    assert states["h"].grad_fn is None


def test_memory_made_under_inference_mode_does_not_reach_training():
    dag, network, x = random_dag(3, 0), make_network(), make_x(random_dag(3, 0))
    want = values_and_gradients(network, dag, x)
    with torch.inference_mode():
        scored = network(make_batch(dag, network), x)["h"]
    torch.testing.assert_close(values_and_gradients(network, dag, x), want)
    assert torch.equal(scored, network(make_batch(dag, network), x)["h"])


def test_two_forwards_before_one_backward():
    first, second, network = random_dag(3, 0), random_dag(3, 1), make_network()
    x = [make_x(first), make_x(second)]
    parameters = list(network.parameters())
    alone = [
        torch.autograd.grad(weighted_sum(network(make_batch(d, network), v)), parameters)
        for d, v in zip([first, second], x, strict=True)
    ]
    states = [network(make_batch(d, network), v) for d, v in zip([first, second], x, strict=True)]
    both = torch.autograd.grad(weighted_sum(states[0]) + weighted_sum(states[1]), parameters)
    torch.testing.assert_close(both, tuple(a + b for a, b in zip(*alone, strict=True)))


def test_collected_predictions_keep_their_values():
    network = make_network()
    dags = [random_dag(2, seed) for seed in range(4)]
    with torch.no_grad():
        kept = [network(make_batch(dag, network), make_x(dag))["h"] for dag in dags]
        again = [network(make_batch(dag, network), make_x(dag))["h"] for dag in dags]
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_a_second_backward_needs_retain_graph_as_everywhere():
    dag, network = random_dag(2, 0), make_network()
    loss = weighted_sum(network(make_batch(dag, network), make_x(dag)))
    parameters = list(network.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, parameters)


def test_backward_frees_what_forward_kept(monkeypatch):
    kept: list[weakref.ref] = []
    forward = CompiledPass.forward

    def noting(run, tensors):
        states, own = forward(run, tensors)
        kept.extend(map(weakref.ref, own.values()))
        return states, own

    monkeypatch.setattr(CompiledPass, "forward", noting)
    dag, network = random_dag(3, 0), make_network()
    batch, x = make_batch(dag, network), make_x(dag)
    network(batch, x)  # compiled, and tried
    kept.clear()
    loss = weighted_sum(network(batch, x))
    assert kept
    assert all(tensor() is not None for tensor in kept)
    loss.backward()
    gc.collect()
    assert all(tensor() is None for tensor in kept), "memory outlives backward"
    assert loss.grad_fn is not None


# --- Incoming gradients


# --- Autocast


def test_under_autocast_cells_run_as_they_are():
    dag, network = random_dag(4, 0), make_network(run="eager").float()
    x = {name: value.detach().float().requires_grad_() for name, value in make_x(dag).items()}
    tensors = [x["word"], *network.parameters()]
    exact = torch.autograd.grad(network(make_batch(dag, network), x)["h"].sum(), tensors)
    rough = []
    for way in ("auto", "eager"):
        network.run = way
        with torch.autocast("cpu", torch.bfloat16):
            states = network(make_batch(dag, network), x)
        assert states["h"].dtype == torch.float32
        rough.append(torch.autograd.grad(states["h"].sum(), tensors))
    assert all(grad.dtype == torch.float32 for grad in rough[0])
    torch.testing.assert_close(rough[1], rough[0], rtol=0, atol=0)
    torch.testing.assert_close(rough[0][0], exact[0], rtol=0.1, atol=0.1)
    assert not torch.equal(rough[0][0], exact[0])
    network.run = "compiled"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(EngineError, match="autocast is on"):
        network(make_batch(dag, network), x)


# --- Double backward


def test_double_backward_is_refused_by_name_and_works_in_the_plain_engine():
    dag, x = random_dag(2, 5, size=3), make_x(random_dag(2, 5, size=3))
    network = make_network()
    loss = network(make_batch(dag, network), x)["h"].sum()
    with pytest.raises(EngineError, match="run=eager"):
        torch.autograd.grad(loss, [x["word"]], create_graph=True)
    network.run = "eager"

    def run(word: Tensor) -> Tensor:
        return network(make_batch(dag, network), {**x, "word": word})["h"]

    assert torch.autograd.gradgradcheck(run, [x["word"]])


@pytest.mark.parametrize("small", [0, 1 << 40], ids=["where rows lie", "gathered"])
def test_rounds_can_be_differentiated_twice(small, monkeypatch):
    monkeypatch.setattr(segment, "SMALL", small)
    builder = GraphBuilder(SCHEMA)
    nodes = [builder.node("word") for _ in range(4)]
    builder.edges("next", [0, 1, 2, 0], [1, 2, 3, 3])
    builder.output(*nodes)
    builder.finish()
    dag = builder.build()
    network = make_network([rounds(2)], [{"word": message_cells()["word"]}])
    x = make_x(dag)

    def run(word: Tensor) -> Tensor:
        return network(make_batch(dag, network), {"word": word})["m"]

    assert torch.autograd.gradcheck(run, [x["word"]])
    network.run = "eager"
    assert torch.autograd.gradcheck(run, [x["word"]])
    assert torch.autograd.gradgradcheck(run, [x["word"]])


# --- Randomness


class Masked(PhraseCell):
    def before(self, x):
        mask = nn.functional.dropout(torch.ones_like(x), 0.5, self.training)
        return {**super().before(x), "mask": mask}

    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": state["h"] * x["mask"]}


@pytest.mark.parametrize("policy", ["depth", "critical_path", "agenda", "one_by_one"])
def test_masks_are_the_same_under_every_policy(policy):
    dag = random_dag(4, 6)
    network, x = make_network(cells=[{**tree_cells(), "phrase": Masked()}]), make_x(dag)
    network.run = "reference"
    torch.manual_seed(7)
    want = values_and_gradients(network, dag, x)
    network.run = "auto"
    torch.manual_seed(7)
    torch.testing.assert_close(values_and_gradients(network, dag, x, policy), want)


# --- Stateful modules


def test_running_statistics_are_allowed_in_rounds():
    class NormedMessage(type(message_cells()["word"])):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(SIZE)

        def forward(self, x, children):
            return {"m": self.norm(super().forward(x, children)["m"])}

    dag = random_dag(4, 0)
    cell = NormedMessage()
    network = make_network([rounds(2)], [dict.fromkeys(("word", "phrase", "pair"), cell)])
    network(make_batch(dag, network), make_x(dag))
    assert set(network.execution.values()) == {"compiled (native)"}
    assert int(cell.norm.num_batches_tracked) == 6  # two rounds of three types


# --- Missing children, empty batches, depth and width


def test_an_absent_slot_reads_zeros():
    builder = GraphBuilder(SCHEMA)
    word = builder.node("word")
    left = builder.node("pair", [word, None])
    builder.output(left)
    builder.finish()
    dag = builder.build()
    network, x = make_network(), make_x(dag)
    states = network(make_batch(dag, network), x)
    h, c = states["h"][0], states["c"][0]
    cell = network.cells[0]["pair"][0]
    out = cell.linear(torch.cat([h, torch.zeros(SIZE, dtype=torch.float64)]))
    torch.testing.assert_close(states["h"][1], out[:SIZE].tanh())
    torch.testing.assert_close(states["c"][1], out[SIZE:] + c)


@pytest.mark.parametrize("way", ["auto", "eager", "reference"])
def test_an_empty_batch_gives_empty_states(way):
    dag = GraphBuilder(SCHEMA).build()
    passes, cells = all_passes()
    network = make_network(passes, cells, run=way)
    states = network(make_batch(dag, network), make_x(dag))
    assert states["h"].shape == (0, SIZE)
    loss = states["h"].sum() + states["m"].sum()
    assert loss.item() == 0.0


def test_a_chain_of_ten_thousand():
    dag, network = chain(10_000), make_network()
    x = make_x(dag)
    states = network(make_batch(dag, network, "agenda"), x)
    states["h"].sum().backward()
    assert torch.isfinite(x["word"].grad).all()


# --- Edges


@pytest.mark.parametrize("backend", ["auto", "scatter"])
def test_every_kernel_equals_the_reference(backend):
    if backend == "scatter":
        pytest.importorskip("torch_scatter", reason="torch-scatter is not installed")
    dag = random_dag(4, 9)
    passes, cells = all_passes()
    network = make_network(passes, cells, backend=backend)
    x = make_x(dag)
    got = values_and_gradients(network, dag, x)
    network.run = "reference"
    torch.testing.assert_close(got, values_and_gradients(network, dag, x))


def test_an_unknown_backend_is_an_error():
    with pytest.raises(ConfigError, match="no backend 'scater'. Did you mean 'scatter'"):
        make_network(backend="scater")


def test_edge_columns_follow_the_plan_and_have_gradients():
    dag, network, x = random_dag(3, 8), make_network(), make_x(random_dag(3, 8))
    weight = dag.columns["inputs"]["weight"].requires_grad_()
    grads = []
    for way in ("reference", *WAYS):
        network.run = way
        states = network(make_batch(dag, network, "critical_path"), x)
        grads += torch.autograd.grad(weighted_sum(states), [weight])
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])
