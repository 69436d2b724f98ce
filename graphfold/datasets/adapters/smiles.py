"""Molecules: a table of SMILES and measured values becomes graphs of atoms and bonds."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rdkit import Chem

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import CHANGED_TO, Adapter, ManyGraphs, Record
from graphfold.datasets.files.given_part import PART, read_part
from graphfold.datasets.files.table_input import TableInput
from graphfold.datasets.files.table_target import MISSING_CELLS, TableTarget
from graphfold.datasets.files.table_weight import TableWeight
from graphfold.datasets.files.tables import Table, open_table
from graphfold.datasets.molecules.atom_target import AtomTarget
from graphfold.datasets.molecules.descriptors import Descriptors
from graphfold.datasets.molecules.directed_bonds import (
    ARRIVES,
    CONTINUES,
    add_directed_bonds,
    directed_bond,
    refuse_crowded,
)
from graphfold.datasets.molecules.facts import atom_facts, bond_facts
from graphfold.datasets.molecules.feature_set import FeatureSet
from graphfold.datasets.molecules.feature_sets import find_features
from graphfold.datasets.molecules.fragments import (
    FRAGMENT,
    FRAGMENT_INPUTS,
    MOLECULE,
    add_fragments,
)
from graphfold.datasets.molecules.molecule import atoms_of, bonds_of, label_stereo, read_molecule
from graphfold.datasets.molecules.molecule_chunk import MoleculeChunk
from graphfold.datasets.molecules.preparation import (
    Salts,
    Standardize,
    check_preparation,
    prepare,
)
from graphfold.errors import ConfigError, LeftOut, RecordError, did_you_mean


class MoleculeRow(NamedTuple):
    """The cells of one row of a table that `SmilesAdapter.parse` needs.

    Args:
        smiles: the SMILES cell.
        targets: the cells of the targets, in their order, then that of the weight, if there is one;
            empty where no targets are read.
        fault: what is wrong with the form of the row, if anything is.
        inputs: the cells of the columns that are inputs, in their order.
        part: the cell of the split column; None where none is read.
        atom_targets: the cells of the targets of atoms, in their order.
    """

    smiles: str
    targets: tuple[str, ...] = ()
    fault: str | None = None
    inputs: tuple[str, ...] = ()
    part: str | None = None
    atom_targets: tuple[str, ...] = ()


class SmilesAdapter(Adapter):
    """Reads molecules from a table (CSV, TSV, SDF, Parquet or `.smi`; see `open_table`).

    One graph per molecule: nodes of type `atom` without inputs, in the order of the SMILES, all of
    them outputs; the relation `bond`, with both directions of each bond; the graph feature
    `smiles`. Atom i covers the span (i, i + 1). The features are those of a set of `FEATURE_SETS`.
    Where a molecule is changed before (`salts`, `standardize`), the graph feature `changed_to` is
    the SMILES that the graph was made of. With `directed_bonds` the bonds are nodes instead of
    edges; see `add_directed_bonds`. With `fragments` there are nodes above the atoms, of which the
    topmost is the only output; see `add_fragments`. Descriptors and columns of numbers are features
    of the graph, which models read beside atoms.

    Args:
        smiles_column: the column of the SMILES; a `.smi` or `.sdf` file has only one.
        target_columns: the columns of the targets; one name, or several.
        task: "regression": targets are finite numbers; "classification": they are classes.
        num_classes: how many classes there are (0, 1, ...); None for 2, or for as many as there are
            in a column of text. Only for classification.
        class_names: target -> the names of its classes in the cells, in order; by default, the
            different cells of a column without numbers, in alphabetical order.
        header: whether the first line of a CSV or TSV file names the columns; otherwise they are
            `column_1`, `column_2` and so on.
        explicit_hydrogens: whether hydrogens are atoms of the graph.
        directed_bonds: whether each direction of a bond is a node, for messages along bonds.
        fragments: how a molecule is cut into fragments: "none", "rings_and_paths" or "brics".
        units: target -> unit, such as {"expt": "kcal/mol"}.
        bounded_targets: whether a cell of a target may be a bound, such as `>5` or `<5`.
        weight_column: the column that says how many records each record counts for in training;
            None where each counts for one.
        descriptors: which `Descriptors` are inputs: "rdkit2d", "morgan", "atom_pairs", "torsions".
        morgan_radius: the most bonds from the centre of a substructure that "morgan" counts.
        fingerprint_size: the number of counts of each of the others than "rdkit2d".
        extra_columns: columns of numbers that are inputs, such as a temperature.
        fill_missing: whether a cell of these may be empty; models then get the mean of the training
            part.
        split_column: the column that says train, val or test, for data.split=given.
        features: the name of the feature set, see `FEATURE_SETS`.
        salts: "keep" takes salts and mixtures as they are, "strip" keeps the largest part, "refuse"
            takes them for bad records.
        standardize: "none", "cleanup", "parent" or "tautomer", see `prepare`.
        atom_target_columns: the columns of targets of atoms, see `AtomTarget`; instead of
            `target_columns`.

    Raises:
        ConfigError: if a column is asked for twice, or options contradict each other.
    """

    libraries = ("rdkit",)
    reads_tables = True
    expands_folders = True

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
        fragments: Literal["none", "rings_and_paths", "brics"] = "none",
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
    ) -> None:
        names, of_atoms = _listed(target_columns), _listed(atom_target_columns)
        weights = [] if weight_column is None else [TableWeight(weight_column)]
        self.inputs = tuple(TableInput(name, fill_missing) for name in extra_columns or ())
        parts = () if split_column is None else (split_column,)
        more = [weight.name for weight in weights] + [item.name for item in self.inputs]
        _refuse_repeated((smiles_column, *names, *of_atoms, *more, *parts))
        self.descriptors = Descriptors(descriptors or (), morgan_radius, fingerprint_size)
        self.split_column = split_column
        self.smiles_column = smiles_column
        self.header = header
        _check_class_names(class_names or {}, (*names, *of_atoms))
        own_names = {name: tuple(map(str, cells)) for name, cells in (class_names or {}).items()}
        self.class_names = own_names
        self.explicit_hydrogens = explicit_hydrogens
        self.directed_bonds = directed_bonds
        columns = [
            TableTarget(
                name,
                task,
                num_classes,
                (units or {}).get(name),
                own_names.get(name, ()),
                bounded_targets,
            )
            for name in (*names, *of_atoms)
        ]
        self.targets = tuple(columns[: len(names)])
        self.atom_targets = tuple(map(AtomTarget, columns[len(names) :]))
        self.measured: tuple[TableTarget | TableWeight, ...] = (*self.targets, *weights)
        self.reads_targets = True
        self.features = find_features(features)
        check_preparation(salts, standardize)
        self.salts: Salts = salts
        self.standardize: Standardize = standardize
        self.fragments = fragments
        if self.atom_targets:
            _check_atom_targets(self, bounded_targets)
        changes = (salts, standardize) != ("keep", "none")
        self._computes_more = changes or bool(descriptors) or fragments != "none"
        atom = NodeType("atom", 0, self.features.atom_columns)
        bond = EdgeType("bond", self.features.bond_columns)
        has_fragments = fragments != "none"
        self.schema = Schema(
            types=(
                *((atom, directed_bond(self.features)) if directed_bonds else (atom,)),
                *((FRAGMENT, MOLECULE) if has_fragments else ()),
            ),
            inputs=FRAGMENT_INPUTS if has_fragments else EdgeType("inputs"),
            relations=(CONTINUES, ARRIVES) if directed_bonds else (bond,),
            graph_features=(
                Column("smiles", "string"),
                *([Column(CHANGED_TO, "string")] if changes else []),
                *(column for item in self.measured for column in item.features),
                *(Column(PART, "string") for _ in parts),
                *self.descriptors.columns,
                *(item.column for item in self.inputs),
            ),
            graph_targets=tuple(target.column for target in self.targets),
            node_targets=tuple(target.column for target in self.atom_targets),
        )

    @property
    def computes_more(self) -> bool:
        """True if RDKit is asked for more than the features of atoms and bonds."""
        return self._computes_more

    def open_table(self, path: Path) -> Table:
        """The table with or without a header, as the options say."""
        return open_table(path, self.header)

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """`class_names` of the targets whose cells are text in all files; see `Adapter`."""
        cells: dict[str, set[str]] = {
            target.name: set()
            for target in self.targets
            if target.task == "classification"
            and not target.class_names
            and target.num_classes is None
        }
        for path in paths if cells else ():
            table = self.open_table(path)
            columns = dict(zip(cells, table.find([*cells], "data.target_columns"), strict=True))
            for row in table.rows():
                for name, column in list(columns.items()):
                    cell = row.cells[column].strip()
                    if TableTarget.is_number(cell):
                        del columns[name], cells[name]
                    elif cell not in MISSING_CELLS:
                        cells[name].add(cell)
                if not columns:
                    break
        found = {name: sorted(texts) for name, texts in cells.items() if len(texts) > 1}
        return {"class_names": {**self.class_names, **found}} if found else {}

    def without_targets(self) -> SmilesAdapter:
        """A copy for prediction: the same schema, but targets are neither needed nor read."""
        clone = copy.copy(self)
        clone.reads_targets = False
        return clone

    def record_of(self, item: Any) -> Record:
        """The row of a SMILES or of an RDKit molecule, without targets.

        Where `extra_columns` are inputs it is a mapping, with these and the SMILES by column.
        """
        cells: tuple[str, ...] = ()
        if self.inputs:
            names = (self.smiles_column, *(one.name for one in self.inputs))
            if not isinstance(item, Mapping) or any(name not in item for name in names):
                remedy = f"Give a dict with {', '.join(map(repr, names))}."
                raise RecordError(f"{item!r} lacks inputs of the model", remedy)
            item, *values = (item[name] for name in names)
            cells = tuple("" if value is None else str(value) for value in values)
        if isinstance(item, Chem.Mol):
            item = Chem.MolToSmiles(item)
        if not isinstance(item, str):
            remedy = "Give a SMILES or an RDKit molecule."
            raise RecordError(f"{item!r} is no molecule", remedy)
        return Record(1, MoleculeRow(item, inputs=cells))

    def records(self, path: Path) -> Iterator[Record]:
        """One record for each row of `open_table(path).rows()`; `content` is a `MoleculeRow`."""
        table = self.open_table(path)
        smiles_column = table.smiles_column or self.smiles_column
        (smiles,) = table.find([smiles_column], "data.smiles_column")
        names = [item.name for item in self.measured] if self.reads_targets else []
        count = len(self.targets)
        targets = table.find(names[:count], "data.target_columns")
        targets += table.find(names[count:], "data.weight_column")
        inputs = table.find([item.name for item in self.inputs], "data.extra_columns")
        names = [item.name for item in self.atom_targets] if self.reads_targets else []
        atom_targets = table.find(names, "data.atom_target_columns")
        reads_part = self.reads_targets and self.split_column is not None
        part = table.find([self.split_column or ""], "data.split_column")[0] if reads_part else None
        for line, cells, fault in table.rows():
            row = MoleculeRow(
                cells[smiles],
                tuple(cells[index] for index in targets),
                fault,
                tuple(cells[index] for index in inputs),
                None if part is None else cells[part],
                tuple(cells[index] for index in atom_targets),
            )
            yield Record(line, row)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        molecule, columns = self._read(record.content)
        atom_targets = self._atom_values(record.content, molecule.GetNumAtoms())
        add_molecule(graph, molecule, self.features, self.directed_bonds, atom_targets)
        if self.fragments == "none":
            graph.output(*range(molecule.GetNumAtoms()))
        else:
            graph.output(add_fragments(graph, molecule, self.fragments))
        graph.finish(record.line, columns=columns)

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs | None:
        """All molecules at once, see `MoleculeChunk`; None with fragments or targets of atoms."""
        if self.fragments != "none" or self.atom_targets:
            return None
        chunk = MoleculeChunk(self.schema, self.features, self.directed_bonds)
        errors: dict[int, RecordError] = {}
        for position, record in enumerate(records):
            error = record.fault or self._add(record, chunk)
            if error is not None:
                errors[position] = error
        return ManyGraphs(chunk.build(file), errors)

    def _add(self, record: Record, chunk: MoleculeChunk) -> RecordError | None:
        try:
            chunk.add(record.line, *self._read(record.content))
        except RecordError as error:
            return error
        return None

    def _read(self, row: MoleculeRow) -> tuple[Chem.Mol, dict[str, Any]]:
        """The molecule of a row, and the columns of its graph."""
        if row.fault is not None:
            raise RecordError(row.fault)
        values = self._values(row)
        inputs = self._inputs(row)
        molecule = read_molecule(row.smiles, self.explicit_hydrogens, self.computes_more)
        columns: dict[str, Any] = {"smiles": row.smiles.strip(), **inputs, **values}
        if not self.computes_more:
            return molecule, columns
        if (self.salts, self.standardize) != ("keep", "none"):
            changed = columns[CHANGED_TO] = prepare(molecule, self.salts, self.standardize)
            if changed is not None:
                molecule = read_molecule(changed, self.explicit_hydrogens)
        return molecule, {**columns, **self._computed(molecule)}

    def _computed(self, molecule: Chem.Mol) -> dict[str, Any]:
        """The columns that are computed of the molecule that the graph is made of."""
        return {**self.descriptors.values(molecule)}

    def _inputs(self, row: MoleculeRow) -> dict[str, float | str | None]:
        """The columns of the table that are inputs, and the part."""
        if not row.inputs and row.part is None:
            return {}
        pairs = zip(self.inputs, row.inputs, strict=True)
        found: dict[str, float | str | None] = {item.name: item.parse(cell) for item, cell in pairs}
        if row.part is not None:
            found[PART] = read_part(row.part, str(self.split_column))
        return found

    def _values(self, row: MoleculeRow) -> dict[str, float | int | None]:
        if not self.reads_targets:
            return {}
        pairs = zip(self.measured, row.targets, strict=True)
        values = {name: v for item, cell in pairs for name, v in item.values(cell).items()}
        if self.targets and all(values[target.name] is None for target in self.targets):
            names = _quoted(target.name for target in self.targets)
            raise LeftOut(f"no target is measured ({names})", "Nothing needs to be done.")
        return values

    def _atom_values(self, row: MoleculeRow, num_atoms: int) -> dict[str, list[Any]]:
        """Target -> its value of each atom; none where targets are not read."""
        if not (self.reads_targets and self.atom_targets):
            return {}
        pairs = zip(self.atom_targets, row.atom_targets, strict=True)
        values = {item.name: item.values(cell, num_atoms) for item, cell in pairs}
        if all(value is None for column in values.values() for value in column):
            raise LeftOut(f"no atom is measured ({_quoted(values)})", "Nothing needs to be done.")
        return values


def add_molecule(
    graph: GraphBuilder,
    molecule: Chem.Mol,
    features: FeatureSet,
    directed_bonds: bool,
    atom_targets: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Adds the atoms and bonds of a molecule to the unfinished graph, which is empty so far.

    Raises:
        RecordError: if bonds shall be nodes and an atom has too many of them.
    """
    atoms = atoms_of(molecule)
    bonds = bonds_of(molecule, atoms)
    if features.labels:
        label_stereo(molecule, atoms, bonds)
    atom_rows = [features.atom_row(facts) for facts in atom_facts(atoms)]
    bond_rows = [features.bond_row(facts) for facts in bond_facts(bonds) for _ in range(2)]
    atom_codes = _by_column(features.atom_columns, atom_rows)
    bond_codes = _by_column(features.bond_columns, bond_rows)
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    sources = [atom for pair in ends for atom in pair]
    targets = [atom for begin, end in ends for atom in (end, begin)]
    spans = [(index, index + 1) for index in range(len(atoms))]
    graph.nodes("atom", len(atoms), spans, **atom_codes, **(atom_targets or {}))
    if directed_bonds:
        refuse_crowded(molecule)
        add_directed_bonds(graph, sources, targets, atom_codes, bond_codes)
        return
    # Neighbours in the order of what they are: so equal surroundings look equal, and can be shared.
    keys = [(row, atom_rows[source]) for row, source in zip(bond_rows, sources, strict=True)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    bond_codes = {name: [codes[i] for i in order] for name, codes in bond_codes.items()}
    graph.edges("bond", [sources[i] for i in order], [targets[i] for i in order], **bond_codes)


def _by_column(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Column name -> the values of all rows."""
    return {column.name: [row[i] for row in rows] for i, column in enumerate(columns)}


def _listed(names: Sequence[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _check_atom_targets(adapter: SmilesAdapter, bounded: bool) -> None:
    """Refuses options under which the values of a cell are not those of the graph's outputs."""
    clashes = {
        "target_columns": bool(adapter.targets),
        "bounded_targets": bounded,
        "fragments": adapter.fragments != "none",
        "salts=strip": adapter.salts == "strip",
        "standardize": adapter.standardize != "none",
    }
    found = [name for name, is_there in clashes.items() if is_there]
    if found:
        raise ConfigError(
            f"atom_target_columns cannot be read together with {' and '.join(found)}. Leave one of "
            "them out."
        )
    features = [column.name for column in adapter.features.atom_columns]
    taken = [target.name for target in adapter.atom_targets if target.name in features]
    if taken:
        raise ConfigError(
            f"the column '{taken[0]}' of atom_target_columns has the name of a feature of atoms. "
            "Rename it in the table."
        )


def _check_class_names(class_names: Mapping[str, Any], targets: Sequence[str]) -> None:
    for name, cells in class_names.items():
        if isinstance(cells, str) or not isinstance(cells, Sequence) or len({*cells}) < 2:
            raise ConfigError(
                f"class_names gives '{name}' {cells!r}. Give a list of two or more different names."
            )
        if name not in targets:
            raise ConfigError(
                f"class_names names '{name}', which is no target.{did_you_mean(name, targets)} The "
                f"targets are: {', '.join(targets) or 'none'}."
            )


def _refuse_repeated(names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(
            f"the column {', '.join(map(repr, repeated))} is asked for more than once. Name each "
            "column once in smiles_column, target_columns, atom_target_columns, extra_columns and "
            "split_column.",
            columns=repeated,
        )
