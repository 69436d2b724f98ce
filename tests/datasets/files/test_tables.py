import csv
import gzip
import io
import itertools
import tracemalloc
from datetime import date

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from graphfold.datasets.files.tables import open_table
from graphfold.errors import DataError

TEXT = "smiles,y\nCCO,1\nC,2\n"


@pytest.fixture
def table(tmp_path):
    """A function that writes a file and opens it."""

    def make(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_table(path)

    return make


def rows(table):
    return [tuple(row) for row in table.rows()]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        pytest.param(TEXT, "data.csv", id="plain"),
        pytest.param(TEXT.removesuffix("\n"), "data.CSV", id="no-last-line-end"),
        pytest.param(TEXT.encode("utf-8-sig"), "data.csv", id="byte-order-mark"),
        pytest.param(TEXT.replace("\n", "\r\n"), "data.csv", id="cr-lf"),
        pytest.param(gzip.compress(TEXT.encode()), "data.csv.gz", id="gzip"),
        pytest.param(gzip.compress(TEXT.encode()), "data.csv", id="gzip-by-content"),
        pytest.param(TEXT.replace(",", "\t"), "data.tsv", id="tsv"),
        pytest.param(TEXT.replace(",", "\t"), "data.csv", id="tabs-in-csv"),
        pytest.param(TEXT.replace(",", ";"), "data.csv", id="semicolons"),
    ],
)
def test_one_table_in_many_forms(table, content, name):
    made = table(content, name)
    assert (made.columns, made.header_line) == (("smiles", "y"), 1)
    assert rows(made) == [(2, ("CCO", "1"), None), (3, ("C", "2"), None)]
    assert rows(made) == rows(made)


def test_a_record_is_on_the_line_where_it_begins(table):
    made = table('\n\na,b\n"1,\n2","say ""x"""\n \n\n3,4\n"5\n\n6",7\n8,9\n')
    assert (made.columns, made.header_line) == (("a", "b"), 3)
    assert rows(made) == [
        (4, ("1,\n2", 'say "x"'), None),
        (8, ("3", "4"), None),
        (9, ("5\n\n6", "7"), None),
        (12, ("8", "9"), None),
    ]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1))
def test_any_cells_come_back(tmp_path_factory, cells):
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([("a", "b"), *cells])
    path = tmp_path_factory.mktemp("table") / "data.csv.gz"
    path.write_bytes(gzip.compress(buffer.getvalue().encode()))
    assert [row.cells for row in open_table(path).rows()] == [
        tuple(cell.replace("\r\n", "\n") for cell in row) for row in cells
    ]


def test_a_row_of_another_length_is_kept_with_its_fault(table):
    made = table("a,b\n1\n1,2,3\n1,\n")
    assert rows(made) == [
        (2, ("1", ""), "the row has 1 cell, but the header has 2"),
        (3, ("1", "2"), "the row has 3 cells, but the header has 2"),
        (4, ("1", ""), None),
    ]


@pytest.mark.parametrize("bad", ['"x"y,1', "x\ry,1", '"x,1'])
def test_a_fault_within_the_line_is_that_record_s(table, bad):
    *first, faulty = rows(table(f"a,b\n1,2\n{bad}\n"))
    assert first == [(2, ("1", "2"), None)]
    assert faulty[:2] == (3, ("", ""))
    assert faulty[2].startswith("the quotes or line ends of the row are wrong (")


@pytest.mark.parametrize("cell", ["x" * 140_000, "x\n" * 70_000])
def test_a_long_cell_is_read_whole(table, cell):
    # Longer than what Python's csv module takes by default, which stays as it is for others.
    limit = csv.field_size_limit()
    made = table(f'a,b\n"{cell}",1\n2,3\n')
    next_line = 3 + cell.count("\n")
    assert rows(made) == [(2, (cell, "1"), None), (next_line, ("2", "3"), None)]
    assert csv.field_size_limit() == limit


def test_bytes_that_are_no_text_are_the_fault_of_their_row(table):
    made = table(b'a,b\n1,2\n"x\n\xe9",3\n4,5\n')
    fault = "byte 1 of the line (0xe9) is not UTF-8"
    assert rows(made) == [
        (2, ("1", "2"), None),
        (3, ("x\n\ufffd", "3"), fault),
        (5, ("4", "5"), None),
    ]
    assert rows(table(b"CC a\nC \xe9\n", "a.smi")) == [
        (1, ("CC", "a"), None),
        (2, ("C", "\ufffd"), "byte 3 of the line (0xe9) is not UTF-8"),
    ]


@pytest.mark.parametrize("rest", ["3,4\n5,6\n", '3,4\n"5",6\n'])
def test_a_quote_that_swallows_records_refuses_the_file(table, rest):
    made = table(f'a,b\n1,2\n"C,2\n{rest}')
    with pytest.raises(DataError, match=r"data\.csv:3: a quote .* not closed .*, up to line 5\."):
        rows(made)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        pytest.param("", "a.csv", r"a\.csv: is empty\. Give a table with", id="empty"),
        pytest.param("\ufeff\n \n", "a.csv", r"a\.csv: is empty", id="blank"),
        pytest.param('" "', "a.csv", r"a\.csv: is empty", id="quoted-blank"),
        pytest.param("a,b\n", "a.csv", r"a\.csv: holds no records\. Give", id="header-only"),
        pytest.param("a,b\n\n \n", "a.csv", r"a\.csv: holds no records", id="blank-lines"),
        pytest.param("", "a.smi", r"a\.smi: holds no records", id="empty-smi"),
        pytest.param("\n \t\n", "a.smi", r"a\.smi: holds no records", id="blank-smi"),
        pytest.param(b"a,\xff\n1,2\n", "a.csv", r"a\.csv:1: .*UTF-8\. Correct the", id="latin"),
        pytest.param("a,b\n".encode("utf-16"), "a.csv", r"a\.csv:1: is UTF-16", id="utf-16"),
        pytest.param(b"a,b\n", "a.csv.gz", "named .gz, but is not gzipped", id="no-gzip"),
        pytest.param("a,b\r1,2\r", "a.csv", r"a\.csv:1: .*line ends.*header", id="cr-alone"),
        pytest.param('a,"b\n', "a.csv", r"a\.csv:1: the quotes .*Correct the header", id="quote"),
        pytest.param("a,b\n", "a.xlsx", r"no known kind of table\. Give .*\.csv", id="kind"),
        pytest.param("PAR1", "a.parquet", "cannot be read as Parquet", id="no-parquet"),
        pytest.param("", "a.parquet", "cannot be read as Parquet", id="empty-parquet"),
    ],
)
def test_a_file_that_is_no_table(table, content, name, message):
    with pytest.raises(DataError, match=message):
        rows(table(content, name))


@pytest.mark.parametrize("name", ["a.csv", "a.smi", "a.parquet", "a.xyz"])
def test_a_file_that_is_absent(tmp_path, name):
    with pytest.raises(DataError, match=f"{name}: no such file"):
        rows(open_table(tmp_path / name))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["smiles"], r":1: no column 'smiles' among .*\. Did you mean 'SMILES'\? Set data\.x\."),
        (["p np"], r"no column 'p np' among 'num', 'p_np', 'SMILES', 'n', 'n'\. Did .*'p_np'\?"),
        (["q", "zz"], r"no column 'q', 'zz' among"),
        (["num", "n"], r"data\.csv:1: the header has the column 'n' more than once\. Rename"),
    ],
)
def test_a_column_that_is_absent_or_repeated(table, asked, message):
    with pytest.raises(DataError, match=message) as caught:
        table("num,p_np,SMILES,n,n\n1,2,C,3,4\n").find(asked, "data.x")
    assert caught.value.line == 1


def test_a_table_of_too_many_columns(table):
    with pytest.raises(
        DataError, match=r"data\.csv: has 100,001 columns, but 100,000 are the most"
    ):
        table("a" + "," * 100_000 + "\n1\n")


def test_smi(table):
    text = "\ufeffCCO ethanol\r\n\n  \nC\tmethane gas \nO \t water\n[Na+].[Cl-]\n N x\n"
    made = table(gzip.compress(text.encode()), "data.smi.gz")
    assert (made.columns, made.smiles_column) == (("smiles", "name"), "smiles")
    assert rows(made) == [
        (1, ("CCO", "ethanol"), None),
        (4, ("C", "methane gas"), None),
        (5, ("O", "water"), None),
        (6, ("[Na+].[Cl-]", ""), None),
        (7, ("N", "x"), None),
    ]


def test_parquet_values_become_text(tmp_path):
    path = tmp_path / "data.parquet"
    columns = {
        "smiles": pyarrow.array(["CCO", None]).dictionary_encode(),
        "y": [0.1, float("nan")],
        "count": [1, None],
        "active": [True, False],
        "day": [date(2020, 1, 2), None],
    }
    parquet.write_table(pyarrow.table(columns), path)
    made = open_table(path)
    assert (made.columns, made.header_line) == (tuple(columns), None)
    assert rows(made) == [
        (2, ("CCO", "0.1", "1", "1", "2020-01-02"), None),
        (3, ("", "nan", "", "0", ""), None),
    ]
    with pytest.raises(DataError, match=r"data\.parquet: no column 'Y' among .* mean 'y'\?"):
        made.find(["Y"], "data.x")


@pytest.mark.parametrize("kind", ["csv", "smi", "parquet"])
def test_rows_are_a_stream(tmp_path, kind):
    path = tmp_path / f"data.{kind}"
    values = [f"CCO{i}" for i in range(100_000)]
    if kind == "parquet":
        parquet.write_table(pyarrow.table({"smiles": values}), path, row_group_size=5000)
    else:
        path.write_text("\n".join(["smiles"] * (kind == "csv") + values))
    assert next(open_table(path).rows()).cells[0] == "CCO0"
    tracemalloc.start()
    try:
        count = sum(1 for _ in itertools.islice(open_table(path).rows(), None))
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()
    assert count == 100_000
