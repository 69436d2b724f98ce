import gzip
import random
from pathlib import Path

import numpy as np
import pytest
from datasets.tree_files import corpus_folder, inputs_of, read, write
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.listops import (
    ListOpsAdapter,
    ListOpsExample,
    ListOpsGenerator,
    apply_operator,
    read_expression,
)
from graphfold.errors import ConfigError, DataError, RecordError

GOOD = "4\t( ( ( [MAX 2 ) 4 ) ] )"


def evaluate(expression):
    """An answer worked out the slow way: innermost list first, by replacing text."""
    tokens = [token for token in expression.split() if token not in "()"]
    while len(tokens) > 1:
        end = tokens.index("]")
        begin = max(k for k in range(end) if tokens[k].startswith("["))
        values = [int(token) for token in tokens[begin + 1 : end]]
        actions = {"[MIN": min, "[MAX": max, "[MED": np.median, "[SM": lambda v: sum(v) % 10}
        tokens[begin : end + 1] = [str(int(actions[tokens[begin]](values)))]
    return int(tokens[0])


def test_brackets_become_pairs(tmp_path):
    dag = read(ListOpsAdapter(), write(tmp_path, GOOD + "\n7\t7\n")).dag
    assert dag.strings("type:token", "form") == ["[MAX", "2", "4", "]", "7"]
    assert [inputs_of(dag, node) for node in range(4, 8)] == [[0, 1], [4, 2], [5, 3], []]
    assert dag.output_index.tolist() == [6, 7]
    assert dag.graph_column("answer").tolist() == [4, 7]
    text = dag.strings("graph", "text")[0]
    covered = [text[a:b] for a, b in dag.span.tolist()[4:6]]
    assert covered == ["( [MAX 2 )", "( ( [MAX 2 ) 4 )"]


NESTED = "2\t( ( ( ( [MIN ( ( ( [SM 9 ) 3 ) ] ) ) 7 ) 5 ) ] )"


def test_lists_are_nodes_over_their_arguments(tmp_path):
    dag = read(ListOpsAdapter(nodes="lists"), write(tmp_path, NESTED + "\n7\t7\n")).dag
    assert dag.strings("type:digit", "form") == ["9", "3", "7", "5", "7"]
    assert dag.strings("type:list", "operator") == ["[SM", "[MIN"]
    assert [inputs_of(dag, node) for node in range(7)] == [[]] * 4 + [[0, 1], [4, 2, 3], []]
    assert dag.output_index.tolist() == [5, 6]
    text = dag.strings("graph", "text")[0]
    covered = [text[a:b] for a, b in dag.span.tolist()[2:6]]
    assert covered == ["7", "5", "( ( ( [SM 9 ) 3 ) ] )", text]


@given(st.integers(0, 1000))
def test_all_kinds_of_nodes_have_the_same_digits_and_operators(seed):
    example = ListOpsGenerator(max_length=40).draw(random.Random(seed))
    if example is None:
        return
    graphs = {}
    for nodes in ("brackets", "lists", "tokens"):
        adapter = ListOpsAdapter(nodes=nodes)
        record = adapter.record_of(f"{example.answer}\t{example.expression}")
        graphs[nodes] = read_records(adapter, Path("x"), [record]).dag
    forms = graphs["tokens"].strings("type:token", "form")
    assert graphs["brackets"].strings("type:token", "form") == forms
    digits = [form for form in forms if form.isdigit()]
    assert graphs["lists"].strings("type:digit", "form") == digits
    operators = sorted(form for form in forms if form.startswith("["))
    assert sorted(graphs["lists"].strings("type:list", "operator")) == operators


def test_unknown_nodes_are_refused():
    with pytest.raises(ConfigError, match="nodes is 'list'. Did you mean 'lists'?"):
        ListOpsAdapter(nodes="list")


@pytest.mark.parametrize(
    ("operator", "values", "answer"),
    [
        ("[MIN", [4, 2, 9], 2),
        ("[MAX", [4, 2, 9], 9),
        ("[SM", [4, 2, 9], 5),
        ("[MED", [4, 2, 9], 4),
        ("[MED", [4, 2, 9, 7], 5),
    ],
)
def test_operators(operator, values, answer):
    assert apply_operator(operator, values) == answer


FAULTS = {
    "no tab": ("4 ( ( ( [MAX 2 ) 4 ) ] )", "the line has no tabs, but it needs one"),
    "two tabs": (GOOD + "\t1", "the line has 2 tabs, but it needs one"),
    "answer no digit": ("x\t7", "the answer 'x' is not a digit"),
    "answer of two digits": ("17\t7", "the answer '17' is not a digit"),
    "no answer": ("\t7", "the answer '' is not a digit"),
    "no expression": ("7\t ", "the expression is empty"),
    "wrong answer": ("2" + GOOD[1:], "the answer is 2, but the expression gives 4"),
    "unknown token": ("4\t( ( ( [AVG 2 ) 4 ) ] )", r"unknown token '\[AVG' at column 9"),
    "glued bracket": ("4\t( ( ([MAX 2 ) 4 ) ] )", r"unknown token '\(\[MAX' at column 7"),
    "never closed": (GOOD[:-2], "bracket opened at column 3 is never closed"),
    "closed too often": (GOOD + " )", "closing bracket at column 26 closes nothing"),
    "one part": ("4\t( ( ( [MAX ) 4 ) ] )", "bracket opened at column 7 holds 1 part, but needs"),
    "three parts": ("4\t( ( [MAX 2 4 ) ] )", "bracket opened at column 5 holds 3 parts"),
    "empty bracket": ("4\t( )", "bracket opened at column 3 holds 0 parts"),
    "list without end": ("4\t( ( [MAX 2 ) 4 )", "is not one digit or one bracket that ends with"),
    "two expressions": ("4\t4 4", "is not one digit or one bracket that ends with"),
    "operator alone": ("4\t[MAX", "is not one digit or one bracket that ends with"),
    "no values": ("4\t( [MAX ] )", "column 3 holds neither an operator and a value, nor"),
    "a blank of another kind": ("\u00a0", "the line has no tabs"),
    "bytes": ("4\t4\udce9", r"byte 4 of the line \(0xe9\) is not UTF-8"),
    "two digits": ("4\t( 4 4 )", "column 3 holds neither an operator and a value, nor"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_line_is_named_and_left_out(tmp_path, name):
    line, message = FAULTS[name]
    whole = f"{GOOD}\n{line}\n{GOOD}\n".encode("utf-8", "surrogateescape")
    path = write(tmp_path, whole, "x.tsv")
    with pytest.raises(RecordError, match=rf"x\.tsv:2: .*{message}"):
        read(ListOpsAdapter(), path)
    result = read(ListOpsAdapter(), path, "skip")
    assert (result.dag.num_graphs, [error.line for error in result.skipped]) == (2, [2])


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_expressions_is_refused(tmp_path, text):
    with pytest.raises(DataError, match="holds no expressions"):
        read(ListOpsAdapter(), write(tmp_path, text))


def test_a_deep_expression_is_read(tmp_path):
    depth = 10_000
    text = "( ( ( [SM 1 ) " * depth + "0" + " ) ] )" * depth
    dag = read(ListOpsAdapter(), write(tmp_path, f"{depth % 10}\t{text}")).dag
    assert dag.depth.max() == 2 * depth + 1


@given(seed=st.integers(0, 2**32), probability=st.floats(0, 0.4), depth=st.integers(1, 8))
def test_drawn_expressions_have_the_answer_they_are_given(seed, probability, depth):
    generator = ListOpsGenerator(probability, max_depth=depth, max_length=400)
    example = generator.draw(random.Random(seed))
    if example is not None:
        assert example.answer == evaluate(example.expression)
        assert read_expression(example.expression).value == example.answer


def test_a_seed_gives_these_examples_on_every_python_version():
    generator = ListOpsGenerator(0.5, max_arguments=2, max_depth=2, pool=20)
    assert generator.examples(4, seed=0) == [
        ListOpsExample(7, "( ( ( [SM 9 ) 8 ) ] )"),
        ListOpsExample(5, "( ( ( [MED 6 ) 4 ) ] )"),
        ListOpsExample(5, "( ( ( [MED 4 ) 7 ) ] )"),
        ListOpsExample(7, "7"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operator_probability": 1.0}, r"operator_probability is 1\.0\. Give 0 or more, less"),
        ({"max_arguments": 1}, "max_arguments is 1. Give 2 or more"),
        ({"max_length": 0}, "max_length is 0. Give 1 or more"),
        ({"operator_probability": 0.6}, r"expressions would have \d+ tokens on average"),
    ],
)
def test_generator_options_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        ListOpsGenerator(**options)


def test_more_expressions_than_there_are_is_refused():
    generator = ListOpsGenerator(max_depth=1)
    assert len(generator.examples(10, seed=0)) == 10
    with pytest.raises(ConfigError, match="only about 10 different expressions, but 11 are wanted"):
        generator.examples(11, seed=0)


@pytest.mark.slow
def test_drawn_lengths_are_those_of_the_published_set(data_root):
    path = corpus_folder(data_root, "listops") / "test_d20s.tsv.gz"
    with gzip.open(path, "rt") as file:
        published = [_length(line.split("\t")[1]) for line in file]
    drawn = [_length(example.expression) for example in ListOpsGenerator().examples(50_000, seed=0)]
    # The mean of 10,000 published lengths (42.8) has a standard error of 0.7.
    assert abs(np.mean(drawn) - np.mean(published)) < 2.5
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    np.testing.assert_allclose(
        np.quantile(drawn, quantiles), np.quantile(published, quantiles), rtol=0.07
    )
    for length in range(1, 14):
        expected, found = np.mean(np.equal(published, length)), np.mean(np.equal(drawn, length))
        assert abs(found - expected) < 0.01, length


def _length(expression):
    return sum(token not in "()" for token in expression.split())
