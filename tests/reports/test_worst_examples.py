"""Worst examples are coloured by the target that they are among the worst for."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

from training.tiny_runs import train

from graphfold.dag import TypedDAG
from graphfold.inference.pictures import Drawing


def test_molecules_are_coloured_by_the_target_with_the_largest_loss(tmp_path: Path) -> None:
    """Both targets are learned from 0 and 1; then one record of test is wrong in each."""
    rows = [f"{'C' * (n + 1)},{n % 2},{n % 2},{'val' if n % 3 else 'train'}" for n in range(12)]
    wrong = {"CCO": ("0.5", "50"), "CCN": ("-60", "0.5"), "CCF": ("", "9"), "CCCl": ("9", "")}
    rows += [f"{text},{a},{b},test" for text, (a, b) in wrong.items()]
    path = tmp_path / "m.csv"
    path.write_text("\n".join(["smiles,first,second,part", *rows]) + "\n")
    drawn: dict[str, str] = {}

    def draw(dag: TypedDAG, *_: object) -> Drawing:
        (smiles,), target = dag.strings("graph", "smiles"), str(_[-1])
        drawn[str(smiles)] = target
        return Drawing("<svg/>", "", target)

    with mock.patch("graphfold.inference.pictures.draw_graph", draw):
        folder = train(
            tmp_path / "run", "data=smiles", "model=gin", f"data.path={path}",
            "data.task=regression", "data.target_columns=[first,second]", "data.split=given",
            "data.split_column=part",
            "model.hidden_size=8", "model.run=eager", "trainer.max_epochs=1", draws=True,
        )  # fmt: skip
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert drawn == {"CCO": "second", "CCN": "first", "CCF": "second", "CCCl": "first"}
    assert "Blue atoms raise first or second, orange ones" in text
    captions = re.findall(r"coloured by (\w+) ·", text)
    assert sorted(captions) == ["first", "first", "second", "second"]
