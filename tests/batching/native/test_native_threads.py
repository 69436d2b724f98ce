"""The pool of threads: every share is done once, whoever does it, and who waits sleeps."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.native.library import why_missing
from graphfold.batching.native.linear import multiply, sum_products
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG

pytestmark = pytest.mark.skipif(why_missing(torch.float32) is not None, reason="no native library")
DTYPES = [torch.float32, torch.float64]


def products(dtype: torch.dtype, seed: int) -> list[Tensor]:
    """Products of so many rows that threads share them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1000 + seed, 48, generator=generator).to(dtype)
    weight = torch.randn(48, 40, generator=generator).to(dtype)
    sums = torch.zeros(40, dtype=dtype)
    out = multiply(x, weight)
    return [out, sum_products(out, x, sums), sums]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_threads", [2, 8])
def test_any_number_of_threads_gives_the_bits_of_one(num_threads, dtype):
    want = [products(dtype, seed) for seed in range(4)]
    for count in (num_threads, 2, num_threads):  # fewer than there are, too
        torch.set_num_threads(count)
        for _ in range(20):
            for seed in range(4):
                actual = products(dtype, seed)
                assert all(map(torch.equal, actual, want[seed])), seed


def test_several_callers_at_once():
    want = [products(torch.float32, seed) for seed in range(4)]
    torch.set_num_threads(3)

    def work(seed: int) -> bool:
        actual = (products(torch.float32, seed) for _ in range(50))
        return all(all(map(torch.equal, own, want[seed])) for own in actual)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def run_apart(code: str) -> str:
    """Runs a script in another process and returns its output."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_starts_new_threads():
    code = """
import os, torch
from test_native_threads import products
torch.set_num_threads(3)
want = products(torch.float32, 1)
for _ in range(3):
    child = os.fork()
    if child == 0:
        same = all(map(torch.equal, products(torch.float32, 1), want))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
print(all(map(torch.equal, products(torch.float32, 1), want)))
"""
    assert run_apart(code) == "True"


@pytest.mark.slow
def test_threads_without_work_sleep():
    """A while after the last product, the process takes no time of the processor."""
    code = """
import time, torch
from test_native_threads import products
torch.set_num_threads(4)
for _ in range(20):
    products(torch.float32, 1)
time.sleep(0.05)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before)
"""
    assert float(run_apart(code)) < 0.1  # spinning it would be 1.5 on a machine that is not busy


SCHEMA = Schema((NodeType("leaf", 0), NodeType("hub", None)))


class HubCell(Cell):
    """Needs numbers for every edge: a gate of each child."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.fields = {"h": size}
        self.gate = nn.Linear(size, size)

    def forward(self, x, children):
        rows = children.rows("h")
        return {"h": children.sum(torch.sigmoid(self.gate(rows)) * torch.tanh(rows))}


class StartCell(Cell):
    arity = 0

    def __init__(self, size: int) -> None:
        super().__init__()
        self.fields = {"h": size}

    def forward(self, x, children):
        return {"h": x * 2}


def hubs(num_hubs: int, num_edges: int) -> TypedDAG:
    """Hubs that read many of a few leaves."""
    builder = GraphBuilder(SCHEMA)
    leaves = builder.nodes("leaf", 50)
    inputs = [[leaves[i % 50] for i in range(num_edges - hub)] for hub in range(num_hubs)]
    builder.output(builder.nodes("hub", num_hubs, inputs=inputs)[0])
    builder.finish()
    return builder.build()


def hub_network(size: int) -> Network:
    torch.manual_seed(0)
    return Network(SCHEMA, (Up(), {"leaf": StartCell(size), "hub": HubCell(size)}), run="compiled")


def run_hubs(network: Network, dag: TypedDAG, size: int) -> Tensor:
    x = {"leaf": torch.ones(50, size), "hub": torch.ones(len(dag.op_type) - 50, 0)}
    with torch.no_grad():
        return network(Batch(dag, build_schedule(dag, [Up()])), x)["h"]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("size", [3, 32])
def test_hubs_are_cut_by_their_edges(size):
    """Twelve hubs would be one block, but have too many edges; the numbers equal the eager ones."""
    network, dag = hub_network(size), hubs(12, 9000)
    actual = run_hubs(network, dag, size)
    network.run = "eager"
    torch.testing.assert_close(actual, run_hubs(network, dag, size), rtol=1e-4, atol=1e-4)
    assert not torch.equal(actual[50], actual[61])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kilobytes there, else bytes")
@pytest.mark.slow
def test_the_memory_of_hubs_is_that_of_one():
    """64 numbers for each of 100,000 edges: 26 MB for every value of an edge and every hub."""
    code = """
from test_native_threads import hubs, hub_network, peak_mb, run_hubs
network = hub_network(64)
run_hubs(network, hubs(1, 100_000), 64)
dag = hubs(12, 100_000)
before = peak_mb()
run_hubs(network, dag, 64)
print(peak_mb() - before)
"""
    assert float(run_apart(code)) < 150  # without cutting: 12 times what one hub takes, 700


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kilobytes there, else bytes")
@pytest.mark.slow
def test_a_thread_that_ends_frees_its_scratch_memory():
    code = """
from threading import Thread
from test_native_threads import hubs, hub_network, peak_mb, run_hubs
network, dag = hub_network(64), hubs(1, 6_000)
def run_in_thread():
    thread = Thread(target=run_hubs, args=(network, dag, 64))
    thread.start()
    thread.join()
for _ in range(3):
    run_in_thread()
before = peak_mb()
for _ in range(40):
    run_in_thread()
print(peak_mb() - before)
"""
    assert float(run_apart(code)) < 50  # some MB for each thread if not


def test_the_scratch_memory_of_this_thread_serves_the_next_pass():
    network, dag, actual = hub_network(8), hubs(3, 500), []
    for _ in range(3):
        thread = Thread(target=lambda: actual.append(run_hubs(network, dag, 8)))
        thread.start()
        thread.join()
        actual.append(run_hubs(network, dag, 8))
    assert all(torch.equal(one, actual[0]) for one in actual)
