"""An LSTM over sentences, as graphs and as torch writes it.

Sentences of the Stanford Sentiment Treebank as chains: each token has one child, the token before
it; the first has an absent one. `NaryTreeLSTMCell` of arity 1 then is an LSTM. Every token has a
random vector that needs no gradient. A step of training is forward and backward to the weights,
the input projection included; every state takes part in the loss. No two tokens are equal, so there
is nothing to share: every variant computes every node. Variants of one run, on the same weights:

- `graphfold`: with the cell compiled, where there is a C compiler; every node;
- `untraced`: the same engine and plan with the cell's own code (`Network(fuse=False)`); every node;
- `packed_lstm`: `torch.nn.LSTM` over packed sequences, packed beforehand; every node;
- `cat_levels`: the levels joined by torch.cat under autograd; every node;
- `one_by_one`: a loop over the tokens of the first batch; every node;
- `product_floor`: the matrix products of graphfold's own plan alone; every node.

    graphfold bench sequence --batch-size 64 --hidden-size 256
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from graphfold.batching import Batch, Network, Up
from graphfold.bench.chains import SCHEMA, Chains, regrouped, torch_lstm
from graphfold.bench.engine_variants import fusions
from graphfold.bench.equality import require_equal
from graphfold.bench.experiment import load_data
from graphfold.bench.measure import Row, Work, measure
from graphfold.bench.one_by_one import TreeLSTMLoop
from graphfold.bench.products import Product, ProductFloor, group_sizes
from graphfold.layers import NaryTreeLSTMCell

BATCH_SIZES = (64,)
HIDDEN_SIZES = (256,)

#: Batches that a call of a variant goes through.
NUM_BATCHES = 4


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    lengths = _sentence_lengths(overrides)
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        for batch_size in batch_sizes or BATCH_SIZES:
            parts = [lengths[i * batch_size : (i + 1) * batch_size] for i in range(NUM_BATCHES)]
            variants = Variants([part for part in parts if part], hidden_size)
            variants.require_equal()
            setting = Row("sequence", "", "", batch_size, hidden_size, "", threads)
            for phase in ("train", "inference"):
                yield from measure(replace(setting, phase=phase), variants.works(phase))


#: From a batch to the states, and to what the loss multiplies them with; both in one row order.
Forward: TypeAlias = Callable[[Chains], tuple[Tensor, Tensor]]


class Variants:
    """The ways to run one LSTM.

    Args:
        lengths: for each batch, the lengths of its sentences.
        hidden_size: width of the tokens' vectors and of the state.
    """

    def __init__(self, lengths: Sequence[Sequence[int]], hidden_size: int) -> None:
        self.cell = NaryTreeLSTMCell(hidden_size, hidden_size, arity=1)
        self.network = Network(SCHEMA, [Up()], [{"token": self.cell}])
        self.lstm = torch_lstm(self.cell, hidden_size)
        self.batches = [Chains(part, hidden_size) for part in lengths]
        self.floors = [self._floor(chains.batch) for chains in self.batches]
        self.forwards: Mapping[str, Forward] = {
            **{
                name: partial(self._run_engine, "fast", fuse)
                for name, fuse in fusions(self.network).items()
            },
            "packed_lstm": self._run_packed,
            "cat_levels": partial(self._run_engine, "autograd", None),
            "one_by_one": self._run_loop,
        }

    def require_equal(self) -> None:
        """Raises RuntimeError if they differ in states or gradients on the first batch."""
        results = {name: self._results(name) for name in self.forwards}
        for name, got in results.items():
            require_equal(name, got, results["graphfold"])

    def works(self, phase: str) -> dict[str, Work]:
        """What each variant does in a phase."""
        run = self._train if phase == "train" else self._infer
        works = {}
        for name in self.forwards:
            batches = self.batches[:1] if name == "one_by_one" else self.batches
            works[name] = Work(partial(run, name, batches), _count(batches))
        floor = partial(self._products, phase)
        return {**works, "product_floor": Work(floor, _count(self.batches))}

    def _train(self, name: str, batches: Sequence[Chains]) -> None:
        for chains in batches:
            self._gradients(name, chains)

    def _infer(self, name: str, batches: Sequence[Chains]) -> None:
        with torch.no_grad():
            for chains in batches:
                self.forwards[name](chains)

    def _products(self, phase: str) -> None:
        for floor in self.floors:
            floor.run(phase)

    def _gradients(self, name: str, chains: Chains) -> tuple[Tensor, ...]:
        states, direction = self.forwards[name](chains)
        module = self.lstm if name == "packed_lstm" else self.cell
        return torch.autograd.grad((states * direction).sum(), list(module.parameters()))

    def _results(self, name: str) -> list[Tensor]:
        """States in node order, and gradients of the cell's parameters in the cell's order."""
        chains = self.batches[0]
        states = self.forwards[name](chains)[0].detach()
        gradients = self._gradients(name, chains)
        if name != "packed_lstm":
            return [states, *gradients]
        in_node_order = torch.empty_like(states).index_copy(0, chains.order, states)
        return [in_node_order, *(regrouped(grad) for grad in gradients[:3])]

    def _run_engine(self, engine: str, fuse: bool | None, chains: Chains) -> tuple[Tensor, Tensor]:
        self.network.engine, self.network.fuse = engine, fuse
        return self.network(chains.batch, {"token": chains.x})["h"], chains.direction

    def _run_packed(self, chains: Chains) -> tuple[Tensor, Tensor]:
        packed: PackedSequence = self.lstm(chains.packed)[0]
        return packed.data, chains.packed_direction

    def _run_loop(self, chains: Chains) -> tuple[Tensor, Tensor]:
        return TreeLSTMLoop((0, self.cell))(chains.batch.dag, {0: chains.x}), chains.direction

    def _floor(self, batch: Batch) -> ProductFloor:
        assert self.cell.from_x is not None
        from_x = Product(self.cell.from_x.weight, [batch.dag.num_nodes], needs_input_grad=False)
        return ProductFloor([from_x, Product(self.cell.from_h.weight, group_sizes(batch, 0))])


def _sentence_lengths(overrides: Sequence[str]) -> list[int]:
    """The words of each training sentence, in the order of the file."""
    dag = load_data(["experiment=sst_tree_lstm", *overrides]).encoded("train")
    words = dag.nodes_of_type("word")
    return torch.bincount(dag.batch[words], minlength=dag.num_graphs).tolist()


def _count(batches: Sequence[Chains]) -> int:
    return sum(chains.batch.num_graphs for chains in batches)
