"""`graphfold.train`: what the command `graphfold train` does, called from Python."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from graphfold.errors import ConfigError
from graphfold.inference.predictor import Predictor, load
from graphfold.recipe import resume_run
from graphfold.recipe import train as train_run
from graphfold.training.config.compose import compose
from graphfold.training.config.trust import named_packages
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics


@dataclass(frozen=True)
class Run:
    """A finished training.

    Args:
        folder: the run folder: configuration, checkpoints, metrics, report.
        metrics: what metrics.json holds: name -> value of the best checkpoint on `val/` and
            `test/`, in the targets' own units; None where a metric is undefined.
        packages: third-party packages that the run named, and which `load` imports.
    """

    folder: Path
    metrics: Metrics
    packages: tuple[str, ...] = ()

    def load(self, **settings: Any) -> Predictor:
        """The best checkpoint, ready to predict: `graphfold.load` of the folder."""
        return load(self.folder, self.packages, **settings)


def train(
    overrides: Mapping[str, Any] | Sequence[str] = (),
    folder: str | Path | None = None,
    *,
    config_dir: str | Path | None = None,
    trust: Collection[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Trains a model into a run folder, and scores its best checkpoint on val and test.

    It changes nothing of the process: threads, precision and the garbage collector stay as they
    are, where the command chooses them.

    Args:
        overrides: key -> value, such as `{"data": "smiles", "data.path": "solubility.csv"}`, or
            the words of the command line, such as `["data=smiles", "data.path=solubility.csv"]`.
            Nothing trains the default experiment.
        folder: the run folder; None for that of `hydra.run.dir`.
        config_dir: a further folder of config files.
        trust: packages that a run which is continued (`resume`) may name.
        callbacks: more of Lightning's callbacks, which come last.

    Raises:
        GraphfoldError: before any epoch, if the config or the data cannot be used.
        KeyboardInterrupt: on Ctrl-C; `{"resume": folder}` continues the run.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"train takes a list of overrides, not a string. Write [{overrides!r}].")
    words = overrides
    if isinstance(overrides, Mapping):
        words = [f"{key}={in_hydras_grammar(value)}" for key, value in overrides.items()]
    composed = compose(list(words), None if config_dir is None else Path(config_dir))
    config = composed.config
    if config["resume"] is not None:
        resumed = RunFolder(Path(config["resume"]))
        if folder is not None:
            raise ConfigError("a run is continued in its own folder. Leave out folder or resume.")
        metrics = resume_run(resumed, trust, composed.changes)
        return Run(resumed.path, metrics, tuple(trust))
    run = RunFolder(composed.folder if folder is None else Path(folder))
    metrics = train_run(config, run, callbacks=callbacks)
    return Run(run.path, metrics, tuple(named_packages(config)))


def in_hydras_grammar(value: Any) -> str:
    """A value as the right side of an override; text is quoted, so it may hold anything."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{in_hydras_grammar(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(in_hydras_grammar, value)) + "]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, str | Path):
        return _quoted(str(value))
    raise ConfigError(
        f"an override is {type(value).__name__} {value!r}. Give a number, text, True or False, "
        "None, or a list or mapping of these."
    )


def _quoted(text: str) -> str:
    """In single quotes, which Hydra takes off again: before a quote it halves the backslashes."""
    body, backslashes = "", 0
    for character in text + "'":
        if character == "'":
            body += "\\" * backslashes  # as many again
            body += "\\'"
        else:
            body += character
        backslashes = backslashes + 1 if character == "\\" else 0
    return f"'{body[:-2]}'"
