"""Threads: those that share out blocks, and those that use one network at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import PhraseCell, make_batch, make_network, make_x, random_dag, tree_cells
from torch import Tensor

from graphfold.batching import Down, Network, Up

NUM_THREADS = 6


def at_once(work: Callable[[int], object]) -> list[object]:
    """Some threads begin at the same time."""
    barrier = Barrier(NUM_THREADS)

    def run(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(run, range(NUM_THREADS)))


def up_and_down(dtype: torch.dtype = torch.float64) -> Network:
    torch.manual_seed(0)
    down = dict.fromkeys(("word", "phrase", "pair"), PhraseCell())
    return make_network([Up(), Down()], [tree_cells(), down], run="compiled").to(dtype)


@pytest.mark.parametrize("seed", range(2))
def test_two_threads_give_the_numbers_of_one(seed):
    dag, network = random_dag(300, seed), up_and_down()
    x = make_x(dag)
    actual = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        actual.append(states_and_gradients(network, dag, x))
    torch.testing.assert_close(actual[1], actual[0], rtol=1e-12, atol=1e-11)
    for name in ("h", "c"):  # nobody adds up what others have
        assert torch.equal(actual[0][name], actual[1][name])


def test_many_threads_compile_and_read_one_network():
    dags = [random_dag(5, seed) for seed in range(NUM_THREADS)]
    plain = up_and_down()
    plain.run = "eager"

    def predict(network: Network, number: int) -> Tensor:
        with torch.no_grad():
            return network(make_batch(dags[number], network), make_x(dags[number]))["h"]

    want = [predict(plain, number) for number in range(NUM_THREADS)]
    network = up_and_down()  # nobody has compiled it
    for _ in range(3):
        actual = at_once(lambda number: predict(network, number))
        torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
    assert network.execution["word"] == "compiled (native)"


def test_many_threads_train_and_predict_with_one_network():
    dags = [random_dag(5, seed) for seed in range(NUM_THREADS)]
    network = up_and_down()
    want = [states_and_gradients(network, dag, make_x(dag)) for dag in dags]
    network = up_and_down()

    def work(number: int) -> dict[str, Tensor]:
        with torch.set_grad_enabled(number % 3 != 0):
            return states_and_gradients(network, dags[number], make_x(dags[number]))

    for _ in range(3):
        for one, other in zip(at_once(work), want, strict=True):
            torch.testing.assert_close(
                one, {name: other[name] for name in one}, rtol=1e-12, atol=1e-11
            )
    assert all(parameter.grad is None for parameter in network.parameters())


def test_backward_in_another_thread():
    dag, network = random_dag(5, 0), up_and_down()
    x = make_x(dag)
    want = torch.autograd.grad(network(make_batch(dag, network), x)["h"].sum(), [x["word"]])

    def work(number: int) -> tuple[Tensor, ...]:
        return torch.autograd.grad(losses[number], [x["word"]])

    losses = [network(make_batch(dag, network), x)["h"].sum() for _ in range(NUM_THREADS)]
    for actual in at_once(work):
        torch.testing.assert_close(actual, want, rtol=1e-12, atol=1e-12)
