import conllu
import pytest
from datasets.tree_files import corpus_folder, inputs_of, read, write
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfold.datasets.readers.conllu import UPOS, ConlluAdapter
from graphfold.errors import ConfigError, DataError, RecordError

GOOD = "# text = a b\n1\ta\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tb\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"

FRENCH = """\
# sent_id = 1
# text = Il parle du «\u00a0grand\u00a0» chien, quoi.
1\tIl\til\tPRON\tCL\tNumber=Sing\t2\tnsubj:pass\t2:nsubj\t_
2\tparle\tparler\tVERB\tV\t_\t0\troot\t0:root\t_
3-4\tdu\t_\t_\t_\t_\t_\t_\t_\t_
3\tde\tde\tADP\tP\t_\t7\tcase\t7:case\t_
4\tle\tle\tDET\tD\t_\t7\tdet\t7:det|8.1:dep\t_
5\t«\t«\tPUNCT\t_\t_\t6\tpunct\t6:punct\tSpacesAfter=\\u00A0
6\tgrand\u00a0»\tgrand\t_\tA\t_\t7\tamod\t7:amod\t_
7\tchien\tchien\tNOUN\tN\t_\t2\tobl\t2:obl:de\tSpaceAfter=No
8\t,\t,\tPUNCT\t_\t_\t9\tpunct\t9:punct\t_
8.1\tparle\tparler\tVERB\tV\t_\t_\t_\t2:conj\tCopyOf=2
9\tquoi\tquoi\tPRON\t_\t_\t2\tobj\t8.1:obj\tSpaceAfter=No
10\t.\t.\tPUNCT\t_\t_\t2\tpunct\t2:punct\t_
"""


def sentence(*rows, text=None):
    """A sentence from (form, head) pairs."""
    lines = [] if text is None else [f"# text = {text}"]
    for number, (form, head) in enumerate(rows, 1):
        lines.append(f"{number}\t{form}\t_\tX\t_\t_\t{head}\tdep\t_\t_")
    return "\n".join(lines) + "\n"


def test_inputs_are_the_dependents_in_word_order(tmp_path):
    dag = read(ConlluAdapter(), write(tmp_path, FRENCH)).dag
    assert dag.num_nodes == 10
    assert [inputs_of(dag, node) for node in range(10)] == [
        [], [0, 6, 8, 9], [], [], [], [4], [2, 3, 5], [], [7], [],
    ]  # fmt: skip
    assert dag.strings("inputs", "deprel")[:4] == ["nsubj:pass", "obl", "obj", "punct"]
    assert dag.output_index.tolist() == list(range(10))
    assert dag.strings("graph", "text") == ["Il parle du «\u00a0grand\u00a0» chien, quoi."]
    tags = ["PRON", "VERB", "ADP", "DET", "PUNCT", None, "NOUN", "PUNCT", "PRON", "PUNCT"]
    codes = [-1 if tag is None else UPOS.index(tag) for tag in tags]
    assert dag.node_targets["upos"].tolist() == codes
    assert dag.strings("type:word", "form")[5] == "grand\u00a0»"


def test_spans_are_characters_of_the_text(tmp_path):
    dag = read(ConlluAdapter(), write(tmp_path, FRENCH)).dag
    text = dag.strings("graph", "text")[0]
    covered = [text[a:b] for a, b in dag.span.tolist()]
    assert covered == ["Il", "parle", "du", "du", "«", "grand\u00a0»", "chien", ",", "quoi", "."]


def test_the_enhanced_graph_is_a_relation(tmp_path):
    dag = read(ConlluAdapter(relation_column="deps"), write(tmp_path, FRENCH)).dag
    assert dag.num_nodes_by_type == [10, 1]
    relation = dag.relations["enhanced"]
    into = {
        node: relation.index[relation.ptr[node] : relation.ptr[node + 1]].tolist()
        for node in (1, 6, 10)
    }
    assert into == {1: [0, 6, 9, 10], 6: [2, 3, 5], 10: [3, 8]}
    assert "obl:de" in dag.strings("relation:enhanced", "deprel")
    assert inputs_of(dag, 1) == [0, 6, 8, 9]
    assert dag.output_index.tolist() == list(range(10))


def test_the_enhanced_graph_may_be_cyclic(tmp_path):
    text = "1\ta\t_\tX\t_\t_\t0\troot\t0:root|2:x\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t1:y\t_\n"
    dag = read(ConlluAdapter(relation_column="deps"), write(tmp_path, text)).dag
    assert dag.relations["enhanced"].index.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("deps", "message"),
    [
        ("_", "token 1 has no DEPS. Correct the DEPS column, or set relation_column=deprel"),
        ("7:dep", "token 1 has '7:dep' in DEPS"),
        ("0:root|x", "token 1 has 'x' in DEPS"),
    ],
)
def test_enhanced_edges_are_checked(tmp_path, deps, message):
    path = write(tmp_path, f"1\ta\t_\tX\t_\t_\t0\troot\t{deps}\t_\n")
    with pytest.raises(RecordError, match=f"data.txt:1: {message}"):
        read(ConlluAdapter(relation_column="deps"), path)
    assert read(ConlluAdapter(), path).dag.num_nodes == 1


ROW = "1\ta\t_\tX\t_\t_\t0\troot\t_\t_"
FAULTS = {
    "head out of range": (
        sentence(("a", 2), ("b", 0), ("c", 31)),
        2,
        r"token 3 has head 31, but the sentence has 3 tokens\. Correct the HEAD column\.",
    ),
    "one token": (sentence(("a", 2)), 0, "token 1 has head 2, but the sentence has 1 token"),
    "no head": (sentence(("a", 0), ("b", "_")), 1, "token 2 has no head"),
    "head is text": (sentence(("a", "root")), 0, "token 1 has head 'root', which is not a number"),
    "negative head": (sentence(("a", -1)), 0, "token 1 has head '-1', which is not a number"),
    "own head": (sentence(("a", 0), ("b", 2)), 1, "token 2 is its own head"),
    "cycle": (
        sentence(("a", 0), ("b", 5), ("c", 2), ("d", 2), ("e", 4)),
        1,
        "the heads of tokens 2 -> 5 -> 4 -> 2 form a cycle",
    ),
    "no root": (
        sentence(("a", 2), ("b", 1)),
        0,
        "no token has head 0, so the sentence has no root",
    ),
    "two roots": (sentence(("a", 0), ("b", 1), ("c", 0)), 2, "tokens 1 and 3 both have head 0"),
    "nine columns": (ROW.removesuffix("\t_") + "\n", 0, "the line has 9 columns between tabs"),
    "blanks for tabs": (ROW.replace("\t", " ") + "\n", 0, "the line has 1 column between tabs"),
    "empty column": (ROW.replace("root", "") + "\n", 0, "column DEPREL is empty"),
    "ids out of order": (
        f"{ROW}\n{ROW[0:0]}3{ROW[1:]}\n",
        1,
        "token id 3 is out of order: 2 comes",
    ),
    "no blank line": (f"{ROW}\n{ROW}\n", 1, "token id 1 is out of order"),
    "id is text": ("x" + ROW[1:] + "\n", 0, "token id 'x' is neither a number, a range nor"),
    "range out of order": (f"2-3{ROW[1:]}\n{ROW}\n", 0, "token id 2-3 is out of order"),
    "range too long": (f"1-2{ROW[1:]}\n{ROW}\n", 0, "multiword token 1-2 ends after the last word"),
    "range after the words": (f"{ROW}\n2-3{ROW[1:]}\n", 1, "multiword token 2-3 ends after the la"),
    "head of many digits": (sentence(("a", "9" * 5000)), 0, r"token 1 has head 9{80}\.\.\.,"),
    "id of many digits": (f"{'9' * 5000}{ROW[1:]}\n", 0, "token id '9{197}.* is neither a number"),
    "range of many digits": (f"1-{'9' * 5000}{ROW[1:]}\n", 0, "token id '1-9{195}.* is neither"),
    "bytes": (f"# x\n{ROW}\n".replace("a", "\udce9"), 1, r"byte 3 of the line \(0xe9\) is not U"),
    "empty node out of order": (
        f"0.2{ROW[1:]}\n{ROW}\n",
        0,
        r"token id 0\.2 is out of order: an empty node 0\.1 may come",
    ),
    "comments alone": ("# newdoc\n", 0, "the sentence has no words"),
    "tag": (ROW.replace("X", "NN") + "\n", 0, "token 1 has the UPOS 'NN', which is none of the"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_sentence_is_named_and_left_out(tmp_path, name):
    text, offset, message = FAULTS[name]
    whole = f"{GOOD}\n{text}\n{GOOD}".encode("utf-8", "surrogateescape")
    path = write(tmp_path, whole, "en.conllu")
    line = 5 + offset
    with pytest.raises(RecordError, match=rf"en\.conllu:{line}: {message}") as caught:
        read(ConlluAdapter(), path)
    assert caught.value.line == line
    result = read(ConlluAdapter(), path, "skip")
    assert (result.dag.num_graphs, len(result.skipped)) == (2, 1)
    assert result.skipped[0].line == line


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff\r\n"])
def test_a_file_without_sentences_is_refused(tmp_path, text):
    with pytest.raises(DataError, match=r"data\.txt: holds no sentences"):
        read(ConlluAdapter(), write(tmp_path, text), "skip")


def test_a_long_chain_is_read(tmp_path):
    rows = [(f"w{k}", k + 2) for k in range(9_999)]
    dag = read(ConlluAdapter(), write(tmp_path, sentence(*rows, ("w", 0)))).dag
    assert dag.depth.max() == 9_999


def test_a_long_cycle_is_found(tmp_path):
    rows = [("r", 0), ("a", 10_001), *((f"w{k}", k + 2) for k in range(9_999))]
    with pytest.raises(RecordError, match="form a cycle"):
        read(ConlluAdapter(), write(tmp_path, sentence(*rows)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["from"]}, "features names 'from', .* Did you mean 'form'"),
        ({"relation_column": "dep"}, "relation_column is 'dep'. Give 'deprel' or 'deps'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        ConlluAdapter(**options)


@settings(max_examples=60)
@given(data=st.data(), size=st.integers(1, 12))
def test_any_heads_give_that_tree_or_a_fault(data, size, tmp_path_factory):
    heads = data.draw(st.lists(st.integers(0, size), min_size=size, max_size=size))
    path = write(tmp_path_factory.mktemp("heads"), sentence(*(("w", head) for head in heads)))
    is_tree = heads.count(0) == 1 and all(_reaches_root(heads, word) for word in range(size))
    result = read(ConlluAdapter(), path, "skip")
    assert result.dag.num_graphs == int(is_tree)
    if is_tree:
        found = [inputs_of(result.dag, node) for node in range(size)]
        assert found == [[w for w in range(size) if heads[w] == h + 1] for h in range(size)]


def _reaches_root(heads, word):
    for _ in heads:
        word = heads[word] - 1
        if word < 0:
            return True
    return False


@pytest.mark.parametrize(
    "name", ["ud_english_ewt/en_ewt-ud-dev.conllu", "ud_french_sequoia/fr_sequoia-ud-dev.conllu"]
)
def test_the_conllu_library_reads_the_same(name, data_root):
    folder, file = name.split("/")
    path = corpus_folder(data_root, folder) / file
    words = [
        word
        for sentence in conllu.parse(path.read_text(encoding="utf-8"))
        for word in sentence
        if isinstance(word["id"], int)
    ]
    dag = read(ConlluAdapter(), path).dag
    assert dag.strings("type:word", "form") == [word["form"] for word in words]
    assert dag.node_targets["upos"].tolist() == [UPOS.index(word["upos"]) for word in words]
    assert sorted(dag.strings("inputs", "deprel")) == sorted(
        word["deprel"] for word in words if word["head"]
    )
    heads = [0] * dag.num_nodes
    first = dag.node_ptr[dag.batch].tolist()
    for node in range(dag.num_nodes):
        for child in inputs_of(dag, node):
            heads[child] = node - first[node] + 1
    assert heads == [word["head"] for word in words]


def test_enhanced_english_has_its_empty_nodes(data_root):
    path = corpus_folder(data_root, "ud_english_ewt") / "en_ewt-ud-test.conllu"
    dag = read(ConlluAdapter(relation_column="deps"), path).dag
    assert dag.num_nodes_by_type == [25094, 2]
    edges = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        deps = line.split("\t")[8] if line[:1].isdigit() else "_"
        edges += sum(not part.startswith("0:") for part in deps.split("|") if part != "_")
    assert len(dag.relations["enhanced"].index) == edges


TAGGED = (
    GOOD
    + "\n1\tc\tsee\tVERB\tV\t_\t0\troot\t_\t_\n"
    + "2\td\tshe\tPRON\tP\tCase=Nom\t1\tnsubj:pass\t_\t_\n"
)


@pytest.mark.parametrize(
    ("target", "labels", "codes"),
    [
        ("deprel", ["det", "nsubj:pass", "root"], [0, 2, 2, 1]),
        ("xpos", ["P", "V"], [-1, -1, 1, 0]),
        ("feats", ["Case=Nom", "_"], [1, 1, 1, 0]),  # the class of words without features
        ("lemma", ["see", "she"], [-1, -1, 0, 1]),
        ("form", ["a", "b", "c", "d"], [0, 1, 2, 3]),
    ],
)
def test_any_column_is_a_target(tmp_path, target, labels, codes):
    path = write(tmp_path, TAGGED)
    features = ["lemma" if target == "form" else "form"]
    inferred = ConlluAdapter(features, target=target).infer_options([path])
    assert inferred == {"tree": "heads", "labels": labels}
    adapter = ConlluAdapter(features, target=target, **inferred)
    dag = read(adapter, path).dag
    assert dag.node_targets[target].tolist() == codes
    assert dag.schema.node_targets[0].names == (*labels, "(other)")
    assert adapter.notes(dag) == []


def test_a_column_that_nobody_annotated_is_no_target(tmp_path):
    path = write(tmp_path, "1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n")
    for target in ("feats", "xpos", "lemma"):
        with pytest.raises(
            ConfigError, match=f"no word has a value in the column {target.upper()}"
        ):
            ConlluAdapter(target=target).infer_options([path])


def test_the_underscore_as_a_form_has_only_itself_as_a_lemma(tmp_path):
    path = write(tmp_path, "1\t_\t_\t_\t_\t_\t0\troot\t_\t_\n")
    dag = read(ConlluAdapter(["form", "lemma", "xpos", "feats"]), path).dag
    found = [dag.strings("type:word", name)[0] for name in ("form", "lemma", "xpos", "feats")]
    assert found == ["_", "_", None, "_"]
    assert dag.node_targets["upos"].tolist() == [-1]


def test_relations_are_no_feature_where_they_are_the_target(tmp_path):
    adapter = ConlluAdapter(target="deprel", labels=["root"], subtypes=False, position=True)
    assert [column.name for column in adapter.schema.inputs.features] == ["position"]
    assert ConlluAdapter(target="deprel").schema.inputs.features == ()
    dag = read(adapter, write(tmp_path, TAGGED)).dag
    assert dag.columns["inputs"]["position"].tolist() == [0, 4]
    assert dag.node_targets["deprel"].tolist() == [1, 0, 0, 1]
    assert adapter.notes(dag) == ["2 words with a deprel that no class stands for"]
    whole = ConlluAdapter(target="deprel", subtypes=False)
    found = whole.infer_options([write(tmp_path, TAGGED + "\n1\tbad\n")])
    assert found == {"tree": "heads", "labels": ["det", "nsubj", "root"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "deprel", "relation_column": "deps"}, "give away the target deprel"),
        ({"target": "xpos", "features": ["form", "xpos"]}, "features names 'xpos', which is the t"),
        ({"target": "form"}, "features names 'form', which is the target: the answer would be"),
        ({"target": "pos"}, "target is 'pos', which is no column that can be predicted"),
        ({"labels": ["X"]}, "labels names the classes of upos, which are fixed"),
    ],
)
def test_targets_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ConlluAdapter(**options)


#: The same words with heads and without.
HEADS = sentence(("a", 2), ("b", 0), ("c", 2)) + "\n" + sentence(("d", 0))
NO_HEADS = sentence(("a", "_"), ("b", "_"), ("c", "_")) + "\n" + sentence(("d", "_"))


def test_without_heads_a_word_reads_the_one_before_it(tmp_path):
    path = write(tmp_path, NO_HEADS)
    inferred = ConlluAdapter().infer_options([path])
    assert inferred == {"tree": "chain"}
    adapter = ConlluAdapter(**inferred)
    dag = read(adapter, path).dag
    assert [inputs_of(dag, node) for node in range(4)] == [[], [0], [1], []]
    assert dag.relations["next"].index.tolist() == [0, 1]
    assert adapter.schema.inputs.features == ()  # no relation to a head
    assert adapter.notes(dag)[0].startswith("sentences are chains of words (data.tree=chain)")


def test_one_head_makes_all_sentences_trees(tmp_path):
    folder = tmp_path / "b"
    folder.mkdir()
    paths = [write(tmp_path, NO_HEADS), write(folder, HEADS)]
    assert ConlluAdapter().infer_options(paths) == {"tree": "heads"}
    for tree in ("heads", "auto"):  # without files to decide by, auto is heads
        with pytest.raises(RecordError, match="token 1 has no head. Parse the sentence first, or"):
            read(ConlluAdapter(tree=tree), paths[0])
    half = sentence(("a", "_"), ("b", 0))
    with pytest.raises(RecordError, match="token 1 has no head. Correct the HEAD column"):
        read(ConlluAdapter(), write(tmp_path, half))


def test_a_chain_does_not_look_at_heads(tmp_path):
    folder = tmp_path / "b"
    folder.mkdir()
    adapter = ConlluAdapter(tree="chain", position=True)
    with_heads, without = (
        read(adapter, write(place, text)).dag
        for place, text in ((tmp_path, HEADS), (folder, NO_HEADS))
    )
    assert with_heads.input_index.tolist() == without.input_index.tolist()
    assert with_heads.columns["inputs"].keys() == {"position"}
    broken = sentence(("a", 1), ("b", 9))
    assert read(adapter, write(tmp_path, broken)).dag.num_nodes == 2
    with pytest.raises(ConfigError, match="tree is 'chains'"):
        ConlluAdapter(tree="chains")
    tagged = ConlluAdapter(tree="chain", target="deprel", labels=["dep"])
    assert read(tagged, write(tmp_path, HEADS)).dag.node_targets["deprel"].tolist() == [0] * 4


@pytest.mark.parametrize("comment", ["", "# text = other words\n"])
def test_spans_are_unknown_where_the_text_does_not_fit(tmp_path, comment):
    dag = read(ConlluAdapter(), write(tmp_path, comment + sentence(("a", 0)))).dag
    assert dag.span.tolist() == [[-1, -1]]
    assert dag.strings("graph", "text") == ["other words" if comment else None]
