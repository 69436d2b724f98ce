"""Sentences of other libraries as CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterable


def conllu_line(*cells: object) -> str:
    """The ten columns of a token; `_` for no value."""
    texts = (" ".join(str(cell).split()) if cell is not None else "" for cell in cells)
    return "\t".join(text or "_" for text in texts)


def conllu_text(text: str, lines: Iterable[str]) -> str:
    """A sentence with its comment `# text`."""
    return "\n".join([f"# text = {' '.join(text.split())}", *lines, ""])
