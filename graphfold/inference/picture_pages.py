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
    """Draws the records of an input, and prints the path of the page; see `draw_file`.

    Args:
        predictor: the model.
        source: the file; `-` is standard input.
        folder: the folder of the output; None for one named after the file.
        target: the target whose contributions colour molecules; None for the first.
    """
    name = shown_name(source)
    stem = "stdin" if source == STANDARD_INPUT else source.name.partition(".")[0]
    drawn = folder or Path(f"{stem}_drawings")
    if drawn.exists() and not drawn.is_dir():
        raise ConfigError(f"{drawn}: is a file. Name a folder with --output.")
    check_output(drawn / INDEX if drawn.exists() else drawn)
    with readable(source) as path, quick_for_small(predictor, path):
        counts = draw_file(predictor, path, drawn, Path(name).name, target)
    say_counts(predictor, counts, "drawn", name)
    print(drawn / INDEX)


def draw_file(
    predictor: Predictor, path: Path, folder: Path, title: str, target: str | None = None
) -> Counts:
    """Draws the records of a file: `00001.svg` and so on, and `index.html` with all of them.

    The page is written as a stream, so memory is constant.

    Args:
        predictor: the model.
        path: the file.
        folder: the folder of the output, made if need be; files of the same names are replaced.
        title: of the page.
        target: the target whose contributions colour molecules; None for the first.

    Returns:
        How many records were drawn, and how many could not be read or predicted.

    Raises:
        DataError: if the file cannot be used as a whole.
        ConfigError: if there is no such target.
    """
    targets = predictor.trained.head.targets
    target = target or targets[0]
    if target not in targets:
        hint = did_you_mean(target, targets)
        raise ConfigError(f"no target '{target}'.{hint} There are: {', '.join(targets)}.")
    folder.mkdir(exist_ok=True)
    counts: Counter[bool] = Counter()

    def records() -> Iterator[dict[str, Any]]:
        def draw(dag: TypedDAG) -> Iterator[tuple[Prediction, Drawing | None]]:
            predictions = predictor.predict_graphs(dag)
            targets = [target] * dag.num_graphs
            drawings = draw_graphs(predictor.trained, dag, predictions, targets)
            return zip(predictions, drawings, strict=True)

        for number, (_, answer) in enumerate(predictor.walk(path, draw), start=1):
            if isinstance(answer, Unread):
                answer = as_prediction(answer), None
            prediction, drawing = answer
            counts[drawing is not None] += 1
            name = f"{number:05d}"
            if drawing is not None:
                write_text(folder / f"{name}.svg", drawing.svg + "\n")
            yield {"name": name, "record": prediction, "drawing": drawing}

    with whole_file(folder / INDEX) as file:
        records_shown = shown(records(), f"drawing {title}")
        page = page_template("drawings.html").stream(
            title=title, targets=", ".join(targets), records=records_shown
        )
        page.dump(file, encoding="utf-8")
    return Counts(counts[True], counts[False])
