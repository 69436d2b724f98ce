"""`graphfold compare`: from run folders to one table, one plot and one sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch

from graphfold.errors import ConfigError, did_you_mean
from graphfold.files import check_output, write_json
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.metrics import find_metric
from graphfold.metrics.registry import TASKS, builtin_metrics
from graphfold.studies.compare.bootstrap import Score, compare_records
from graphfold.studies.compare.results import Result, models_of, read_results
from graphfold.studies.compare.statistics import Comparison, compare_means, scipy_stats
from graphfold.studies.compare.verdicts import Verdicts
from graphfold.training.config.trust import refuse_unregistered
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring import HeadMetrics, lower_is_better

#: The endings of files of pictures.
_ENDINGS = (".svg", ".png", ".pdf")


def compare_command(
    paths: Sequence[Path],
    metric: str | None,
    independent: bool,
    json_path: Path | None,
    plot_path: Path | None,
    trusted: Collection[str],
) -> int:
    """`graphfold compare`; see `compare`."""
    plot_path = plot_path or (None if json_path is None else json_path.with_suffix(".svg"))
    check_output(json_path)
    check_output(plot_path)
    if plot_path is not None and plot_path.suffix not in _ENDINGS:
        raise ConfigError(f"{plot_path}: a plot ends in {', '.join(_ENDINGS)}. Name such a file.")
    verdicts = compare(paths, metric, independent, trusted)
    if verdicts.repetitions == 1:
        print(
            "one run of each model: that is too little for a test between models, for which "
            "graphfold train --all-folds makes the runs. What can be said is how sure the order of "
            "these runs is on other records like those of test; 'deviation' is over draws of them."
        )
    print(verdicts.table())
    print(verdicts.sentence())
    if json_path is not None:
        write_json(json_path, verdicts.facts())
    if plot_path is not None:
        _draw(verdicts, plot_path)
        print(f"plot: {plot_path}")
    return 0


def compare(
    paths: Sequence[Path],
    metric: str | None = None,
    independent: bool = False,
    trusted: Collection[str] = (),
) -> Verdicts:
    """Compares the models behind some run folders and folders of sweeps.

    Several runs of each model are repetitions, and the means of the models are tested: over
    different splits with repeated measures, on one split alone as independent samples. Single runs
    are compared over their test records.

    Args:
        paths: run folders, or folders that hold those of a sweep.
        metric: "rmse" or "test/rmse"; None for that which chose the epochs, on test.
        independent: whether runs on the same split are taken for independent, too.
        trusted: third-party packages that single runs may name, and metrics.

    Raises:
        GraphfoldError: if a run cannot be read, or the runs cannot be compared.
    """
    models = models_of(read_results(paths))
    runs = [run for model in models for run in model.runs]
    name = _choose_metric(runs, metric)
    is_less_better = _is_less_better(name, runs[0], trusted)
    repetitions = len(models[0].runs)
    if repetitions == 1:
        found = _over_records([model.runs[0] for model in models], name, trusted)
    else:
        scipy_stats()
        on_one_split = len({run.split_key for run in models[0].runs}) == 1
        values = [[run.metrics[name] for run in model.runs] for model in models]
        found = compare_means(np.array(values, dtype=float).T, not (independent or on_one_split))
    return Verdicts([model.label for model in models], name, is_less_better, repetitions, found)


def _choose_metric(runs: Sequence[Result], wanted: str | None) -> str:
    """The key of metrics.json that all runs have a value for."""
    if wanted is None:
        names = sorted({run.monitor.partition("/")[2] for run in runs})
        if len(names) > 1:
            raise ConfigError(
                f"the epochs of the runs were chosen by different metrics: {', '.join(names)}. "
                "Give --metric NAME."
            )
        wanted = names[0]
    name = wanted if wanted.startswith(("val/", "test/")) else f"test/{wanted}"
    for run in runs:
        if name not in run.metrics:
            raise ConfigError(
                f"{run.folder}: there is no '{name}'.{did_you_mean(name, run.metrics)} There are: "
                f"{', '.join(run.metrics)}."
            )
        if run.metrics[name] is None:
            raise ConfigError(f"{run.folder}: {name} is undefined there. Choose another --metric.")
    return name


def _is_less_better(name: str, run: Result, trusted: Collection[str]) -> bool:
    """The direction of a metric; one of somebody else is imported to know it."""
    short = name.split("/")[1]
    if short == "loss" or any(short in builtin_metrics(task) for task in TASKS):
        return lower_is_better(name, [find_metric(short)] if short != "loss" else [])
    for path in run.config.get("metrics") or ():
        if path.rpartition(".")[2] == short:
            refuse_unregistered({"_target_": path}, trusted, "metrics")
            return lower_is_better(name, [find_metric(path)])
    raise ConfigError(f"{name} has no best value. Choose another --metric, such as a score.")


def _over_records(runs: Sequence[Result], name: str, trusted: Collection[str]) -> Comparison:
    """The comparison of single runs over the records of their part val or test."""
    part, _, short = name.partition("/")
    found = [_score(run, part, short, trusted) for run in runs]
    return compare_records([rows for rows, _ in found], [score for _, score in found])


def _score(run: Result, part: str, name: str, trusted: Collection[str]) -> tuple[EvalRows, Score]:
    """The predictions of a run for a part, and the metric as it computes it."""
    trained = TrainedModel.load(RunFolder(run.folder).best, trusted)
    config, state = trained.checkpoint.config, trained.checkpoint
    torch.set_num_threads(config.get("threads") or torch.get_num_threads())
    data = trained.data({})
    data.prepare({"split": state.split, "spec": state.spec})
    every = HeadMetrics.of(
        trained.model.head, config.get("metrics"), str(config["loss"]["reduction"])
    )
    own = tuple(metric for metric in every.metrics if metric.name == name.partition("/")[0])
    one = HeadMetrics(every.head, own, every.reduction)
    return trained.score(data, part), lambda rows: one(rows)[name]


def _draw(verdicts: Verdicts, path: Path) -> None:
    from graphfold.studies.compare.plot import Bar, draw_comparison

    found, best = verdicts.found, verdicts.order[0]
    axis, bars = verdicts.metric, []
    for model in verdicts.order:
        centre, label = float(found.means[model]), verdicts.labels[model]
        if found.half_width is not None:
            ends = centre - found.half_width, centre + found.half_width
        else:
            centre, ends = 0.0, (0.0, 0.0)
            if model != best:
                pair = found.pair(best, model)
                centre, ends = pair.difference, (pair.lower, pair.upper)
        bars.append(Bar(label, centre, *ends, verdicts.of(model)))
    title = "intervals that overlap: no difference is shown"
    if found.half_width is None:
        axis = f"{verdicts.metric} minus that of {verdicts.labels[best]}"
        title = "intervals that hold 0: no difference is shown"
    draw_comparison(bars, axis, title, path)
