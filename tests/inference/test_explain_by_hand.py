"""Contributions of atoms and words against a formula, for a bag of nodes with a small head.

Its prediction is f(Σ x_v), x_v being the vector of an atom or a word, so its gradients are a line
of autograd.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training.tiny_runs import MOLECULES, bracket_tree, run, train

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.training.run.checkpoint import Checkpoint


@dataclass
class Bag:
    """A trained bag of nodes, computed by hand from the weights of its checkpoint.

    Args:
        folder: the run.
        targets: their names.
        classes: the names of the classes; none of numbers, two of yes or no.
    """

    folder: Path
    targets: Sequence[str]
    classes: Sequence[str] = ()

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        found = Checkpoint.load(self.folder / "checkpoints" / "best.ckpt").state_dict
        return {name: value.double() for name, value in found.items()}

    def vectors(self, text: str) -> Tensor:
        """[num_nodes, width] the sum of the embeddings of the features of each atom, or word."""
        predictor = graphfold.load(self.folder)
        record = predictor.adapter.record_of(text)
        read = read_records(predictor.adapter, Path(), [record], "raise").dag
        dag = predictor.trained.spec.encode(read)
        kind = dag.schema.types[0]
        table, start, total = self.weights[f"encoder.encoders.{kind.name}.table"], 0, 0.0
        for column in kind.features:
            assert column.size is not None
            total = total + table[start + dag.features(kind.name)[column.name].long()]
            start += column.size + 1  # one is for missing codes
        assert start == len(table)
        assert isinstance(total, Tensor)
        return total

    def raw(self, x: Tensor) -> Tensor:
        """[num_outputs] of the head, for the vectors of a molecule or of a binary tree."""
        w, of_x = self.weights, ".from_x.weight"
        (cell,) = (name.removesuffix(of_x) for name in w if name.endswith(of_x))
        h = (x @ w[cell + of_x].T + w[f"{cell}.bias"]).sum(0)
        if cell == "network.cells.0.word.0":  # a phrase is above every two of words and phrases
            h = h + (len(x) - 1) * w["network.cells.0.phrase.0.bias"]
        hidden = (w["head.layers.1.weight"] @ h + w["head.layers.1.bias"]).relu()
        return w["head.layers.4.weight"] @ hidden + w["head.layers.4.bias"]

    def numbers(self, x: Tensor, chosen: int) -> Tensor:
        """[num_targets] the explained numbers; of several classes the log-odds of one."""
        raw = self.raw(x)
        if len(self.classes) > 2:
            p = raw.softmax(0)[chosen]
            return (p / (1 - p)).log().view(1)
        if self.classes:
            return raw
        return raw * self.weights["head.std"] + self.weights["head.mean"]

    def contributions(self, x: Tensor, chosen: int, steps: int = 100) -> Tensor:
        """[num_atoms, num_targets] the mean gradient along the path from zeros, times x."""

        def f(own: Tensor) -> Tensor:
            return self.numbers(own, chosen)

        path = [x * (i + 0.5) / steps for i in range(steps)]
        gradients = [torch.autograd.functional.jacobian(f, own) for own in path]
        return (torch.stack(gradients).mean(0) * x).sum(2).T


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with two numbers, one sometimes missing, yes or no, and three colours."""
    folder = tmp_path_factory.mktemp("by_hand")
    lines = ["smiles,y,z,active,colour"]
    for number in range(60):
        smiles = "C" * (number // 10) + MOLECULES[number % 10]
        z = "" if number % 4 == 1 else smiles.count("O") - smiles.count("N") + 0.1 * (number % 3)
        colour = "red" if "O" in smiles else "green" if "N" in smiles else "blue"
        lines.append(f"{smiles},{len(smiles)},{z},{'no' if 'O' in smiles else 'yes'},{colour}")
    (folder / "m.csv").write_text("\n".join(lines) + "\n")
    return folder


Make = Callable[[str], Bag]


@pytest.fixture(scope="module")
def bag(home: Path) -> Make:
    """Trains each bag once."""
    made: dict[str, Bag] = {}

    def make(name: str) -> Bag:
        if name not in made:
            classes = {"active": ("no", "yes"), "colour": ("blue", "green", "red")}.get(name, ())
            targets = ("y", "z") if name == "numbers" else (name,)
            folder = train(
                home / name, "data=smiles", "model=bag", f"data.path={home}/m.csv",
                f"data.target_columns=[{','.join(targets)}]", "data.batch_size=16",
                f"data.task={'classification' if classes else 'regression'}",
                "model.hidden_size=6", "+model.head.hidden_size=5", "trainer.max_epochs=6",
                "optimizer.lr=0.03", "calibration.method=none", "model.run=eager",
            )  # fmt: skip
            made[name] = Bag(folder, targets, classes)
        return made[name]

    return make


def explained(made: Bag) -> list[dict[str, str]]:
    out = made.folder / "explained.csv"
    table = made.folder.parent / "new.csv"
    table.write_text("smiles\nCCCO\nCC(=O)NCc1ccccc1\nC\nClCCN\nO=C=O\n")
    assert run("predict", made.folder, table, "--output", out, "--explain") == 0
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["numbers", "active", "colour"])
def test_contributions_in_the_table_are_those_of_the_formula(name, bag):
    made, largest = bag(name), 0.0
    for row in explained(made):
        x = made.vectors(row["smiles"])
        chosen = made.classes.index(row[f"{name}_pred"]) if made.classes else 0
        base = made.numbers(torch.zeros_like(x), chosen)
        want = made.contributions(x, chosen)
        for number, target in enumerate(made.targets):
            found = torch.tensor(json.loads(row[f"{target}_atom_contributions"])).double()
            own = want[:, number]
            # Along the path there are few steps, whose error is divided among the atoms.
            slack = 0.02 * float(own.abs().sum())
            torch.testing.assert_close(found, own, rtol=1e-4, atol=1e-5 + slack)
            assert float(row[f"{target}_base"]) == pytest.approx(float(base[number]), abs=1e-5)
            largest = max(largest, float(own.abs().max()))
            total = float(base[number] + found.sum())
            assert total == pytest.approx(float(made.numbers(x, chosen)[number]), abs=1e-4)
    assert largest > 0.05


def test_drawings_and_report_have_the_numbers_of_the_table(bag, monkeypatch, tmp_path):
    """`draw` and the report show the contributions that `predict` writes."""
    made, drawn = bag("numbers"), dict[str, list[float]]()

    def note(smiles: str, num_atoms: int, notes: object, by_atoms: dict[object, float]) -> str:
        assert len(by_atoms) == num_atoms
        drawn[smiles] = [*by_atoms.values()]
        return "<svg/>"

    monkeypatch.setattr("graphfold.datasets.molecules.drawing.draw_molecule", note)
    rows = explained(made)
    for target in made.targets:
        words = ("draw", made.folder, made.folder.parent / "new.csv", "--output", tmp_path / "d")
        assert run(*words, "--target", target) == 0
        for row in rows:
            wanted = json.loads(row[f"{target}_atom_contributions"])
            assert drawn[row["smiles"]] == pytest.approx(wanted, rel=0.05, abs=1e-3)  # other steps
    drawn.clear()
    assert run("train", f"resume={made.folder}", draws=True) == 0  # it writes the report again
    assert len(drawn) >= 5
    for smiles, atoms in drawn.items():
        # A molecule is coloured by the target that it is worst for.
        wants = made.contributions(made.vectors(smiles), 0).unbind(1)
        got = torch.tensor(atoms).double()
        assert any(
            torch.allclose(got, want, rtol=1e-4, atol=0.02 * float(want.abs().sum()) + 1e-5)
            for want in wants
        )


def test_contributions_of_words_are_those_of_the_formula(trees):
    out, largest = trees.folder / "explained.jsonl", 0.0
    path = trees.folder.parent / "trees.txt"
    assert run("predict", trees.folder, path, "--output", out, "--explain") == 0
    texts = path.read_text().splitlines()[:8]
    for text, line in zip(texts, out.read_text().splitlines(), strict=False):
        told, x = json.loads(line), trees.vectors(text)
        chosen = trees.classes.index(str(told["prediction"]))
        want = trees.contributions(x, chosen).flatten()
        found = torch.tensor([unit["contribution"] for unit in told["contributions"]]).double()
        slack = 0.02 * float(want.abs().sum())
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5 + slack)
        base = float(trees.numbers(torch.zeros_like(x), chosen))
        assert told["base"] == pytest.approx(base, abs=1e-5)
        largest = max(largest, float(want.abs().max()))
    assert largest > 0.01


@pytest.fixture(scope="module")
def trees(home: Path) -> Bag:
    """A bag of words for every node of a tree, five classes."""
    rng = random.Random(1)
    (home / "trees.txt").write_text("".join(f"{bracket_tree(rng)}\n" for _ in range(40)))
    folder = train(
        home / "trees", "data=brackets", "model=bag", f"data.path={home}/trees.txt",
        "data.num_classes=5", "model.hidden_size=6", "+model.head.hidden_size=5",
        "model.cells.0._every_.subtree=true", "model.readout._target_=graphfold.layers.NodeReadout",
        "trainer.max_epochs=4", "optimizer.lr=0.05", "data.batch_size=8", "model.run=eager",
        "monitor=val/loss",
    )  # fmt: skip
    return Bag(folder, ("label",), tuple("01234"))
