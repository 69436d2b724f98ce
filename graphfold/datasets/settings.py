"""The settings of a `DataModule`, in groups: keys of the config group `data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from graphfold.datasets.splits.split_records import SplitSettings
from graphfold.datasets.words.contextual import require_transformers
from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import option_faults
from graphfold.registry import POLICIES


@dataclass(frozen=True)
class ReadSettings:
    """Settings of finding, reading and storing files.

    Args:
        root: the folder that holds the corpora; by default $GRAPHFOLD_DATA, else ./data.
        cache_dir: the folder of packed data; by default $XDG_CACHE_HOME/graphfold, else
            ~/.cache/graphfold.
        on_error: "raise" stops at the first bad record; "skip" lists bad records in `skipped`.
        num_workers: processes that read a file through its adapter, the first time, and that lower
            the graphs of a model of blocks; 0 for none but this one. None for one per core that
            read, and for none that lower.
    """

    root: str | Path | None = None
    cache_dir: str | Path | None = None
    on_error: str = "raise"
    num_workers: int | None = None

    def __post_init__(self) -> None:
        check_choice("on_error", self.on_error, ("raise", "skip"))
        check_least("num_workers", self.num_workers, 0)


@dataclass(frozen=True)
class BatchSettings:
    """Settings of batches and their plans.

    Args:
        batch_size: the most graphs in a batch.
        max_nodes: the most nodes in a batch; None for any number.
        policy: which nodes run together, see `graphfold.batching.scheduling.policies`; "auto" takes
            the one that needs the fewest calls of cells.
        share: whether equal nodes of a batch are computed once, see `build_schedule`; "auto": where
            the model is known to compute the same.
    """

    batch_size: int = 32
    max_nodes: int | None = None
    policy: str = "auto"
    share: bool | str = "auto"

    def __post_init__(self) -> None:
        check_least("batch_size", self.batch_size, 1)
        check_least("max_nodes", self.max_nodes, 1)
        check_choice("policy", self.policy, ("auto", *POLICIES.paths))
        check_choice("share", self.share, ("auto", True, False))


@dataclass(frozen=True)
class VocabularySettings:
    """Settings of the words that a model knows.

    Args:
        min_count: how often a word must occur in the training part to be known.
        max_vocabulary: the most words that each vocabulary keeps; None for all.
        lowercase: whether words are counted and looked up in lower case.
    """

    min_count: int = 1
    max_vocabulary: int | None = None
    lowercase: bool = False

    def __post_init__(self) -> None:
        check_least("min_count", self.min_count, 1)
        check_least("max_vocabulary", self.max_vocabulary, 1)


@dataclass(frozen=True)
class WordSettings:
    """Settings of what a model knows of words beside which one each is.

    Args:
        vectors: a file of word vectors, which the embeddings of words begin with; see
            `graphfold.datasets.words.vectors`.
        characters: whether the beginning, the end and the shape of a word are features of it.
        encoder: a folder with an encoder of Hugging Face, whose hidden states are features.
        encoder_layers: which of them: 0 is the embeddings, -1 the last one.
        encoder_join: several of them side by side ("concat"), or their "mean".
        encoder_pieces: of a word in several pieces, the "mean" or the "first" one.
    """

    vectors: str | Path | None = None
    characters: bool = False
    encoder: str | Path | None = None
    encoder_layers: Sequence[int] = (-1,)
    encoder_join: Literal["concat", "mean"] = "concat"
    encoder_pieces: Literal["mean", "first"] = "mean"

    def __post_init__(self) -> None:
        if not self.encoder_layers:
            raise ConfigError("data.encoder_layers is empty. Name a layer, such as -1.")
        if self.encoder is not None:
            require_transformers()

    @property
    def are_asked_for(self) -> list[str]:
        """The settings that need an adapter of words, as `data.NAME`."""
        return [f"data.{name}" for name in ("vectors", "characters", "encoder") if vars(self)[name]]


GROUPS = (ReadSettings, SplitSettings, BatchSettings, VocabularySettings, WordSettings)

#: The names of all settings.
NAMES = tuple(field.name for group in GROUPS for field in fields(group))


@dataclass(frozen=True)
class DataSettings:
    """All groups of settings."""

    reading: ReadSettings
    split: SplitSettings
    batches: BatchSettings
    vocabulary: VocabularySettings
    words: WordSettings

    @staticmethod
    def of(values: Mapping[str, Any]) -> DataSettings:
        """The settings with these values, by name; those not named keep their defaults.

        Raises:
            ConfigError: if a value is of the wrong type or not one of the choices.
        """
        own = [
            {f.name: values[f.name] for f in fields(group) if f.name in values} for group in GROUPS
        ]
        faults = [
            fault
            for group, given in zip(GROUPS, own, strict=True)
            for fault in option_faults("data", group, given)
        ]
        if faults:
            raise ConfigError("\n".join(faults))
        reading, split, batches, vocabulary, words = own
        return DataSettings(
            ReadSettings(**reading),
            SplitSettings(**split),
            BatchSettings(**batches),
            VocabularySettings(**vocabulary),
            WordSettings(**words),
        )


def check_least(name: str, value: int | None, least: int) -> None:
    """Raises ConfigError if a number is too small; None is no number."""
    if value is not None and value < least:
        raise ConfigError(f"data.{name} is {value}. Give a whole number from {least} on.")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises ConfigError with the nearest choice if `value` is none."""
    if value not in choices:
        names = [str(choice).lower() for choice in choices]
        raise ConfigError(
            f"data.{name} is '{value}'.{did_you_mean(str(value), names)} Use one of "
            f"{', '.join(names)}."
        )
