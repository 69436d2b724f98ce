import gzip
import math

import pytest
import torch
from datasets.tree_files import read, write
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from graphfold.dag import GraphBuilder, validate
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.feature_sets import GRAPHFOLD
from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError, DataError, RecordError


def molecule(smiles, **options):
    """The graph of one SMILES."""
    adapter = SmilesAdapter(**options)
    builder = GraphBuilder(adapter.schema)
    adapter.parse(Record(1, RecordRow(smiles)), builder)
    dag = builder.build()
    validate(dag)
    return dag


def values(dag, feature):
    """A feature of every atom, or of every bond in both directions: what the codes stand for."""
    (coded,) = [p for p in (*GRAPHFOLD.atom, *GRAPHFOLD.bond) if p.column.name == feature][:1]
    space = "type:atom" if coded in GRAPHFOLD.atom else "relation:bond"
    known = [*coded.encode.__self__, "other"]
    return [known[code] for code in dag.columns[space][feature].tolist()]


def bonds(dag):
    """The edges (source, target) with their order and stereo."""
    relation = dag.relations["bond"]
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), relation.ptr.diff())
    ends = zip(relation.index.tolist(), target.tolist(), strict=True)
    codes = zip(
        *(dag.columns["relation:bond"][p.column.name].tolist() for p in GRAPHFOLD.bond), strict=True
    )
    return dict(zip(ends, codes, strict=True))


def reasons(adapter, path):
    return [(error.line, error.reason) for error in read(adapter, path, "skip").skipped]


# The graph of a molecule


def test_ethanol_is_three_atoms_and_two_bonds_in_both_directions():
    dag = molecule(" CCO ")
    assert values(dag, "element") == [6, 6, 8]
    assert values(dag, "hydrogens") == [3, 2, 1]
    assert values(dag, "degree") == [4, 4, 2]
    assert values(dag, "hybridization") == [Chem.HybridizationType.SP3] * 3
    assert sorted(bonds(dag)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert dag.output_index.tolist() == [0, 1, 2]
    assert dag.span.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert (dag.num_inputs, dag.depth.tolist()) == (0, [0, 0, 0])
    assert dag.strings("graph", "smiles") == ["CCO"]


SP3, SP3D2 = Chem.HybridizationType.SP3, Chem.HybridizationType.SP3D2


@pytest.mark.parametrize(
    ("smiles", "without", "written", "with_option"),
    [
        ("CO", [6, 8], [6, 8], [6, 8, 1, 1, 1, 1]),
        ("[H]OC([H])([H])[H]", [8, 6], [1, 8, 6, 1, 1, 1], [1, 8, 6, 1, 1, 1]),
        ("[H]OC", [8, 6], [1, 8, 6], [1, 8, 6, 1, 1, 1]),
        ("[2H]O", [1, 8], [1, 8], [1, 8, 1]),
        ("[H][H]", [1, 1], [1, 1], [1, 1]),
        ("[H]", [1], [1], [1]),
        ("*", [0], [0], [0]),
    ],
)
def test_explicit_hydrogens(smiles, without, written, with_option):
    assert values(molecule(smiles), "element") == without
    assert values(molecule(smiles, explicit_hydrogens="written"), "element") == written
    explicit = molecule(smiles, explicit_hydrogens=True)
    assert values(explicit, "element") == with_option
    assert set(values(explicit, "hydrogens")) == {0}


LABELLED = [
    "C[C@@H](N)C(=O)N[C@H](CO)C(=O)O",
    "F/C=C/[C@H](F)[C@@H](F)/C=C\\F",
    "O[C@H]1CC[C@@H](C)CC1",
    "c1ccc2[nH]c(-c3ncc([13CH3])o3)cc2c1.[Na+]",
    "CN1[C@H]2CC[C@@H]1[C@@H](C(=O)OC)[C@@H](OC(=O)c1ccccc1)C2",
]


@given(st.sampled_from(LABELLED), st.randoms(use_true_random=False))
def test_the_order_of_atoms_only_reorders_the_graph(smiles, random):
    original = Chem.MolFromSmiles(smiles)
    order = list(range(original.GetNumAtoms()))
    random.shuffle(order)
    renumbered = Chem.RenumberAtoms(original, order)
    text = Chem.MolToSmiles(renumbered, canonical=False)
    written = renumbered.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
    source = [order[atom] for atom in written]  # atom i of the text is atom source[i] of the first
    first, second = molecule(smiles), molecule(text)
    for name, column in first.features("atom").items():
        assert column[source].tolist() == second.features("atom")[name].tolist()
    moved = {(source[a], source[b]): codes for (a, b), codes in bonds(second).items()}
    assert moved == bonds(first)


@pytest.mark.parametrize(
    "smiles",
    ["C(" * 2499 + "C" + ")" * 2499, "N[C@@H](C)C(=O)" * 500, ".".join("C" * 5000)],
    ids=["nested", "peptide", "gas"],
)
def test_five_thousand_atoms(smiles):
    dag = molecule(smiles)
    assert (dag.num_nodes, dag.output_index.shape[0]) == (dag.span.shape[0], dag.num_nodes)
    assert dag.num_nodes >= 2500


# Bad molecules


@pytest.mark.parametrize(
    ("smiles", "message"),
    [
        ("", "the SMILES is empty. Fix the SMILES, or set data.on_error=skip."),
        (" \t", "the SMILES is empty"),
        ("C1CC", "RDKit cannot read SMILES 'C1CC' (unclosed ring). Fix the SMILES, or set"),
        ("C(C", "'C(C' (extra open parentheses around position 2)"),
        ("CC)", "'CC)' (extra close parentheses around position 3)"),
        ("[Xx]", "(syntax error around position 2)"),
        ("[C,N]", "(syntax error around position 3)"),
        ("CN(C)(C)C", "(Explicit valence for atom # 1 N, 4, is greater than permitted)"),
        ("c1cccc1", "(Can't kekulize mol. Unkekulized atoms: 0 1 2 3 4)"),
        ("cC", "(non-ring atom 0 marked aromatic)"),
        ("[#200]", "'[#200]' (Atomic number not found)"),
        ("CCO ethanol", "(it has a blank inside)"),
        ("C\nC", "'C C' (it has a blank inside)"),
        ("CCO |bad", "(RDKit gives no reason)"),
        ("Cé", "('é' is not an ASCII character)"),
        ("C\0C", "(syntax error around position 2)"),
        ("CCO>>CC=O", "'CCO>>CC=O' (it is a reaction, which data.reaction=reac_diff reads)"),
        ("CCO>[Na+]>CC=O", "(it is a reaction, which"),
        ("C->[Fe", "(syntax error around position 6)"),
        ("CC{[$]CC[$]}O", "(it is BigSMILES of a polymer; only molecules are read"),
        ("nan", "RDKit cannot read SMILES 'nan'"),
        ("(" * 200, f"SMILES '{'(' * 80}...' (syntax error"),
    ],
)
def test_a_bad_smiles_is_refused_with_rdkit_s_reason(smiles, message, capfd):
    with pytest.raises(RecordError) as caught:
        molecule(smiles)
    assert message in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_long_smiles_of_open_brackets_does_not_fill_the_memory():
    with pytest.raises(RecordError, match=r"\(50000 parentheses are never closed\)"):
        read_molecule("C(" * 50_000)


def test_a_longer_smiles_than_the_limit_never_meets_rdkit(monkeypatch):
    """RDKit would take minutes for it."""
    with pytest.raises(RecordError) as caught:
        molecule("C" * 20_001)
    assert caught.value.reason == (
        f"the SMILES '{'C' * 80}...' has 20,001 characters, and 20,000 are read. "
        "Leave the record out, or set data.on_error=skip."
    )


def test_dummy_atoms_are_noted(tmp_path):
    path = write(tmp_path, "smiles\n*CC(C)*\nCC[1*]\nCC |$*;$|\n[*:1]C\nC\n", "m.csv")
    adapter = SmilesAdapter()
    dag = read(adapter, path).dag
    assert dag.num_nodes == 5 + 3 + 2 + 2 + 1
    assert adapter.notes(dag) == [
        "dummy atoms, as of polymers or attachment points: '*' stands in 3 molecules, and is read "
        "as an atom of unknown element"
    ]
    none = read(adapter, write(tmp_path, "smiles\nCC\n", "n.csv")).dag
    assert adapter.notes(none) == []


@given(st.text("CNOcnos[]()=#@+-H123%./\\*F~ |é", max_size=12), st.booleans())
def test_any_text_is_a_molecule_or_a_bad_record(text, explicit_hydrogens):
    try:
        assert molecule(text, explicit_hydrogens=explicit_hydrogens).num_nodes > 0
    except RecordError as error:
        assert "SMILES" in error.fault  # noqa: PT017


# Tables


TABLE = """name,smiles,y,label
"a, quoted",CCO,1.5,1
b,C1CC,2,0
c,CC,,
d,C,abc,2
e,CCC,NaN,0.0
f,,3,1
g,O,-4e-1,1.0
h,N
"""


def test_targets(tmp_path):
    adapter = SmilesAdapter(target_columns=["y", "label"], units={"y": "kcal/mol"})
    result = read(adapter, write(tmp_path, TABLE, "a.csv"), "skip")
    assert result.dag.strings("graph", "smiles") == ["CCO", "CCC", "O"]
    torch.testing.assert_close(
        result.dag.graph_column("y"), torch.tensor([1.5, math.nan, -0.4]), equal_nan=True
    )
    assert result.dag.graph_column("label").tolist() == [1, 0, 1]
    assert result.dag.origin[:, 1].tolist() == [2, 6, 8]
    assert [column.unit for column in adapter.schema.graph_targets] == ["kcal/mol", None]
    assert [(e.line, e.fault) for e in result.skipped] == [
        (3, "RDKit cannot read SMILES 'C1CC' (unclosed ring)"),
        (4, "no target is measured ('y', 'label')"),
        (5, "target 'y' is 'abc', which is not a finite number"),
        (7, "the SMILES is empty"),
        (9, "the row has 2 cells, but the header has 4"),
    ]


def test_an_unmeasured_row_is_left_out_though_errors_are_raised(tmp_path):
    path = write(tmp_path, "smiles,a,b\nC,1,\nN,NA,None\nO,,nan\nF,,2\n", "a.csv")
    result = read(SmilesAdapter(target_columns=["a", "b"]), path)
    assert result.dag.strings("graph", "smiles") == ["C", "F"]
    assert [error.line for error in result.skipped] == [3, 4]
    assert read(SmilesAdapter(target_columns="a"), path).dag.num_graphs == 1
    assert read(SmilesAdapter(), path).dag.num_graphs == 4


@pytest.mark.parametrize("cell", ["", " ", "NaN", "nan", "NA", "None", " NA "])
def test_missing_values(tmp_path, cell):
    path = write(tmp_path, f"smiles,a,b\nC,{cell},1\n", "a.csv")
    dag = read(SmilesAdapter(target_columns=["a", "b"]), path).dag
    assert math.isnan(dag.graph_column("a").item())
    adapter = SmilesAdapter(target_columns=["a", "b"], task="classification")
    assert read(adapter, path).dag.graph_column("a").item() == -1


NO_NUMBERS = ["x", "N/A", "NAN", "inf", "-Infinity", "1e39", "1e999", "1_000", "1,5", "0x1", "٣"]


@pytest.mark.parametrize("cell", NO_NUMBERS)
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_text_and_infinities_in_a_target_are_errors(tmp_path, cell, task):
    adapter = SmilesAdapter(target_columns=["a b"], task=task)
    path = write(tmp_path, f'smiles,a b\nC,1\nN,"{cell}"\n', "a.csv")
    message = (
        rf"a\.csv:3: target 'a b' is '{cell}', which is not a finite number\. Correct the cell"
    )
    with pytest.raises(RecordError, match=message):
        read(adapter, path)
    assert [line for line, _ in reasons(adapter, path)] == [3]


@pytest.mark.parametrize("cell", ["2", "-1", "0.5", "1.0000001"])
def test_a_class_must_be_in_range(tmp_path, cell):
    adapter = SmilesAdapter(target_columns=["a"], task="classification")
    path = write(tmp_path, f"smiles,a\nC,1\nN,{cell}\n", "a.csv")
    with pytest.raises(
        RecordError, match=rf":3: target 'a' is '{cell}', .* classes 0 \.\. 1\. Cor"
    ):
        read(adapter, path)
    assert len(reasons(adapter, path)) == 1


def test_without_targets_every_readable_molecule_is_a_graph(tmp_path):
    adapter = SmilesAdapter(target_columns=["y", "label"], task="classification")
    path = write(tmp_path, "smiles,other\nC,x\nC1,y\nO,z\n", "a.csv")
    with pytest.raises(DataError, match="no column 'y', 'label' among 'smiles', 'other'"):
        read(adapter, path)
    bare = adapter.without_targets()
    result = read(bare, path, "skip")
    assert bare.schema == adapter.schema
    assert result.dag.graph_column("y").tolist() == [-1, -1]
    assert [error.line for error in result.skipped] == [3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_columns": ["a", "b", "a"]}, "column 'a' is asked for more than once. Name each"),
        ({"target_columns": ["smiles"]}, "column 'smiles' is asked for more than once"),
        (
            {"target_columns": "a", "task": "regresion"},
            "no task 'regresion'. Did you mean 'regress",
        ),
        ({"target_columns": "a", "num_classes": 2}, "num_classes=2 does not fit task=regression"),
        (
            {"target_columns": "a", "task": "classification", "num_classes": 1},
            "num_classes=1 does not fit task=classification. Leave it out for regression",
        ),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ConfigError) as caught:
        SmilesAdapter(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        (
            "SMILES,y",
            {},
            r":1: no column 'smiles' .*Did you mean 'SMILES'\? Set data.smiles_column\.",
        ),
        ("smiles,Y", {"target_columns": "y"}, r"no column 'y' .*'Y'\? Set data.target_columns\."),
        (
            "smiles,y,y",
            {"target_columns": "y"},
            r":1: the header has the column 'y' more than once",
        ),
        ("smiles,smiles,y", {}, r"the column 'smiles' more than once"),
    ],
)
def test_columns_that_are_not_there(tmp_path, header, options, message):
    with pytest.raises(DataError, match=message):
        read(SmilesAdapter(**options), write(tmp_path, f"{header}\nC,1,2\n", "a.csv"))


@pytest.mark.parametrize("name", ["line", "record", "self", "columns", "element"])
def test_a_target_may_have_any_name(tmp_path, name):
    path = write(tmp_path, f"smiles,{name}\nC,3\n", "a.csv")
    dag = read(SmilesAdapter(target_columns=name), path).dag
    assert dag.graph_column(name).tolist() == [3]
    assert dag.place(0) == (str(path), 2)


@pytest.mark.parametrize("column", ["smiles", "SMILES"])
def test_smi_has_its_smiles_in_front(tmp_path, column):
    adapter = SmilesAdapter(smiles_column=column)
    text = gzip.compress(b"CCO |x| ethanol\n\nC1CC bad\nO\twater\n")
    result = read(adapter, write(tmp_path, text, "a.smi.gz"), "skip")
    assert result.dag.strings("graph", "smiles") == ["CCO", "O"]
    assert [error.line for error in result.skipped] == [3]


# The real corpora: usable records and the lines that RDKit rejects, from the README of the data.
# They were counted with RDKit 2026.09.1, and another version may differ by a record or so.


# Classes that are text


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["b", " a ", "", "NA", "b"], ["a", "b"]),
        (["0", "1", "0", "", "1"], None),
        (["a", "b", "1", "a", "b"], None),  # the text is a fault, the numbers are classes
        (["a", "a", "", "", "a"], None),
    ],
)
def test_a_column_without_numbers_holds_class_names(tmp_path, cells, names):
    path = write(tmp_path, "smiles,y,z\n" + "".join(f"C,{cell},1\n" for cell in cells), "m.csv")
    options = {"target_columns": ["y", "z"], "task": "classification"}
    found = SmilesAdapter(**options).infer_options([path])
    assert found == ({} if names is None else {"class_names": {"y": names}})
    assert SmilesAdapter(target_columns=["y"]).infer_options([path]) == {}
    if names is not None:
        adapter = SmilesAdapter(**options, **found)
        assert adapter.infer_options([path]) == {}
        dag = read(adapter, path).dag
        assert dag.graph_column("y").tolist() == [1, 0, -1, -1, 1]
        assert dag.graph_column("z").tolist() == [1] * 5
        assert [column.names for column in dag.schema.graph_targets] == [tuple(names), ()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": {"x": ["a", "b"]}}, "names 'x', which is no target.* targets are: y"),
        ({"class_names": {"y": "ab"}}, "gives 'y' 'ab'. Give a list of two or more"),
        ({"class_names": {"y": ["a"]}}, "Give a list of two or more different names"),
        ({"class_names": {"y": ["a", "b"]}, "num_classes": 3}, "does not fit .* num_classes=3"),
        ({"class_names": {"y": ["a", "b"]}, "task": "regression"}, "does not fit task=regression"),
    ],
)
def test_class_names_that_fit_nothing(options, message):
    with pytest.raises(ConfigError, match=message):
        SmilesAdapter(**{"target_columns": ["y"], "task": "classification", **options})
