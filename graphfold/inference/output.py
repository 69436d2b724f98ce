"""The texts for the records of a file, in an output that goes on where it was broken off."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import torch

from graphfold.continued import Part, continued
from graphfold.datasets.storage.fingerprint import content_hash
from graphfold.errors import DataError
from graphfold.files import is_stream, whole_file
from graphfold.inference.predictor import Predictor
from graphfold.progress import shown
from graphfold.training.run.trained import TrainedModel

#: The texts of all records but the first so many, each with whether the record is a bad one; None
#: with a text that belongs to no record.
Lines: TypeAlias = Callable[[int], Iterator[tuple[str, bool | None]]]


def write_answers(
    predictor: Predictor,
    path: Path,
    output: Path | None,
    lines: Lines,
    doing: str,
    options: Mapping[str, Any],
) -> tuple[int, int]:
    """Writes a text for each record of a file, and shows how far it is.

    Into a file they are written whole or not at all. Broken off, the same work goes on from the
    last whole batch, so that every batch holds the records that it would have held: the output is
    that of unbroken work, byte for byte.

    Args:
        predictor: the model.
        path: the file of the records.
        output: the file to write, or a pipe or a device; None for standard output.
        lines: the texts of the records.
        doing: what is done, for the progress.
        options: what the texts depend on, beside the model and the file.

    Returns:
        How many records were good, and how many bad.
    """
    doing = f"{doing} {path.name}"
    predictor.choose_anew()
    if output is None or is_stream(output) or not path.exists() or is_stream(path):
        counts = [0, 0]
        with open_output(output) as file:
            for text, is_bad in shown(lines(0), doing, _is_record):
                file.write(text)
                if is_bad is not None:
                    counts[is_bad] += 1
        return counts[0], counts[1]
    with continued(output, work_of(predictor, path, options)) as part:
        counts = part.facts.setdefault("counts", [0, 0])
        before = predictor.num_changed
        predictor.num_changed += part.facts.get("changed", 0)
        _take_choices(predictor, part.facts)
        file = io.TextIOWrapper(
            part.file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True
        )
        for text, is_bad in shown(lines(part.records), doing, _is_record, done=part.records):
            file.write(text)
            if is_bad is not None:
                counts[is_bad] += 1
                _note_batch(predictor, part, sum(counts), predictor.num_changed - before)
        file.detach()
    return counts[0], counts[1]


def _is_record(line: tuple[str, bool | None]) -> bool:
    return line[1] is not None


def _note_batch(predictor: Predictor, part: Part, records: int, changed: int) -> None:
    if records % predictor.batch_size == 0:
        part.facts |= {"policy": predictor.policy, "share": predictor.share, "changed": changed}
        part.done(records)


def _take_choices(predictor: Predictor, facts: Mapping[str, Any]) -> None:
    """Computes as before: choices that the first batch made decide the last digits."""
    predictor.policy = facts.get("policy", predictor.policy)
    predictor.share = facts.get("share", predictor.share)


def work_of(predictor: Predictor, path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that answers to the records of a file depend on, to the last digit."""
    return {
        "input": content_hash(predictor.adapter, path),
        "model": _model_hash(predictor.trained),
        "settings": {**predictor.settings, "batch_size": predictor.batch_size},
        "options": dict(options),
        "versions": [version("graphfold"), torch.__version__],
        "machine": [torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()],
    }


def _model_hash(trained: TrainedModel) -> str:
    """The sha256 of a model as it is in memory: its file may be gone, or its weights changed."""
    checkpoint = trained.checkpoint
    facts = [checkpoint.config, checkpoint.spec, checkpoint.calibration]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, weight in sorted(trained.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def require_input(path: Path) -> None:
    """Raises DataError if there is no such file."""
    if not path.exists():
        raise DataError(f"{path}: no such file. Correct the path.", path=str(path))


def csv_line(cells: Sequence[Any]) -> str:
    """A line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A text file that is written whole or not at all; standard output for None.

    What is written to a pipe or a device goes there at once.

    Surrogates stand for bytes that are not UTF-8, as in `Adapter.text_of`.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # as files are
        yield sys.stdout
        return
    with open(path, "wb") if is_stream(path) else whole_file(path) as file:
        text = io.TextIOWrapper(
            file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True
        )
        yield text
        text.flush()
        text.detach()
