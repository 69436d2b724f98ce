"""What does a chain cost, compared with torch's own LSTM?

Sentences of the Stanford Sentiment Treebank as chains: each token has one child, the token before
it; the first has an absent one. `NaryTreeLSTMCell` of arity 1 then is an LSTM. Every token has a
random vector that needs no gradient. A training step is forward and backward to the weights, the
input projection included; every state takes part in the loss. No two tokens are equal. Variants, on
the same weights:

- `graphfold`: with the cell compiled, where there is a C compiler;
- `untraced`: the same engine and plan with the cell's own code (`run="eager"`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `cat_levels`: the levels joined by `torch.cat` under autograd;
- `packed_lstm`: `torch.nn.LSTM` over packed sequences, packed beforehand;
- `one_by_one`: a loop over the tokens of the first batch;
- `product_floor`: the matrix products of graphfold's plan alone.

    python -m benchmarks sequence --batch-size 64 --hidden-size 256
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from benchmarks.baselines.loops import TreeLSTMLoop
from benchmarks.experiment import load_data
from benchmarks.measure import Row, Settings
from benchmarks.variants import (
    Contest,
    Forward,
    Product,
    ProductFloor,
    Variant,
    engine_forwards,
    group_sizes,
    measure_variants,
    require_equal,
)
from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import NaryTreeLSTMCell

SCHEMA = Schema((NodeType("token", 1),))
BATCH_SIZES = (64,)
HIDDEN_SIZES = (256,)

#: Batches that a call of a variant goes through.
NUM_BATCHES = 4

#: The cell's blocks f, i, o, u in torch's order i, f, g, o; the way back is the same.
_ORDER = (1, 0, 3, 2)


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    own = ["experiment=sst_tree_lstm", *settings.overrides]
    dag = load_data(own, settings.config_dir).encoded("train")
    lengths = torch.bincount(dag.batch[dag.nodes_of_type("word")]).tolist()
    for hidden_size, batch_size in settings.sizes(HIDDEN_SIZES, BATCH_SIZES):
        parts = [lengths[i * batch_size : (i + 1) * batch_size] for i in range(NUM_BATCHES)]
        cell = NaryTreeLSTMCell(hidden_size, hidden_size, arity=1).to(settings.device)
        require_equal(make_variants(cell.double(), parts[:1]))
        variants = make_variants(cell.float(), [part for part in parts if part])
        floors = [product_floor(cell, one.batch) for one in variants["graphfold"].batches]
        setting = settings.row("sequence", batch_size, hidden_size)
        yield from measure_variants(Contest(setting, variants, {"product_floor": floors}))


class Chains:
    """A batch of sentences, as graphs and as packed sequences.

    Args:
        lengths: how many tokens each sentence has.
        like: gives the precision and the device, and its last dimension the width of the tokens.
    """

    def __init__(self, lengths: Sequence[int], like: Tensor) -> None:
        dag = chain_graphs(lengths)
        self.batch = Batch(dag, build_schedule(dag, [Up()])).to(like.device)
        self.x = like.new_empty(dag.num_nodes, like.shape[-1]).normal_()
        # Factors of the states in the loss, so that no two gradients are equal.
        self.direction = torch.randn_like(self.x)
        numbers = torch.split(torch.arange(dag.num_nodes, device=like.device), list(lengths))
        self.packed = pack_sequence([self.x[part] for part in numbers], enforce_sorted=False)
        #: The node of each packed row.
        self.order = pack_sequence(list(numbers), enforce_sorted=False).data


def make_variants(
    cell: NaryTreeLSTMCell, lengths: Sequence[Sequence[int]]
) -> Mapping[str, Variant]:
    """The variants of one LSTM.

    Args:
        cell: of arity 1; gives precision and device.
        lengths: for each batch, the lengths of its sentences.
    """
    network = Network(SCHEMA, (Up(), {"token": cell}))
    loop = TreeLSTMLoop((0, cell))
    lstm = torch_lstm(cell)
    batches = [Chains(part, cell.from_h.weight) for part in lengths]

    def engine(chains: Chains) -> Tensor:
        states: Tensor = network(chains.batch, {"token": chains.x})["h"]
        return states

    def packed(chains: Chains) -> Tensor:
        states: PackedSequence = lstm(chains.packed)[0]
        return states.data

    def one_by_one(chains: Chains) -> Tensor:
        return loop(chains.batch.dag, {0: chains.x})

    def variant(forward: Forward, count: int | None = None) -> Variant:
        own, parameters = batches[:count], list(cell.parameters())
        return Variant(forward, own, _count(own), _loss, parameters, network)

    def packed_loss(states: Tensor, chains: Chains) -> Tensor:
        return (states * chains.direction[chains.order]).sum()

    def in_order(results: list[Tensor]) -> list[Tensor]:
        """In node order; the gradients of the second bias are those of the first again."""
        states, *gradients = results
        own = torch.empty_like(states).index_copy(0, batches[0].order, states)
        return [own, *map(regrouped, gradients[:3])]

    found = {name: variant(forward) for name, forward in engine_forwards(network, engine).items()}
    count, parameters = _count(batches), list(lstm.parameters())
    found["packed_lstm"] = Variant(
        packed, batches, count, packed_loss, parameters, lstm, in_order=in_order
    )
    return {**found, "one_by_one": variant(one_by_one, 1)}


def product_floor(cell: NaryTreeLSTMCell, batch: Batch) -> ProductFloor:
    """The input projection of all tokens at once, then the groups."""
    assert cell.from_x is not None
    from_x = Product(cell.from_x.weight, [batch.dag.num_nodes], needs_input_grad=False)
    return ProductFloor([from_x, Product(cell.from_h.weight, group_sizes(batch, 0))])


def chain_graphs(lengths: Sequence[int]) -> TypedDAG:
    """A chain of tokens for each length; the first token's child is absent."""
    builder = GraphBuilder(SCHEMA)
    for length in lengths:
        node = builder.node("token", [None])
        for _ in range(length - 1):
            node = builder.node("token", [node])
        builder.output(node)
        builder.finish()
    return builder.build()


def torch_lstm(cell: NaryTreeLSTMCell) -> nn.LSTM:
    """`torch.nn.LSTM` with the weights of a cell of arity 1; its second bias is zero."""
    assert cell.from_x is not None
    weight = cell.from_x.weight
    lstm = nn.LSTM(weight.shape[1], cell.fields["h"], device=weight.device, dtype=weight.dtype)
    weights = {
        "weight_ih_l0": regrouped(weight),
        "weight_hh_l0": regrouped(cell.from_h.weight),
        "bias_ih_l0": regrouped(cell.from_h.bias),
        "bias_hh_l0": torch.zeros_like(cell.from_h.bias),
    }
    lstm.load_state_dict(weights)
    return lstm


def regrouped(weight: Tensor) -> Tensor:
    """The four blocks of rows of a weight from the cell's order to torch's, or back."""
    blocks = weight.chunk(4)
    return torch.cat([blocks[index] for index in _ORDER])


def _loss(states: Tensor, chains: Chains) -> Tensor:
    return (states * chains.direction).sum()


def _count(batches: Sequence[Chains]) -> int:
    return sum(chains.batch.num_graphs for chains in batches)
