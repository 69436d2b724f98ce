"""Native memory: steps after tensors were copied, moved, replaced, freed or faked."""

from __future__ import annotations

import ast
import copy
import gc
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty

import pytest
import torch
from engine_cells import (
    SCHEMA,
    SIZE,
    PhraseCell,
    WordCell,
    make_network,
    make_x,
    message_cells,
    random_dag,
    rounds,
    tree_cells,
)
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import graphfold
from graphfold.batching import Batch, Cell, Down, Network, Up, build_schedule
from graphfold.batching.engine.compiled import programs
from graphfold.batching.native import library
from graphfold.errors import EngineError, GraphfoldError, ShapeError

NAMES = ("h", "c", "m")


def network_of(*passes: str, **options: object) -> Network:
    """Passes with cells of their own: torch's functional_call confuses shared ones."""
    made = {
        "up": (Up(), tree_cells()),
        "down": (Down(), dict.fromkeys(("word", "phrase", "pair"), PhraseCell())),
        "rounds": (rounds(2), message_cells()),
    }
    chosen = copy.deepcopy([made[name] for name in passes])
    own = [{name: copy.deepcopy(cell) for name, cell in cells.items()} for _, cells in chosen]
    return make_network([item for item, _ in chosen], own, **options)


def step(network: Network, batch: Batch, x: dict[str, Tensor]) -> list[Tensor]:
    """States, and the gradients of a sum in which every element counts differently."""
    leaves = {name: value.detach().requires_grad_() for name, value in x.items()}
    states = network(batch, leaves)
    values = [states[name] for name in NAMES if name in states]
    loss = sum((s * torch.linspace(-1, 2, s.numel()).view_as(s)).sum() for s in values)
    loss = loss + sum(states.at(n, batch.dag.output_index).sum() for n in NAMES if n in states)
    tensors = [*network.parameters(), *leaves.values()]
    return [*values, *torch.autograd.grad(loss, tensors, materialize_grads=True)]


class Problem:
    """A network with graphs, and what a step gives."""

    def __init__(self, *passes: str, share: bool = False) -> None:
        torch.manual_seed(0)
        self.network = network_of(*passes)
        dag = random_dag(4, 0)
        self.batch = Batch(dag, build_schedule(dag, self.network.passes, share=share))
        self.x = make_x(dag)
        self.want = step(self.network, self.batch, self.x)

    def assert_same(self, batch: Batch) -> None:
        torch.testing.assert_close(step(self.network, batch, self.x), self.want)


PASSES = [("up", "down"), ("rounds",)]
all_passes = pytest.mark.parametrize("passes", PASSES, ids="-".join)


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch and of all that has been derived from it, by name."""
    by_name: dict[str, Tensor] = {}
    stack: list[tuple[str, object]] = [("batch", batch)]
    seen: set[int] = set()
    while stack:
        name, value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            by_name[name] = value
        elif isinstance(value, dict):
            stack += [(f"{name}.{key}", part) for key, part in value.items()]
        elif isinstance(value, (list, tuple, frozenset)):
            stack += [(f"{name}.{number}", part) for number, part in enumerate(value)]
        elif type(value).__module__.startswith("graphfold"):
            stack += [(f"{name}.{key}", part) for key, part in vars(value).items()]
    return by_name


# --- Copies


def through_torch(batch: Batch) -> Batch:
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[Batch], Batch]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "torch.save": through_torch,
    "map_tensors": lambda batch: batch.map_tensors(torch.clone),
}


@all_passes
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_after_a_step_gives_the_numbers_of_the_original(how, passes):
    problem = Problem(*passes)
    made = COPIES[how](problem.batch)
    del problem.batch
    gc.collect()
    problem.assert_same(made)


@pytest.mark.parametrize("share", [False, True])
def test_a_shared_plan_may_be_copied_after_a_step(share):
    problem = Problem("up", "rounds", share=share)
    problem.assert_same(copy.deepcopy(problem.batch))


@pytest.mark.slow
def test_another_process_loads_a_batch_after_a_step(tmp_path):
    problem = Problem("up", "down")
    torch.save((problem.network, problem.batch, problem.x, problem.want), tmp_path / "step.pt")
    code = (
        "import sys, torch; from test_native_memory import step;"
        "network, batch, x, want = torch.load(sys.argv[1], weights_only=False);"
        "torch.testing.assert_close(step(network, batch, x), want)"
    )
    folders = [
        Path(__file__).parent,
        Path(__file__).parents[2],
        Path(graphfold.__file__).parents[1],
    ]
    path = os.pathsep.join(map(str, folders))
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "step.pt"],
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )


@all_passes
def test_the_sender_of_a_batch_goes_on(passes):
    problem = Problem(*passes)
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    for tensor in tensors_of(problem.batch).values():
        queue.put(tensor)  # into shared memory, and the queue has room for few
        queue.get()
    problem.assert_same(problem.batch)


@all_passes
def test_a_batch_in_shared_memory(passes):
    problem = Problem(*passes)
    for tensor in tensors_of(problem.batch).values():
        tensor.share_memory_()
    problem.assert_same(problem.batch)


def test_a_network_in_shared_memory():
    problem = Problem("up")
    problem.network.share_memory()
    problem.assert_same(problem.batch)


# --- Tensors that are replaced


def in_steps(tensor: Tensor) -> Tensor:
    """A strided copy of the tensor."""
    wide = torch.full((*tensor.shape, 2), 77, dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


@all_passes
def test_strided_tensors_of_a_plan(passes):
    problem = Problem(*passes)
    problem.assert_same(problem.batch.map_tensors(in_steps))


@all_passes
@pytest.mark.parametrize("replace", [torch.clone, in_steps])
def test_tensors_of_a_plan_with_other_memory(replace, passes):
    problem = Problem(*passes)
    for tensor in tensors_of(problem.batch).values():
        tensor.data = replace(tensor)
    gc.collect()
    problem.assert_same(problem.batch)


def as_int32(tensor: Tensor) -> Tensor:
    return tensor.int()


def without_last(tensor: Tensor) -> Tensor:
    return tensor[:-1]


@pytest.mark.parametrize("replace", [as_int32, without_last])
@pytest.mark.parametrize("name", ["child_ptr", "child_row", "reader_ptr", "reader_edge", "reader"])
def test_tensors_of_a_plan_of_another_kind_are_refused(name, replace):
    problem = Problem("up")
    tensor = getattr(problem.batch.schedule.passes[0], name)
    tensor.data = replace(tensor)
    with pytest.raises(EngineError, match=r"int32 on cpu, but native|numbers, but native code"):
        step(problem.network, problem.batch, problem.x)


def test_inputs_of_any_layout():
    problem = Problem("up", "down")
    # The imaginary part of a conjugate is a view whose sign is not in its memory.
    complex_x = {n: torch.complex(v.detach(), -v.detach()).conj() for n, v in problem.x.items()}
    for x in (
        {name: in_steps(value.detach()) for name, value in problem.x.items()},
        {name: value.detach().T.contiguous().T for name, value in problem.x.items()},
        {name: value.imag for name, value in complex_x.items()},
        {name: value.imag.contiguous() for name, value in complex_x.items()},
    ):
        torch.testing.assert_close(step(problem.network, problem.batch, x), problem.want)


def test_weights_of_any_layout():
    problem = Problem("up", "down")
    for parameter in problem.network.parameters():
        parameter.data = in_steps(parameter.detach())
    problem.assert_same(problem.batch)


# --- Memory that is gone


@pytest.mark.parametrize("which", ["weight", "part of a flat weight", "input", "plan"])
def test_freed_memory_is_refused(which):
    problem = Problem("up")
    plan, word = problem.batch.schedule.passes[0], problem.network.cells[0]["word"][0]
    weight = word.linear.weight
    if which == "part of a flat weight":
        flat = torch.randn(weight.numel() + 3, dtype=weight.dtype)
        weight.data = flat[3:].view_as(weight)
    tensor = {"input": problem.x["phrase"], "plan": plan.child_row}.get(which, weight)
    if which == "plan":
        tensor.data = tensor.clone()  # a storage of torch, not of numpy
    tensor.detach().untyped_storage().resize_(0)
    with pytest.raises(EngineError, match=r"memory of .* has been freed: its storage has 0 bytes"):
        problem.network(problem.batch, problem.x)


def test_freed_memory_of_what_backward_reads_is_refused():
    problem = Problem("up")
    saved = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.clone())
        return saved[-1]

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = problem.network(problem.batch, problem.x)["h"].sum()
    for tensor in saved:
        if tensor.dim() == 2:
            tensor.untyped_storage().resize_(0)
    with pytest.raises(EngineError, match="has been freed"):
        loss.backward()


# --- Hooks of saved tensors


def transposed(tensor: Tensor) -> Tensor:
    return tensor.t().contiguous().t() if tensor.dim() == 2 else tensor


@all_passes
@pytest.mark.parametrize("unpack", [transposed, torch.clone, in_steps])
def test_hooks_that_give_back_another_layout(unpack, passes):
    problem = Problem(*passes)
    with saved_tensors_hooks(lambda tensor: tensor, unpack):
        problem.assert_same(problem.batch)
    with save_on_cpu():
        problem.assert_same(problem.batch)


@pytest.mark.parametrize(
    "unpack",
    [
        lambda tensor: tensor.half(),
        lambda tensor: tensor.float(),
        lambda tensor: tensor[:-1],
        lambda tensor: tensor.reshape(-1),
        lambda tensor: tensor.to("meta"),
    ],
)
def test_hooks_that_give_back_something_else_are_refused(unpack):
    problem = Problem("up")

    def of_states(tensor: Tensor) -> Tensor:
        num_rows = problem.batch.schedule.passes[0].num_rows + 1
        return unpack(tensor) if tensor.shape == (num_rows, SIZE) else tensor

    with saved_tensors_hooks(lambda tensor: tensor, of_states):
        loss = problem.network(problem.batch, problem.x).at("h", problem.batch.dag.output_index)
    with pytest.raises(
        EngineError, match=r"a pass saved a tensor of shape .* but got one of shape"
    ):
        loss.sum().backward()


def test_gradients_of_any_layout_and_dtype():
    problem = Problem("up")
    states = problem.network(problem.batch, problem.x)
    h = states["h"]
    tensors = list(problem.network.parameters())
    ones = torch.ones_like(h)
    want = torch.autograd.grad(h, tensors, ones, retain_graph=True, allow_unused=True)
    for grad in (torch.ones(()).double().expand_as(h), transposed(ones), in_steps(ones)):
        actual = torch.autograd.grad(h, tensors, grad, retain_graph=True, allow_unused=True)
        torch.testing.assert_close(actual, want)


# --- Default devices, and tensors without numbers


@all_passes
@pytest.mark.parametrize("run", ["auto", "eager", "reference"])
def test_another_default_device(run, passes):
    problem = Problem(*passes)
    dag = random_dag(4, 0)
    problem.network.run = run
    with torch.device("meta"):  # as torch.set_default_device
        problem.network.recompile()
        batch = Batch(dag, build_schedule(dag, problem.network.passes))
        actual = problem.network(batch, problem.x)
        loss = sum(actual.at(n, dag.output_index).sum() for n in NAMES if n in actual)
        loss.backward()
    assert all(not actual[name].is_meta for name in actual)
    problem.network.run = "auto"
    problem.assert_same(batch)


def test_factories_name_a_device():
    """Plans and programs are made on the CPU, or beside the batch, never on the default device."""
    names = "tensor empty zeros ones full arange rand randn randint eye linspace as_tensor"
    factories = {f"torch.{name}" for name in names.split()}
    package, places = Path(graphfold.__file__).parent, []
    for path in (*package.glob("batching/**/*.py"), *package.glob("dag/**/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        places += [
            path.name
            for call in calls
            if ast.unparse(call.func) in factories
            and all(keyword.arg != "device" for keyword in call.keywords)
        ]
    assert places == ["network.py"], "only the parameters of a network are on the default device"


@pytest.mark.parametrize("run", ["auto", "eager", "reference"])
@pytest.mark.parametrize("allow", [False, True])
def test_fake_tensors_are_refused(run, allow):
    problem = Problem("up")
    problem.network.run = run
    with FakeTensorMode(allow_non_fake_inputs=allow) as mode:
        with pytest.raises(EngineError, match="cannot run under FakeTensorMode"):
            problem.network(problem.batch, problem.x)
        fake = {name: mode.from_tensor(value) for name, value in problem.x.items()}
    with pytest.raises(EngineError, match="is a fake tensor"):
        problem.network(problem.batch, fake)
    problem.network.run = "auto"
    problem.assert_same(problem.batch)


def test_fake_weights_are_refused():
    problem = Problem("up")
    with FakeTensorMode():
        network = Network(SCHEMA, (Up(), {"word": WordCell()}))
    with pytest.raises(EngineError, match=r"linear.weight is a fake tensor"):
        network(problem.batch, problem.x)


# --- Cells that refer to themselves


class TableCell(Cell):
    """Keeps its own methods where no weak reference can be: a dict, a list, a closure."""

    arity = 0

    def __init__(self, how: str) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)
        own = {"dict": {"act": self.act}, "list": [self.act], "tuple": (self.act,)}
        self.kept = own.get(how, partial(self.act) if how == "partial" else lambda v: self.act(v))

    def act(self, value: Tensor) -> Tensor:
        return torch.tanh(value)

    def forward(self, x, children):
        kept = self.kept
        if isinstance(kept, dict):
            kept = kept["act"]
        elif isinstance(kept, (list, tuple)):
            kept = kept[0]
        return {"h": kept(self.linear(x))}


@pytest.mark.parametrize("how", ["dict", "list", "tuple", "partial", "closure"])
def test_a_cell_that_holds_its_own_methods_is_freed(how):
    dag, cell = random_dag(2, 0), TableCell(how)
    network = make_network([Up()], [{"word": cell}])
    network(Batch(dag, build_schedule(dag, [Up()])), make_x(dag))["h"].sum().backward()
    assert network.execution["word"] == "compiled (native)"
    gone = weakref.ref(cell)
    del network, cell
    gc.collect()
    assert gone() is None


def test_copies_and_pickles_of_a_network_have_no_programs():
    problem = Problem("up")
    network = problem.network
    assert network._programs[0]
    for made in (copy.copy(network), copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert made._programs == [{}]
    copied = copy.deepcopy(network)
    torch.testing.assert_close(step(copied, problem.batch, problem.x), problem.want)


# --- Compiling beside others


def test_the_first_call_may_be_inside_a_checkpoint():
    problem = Problem("up", "rounds")
    word = problem.x["word"]

    def run(value: Tensor) -> Tensor:
        return problem.network(problem.batch, {**problem.x, "word": value})["h"]

    want = torch.autograd.grad(run(word).sum(), [word])
    problem.network.recompile()
    actual = torch.autograd.grad(checkpoint(run, word, use_reentrant=False).sum(), [word])
    torch.testing.assert_close(actual, want)


def test_the_first_call_may_be_inside_a_selective_checkpoint():
    selective = pytest.importorskip("torch.utils.checkpoint").create_selective_checkpoint_contexts
    problem = Problem("up")
    word = problem.x["word"]

    def run(value: Tensor) -> Tensor:
        return problem.network(problem.batch, {**problem.x, "word": value})["h"]

    want = torch.autograd.grad(run(word).sum(), [word])
    problem.network.recompile()
    save = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default, torch.ops.aten.tanh.default]
    contexts = partial(selective, save)
    out = checkpoint(run, word, use_reentrant=False, context_fn=contexts)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), [word]), want)


class DropoutCell(TableCell):
    def forward(self, x, children):
        return {"h": nn.functional.dropout(super().forward(x, children)["h"], 0.5, self.training)}


def test_compiling_draws_no_random_numbers():
    dag = random_dag(2, 0)
    batch, x = Batch(dag, build_schedule(dag, [Up()])), make_x(dag)
    before = torch.get_rng_state()
    make_network([Up()], [{"word": TableCell("dict")}])(batch, x)
    network = make_network([Up()], [{"word": DropoutCell("dict")}])
    torch.set_rng_state(before)
    with pytest.warns(UserWarning, match="DropoutCell is not compiled"):
        actual = network(batch, x)["h"]
    torch.set_rng_state(before)
    torch.testing.assert_close(network(batch, x)["h"], actual)  # its own numbers, and no more


def test_compiling_leaves_the_random_numbers_of_other_threads_alone():
    problem, drawn, is_done = Problem("up"), [], threading.Event()

    def draw() -> None:
        while not is_done.is_set():
            drawn.append(torch.rand(4))

    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(3):
        problem.network.recompile()
        problem.network(problem.batch, problem.x)
    is_done.set()
    thread.join()
    assert len(drawn) > 3
    assert len({tuple(numbers.tolist()) for numbers in drawn}) == len(drawn)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("module", [programs, library])
def test_a_child_that_is_forked_while_a_thread_compiles_runs(module):
    problem = Problem("up")
    holds, is_over = threading.Event(), threading.Event()

    def compile_for_long() -> None:
        with module._COMPILING:
            holds.set()
            is_over.wait()

    def run() -> None:
        problem.network.recompile()
        library.load.cache_clear()
        queue.put([tensor.tolist() for tensor in step(problem.network, problem.batch, problem.x)])

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    thread = threading.Thread(target=compile_for_long)
    thread.start()
    assert holds.wait(60)
    child = context.Process(target=run)
    try:
        child.start()
        actual = [torch.tensor(numbers, dtype=torch.float64) for numbers in queue.get(timeout=60)]
    except Empty:
        pytest.fail("the child waits for a thread that it does not have")
    finally:
        is_over.set()
        thread.join()
        child.kill()
        child.join()
    want = [tensor.reshape(one.shape) for tensor, one in zip(problem.want, actual, strict=True)]
    torch.testing.assert_close(actual, want)


# --- Graphs that are changed in place


CHANGES: dict[str, Callable[[Batch], object]] = {
    "inputs": lambda batch: batch.dag.input_index.fill_(0),
    "types": lambda batch: batch.dag.op_type.fill_(0),
    "a relation": lambda batch: batch.dag.relations["next"].index.fill_(0),
    "numpy": lambda batch: batch.dag.input_index.numpy().fill(0),
    "data": lambda batch: batch.dag.input_index.data.fill_(0),
}


@pytest.mark.parametrize("how", CHANGES)
def test_graphs_that_were_changed_after_planning_are_refused(how):
    problem = Problem("up", "rounds")
    CHANGES[how](problem.batch)
    dag, passes = problem.batch.dag, problem.network.passes
    uses: list[Callable[[], object]] = [
        lambda: Batch(dag, problem.batch.schedule),
        lambda: build_schedule(dag, passes),
        lambda: problem.network(copy.deepcopy(problem.batch), problem.x),
    ]
    if how not in ("numpy", "data"):  # which torch does not count
        uses.append(lambda: problem.network(problem.batch, problem.x))
    for use in uses:
        with pytest.raises(ShapeError, match="changed in place after they had been planned"):
            use()


# --- Transforms of torch.func, and many gradients at once


@pytest.mark.parametrize("run", ["auto", "eager", "reference"])
@all_passes
def test_a_transform_may_be_the_first_call(run, passes):
    torch.manual_seed(0)
    network, dag = network_of(*passes, run=run), random_dag(3, 0)
    parameters, x = dict(network.named_parameters()), make_x(dag)

    def loss(values: dict[str, Tensor], batch: Batch) -> Tensor:
        states = functional_call(network, values, (batch, x))
        name = next(iter(states))
        return states[name].square().sum() + states.at(name, dag.output_index).sum()

    def plan() -> Batch:
        return Batch(dag, build_schedule(dag, network.passes))

    first = plan()
    actual = torch.func.grad(lambda values: loss(values, first))(parameters)
    inside = torch.func.grad(lambda values: loss(values, plan()))(parameters)
    grads = torch.autograd.grad(
        loss(parameters, first), list(parameters.values()), materialize_grads=True
    )
    want = dict(zip(parameters, grads, strict=True))
    torch.testing.assert_close(actual, want)
    torch.testing.assert_close(inside, want)


@pytest.mark.parametrize("run", ["eager", "reference"])
@all_passes
def test_transforms_of_transforms(run, passes):
    network, dag = network_of(*passes, run=run), random_dag(2, 1, size=3)
    batch, x = Batch(dag, build_schedule(dag, network.passes)), make_x(dag)
    word = x["word"].detach()

    def total(value: Tensor) -> Tensor:
        states = network(batch, {**x, "word": value})
        return states[next(iter(states))].sum(0)

    want = torch.autograd.functional.jacobian(total, word)
    torch.testing.assert_close(torch.func.jacrev(total)(word), want)
    torch.testing.assert_close(torch.func.jacfwd(total)(word), want)
    vectorized = torch.autograd.functional.jacobian(total, word, vectorize=True)
    torch.testing.assert_close(vectorized, want)


@all_passes
def test_many_gradients_at_once_are_refused_and_the_remedy_works(passes):
    problem = Problem(*passes)
    parameters = list(problem.network.parameters())

    def gradients() -> tuple[Tensor, ...]:
        states = problem.network(problem.batch, problem.x)
        rows = states.at(next(iter(states)), problem.batch.dag.output_index)
        eye = torch.eye(rows.numel(), dtype=rows.dtype).view(-1, *rows.shape)
        return torch.autograd.grad(
            rows, parameters, eye, is_grads_batched=True, materialize_grads=True
        )

    def vectorized() -> Tensor:
        def run(value: Tensor) -> Tensor:
            states = problem.network(problem.batch, {**problem.x, "word": value})
            return states[next(iter(states))].sum(0)

        return torch.autograd.functional.jacobian(run, problem.x["word"].detach(), vectorize=True)

    for call in (gradients, vectorized):
        with pytest.raises(GraphfoldError, match=r"many gradients at once .* Use run=eager"):
            call()
    problem.network.run = "eager"
    assert all(grad.isfinite().all() for grad in (*gradients(), vectorized()))


def test_many_gradients_at_once_through_large_sums(monkeypatch):
    monkeypatch.setattr("graphfold.batching.kernels.segment.SMALL", 0)
    network, dag = network_of("up", "rounds", run="eager"), random_dag(3, 0)
    batch, x = Batch(dag, build_schedule(dag, network.passes)), make_x(dag)
    h = network(batch, x)["h"].sum(0)
    word, eye = x["word"], torch.eye(SIZE, dtype=torch.float64)
    (actual,) = torch.autograd.grad(h, [word], eye, is_grads_batched=True, retain_graph=True)
    for row, one in zip(eye, actual, strict=True):
        torch.testing.assert_close(torch.autograd.grad(h, [word], row, retain_graph=True)[0], one)
