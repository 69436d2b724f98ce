"""Evaluation: the metrics of a trained model, on the data of its run or on other data.

Also its calibration on the validation part, after training.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_spec import UnknownValues
from graphfold.errors import ConfigError, DataError
from graphfold.files import check_output, write_json
from graphfold.inference.input_files import is_piped, readable, shown_name
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.heads.output_column import read_columns
from graphfold.layers.model import Model, eager_cells
from graphfold.layers.uncertainty.calibration import (
    fit_calibration,
    shortage,
)
from graphfold.layers.uncertainty.ensemble import Ensemble
from graphfold.training.config.overrides import parse_settings, suggest_set_flags
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.console import (
    describe_data,
    describe_positive,
    format_confusion,
    format_table,
    metrics_table,
)
from graphfold.training.process.launch import is_first
from graphfold.training.process.process import (
    capture_generators,
    prepare_process,
    restore_generators,
)
from graphfold.training.run.run_folder import find_checkpoint
from graphfold.training.run.trained import TrainedModel, coverage
from graphfold.training.scoring import (
    HeadMetrics,
    Metrics,
    class_metrics,
    confusion_counts,
    score,
    warn_of_undefined,
)


def calibrate_and_score(
    path: Path, data: DataModule, trusted: Collection[str] = ()
) -> tuple[TrainedModel, dict[str, EvalRows], str | None]:
    """Scores val and test, and calibrates the checkpoint on val with the method of its config.

    Without records in val nothing is calibrated.

    Args:
        path: the checkpoint; an earlier calibration in it is replaced.
        data: the data of the run, prepared.
        trusted: third-party packages that may be imported.

    Returns:
        The model; part -> its rows, calibrated; a sentence about the calibration or a lack of
        records for it, None without a method.

    Raises:
        ConfigError: if the method is not for what the model predicts.
    """
    trained = replace(TrainedModel.load(path, trusted), calibration=None)
    parts = [part for part in ("val", "test") if len(data.split.part(part))]
    rows, note = {part: trained.score(data, part) for part in parts}, None
    if "val" in rows:
        trained, note = _calibrate(trained, rows["val"])
    calibrated = {
        part: replace(scored, prediction=trained.calibrated(scored.prediction))
        for part, scored in rows.items()
    }
    return trained, calibrated, note


def _calibrate(trained: TrainedModel, rows: EvalRows) -> tuple[TrainedModel, str | None]:
    settings, before = trained.config.calibration, trained.checkpoint
    how = trained.head, settings.method, settings.level, rows.prediction, rows.target
    fitted = fit_calibration(*how)
    checkpoint = replace(before, calibration={} if fitted is None else fitted.state())
    if before.calibration or checkpoint.calibration:
        checkpoint.save(trained.path)
    notes = [None if fitted is None else fitted.description, shortage(*how)]
    note = "\n".join(note for note in notes if note)
    return replace(trained, checkpoint=checkpoint, calibration=fitted), note or None


#: Records of each part that a rehearsal takes.
REHEARSED = 50


def rehearse(config: TrainingConfig, model: Model, data: DataModule) -> None:
    """Calibrates, scores, describes and plots an untrained model on a few records of val and test.

    So errors in these steps are raised before the first epoch instead of after the last. The model
    and the random generators do not change.

    Args:
        config: of the run.
        model: of the run, or the first of its members.
        data: of the run, prepared.

    Raises:
        GraphfoldError: as these steps after a training would; a user's head or metric may raise any
            error.
    """
    before = capture_generators()
    members = [copy.deepcopy(model).eval()] * min(config.ensemble, 2)
    untrained: Model = members[0]
    if config.ensemble > 1:
        untrained = Ensemble(members)
    with eager_cells(untrained), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _rehearse(config, untrained, data)
    restore_generators(before)


def _rehearse(config: TrainingConfig, model: Model, data: DataModule) -> None:
    head, calibration, settings = model.head, None, config.calibration
    how, parts = (settings.method, settings.level), model.parts
    for part in ("val", "test"):
        numbers = data.split.part(part)[:REHEARSED]
        if not len(numbers):
            continue
        rows = score(model, [model.plan(data.select(numbers, encoded=True), data.policy)])
        if part == "val":
            calibration = fit_calibration(head, *how, rows.prediction, rows.target)
        if calibration is not None:
            parts = tuple(dict.fromkeys((*parts, *calibration.adds)))
            rows = replace(rows, prediction=calibration(rows.prediction))
        HeadMetrics.of(head, config.metrics, config.loss["reduction"], parts)(rows)
        read_columns(head.output_columns(parts), rows.prediction)
        head.measured_values(rows.target)
        if is_first():  # only this process draws the report; matplotlib takes long to load
            head.plot(rows)


def print_evaluation(
    run: Path,
    data: Path | None = None,
    split: str | None = None,
    settings: Sequence[str] = (),
    trusted: Collection[str] = (),
    per_class: bool = False,
    json_path: Path | None = None,
) -> None:
    """Scores a trained model, and prints a description of the data and all scores.

    Args:
        run: a run folder or a checkpoint file.
        data: other data; `-` for standard input.
        split: see `evaluate`.
        settings: KEY=VALUE of the config group `data` that differ from the run's.
        trusted: third-party packages that may be imported.
        per_class: see `evaluate`.
        json_path: where the metrics are written, too.
    """
    check_output(json_path)
    values = parse_settings(settings)
    with suggest_set_flags(), _as_file(data, values) as path:
        result = _evaluate(run, path, split, values, trusted, per_class)
    if json_path is not None:
        write_json(json_path, result.flat())
    # The description names the data as the user did.
    print(result.data if data is None else result.data.replace(str(path), shown_name(data)))
    print(metrics_table(result.metrics))
    if result.positive is not None:
        print(result.positive)
    for part, scores in result.classes.items():
        print(f"\nclasses of {part}\n{format_table(scores)}")
        for target, counts in result.confusions[part].items():
            print(
                f"\n{target} of {part}: a row for each true class, a column for each predicted one"
            )
            print(format_confusion(counts))


def evaluate(
    run: Path,
    path: Path | None = None,
    split: str | None = None,
    settings: Mapping[str, Any] | None = None,
    trusted: Collection[str] = (),
    per_class: bool = False,
) -> Metrics:
    """Scores a trained model, with the threads of its run.

    Args:
        run: a run folder or a checkpoint file.
        path: other data; all records are scored, under test/. Further metrics are the number of
            records of the training part among them (test/overlap), and each metric without these
            (test/accuracy_unseen).
        split: train, val or test of the run's data; None for val and test.
        settings: keys of the config group `data` that differ from the run's.
        trusted: third-party packages that may be imported.
        per_class: also return precision, recall, F1 and support of every class, as
            test/precision/CLASS and so on, and the confusion matrix, as
            test/confusion/TRUE/PREDICTED (of several targets, test/confusion/TARGET/TRUE/PREDICTED)
            where the count is not zero.

    Returns:
        One flat mapping with the keys of metrics.json; undefined metrics are None.

    Raises:
        GraphfoldError: if run or data cannot be used, or the run's data changed.
    """
    return _evaluate(run, path, split, settings or {}, trusted, per_class).flat()


@contextmanager
def _as_file(path: Path | None, settings: dict[str, Any]) -> Iterator[Path | None]:
    """The data as a file; the content of a pipe or standard input is not cached."""
    if path is None or not is_piped(path):
        yield path
        return
    with readable(path) as file:
        settings["cache_dir"] = str(file.parent / "cache")
        yield file


class _Evaluation(NamedTuple):
    data: str  # a description of the data
    metrics: Metrics
    classes: dict[str, dict[str, Metrics]]  # part -> score -> class -> value
    # part -> target -> predicted class -> true class -> how many
    confusions: dict[str, dict[str, dict[str, Metrics]]]
    positive: str | None  # a sentence about the positive classes

    def flat(self) -> Metrics:
        """The metrics, PART/SCORE/CLASS, and PART/confusion/TRUE/PREDICTED."""
        scores = {
            f"{part}/{score}/{name}": value
            for part, scores in self.classes.items()
            for score, values in scores.items()
            for name, value in values.items()
        }
        counts = {
            f"{part}/confusion/{f'{target}/' if len(tables) > 1 else ''}{true}/{predicted}": count
            for part, tables in self.confusions.items()
            for target, table in tables.items()
            for predicted, column in table.items()
            for true, count in column.items()
            if count
        }
        return self.metrics | scores | counts


def _evaluate(
    run: Path,
    path: Path | None,
    split: str | None,
    settings: Mapping[str, Any],
    trusted: Collection[str],
    per_class: bool,
) -> _Evaluation:
    """All that `evaluate` returns and `print_evaluation` prints."""
    if path is not None and split is not None:
        raise ConfigError("--split divides the run's own data. Give --data or --split, not both.")
    trained = TrainedModel.load(find_checkpoint(run), trusted)
    prepare_process(trained.config.threads)
    if path is None:
        data = trained.data(settings)
        data.prepare({"split": trained.checkpoint.split, "spec": trained.checkpoint.spec})
        metrics, rows = _score_parts(trained, data, [split] if split else ["val", "test"])
    else:
        data = trained.data({**settings, "path": str(path)})
        data.prepare_for_scoring(trained.spec)
        unknown = UnknownValues(data.spec)
        for part in data.chunks(encoded=True):
            unknown.add(part)
        unknown.warn()
        metrics, rows = _score_new(trained, data)
    head, classed = trained.head, rows if per_class else {}
    classes = {part: class_metrics(head, scored) for part, scored in classed.items()}
    confusions = {part: confusion_counts(head, scored) for part, scored in classed.items()}
    positive = describe_positive(head)
    result = _Evaluation(describe_data(data), metrics, classes, confusions, positive)
    warn_of_undefined(result.flat())
    return result


def part_metrics(trained: TrainedModel, data: DataModule, part: str, rows: EvalRows) -> Metrics:
    """The metrics of one part under the keys of metrics.json."""
    scores = {**trained.metrics(rows), "coverage": coverage(data)}
    return {f"{part}/{name}": value for name, value in scores.items()}


def _score_parts(
    trained: TrainedModel, data: DataModule, parts: list[str]
) -> tuple[Metrics, dict[str, EvalRows]]:
    metrics: Metrics = {}
    rows: dict[str, EvalRows] = {}
    for part in parts:
        if len(data.split.part(part)):
            rows[part] = trained.score(data, part)
            metrics |= part_metrics(trained, data, part, rows[part])
    if not metrics:
        raise DataError(f"the {' and '.join(parts)} part of the run has no record. Choose another.")
    return metrics, rows


def _score_new(trained: TrainedModel, data: DataModule) -> tuple[Metrics, dict[str, EvalRows]]:
    rows = trained.score(data, "test")
    metrics = part_metrics(trained, data, "test", rows)
    is_seen = torch.isin(data.hashes, trained.checkpoint.training_records)
    unseen = trained.metrics(rows.at(~is_seen))
    metrics["test/overlap"] = int(is_seen.sum())
    for name, value in unseen.items():
        metric, slash, task = name.partition("/")
        metrics[f"test/{metric}_unseen{slash}{task}"] = value
    return metrics, {"test": rows}
