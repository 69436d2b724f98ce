"""How fast does a Tree-LSTM train on a treebank, and what does sharing equal nodes gain?

Binary Tree-LSTM on the Stanford Sentiment Treebank with labels on all nodes: the model of the
experiment sst_tree_lstm, Tai et al. (2015), https://arxiv.org/abs/1503.00075, with words of width
300 and without dropout, so that all variants compute the same. A training step is forward, the loss
of all nodes, backward and the optimizer's step; the batches, the first of an epoch, are planned
beforehand. The classifier reads the state of every node, whatever the plan. What sharing gains is
`graphfold` over `every_node`; what the engine gains is `every_node` over `cat_levels`. Variants, on
the same weights:

- `graphfold`: as in `graphfold train`, with the cells compiled where there is a C compiler;
- `untraced`: the same engine and plan with the cells' own code (`model.run=eager`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `every_node`: graphfold with a plan that shares nothing;
- `cat_levels`: the levels joined by `torch.cat` under autograd;
- `one_by_one`: a loop over the nodes of the first batch, the classifier once for all of them;
- `product_floor`: the matrix products of graphfold's plan alone;
- `product_floor_every_node`: those of the plan of `every_node`.

    python -m benchmarks sst --batch-size 25,256
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from torch import Tensor, nn

from benchmarks.baselines.loops import TreeLSTMLoop
from benchmarks.experiment import Experiment, load_data, load_sized
from benchmarks.measure import EQUAL_ONCE, EVERY_NODE, Row, Settings
from benchmarks.variants import (
    Contest,
    Product,
    ProductFloor,
    Variant,
    Way,
    engine_forwards,
    group_sizes,
    measure_variants,
    require_equal,
    with_way,
)
from graphfold.batching import Batch
from graphfold.errors import ConfigError
from graphfold.layers import GraphModel, LeafLSTMCell, NaryTreeLSTMCell

BATCH_SIZES = (25, 256)
HIDDEN_SIZES = (150,)

#: Batches that a call of a variant goes through, so that a figure does not depend on one of them.
NUM_BATCHES = 4

#: What makes the experiment a benchmark.
OVERRIDES = ("experiment=sst_tree_lstm", "model.encoder.size=300", "model.dropout=0")


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there, or overrides choose another kind of model.
        RuntimeError: if a variant computes something else than graphfold.
    """
    data = load_data([*OVERRIDES, *settings.overrides], settings.config_dir)
    for hidden_size, batch_size in settings.sizes(HIDDEN_SIZES, BATCH_SIZES):
        experiment = load_sized(OVERRIDES, (hidden_size, batch_size), settings, data)
        batches = experiment.batches(NUM_BATCHES)
        require_equal(make_variants(experiment.double(), batches[:1]))
        variants = make_variants(experiment, batches)
        setting = settings.row("sst", batch_size, hidden_size)
        yield from measure_variants(Contest(setting, variants, make_floors(experiment, variants)))


def make_variants(experiment: Experiment, batches: Sequence[Batch]) -> dict[str, Variant]:
    """The variants of one model.

    Args:
        experiment: the model, with what trains it.
        batches: planned as for training.
    """
    model = experiment.graph_model
    every_node = [experiment.plan(batch, share=False) for batch in batches]
    engine = engine_forwards(model.network, model)
    cat_levels = engine.pop("cat_levels")
    unshared = {
        "every_node": with_way(model.network, model, Way.of(model.network)),
        "cat_levels": cat_levels,
    }

    variant = experiment.variant
    return {
        **{name: variant(forward, batches, EQUAL_ONCE) for name, forward in engine.items()},
        **{name: variant(forward, every_node, EVERY_NODE) for name, forward in unshared.items()},
        "one_by_one": variant(partial(_run_loop, model), every_node[:1], EVERY_NODE),
    }


def make_floors(
    experiment: Experiment, variants: dict[str, Variant]
) -> dict[str, Sequence[ProductFloor]]:
    """The products of both plans."""
    return {
        name: [product_floor(experiment.graph_model, batch) for batch in variants[variant].batches]
        for name, variant in (
            ("product_floor", "graphfold"),
            ("product_floor_every_node", "every_node"),
        )
    }


def product_floor(model: GraphModel, batch: Batch) -> ProductFloor:
    """The groups of the batch's plan, and all rows of the classifier at once."""
    (leaf_type, leaf), (inner_type, inner) = _cells(model)
    products = [
        Product(leaf.from_x.weight, group_sizes(batch, leaf_type)),
        Product(inner.from_h.weight, group_sizes(batch, inner_type)),
    ]
    num_rows = len(model.head.row_graph(batch.dag))
    linear = [module for module in model.head.modules() if isinstance(module, nn.Linear)]
    return ProductFloor([*products, *(Product(layer.weight, [num_rows]) for layer in linear)])


def _run_loop(model: GraphModel, batch: Batch) -> Tensor:
    x = model.encoder(batch.dag)
    leaf, inner = _cells(model)
    loop = TreeLSTMLoop(inner, leaf)
    types = batch.dag.schema.types
    h = loop(batch.dag, {index: x[node_type.name] for index, node_type in enumerate(types)})
    raw: Tensor = model.head(h)
    return raw


def _cells(model: GraphModel) -> tuple[tuple[int, LeafLSTMCell], tuple[int, NaryTreeLSTMCell]]:
    """The cells of words and of phrases, each with its op type.

    Raises:
        ConfigError: if overrides made another model of it.
    """
    found = dict(model.network.cells[0].items())  # type: ignore[operator]
    cells = {model.network.schema.type_index(name): cells[0] for name, cells in found.items()}
    leaf = [(t, cell) for t, cell in cells.items() if isinstance(cell, LeafLSTMCell)]
    inner = [(t, cell) for t, cell in cells.items() if isinstance(cell, NaryTreeLSTMCell)]
    if len(leaf) != 1 or len(inner) != 1:
        raise ConfigError(
            "benchmark sst measures a Tree-LSTM with one cell for words and one for phrases. "
            "Leave out the overrides of model."
        )
    return leaf[0], inner[0]
