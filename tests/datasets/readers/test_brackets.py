import pytest
from datasets.tree_files import corpus_folder, inputs_of, read, write
from hypothesis import assume, given
from hypothesis import strategies as st

from graphfold.dag.compare import difference
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.errors import ConfigError, DataError, RecordError

GOOD = "(3 (2 a) (4 (1 b) (0 c)))"


def show(dag, graph=0):
    """A graph of an adapter without num_classes as brackets again."""
    first, last = dag.node_ptr[graph : graph + 2].tolist()
    before = dag.op_type[:first].tolist()
    words = list(
        zip(dag.strings("type:word", "label"), dag.strings("type:word", "form"), strict=True)
    )
    words = words[before.count(0) :]
    phrases = dag.strings("type:phrase", "label")[before.count(1) :]
    shown = []
    for node in range(first, last):
        if dag.op_type[node] == 0:
            label, form = words.pop(0)
            shown.append(f"({label} {form})")
        else:
            parts = [shown[child - first] for child in inputs_of(dag, node) if child >= 0]
            shown.append(f"({phrases.pop(0)} {' '.join(parts)})")
    return shown[dag.output_index[dag.output_ptr[graph]] - first]


def trees(tmp_path, text, on_error="raise", **options):
    result = read(BracketsAdapter(**options), write(tmp_path, text), on_error)
    return [show(result.dag, graph) for graph in range(result.dag.num_graphs)]


def test_labels_are_node_targets_and_words_come_first(tmp_path):
    dag = read(BracketsAdapter(num_classes=5), write(tmp_path, GOOD + "\n")).dag
    assert dag.strings("type:word", "form") == ["a", "b", "c"]
    assert dag.node_targets["label"].tolist() == [2, 1, 0, 4, 3]
    assert [inputs_of(dag, node) for node in range(5)] == [[], [], [], [1, 2], [0, 3]]
    assert dag.output_index.tolist() == [4]
    assert [GOOD[a:b] for a, b in dag.span.tolist()][3:] == ["(4 (1 b) (0 c))", GOOD]
    assert dag.place(0) == (str(tmp_path / "data.txt"), 1)


def test_an_outer_bracket_without_label_is_dropped(tmp_path):
    assert trees(tmp_path, "( (S (NP x) (VP y)) )\n((NN z))") == ["(S (NP x) (VP y))", "(NN z)"]


LAYOUTS = {
    "penn": "\n( (S \n    (A x)\n    (B y) ))\n( (S\n    (A x)\n  (B y)\n  ) )\n\n( (T z) )\n",
    "one per line": "(S (A x) (B y))\n(S (A x) (B y))\n(T z)",
    "several per line": "(S (A x) (B y)) (S (A x)(B y))(T z)",
    "tree ends where the next begins": "(S (A x)\n (B y)) (S\n (A x) (B y)) (T\n z)\n",
    "no indent": "(S\n(A x)\n(B y))\n(S (A\nx)\n\n(B\ny)\n)\n(T z)",
    "a newline for each blank": "(S\n(A\nx)\n(B\ny))\n(S\n(A\nx)\n(B\ny))\n(T\nz)",
    "CR LF, tabs, BOM": "\ufeff(S\t(A x)\r\n\t(B y))\r\n\r\n(S (A x)\t(B y) )\r\n(T z)\r\n",
    "all indented": "   (S (A x) (B y))\n   (S\n      (A x) (B y))\n   (T z)\n",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_gives_the_same_trees(tmp_path, name):
    expected = ["(S (A x) (B y))"] * 2 + ["(T z)"]
    assert trees(tmp_path, LAYOUTS[name]) == expected


def test_only_ascii_blanks_part_words(tmp_path):
    text = "(2 (2 8\u00a01\\/2) (2 a\u2028b\u0085c\x0bd\re\u3000f))"
    dag = read(BracketsAdapter(num_classes=5), write(tmp_path, text)).dag
    assert dag.strings("type:word", "form") == [
        "8\u00a01\\/2",
        "a\u2028b\u0085c\x0bd\re\u3000f",
    ]


FAULTS = {
    "(3 (2 a) (4 (1 b) (0 c))": "bracket opened at column 1 is never closed",
    "(3 (2 a) (4 (1 b (0 c)))": r"column 13 holds both the word 'b' and a child",
    "(3 (2 a) (4 (1 b": "bracket opened at column 13 is never closed",
    "(3 (2 a) (4 b)))": "closing bracket at column 16 closes nothing",
    ")": "closing bracket at column 1 closes nothing",
    "(3 (2 a) (4 b)) c": "text 'c' at column 17 is outside the tree",
    "c (3 (2 a) (4 b))": "text 'c' at column 1 is outside the tree",
    "just words": "text 'just' at column 1 is outside the tree",
    "()": "bracket opened at column 1 is empty",
    "(2 (2 a) ( ))": "bracket opened at column 10 is empty",
    "(2 (2 a) (3 ))": "bracket opened at column 10 has the label '3', but neither a word nor a",
    "(2 a (3 b))": "bracket opened at column 1 holds both the word 'a' and a child",
    "(2 (3 b) a)": "bracket opened at column 1 holds both the word 'a' and a child",
    "(2 (3 b c) (2 a))": "bracket opened at column 4 holds two words, 'b' and 'c'",
    "(2 ((3 b) (2 a)) (2 d))": "bracket opened at column 4 has no label",
    "((3 b) (2 a))": "bracket opened at column 1 has no label",
}
LABEL_FAULTS = {
    "( (2 (3 b) (2 a)) )": "bracket opened at column 1 has no label",
    "(2 (5 a) (3 b))": "column 4 has the label '5', which is not an integer from 0 to 4",
    "(2 (-1 a) (3 b))": "column 4 has the label '-1', which is not an integer from 0 to 4",
    "(NP (2 a) (3 b))": "column 1 has the label 'NP', which is not an integer",
    "(2 (2.0 a) (3 b))": "column 4 has the label '2.0'",
    "(2 (\u0663 a) (3 b))": "column 4 has the label '\u0663'",
    "(2 (a) (3 b))": "column 4 has the label 'a', but neither a word nor a child",
}


@pytest.mark.parametrize(("line", "message"), (FAULTS | LABEL_FAULTS).items())
def test_a_faulty_tree_is_named_and_costs_no_other(tmp_path, line, message):
    path = write(tmp_path, f"{GOOD}\n{GOOD}\n{line}\n{GOOD}\n{GOOD}\n")
    adapter = BracketsAdapter(num_classes=5)
    with pytest.raises(RecordError, match=rf"data\.txt:3: .*{message}") as caught:
        read(adapter, path)
    assert (caught.value.line, caught.value.path) == (3, str(path))
    result = read(adapter, path, "skip")
    assert result.dag.num_graphs == 4
    assert [error.line for error in result.skipped] == [3]
    assert result.dag.origin[:, 1].tolist() == [1, 2, 4, 5]


def test_a_tree_that_is_never_closed_does_not_swallow_a_surplus_bracket_of_a_later_line(tmp_path):
    text = f"{GOOD}\n{GOOD[:-1]}\n{GOOD}\n{GOOD})\n{GOOD}"
    result = read(BracketsAdapter(num_classes=5), write(tmp_path, text), "skip")
    assert [error.line for error in result.skipped] == [2, 4]
    assert result.dag.num_graphs == 3


def test_faults_in_a_tree_of_many_lines_name_their_own_line(tmp_path):
    text = "( (S\n    (NP x)\n    (VP (VB y z)) ))\n( (S\n    (NP x)\n    (VP\n( (S\n  (NP x)))\n"
    path = write(tmp_path, text)
    with pytest.raises(RecordError, match=r"txt:3: bracket opened at column 9 holds two words"):
        read(BracketsAdapter(), path)
    result = read(BracketsAdapter(), path, "skip")
    assert [(error.line, error.fault) for error in result.skipped][1:] == [
        (6, "bracket opened at column 5 is never closed")
    ]
    assert result.dag.num_graphs == 1


def test_bytes_that_are_no_text_cost_their_tree_only(tmp_path):
    path = write(tmp_path, b"(S (A a)\n  (B b))\n(S (A a)\n  (B \xe9))\n(S c)\n")
    with pytest.raises(RecordError, match=r"data\.txt:4: byte 6 of the line \(0xe9\) is not UTF-8"):
        read(BracketsAdapter(), path)
    result = read(BracketsAdapter(), path, "skip")
    assert (result.dag.num_graphs, [error.line for error in result.skipped]) == (2, [4])


def test_what_cannot_be_seen_is_escaped_in_a_message(tmp_path):
    path = write(tmp_path, "(S a)\r\x0c\u00a0\n")
    with pytest.raises(RecordError, match=r"text '\\r\\x0c\\xa0' at column 6 is outside the tree"):
        read(BracketsAdapter(), path)


def test_a_second_tree_on_a_line_counts_columns_from_the_line(tmp_path):
    with pytest.raises(RecordError, match="bracket opened at column 10 holds two words"):
        read(BracketsAdapter(), write(tmp_path, "(A x) (B (C y z))"))


@pytest.mark.parametrize("text", ["", "\n \t\n\r\n", "\ufeff"])
def test_a_file_without_trees_is_refused(tmp_path, text):
    with pytest.raises(DataError, match=r"data\.txt: holds no trees"):
        read(BracketsAdapter(), write(tmp_path, text), "skip")


def test_deep_trees_are_read(tmp_path):
    depth = 10_000
    chain = "(1 " * depth + "(2 x)" + ")" * depth
    right = "(1 (2 x) " * depth + "(2 x)" + ")" * depth
    left = "(1 " * depth + "(2 x)" + " (2 x))" * depth
    path = write(tmp_path, f"{chain}\n{right}\n{left}\n")
    dag = read(BracketsAdapter(num_classes=5), path).dag
    assert dag.depth.max() == depth
    dag = read(BracketsAdapter(num_classes=5, binarize=True, collapse_unary=True), path).dag
    assert dag.node_ptr.diff().tolist() == [1, 2 * depth + 1, 2 * depth + 1]


def test_binarize_gives_new_nodes_no_target_and_a_span(tmp_path):
    text = "(1 (2 a) (3 b) (4 c))"
    dag = read(BracketsAdapter(num_classes=5, binarize=True), write(tmp_path, text)).dag
    assert dag.node_targets["label"].tolist() == [2, 3, 4, -1, 1]
    assert text[slice(*dag.span[3].tolist())] == "(3 b) (4 c)"


def test_binarize_leaves_the_second_slot_of_a_single_child_absent(tmp_path):
    dag = read(BracketsAdapter(binarize=True), write(tmp_path, "(S (NP (NN x)))")).dag
    assert dag.schema.types[1].arity == 2
    assert [inputs_of(dag, node) for node in range(3)] == [[], [0, -1], [1, -1]]


def test_labels_of_a_chain_that_are_targets_are_joined(tmp_path):
    path = write(tmp_path, "(S (NP (NN x)) (VP (VB y)))\n(S (NP (_ x)) (VB y))")
    adapter = BracketsAdapter(labels="target", collapse_unary=True)
    names = adapter.infer_options([path])
    assert names == {"label_names": ["NP+NN", "S", "VB", "VP+VB"]}
    joined = BracketsAdapter(labels="target", collapse_unary=True, **names)
    codes = read(joined, path).dag.node_targets["label"].tolist()
    assert codes == [0, 3, 1, -1, 2, 1]  # words, then the phrase; a label of one chain is missing
    for text in ("(S (NP (NN x)) (VP (VB y)))", "(_ (_ (_ x)) (_ (_ y)))", "((x) (y))"):
        graph = read(joined.without_targets(), write(tmp_path, text)).dag
        assert graph.strings("type:word", "form") == ["x", "y"]


def test_traces_and_function_tags(tmp_path):
    text = """( (S (NP-SBJ-1 (-NONE- *)) (VP=2 (VB go) (S (NP (-NONE- *T*-1)))) (-LRB- -LRB-)))
    """
    assert trees(tmp_path, text, remove_traces=True, strip_functions=True) == [
        "(S (VP (VB go)) (-LRB- -LRB-))"
    ]


def test_a_tree_of_traces_is_left_out_and_said_to_be(tmp_path):
    path = write(tmp_path, "( (S (NP (-NONE- *)) ))\n( (S (NP x)))\n")
    result = read(BracketsAdapter(remove_traces=True), path)
    assert result.dag.num_graphs == 1
    assert "data.txt:1: the tree holds nothing but empty elements" in str(result.skipped[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes is 0. Give a positive integer"),
        ({"branching": "up"}, "branching is 'up'. Give 'right' or 'left'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        BracketsAdapter(**options)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="() \t\n\r"), min_size=1)
LEAVES = st.builds("({} {})".format, WORDS, WORDS)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda label, parts: f"({label} {' '.join(parts)})",
        WORDS,
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=12,
)


UNLABELLED = {
    "(_ (_ good) (_ film))": ["good", "film"],
    "(? (-1 good) (? film))": ["good", "film"],
    "((good) (film))": ["good", "film"],
    "( (good film) )": ["good", "film"],
    "(good film)": ["good", "film"],
    "(2 good film)": ["good", "film"],
    "(3 (2 good) (4 film))": ["good", "film"],
    "(film)": ["film"],
    "(1984 film)": ["1984", "film"],
    "(a (very (good film)) .)": ["a", "very", "good", "film", "."],
}


@pytest.mark.parametrize(("text", "words"), UNLABELLED.items())
def test_trees_without_labels_are_read_for_prediction(tmp_path, text, words):
    adapter = BracketsAdapter(num_classes=5, binarize=True)
    dag = read(adapter.without_targets(), write(tmp_path, text)).dag
    assert dag.strings("type:word", "form") == words
    assert dag.num_graphs == 1
    if len(words) == 2:
        assert [inputs_of(dag, node) for node in range(3)] == [[], [], [0, 1]]
    spans = [text[a:b] for a, b in dag.span.tolist()]
    assert all(word in span for word, span in zip(words, spans, strict=False))


@given(texts=st.lists(TREES, min_size=1, max_size=4))
def test_labelled_trees_are_read_alike_for_prediction(texts, tmp_path_factory):
    known = "\n".join(texts).translate(str.maketrans("_?-", "xyz"))  # no label is missing
    path = write(tmp_path_factory.mktemp("trees"), known)
    adapter = BracketsAdapter(labels="target")
    adapter = BracketsAdapter(labels="target", **adapter.infer_options([path]))
    dag = read(adapter, path).dag
    assert difference(dag, read(adapter.without_targets(), path).dag) is None
    names = adapter.schema.node_targets[0].names
    assert list(names) == sorted(names)
    shown = [names[code] for code in dag.node_targets["label"].tolist()]
    whole = read(BracketsAdapter(), path).dag
    for op_type in (0, 1):
        kept = [
            name for name, kind in zip(shown, dag.op_type.tolist(), strict=True) if kind == op_type
        ]
        assert kept == whole.strings(["type:word", "type:phrase"][op_type], "label")


def test_files_without_any_label_teach_nothing(tmp_path):
    path = write(tmp_path, "(_ (? x) (_ y))")
    with pytest.raises(DataError, match=r"data\.txt: no tree has a label to learn from\. Give"):
        BracketsAdapter(labels="target").infer_options([path])
    assert BracketsAdapter(labels="target").infer_options([write(tmp_path, "(x")]) == {}


def test_labels_that_are_targets_may_be_missing_and_are_known(tmp_path):
    path = write(tmp_path, "(S (NP-SBJ x) (? (VP y) (_ z)))\n(S (-NONE- t) (VP y))\n(S (broken")
    options = {"labels": "target", "strip_functions": True, "remove_traces": True}
    found = BracketsAdapter(**options).infer_options([path])
    assert found == {"label_names": ["NP", "S", "VP"]}
    adapter = BracketsAdapter(**options, **found)
    result = read(adapter, path, "skip")
    assert result.dag.node_targets["label"].tolist() == [0, 2, -1, -1, 1, 2, 1]
    assert [error.line for error in result.skipped] == [3]
    assert adapter.infer_options([path]) == {}
    other = write(tmp_path, "(S (ADJP x) (VP y))", "other.txt")
    with pytest.raises(
        RecordError, match=r"the label 'ADJP', which is not one of the labels NP, S"
    ):
        read(adapter, other)
    assert BracketsAdapter(5).infer_options([path]) == BracketsAdapter().infer_options([path]) == {}


@given(texts=st.lists(TREES, min_size=1, max_size=4))
def test_random_trees_come_back(texts, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("trees"), "\n".join(texts))
    dag = read(BracketsAdapter(), path).dag
    assert [show(dag, graph) for graph in range(dag.num_graphs)] == texts


@given(
    text=TREES,
    branching=st.sampled_from(["left", "right"]),
    collapse=st.booleans(),
)
def test_nodes_that_binarize_added_are_known(text, branching, collapse, tmp_path_factory):
    assume("@" not in text)  # the mark of a label that binarize makes
    path = write(tmp_path_factory.mktemp("trees"), text)
    adapter = BracketsAdapter(binarize=True, branching=branching, collapse_unary=collapse)
    plain = BracketsAdapter(collapse_unary=collapse)
    dag = read(adapter, path).dag
    added = adapter.added_nodes(dag)
    labels = dag.strings("type:phrase", "label")
    marked = [label.startswith("@") for label in labels]
    assert added[dag.nodes_of_type("phrase")].tolist() == marked
    assert not added[dag.nodes_of_type("word")].any()
    assert int((~added).sum()) == read(plain, path).dag.num_nodes


@pytest.mark.slow
def test_penn_treebank_sample(data_root):
    path = corpus_folder(data_root, "ptb_sample") / "wsj_0001-0199.mrg"
    dag = read(BracketsAdapter(), path).dag
    assert (dag.num_graphs, dag.num_nodes_by_type[0]) == (3914, 100676)
    assert dag.strings("type:word", "label").count("-NONE-") == 6592
    options = {"remove_traces": True, "strip_functions": True}
    dag = read(BracketsAdapter(binarize=True, collapse_unary=True, **options), path).dag
    assert (dag.num_graphs, dag.num_nodes_by_type[0]) == (3914, 100676 - 6592)
    assert dag.num_nodes == 2 * (100676 - 6592) - 3914


def test_minus_one_is_a_label_of_a_treebank(tmp_path):
    """A treebank of sentiment from -1 to 1; `_` and `?` stand for unlabelled nodes."""
    path = write(tmp_path, "(1 (-1 not) (? (_ at) (-1 bad)))\n(0 (0 so) (-1 so))\n")
    found = BracketsAdapter(labels="target").infer_options([path])
    assert found == {"label_names": ["-1", "0", "1"]}
    adapter = BracketsAdapter(labels="target", **found)
    assert read(adapter, path).dag.node_targets["label"].tolist() == [0, -1, 0, -1, 2, 1, 0, 1]
    classes = {"bad": ["-1"], "good": [0, 1]}
    merged = BracketsAdapter(classes=classes)
    assert read(merged, path).dag.node_targets["label"].tolist() == [0, -1, 0, -1, 1, 1, 0, 1]
    assert merged.schema.node_targets[0].ordered
    chain = write(tmp_path, "(1 (-1 (? bad)) (0 so))\n", "chain.txt")
    joined = BracketsAdapter(labels="target", collapse_unary=True)
    assert joined.infer_options([chain]) == {"label_names": ["0", "1"]}  # -1+? is missing
    chain.write_text("(1 (-1 (-1 bad)) (0 so))\n")
    assert joined.infer_options([chain]) == {"label_names": ["-1+-1", "0", "1"]}


def test_minus_one_is_no_missing_label_where_it_is_no_class(tmp_path):
    adapter = BracketsAdapter(labels="target", label_names=["0", "1"])
    path = write(tmp_path, "(1 (-1 not) (0 bad))\n")
    with pytest.raises(
        RecordError, match="has the label '-1', which is not one of the labels 0, 1"
    ):
        read(adapter, path)
    assert len(read(adapter.without_targets(), path).dag.op_type) == 3


@pytest.mark.parametrize(
    "classes", [{}, {"a": [0]}, {"a": [0], "b": []}, {"a": [0, 1], "b": [1]}, {"a": 0, "b": 1}]
)
def test_classes_have_labels_of_their_own(classes):
    with pytest.raises(ConfigError, match="each with labels of its own"):
        BracketsAdapter(classes=classes)
