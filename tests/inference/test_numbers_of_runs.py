"""Metrics of bounded targets and of pairs, computed again from predictions.csv with NumPy."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.tiny_runs import MOLECULES, read_json, train, write_corpora
from training.tiny_runs import run as predict

PARTS = ("val", "test")
SMALL = ["model.hidden_size=8", "model.run=eager", "trainer.max_epochs=2", "data.batch_size=8"]


def rows_of(folder: Path, part: str) -> list[dict[str, str]]:
    """The lines of predictions.csv that are of a part."""
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["part"] == part]


def numbers(rows: list[dict[str, str]], name: str) -> np.ndarray:
    """A column as numbers; NaN where a cell is empty or a bound."""
    cells = [row[name] for row in rows]
    return np.array([float(c) if c and c[0] not in "<>" else math.nan for c in cells])


def agree(metrics: dict[str, Any], part: str, want: dict[str, float], target: str = "") -> None:
    """Every number that is wanted stands in metrics.json, of the whole or of a target."""
    for name, value in want.items():
        found = metrics[f"{part}/{name}/{target}" if target else f"{part}/{name}"]
        assert found == pytest.approx(value, rel=1e-4, abs=1e-6), (part, name)


def errors_of(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """The metrics of numbers."""
    stats = pytest.importorskip("scipy.stats")
    return {
        "rmse": np.sqrt(np.mean((p - y) ** 2)),
        "mae": np.mean(np.abs(p - y)),
        "mse": np.mean((p - y) ** 2),
        "r2": 1 - np.sum((p - y) ** 2) / np.sum((y - y.mean()) ** 2),
        "pearson": stats.pearsonr(p, y).statistic,
        "spearman": stats.spearmanr(p, y).statistic,
    }


# Targets with bounds


@pytest.fixture(scope="module")
def bounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three targets: half of z are bounds, y has holes, and w is only bounds where it is tested."""
    folder, rng = tmp_path_factory.mktemp("bounds"), random.Random(2)
    lines = ["smiles,z,y,w,times,part"]
    for number in range(72):
        smiles = "C" * (number // 10) + MOLECULES[number % 10]
        part = ("train", "val", "test")[number % 3]
        z = f"{rng.choice(['', '<', '>', ''])}{rng.gauss(6, 2):.2f}"
        y = "" if number % 7 == 3 else f"{len(smiles) + rng.gauss(0, 1):.2f}"
        w = f"{rng.gauss(0, 1):.2f}" if part == "train" else f"{'<>'[number % 2]}1"
        lines.append(f"{smiles},{z},{y},{w},{number % 4},{part}")
    (folder / "m.csv").write_text("\n".join(lines) + "\n")
    return train(
        folder / "run", "data=smiles", "model=gcn", f"data.path={folder}/m.csv",
        "data.target_columns=[z,y,w]", "data.bounded_targets=true", "data.split=given",
        "data.split_column=part", "data.weight_column=times", "calibration.level=0.5",
        "+model.head.target_weights={y: 3}", *SMALL,
    )  # fmt: skip


def test_the_metrics_of_bounded_targets_are_those_of_what_is_exact(bounds):
    metrics = read_json(bounds / "metrics.json")
    with (bounds.parent / "m.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    for part in PARTS:
        rows, given = rows_of(bounds, part), [row for row in table if row["part"] == part]
        by_name = {}
        for name in "zyw":
            cells = [row[name] for row in given]
            measured = [row[f"{name}_measured"] for row in rows]
            assert list(map(plain, measured)) == list(map(plain, cells))
            y, p, low, high = (
                numbers(rows, f"{name}_{w}") for w in ("measured", "pred", "lower", "upper")
            )
            if name == "w":
                assert np.isnan(y).all()
                assert metrics[f"{part}/rmse/w"] is None
                assert metrics[f"{part}/interval_coverage/w"] is None
                continue
            known = ~np.isnan(y)
            assert 5 < known.sum() < 24
            y, p, low, high = (values[known] for values in (y, p, low, high))
            by_name[name] = errors_of(y, p) | {"interval_width": np.mean(high - low)}
            agree(metrics, part, by_name[name], name)
            inside = [np.mean((low - e <= y) & (y <= high + e)) for e in (-1e-5, 1e-5)]
            assert inside[0] <= metrics[f"{part}/interval_coverage/{name}"] <= inside[1]
        agree(metrics, part, {k: (v + by_name["y"][k]) / 2 for k, v in by_name["z"].items()})


def plain(cell: str) -> tuple[str, float | None]:
    """The sign and the number of a cell."""
    number = cell.lstrip("<>")
    return cell[: len(cell) - len(number)], float(number) if number else None


def test_the_loss_of_bounded_targets_is_that_of_the_file(bounds):
    """Beyond a bound nothing, else the square; over the weighted scale of the training part."""
    metrics = read_json(bounds / "metrics.json")
    with (bounds.parent / "m.csv").open(newline="") as file:
        train = [row for row in csv.DictReader(file) if row["part"] == "train"]
    for part in PARTS:
        rows, total, weights = rows_of(bounds, part), 0.0, 0.0
        for name, weight in (("z", 1), ("y", 3), ("w", 1)):
            own = [row for row in train if row[name]]
            values = np.array([float(row[name].lstrip("<>")) for row in own])
            times = np.array([float(row["times"]) for row in own])
            mean = np.average(values, weights=times)
            std = np.sqrt(np.average((values - mean) ** 2, weights=times))
            for row in rows:
                sign, value = plain(row[f"{name}_measured"])
                if value is None:
                    continue
                error = (float(row[f"{name}_pred"]) - value) / std
                is_beyond = (sign == ">" and error >= 0) or (sign == "<" and error <= 0)
                total += 0.0 if is_beyond else weight * error**2
                weights += weight
        agree(metrics, part, {"loss": total / weights})


def test_the_intervals_of_bounded_targets_are_those_of_exact_values(bounds):
    rows = rows_of(bounds, "val")
    for name in "zy":
        y, p, high = (numbers(rows, f"{name}_{what}") for what in ("measured", "pred", "upper"))
        error = np.sort(np.abs(y - p)[~np.isnan(y)])
        rank = math.ceil(0.5 * (len(error) + 1))
        np.testing.assert_allclose(high - p, error[rank - 1], rtol=1e-4, atol=1e-5)
    assert all(row["w_lower"] == row["w_upper"] == "" for row in rows)


# Pairs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora with SICK, where some pairs have no score and others have equal ones."""
    root, rng = write_corpora(tmp_path_factory.mktemp("pairs")), random.Random(4)
    for part in ("dev", "test"):
        scores = ["NaN" if i in (1, 6) else f"{rng.uniform(1, 5):.1f}" for i in range(8)]
        scores[3] = scores[2]  # the ranks have ties
        (root / "sick" / "parsed" / part / "sim.txt").write_text("\n".join(scores) + "\n")
    return root


def test_correlations_of_pairs_are_those_of_the_file(pairs):
    run = train(
        pairs / "relatedness", "experiment=sick_tree_lstm", f"data.root={pairs}",
        "calibration.level=0.5", *SMALL, "optimizer.lr=0.3", "trainer.max_epochs=12",
    )  # fmt: skip
    metrics = read_json(run / "metrics.json")
    for part in PARTS:
        rows = rows_of(run, part)
        assert len(rows) == 8
        y, p, low, high = (
            numbers(rows, f"relatedness_{w}") for w in ("measured", "pred", "lower", "upper")
        )
        known = ~np.isnan(y)
        assert known.sum() == 6
        assert ((p > 1) & (p < 5)).all()
        assert p.std() > 0.01  # more than the last of seven digits
        assert ((low >= 1) & (low <= p) & (p <= high) & (high <= 5)).all()
        want = errors_of(y[known], p[known])
        want |= {"interval_width": np.mean((high - low)[known])}
        agree(metrics, part, want)
        agree(metrics, part, want, "relatedness")
    assert metrics["val/interval_coverage"] >= 0.5
    path = pairs / "sick" / "parsed" / "test"  # a folder that is one input
    assert predict("predict", run, path, "--output", pairs / "new.jsonl") == 0
    told = [json.loads(line) for line in (pairs / "new.jsonl").read_text().splitlines()]
    want = [float(row["relatedness_pred"]) for row in rows_of(run, "test")]
    assert [line["prediction"] for line in told] == pytest.approx(want, abs=1e-5)
