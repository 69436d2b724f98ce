"""Molecules: a table of SMILES and measured values becomes graphs of atoms and bonds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from rdkit import Chem

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.datasets.adapter import (
    CHANGED_TO,
    AdapterOfMany,
    ManyGraphs,
    Record,
    result_or_error,
)
from graphfold.datasets.files.table_columns import (
    Positive,
    TableTarget,
    TableWeight,
    checked_class_names,
    listed,
    positive_last,
    positive_of,
    refuse_unknown_targets,
)
from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules.atom_features import find_features
from graphfold.datasets.molecules.descriptors import Descriptors
from graphfold.datasets.molecules.molecule import (
    Hydrogens,
    WrittenMolecule,
    read_in_silence,
    silence,
    write_molecule,
)
from graphfold.datasets.molecules.molecule_graphs import Fragments, MoleculeChunk, MoleculeGraphs
from graphfold.datasets.molecules.preparation import Preparation, Salts, Standardize
from graphfold.datasets.molecules.reactions import (
    MODES,
    ModeName,
    ReactionMode,
    read_reaction,
)
from graphfold.datasets.molecules.record_table import (
    ListTarget,
    RecordColumns,
    RecordRow,
    find_targets,
    is_open,
)
from graphfold.errors import ConfigError, RecordError, count_of, shortened
from graphfold.registry import FEATURE_SETS

#: The most characters of a SMILES: RDKit takes time that grows with the square of the atoms.
LONGEST_SMILES = 20_000


@dataclass(eq=False, kw_only=True)
class MoleculeColumns:
    """The columns of a table of molecules that are no targets.

    Args:
        smiles_column: the column of the SMILES; a `.smi` or `.sdf` file has only one.
        weight_column: the column that says how many records each record counts for in training, a
            number from 0 on, which is no input; None where each counts for one.
        split_column: the column that says train, val or test, for data.split=given.
    """

    smiles_column: str = "smiles"
    weight_column: str | None = None
    split_column: str | None = None


@dataclass(eq=False, kw_only=True)
class MoleculeTargets:
    """The targets of molecules.

    Args:
        target_columns: the columns of the targets: one name, or a list of them; or "all", or a name
            with `*` for any text, such as "SR-*", which the files make a list of.
        task: "regression": targets are finite numbers; "classification": they are classes.
        num_classes: how many classes there are (0, 1, ...); None for 2, or for as many as there are
            in a column of text. Only for classification.
        class_names: target -> the names of its classes in the cells, in order; by default, the
            different cells of a column without numbers, see `inferred_classes`.
        positive: of two classes the one that areas, F1 and recall are about, for all targets or
            target -> class; None for class 1, or the second of the names.
        units: target -> unit, such as {"expt": "kcal/mol"}.
        bounded_targets: whether a cell of a target may be a bound, such as `>5` or `<5`.
        atom_target_columns: the columns of targets of atoms, see `ListTarget`; instead of
            `target_columns`.
        bond_target_columns: the columns of targets of bonds, likewise. The outputs are then nodes
            of type `bond_ends`, one for each bond, whose inputs are its two atoms.
    """

    target_columns: Sequence[str] | str = ()
    task: Literal["regression", "classification"] = "regression"
    num_classes: int | None = None
    class_names: Mapping[str, Sequence[str]] | None = None
    positive: Positive = None
    units: Mapping[str, str] | None = None
    bounded_targets: bool = False
    atom_target_columns: Sequence[str] | str = ()
    bond_target_columns: Sequence[str] | str = ()


@dataclass(eq=False, kw_only=True)
class MoleculeForm:
    """The form of the graphs of molecules.

    Args:
        explicit_hydrogens: whether hydrogens are atoms of the graph: all of them, or none, or
            "written" for those that the SMILES has, such as `[H:3]`.
        reaction: None for molecules; for reactions the way in which their two sides become the
            features of one graph, see `ReactionMode`.
        directed_bonds: whether each direction of a bond is a node, for messages along bonds.
        fragments: how a molecule is cut into fragments: "none", "rings_and_paths" or "brics".
        features: the name of a feature set, or the dotted path of a `FeatureSet` of one's own.
        salts: "keep" takes salts and mixtures as they are, "strip" keeps the largest part, "refuse"
            takes them for bad records.
        standardize: "none", "cleanup", "parent" or "tautomer", see `Preparation`.
        descriptors: which `Descriptors` are inputs: "rdkit2d", "morgan", "atom_pairs", "torsions".
        morgan_radius: the most bonds from the centre of a substructure that "morgan" counts.
        fingerprint_size: the number of counts of each of the others than "rdkit2d".
    """

    explicit_hydrogens: Hydrogens = False
    reaction: ModeName | None = None
    directed_bonds: bool = False
    fragments: Fragments = "none"
    features: str = "graphfold"
    salts: Salts = "keep"
    standardize: Standardize = "none"
    descriptors: Sequence[str] | None = None
    morgan_radius: int = 2
    fingerprint_size: int = 2048


@dataclass(eq=False, kw_only=True)
class SmilesAdapter(MoleculeForm, MoleculeTargets, MoleculeColumns, AdapterOfMany):
    """Reads molecules from a table (CSV, TSV, SDF, Parquet or `.smi`; see `open_table`).

    One graph per molecule: nodes of type `atom` without inputs, in the order of the SMILES or of
    the structure, all of them outputs; the relation `bond`, with both directions of each bond; the
    graph feature `smiles`, which is the canonical one of a structure. Atom i of a SMILES covers the
    span (i, i + 1), an atom of a structure the place (p, p + 1) that it has in `smiles`. The
    features are those of a `FeatureSet`.
    If a molecule is changed before (`salts`, `standardize`), the graph feature `changed_to` is
    the SMILES that the graph was made of. With `directed_bonds` the bonds are nodes instead of
    edges; see `MoleculeGraphs`. With `fragments` the fragments and the molecule are nodes, too, and
    the molecule is the only output; see `fragment_nodes`. Descriptors are features of the graph,
    which models read beside atoms.

    Its options are those of `MoleculeColumns`, `MoleculeTargets` and `MoleculeForm`.

    Raises:
        ConfigError: if a column is named twice, or options contradict each other.
    """

    reads_tables = True
    expands_folders = True
    training_options = ("weight_column", "split_column")

    def __post_init__(self) -> None:
        self.is_open = is_open(self.target_columns)
        names = () if self.is_open else listed(self.target_columns)
        of_atoms, of_bonds = listed(self.atom_target_columns), listed(self.bond_target_columns)
        every = (*names, *of_atoms, *of_bonds)
        self.classes = self._find_classes(every)
        if not self.is_open:
            refuse_unknown_targets("units", self.units, every)
        self.columns = RecordColumns(
            self.smiles_column,
            targets=tuple(map(self._target, names)),
            list_targets=(
                *(ListTarget(self._target(name)) for name in of_atoms),
                *(ListTarget(self._target(name), "bond") for name in of_bonds),
            ),
            weight=None if self.weight_column is None else TableWeight(self.weight_column),
            split=self.split_column,
        )
        self.reads_targets = True
        num_molecules = 1 if self.reaction is None else 2
        self.computed = Descriptors(
            self.descriptors or (), self.morgan_radius, self.fingerprint_size, num_molecules
        )
        self.preparation = Preparation(self.salts, self.standardize)
        self.graphs = MoleculeGraphs(
            find_features(self.features, taken=frozenset((*of_atoms, *of_bonds))),
            self.directed_bonds,
            self.fragments,
            self.columns.measures,
            None if self.reaction is None else MODES[self.reaction],
        )
        if self.columns.list_targets:
            self._check_list_targets()
        if self.reaction is not None:
            self._check_reaction()
        self.libraries = ("rdkit", *self.graphs.features.libraries)
        self.schema = self._make_schema()

    def _target(self, name: str) -> TableTarget:
        unit, classes = (self.units or {}).get(name), self.classes.get(name, ())
        return TableTarget(name, self.task, self.num_classes, unit, classes, self.bounded_targets)

    def _find_classes(self, targets: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The configured names of the classes of each target, the positive class last.

        Raises:
            ConfigError: if an option is about an unknown target, or a regression has classes.
        """
        if not self.is_open:
            refuse_unknown_targets("positive", self.positive, targets)
        if self.positive is not None and self.task != "classification":
            raise ConfigError(
                "data.positive is for classes. Leave it out, or set data.task=classification."
            )
        names = checked_class_names(self.class_names or {}, None if self.is_open else targets)
        classes = {name: positive_last(c, self.positive, name) for name, c in names.items()}
        for name in targets:
            if self.num_classes in (None, 2) and positive_of(self.positive, name) == "0":
                classes.setdefault(name, ("1", "0"))
        return classes

    def _make_schema(self) -> Schema:
        return Schema(
            types=self.graphs.types,
            inputs=self.graphs.inputs,
            relations=self.graphs.relations,
            graph_features=(
                Column("smiles", "string"),
                *([Column(CHANGED_TO, "string")] if self.preparation.changes else []),
                *self.columns.notes,
                *self.computed.columns,
            ),
            graph_targets=tuple(target.column for target in self.columns.targets),
            node_targets=tuple(target.column for target in self.columns.list_targets),
        )

    @property
    def code(self) -> tuple[str, ...]:
        """The modules of the class and of a user's feature set."""
        name = self.graphs.features.name
        if FEATURE_SETS.package(name) is None:
            return super().code
        return (*super().code, name.replace(":", ".").rpartition(".")[0])

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The targets that a pattern fits, or the classes of listed targets with cells of text.

        See `Adapter.infer_options`.
        """
        if self.is_open:
            names = find_targets(str(self.target_columns), open_table(paths[0]), self.columns)
            refuse_unknown_targets("positive", self.positive, names)
            return {"target_columns": names}
        inferred = self.columns.class_names(map(open_table, paths))
        for target in self.columns.targets:
            if target.name not in self.classes:
                numbers = [str(code) for code in range(target.num_classes or 2)]
                positive_last(inferred.get(target.name, numbers), self.positive, target.name)
        return {"class_names": {**self.classes, **inferred}} if inferred else {}

    def notes(self, dag: TypedDAG) -> list[str]:
        """The number of molecules with dummy atoms, which are read as atoms of no element."""
        texts = enumerate(dag.dictionaries["graph", "smiles"])  # one by one: they may be in files
        codes = [code for code, text in texts if "*" in text.partition("|")[0]]
        with_dummies = torch.tensor(codes, dtype=torch.int64)
        count = int(torch.isin(dag.graph_column("smiles"), with_dummies).sum())
        if not count:
            return []
        return [
            f"dummy atoms, as of polymers or attachment points: '*' stands in "
            f"{count_of(count, 'molecule')}, and is read as an atom of unknown element"
        ]

    def numbered(self) -> SmilesAdapter:
        """A copy with the numbers of atoms and bonds as RDKit has them; see `Adapter`.

        Raises:
            ConfigError: if molecules are changed, so that their atoms are not those of the record.
        """
        if self.salts == "strip" or self.standardize != "none":
            raise ConfigError(
                "data.features_from has features of atoms or bonds, which salts=strip and "
                "standardize change. Change the molecules in the file, or leave the features out."
            )
        clone = copy.copy(self)
        clone.graphs = graphs = replace(self.graphs, numbered=True)
        clone.schema = replace(self.schema, types=graphs.types, relations=graphs.relations)
        return clone

    def without_targets(self) -> SmilesAdapter:
        """A copy for prediction: the same schema, but targets are neither needed nor read."""
        clone = copy.copy(self)
        clone.reads_targets = False
        clone.columns = self.columns.without_targets()
        return clone

    def record_of(self, item: Any) -> Record:
        """The row of a SMILES or an RDKit molecule."""
        if isinstance(item, Chem.Mol):
            return Record(1, RecordRow(Chem.MolToSmiles(item), molecule=item))
        if not isinstance(item, str):
            raise RecordError(f"{item!r} is no molecule", "Give a SMILES or an RDKit molecule.")
        return Record(1, RecordRow(item))

    def item_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The column of SMILES or molecules."""
        return [self.columns.find_item(names)]

    def records(self, path: Path) -> Iterator[Record]:
        """One record for each row of the table; `content` is a `RecordRow`."""
        yield from self.columns.records(open_table(path))

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs:
        """All molecules at once; see `MoleculeChunk`."""
        chunk = MoleculeChunk(self.schema, self.graphs)
        errors: dict[int, RecordError] = {}
        with silence():
            for position, record in enumerate(records):
                error = result_or_error(self._add, record, chunk)
                if error is not None:
                    errors[position] = error
        return ManyGraphs(chunk.build(file), errors)

    def _add(self, record: Record, chunk: MoleculeChunk) -> None:
        """Adds the molecule of a row; within `silence`."""
        row: RecordRow = record.content
        if self.is_open and self.reads_targets:
            raise ConfigError(
                f"the files decide what target_columns={self.target_columns} is. Set "
                "target_columns to what infer_options finds in them."
            )
        if row.fault is not None:
            raise RecordError(row.fault)
        values = self.columns.values(row)
        mode = self.graphs.reaction
        if mode is not None:
            self._add_reaction(record, mode, values, chunk)
            return
        molecule, smiles, places = self._read(row)
        columns: dict[str, Any] = {"smiles": smiles, **values}
        if self.preparation.changes:
            changed = columns[CHANGED_TO] = self.preparation.changed(molecule)
            if changed is not None:
                molecule, places = read_in_silence(changed, self.explicit_hydrogens), []
        columns |= self.computed.values(molecule)
        targets: dict[str, list[Any]] = {}
        if self.columns.list_targets:
            targets = self.columns.list_values(row, self.graphs.count(molecule))
        chunk.add(record.line, molecule, columns, targets, places)

    def _add_reaction(
        self, record: Record, mode: ReactionMode, columns: Mapping[str, Any], chunk: MoleculeChunk
    ) -> None:
        smiles = record.content.text.strip()
        _refuse_long(smiles)
        has_labels = self.graphs.features.labels
        reaction = read_reaction(smiles, self.explicit_hydrogens, mode.is_balanced, has_labels)
        columns = {"smiles": smiles, **columns, **self.computed.values(*reaction.sides)}
        chunk.add(record.line, reaction.molecule, columns, {}, reaction.places, reaction)

    def _read(self, row: RecordRow) -> WrittenMolecule:
        """The molecule of a row with its SMILES; no places if the SMILES has the same order."""
        written, smiles = None, row.text.strip()
        if row.molecule is not None:
            written = write_molecule(row.molecule, self.explicit_hydrogens)
            smiles = written.smiles
        _refuse_long(smiles)
        if written is not None:
            return written
        return WrittenMolecule(read_in_silence(smiles, self.explicit_hydrogens), smiles, [])

    def _check_reaction(self) -> None:
        """Refuses options that read or change single molecules."""
        clashes = {
            f"{self.columns.measures}_target_columns": bool(self.columns.list_targets),
            "fragments": self.graphs.has_fragments,
            "salts": self.salts != "keep",
            "standardize": self.standardize != "none",
        }
        _refuse_together(f"reaction={self.reaction}", clashes)

    def _check_list_targets(self) -> None:
        """Refuses options under which a cell's values do not belong to the graph's outputs."""
        clashes = {
            "target_columns": bool(self.columns.targets),
            "bond_target_columns": len({item.of for item in self.columns.list_targets}) > 1,
            "bounded_targets": self.bounded_targets,
            "fragments": self.graphs.has_fragments,
            "salts=strip": self.salts == "strip",
            "standardize": self.standardize != "none",
        }
        _refuse_together(f"{self.columns.measures}_target_columns", clashes)


def _refuse_long(smiles: str) -> None:
    if len(smiles) > LONGEST_SMILES:
        raise RecordError(
            f"the SMILES '{shortened(smiles)}' has {len(smiles):,} characters, and "
            f"{LONGEST_SMILES:,} are read",
            "Leave the record out, or set data.on_error=skip.",
        )


def _refuse_together(option: str, clashes: Mapping[str, bool]) -> None:
    names = [name for name, is_set in clashes.items() if is_set]
    if names:
        raise ConfigError(
            f"{option} cannot be read together with {' and '.join(names)}. Leave one of them out."
        )
