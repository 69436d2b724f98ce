"""`graphfold draw`: a picture of every record of a file, and a page with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
    if target is not None and target not in targets:
        hint = did_you_mean(target, targets)
        raise ConfigError(f"no target '{target}'.{hint} There are: {', '.join(targets)}.")
    stem = "stdin" if source == STANDARD_INPUT else source.name.partition(".")[0]
    folder = folder or Path(f"{stem}_drawings")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file. Name a folder with --output.")
    check_output(folder / INDEX if folder.exists() else folder)
    name, counts = shown_name(source), Counter[bool]()
    with readable(source) as path, quick_for_small(predictor, path):
        folder.mkdir(exist_ok=True)
        records = _drawn(predictor, path, folder, target or targets[0], counts)
        with whole_file(folder / INDEX) as file:
            facts = {"title": Path(name).name, "targets": ", ".join(targets), "records": records}
            page_template("drawings.html").stream(facts).dump(file, "utf-8")
    say_counts(predictor, Counts(counts[True], counts[False]), "drawn", name)
    print(folder / INDEX)


def _drawn(
    predictor: Predictor, path: Path, folder: Path, target: str, counts: Counter[bool]
) -> Iterator[dict[str, Any]]:
    """Writes the picture of each record; yields the facts of each record for the page."""

    def draw(dag: TypedDAG) -> Iterator[tuple[Prediction, Drawing | None]]:
        predictions = predictor.predict_graphs(dag)
        drawings = draw_graphs(predictor.trained, dag, predictions, [target] * dag.num_graphs)
        return zip(predictions, drawings, strict=True)

    answers = shown(predictor.walk(path, draw), f"drawing {path.name}")
    for number, (_, answer) in enumerate(answers, start=1):
        record, drawing = (as_prediction(answer), None) if isinstance(answer, Unread) else answer
        counts[drawing is not None] += 1
        if drawing is not None:
            write_text(folder / f"{number:05d}.svg", drawing.svg + "\n")
        yield {"name": f"{number:05d}", "record": record, "drawing": drawing}
