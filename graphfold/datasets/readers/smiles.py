"""Molecules: a table of SMILES and measured values becomes graphs of atoms and bonds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from rdkit import Chem

from graphfold.dag import Column, GraphBuilder, Schema, TypedDAG
from graphfold.datasets.adapter import CHANGED_TO, Adapter, ManyGraphs, Record
from graphfold.datasets.files.table_columns import (
    Positive,
    TableInput,
    TableTarget,
    TableWeight,
    checked_class_names,
    listed,
    positive_last,
    positive_of,
    refuse_unknown_targets,
)
from graphfold.datasets.files.tables import Table, open_table
from graphfold.datasets.molecules.descriptors import Descriptors
from graphfold.datasets.molecules.features import find_features
from graphfold.datasets.molecules.graphs import Fragments, MoleculeChunk, MoleculeGraphs
from graphfold.datasets.molecules.molecule import (
    WrittenMolecule,
    read_in_silence,
    silence,
    write_molecule,
)
from graphfold.datasets.molecules.preparation import Preparation, Salts, Standardize
from graphfold.datasets.molecules.table_columns import (
    ListTarget,
    RecordColumns,
    RecordRow,
    open_targets,
)
from graphfold.errors import ConfigError, RecordError, count_of, shortened
from graphfold.options import refuse_unread
from graphfold.registry import FEATURE_SETS


class SmilesAdapter(Adapter):
    """Reads molecules from a table (CSV, TSV, SDF, Parquet or `.smi`; see `open_table`).

    One graph per molecule: nodes of type `atom` without inputs, in the order of the SMILES or of
    the structure, all of them outputs; the relation `bond`, with both directions of each bond; the
    graph feature `smiles`, which is the canonical one of a structure. Atom i of a SMILES covers the
    span (i, i + 1), an atom of a structure the place (p, p + 1) that it has in `smiles`. The
    features are those of a `FeatureSet`.
    Where a molecule is changed before (`salts`, `standardize`), the graph feature `changed_to` is
    the SMILES that the graph was made of. With `directed_bonds` the bonds are nodes instead of
    edges; see `MoleculeGraphs`. With `fragments` there are nodes above the atoms, of which the
    topmost is the only output; see `fragment_nodes`. Descriptors and columns of numbers are
    features of the graph, which models read beside atoms.

    Args:
        smiles_column: the column of the SMILES; a `.smi` or `.sdf` file has only one.
        target_columns: the columns of the targets: one name, or a list of them; or "all", or a name
            with `*` for any text, such as "SR-*", which the files make a list of.
        ignore_columns: columns that are no targets under "all" or `*`, with or without a `*`.
        task: "regression": targets are finite numbers; "classification": they are classes.
        num_classes: how many classes there are (0, 1, ...); None for 2, or for as many as there are
            in a column of text. Only for classification.
        class_names: target -> the names of its classes in the cells, in order; by default, the
            different cells of a column without numbers, see `inferred_classes`.
        positive: of two classes the one that areas, F1 and recall are about, for all targets or
            target -> class; None for class 1, or the second of the names.
        header: whether the first line of a CSV or TSV file names the columns; otherwise they are
            `column_1`, `column_2` and so on.
        explicit_hydrogens: whether hydrogens are atoms of the graph.
        directed_bonds: whether each direction of a bond is a node, for messages along bonds.
        fragments: how a molecule is cut into fragments: "none", "rings_and_paths" or "brics".
        units: target -> unit, such as {"expt": "kcal/mol"}.
        bounded_targets: whether a cell of a target may be a bound, such as `>5` or `<5`.
        weight_column: the column that says how many records each record counts for in training, a
            number from 0 on, which is no input; None where each counts for one.
        descriptors: which `Descriptors` are inputs: "rdkit2d", "morgan", "atom_pairs", "torsions".
        morgan_radius: the most bonds from the centre of a substructure that "morgan" counts.
        fingerprint_size: the number of counts of each of the others than "rdkit2d".
        extra_columns: columns of numbers that are inputs, such as a temperature.
        fill_missing: whether a cell of these may be empty; models then get the mean of the training
            part.
        split_column: the column that says train, val or test, for data.split=given.
        features: the name of a feature set, or the dotted path of a `FeatureSet` of one's own.
        salts: "keep" takes salts and mixtures as they are, "strip" keeps the largest part, "refuse"
            takes them for bad records.
        standardize: "none", "cleanup", "parent" or "tautomer", see `Preparation`.
        atom_target_columns: the columns of targets of atoms, see `ListTarget`; instead of
            `target_columns`.
        bond_target_columns: the columns of targets of bonds, likewise. The outputs are then nodes
            of type `bond_ends`, one for each bond, whose inputs are its two atoms.
        longest_smiles: the most characters of a SMILES; RDKit takes time that grows with the square
            of the atoms and more.

    Raises:
        ConfigError: if a column is asked for twice, or options contradict each other.
    """

    reads_tables = True
    expands_folders = True
    training_options = ("weight_column", "split_column")

    def __init__(
        self,
        smiles_column: str = "smiles",
        target_columns: Sequence[str] | str = (),
        task: Literal["regression", "classification"] = "regression",
        num_classes: int | None = None,
        class_names: Mapping[str, Sequence[str]] | None = None,
        header: bool = True,
        explicit_hydrogens: bool = False,
        directed_bonds: bool = False,
        fragments: Fragments = "none",
        units: Mapping[str, str] | None = None,
        bounded_targets: bool = False,
        weight_column: str | None = None,
        descriptors: Sequence[str] | None = None,
        morgan_radius: int = 2,
        fingerprint_size: int = 2048,
        extra_columns: Sequence[str] | None = None,
        fill_missing: bool = False,
        split_column: str | None = None,
        features: str = "graphfold",
        salts: Salts = "keep",
        standardize: Standardize = "none",
        atom_target_columns: Sequence[str] | str = (),
        bond_target_columns: Sequence[str] | str = (),
        positive: Positive = None,
        longest_smiles: int = 20_000,
        ignore_columns: Sequence[str] | str = (),
    ) -> None:
        self.open_targets = open_targets(target_columns, listed(ignore_columns))
        if self.open_targets is None:
            remedy = "Set target_columns to all or a pattern"
            ignored = listed(ignore_columns)
            refuse_unread("ignore_columns", ignored, (), "a list of target_columns", remedy)
        if not extra_columns:
            remedy = "Name columns in extra_columns"
            refuse_unread("fill_missing", fill_missing, False, "extra_columns=[]", remedy)
        names = () if self.open_targets is not None else listed(target_columns)
        of_atoms, of_bonds = listed(atom_target_columns), listed(bond_target_columns)
        self.positive, self.task = positive, task
        self.classes = self._find_classes(
            class_names or {}, (*names, *of_atoms, *of_bonds), num_classes
        )

        if self.open_targets is None:
            refuse_unknown_targets("units", units, (*names, *of_atoms, *of_bonds))

        def target(name: str) -> TableTarget:
            unit, own = (units or {}).get(name), self.classes.get(name, ())
            return TableTarget(name, task, num_classes, unit, own, bounded_targets)

        self.columns = RecordColumns(
            smiles_column,
            targets=tuple(map(target, names)),
            list_targets=(
                *(ListTarget(target(name)) for name in of_atoms),
                *(ListTarget(target(name), "bond") for name in of_bonds),
            ),
            weight=None if weight_column is None else TableWeight(weight_column),
            inputs=tuple(TableInput(name, fill_missing) for name in extra_columns or ()),
            split=split_column,
        )
        self.header = header
        self.longest_smiles = longest_smiles
        self.reads_targets = True
        self.descriptors = Descriptors(descriptors or (), morgan_radius, fingerprint_size)
        self.explicit_hydrogens = explicit_hydrogens
        self.preparation = Preparation(salts, standardize)
        self.graphs = MoleculeGraphs(
            find_features(features, taken=frozenset((*of_atoms, *of_bonds))),
            directed_bonds,
            fragments,
            self.columns.measures,
        )
        if self.columns.list_targets:
            _check_list_targets(self, bounded_targets)
        self.libraries = ("rdkit", *self.graphs.features.libraries)
        self.schema = self._make_schema()

    def _find_classes(
        self, given: Mapping[str, Sequence[str]], targets: Sequence[str], num_classes: int | None
    ) -> dict[str, tuple[str, ...]]:
        """The names of the classes of each target, the positive last, as far as they are known.

        Raises:
            ConfigError: if names or the positive class are of no target, or there are no classes.
        """
        known = targets if self.open_targets is None else None
        if known is not None:
            refuse_unknown_targets("positive", self.positive, known)
        if self.positive is not None and self.task != "classification":
            raise ConfigError(
                "data.positive is for classes. Leave it out, or set data.task=classification."
            )
        found = {
            name: positive_last(classes, self.positive, name)
            for name, classes in checked_class_names(given, known).items()
        }
        for name in targets:
            if num_classes in (None, 2) and positive_of(self.positive, name) == "0":
                found.setdefault(name, ("1", "0"))
        return found

    def _make_schema(self) -> Schema:
        return Schema(
            types=self.graphs.types,
            inputs=self.graphs.inputs,
            relations=self.graphs.relations,
            graph_features=(
                Column("smiles", "string"),
                *([Column(CHANGED_TO, "string")] if self.preparation.changes else []),
                *self.columns.notes,
                *self.descriptors.columns,
                *(item.column for item in self.columns.inputs),
            ),
            graph_targets=tuple(target.column for target in self.columns.targets),
            node_targets=tuple(target.column for target in self.columns.list_targets),
        )

    @cached_property
    def computes_more(self) -> bool:
        """True if RDKit is asked for more than graphfold's own features of atoms and bonds."""
        return (
            self.preparation.changes
            or bool(self.descriptors.names)
            or self.graphs.has_fragments
            or FEATURE_SETS.package(self.graphs.features.name) is not None
        )

    @property
    def code(self) -> tuple[str, ...]:
        """The modules of the class and of a feature set that is not graphfold's."""
        name = self.graphs.features.name
        own = FEATURE_SETS.package(name) is None
        return super().code if own else (*super().code, name.replace(":", ".").rpartition(".")[0])

    def open_table(self, path: Path) -> Table:
        """The table with or without a header, as the options say."""
        return open_table(path, self.header)

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The targets, and `class_names` of those whose cells are text in all files; see `Adapter`.

        Only targets that are listed may be text.
        """
        self._refuse_unread(paths)
        if self.open_targets is not None:
            tables = map(self.open_table, paths)
            names = self.open_targets.find(tables, self.columns, self.classes)
            refuse_unknown_targets("positive", self.positive, names)
            return {"target_columns": names, "ignore_columns": []}
        found = self.columns.class_names(map(self.open_table, paths))
        for target in self.columns.targets:
            if target.name not in self.classes:
                numbers = [str(code) for code in range(target.num_classes or 2)]
                positive_last(found.get(target.name, numbers), self.positive, target.name)
        return {"class_names": {**self.classes, **found}} if found else {}

    def _refuse_unread(self, paths: Sequence[Path]) -> None:
        """Raises ConfigError for options of tables that no table of this kind reads."""
        if not self.header and all(open_table(path).header_line is None for path in paths):
            remedy = "Give a CSV or TSV file"
            refuse_unread("header", False, True, f"files such as {paths[0].name}", remedy)
        if self.columns.text != "smiles":
            columns = {self.open_table(path).smiles_column for path in paths}
            if not columns & {None, self.columns.text}:
                beside, remedy = f"files such as {paths[0].name}", "Give another kind of table"
                refuse_unread("smiles_column", self.columns.text, "smiles", beside, remedy)

    def notes(self, dag: TypedDAG) -> list[str]:
        """The number of molecules with dummy atoms, which are read as atoms of no element."""
        # The texts one after the other: those of a large corpus stay in their files.
        texts = enumerate(dag.dictionaries["graph", "smiles"])
        codes = [code for code, text in texts if "*" in text.partition("|")[0]]
        with_dummies = torch.tensor(codes, dtype=torch.int64)
        count = int(torch.isin(dag.graph_column("smiles"), with_dummies).sum())
        if not count:
            return []
        return [
            f"dummy atoms, as of polymers or attachment points: '*' stands in "
            f"{count_of(count, 'molecule')}, and is read as an atom of unknown element"
        ]

    def without_targets(self) -> SmilesAdapter:
        """A copy for prediction: the same schema, but targets are neither needed nor read."""
        clone = copy.copy(self)
        clone.reads_targets = False
        clone.columns = self.columns.without_targets()
        return clone

    def record_of(self, item: Any) -> Record:
        """The row of a SMILES or of an RDKit molecule, without targets.

        Where `extra_columns` are inputs it is a mapping, with these and the SMILES by column.
        """
        item, cells = self.columns.split_inputs(item)
        if isinstance(item, Chem.Mol):
            return Record(1, RecordRow(Chem.MolToSmiles(item), inputs=cells, molecule=item))
        if not isinstance(item, str):
            remedy = "Give a SMILES or an RDKit molecule."
            raise RecordError(f"{item!r} is no molecule", remedy)
        return Record(1, RecordRow(item, inputs=cells))

    def item_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The column of SMILES or molecules, and `extra_columns`."""
        return self.columns.find_items(names)

    def records(self, path: Path) -> Iterator[Record]:
        """One record for each row of the table; `content` is a `RecordRow`."""
        yield from self.columns.records(self.open_table(path))

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        many = self.parse_many([record], graph.file)
        for error in many.errors.values():
            raise error
        graph.add(many.dag)

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs:
        """All molecules at once; see `MoleculeChunk`."""
        chunk = MoleculeChunk(self.schema, self.graphs)
        errors: dict[int, RecordError] = {}
        with silence():
            for position, record in enumerate(records):
                error = record.fault or self._fault(record, chunk)
                if error is not None:
                    errors[position] = error
        return ManyGraphs(chunk.build(file), errors)

    def _fault(self, record: Record, chunk: MoleculeChunk) -> RecordError | None:
        """Adds the molecule of a record; the error if it cannot be read."""
        try:
            self._add(record, chunk)
        except RecordError as error:
            return error
        return None

    def _add(self, record: Record, chunk: MoleculeChunk) -> None:
        """Adds the molecule of a row; within `silence`."""
        row: RecordRow = record.content
        if self.open_targets is not None and self.reads_targets:
            raise ConfigError(
                f"the files decide what target_columns={self.open_targets.pattern} is. Set "
                "target_columns to what infer_options finds in them."
            )
        if row.fault is not None:
            raise RecordError(row.fault)
        values = self.columns.values(row)
        inputs = self.columns.input_values(row)
        molecule, smiles, places = self._read(row)
        columns: dict[str, Any] = {"smiles": smiles, **inputs, **values}
        if self.computes_more and self.preparation.changes:
            changed = columns[CHANGED_TO] = self.preparation.changed(molecule)
            if changed is not None:
                molecule = read_in_silence(changed, self.explicit_hydrogens, True)
                places = []
        if self.computes_more:
            columns |= self.descriptors.values(molecule)
        targets: dict[str, list[Any]] = {}
        if self.columns.list_targets:
            targets = self.columns.list_values(row, self.graphs.count(molecule))
        chunk.add(record.line, molecule, columns, targets, places)

    def _read(self, row: RecordRow) -> WrittenMolecule:
        """The molecule of a row with its SMILES; no places where the SMILES has the same order."""
        options = self.explicit_hydrogens, self.computes_more
        if row.molecule is not None:
            written = write_molecule(row.molecule, *options)
            self._refuse_long(written.smiles)
            return written
        smiles = row.text.strip()
        self._refuse_long(smiles)
        return WrittenMolecule(read_in_silence(smiles, *options), smiles, [])

    def _refuse_long(self, smiles: str) -> None:
        length = len(smiles)
        if length > self.longest_smiles:
            raise RecordError(
                f"the SMILES '{shortened(smiles)}' has {length:,} characters, and "
                f"{self.longest_smiles:,} are read",
                f"Set data.longest_smiles={length} to read it, or data.on_error=skip.",
            )


def _check_list_targets(adapter: SmilesAdapter, bounded: bool) -> None:
    """Refuses options under which the values of a cell are not those of the graph's outputs."""
    option = f"{adapter.columns.measures}_target_columns"
    clashes = {
        "target_columns": bool(adapter.columns.targets),
        "bond_target_columns": len({item.of for item in adapter.columns.list_targets}) > 1,
        "bounded_targets": bounded,
        "fragments": adapter.graphs.has_fragments,
        "salts=strip": adapter.preparation.salts == "strip",
        "standardize": adapter.preparation.standardize != "none",
    }
    found = [name for name, is_there in clashes.items() if is_there]
    if found:
        raise ConfigError(
            f"{option} cannot be read together with {' and '.join(found)}. Leave one of them out."
        )
