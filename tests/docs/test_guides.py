"""The pages for newcomers: their commands and code run as they stand, in order, in one folder.

Commands on data of the page are run; a training takes one epoch. A command that needs a corpus, or
minutes, only has its configuration composed.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from thinned import thinned
from training.tiny_runs import run

from graphfold.training.config.compose import Sources, sweep_words

DOCS = Path(__file__).parents[2] / "docs"
#: The pages, and how many files each makes.
PAGES = {"first_steps": 0, "molecules": 4, "trees": 5}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def write_files(page: str, folder: Path) -> list[str]:
    """Writes the files of a page, which are announced by their names."""
    found = re.findall(r"`([\w.]+)`:\n\n```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for name, content in found:
        (folder / name).write_text(content)
    return [name for name, _ in found]


def commands(block: str) -> list[list[str]]:
    """The words of the commands of graphfold in a block."""
    parts = [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]
    return [words[1:] for words in parts if words and words[0] == "graphfold"]


def run_command(words: list[str], folder: Path) -> None:
    if "-m" in words:  # what is swept is composed
        sweep_words([word for word in words[1:] if word != "-m"], Sources())
        return
    if words[0] == "train" and not any(word.startswith("data.path=") for word in words):
        words = [word for word in words if word not in ("--cfg", "job")] + ["--cfg", "job"]
    elif words[0] in ("train", "tune") and not any(word.startswith("resume=") for word in words):
        words = [*words, "trainer.max_epochs=1", f"data.cache_dir={folder}/cache", "logger=none"]
        words.append("model.run=eager")  # to compile takes longer than an epoch
    assert run(*words) == 0, words


@pytest.mark.parametrize(("name", "count"), thinned(PAGES.items(), [("first_steps", 0)]))
def test_commands_and_code_run_and_print_what_they_promise(
    name, count, tmp_path, monkeypatch, capsys
):
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    files = write_files(page, tmp_path)
    assert len(files) == len(set(files)) == count
    output, namespace = "", {"__name__": name}
    for language, block in FENCE.findall(page):
        if language == "sh":
            for words in commands(block):
                run_command(words, tmp_path)
            output = capsys.readouterr().out
        elif language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, f"{name}.md", "exec"), namespace)
            output = printed.getvalue()
        elif language == "output":  # but for numbers that training decides
            lines = [line for line in block.splitlines() if not re.search(r"\d\.\d", line)]
            assert lines
            assert set(lines) <= set(output.splitlines())
