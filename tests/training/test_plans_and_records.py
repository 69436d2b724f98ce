"""Query plans, from training to predictions."""

import json
from pathlib import Path

import pytest
from training.tiny_runs import run, train

SMALL = ["trainer.max_epochs=2", "data.batch_size=16"]
SCHEMAS = ["data.train_schemas=2", "data.val_schemas=1", "data.test_schemas=1", "data.queries=20"]


def predictions(folder: Path, name: str, records: list[str]) -> list[float]:
    source, output = folder / f"{name}.jsonl", folder / f"{name}.out"
    source.write_text("\n".join(records))
    assert run("predict", folder / "run", source, "--output", output) == 0
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    return [answer["prediction"] for answer in answers]


def test_a_plan_costs_the_same_alone_and_in_any_batch(tmp_path: Path) -> None:
    train(tmp_path / "run", "experiment=plans_cost", "model.hidden_size=8", *SMALL, *SCHEMAS)
    (test,) = (tmp_path / "cache").glob("plans_sqlite-*/test.jsonl")
    records = test.read_text().splitlines()
    together = predictions(tmp_path, "together", records)
    backwards = predictions(tmp_path, "backwards", records[::-1])[::-1]
    alone = [predictions(tmp_path, "alone", [record])[0] for record in records[:3]]
    assert backwards == pytest.approx(together, rel=1e-6)
    assert alone == pytest.approx(together[:3], rel=1e-6)
