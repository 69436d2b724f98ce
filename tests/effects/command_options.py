"""Options of the commands: what they change in files, in what is printed, and in exit codes."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from effects.lab import Lab
from effects.table import Rows
from training.tiny_runs import read_json

from graphfold.batching import POLICIES, Batch, States
from graphfold.layers import GraphModel

ROWS = row = Rows()

#: Every command, with words that are wrong.
WRONG = {
    "train": ["data=absent"],
    "evaluate": ["absent"],
    "predict": ["absent", "absent.csv"],
    "draw": ["absent", "absent.csv"],
    "tune": ["data=absent"],
    "check-adapter": ["absent"],
    "verify": ["absent"],
    "list": ["--config-dir", "absent"],
}

#: The commands that apply a run to a file, and what they write for molecules.
APPLIED = ("predict", "draw")


def command_of(option: str) -> str:
    return option.partition(" ")[0]


def ok(lab: Lab, *words: str | Path) -> str:
    """What a command prints; it must succeed."""
    code, printed, errors = lab.command(*words)
    assert code == 0, errors
    return printed


def refused(lab: Lab, *words: str | Path) -> str:
    """The message of a command that is refused."""
    code, _, errors = lab.command(*words)
    assert code == 2, errors
    assert "Traceback" not in errors
    return errors


def table(lab: Lab) -> Path:
    return lab.folder / "molecules.csv"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def own_config(lab: Lab) -> Path:
    """A folder of config files of one's own: data and an experiment called `mine`."""
    lab.write(
        "own/data/mine.yaml",
        "defaults: [_base]\nadapter: brackets\nnum_classes: 5\nbinarize: true\n",
    )
    text = [
        "# @package _global_",
        "# My experiment.",
        "defaults:",
        "  - override /data: mine",
        "data:",
        f"  path: {lab.folder}/trees.txt",
        "model: {hidden_size: 6}",
    ]
    lab.write("own/experiment/mine.yaml", "\n".join(text))
    return lab.folder / "own"


# All commands


@row.changes(
    [f"{command} --debug" for command in ("graphfold", *WRONG)],
    "an error comes with its traceback; without, it is one message",
)
def _(lab, option):
    command = command_of(option)
    name = "train" if command == "graphfold" else command
    before, after = (["--debug"], []) if command == "graphfold" else ([], ["--debug"])
    plain = lab.command(name, *WRONG[name])
    shown = lab.command(*before, name, *WRONG[name], *after)
    assert plain[0] == shown[0] == 2
    assert "Traceback" not in plain[2]
    assert "Traceback" in shown[2]
    assert shown[2].endswith(plain[2])


@row.changes("graphfold --version", "versions and what the machine has, in six lines")
def _(lab):
    import graphfold

    lines = ok(lab, "--version").splitlines()
    assert [line.split()[0].rstrip(":") for line in lines] == [
        *("graphfold", "python", "torch", "processor", "native", "GPU")
    ]
    assert lines[0] == f"graphfold {graphfold.__version__}"
    assert torch.__version__ in lines[2]


def trusted_words(lab: Lab, command: str) -> list[str | Path]:
    """A use of a command with a stored run that names a class of the package `effects`."""
    own = "model.head._target_=effects.spies.OwnHead"
    run = lab.run("molecules", own).folder
    if command == "train":
        return [f"resume={run}"]
    if command in APPLIED:
        return [run, table(lab), *(["--output", lab.folder / "d"] if command == "draw" else [])]
    return [run, *(["--examples", "2"] if command == "verify" else [])]


@row.changes(
    [f"{command} --trust" for command in ("train", "evaluate", *APPLIED, "verify")],
    "a package that a stored run names is imported; without, the run is refused",
)
def _(lab, option):
    command = command_of(option)
    words = trusted_words(lab, command)
    assert "--trust effects" in refused(lab, command, *words)
    ok(lab, command, *words, "--trust", "effects")


@row.nothing(
    ["check-adapter --trust", "list --trust"], "what the user's own words name needs no trust"
)
def _(lab, option):
    command = command_of(option)
    words = ["brackets", "--data", lab.folder / "trees.txt"] if command != "list" else []
    plain, trusting = (ok(lab, command, *words, *more) for more in ([], ["--trust", "effects"]))
    assert _without_speed(plain) == _without_speed(trusting)


def _without_speed(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("speed")]


@row.changes(
    [f"{command} --config-dir" for command in ("train", "tune", "verify", "check-adapter", "list")],
    "files of one's own stand beside graphfold's",
)
def _(lab, option):
    command, folder = command_of(option), own_config(lab)
    words: dict[str, list[str | Path]] = {
        "train": ["--cfg", "job", "experiment=mine"],
        "tune": [
            *("experiment=mine", "tune.trials=1", "optimizer.lr=0.1,0.2", "logger=none"),
            *(f"hydra.run.dir={lab.folder}/mine", "trainer.max_epochs=1", "data.num_workers=0"),
            *(f"data.cache_dir={lab.folder}/cache", "model.fuse=false"),
        ],
        "verify": [
            *("experiment=mine", "--examples", "2", f"data.cache_dir={lab.folder}/cache"),
        ],
        "check-adapter": ["mine", "--data", lab.folder / "trees.txt"],
        "list": [],
    }
    if command == "list":
        assert "My experiment." not in ok(lab, "list")
        assert "My experiment." in ok(lab, "list", "--config-dir", folder)
        return
    assert "mine" in refused(lab, command, *words[command])
    with mock.patch("graphfold.search.start_run", return_value=mock.Mock(get=lambda _: 1.0)):
        ok(lab, command, *words[command], "--config-dir", folder)


# A run and its input


@row.nothing(
    [f"{command} RUN" for command in ("evaluate", *APPLIED)],
    "a run folder and its best.ckpt are the same model",
)
def _(lab, option):
    command, run = command_of(option), lab.run("molecules").folder
    found = []
    for name in (run, run / "checkpoints" / "best.ckpt"):
        folder = lab.folder / f"drawn{len(found)}"
        more = {"draw": [table(lab), "--output", folder], "evaluate": []}.get(command, [table(lab)])
        printed = ok(lab, command, name, *more)
        found.append(_files(folder) if command == "draw" else printed)
    assert found[0] == found[1]
    assert "absent" in refused(lab, command, lab.folder / "absent", *more[:1])


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.svg"))}


@row.changes([f"{command} INPUT" for command in APPLIED], "the records that it is applied to")
def _(lab, option):
    command, run = command_of(option), lab.run("molecules").folder
    two = lab.write("two.csv", "smiles\nCCO\nCC\n")
    if command == "draw":
        ok(lab, "draw", run, two, "--output", lab.folder / "two")
        assert len(_files(lab.folder / "two")) == 2
        return
    found, every = (rows(ok(lab, command, run, path)) for path in (two, table(lab)))
    assert [r["smiles"] for r in found] == ["CCO", "CC"]
    by_smiles = {r["smiles"]: r for r in every}
    for r in found:  # the same molecule has the same answer in another file
        own = {k: v for k, v in r.items() if k in by_smiles[r["smiles"]]}
        assert own.items() <= by_smiles[r["smiles"]].items()


@row.nothing(
    [f"{command} --batch-size" for command in ("evaluate", *APPLIED)],
    "how many are predicted at once changes no answer",
)
def _(lab, option):
    command, run = command_of(option), lab.run("molecules").folder
    found, sizes, states = [], [], GraphModel.states

    def note(model: GraphModel, batch: Batch) -> States:
        sizes.append(batch.num_graphs)
        return states(model, batch)

    for size in ("1", "7", "100"):
        folder = lab.folder / f"batched{size}"
        more = {
            "draw": [table(lab), "--output", folder],
            "evaluate": ["--data", table(lab)],
        }.get(command, [table(lab)])
        sizes.clear()
        with mock.patch.object(GraphModel, "states", note):
            printed = ok(lab, command, run, *more, "--batch-size", size)
        found.append(_files(folder) if command == "draw" else printed)
        assert max(sizes) == min(int(size), 30)
    if command == "draw":
        assert [*found[0]] == [*found[1]]
    numbers = [_numbers(str(text)) for text in found]
    for other in numbers[1:]:
        np.testing.assert_allclose(numbers[0], other, rtol=1e-4, atol=1e-4)
    assert "0" in refused(lab, command, run, *more, "--batch-size", "0")


def _numbers(text: str) -> list[float]:
    words = text.replace(",", " ").replace("_", " ").split()
    return [float(word) for word in words if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", word)]


@row.changes(
    [f"{command} --set" for command in ("evaluate", *APPLIED)],
    "keys of the data that differ from the run's, one or several",
)
def _(lab, option):
    command, run = command_of(option), lab.run("molecules").folder
    renamed = lab.write("renamed.csv", "structure,y\nCCO,1.5\nCC,2.5\nC,1.0\n")
    given = ["--data", renamed] if command == "evaluate" else [renamed]
    more = ["--output", lab.folder / "renamed"] if command == "draw" else []
    words = [command, run, *given, *more]
    assert "smiles" in refused(lab, *words)
    ok(lab, *words, "--set", "smiles_column=structure", "batch_size=2")


# train


@row.changes("train --multirun", "one run for each combination of values")
def _(lab, tmp_path):
    words = [*lab.base("molecules"), "optimizer.lr=0.1,0.2", f"hydra.sweep.dir={tmp_path}"]
    assert "Add -m" in refused(lab, "train", *words) or "multirun" in refused(lab, "train", *words)
    with mock.patch("graphfold.reports.report.write_report"):
        ok(lab, "train", "--multirun", *words)
    configs = [yaml.safe_load(path.read_text()) for path in tmp_path.glob("*/config.yaml")]
    assert sorted(config["optimizer"]["lr"] for config in configs) == [0.1, 0.2]


@row.changes("train --cfg", "the config is shown, and nothing is trained")
def _(lab):
    before = sorted(os.listdir(lab.folder))
    shown = yaml.safe_load(ok(lab, "train", "--cfg", "job", *lab.base("molecules"), "seed=7"))
    assert (shown["seed"], shown["data"]["adapter"]) == (7, "smiles")
    assert "hydra" in yaml.safe_load(ok(lab, "train", "--cfg", "all"))
    assert sorted(os.listdir(lab.folder)) == before


@row.changes(
    ["hydra.job_logging.root.level", "hydra.job_logging.handlers.console.stream"],
    "messages of logging of a lower level are shown; they go to another stream",
)
def _(lab, tmp_path):
    def printed(*words: str) -> tuple[bool, bool]:
        def say(*_: Any, **__: Any) -> None:
            logging.getLogger("mine").info("told by mine")

        with mock.patch("graphfold.reports.report.write_report", side_effect=say):
            folder = f"hydra.run.dir={tmp_path}/{len(os.listdir(tmp_path))}"
            code, out, errors = lab.command("train", *lab.base("molecules"), folder, *words)
        assert code == 0, errors
        return "told by mine" in out, "told by mine" in errors

    level = "hydra.job_logging.root.level=INFO"
    stream = "hydra.job_logging.handlers.console.stream='ext://sys.stdout'"
    assert printed() == printed(stream) == (False, False)
    assert printed(level) == (False, True)
    assert printed(level, stream) == (True, False)


@row.changes("train --resolve", "with --cfg, what stands for other values is filled in")
def _(lab):
    plain, filled = (
        yaml.safe_load(ok(lab, "train", "--cfg", "job", *lab.base("trees"), *more))
        for more in ([], ["--resolve"])
    )
    assert plain["data"]["seed"] == "${seed}"
    assert filled["data"]["seed"] == 1


# evaluate


@row.changes("evaluate --json", "the metrics as one flat object, as metrics.json has them")
def _(lab, tmp_path):
    run = lab.run("molecules")
    printed = ok(lab, "evaluate", run.folder, "--json", tmp_path / "m.json")
    assert read_json(tmp_path / "m.json") == run.metrics
    assert "rmse" in printed


@row.changes("evaluate --data", "every record of that file is scored, under test/")
def _(lab, tmp_path):
    run = lab.run("molecules").folder
    ok(lab, "evaluate", run, "--data", table(lab), "--json", tmp_path / "m.json")
    found = read_json(tmp_path / "m.json")
    answers = rows(ok(lab, "predict", run, table(lab)))
    errors = [float(r["y_pred"]) - float(r["y"]) for r in answers]
    assert found["test/rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-5)
    assert not any(name.startswith("val/") for name in found)


@row.changes("evaluate --split", "that part alone is scored")
def _(lab, tmp_path):
    run = lab.run("molecules")
    for part in ("train", "val", "test"):
        ok(lab, "evaluate", run.folder, "--split", part, "--json", tmp_path / "m.json")
        found = read_json(tmp_path / "m.json")
        assert {name.partition("/")[0] for name in found} == {part}
        if part != "train":
            assert found.items() <= run.metrics.items()


@row.changes("evaluate --on-error", "skip scores the records that can be read; raise stops")
def _(lab, tmp_path):
    run = lab.run("molecules").folder
    bad = lab.write("bad.csv", table(lab).read_text() + "C1CC,1,1,yes\n")
    words = ["evaluate", run, "--data", bad, "--json", tmp_path / "m.json"]
    assert "bad.csv:32" in refused(lab, *words, "--on-error", "raise")
    ok(lab, *words, "--on-error", "skip")
    skipped = read_json(tmp_path / "m.json")
    ok(lab, "evaluate", run, "--data", table(lab), "--json", tmp_path / "m.json")
    assert skipped["test/rmse"] == read_json(tmp_path / "m.json")["test/rmse"]
    assert skipped["test/coverage"] == pytest.approx(30 / 31)


@row.changes("evaluate --per-class", "also precision, recall and F1 of every class, and a table")
def _(lab, tmp_path):
    run = lab.run("classes").folder
    found = []
    for more in ([], ["--per-class"]):
        printed = ok(lab, "evaluate", run, *more, "--json", tmp_path / "m.json")
        found.append((printed, {*read_json(tmp_path / "m.json")}))
    assert "a row for each true class" in found[1][0]
    assert "a row for each true class" not in found[0][0]
    assert {"test/precision/yes", "test/recall/no"} <= found[1][1] - found[0][1]


# predict, draw


@row.changes("predict --output", "what would be printed is written to that file")
def _(lab, tmp_path):
    words = ["predict", lab.run("molecules").folder, table(lab)]
    printed = ok(lab, *words)
    assert ok(lab, *words, "--output", tmp_path / "p.csv") == ""
    assert rows((tmp_path / "p.csv").read_text()) == rows(printed)


@row.changes("predict --explain", "what each atom contributes")
def _(lab):
    words = ["predict", lab.run("molecules").folder, table(lab)]
    plain, found = rows(ok(lab, *words)), rows(ok(lab, *words, "--explain"))
    assert [r["y_pred"] for r in found] == [r["y_pred"] for r in plain]
    assert len(json.loads(found[2]["y_atom_contributions"])) == 3  # CCO


@row.changes(
    "predict --format", "trees come back as they were, with predicted labels; tables as Parquet"
)
def _(lab, tmp_path):
    run, name = lab.run("molecules").folder, tmp_path / "p"
    ok(lab, "predict", run, table(lab), "--output", name, "--format", "parquet")
    found, expected = pq.read_table(name).to_pylist(), rows(ok(lab, "predict", run, table(lab)))
    assert [{k: "" if v is None else str(v) for k, v in r.items()} for r in found] == expected
    path = lab.folder / "trees.txt"
    words = ["predict", lab.run("trees").folder, path]
    lines = [json.loads(line) for line in ok(lab, *words).splitlines() if line.startswith("{")]
    trees = [t for t in ok(lab, *words, "--format", "brackets").splitlines() if t.startswith("(")]
    assert len(trees) == len(lines) == 30
    for tree, line, source in zip(trees, lines, path.read_text().splitlines(), strict=True):
        assert tree[1] == str(line["prediction"])
        bare = [[c for c in text if not c.isdigit()] for text in (tree, source)]
        assert bare[0] == bare[1]


@row.changes("predict --embeddings", "the vector that the head reads, in place of predictions")
def _(lab, tmp_path):
    words = ["predict", lab.run("molecules").folder, table(lab), "--embeddings"]
    printed = rows(ok(lab, *words))
    names = [name for name in printed[0] if name.startswith("embedding_")]
    expected = np.array([[float(r[name]) for name in names] for r in printed])
    assert expected.shape == (30, 8)
    ok(lab, *words, "--output", tmp_path / "e.npy")
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), expected, rtol=1e-5)


@row.changes("predict --shard", "every so many of the inputs are done, the others are other jobs'")
def _(lab, tmp_path):
    run, out = lab.run("molecules").folder, tmp_path.parent / f"{tmp_path.name}-out"
    for number in range(5):
        (tmp_path / f"{number}.csv").write_text(f"smiles\n{'C' * (number + 1)}\n")
    for job, wanted in (("1/2", [0, 2, 4]), ("2/2", [0, 1, 2, 3, 4])):
        ok(lab, "predict", run, tmp_path, "--output", out, "--shard", job)
        assert sorted(p.name for p in out.iterdir()) == [f"{number}.csv" for number in wanted]
    assert "is no share" in refused(lab, "predict", run, table(lab), "--shard", "3/2")


@row.changes("draw --output", "the folder of the pictures; by default INPUT_drawings, here")
def _(lab, tmp_path, monkeypatch):
    words = ["draw", lab.run("molecules").folder, lab.write("two.csv", "smiles\nCCO\nCC\n")]
    ok(lab, *words, "--output", tmp_path / "given")
    monkeypatch.chdir(tmp_path)
    ok(lab, *words)
    (chosen,) = [p for p in tmp_path.iterdir() if p.name.endswith("_drawings")]
    assert _files(chosen) == _files(tmp_path / "given")
    assert (chosen / "index.html").is_file()


@row.changes("draw --target", "the target whose contributions colour molecules")
def _(lab, tmp_path):
    words = ["draw", lab.run("molecules").folder, table(lab), "--output", tmp_path / "d"]
    ok(lab, *words, "--target", "y")
    assert "no target 'x'" in refused(lab, *words, "--target", "x")


# check-adapter


def card(lab: Lab, path: Path, *words: str | Path) -> dict[str, Any]:
    ok(lab, "check-adapter", *words, "--json", path)
    return read_json(path)


@row.changes("check-adapter NAME", "an adapter, or a corpus with its files under data.root")
def _(lab, tmp_path):
    by_name = card(lab, tmp_path / "c.json", "sst", "--set", f"root={lab.corpora}")
    assert by_name["splits"] == {"train": 12, "val": 12, "test": 12}
    assert "absent" in refused(lab, "check-adapter", "absent")


@row.changes(["check-adapter --data", "check-adapter --json"], "the file, and where its card goes")
def _(lab, tmp_path):
    found = card(lab, tmp_path / "c.json", "brackets", "--data", lab.folder / "trees.txt")
    assert (found["records"], found["nodes"], found["skipped"]) == (30, 270, 0)
    assert "needs a file to read" in refused(lab, "check-adapter", "brackets")


@row.changes("check-adapter --set", "options of the adapter, one or several")
def _(lab, tmp_path):
    words = ("smiles", "--data", table(lab))
    plain = card(lab, tmp_path / "c.json", *words)
    more = card(lab, tmp_path / "c.json", *words, "--set", "explicit_hydrogens=true", "salts=strip")
    assert more["nodes"] > plain["nodes"]


@row.changes("check-adapter --on-error", "skip counts bad records and says why; raise stops")
def _(lab, tmp_path):
    bad = lab.write("bad.csv", table(lab).read_text() + "C1CC,1,1,yes\n")
    words = ("smiles", "--data", bad)
    assert "bad.csv:32" in refused(lab, "check-adapter", *words, "--on-error", "raise")
    found = card(lab, tmp_path / "c.json", *words, "--on-error", "skip")
    assert (found["records"], found["skipped"], found["reasons"][0]["line"]) == (30, 1, 32)


# verify, list


def verified(lab: Lab, path: Path, *more: str) -> Any:
    ok(lab, "verify", lab.run("trees").folder, "--json", path, *more)
    return json.loads(path.read_text())


@row.changes(["verify --examples", "verify --json"], "how many graphs are compared, and where")
def _(lab, tmp_path):
    for count in (1, 3):
        found = verified(lab, tmp_path / "v.json", "--examples", str(count))
        assert found["examples"] == count
        assert {row["policy"] for row in found["comparisons"]} == {*POLICIES}


@row.changes("list --markdown", "the page of options that `make docs` writes")
def _(lab):
    page = ok(lab, "list", "--markdown")
    assert page.startswith("# Options")
    assert "\n| `dmpnn` | " in page
    assert "`configs/train.yaml`" in page
    assert "| `dmpnn` |" not in ok(lab, "list")
