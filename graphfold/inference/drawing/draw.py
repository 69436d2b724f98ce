"""`graphfold draw`: a picture of every record of a file, and index.html, in constant memory.

The page needs no other file and is written as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from graphfold.dag import TypedDAG, select
from graphfold.errors import ConfigError, RecordError
from graphfold.files import check_output, write_text
from graphfold.inference.apply import Job, apply, read_input
from graphfold.inference.drawing.drawing import Drawing, draw_graph
from graphfold.inference.drawing.marks import colours_of
from graphfold.inference.drawing.svg import escaped, ink_on
from graphfold.inference.inputs import Input, find_input
from graphfold.inference.output import require_input, write_answers
from graphfold.inference.prediction import Prediction
from graphfold.inference.predictor import Predictor, Unread

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; background: #f7fafc; margin: 0; }
main { max-width: 1200px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 22px; margin: 0 0 4px; }
p.note { color: #4a5568; font-size: 13px; margin: 0 0 14px; }
.legend { margin: 0 0 18px; }
.legend span { border-radius: 10px; display: inline-block; font-size: 13px; margin: 0 4px 4px 0;
  padding: 1px 10px; }
figure { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; margin: 0 0 14px;
  overflow-x: auto; padding: 12px 16px; content-visibility: auto; contain-intrinsic-size: 300px; }
figcaption { font-size: 14px; margin: 0 0 8px; white-space: pre-wrap; }
figcaption a, figcaption b { color: #4a5568; font-size: 13px; font-weight: 600; }
.bad { border-color: #e3a39c; } .bad figcaption i { color: #b03a2e; font-style: normal; }
svg { display: block; }
"""


def page_head(title: str, note: str, colours: Mapping[str, str]) -> str:
    """The beginning of the page, with a legend of the classes."""
    legend = "".join(
        f'<span style="background:{colour};color:{ink_on(colour)}">{escaped(label)}</span>'
        for label, colour in colours.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escaped(title)}</h1><p class="note">{escaped(note)}</p>'
        f'<div class="legend">{legend}</div>\n'
    )


def page_figure(name: str, line: int, drawing: Drawing) -> str:
    """One record with its text and its picture."""
    told = f"\n{escaped(drawing.told)}" if drawing.told else ""
    return (
        f'<figure id="{name}"><figcaption><a href="{name}.svg">line {line}</a> '
        f"<bdi>{escaped(drawing.text)}</bdi>{told}</figcaption>{drawing.svg}</figure>\n"
    )


def page_fault(name: str, line: int, reason: str) -> str:
    """One record that could not be read or drawn."""
    return (
        f'<figure class="bad" id="{name}"><figcaption><b>line {line}</b> '
        f"<i>{escaped(reason)}</i></figcaption></figure>\n"
    )


def page_end() -> str:
    """The end of the page."""
    return "</main></body></html>\n"


INDEX = "index.html"


def draw_files(job: Job, folder: Path | None, limit: int | None = None) -> None:
    """Draws the records of a job's input, and prints where the page is; see `draw_file`.

    Args:
        job: the model, and the one file.
        folder: where to write; None for a folder that is called after the file.
        limit: how many records are drawn; None for all.
    """
    given = find_input(Path(job.inputs[0]))
    drawn = folder or Path(f"{given.name.name.partition('.')[0]}_drawings")
    _check_folder(drawn)

    def draw(predictor: Predictor, given: Input) -> tuple[int, int]:
        def draw_path(path: Path) -> tuple[int, int]:
            return draw_file(predictor, path, drawn, limit, given.shown)

        return read_input(job, predictor, given, draw_path)

    apply(job, lambda predictor, _: nullcontext(partial(map, partial(draw, predictor))), "drawn")
    print(drawn / INDEX)


def draw_file(
    predictor: Predictor,
    path: Path,
    folder: Path,
    limit: int | None = None,
    title: str | None = None,
) -> tuple[int, int]:
    """Draws the records of a file: `00001.svg` and so on, and `index.html` with all of them.

    Args:
        predictor: the model.
        path: the file.
        folder: where to write; it is made if need be, files of the same names are replaced.
        limit: how many records are drawn; None for all.
        title: what the page calls the file; None for its path.

    Returns:
        How many records were drawn, and how many could not be read or drawn.

    Raises:
        DataError: if the file cannot be used as a whole.
    """
    require_input(path)
    folder.mkdir(exist_ok=True)
    return write_answers(
        predictor,
        path,
        folder / INDEX,
        lambda skip: _page(predictor, path, folder, limit, title or str(path), skip),
        "drawing",
        {"limit": limit, "title": title},
    )


def _page(
    predictor: Predictor, path: Path, folder: Path, limit: int | None, title: str, skip: int
) -> Iterator[tuple[str, bool | None]]:
    """The text of the page, record by record, whose pictures are written on the way."""
    answers = predictor.walk(path, partial(_draw_graphs, predictor), skip, limit)
    head = predictor.trained.head
    if not skip:
        colours = colours_of(head)
        yield page_head(Path(title).name, f"{title} · {', '.join(head.targets)}", colours), None
    for number, (_, answer) in enumerate(answers, start=skip + 1):
        name = f"{number:05d}"
        if isinstance(answer, Unread):
            yield page_fault(name, answer.line, answer.reason), True
        else:
            line, drawing = answer
            write_text(folder / f"{name}.svg", drawing.svg + "\n")
            yield page_figure(name, line, drawing), False
    yield page_end(), None


def _draw_graphs(predictor: Predictor, dag: TypedDAG) -> Iterator[tuple[int, Drawing] | Unread]:
    """The line and the picture of each graph, or why there is none."""
    for graph, prediction in enumerate(predictor.predict_graphs(dag)):
        yield _draw_one(predictor, select(dag, [graph]), prediction)


def _draw_one(
    predictor: Predictor, dag: TypedDAG, prediction: Prediction
) -> tuple[int, Drawing] | Unread:
    if prediction.reason:
        return Unread(prediction.line, prediction.reason)
    head = predictor.trained.head
    try:
        return prediction.line, draw_graph(dag, prediction, head)
    except RecordError as error:
        return Unread(prediction.line, error.fault)


def _check_folder(folder: Path) -> None:
    """Raises ConfigError, before any work, if no files can be written into a folder."""
    if folder.is_dir():
        check_output(folder / INDEX)
    elif folder.exists():
        raise ConfigError(f"{folder}: is a file. Name a folder with --output.")
    else:
        check_output(folder)
