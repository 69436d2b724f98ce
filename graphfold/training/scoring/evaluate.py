"""Evaluation: the metrics of a trained model, on the data of its run or on other data."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import ConfigError, DataError
from graphfold.files import check_output, write_json
from graphfold.training.config.overrides import parse_settings
from graphfold.training.process.process import prepare_process
from graphfold.training.report.tables import describe_data, metrics_table
from graphfold.training.run.run_folder import find_checkpoint
from graphfold.training.run.trained import TrainedModel, coverage
from graphfold.training.scoring.graph_hash import hash_graphs
from graphfold.training.scoring.metrics import Metrics, warn_of_undefined
from graphfold.training.scoring.scoring import Rows


def evaluate_command(args: argparse.Namespace) -> int:
    """`graphfold evaluate`."""
    check_output(args.json)
    settings = parse_settings(args.settings)
    if args.on_error is not None:
        settings["on_error"] = args.on_error
    if args.batch_size is not None:
        settings["batch_size"] = args.batch_size
    metrics = evaluate(args.run_path, args.data, args.split, settings, args.trust, verbose=True)
    if args.json is not None:
        write_json(args.json, metrics)
    print(metrics_table(metrics))
    return 0


def evaluate(
    run: Path,
    path: Path | None = None,
    split: str | None = None,
    settings: Mapping[str, Any] | None = None,
    trusted: Collection[str] = (),
    verbose: bool = False,
) -> Metrics:
    """Scores a trained model, with the threads of its run.

    Args:
        run: a run folder or a checkpoint file.
        path: other data, all of whose records are scored, under test/. For these it is also said
            how many occur in the training part (test/overlap), and each metric without them
            (test/accuracy_unseen).
        split: train, val or test of the run's own data; None for val and test.
        settings: keys of the config group `data` that differ from the run's.
        trusted: third-party packages that may be imported.
        verbose: whether to print what data were read.

    Returns:
        One flat mapping with the keys of metrics.json; undefined metrics are None.

    Raises:
        GraphfoldError: if run or data cannot be used, or the run's data changed.
    """
    if path is not None and split is not None:
        raise ConfigError("--split divides the run's own data. Give --data or --split, not both.")
    trained = TrainedModel.load(find_checkpoint(run), trusted)
    prepare_process(trained.checkpoint.config)
    if path is None:
        data = trained.data(settings or {})
        data.prepare({"split": trained.checkpoint.split, "spec": trained.checkpoint.spec})
        metrics = _score_parts(trained, data, [split] if split else ["val", "test"])
    else:
        data = trained.data({**(settings or {}), "path": str(path)})
        data.prepare_for_scoring(trained.spec)
        metrics = _score_new(trained, data)
    if verbose:
        print(describe_data(data))
    warn_of_undefined(metrics)
    return metrics


def score_part(trained: TrainedModel, data: DataModule, part: str) -> tuple[Metrics, Rows]:
    """The metrics of one part, as metrics.json has them, and the rows behind them."""
    rows = trained.score(data, part)
    scores = {**trained.metrics(rows), "coverage": coverage(data)}
    return {f"{part}/{name}": value for name, value in scores.items()}, rows


def _score_parts(trained: TrainedModel, data: DataModule, parts: list[str]) -> Metrics:
    metrics: Metrics = {}
    for part in parts:
        if len(data.split.part(part)):
            metrics |= score_part(trained, data, part)[0]
    if not metrics:
        raise DataError(f"the {' and '.join(parts)} part of the run has no record. Choose another.")
    return metrics


def _score_new(trained: TrainedModel, data: DataModule) -> Metrics:
    metrics, rows = score_part(trained, data, "test")
    is_seen = torch.isin(hash_graphs(data.raw), trained.checkpoint.training_records)
    unseen = trained.metrics(rows.at(~is_seen))
    metrics["test/overlap"] = int(is_seen.sum())
    for name, value in unseen.items():
        metric, slash, task = name.partition("/")
        metrics[f"test/{metric}_unseen{slash}{task}"] = value
    return metrics
