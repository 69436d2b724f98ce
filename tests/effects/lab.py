"""Tiny data, models and runs, each made once in a session."""

from __future__ import annotations

import contextlib
import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from training.tiny_runs import MOLECULES, bracket_tree, conllu, read_json, undrawn, write_corpora

import graphfold
from graphfold.cli import main
from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import ReadResult, read_records
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.data_card import describe_target
from graphfold.layers.heads.plots import scatter_plots
from graphfold.recipe import make_loop
from graphfold.training.config.build_model import decide
from graphfold.training.config.compose import compose
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.loop import Loop
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.initial_weights import make_model


@dataclass(frozen=True)
class Run:
    """A run folder, and what was printed while it was made."""

    folder: Path
    printed: str

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json."""
        return read_json(self.folder / "metrics.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config of the best checkpoint."""
        return dict(self.checkpoint().config)

    def checkpoint(self, name: str = "best") -> Checkpoint:
        """A stored checkpoint."""
        return Checkpoint.load(self.folder / "checkpoints" / f"{name}.ckpt")

    def weights(self, name: str = "best") -> dict[str, Tensor]:
        """The weights of a checkpoint."""
        return dict(self.checkpoint(name).state_dict)

    def predict(self, items: Sequence[str], **settings: Any) -> list[dict[str, Any]]:
        """The predictions for some records."""
        return graphfold.load(self.folder, **settings).predict(items)

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a table of the run."""
        with (self.folder / name).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def epochs(self) -> list[dict[str, float]]:
        """The rows of metrics.csv."""
        rows = self.rows("metrics.csv")
        return [{name: float(cell) for name, cell in row.items() if cell} for row in rows]


class Lab:
    """Makes tiny things and keeps them.

    Args:
        folder: where files, packed data and runs go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[tuple[str, ...], Run] = {}
        self._data: dict[tuple[str, ...], DataModule] = {}
        self._write_files()

    @cached_property
    def corpora(self) -> Path:
        """A folder of tiny corpora, as `data.root`."""
        return write_corpora(self.folder / "corpora")

    def base(self, name: str) -> list[str]:
        """The overrides of a tiny run: `molecules`, `classes`, `trees`, `sentences` or `lists`."""
        return [
            *BASES[name].format(folder=self.folder).split("\n"),
            f"data.cache_dir={self.folder}/cache",
            "logger=none",
            "model.run=eager",  # to compile takes longer than an epoch
            "trainer.max_epochs=1",
        ]

    def config(self, base: str, *overrides: str) -> TrainingConfig:
        """The whole config that overrides give."""
        return compose([*self.base(base), *overrides]).config

    def compose(self, overrides: Sequence[str]) -> TrainingConfig:
        """The config that these overrides alone give."""
        return compose(overrides).config

    def made(self, **settings: Any) -> DataModule:
        """Data with these settings, prepared; the same settings give the same data."""
        key = ("made", str(sorted(settings.items(), key=str)))
        if key not in self._data:
            given = {"cache_dir": f"{self.folder}/cache", "num_workers": 0, **settings}
            self._data[key] = DataModule(**given)
            self._data[key].prepare()
        return self._data[key]

    def data(self, base: str, *overrides: str) -> DataModule:
        """Data, read and split."""
        key = (base, *overrides)
        if key not in self._data:
            self._data[key] = DataModule(**self.config(*key).data)
            self._data[key].prepare()
        return self._data[key]

    def loop(self, base: str, *overrides: str, member: int = 0) -> Loop:
        """The training loop of a fresh model, with its optimizer."""
        config = self.config(base, *overrides)
        data = DataModule(**config.data)
        data.prepare()
        config = decide(config, data)
        loop = make_loop(config, make_model(config, data, member), data)
        loop.begin()
        return loop

    def run(self, base: str, *overrides: str) -> Run:
        """A training; the same overrides give the same one."""
        key = (base, *overrides)
        if key not in self._runs:
            self._runs[key] = self.run_anew(base, *overrides)
        return self._runs[key]

    def run_anew(self, base: str, *overrides: str) -> Run:
        """A training, whether there was the same before or not."""
        return self.train(*self.base(base), *overrides)

    def train(self, *overrides: str) -> Run:
        """A training with these overrides alone."""
        folder = self.folder / f"run{len(list(self.folder.glob('run*')))}"
        folder.mkdir()
        words = [f"hydra.run.dir={folder}", *overrides]
        # No row looks at a report, which takes as long as the training.
        with undrawn(), mock.patch("graphfold.reports.report.write_report"):
            code, printed, errors = self.command("train", *words)
        assert code == 0, errors
        return Run(folder, printed)

    def command(self, *words: str | Path) -> tuple[int, str, str]:
        """`graphfold` with these words: its exit code, what it printed, and its errors."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = main([str(word) for word in words])
        return code, out.getvalue(), errors.getvalue()

    def write(self, name: str, text: str) -> Path:
        """A file of the lab."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def _write_files(self) -> None:
        rng = random.Random(0)
        rows = [
            f"{smiles},{rng.gauss(5, 2):.3f},{rng.gauss(0, 1):.3f},{'yes' if i % 3 else 'no'}"
            for i, smiles in enumerate(MOLECULES * 3)
        ]
        self.write("molecules.csv", "\n".join(["smiles,y,z,active", *rows, ""]))
        self.write("trees.txt", "".join(f"{bracket_tree(rng)}\n" for _ in range(30)))
        self.write("words.conllu", "\n".join(conllu(rng) for _ in range(24)))


#: Overrides, one on a line. Networks are small and without batch normalisation.
BASES = {
    "molecules": """data=smiles
model=gcn
data.path={folder}/molecules.csv
data.target_columns=[y]
model.hidden_size=8
model.cells.0._every_.norm=null""",
    "classes": """data=smiles
model=gcn
data.path={folder}/molecules.csv
data.target_columns=[active]
data.task=classification
model.hidden_size=8
model.cells.0._every_.norm=null""",
    "trees": """data=brackets
model=binary_tree_lstm
data.path={folder}/trees.txt
data.num_classes=5
data.batch_size=8
model.hidden_size=8""",
    "sentences": """data=conllu
model=child_sum_tree_lstm
data.path={folder}/words.conllu
data.batch_size=8
model.hidden_size=8""",
    "pairs": """data=sick
model=child_sum_tree_lstm
data.root={folder}/corpora
model.hidden_size=8""",
}


def read(path: Path, adapter: str, on_error: str = "raise", **options: Any) -> ReadResult:
    """A file through an adapter with these options, and with those that the file decides."""
    source = DataSource(adapter=adapter, path=path, options=options)
    files = source.files(path.parent, path.parent)
    made = source.with_inferred_options(files).spec.make()
    return read_records(made, path, made.records(path), on_error)


def counts(dag: TypedDAG) -> dict[str, int]:
    """The number of nodes of each type."""
    return {t.name: n for t, n in zip(dag.schema.types, dag.num_nodes_by_type, strict=True)}


def shown_units(dag: TypedDAG) -> dict[str, set[str | None]]:
    """target -> the units that a data card and a picture of the report name."""
    found: dict[str, set[str | None]] = {}
    for column in dag.schema.graph_targets:
        values = dag.graph_column(column.name)
        card = describe_target(column, values)["unit"]
        figure = scatter_plots([column], {column.name: (values, values)})
        assert figure is not None
        label = figure.axes[0].get_xlabel().removeprefix("measured").strip(" ()")
        found[column.name] = {card, label or None}
    return found


def same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether two sets of weights are equal, bit for bit."""
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )
