"""index.html of a folder of drawings: a page that needs no other file, written as a stream."""

from __future__ import annotations

from collections.abc import Mapping

from graphfold.inference.drawing.colours import ink_on
from graphfold.inference.drawing.drawing import Drawing
from graphfold.inference.drawing.svg import escaped

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
