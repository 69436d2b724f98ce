"""The option `data.features_from`: where the features of a level come from, for which data.

torch is not loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import LocalPath, read_section

#: A graph as a whole; its nodes: atoms or words; its edges: bonds.
LEVELS = ("graph", "node", "edge")


@dataclass(frozen=True)
class FeatureSource:
    """The source of the features of one level.

    Args:
        level: one of `LEVELS`.
        file: the file; a `*` in it stands for the name of the file of the records without its
            suffix. None for the table of the records.
        columns: column -> shape of its value for one graph, node or edge, None until the files
            decide it; or the names alone. None for all columns of the file.
        key: the column by which the features of a record are found, in both files; None if the
            file has the order of the records.

    Raises:
        ConfigError: if there is neither a file nor a column, or a key without a file.
    """

    level: str
    file: LocalPath | None = None
    columns: Mapping[str, Sequence[int] | None] | Sequence[str] | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if self.file is None and (self.key is not None or not self.columns):
            raise ConfigError(
                f"data.features_from.{self.level} names no file. Write {self.level}: FILE, or "
                "[COLUMN, ...] for columns of the table of the records."
            )
        if self.columns is not None and not isinstance(self.columns, Mapping):
            object.__setattr__(self, "columns", dict.fromkeys(self.columns))
        if self.file is not None:
            object.__setattr__(self, "file", str(self.file))

    @property
    def shapes(self) -> dict[str, tuple[int, ...] | None]:
        """Column -> shape of its value for one graph, node or edge; empty for unknown columns."""
        columns = self.columns.items() if isinstance(self.columns, Mapping) else ()
        return {name: None if shape is None else tuple(shape) for name, shape in columns}

    @property
    def is_open(self) -> bool:
        """True until the shapes of all columns are known."""
        return not self.shapes or None in self.shapes.values()

    @property
    def own_columns(self) -> list[str]:
        """The columns that the table of the records needs."""
        return [*self.shapes] if self.file is None else [self.key] if self.key else []

    @property
    def has_order(self) -> bool:
        """True for features in the order of the records of a file."""
        return self.file is not None and self.key is None

    @property
    def is_of_one(self) -> bool:
        """True for a file in the order of the records of one file alone."""
        return self.has_order and "*" not in str(self.file)

    def file_for(self, path: Path) -> Path | None:
        """The file of features for a file of records."""
        stem = Path(path.name.removesuffix(".gz")).stem
        return Path(str(self.file).replace("*", stem)).expanduser() if self.file else None


def read_sources(option: Any) -> dict[str, FeatureSource]:
    """Level -> its source, from `{LEVEL: FILE}`, `{LEVEL: [COLUMN, ...]}` or
    `{LEVEL: {file: FILE, columns: [...], key: COLUMN}}`.

    Raises:
        ConfigError: if a level or a value is none.
    """
    sources = {}
    for level, value in option.items() if isinstance(option, Mapping) else [(option, None)]:
        if level not in LEVELS:
            raise ConfigError(
                f"data.features_from has {level!r}, which is no level."
                f"{did_you_mean(str(level), LEVELS)} Write {{LEVEL: FILE}}; the levels are "
                f"{', '.join(LEVELS)}."
            )
        parts = {"file" if isinstance(value, str | Path) else "columns": value}
        values = {"level": level, **(value if isinstance(value, Mapping) else parts)}
        sources[level] = read_section(FeatureSource, values, f"data.features_from.{level}")
    return sources


def plain_sources(sources: Mapping[str, FeatureSource]) -> dict[str, Any] | None:
    """The option that `read_sources` reads, as plain values; None without a source."""
    values = {level: asdict(source) for level, source in sources.items()}
    return {k: {n: v[n] for n in ("file", "columns", "key")} for k, v in values.items()} or None


def with_files(option: Any, change: Callable[[Any], Any]) -> dict[str, Any] | None:
    """The option with another path of each file; raises as `read_sources`."""
    sources = {} if option is None else read_sources(option)
    moved = {k: replace(s, file=s.file and change(s.file)) for k, s in sources.items()}
    return plain_sources(moved)


def for_other_data(stored: Any, option: Any, is_other: bool) -> Any:
    """The option of a trained model for the data that it is applied to.

    Args:
        stored: that of the run; None without features from elsewhere.
        option: `{LEVEL: FILE}` for these data, the columns being those of the run; None where the
            user gave none.
        is_other: whether they are other data than those of the run, for which a file in the order
            of the records has to be named again.

    Raises:
        ConfigError: if such a file is not named, or columns or levels differ from those of the run.
    """
    sources = {} if stored is None else read_sources(stored)
    named = {} if option is None else read_sources(option)
    for level, new in named.items():
        source = sources.get(level)
        if source is None or [*(new.columns or source.shapes)] != [*source.shapes]:
            raise ConfigError(
                f"data.features_from names features of the level {level}, for which the model "
                f"reads {'none' if source is None else 'other columns'}. Leave the level out."
            )
        sources[level] = replace(source, file=new.file, key=new.key or source.key)
    for level, source in sources.items():
        if is_other and source.is_of_one and level not in named:
            raise ConfigError(
                f"the model reads features of the level {level} from a file in the order of the "
                f"records ({Path(str(source.file)).name}), and other data need their own, "
                f"{{{level}: FILE}}. Set data.features_from."
            )
    return plain_sources(sources)
