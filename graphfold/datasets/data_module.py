"""DataModule: from a few plain settings to batches for a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG, collate, select
from graphfold.datasets.adapter import count_changed
from graphfold.datasets.corpora.corpus import DataFile, default_root
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.inspection.graph_hash import hash_records
from graphfold.datasets.settings import NAMES, DataSettings, Paths
from graphfold.datasets.splits.split import FileState, Split, everything_is_test
from graphfold.datasets.splits.split_records import (
    Records,
    check_assigned_parts,
    check_split,
    find_split,
    split_records,
)
from graphfold.datasets.storage.cache import default_cache_dir
from graphfold.datasets.storage.content_key import unchanged
from graphfold.datasets.storage.packing import pack_files, refuse_empty
from graphfold.datasets.storage.store import GraphCorpus, size_of
from graphfold.datasets.words.vectors import WordVectors, find_word_vectors, learn_words
from graphfold.errors import ConfigError, DataError, RecordError
from graphfold.options import refuse_unread

if TYPE_CHECKING:
    from graphfold.batching import Pass
    from graphfold.loader import GraphLoader


#: Bytes of packed data beyond which no array of all nodes is made: several files are not joined,
#: and equal nodes are found batch by batch.
LARGE = 1 << 27

#: Records that are processed together, with their nodes and without them.
CHUNK, FACTS_CHUNK = 1 << 12, 1 << 16

#: The nodes of a batch that is only scored, unless `batch_size` records have more.
SCORED_NODES = 1 << 13


class DataModule:
    """A corpus, split, encoded and served in planned batches.

    Its arguments are the keys of the config group `data`.

    Nothing is read before `prepare`, which packs the files, splits the records, and learns
    vocabularies and scalers from the training part. A run that is loaded again passes its state to
    `prepare`, and nothing is learnt. Only `loader` imports the engine.

    Args:
        corpus, adapter, path, variant: the source of the data, see `DataSettings`.
        **settings: the other fields of `DataSettings`, and options of the adapter (`smiles_column`,
            `num_classes`; of every adapter `features_from`, see `read_sources` of
            `features.feature_sources`) or of a generated corpus.

    Attributes:
        scored_batch_size: the records that are scored at once; None for about `SCORED_NODES` nodes,
            and at least `batch_size` records.

    Raises:
        ConfigError: if nothing is to be read, or a name, an option or a value is wrong.
    """

    def __init__(
        self,
        corpus: str | None = None,
        adapter: str | None = None,
        path: Paths | Mapping[str, Paths] | None = None,
        variant: str | None = None,
        **settings: Any,
    ) -> None:
        source = {"corpus": corpus, "adapter": adapter, "path": path, "variant": variant}
        self.settings = DataSettings.of({**source, **settings})
        check_split(self.settings)
        self.settings.check_shapes()
        self._options = {key: value for key, value in settings.items() if key not in NAMES}
        self.source = DataSource(corpus, adapter, path, variant, self._options, NAMES)
        self.root = Path(self.settings.root or default_root()).expanduser()
        self.cache_dir = Path(self.settings.cache_dir or default_cache_dir()).expanduser()
        self.on_error = self.settings.on_error
        self.num_workers = self.settings.num_workers
        self.batch_size = self.settings.batch_size
        self.scored_batch_size: int | None = None
        self.max_nodes = self.settings.max_nodes
        self.policy = self.settings.policy
        self.share = self.settings.share
        self._words = self._find_words()
        self._vectors: WordVectors | None = None
        self._is_prepared = False
        self._corpora: tuple[GraphCorpus, GraphCorpus] | None = None  # as read, and encoded
        self._facts: TypedDAG | None = None  # all records without their nodes
        self._hashes: Tensor | None = None

    def prepare(self, state: Mapping[str, Any] | None = None) -> None:
        """Reads and splits the records, and learns the feature spec. Does nothing the second time.

        Args:
            state: the `state_dict` of a run, whose split and feature spec are used; None to make
                new ones.

        Raises:
            DataError: if the data cannot be used, or are not those that the stored split divides.
            RecordError: for the first bad record, under on_error="raise".
        """
        if self._is_prepared:
            return
        settings = self._split_settings() if state is None else self.settings  # before any work
        sources = self.source.files(self.root, self.cache_dir)
        with unchanged(self.source.spec.make(), [file.path for file in sources]):
            self.source = self.source.with_inferred_options(sources)
            if state is None:
                self._refuse_unread_words()
            files, corpus = self._read()
        if state is None:
            counts = [file.num_records for file in self.files]
            records = Records(corpus, [file.part for file in files], counts)
            self.split = replace(split_records(records, settings), files=self.files)
            self._learn(corpus, records.facts)
        else:
            self.split = Split.from_dict(state["split"])
            self.split.check_files(self.files)
            self.spec = FeatureSpec.from_dict(state["spec"])
            self.spec.check_targets(corpus.schema)
        self._corpora = corpus, corpus.map(self.spec.encode)
        self._is_prepared = True

    def _learn(self, corpus: GraphCorpus, facts: TypedDAG) -> None:
        """Learns the feature spec from the training part, and its share of known values in val."""
        settings, train, val = self.settings, self.split.train, self.split.val
        _check_weights(facts, train)
        of_nodes = FeatureSpec.learns_of_nodes(facts.schema)
        self.spec = FeatureSpec.fit(
            map(corpus.select, torch.split(train, CHUNK)) if of_nodes else _facts_of(facts, train),
            settings.min_count,
            settings.max_vocabulary,
            settings.lowercase,
        )
        if self._words is not None:
            dag = corpus.whole()
            self.spec, self._vectors = learn_words(self.spec, dag, self._words, settings)
        if self.spec.vocabularies and len(val):
            self.spec = self.spec.held_out(map(corpus.select, torch.split(val, CHUNK)))

    def prepare_for_scoring(self, spec: FeatureSpec) -> None:
        """Reads other data than the run did; every record is in the part test.

        Weights and parts of the records are not read.

        Raises:
            DataError: if the data cannot be used.
            RecordError: for the first bad record, under on_error="raise".
            ConfigError: if a target of the run is absent.
            SchemaError: if the features differ from those of the run.
        """
        self.source = self.source.for_scoring()
        _, corpus = self._read()
        self.split = replace(everything_is_test(corpus.num_graphs), files=self.files)
        self.spec = spec
        self._corpora = corpus, corpus.map(spec.encode)
        self.spec.check_targets(corpus.schema)
        self._is_prepared = True

    def state_dict(self) -> dict[str, Any]:
        """Split and feature spec as plain values, ready for JSON."""
        return {"split": self.split.to_dict(), "spec": self.spec.to_dict()}

    @property
    def word_vectors(self) -> WordVectors | None:
        """The vectors that the embeddings of words begin with, if `data.vectors` names a file.

        Raises:
            DataError: if `prepare` was not called, or the file cannot be used.
        """
        path = self.settings.vectors
        if self._vectors is None and path is not None and self._words is not None:
            self._vectors = find_word_vectors(self.spec, self.raw, self._words, Path(path))
        return self._vectors

    @property
    def word_notes(self) -> list[str]:
        """Sentences about the word vectors, if this run read them."""
        return [] if self._vectors is None else [self._vectors.note]

    @property
    def raw(self) -> TypedDAG:
        """All records as read; raises DataError if `prepare` was not called."""
        return self._load()[0].whole()

    @property
    def facts(self) -> TypedDAG:
        """All records as read; records of several large files (see `LARGE`) lack their nodes.

        Raises:
            DataError: if `prepare` was not called.
        """
        parts = self._load()[0].parts
        return parts[0] if len(parts) == 1 else self._without_nodes()

    def encoded(self, part: str | None = None) -> TypedDAG:
        """The records of a part, or all, with vocabulary ids in place of strings.

        Raises:
            ConfigError: if there is no such part.
            DataError: if `prepare` was not called.
        """
        corpus = self._load()[1]
        return corpus.whole() if part is None else corpus.select(self.split.part(part))

    def select(self, numbers: Tensor | Sequence[int], encoded: bool = False) -> TypedDAG:
        """The records with these numbers, as read or encoded.

        Raises:
            DataError: if `prepare` was not called.
        """
        return self._load()[encoded].select(numbers)

    @property
    def hashes(self) -> Tensor:
        """[num_records] int64 the hash of each record, see `hash_records`; computed once.

        Raises:
            DataError: if `prepare` was not called.
        """
        if self._hashes is None:
            self._hashes = torch.cat([hash_records(chunk) for chunk in self.chunks()])
        return self._hashes

    def select_facts(self, numbers: Tensor) -> TypedDAG:
        """The records with these numbers as read, without their nodes.

        Raises:
            DataError: if `prepare` was not called.
        """
        return select(self._without_nodes(), numbers)

    def chunks(
        self, part: str | None = None, encoded: bool = False, facts: bool = False
    ) -> Iterator[TypedDAG]:
        """The records of a part, or all, in order and in pieces.

        Args:
            part: train, val or test; None for all records.
            encoded: whether they have vocabulary ids in place of strings.
            facts: whether they come without their nodes.

        Raises:
            ConfigError: if there is no such part.
            DataError: if `prepare` was not called.
        """
        corpus = self._load()[encoded]
        numbers = torch.arange(corpus.num_graphs) if part is None else self.split.part(part)
        if not facts:
            yield from map(corpus.select, torch.split(numbers, CHUNK))
            return
        for piece in _facts_of(self._without_nodes(), numbers):
            yield self.spec.encode(piece) if encoded else piece

    def num_rows(self, space: str) -> Tensor:
        """[num_records] how many rows each record has in a space of the schema, or "output"."""
        return self._load()[0].num_rows(space)

    def loader(
        self,
        part: str,
        passes: Sequence[Pass],
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool | None = None,
        pin_memory: bool = False,
        share: bool = False,
        lowering: Callable[[TypedDAG, int], TypedDAG] | None = None,
        seed: int | None = None,
    ) -> GraphLoader:
        """Planned batches of a part.

        Args:
            part: train, val or test.
            passes: the passes of the model.
            rank: the number of this process among `world_size`; each gets batches of `batch_size`,
                or of `scored_batch_size` if they are not shuffled.
            world_size: how many processes share the part; no record is in two of them.
            shuffle: whether the order changes with the epoch (`loader.sampler.set_epoch`) instead
                of being that of the files; by default for train only.
            pin_memory: whether batches come in page-locked memory, for a GPU.
            share: whether equal nodes of a batch are computed once; never in batches that are
                shuffled and padded, see `DataSettings.shapes`.
            lowering: makes the graphs that the model computes, from those of the part and the
                number of processes to use; None if the model computes the graphs of the part.
            seed: of the order; None for that of the split.

        Raises:
            ConfigError: if the part is unknown, the processes are too many, or the batches cannot
                be padded.
        """
        from graphfold.loader import BatchSampler, GraphDataset, GraphLoader  # loads the engine

        corpus, lowered, read = self._load()[1], None, None
        numbers, num_nodes = self.split.part(part), self.num_rows("node")
        if lowering is not None:
            dag = self.encoded(part)
            lowered = lowering(dag, self.num_workers or 0)
            num_nodes = num_nodes[numbers]
            numbers = torch.arange(len(numbers))
        elif self._is_large:
            dag, read = corpus.select([]), corpus.select
        else:
            dag = corpus.whole()
        shuffle = part == "train" if shuffle is None else shuffle
        sampler = BatchSampler(
            numbers,
            num_nodes[numbers],
            self.batch_size if shuffle else self._scored_together(num_nodes[numbers]),
            self.max_nodes,
            shuffle,
            self.settings.seed if seed is None else seed,
            rank,
            world_size,
        )
        is_static = shuffle and self.settings.shapes == "static"
        share = share and not is_static
        dataset = GraphDataset(dag, passes, self.policy, share, lowered, read)
        if is_static:
            dataset.pad(sampler)
        return GraphLoader(dataset, sampler, pin_memory)

    def _scored_together(self, num_nodes: Tensor) -> int:
        """The most records of a batch that is only scored: without gradients it takes less memory.

        Args:
            num_nodes: [num_records] of each record.
        """
        if self.scored_batch_size is not None:
            return self.scored_batch_size
        mean = num_nodes.double().mean().item() if len(num_nodes) else 1.0
        return max(self.batch_size, int(SCORED_NODES / max(mean, 1.0)))

    @property
    def inferred_options(self) -> dict[str, Any]:
        """The options of the adapter that were inferred from the files."""
        options = self.source.options.items()
        return {key: value for key, value in options if self._options.get(key) != value}

    def _split_settings(self) -> DataSettings:
        """The settings for a new split; "given" where the source assigns records to parts."""
        self.source.check_read()
        settings, option = self.settings, self.source.divided_by
        check_assigned_parts(settings, option)
        if settings.split is not None:
            find_split(settings.split)
        return replace(settings, split="given") if settings.split is None and option else settings

    def _refuse_unread_words(self) -> None:
        """Raises ConfigError for options of words if the records have none."""
        spec = self.source.spec
        if FeatureSpec.learns_words(spec.make().schema):
            return
        for name in ("min_count", "max_vocabulary", "lowercase"):
            value, default = getattr(self.settings, name), getattr(DataSettings, name)
            beside = f"the adapter {spec.name}"
            refuse_unread(f"data.{name}", value, default, beside, "Give data with words")

    def _find_words(self) -> tuple[str, str] | None:
        """The node type and the column of the words, if a setting needs them."""
        names = ("vectors", "characters")
        options = [f"data.{name}" for name in names if getattr(self.settings, name)]
        if not options:
            return None
        words = self.source.spec.make().words
        if words is None:
            name = self.source.spec.name
            raise ConfigError(
                f"{' and '.join(options)} {'is' if len(options) == 1 else 'are'} for words, but "
                f"with these options the {name} adapter reads none. Leave out what is not needed, "
                "or let it read the forms of words."
            )
        return words

    def __getstate__(self) -> dict[str, Any]:
        """The state without the records, which another process maps into its memory itself."""
        return {**self.__dict__, **dict.fromkeys(("_corpora", "_facts", "_vectors", "_hashes"))}

    def _load(self) -> tuple[GraphCorpus, GraphCorpus]:
        """All records, as read and encoded."""
        if not self._is_prepared:
            raise DataError("the data are not read yet. Call prepare() first.")
        if self._corpora is None:
            _, corpus = self._read()
            self.split.check_files(self.files)
            self._corpora = corpus, corpus.map(self.spec.encode)
        return self._corpora

    def _without_nodes(self) -> TypedDAG:
        if self._facts is None:
            self._facts = self._load()[0].facts()
        return self._facts

    def _read(self) -> tuple[list[DataFile], GraphCorpus]:
        """Packs all files; sets `files`, `skipped` and `num_changed`."""
        files = self.source.files(self.root, self.cache_dir)
        sources = [(file.adapter, file.path) for file in files]
        packed = pack_files(sources, self.cache_dir, self.on_error, self.num_workers)
        self.files: tuple[FileState, ...] = tuple(
            FileState(str(corpus.path), corpus.content, corpus.dag.num_graphs) for corpus in packed
        )
        self.skipped: tuple[RecordError, ...] = tuple(e for c in packed for e in c.skipped)
        refuse_empty(packed[0].path, packed)
        size = sum(size_of(stored) for stored in {corpus.stored for corpus in packed})
        self._is_large = size > LARGE and self._words is None
        dags = [corpus.dag for corpus in packed]
        corpus = GraphCorpus(dags if self._is_large or len(dags) == 1 else [collate(dags)])
        self.num_changed = sum(count_changed(part) for part in corpus.parts)
        return files, corpus


def _facts_of(facts: TypedDAG, numbers: Tensor) -> Iterator[TypedDAG]:
    """Some of the graphs without nodes, in pieces."""
    return map(partial(select, facts), torch.split(numbers, FACTS_CHUNK))


def _check_weights(dag: TypedDAG, train: Tensor) -> None:
    """Raises DataError for a weight that is no finite number from 0 on, or if all are zero."""
    weights = dag.weights()
    if weights is None:
        return
    weights = weights[train]
    is_wrong = ~(weights.isfinite() & (weights >= 0))
    if is_wrong.any():
        graph = int(is_wrong.int().argmax())
        file, line = dag.place(int(train[graph]))
        raise DataError(
            f"{file}:{line}: the weight of the record is {float(weights[graph]):g}, but weights "
            "are finite numbers from 0 on. Correct it."
        )
    if not weights.any():
        raise DataError(
            "every record of the training part has weight 0, so nothing can be learnt. Correct "
            "data.weight_column, or leave it out."
        )
