"""Features of atoms and bonds: functions of RDKit's objects, each a column of numbers.

`data.features` may name a user's `FeatureSet` by its dotted path; graphfold's are in
`feature_sets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from graphfold.dag import Column
from graphfold.errors import RecordError
from graphfold.registry import FEATURE_SETS

#: An atom or a bond.
Item: TypeAlias = Chem.Atom | Chem.Bond

#: The numbers of a feature: a byte for each where that holds them.
Numbers: TypeAlias = bytearray | list[Any]

#: What the function of a feature takes, see `Feature`.
Source: TypeAlias = Literal["item", "molecule"]


@dataclass(frozen=True, eq=False)
class Feature:
    """One column of atoms or of bonds, made by `codes`, `one_hot`, `flag` or `number`.

    Args:
        column: the column.
        read: the function that gives the value; see `of`.
        encode: the number of a value; greater numbers for greater rows.
        of: the argument of `read`: RDKit's "item", the atom or the bond; or the "molecule", for
            which it returns a list with the value of each atom (or each bond), in RDKit's order.
        size: an upper bound of all numbers; None without one.
        table: [size, *shape] the row of each number; None where the number is the row.
        absent: the number of an atom or bond that one side of a reaction lacks.
    """

    column: Column
    read: Callable[[Any], Any]
    encode: Callable[[Any], float]
    of: Source
    size: int | None = None
    table: NDArray[np.bool_] | None = None
    absent: int = 0

    @property
    def collect(self) -> Callable[..., Numbers]:
        """The type of the collection of its numbers."""
        return list if self.size is None or self.size > 256 else bytearray

    def numbers(self, molecule: Chem.Mol, items: Sequence[Item]) -> Numbers:
        """[num_items] the numbers of all atoms or all bonds of a molecule.

        Raises:
            RecordError: if the function fails, or what it gives does not fit the column.
        """
        try:
            values = self.read(molecule) if self.of == "molecule" else map(self.read, items)
            numbers = self.collect(map(self.encode, values))
            if len(numbers) != len(items):
                raise ValueError(f"{len(numbers)} values for {len(items)} atoms or bonds")
        except Exception as error:  # a user's function may raise any
            raise RecordError(
                f"the feature '{self.column.name}' cannot be computed ({type(error).__name__}: "
                f"{error})",
                "Correct its function, or set data.on_error=skip.",
            ) from error
        return numbers

    def array(self, numbers: Numbers) -> NDArray[Any]:
        """Numbers as an array."""
        if isinstance(numbers, bytearray):
            return np.frombuffer(numbers, dtype=np.uint8)
        return np.array(numbers, dtype=np.float64 if self.size is None else np.int64)

    def rows(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """[num_items, *shape] the rows of the column."""
        if self.table is not None:
            rows: NDArray[Any] = self.table[numbers]
            return rows
        return numbers.astype(self.column.dtype)


def codes(
    name: str,
    read: Callable[[Any], Any],
    values: Iterable[Hashable],
    has_other: bool = True,
    of: Source = "item",
) -> Feature:
    """A value coded as its place in a list; other values share the last code.

    Args:
        name: the name of the column.
        read: as in `Feature`.
        values: the values with a code of their own.
        has_other: whether other values can occur; otherwise they are bad records.
        of: as in `Feature`.
    """
    values = tuple(values)
    size = len(values) + has_other
    # One byte a code: a corpus of a million molecules has hundreds of millions of them.
    column = Column(name, "uint8" if size <= 256 else "int32", size=size)
    places = _Places(zip(values, range(size), strict=False), len(values) if has_other else None)
    return Feature(column, read, places.__getitem__, of, size, absent=size)


def one_hot(
    name: str,
    read: Callable[[Any], Any],
    values: Iterable[Hashable],
    has_other: bool = True,
    of: Source = "item",
) -> Feature:
    """A value as the one 1 among zeros; see `codes` for the arguments.

    All values outside the list share a last place (`has_other`), or are rows of zeros.
    """
    values = tuple(values)
    width = len(values) + has_other
    table = np.zeros((width + 1, width), dtype=np.bool_)
    table[np.arange(width, 0, -1), np.arange(width)] = True
    places = _Places(zip(values, range(width, 0, -1), strict=False), int(has_other))
    return Feature(Column(name, "bool", (width,)), read, places.__getitem__, of, width + 1, table)


def flag(name: str, read: Callable[[Any], Any], of: Source = "item") -> Feature:
    """A yes or no as 1 or 0; see `Feature` for the arguments."""
    return Feature(Column(name, "bool"), read, bool, of, 2)


def number(
    name: str, read: Callable[[Any], Any], of: Source = "item", unit: str | None = None
) -> Feature:
    """A number; a record with a number that is not finite is bad.

    Args:
        name: the name of the column.
        read: as in `Feature`.
        of: as in `Feature`.
        unit: the unit of the numbers.
    """
    return Feature(Column(name, "float32", unit=unit), read, _finite, of)


class _Places(dict[Hashable, int]):
    """Value -> its number; other values have the number `other`, or raise ValueError if None."""

    def __init__(self, pairs: Iterable[tuple[Hashable, int]], other: int | None) -> None:
        super().__init__(pairs)
        self.other = other

    def __missing__(self, value: Hashable) -> int:
        if self.other is None:
            raise ValueError(f"{value!r} is not among its values")
        return self.other


def _finite(value: Any) -> float:
    finite = float(value)
    if not math.isfinite(finite):
        raise ValueError(f"{finite} is not finite")
    return finite


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """The features of atoms and bonds.

    Args:
        atom: the features of an atom.
        bond: the features of a bond, the same in both directions.
        labels: whether CIP labels are given to atoms and bonds before the features are read (the
            property `_CIPCode`), which takes time.
        libraries: distributions other than rdkit on whose version the values depend.
        name: the name or the dotted path that was given to `find_features`.
        taken: names of targets of atoms or bonds; a feature of such a NAME becomes NAME_feature.
    """

    atom: tuple[Feature, ...]
    bond: tuple[Feature, ...]
    labels: bool = False
    libraries: tuple[str, ...] = ()
    name: str = ""
    taken: frozenset[str] = frozenset()

    @property
    def description(self) -> str:
        """The numbers of features, for `graphfold list`."""
        return f"{len(self.atom)} features of an atom, {len(self.bond)} of a bond."

    @property
    def atom_columns(self) -> tuple[Column, ...]:
        """The feature columns of an atom."""
        return tuple(self._column(feature.column) for feature in self.atom)

    @property
    def bond_columns(self) -> tuple[Column, ...]:
        """The feature columns of a bond."""
        return tuple(self._column(feature.column) for feature in self.bond)

    def _column(self, column: Column) -> Column:
        is_taken = column.name in self.taken
        return replace(column, name=f"{column.name}_feature") if is_taken else column

    def __reduce__(self) -> tuple[Any, ...]:
        return find_features, (self.name, self.taken)  # functions of RDKit cannot be pickled


def find_features(name: str, taken: frozenset[str] = frozenset()) -> FeatureSet:
    """A feature set by its name or dotted path; `taken` as in `FeatureSet`.

    Raises:
        ConfigError: for an unknown name, with the nearest one, or for a value that is no name.
    """
    features: FeatureSet = FEATURE_SETS.find(name, "data.features")
    return replace(features, name=name, taken=taken)
