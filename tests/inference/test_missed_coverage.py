"""Coverage that is too low to be chance: the probability, and the sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training.tiny_runs import run, train

from graphfold.dag import Column, NodeType, Schema
from graphfold.inference.evaluate import coverage_chance, missed_coverage
from graphfold.layers import MultiLabelHead, RegressionHead
from graphfold.layers.heads.eval_rows import EvalRows, Predicted
from graphfold.layers.uncertainty.conformal import conformal_rank
from graphfold.layers.uncertainty.intervals import Intervals
from graphfold.layers.uncertainty.probabilities import Probabilities

NAN = float("nan")
TYPES = (NodeType("atom", 0),)
NUMBERS = Schema(types=TYPES, graph_targets=(Column("a"), Column("b")))
ASSAY = Schema(types=TYPES, graph_targets=(Column("t", "int64", size=2),))


@pytest.mark.parametrize("calibrated", [9, 30, 1000])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_chance_is_that_of_a_beta_binomial_distribution(calibrated: int, level: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    rank = conformal_rank(calibrated, level)
    theirs = stats.betabinom(113, rank, calibrated + 1 - rank)
    for count in (0, 49, 90, 100, 113):
        got = coverage_chance(count, 113, calibrated, level)
        assert got == pytest.approx(theirs.cdf(count), rel=1e-6)


def test_the_chance_is_what_happens() -> None:
    """3,000 times 20 scores for calibration and 30 new ones: how often at most k are covered."""
    scores = torch.rand(3000, 50, generator=torch.Generator().manual_seed(0))
    quantile = scores[:, :20].kthvalue(conformal_rank(20, 0.9), dim=1, keepdim=True).values
    covered = (scores[:, 20:] <= quantile).sum(1)
    for count in (22, 25, 28):
        share = float((covered <= count).double().mean())
        assert coverage_chance(count, 30, 20, 0.9) == pytest.approx(share, abs=0.03)


def test_too_few_records_cover_everything() -> None:
    assert coverage_chance(0, 100, 8, 0.9) == 1


def rows(predicted: Predicted, target: torch.Tensor) -> EvalRows:
    count = len(predicted)
    graph = torch.arange(count)
    return EvalRows(predicted, target, torch.zeros(count), graph, graph >= 0, count)


def test_only_targets_that_miss_by_far_are_told() -> None:
    torch.manual_seed(0)
    head = RegressionHead(3, NUMBERS)
    predicted, y = Predicted(torch.zeros(200, 2)), torch.randn(200, 2)
    fitted = Intervals.fit(head, 0.9, predicted[:100], y[:100])
    new = fitted(predicted[100:])
    assert missed_coverage(fitted, {"test": rows(new, y[100:])}) == []
    y[100:, 1] = 10.0
    y[100:150, 1] = NAN
    y[150:160, 1] = 0.0
    (sentence,) = missed_coverage(fitted, {"test": rows(new, y[100:])})
    assert sentence.startswith("test: 20% of the true values of b (10 of 50) are in their 90% int")
    assert sentence.endswith("and on such records intervals are too narrow.")
    (of_random,) = missed_coverage(fitted, {"test": rows(new, y[100:])}, is_random=True)
    assert "unlike" not in of_random
    assert of_random.endswith(
        "By chance that is rare: the validation part, which chose the epoch, too, flatters the "
        "model, so intervals are too narrow."
    )
    assert missed_coverage(fitted, {"val": rows(new, y[100:])}) == []
    assert missed_coverage(None, {"test": rows(new, y[100:])}) == []


def test_of_many_targets_one_may_miss_by_chance() -> None:
    """A coverage with a chance of 1 in 2,000 is told of one target, and not of ten."""
    torch.manual_seed(0)
    said = []
    for count in (1, 10):
        names = [f"t{n}" for n in range(count)]
        head = RegressionHead(3, Schema(types=TYPES, graph_targets=tuple(map(Column, names))))
        y = torch.randn(200, count)
        fitted = Intervals.fit(head, 0.9, Predicted(torch.zeros(100, count)), y[:100])
        covered = next(n for n in range(101) if coverage_chance(n, 100, 100, 0.9) > 5e-4)
        y[100:] = torch.where(torch.arange(100) < covered, 0.0, 99.0).unsqueeze(1)
        y[100:, 1:] = 0.0
        new = fitted(Predicted(torch.zeros(100, count)))
        said.append(missed_coverage(fitted, {"test": rows(new, y[100:])}))
    assert [len(sentences) for sentences in said] == [1, 0]


def test_sets_that_miss_are_told() -> None:
    head = MultiLabelHead(3, ASSAY)
    torch.manual_seed(0)
    p = torch.rand(100, 1)
    y = (p > 0.5).float()
    fitted = Probabilities.fit(head, 0.9, None, "aps", Predicted(p), y)
    assert missed_coverage(fitted, {"test": rows(fitted(Predicted(p)), y)}) == []
    (sentence,) = missed_coverage(fitted, {"test": rows(fitted(Predicted(p)), 1 - y)})
    assert "0% of the true classes of t (0 of 100) are in their 90% set." in sentence
    assert "sets are too small" in sentence


def test_a_run_says_so_in_table_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The values of the test part are a hundred times those that were learnt from."""
    lines = ["smiles,y,split"]
    for row in range(60):
        part = ("train", "val", "test")[row % 3]
        lines.append(f"{'C' * (row // 3 + 1)},{(row % 7) * (100 if part == 'test' else 1)},{part}")
    table = tmp_path / "m.csv"
    table.write_text("\n".join(lines) + "\n")
    folder = train(
        tmp_path / "run", "data=smiles", "model=gcn", f"data.path={table}", "model.hidden_size=4",
        "data.target_columns=[y]", "data.split=given", "data.split_column=split",
        "model.fuse=false", "trainer.max_epochs=1",
    )  # fmt: skip
    told = "of the true values of y"
    assert told in capsys.readouterr().out
    assert told in (folder / "report.html").read_text()
    assert run("evaluate", folder, "--split", "test") == 0
    assert told in capsys.readouterr().out
    assert run("evaluate", folder, "--split", "val") == 0
    assert told not in capsys.readouterr().out
    table.write_text("\n".join([lines[0], *lines[3::3]]) + "\n")
    assert run("evaluate", folder, "--data", table) == 0
    assert told in capsys.readouterr().out
