"""How fast does each tree model train?

Every tree model of `configs/model` on the Stanford Sentiment Treebank, at one width and batch size;
models of dependencies on Universal Dependencies English EWT, of pairs on SICK. A training step is
forward, backward and the optimizer's step; trees and plans exist beforehand, and no node stands for
equal ones. The `shape` of a row is the model. Variants:

- `graphfold`: with the cells compiled, where there is a C compiler;
- `untraced`: the same engine and plan with the cells' own code (`run="eager"`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `cat_levels`: the levels joined by `torch.cat` under autograd.

    python -m benchmarks trees --batch-size 25 --hidden-size 30
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.experiment import Experiment, load_sized
from benchmarks.measure import Row, Settings
from benchmarks.variants import (
    Contest,
    Variant,
    engine_forwards,
    measure_variants,
    require_equal,
)
from graphfold.batching import Batch

SST, UD = "sst_tree_lstm", "ud_upos"

#: Model -> the experiment whose corpus it reads.
MODELS = {
    "tree_rnn": SST,
    "tree_gru": SST,
    "binary_tree_lstm": SST,
    "fold_tree_lstm": SST,
    "rntn": SST,
    "mv_rnn": SST,
    "bidirectional_tree_lstm": SST,
    "sequence_tree_lstm": SST,
    "tree_convolution": SST,
    "deep_set": SST,
    "child_sum_tree_lstm": UD,
    "relation_tree_lstm": UD,
    "attentive_tree_lstm": UD,
    "sequence_child_sum_tree_lstm": UD,
    "inside_outside": "ud_mask",
    "word_tree_lstm": "ud_relations",
    "aligned_tree_lstm": "sick_best",
}
BATCH_SIZES = (25,)
#: The matrices of an MV-RNN are the square of it, the tensor of an RNTN is its cube.
HIDDEN_SIZES = (30,)
NUM_BATCHES = 4


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every model at every width and batch size.

    Raises:
        GraphfoldError: if a corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    for hidden_size, batch_size in settings.sizes(HIDDEN_SIZES, BATCH_SIZES):
        for model in settings.chosen(MODELS):
            own = [f"experiment={MODELS[model]}", f"model={model}", "model.dropout=0"]
            found = load_sized(own, (hidden_size, batch_size), settings)
            batches = [found.plan(batch, share=False) for batch in found.batches(NUM_BATCHES)]
            require_equal(make_variants(found.double(), batches[:1]))
            setting = settings.row("trees", batch_size, hidden_size, shape=model)
            yield from measure_variants(Contest(setting, make_variants(found, batches), {}))


def make_variants(experiment: Experiment, batches: Sequence[Batch]) -> dict[str, Variant]:
    """The variants of one model, which go through the same batches."""
    model = experiment.graph_model
    return {
        name: experiment.variant(forward, batches)
        for name, forward in engine_forwards(model.network, model).items()
    }
