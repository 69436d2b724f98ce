"""Weights of records: a whole weight is the record so often, 1 is no weight, 0 is no record."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from thinned import thinned
from training.one_step import Step, both_agree, take_step
from training.tiny_runs import read_json, run, train

from graphfold.training.run.checkpoint import Checkpoint

COLUMNS = ["smiles", "y", "z", "kind", "name", "active", "shift", "bound", "t", "set", "w"]
PARTS = ("train", "train", "train", "val", "test")


def molecules() -> list[dict[str, Any]]:
    """200 different molecules with weights from 0 to 3, and targets of every kind with holes."""
    ends = ("C", "O", "N", "Cl", "F", "Br", "S", "C#N", "C=O", "c1ccccc1")
    rows = []
    for number in range(200):
        chain, end = "C" * (1 + number // 10), ends[number % 10]
        atoms = len([sign for sign in (chain + end) if sign.isupper() or sign == "c"])
        rows.append(
            {
                "smiles": chain + end,
                "y": 0.5 + number % 7 + 0.1 * (number // 10),
                "z": "" if number % 3 == 1 else (number * 37) % 11 - 5,
                "kind": (number * 5) % 3,
                "name": ("no", "yes")[number % 4 == 0],
                "active": "" if number % 5 == 2 else int(number % 6 < 2),
                "shift": [(number + atom) % 5 / 2 for atom in range(atoms)],
                "bound": f"{('', '>', '<')[number % 3]}{number % 13}",
                "t": 20 + number % 9,
                "set": PARTS[number % 5],
                "w": number % 4,
            }
        )
    return rows


def write(path: Path, rows: Iterable[dict[str, Any]], columns: list[str] = COLUMNS) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the molecules: weighed, repeated as often, with weights of one, and without."""
    folder = tmp_path_factory.mktemp("weights")
    rows = molecules()
    write(folder / "weighed.csv", rows)
    counts = [row["w"] if row["set"] == "train" else 1 for row in rows]
    write(folder / "repeated.csv", [r for r, n in zip(rows, counts, strict=True) for _ in range(n)])
    write(folder / "ones.csv", [{**row, "w": 1} for row in rows])
    write(folder / "plain.csv", rows, COLUMNS[:-1])
    return folder


BASE = [
    "data=smiles", "data.split=given", "data.split_column=set", "model.hidden_size=8",
    "model.dropout=0.0", "trainer.max_epochs=1", "data.policy=depth",
    "calibration.method=none", "model.run=eager",
]  # fmt: skip
NUMBERS = ["model=dmpnn", "data.target_columns=[y]"]
HEADS = {
    "mse": NUMBERS,
    "several": ["model=dmpnn", "data.target_columns=[y,z]", "+model.head.target_weights={z: 3}"],
    "mae": [*NUMBERS, "+model.head.loss=mae"],
    "huber": [*NUMBERS, "+model.head.loss=huber"],
    "quantile": [*NUMBERS, "+model.head.loss=quantile"],
    "mean_variance": [*NUMBERS, "+model.head.loss=mean_variance"],
    "evidential": [*NUMBERS, "+model.head.loss=evidential"],
    "bounds": ["model=dmpnn", "data.target_columns=[bound]", "data.bounded_targets=true"],
    "inputs": [*NUMBERS, "data.features_from={graph: [t]}", "data.descriptors=[rdkit2d]"],
    "degrees": ["model=pna", "data.target_columns=[y]", "model.cells.0._every_.norm=null"],
    "assays": [
        "model=dmpnn", "data.target_columns=[name,active]", "data.task=classification",
        "data.class_names={name: [no,yes]}", "+model.head.class_weights=balanced",
    ],
    "classes": [
        "model=dmpnn", "data.target_columns=[kind]", "data.task=classification",
        "data.num_classes=3", "+model.head.class_weights=balanced",
    ],
    "atoms": [
        "model=dmpnn", "data.target_columns=[]", "data.atom_target_columns=[shift]",
        "model.readout._target_=graphfold.layers.OutputReadout", "loss.reduction=per_node",
    ],
}  # fmt: skip
TakeStep = Callable[..., Step]


@pytest.fixture(scope="module")
def step(home: Path) -> TakeStep:
    """One step over the training part of a table."""

    def run_step(table: str, *overrides: str, **processes: Any) -> Step:
        path = [f"data.path={home}/{table}.csv", f"data.cache_dir={home}/cache"]
        return take_step(*BASE, *path, *overrides, **processes)

    return run_step


WEIGHED = "data.weight_column=w"

#: Each loss once, and bounds and classes; a tenth of the others runs with every change.
FAST = ("mse", "mae", "huber", "quantile", "mean_variance", "evidential", "bounds", "classes")


@pytest.mark.parametrize("head", thinned(HEADS, FAST))
def test_a_whole_weight_is_the_record_so_often(head: str, step: TakeStep) -> None:
    both_agree(step("weighed", WEIGHED, *HEADS[head]), step("repeated", *HEADS[head]))


@pytest.mark.parametrize(
    "more",
    [
        ("data.batch_size=16", "trainer.accumulate_grad_batches=100"),
        ("data.batch_size=100", "data.max_nodes=150", "trainer.accumulate_grad_batches=100"),
    ],
)
def test_the_denominator_is_the_weight_of_the_whole_step(
    more: tuple[str, ...], step: TakeStep
) -> None:
    both_agree(step("weighed", WEIGHED, *NUMBERS, *more), step("weighed", WEIGHED, *NUMBERS))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("several", ()),
        pytest.param(
            "atoms",
            ("data.batch_size=13", "trainer.accumulate_grad_batches=100"),
            marks=pytest.mark.slow,
        ),
        # There are steps in which one process, or both, have records of weight 0 alone.
        ("classes", ("data.batch_size=1", "trainer.accumulate_grad_batches=1000")),
    ],
)
def test_two_processes_have_the_denominator_of_one(
    head: str, more: tuple[str, ...], step: TakeStep
) -> None:
    """The weights of a step are added up over all processes."""
    words = (WEIGHED, *HEADS[head])
    apart = step("weighed", *words, *more, devices=2)
    both_agree(apart, step("weighed", *words))
    both_agree(apart, step("repeated", *words[1:]))


SMALL = ["model=dmpnn", "data.target_columns=[y,z]", "model.dropout=0.2", "data.batch_size=40"]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return Checkpoint.load(folder / "checkpoints" / "best.ckpt").state_dict


@pytest.fixture(scope="module")
def ensembles(home: Path) -> list[Path]:
    """Runs of two members, with calibration: of weights that are one, and without weights."""
    words = [word for word in BASE if not word.startswith(("model.dropout", "calibration"))]
    common = [*words, *SMALL, f"data.cache_dir={home}/cache", "ensemble=2", "trainer.max_epochs=2"]
    return [
        train(home / f"run_{table}", *common, f"data.path={home}/{table}.csv", *more)
        for table, more in (("ones", [WEIGHED]), ("plain", []))
    ]


def test_weights_of_one_change_no_bit_of_a_run_with_dropout_batches_and_members(
    ensembles: list[Path], home: Path, tmp_path: Path
) -> None:
    ones, plain = (read_json(folder / "metrics.json") for folder in ensembles)
    assert ones == plain
    first, second = map(weights_of, ensembles)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_other_data_need_neither_weights_nor_parts(
    ensembles: list[Path], home: Path, tmp_path: Path
) -> None:
    bare = write(tmp_path / "bare.csv", molecules(), ["smiles", "y", "z"])
    whole = home / "ones.csv"
    for number, path in enumerate((bare, whole)):
        out, scores = tmp_path / f"{number}.csv", tmp_path / f"{number}.json"
        assert run("predict", ensembles[0], path, "--output", out) == 0
        assert run("evaluate", ensembles[0], "--data", path, "--json", scores) == 0
    assert read_json(tmp_path / "0.json") == read_json(tmp_path / "1.json")
    rows = [[*csv.DictReader((tmp_path / f"{n}.csv").read_text().splitlines())] for n in (0, 1)]
    assert [row["y_pred"] for row in rows[0]] == [row["y_pred"] for row in rows[1]]
