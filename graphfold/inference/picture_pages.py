"""`graphfold draw`: a picture of every record of a file, and a page with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.files import check_output, whole_file, write_text
from graphfold.inference.input_files import STANDARD_INPUT, readable, shown_name
from graphfold.inference.pictures import Drawing, draw_graphs
from graphfold.inference.predict_files import Counts, quick_for_small, say_counts
from graphfold.inference.prediction import Prediction
from graphfold.inference.predictor import Predictor, Unread, as_prediction
from graphfold.pages import page_template
from graphfold.progress import shown

INDEX = "index.html"


def draw_input(
    predictor: Predictor, source: Path, folder: Path | None, target: str | None = None
) -> None:
    """Draws the records of a file: `00001.svg` and so on, and `index.html` with all of them.

    The page is written as a stream, so memory is constant. Its path is printed.

    Args:
        predictor: the model.
        source: the file; `-` is standard input.
        folder: the folder of the output, made if need be; files of the same names are replaced.
            None for one named after the file.
        target: the target whose contributions colour molecules; None for the first.

    Raises:
        DataError: if the file cannot be used as a whole, or not one record can be drawn.
        ConfigError: if the target is unknown, or the folder cannot be written to.
    """
    targets = predictor.trained.head.targets
    target = target or targets[0]
    if target not in targets:
        hint = did_you_mean(target, targets)
        raise ConfigError(f"no target '{target}'.{hint} There are: {', '.join(targets)}.")
    stem = "stdin" if source == STANDARD_INPUT else source.name.partition(".")[0]
    folder = folder or Path(f"{stem}_drawings")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file. Name a folder with --output.")
    check_output(folder / INDEX if folder.exists() else folder)
    name, counts = shown_name(source), Counter[bool]()
    title = Path(name).name
    with readable(source) as path, quick_for_small(predictor, path):
        folder.mkdir(exist_ok=True)
        records = shown(_drawn(predictor, path, target), f"drawing {title}")
        facts = {"title": title, "targets": ", ".join(targets)}
        with whole_file(folder / INDEX) as file:
            page = page_template("drawings.html")
            page.stream(facts, records=_written(records, folder, counts)).dump(file, "utf-8")
    say_counts(predictor, Counts(counts[True], counts[False]), "drawn", name)
    print(folder / INDEX)


def _drawn(
    predictor: Predictor, path: Path, target: str
) -> Iterator[tuple[Prediction, Drawing | None]]:
    """The prediction for each record, and its picture; None without a prediction."""

    def draw(dag: TypedDAG) -> Iterator[tuple[Prediction, Drawing | None]]:
        predictions = predictor.predict_graphs(dag)
        drawings = draw_graphs(predictor.trained, dag, predictions, [target] * dag.num_graphs)
        return zip(predictions, drawings, strict=True)

    for _, answer in predictor.walk(path, draw):
        yield (as_prediction(answer), None) if isinstance(answer, Unread) else answer


def _written(
    records: Iterable[tuple[Prediction, Drawing | None]], folder: Path, counts: Counter[bool]
) -> Iterator[dict[str, Any]]:
    """Writes the pictures and counts them; yields the facts of each record for the page."""
    for number, (prediction, drawing) in enumerate(records, start=1):
        counts[drawing is not None] += 1
        name = f"{number:05d}"
        if drawing is not None:
            write_text(folder / f"{name}.svg", drawing.svg + "\n")
        yield {"name": name, "record": prediction, "drawing": drawing}
