"""Predictions in the format of the input: trees in brackets, CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphfold.datasets.adapter import Adapter
from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.errors import ConfigError
from graphfold.inference.prediction import Prediction
from graphfold.layers import Head


def check_format(name: str, adapter: Adapter, head: Head) -> None:
    """Raises ConfigError unless a model's predictions have a place in a text format.

    Args:
        name: the format, "brackets" or "conllu".
        adapter: what reads the model's records.
        head: what predicts.
    """
    if adapter.text_format != name:
        read = adapter.text_format or f"what {type(adapter).__name__} reads"
        raise ConfigError(
            f"--format {name} gives back records that are {name}, but the run reads {read}."
            + (f" Write --format {read}, or leave it out." if adapter.text_format else "")
            + ("" if adapter.text_format else " Leave it out.")
        )
    strange = [target for target in head.targets if target not in adapter.written_targets]
    if head.level == "graph" or strange:
        raise ConfigError(
            f"--format {name} has no place for {', '.join(strange or head.targets)} of each "
            f"{head.level}. Leave it out: JSON lines hold every prediction."
        )


def write_back(
    adapter: Adapter, head: Head, texts: Iterable[str], predictions: Iterable[Prediction]
) -> Iterator[tuple[str, bool]]:
    """Each record in its own format, and whether it has no prediction.

    Args:
        adapter: what reads the records.
        head: what predicted.
        texts: the records, as `Adapter.texts` gives them.
        predictions: one for each.
    """
    for text, prediction in zip(texts, predictions, strict=True):
        predicted = _nodes(prediction, head.targets)
        yield adapter.write_back(text, predicted), bool(prediction.reason)


def _nodes(prediction: Prediction, targets: tuple[str, ...]) -> PredictedNodes:
    nodes = prediction.nodes or ()
    told = [node["prediction"] for node in nodes]
    values = {t: [v[t] if len(targets) > 1 else v for v in told] for t in targets}
    return PredictedNodes(prediction.reason, [node["span"] for node in nodes], values)
