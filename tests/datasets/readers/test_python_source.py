"""Functions of Python files, with one identifier masked."""

import ast
import subprocess
import sys

import pytest
from datasets.tree_files import inputs_of, read, write

from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.python_source import (
    MASK,
    ROLES,
    PythonAdapter,
    choose_name,
    find_roles,
    parse_source,
    split_name,
)
from graphfold.errors import ConfigError, DataError, RecordError

SOURCE = """\
import os

def first(path, *, mode="r"):
    '''path in the text.'''
    self.path = open(path, path=mode)
    return path + 1

class A:
    class B:
        async def second(self, *args):
            def inner(key):
                return key
            for i in args: print(i, '''x
y''')

if True:
    def third(): pass
"""


def files(folder, **texts):
    for name, text in texts.items():
        write(folder, text, f"{name}.py")
    return folder


def names_of(dag, form):
    """The numbers of the nodes of an identifier."""
    nodes = dag.nodes_of_type("identifier").tolist()
    forms = dag.strings("type:identifier", "form")
    return [node for node, found in zip(nodes, forms, strict=True) if found == form]


def column_by_node(dag, type_name, column):
    nodes = dag.nodes_of_type(type_name).tolist()
    return dict(zip(nodes, dag.strings(f"type:{type_name}", column), strict=True))


def test_functions_are_cut_with_their_classes_and_lines(tmp_path):
    records = list(PythonAdapter().records(write(tmp_path, SOURCE, "a.py")))
    found = [(record.content.name, record.line) for record in records]
    assert found == [("first", 3), ("A.B.second", 10), ("third", 17)]
    assert records[0].content.text.splitlines() == SOURCE.splitlines()[2:6]
    assert records[1].content.text.splitlines() == SOURCE.splitlines()[9:14]


def test_the_masked_name_stands_nowhere(tmp_path):
    path = write(tmp_path, SOURCE, "a.py")
    result = read(PythonAdapter("name", names=["path", "args"]), path, on_error="skip")
    dag = result.dag
    assert dag.graph_column("name").tolist() == [0, 1]
    assert ["are asked about" in error.message for error in result.skipped] == [True]
    for type_name in ("identifier", "word"):
        forms = {*dag.strings(f"type:{type_name}", "form")}
        assert "mode" in forms
        assert not {"path", "args"} & forms
    masked = names_of(dag, MASK)
    assert dag.output_index.tolist() == masked
    kinds = column_by_node(dag, "syntax", "kind")
    readers = [node for node in range(dag.num_nodes) if masked[0] in inputs_of(dag, node)]
    # The attribute, the argument, what is returned, the parameter, and the keyword.
    expected = ["Attribute.Store", "Name.Load", "Name.Load", "arg", "keyword"]
    assert sorted(kinds[node] for node in readers) == expected
    assert {"BinOp.Add", "Constant.str", "Constant.int"} <= {*kinds.values()}


def test_the_tree_is_that_of_ast(tmp_path):
    dag = read(
        PythonAdapter("name", names=["path", "x"]), write(tmp_path, SOURCE, "a.py"), "skip"
    ).dag
    function = parse_source(SOURCE).body[1]
    marks = (ast.expr_context, ast.operator)
    below = [node for node in ast.walk(function) if not isinstance(node, marks)]
    kinds = column_by_node(dag, "syntax", "kind")
    assert sorted(kind.split(".")[0] for kind in kinds.values()) == sorted(
        type(node).__name__ for node in below
    )
    fields = column_by_node(dag, "syntax", "field")
    top = max(kinds)
    assert (kinds[top], fields[top]) == ("FunctionDef", "")
    parts = [fields[node] for node in inputs_of(dag, top) if node in fields]
    assert parts == ["args", "body", "body", "body"]


def test_identifiers_are_shared_and_made_of_words(tmp_path):
    text = "def f(readLine_2, x):\n    return readLine_2.read + readLine_2\n"
    dag = read(PythonAdapter("name", names=["x", "y"]), write(tmp_path, text, "a.py")).dag
    (line,), (attribute,) = names_of(dag, "readLine_2"), names_of(dag, "read")
    words = column_by_node(dag, "word", "form")
    assert [words[node] for node in inputs_of(dag, line)] == ["read", "line", "2"]
    assert inputs_of(dag, attribute) == inputs_of(dag, line)[:1]
    assert sum(line in inputs_of(dag, node) for node in range(dag.num_nodes)) == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("HTTPServer", ["http", "server"]),
        ("_x1", ["x", "1"]),
        ("__", ["__"]),
        ("größe_Maß", ["größe", "maß"]),
        ("数据", ["数据"]),
    ],
)
def test_words_of_a_name(name, words):
    assert split_name(name) == words


BODIES = {
    "fixed": ["x = 1", "with a: x = 1", "if (x := 1): pass", "x: int = 1"],
    "changed": ["x = 1; x = 2", "x = 1; x = x + 1", "x = x = 1", "x += 1; x -= 1"],
    "gathered": [
        "for i in a: x += i",
        "while a: x = g(x, 1)",
        "x = 0\n    for i in a:\n        if i: x = [i, *x]",
        "[(x := x + i) for i in a]",
    ],
    "loop": [
        "for x in a: pass",
        "for i, (x, *j) in a: pass",
        "[x for x in a]",
        "{x: 1 for x in a}",
    ],
    "recent": [
        "for i in a: x = i",
        "x = 0\n    while a: x = a.pop()",
        "for i in a:\n        if i: b, x = i",
        "[x for i in a if (x := i)]",
    ],
    "resource": [
        "with a as x: pass",
        "with a, b as (x, y): pass",
        "try: pass\n    except a as x: pass",
    ],
}


@pytest.mark.parametrize(("role", "body"), [(r, b) for r, all_b in BODIES.items() for b in all_b])
def test_roles_are_told_by_the_first_rule_that_holds(role, body):
    assert find_roles(ast.parse(f"def f(self, a):\n    {body}"))["x"] == role


def test_parameters_have_no_role():
    text = "def f(cls, a, /, b=1, *c, d, **e):\n    b = a\n    d[a] = 1; a.c = 2\n"
    assert find_roles(ast.parse(text)) == dict.fromkeys("abcde")
    assert find_roles(ast.parse("lambda u: u")) == {"u": None}


def test_all_names_are_masked_and_variables_have_roles(tmp_path):
    adapter = PythonAdapter()
    result = read(adapter, write(tmp_path, SOURCE, "a.py"), "skip")
    dag = result.dag
    assert dag.schema.node_targets[0].names == ROLES
    assert dag.strings("graph", "function") == ["A.B.second"]
    assert "no variables besides its parameters" in result.skipped[0].message
    assert not {"args", "key", "i"} & {*dag.strings("type:identifier", "form")}
    # Of args, i and key.
    codes = dag.node_targets["role"].tolist()
    assert [code for code in codes if code >= 0] == [ROLES.index("loop")]
    assert names_of(dag, MASK) == dag.output_index.tolist() == [0, 1, 2]
    assert codes[1] == ROLES.index("loop")


def test_classes_are_the_names_that_most_functions_give(tmp_path):
    path = files(tmp_path, a="def f(x, y): pass\ndef g(x): x = 1\n", b="def h(z, y, x): pass\n")
    assert PythonAdapter("name", num_names=2).infer_options([path]) == {"names": ["x", "y"]}
    with pytest.raises(ConfigError, match="fewer than two names"):
        PythonAdapter("name").infer_options([write(tmp_path, "def f(self): pass", "c.py")])
    with pytest.raises(ConfigError, match="num_names is 1. Give two or more"):
        PythonAdapter(num_names=1)
    with pytest.raises(ConfigError, match="target is 'rule'. Use role or name"):
        PythonAdapter("rule")


BAD = {
    "syntax": (b"x = 1\ndef f(:\n", "no Python: "),
    "encoding": (b"# coding: utf-8\nx = '\xff'\n", "no text: "),
    "unknown encoding": (b"# coding: nonsense\n", "no text: unknown encoding"),
    "null": (b"x = '\0'\n", "no Python: "),
    "deep": (b"x = " + b"(" * 5_000 + b"1" + b")" * 5_000, "more deeply than|no Python"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_file_that_is_no_python_is_a_bad_record(tmp_path, fault):
    content, message = BAD[fault]
    write(tmp_path, content, "bad.py")
    folder = files(tmp_path, good="def f(x, y): pass\n")
    adapter = PythonAdapter("name", names=["x", "y"])
    with pytest.raises(RecordError, match=message) as error:
        read(adapter, folder)
    assert str(error.value.path).endswith("bad.py")
    assert fault != "syntax" or error.value.line == 2
    assert read(adapter, folder, on_error="skip").dag.num_graphs == 1


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.py: no such file"):
        list(PythonAdapter().records(tmp_path / "absent.py"))


def test_long_and_deep_functions_need_no_recursion(tmp_path):
    deep = "x" + " if y else (z" * 60 + ")" * 60
    text = f"def f(x, y):\n    {deep}\n    " + "\n    ".join(["x = y"] * 3000) + "\n"
    dag = read(PythonAdapter("name", names=["x", "y"]), write(tmp_path, text, "a.py")).dag
    assert dag.num_nodes > 9_000


def test_files_of_folders_are_sorted_and_others_left_out(tmp_path):
    (tmp_path / "b").mkdir()
    files(tmp_path, c="def f(x, y): pass\n")
    files(tmp_path / "b", a="def g(x, y): pass\n")
    write(tmp_path, "no Python", "readme.txt")
    adapter = PythonAdapter("name", names=["x", "y"])
    assert [path.name for path in adapter.sources(tmp_path)] == ["a.py", "c.py"]
    assert read(adapter, tmp_path).dag.strings("graph", "function") == ["g", "f"]
    with pytest.raises(DataError, match="functions"):
        read(adapter, write(tmp_path, "x = 1", "d.py"))


def test_prediction_asks_for_a_name_of_the_function_whatever_it_is(tmp_path):
    adapter = PythonAdapter("name", names=["x", "y"]).without_targets()
    path = write(tmp_path, "def f(unheard): pass\n\ndef g(): pass\n", "a.py")
    result = read_records(adapter, path, adapter.records(path), "skip")
    assert result.dag.graph_column("name").tolist() == [-1]
    assert "no parameters or variables" in result.skipped[0].message
    assert adapter.record_of("def f(x):\n    return x\n").content.name == "f"


def test_the_choice_does_not_depend_on_the_process():
    code = (
        "from graphfold.datasets.readers.python_source import choose_name;"
        "print(*(choose_name({'a', 'b', 'c', 'd'}, str(k)) for k in range(40)))"
    )
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    assert found.split() == [choose_name({"d", "c", "b", "a"}, str(k)) for k in range(40)]
    assert {*found.split()} == {"a", "b", "c", "d"}
