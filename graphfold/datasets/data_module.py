"""DataModule: from a few plain settings to batches for a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG, select
from graphfold.datasets.adapter import count_changed
from graphfold.datasets.corpora.corpus import DataFile, default_root
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.inspection.graph_hash import hash_records
from graphfold.datasets.settings import NAMES, DataSettings, Paths
from graphfold.datasets.splits.split import FileState, Split, everything_is_test
from graphfold.datasets.splits.split_records import (
    Records,
    check_parts_given,
    check_split,
    find_split,
    split_records,
)
from graphfold.datasets.storage.cache import default_cache_dir
from graphfold.datasets.storage.fingerprint import unchanged
from graphfold.datasets.storage.graph_file import StoredGraphs
from graphfold.datasets.storage.packing import PackedCorpus, join, pack_files, refuse_empty
from graphfold.datasets.words.learning import find_word_vectors, learn_words
from graphfold.datasets.words.vectors import WordVectors
from graphfold.errors import ConfigError, DataError, RecordError
from graphfold.options import refuse_unread

if TYPE_CHECKING:
    from graphfold.batching import Pass
    from graphfold.loader import GraphLoader


#: Bytes of packed data beyond which records are read from the disk batch by batch.
LARGE = 1 << 27

#: Records whose columns of whole graphs are looked at together, in a large corpus.
FACTS_CHUNK = 1 << 16

#: The nodes of a batch that is only scored, unless as many records as a step has are more.
SCORED_NODES = 1 << 13


class DataModule:
    """A corpus, split, encoded and served in planned batches.

    Its arguments are the keys of the config group `data`.

    Nothing is read before `prepare`, which packs the files, splits the records, and learns
    vocabularies and scalers from the training part; a run that is loaded again hands its state to
    `prepare` and nothing is learnt anew. The engine is loaded by `loader`, and not before.

    Args:
        corpus, adapter, path, variant: what is read, see `DataSettings`.
        **settings: the other fields of `DataSettings`, and options of the adapter (`smiles_column`,
            `num_classes`) or of a corpus that is made on the spot.

    Attributes:
        scored_batch_size: the records that are scored at once; None for so many as have some
            `SCORED_NODES` nodes, or as a step has.

    Raises:
        ConfigError: if there is nothing to read, or a name, an option or a value is wrong.
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
        self._stored: StoredGraphs | None = None  # of a large corpus
        self._dags: tuple[TypedDAG, TypedDAG] | None = None  # as read, and encoded
        self._hashes: Tensor | None = None

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
        settings = self._split_settings() if state is None else self.settings  # before any work
        paths = [file.path for file in self.source.files(self.root, self.cache_dir)]
        with unchanged(self.source.spec.make(), paths):
            self._infer_options()
            if state is None:
                self._refuse_unread_words()
            files, dag = self._read()
        if state is None:
            counts = [file.num_records for file in self.files]
            records = Records(dag, [file.part for file in files], counts, self._stored)
            split = split_records(records, settings)
            self.split = replace(split, files=self.files)
            _check_weights(dag, self.split.train)
            self.spec = FeatureSpec.fit(
                self._chunks(dag, self.split.train, not FeatureSpec.learns_of_nodes(dag.schema)),
                settings.min_count,
                settings.max_vocabulary,
                settings.lowercase,
            )
            if self._words is not None:
                self.spec, self._vectors = learn_words(self.spec, dag, self._words, settings)
            if self.spec.vocabularies and len(self.split.val):
                self.spec = self.spec.held_out(self._chunks(dag, self.split.val, False))
        else:
            self.split = Split.from_dict(state["split"])
            self.split.check_files(self.files)
            self.spec = FeatureSpec.from_dict(state["spec"])
            self.spec.check_targets(dag.schema)
        self._dags = dag, self._encode(dag)
        self._is_prepared = True

    def prepare_for_scoring(self, spec: FeatureSpec) -> None:
        """Reads other data than a run's: every record is in the part test.

        Weights and parts of the records are not needed and not read.

        Raises:
            DataError: if the data cannot be used.
            RecordError: for the first bad record, under on_error="raise".
            ConfigError: if they lack a target that the run learnt from.
            SchemaError: if their features are not those that the run learnt from.
        """
        self.source = self.source.for_scoring()
        _, dag = self._read()
        self.split = replace(everything_is_test(dag.num_graphs), files=self.files)
        self.spec = spec
        encoded = self._encode(dag)
        self.spec.check_targets(dag.schema)
        self._dags = dag, encoded
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
        """Sentences about what was found of words, if that was looked for in this run."""
        return [] if self._vectors is None else [self._vectors.note]

    @property
    def raw(self) -> TypedDAG:
        """All records as read, in memory; raises DataError if `prepare` was not called."""
        dag = self._load()[0]
        return dag if self._stored is None else self._stored.whole()

    @property
    def facts(self) -> TypedDAG:
        """All records as read, of a large corpus without their nodes: see `LARGE`.

        Raises:
            DataError: if `prepare` was not called.
        """
        return self._load()[0]

    def encoded(self, part: str | None = None) -> TypedDAG:
        """All records, or those of a part, with vocabulary ids in place of strings, in memory.

        Raises:
            ConfigError: if there is no such part.
            DataError: if `prepare` was not called.
        """
        dag = self._load()[1]
        if self._stored is not None:
            return self.select(self.split.part(part) if part else range(dag.num_graphs), True)
        return dag if part is None else select(dag, self.split.part(part))

    def select(self, numbers: Tensor | Sequence[int], encoded: bool = False) -> TypedDAG:
        """The records with these numbers, as read or encoded.

        Raises:
            DataError: if `prepare` was not called, or a stored copy was changed.
        """
        dags = self._load()
        if self._stored is None:
            return select(dags[encoded], numbers)
        dag = self._stored.select(numbers)
        return self.spec.encode(dag) if encoded else dag

    @property
    def hashes(self) -> Tensor:
        """[num_records] int64 the hash of each record, see `hash_records`; made once.

        Raises:
            DataError: if `prepare` was not called.
        """
        if self._hashes is None:
            self._hashes = torch.cat([hash_records(chunk) for chunk in self.chunks()])
        return self._hashes

    def select_facts(self, numbers: Tensor) -> TypedDAG:
        """The records with these numbers as read, of a large corpus without their nodes.

        Raises:
            DataError: if `prepare` was not called.
        """
        return (select if self._stored is None else _facts_of)(self.facts, numbers)

    def chunks(
        self, part: str | None = None, encoded: bool = False, facts: bool = False
    ) -> Iterator[TypedDAG]:
        """All records, or those of a part, in order; of a large corpus a few at a time.

        Args:
            part: train, val or test; None for all records.
            encoded: whether they have vocabulary ids in place of strings.
            facts: whether those of a large corpus may come without their nodes.

        Raises:
            ConfigError: if there is no such part.
            DataError: if `prepare` was not called.
        """
        dag = self._load()[encoded]
        if part is None and self._stored is None:
            yield dag
            return
        numbers = torch.arange(dag.num_graphs) if part is None else self.split.part(part)
        for chunk in self._chunks(dag, numbers, facts):
            yield self.spec.encode(chunk) if encoded and self._stored is not None else chunk

    def num_rows(self, space: str) -> Tensor:
        """[num_records] how many rows each record has in a space of the schema, or "output"."""
        dag = self._load()[0]
        if self._stored is not None:
            return self._stored.num_rows(space)
        return (dag.output_ptr if space == "output" else dag.row_ptr(space)).diff()

    def loader(
        self,
        part: str,
        passes: Sequence[Pass],
        policy: str | None = None,
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
            policy: how to plan them; None for that of the settings.
            rank: which of `world_size` processes this is; each gets batches of `batch_size`, or of
                `scored_batch_size` if they are not shuffled.
            world_size: how many processes share the part; no record is in two of them.
            shuffle: whether the order changes with the epoch (`loader.sampler.set_epoch`); by
                default for train only. Otherwise it is that of the files.
            pin_memory: whether batches come in page-locked memory, for a GPU.
            share: whether equal nodes of a batch are computed once.
            lowering: makes the graphs that the model computes, from those of the part and the
                number of processes that may share the work; None if it computes the latter.
            seed: of the order; None for that of the split.

        Raises:
            ConfigError: if there is no such part or policy, or there are too many processes.
        """
        from graphfold.loader import BatchSampler, GraphDataset, GraphLoader  # loads the engine

        dag, lowered, read = self._load()[1], None, None
        numbers, num_nodes = self.split.part(part), self.num_rows("node")
        if lowering is not None:
            dag = self.encoded(part)
            lowered = lowering(dag, self.num_workers or 0)
            num_nodes = num_nodes[numbers]
            numbers = torch.arange(len(numbers))
        elif self._stored is not None:
            read = partial(self.select, encoded=True)
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
        dataset = GraphDataset(dag, passes, policy or self.policy, share, lowered, read)
        return GraphLoader(dataset, sampler, pin_memory)

    def _scored_together(self, num_nodes: Tensor) -> int:
        """The records of a batch that is only scored: it has no gradients, which take the memory.

        Args:
            num_nodes: [num_records] of each record.
        """
        if self.scored_batch_size is not None:
            return self.scored_batch_size
        mean = num_nodes.double().mean().item() if len(num_nodes) else 1.0
        return max(self.batch_size, int(SCORED_NODES / max(mean, 1.0)))

    @property
    def inferred_options(self) -> dict[str, Any]:
        """The options of the adapter that the files have decided, so far."""
        options = self.source.options.items()
        return {key: value for key, value in options if self._options.get(key) != value}

    def _split_settings(self) -> DataSettings:
        """The settings for a new split: by default, that which the user gives."""
        self.source.check_read()
        settings, option = self.settings, self.source.divided_by
        check_parts_given(settings, option)
        if settings.split is not None:
            find_split(settings.split)
        return replace(settings, split="given") if settings.split is None and option else settings

    def _infer_options(self) -> None:
        files = self.source.files(self.root, self.cache_dir)
        self.source = self.source.with_inferred_options(files)

    def _refuse_unread_words(self) -> None:
        """Raises ConfigError for options of words if the records have none."""
        if not FeatureSpec.learns_words(self.source.spec.make().schema):
            options, remedy = ("min_count", "max_vocabulary", "lowercase"), "Give data with words"
            self._refuse_unread(options, f"the adapter {self.source.spec.name}", remedy)

    def _refuse_unread(self, options: Sequence[str], beside: str, remedy: str) -> None:
        for name in options:
            value, default = getattr(self.settings, name), getattr(DataSettings, name)
            refuse_unread(f"data.{name}", value, default, beside, remedy)

    def _find_words(self) -> tuple[str, str] | None:
        """The node type and the column of the words, where a setting asks for them."""
        names = ("vectors", "characters")
        asked = [f"data.{name}" for name in names if getattr(self.settings, name)]
        if not asked:
            return None
        words = self.source.spec.make().words
        if words is None:
            name = self.source.spec.name
            raise ConfigError(
                f"{' and '.join(asked)} {'is' if len(asked) == 1 else 'are'} for words, but with "
                f"these options the {name} adapter reads none. Leave out what is not needed, or "
                "let it read the forms of words."
            )
        return words

    def __getstate__(self) -> dict[str, Any]:
        """Without the records: another process maps their packed copy into its own memory."""
        return {**self.__dict__, "_dags": None, "_vectors": None, "_stored": None, "_hashes": None}

    def _load(self) -> tuple[TypedDAG, TypedDAG]:
        """All records, as read and encoded."""
        if not self._is_prepared:
            raise DataError("the data are not read yet. Call prepare() first.")
        if self._dags is None:
            _, dag = self._read()
            self.split.check_files(self.files)
            self._dags = dag, self._encode(dag)
        return self._dags

    def _encode(self, dag: TypedDAG) -> TypedDAG:
        """The records encoded; those of a large corpus are when they are read."""
        return dag if self._stored is not None else self.spec.encode(dag)

    def _chunks(self, dag: TypedDAG, numbers: Tensor, facts: bool) -> Iterator[TypedDAG]:
        if self._stored is None:
            return iter([select(dag, numbers)])
        if facts:
            return (_facts_of(dag, some) for some in torch.split(numbers, FACTS_CHUNK))
        chunks = self._stored.chunks(numbers)
        return chunks if len(numbers) else iter([self._stored.select([])])

    def _read(self) -> tuple[list[DataFile], TypedDAG]:
        """Packs all files; sets `files`, `skipped` and `_stored`, and returns the facts."""
        files = self.source.files(self.root, self.cache_dir)
        sources = [(file.adapter, file.path) for file in files]
        packed = pack_files(sources, self.cache_dir, self.on_error, self.num_workers)
        self.files: tuple[FileState, ...] = tuple(_state(corpus) for corpus in packed)
        self.skipped: tuple[RecordError, ...] = tuple(e for c in packed for e in c.skipped)
        refuse_empty(packed)
        is_large = sum(corpus.graphs.size for corpus in packed) > LARGE and self._words is None
        stored = join(packed, is_whole=not is_large)
        self._stored = stored if is_large else None
        facts = stored.facts if is_large else stored.whole()
        self.num_changed = count_changed(facts)
        return files, facts


def _facts_of(facts: TypedDAG, numbers: Tensor) -> TypedDAG:
    """Some of the graphs without nodes; `select` counts the nodes of all of them, in each space."""
    columns = {name: column[numbers] for name, column in facts.columns["graph"].items()}
    return replace(
        facts,
        num_graphs=len(numbers),
        output_ptr=facts.output_ptr[: len(numbers) + 1],
        origin=facts.origin[numbers],
        columns={**facts.columns, "graph": columns},
    )


def _check_weights(dag: TypedDAG, train: Tensor) -> None:
    """Refuses weights of records that are no weights, or all of them zero.

    Raises:
        DataError: for them; it names the place of the first that is no finite number from 0 on.
    """
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


def _state(corpus: PackedCorpus) -> FileState:
    return FileState(str(corpus.path), corpus.content, corpus.graphs.num_graphs)
