"""The positive class: metrics, computed again from predictions.csv, tables and messages."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.tiny_runs import MOLECULES, read_json, run, train

reference = pytest.importorskip("sklearn.metrics")

SMALL = ["model.hidden_size=8", "model.run=eager", "trainer.max_epochs=1"]
SMALL += ["calibration.method=none"]
PARTS = ("train", "train", "val", "test")
METRICS = ("roc_auc", "pr_auc", "accuracy", "f1", "macro_f1", "mcc")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def recomputed(y: Any, p: Any) -> dict[str, float | None]:
    """`METRICS` of true answers and probabilities of yes."""
    y, p = np.array(y, bool), np.array(p)
    answer = p > 0.5
    found: dict[str, float | None] = dict.fromkeys(METRICS)
    found["accuracy"] = reference.accuracy_score(y, answer)
    found["macro_f1"] = reference.f1_score(y, answer, average="macro")
    if y.any() or answer.any():
        found["f1"] = reference.f1_score(y, answer)
    if y.any():
        found["pr_auc"] = reference.average_precision_score(y, p)
    if y.any() and not y.all():
        found["roc_auc"] = reference.roc_auc_score(y, p)
        found["mcc"] = reference.matthews_corrcoef(y, answer)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Molecules with three targets of two classes: of text, with holes, and one class alone."""
    folder = tmp_path_factory.mktemp("classes")
    lines = ["smiles,kind,active,rare,w,split"]
    for row in range(120):
        smiles, part = "C" * (row // 10) + MOLECULES[row % 10], PARTS[row % 4]
        kind = ("blocked", "allowed")[row % 7 < 3]
        active = "" if row % 5 == 3 else int(row % 3 == 0)
        rare = int(part == "train" and row % 6 == 0)
        lines.append(f"{smiles},{kind},{active},{rare},{row % 3},{part}")
    (folder / "m.csv").write_text("\n".join(lines) + "\n")
    return folder


def table(home: Path, name: str, *more: str) -> Path:
    return train(
        home / name, "data=smiles", "model=dmpnn", f"data.path={home}/m.csv", *SMALL,
        "data.task=classification", "data.split=given", "data.split_column=split", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def several(home: Path) -> Path:
    return table(
        home, "several", "data.target_columns=[kind,active,rare]", "data.weight_column=w",
        "data.positive={kind: blocked, active: 0}", f"metrics=[{','.join(METRICS)}]",
    )  # fmt: skip


POSITIVE = {"kind": "blocked", "active": "0", "rare": "1"}


def test_metrics_are_those_of_the_positive_class(several):
    metrics, rows = read_json(several / "metrics.json"), read(several / "predictions.csv")
    for part in ("val", "test"):
        found = {}
        for name, positive in POSITIVE.items():
            own = [r for r in rows if r["part"] == part and r[f"{name}_measured"]]
            assert len(own) == (24 if name == "active" else 30)
            y = [row[f"{name}_measured"] == positive for row in own]
            found[name] = recomputed(y, [float(row[f"{name}_prob_{positive}"]) for row in own])
        for metric in METRICS:
            values = [found[name][metric] for name in POSITIVE]
            for name, value in zip(POSITIVE, values, strict=True):
                wanted = None if value is None else pytest.approx(value, abs=1e-6)
                assert metrics[f"{part}/{metric}/{name}"] == wanted, (metric, name)
            known = [value for value in values if value is not None]
            mean = pytest.approx(np.mean(known), abs=1e-6) if known else None
            assert metrics[f"{part}/{metric}"] == mean
        assert found["rare"]["roc_auc"] is None


def test_tables_and_report_name_the_positive_class(several, capsys):
    assert run("evaluate", several, "--split", "test") == 0
    told = "positive classes: blocked of kind, 0 of active, 1 of rare"
    assert told in capsys.readouterr().out
    assert told in (several / "report.html").read_text()


def test_the_other_positive_class_turns_probabilities_round(home):
    """Two runs that differ only in the positive class have the areas of either class."""
    auc = {}
    for positive in ("allowed", "blocked"):
        more = ["data.target_columns=[kind]", f"data.positive={positive}"]
        folder = table(home, positive, *more)
        rows = [row for row in read(folder / "predictions.csv") if row["part"] == "test"]
        y = [row["kind_measured"] == positive for row in rows]
        p = [float(row[f"kind_prob_{positive}"]) for row in rows]
        auc[positive] = reference.roc_auc_score(y, p)
        assert read_json(folder / "metrics.json")["test/roc_auc"] == pytest.approx(auc[positive])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("data.positive=alowed",), "classes of 'kind' are allowed and blocked. Did you mean"),
        (("data.positive={kindd: allowed}",), "names 'kindd', which is no target. Did you mean"),
        (("data.task=regression", "data.positive=1"), "data.positive is for classes"),
        (("data.target_columns=[active]", "data.positive=yes"), "of 'active' are 0 and 1"),
        (
            ("data.class_names={kind: [a,b,c]}", "data.positive=a"),
            "'kind' has 3 classes, of which none is the positive one",
        ),
    ],
)
def test_wrong_positive_classes_are_refused(more, message, home, capsys):
    words = ["data=smiles", f"data.path={home}/m.csv", "data.target_columns=[kind]"]
    words += ["data.task=classification", f"data.cache_dir={home}/cache", *more]
    assert run("train", *words, f"hydra.run.dir={home}/refused") == 2
    assert message in capsys.readouterr().err


def test_classes_of_a_trained_model_keep_their_order(several, home, capsys):
    for setting, classes in {
        "positive={kind: allowed, active: 0}": "the classes of 'kind' would be blocked, allowed",
        "class_names={kind: [x,blocked]}": "the classes of 'kind' would be x, blocked",
    }.items():
        for words in (["evaluate", several, "--data"], ["predict", several]):
            assert run(*words, home / "m.csv", "--set", setting) == 2
            message = capsys.readouterr().err
            assert classes in message
            assert "cannot be changed for a trained model" in message
