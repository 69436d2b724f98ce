"""How fast are the molecules of a table predicted, from the table to the written file?

A D-MPNN, saved with its first weights and loaded by `graphfold.load`, predicts the rows of
Lipophilicity, or of another corpus of molecules (`data=...`), repeated up to `NUM_RECORDS`. What
`graphfold predict` needs to start is not measured. Variants:

- `graphfold`: one process for each core reads, this one predicts and writes;
- `one_process`: this one does all;
- `chemprop` (where installed): its D-MPNN of the same width and depth, its reading and batches of
  its command's size, in one process.

    graphfold bench predict_table data=hiv
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from graphfold.bench.baselines.molecule_models import has_chemprop, predict_with_chemprop
from graphfold.bench.benchmarks.predict import load_saved
from graphfold.bench.benchmarks.reading import open_records
from graphfold.bench.experiment import load_data, load_sized
from graphfold.bench.measure import EQUAL_ONCE, EVERY_NODE, Row, Settings, Work, measure
from graphfold.bench.variants import AS_IT_COMES
from graphfold.datasets.storage.reading import available_cores
from graphfold.inference.predict import predict_file
from graphfold.inference.predictor import BATCH_SIZE, Predictor

#: Rows of the table.
NUM_RECORDS = 16_384

HIDDEN_SIZES = (300,)

#: Rounds of message passing, the first features included; that of the config `model=dmpnn`.
DEPTH = 3


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        ConfigError: if the data are no table of molecules.
        GraphfoldError: if the corpus is not there.
    """
    own = ["experiment=lipophilicity_dmpnn"]
    data = load_data([*own, *settings.overrides], settings.config_dir)
    _, _, records = open_records("dmpnn", settings)
    smiles = list(islice(cycle(record.content.text for record in records), NUM_RECORDS))
    with tempfile.TemporaryDirectory() as folder:
        table, output = Path(folder) / "table.csv", Path(folder) / "predicted.csv"
        write_table(table, smiles)
        for hidden_size, batch_size in settings.sizes(HIDDEN_SIZES, (BATCH_SIZE,)):
            experiment = load_sized(own, (hidden_size, batch_size), settings, data)
            predictor = load_saved(experiment, AS_IT_COMES)
            predictor.batch_size = batch_size
            works = {
                name: Work(
                    partial(predict_all, predictor, table, output, workers), NUM_RECORDS, EQUAL_ONCE
                )
                for name, workers in (("graphfold", available_cores()), ("one_process", 0))
            }
            if has_chemprop():
                works["chemprop"] = Work(
                    partial(predict_with_chemprop, smiles, hidden_size, DEPTH, output),
                    NUM_RECORDS,
                    EVERY_NODE,
                )
            setting = settings.row("predict_table", batch_size, hidden_size, "inference")
            yield from measure((setting, works))


def write_table(path: Path, smiles: Sequence[str]) -> None:
    """A CSV file of one column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["smiles"], *([text] for text in smiles)])


def predict_all(predictor: Predictor, table: Path, output: Path, num_workers: int) -> None:
    """`predict_file` with so many processes that read.

    Raises:
        RuntimeError: if a row has no prediction.
    """
    predictor.num_workers = num_workers
    good, bad = predict_file(predictor, table, output)
    if bad:
        raise RuntimeError(f"{bad} rows of {good + bad} have no prediction")
