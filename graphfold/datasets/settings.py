"""The settings of a `DataModule`: keys of the config group `data`; torch is not loaded for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias

from graphfold.errors import ConfigError
from graphfold.options import From0, From1, Limits, LocalPath, section_faults
from graphfold.registry import POLICIES

#: A file, a pattern, or a list of them.
Paths: TypeAlias = LocalPath | Sequence[LocalPath]


@dataclass(frozen=True)
class DataSettings:
    """The keys of the config group `data` except for options of an adapter or a generated corpus.

    Args:
        corpus: the name of a corpus, see `graphfold.datasets.corpora.corpus_table`.
        adapter: the name or dotted path of an adapter; not needed with a corpus.
        path: a file of one's own, several or a pattern, or {"train": ..., "val": ..., "test": ...};
            with a corpus, it is read in place of the corpus's files.
        variant: one of the corpus's alternatives; by default the first.

        root: the folder that holds the corpora; by default $GRAPHFOLD_DATA, else ./data.
        cache_dir: the folder of packed data; by default $XDG_CACHE_HOME/graphfold, else
            ~/.cache/graphfold.
        on_error: "raise" stops at the first bad record; "skip" lists bad records in `skipped`.
        num_workers: processes that read a file through its adapter, the first time, and that lower
            the graphs of a model of blocks; 0 for this process alone. None for one per core to
            read, and this process to lower.

        split: a name in `SPLITS`, or the dotted path of a function of one's own; by default "given"
            where files or a column of the table name the training part, else "random".
        fractions: the shares of train, val and test; of folds val / (train + val) is the share of
            the records outside of the test fold that is val.
        seed: of the split and of the order of batches.
        num_folds: how many folds kfold and repeated_kfold make.
        fold: the number of the fold that is test, from 0 on; of repeated_kfold up to
            num_repeats * num_folds - 1.
        num_repeats: how often repeated_kfold divides the records.
        groups: the records that stay together in random, kfold and repeated_kfold: "none", or
            a name in `graphfold.datasets.splits.split_ways`.
        stratify_by: the target or feature whose values are the labels of stratified; by default the
            only target of integers.

        batch_size: the most graphs in a batch that is trained; batches that are only scored are
            larger.
        max_nodes: the most nodes in a batch; None for any number.
        policy: which nodes run together, see `graphfold.batching.scheduling.policies`.
        share: whether equal nodes of a batch are computed once, see `build_schedule`; "auto": if
            the model computes equal nodes equally.
        shapes: "static" fills training batches up to one of a few sizes, see
            `graphfold.batching.padding`; "free" leaves them as they are.

        min_count: how often a word must occur in the training part to be in a vocabulary.
        max_vocabulary: the most words that each vocabulary keeps; None for all.
        lowercase: whether words are counted and looked up in lower case.

        vectors: a file of word vectors, which the embeddings of words begin with; see
            `graphfold.datasets.words.vectors`.
        characters: whether the beginning, the end and the shape of a word are features of it.
    """

    corpus: str | None = None
    adapter: str | None = None
    path: Paths | Mapping[str, Paths] | None = None
    variant: str | None = None

    root: LocalPath | None = None
    cache_dir: LocalPath | None = None
    on_error: Literal["raise", "skip"] = "raise"
    num_workers: Annotated[int, Limits(least=0, most=1_024)] | None = None

    split: str | None = None
    fractions: Sequence[float] = (0.8, 0.1, 0.1)
    seed: From0 = 0
    num_folds: int = 5
    fold: int = 0
    num_repeats: int = 5
    groups: str = "none"
    stratify_by: str | None = None

    batch_size: From1 = 32
    max_nodes: From1 | None = None
    policy: Annotated[str, Limits(choices=tuple(POLICIES.paths))] = "depth"
    share: Literal["auto"] | bool = "auto"
    shapes: Literal["free", "static"] = "free"

    min_count: From1 = 1
    max_vocabulary: From1 | None = None
    lowercase: bool = False

    vectors: LocalPath | None = None
    characters: bool = False

    @staticmethod
    def of(values: Mapping[str, Any]) -> DataSettings:
        """The settings among the keys of the config group; the others are options of the adapter.

        Raises:
            ConfigError: if a value is of the wrong type or not one of the choices.
        """
        faults = [*setting_faults(values)]
        if faults:
            raise ConfigError("\n".join(faults))
        return DataSettings(**_settings(values))

    def check_shapes(self) -> None:
        """Raises ConfigError for settings that static shapes do not go with."""
        if self.shapes == "static" and (self.share is True or self.policy != "depth"):
            raise ConfigError(
                "data.shapes=static fills the levels of batches, whose nodes all run by depth, but "
                f"data.policy={self.policy} and data.share={self.share} are set. Set "
                "data.policy=depth and data.share=auto, or data.shapes=free."
            )


#: The names of the settings.
NAMES = tuple(field.name for field in fields(DataSettings))


def setting_faults(values: Mapping[str, Any]) -> Iterator[str]:
    """The faults of the settings among the keys of the config group."""
    return section_faults(DataSettings, _settings(values), "data")


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in NAMES if name in values}
