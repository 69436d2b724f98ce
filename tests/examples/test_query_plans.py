"""The folder of query plans: its commands run, and plans that cannot be read have a reason."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from example_files import FOLDER
from training.tiny_runs import read_json, run

QUERY_PLANS = FOLDER / "query_plans"
QUICK = ["trainer.max_epochs=2", "model.hidden_size=8", "+model.run=eager", "logger=none"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, from which its module is imported."""
    copied = shutil.copytree(QUERY_PLANS, tmp_path / "query_plans")
    monkeypatch.chdir(copied)
    monkeypatch.syspath_prepend(copied)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(copied)


def run_readme(folder: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    for line in block.splitlines():
        program, *words = shlex.split(line)
        if program == "graphfold":
            assert run(*words, *(QUICK if words[0] == "train" else [])) == 0, line


def test_the_commands_of_the_page_run(folder):
    run_readme(folder)
    metrics = read_json(folder / "runs" / "plans" / "metrics.json")
    assert metrics["test/q_error"] >= 1
    answers = [json.loads(line) for line in (folder / "costs.jsonl").read_text().splitlines()]
    assert len(answers) == 20
    assert all(answer["prediction"] > 0 for answer in answers)
    lines = (folder / "plans.jsonl").read_text().splitlines()
    plan = json.loads(lines[0])[0]["Plan"]
    unread = [
        json.dumps({"Plan": plan}),
        "[1",
        '{"Query": 1}',
        json.dumps({"Plan": {**plan, "Plan Rows": "many"}}),
    ]
    Path("new.jsonl").write_text("\n".join(unread))
    words = ["runs/plans", "new.jsonl", "--trust", "postgresql_plans", "--output", "new.out"]
    assert run("predict", *words) == 0
    read, *others = map(json.loads, Path("new.out").read_text().splitlines())
    assert read["prediction"] == pytest.approx(answers[0]["prediction"], rel=1e-5)
    faults = ("is no JSON", "has no 'Plan'", "'Plan Rows' is 'many', which is no number")
    for answer, fault in zip(others, faults, strict=True):
        assert fault in answer["reason"]


def test_measured_numbers_are_targets_and_no_features(folder):
    from postgresql_plans import PlansAdapter  # type: ignore[import-not-found]

    lines = (folder / "plans.jsonl").read_text().splitlines()
    (statement,) = json.loads(lines[1])
    statement["Plan"] |= {"Actual Rows": 77, "Actual Total Time": 1.5}
    del statement["Execution Time"]
    (folder / "measured.jsonl").write_text("\n".join([json.dumps(statement), *lines]))
    words = ["postgresql_plans.PlansAdapter", "--data", "measured.jsonl", "--json", "card.json"]
    assert run("check-adapter", *words) == 0
    card = read_json(folder / "card.json")
    assert (card["records"], card["skipped"]) == (20, 1)
    assert card["reasons"][0]["reason"] == "the statement has no 'Execution Time'"
    names = [column.name for column in PlansAdapter().schema.types[0].features]
    assert not [name for name in names if "Actual" in name]


def test_only_public_names_are_imported():
    tree = ast.parse((QUERY_PLANS / "postgresql_plans.py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {str(name) for name in modules if str(name).startswith("graphfold")}
    assert ours == {
        f"graphfold.{name}"
        for name in ("batching", "dag", "datasets", "errors", "layers", "metrics")
    }
