"""Query plans and JSON records, from training to predictions."""

import json
from pathlib import Path

import pytest
from training.tiny_runs import read_json, run, train

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


def test_records_of_ones_own_are_learnt_and_predicted(tmp_path: Path) -> None:
    """A known answer: whether some item of a list is red. Other records may have other keys."""
    colours = ["red", "blue", "green"]
    records = []
    for number in range(120):
        items = [{"colour": colours[(number * k) % 3], "ключ": k} for k in range(1, number % 4 + 1)]
        is_red = any(item["colour"] == "red" for item in items)
        records.append(json.dumps({"items": items, "label": "yes" if is_red else "no"}))
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(records))
    own = ["data=json", f"data.path={path}", "data.target=$.label", "optimizer.lr=0.01"]
    own += ["monitor=val/loss", "trainer.max_epochs=15", "data.batch_size=16"]
    folder = train(tmp_path / "run", *own)
    assert read_json(folder / "metrics.json")["test/accuracy"] == 1
    new = ['{"items": [{"colour": "red", "new": [1]}], "more": {}}', '{"items": "red"}', "[", "{}"]
    output = tmp_path / "answers"
    source = tmp_path / "new.jsonl"
    source.write_text("\n".join(new))
    assert run("predict", folder, source, "--output", output) == 0
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [bool(answer["reason"]) for answer in answers] == [False, False, True, False]
    assert answers[0]["prediction"] == "yes"
