"""DataModule: from a few plain settings to batches for a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from graphfold.batching import Pass
from graphfold.dag import TypedDAG, collate, select
from graphfold.datasets.corpora.corpus import DataFile, default_root
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.loading.loader import GraphDataset, GraphLoader
from graphfold.datasets.loading.sampler import BatchSampler
from graphfold.datasets.splits.split import FileState, Split, everything_is_test
from graphfold.datasets.splits.split_records import SPLITS, SplitSettings, split_records
from graphfold.datasets.storage.cache import default_cache_dir
from graphfold.datasets.storage.packing import PackedCorpus, pack, refuse_empty
from graphfold.errors import ConfigError, DataError, RecordError, did_you_mean


class DataModule:
    """A corpus, split, encoded and served in planned batches.

    Its arguments are the keys of the config group `data`; those that it does not name are options
    of the adapter (`smiles_column`, `num_classes`) or of a corpus that is made on the spot.

    Nothing is read before `prepare`, which packs the files, splits the records, and learns
    vocabularies and scalers from the training part; a run that is loaded again hands its state to
    `prepare` and nothing is learnt anew.

    Args:
        corpus: the name of a corpus, see `graphfold.datasets.corpora.corpus_table`.
        adapter: the name or dotted path of an adapter; not needed with a corpus.
        path: a file of one's own, or {"train": ..., "val": ..., "test": ...}; with a corpus, it is
            read in place of the corpus's files.
        variant: which of a corpus's alternatives; by default the first.
        root: the folder that holds the corpora; by default $GRAPHFOLD_DATA, else ./data.
        cache_dir: the folder of packed data; by default $XDG_CACHE_HOME/graphfold, else
            ~/.cache/graphfold.
        on_error: "raise" stops at the first bad record; "skip" lists bad records in `skipped`.
        split: given, random, stratified, scaffold, scaffold_balanced or kfold; by default given
            where the source says what to train on, else random.
        fractions: the shares of train, val and test.
        seed: of the split and of the order of batches.
        num_folds: how many folds kfold makes.
        fold: which of them is test; the next one is val.
        stratify_by: the target or feature whose values are the labels of stratified; by default the
            only target of integers.
        batch_size: the most graphs in a batch.
        max_nodes: the most nodes in a batch; None for any number.
        num_workers: processes that make batches; 0 for none but this one.
        share: whether equal nodes of a batch are computed once, see `build_schedule`; "auto" leaves
            it to a trial with the model.
        min_count: how often a word must occur in the training part to be known.
        max_vocabulary: the most words that each vocabulary keeps; None for all.
        lowercase: whether words are counted and looked up in lower case.
        **options: of the adapter, and of a corpus that is made on the spot.

    Raises:
        ConfigError: if there is nothing to read, or a name, an option or a value is wrong.
    """

    def __init__(
        self,
        corpus: str | None = None,
        adapter: str | None = None,
        path: str | Path | Mapping[str, str] | None = None,
        variant: str | None = None,
        root: str | Path | None = None,
        cache_dir: str | Path | None = None,
        on_error: str = "raise",
        split: str | None = None,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        num_folds: int = 5,
        fold: int = 0,
        stratify_by: str | None = None,
        batch_size: int = 32,
        max_nodes: int | None = None,
        num_workers: int = 0,
        share: bool | str = "auto",
        min_count: int = 1,
        max_vocabulary: int | None = None,
        lowercase: bool = False,
        **options: Any,
    ) -> None:
        _check_choice("on_error", on_error, ("raise", "skip"))
        _check_choice("share", share, ("auto", True, False))
        if split is not None:
            _check_choice("split", split, SPLITS)
        siblings = tuple(inspect.signature(DataModule).parameters)
        self.source = DataSource(corpus, adapter, path, variant, options, siblings)
        self.root = default_root() if root is None else Path(root).expanduser()
        self.cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir).expanduser()
        self.on_error = on_error
        self.settings = SplitSettings(split, fractions, seed, num_folds, fold, stratify_by)
        self.batch_size = batch_size
        self.max_nodes = max_nodes
        self.num_workers = num_workers
        self.share = share
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.lowercase = lowercase
        self._is_prepared = False
        self._dags: tuple[TypedDAG, TypedDAG] | None = None  # as read, and encoded

    def prepare(self, state: Mapping[str, Any] | None = None) -> None:
        """Reads and splits the records, and learns the feature spec. Does nothing the second time.

        Args:
            state: what `state_dict` of the run gave; its split and its spec are then used as they
                are.

        Raises:
            DataError: if the data cannot be used, or are not those that the stored split divides.
            RecordError: for the first bad record, under on_error="raise".
        """
        if self._is_prepared:
            return
        files, dag = self._read()
        if state is None:
            parts = [file.part for file in files]
            split = split_records(dag, parts, [f.num_records for f in self.files], self.settings)
            self.split = replace(split, files=self.files)
            self.spec = FeatureSpec.fit(
                select(dag, self.split.train), self.min_count, self.max_vocabulary, self.lowercase
            )
        else:
            self.split = Split.from_dict(state["split"])
            self.split.check_files(self.files)
            self.spec = FeatureSpec.from_dict(state["spec"])
        self._dags = dag, self.spec.encode(dag)
        self._is_prepared = True

    def prepare_for_scoring(self, spec: FeatureSpec) -> None:
        """Reads other data than a run's: every record is in the part test.

        Raises:
            DataError: if the data cannot be used.
            RecordError: for the first bad record, under on_error="raise".
            SchemaError: if their features are not those that the run learnt from.
        """
        _, dag = self._read()
        self.split = replace(everything_is_test(dag.num_graphs), files=self.files)
        self.spec = spec
        self._dags = dag, spec.encode(dag)
        self._is_prepared = True

    def state_dict(self) -> dict[str, Any]:
        """Split and feature spec as plain values, ready for JSON."""
        return {"split": self.split.to_dict(), "spec": self.spec.to_dict()}

    @property
    def raw(self) -> TypedDAG:
        """All records as read; raises DataError if `prepare` was not called."""
        return self._load()[0]

    def encoded(self, part: str | None = None) -> TypedDAG:
        """All records, or those of a part, with vocabulary ids in place of strings.

        Raises:
            ConfigError: if there is no such part.
            DataError: if `prepare` was not called.
        """
        dag = self._load()[1]
        return dag if part is None else select(dag, self.split.part(part))

    def loader(
        self,
        part: str,
        passes: Sequence[Pass],
        policy: str = "depth",
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool | None = None,
        pin_memory: bool = False,
        share: bool = False,
        lowering: Callable[[TypedDAG, int], TypedDAG] | None = None,
    ) -> GraphLoader:
        """Planned batches of a part.

        Args:
            part: train, val or test.
            passes: the passes of the model.
            policy: how to plan them.
            rank: which of `world_size` processes this is; each gets batches of `batch_size`.
            world_size: how many processes share the part; no record is in two of them.
            shuffle: whether the order changes with the epoch (`loader.sampler.set_epoch`); by
                default for train only. Otherwise it is that of the files.
            pin_memory: whether batches come in page-locked memory, for a GPU.
            share: whether equal nodes of a batch are computed once.
            lowering: makes the graphs that the model computes, from those of the part and the
                number of processes that may share the work; None if it computes the latter.
        """
        dag, lowered = self.encoded(), None
        numbers = self.split.part(part)
        if lowering is not None:
            dag = select(dag, numbers)
            lowered = lowering(dag, self.num_workers)
            numbers = torch.arange(len(numbers))
        sampler = BatchSampler(
            numbers,
            dag.node_ptr.diff()[numbers],
            self.batch_size,
            self.max_nodes,
            part == "train" if shuffle is None else shuffle,
            self.settings.seed,
            rank,
            world_size,
        )
        workers = min(self.num_workers, len(sampler))
        dataset = GraphDataset(dag, passes, policy, share, lowered)
        return GraphLoader(dataset, sampler, workers, pin_memory)

    def __getstate__(self) -> dict[str, Any]:
        """Without the records: another process maps their packed copy into its own memory."""
        return {**self.__dict__, "_dags": None}

    def _load(self) -> tuple[TypedDAG, TypedDAG]:
        """All records, as read and encoded."""
        if not self._is_prepared:
            raise DataError("the data are not read yet. Call prepare() first.")
        if self._dags is None:
            _, dag = self._read()
            self.split.check_files(self.files)
            self._dags = dag, self.spec.encode(dag)
        return self._dags

    def _read(self) -> tuple[list[DataFile], TypedDAG]:
        """Packs all files; sets `files` and `skipped`."""
        files = self.source.files(self.root, self.cache_dir)
        packed = [pack(f.adapter, f.path, self.cache_dir, self.on_error) for f in files]
        self.files: tuple[FileState, ...] = tuple(_state(corpus) for corpus in packed)
        self.skipped: tuple[RecordError, ...] = tuple(e for c in packed for e in c.skipped)
        refuse_empty(packed)
        dags = [corpus.dag for corpus in packed]
        return files, dags[0] if len(dags) == 1 else collate(dags)


def _state(corpus: PackedCorpus) -> FileState:
    return FileState(str(corpus.path), corpus.content, corpus.dag.num_graphs)


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        names = [str(choice).lower() for choice in choices]
        raise ConfigError(
            f"data.{name} is '{value}'.{did_you_mean(str(value), names)} Use one of "
            f"{', '.join(names)}."
        )
