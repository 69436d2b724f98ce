"""How fast is a table of molecules read, and how much of that is RDKit's parser?

The rows of Lipophilicity, or of another corpus of molecules (`data=...`), as the adapter gets them
from the table. One process reads; the commands share the work out over all cores. Bonds are edges,
and nodes as the D-MPNN needs them (`directed_bonds`). Variants:

- `graphfold`: from the cells to one packed graph, `batch_size` records at a time;
- `one_by_one`: the same graph, read record by record;
- `rdkit_parser`: RDKit reads each SMILES, and nothing is made of it: no reader that parses with
  `MolFromSmiles` takes less time;
- `chemprop` (where installed): from each SMILES to chemprop's graphs, `batch_size` in one.

    graphfold bench reading data=hiv
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from graphfold.bench.baselines.molecule_models import has_chemprop, read_with_chemprop
from graphfold.bench.experiment import load_data
from graphfold.bench.measure import Row, Settings, Work, measure
from graphfold.dag import GraphBuilder, TypedDAG, collate
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Adapter, Record, read_records
from graphfold.datasets.molecules.molecule import parse_alone
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError

#: Records that are read; the first of the first file.
NUM_RECORDS = 4096

#: Records at a time in training (see `read_chunks`) and in prediction.
BATCH_SIZES = (256, 1024)

#: Models whose graphs have bonds as edges and as nodes.
MODELS = ("gine", "dmpnn")

#: From records to their graphs, in chunks.
Reading: TypeAlias = Callable[[], list[TypedDAG]]


class OneByOne(Adapter):
    """An adapter that has no quicker way for many records than one after another.

    Args:
        adapter: what reads a record.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.schema = adapter.schema
        self.adapter = adapter

    def records(self, path: Path) -> Iterator[Record]:
        """The same records."""
        return self.adapter.records(path)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """The same graph."""
        self.adapter.parse(record, graph)


def rows(settings: Settings) -> Iterator[Row]:
    """Measures bonds as edges and as nodes, and every batch size.

    Raises:
        ConfigError: if a width is given, or the data are no table of molecules.
        GraphfoldError: if the corpus is not there.
        RuntimeError: if the variants give different graphs.
    """
    if settings.hidden_sizes:
        raise ConfigError("benchmark reading has no model. Leave out --hidden-size.")
    for model in MODELS:
        adapter, path, records = open_records(model, settings)
        extra = {"directed_bonds": "yes" if adapter.graphs.directed_bonds else "no"}
        smiles = [record.content.text for record in records]
        for _, batch_size in settings.sizes([0], BATCH_SIZES):
            chunks = [records[i : i + batch_size] for i in range(0, len(records), batch_size)]
            variants = make_variants(adapter, path, chunks)
            require_equal(variants)
            functions: dict[str, Callable[[], object]] = {
                **variants,
                "rdkit_parser": partial(parse_alone, smiles),
            }
            if has_chemprop():
                texts = [[record.content.text for record in chunk] for chunk in chunks]
                functions["chemprop"] = partial(read_with_chemprop, texts)
            works = {name: Work(function, len(records)) for name, function in functions.items()}
            yield from measure((settings.row("reading", batch_size, 0, "read", extra=extra), works))


def open_records(model: str, settings: Settings) -> tuple[SmilesAdapter, Path, list[Record]]:
    """The adapter that a model needs, the first file of the corpus and its first good records."""
    own = ["data=lipophilicity", f"model={model}", *settings.overrides]
    data = load_data(own, settings.config_dir)
    adapter = data.source.spec.make()
    if not isinstance(adapter, SmilesAdapter):
        raise ConfigError(
            "benchmark reading reads tables of molecules. Choose one by data=..., such as data=hiv."
        )
    path = Path(data.files[0].path)
    records = list(islice(adapter.records(path), NUM_RECORDS))
    kept = read_records(adapter, path, records, "skip").kept
    return adapter, path, [records[position] for position in kept]


def make_variants(
    adapter: Adapter, path: Path, chunks: Sequence[Sequence[Record]]
) -> dict[str, Reading]:
    """Variant -> a function that reads all records, chunk by chunk."""

    def read(adapter: Adapter) -> list[TypedDAG]:
        return [read_records(adapter, path, chunk, "skip").dag for chunk in chunks]

    return {"graphfold": partial(read, adapter), "one_by_one": partial(read, OneByOne(adapter))}


def require_equal(variants: Mapping[str, Reading]) -> None:
    """Raises RuntimeError if a variant gives other graphs than graphfold."""
    expected = collate(variants["graphfold"]())
    for name, reading in variants.items():
        differs = difference(collate(reading()), expected)
        if differs is not None:
            raise RuntimeError(f"variant {name} differs from graphfold in {differs}")
