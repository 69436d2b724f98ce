"""Options of the adapters of trees and records: what they change in the graphs that are read."""

from __future__ import annotations

import pytest
from effects.lab import counts, read
from effects.table import Rows

from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.datasets import save_graphs
from graphfold.datasets.readers.conllu import UPOS
from graphfold.errors import ConfigError, DataError, RecordError

ROWS = row = Rows()

# Brackets

TREE = "(S (NP-SBJ-1 (DT the) (JJ old) (NN dog)) (VP (VB barks)) (-NONE- *T*))\n"


def words(dag, column="form"):
    return dag.strings("type:word", column)


@row.changes("brackets.num_classes", "labels are the numbers 0 .. N-1, one on every node")
def _(graphs):
    numbers = graphs("brackets", "(1 (0 a) (2 b))\n", num_classes=3)
    assert numbers.node_targets["label"].tolist() == [0, 2, 1]
    assert numbers.schema.node_targets[0].size == 3
    with pytest.raises(RecordError, match="label"):
        graphs("brackets", "(1 (0 a) (3 b))\n", num_classes=3)
    assert words(graphs("brackets", "(1 (0 a) (3 b))\n"), "label") == ["0", "3"]


@row.changes("brackets.labels", "labels are features of nodes, or their target; never both")
def _(graphs):
    feature, target = (graphs("brackets", TREE, labels=kind) for kind in ("feature", "target"))
    assert not feature.schema.node_targets
    assert words(feature, "label") == ["DT", "JJ", "NN", "VB", "-NONE-"]
    assert [column.name for column in target.schema.node_targets] == ["label"]
    assert all(c.name != "label" for t in target.schema.types for c in t.features)


@row.changes("brackets.label_names", "the codes of labels: their places in this list")
def _(graphs):
    text = "(B (A x) (C y))\n"
    by_name = graphs("brackets", text, labels="target")
    named = graphs("brackets", text, labels="target", label_names=["C", "B", "A"])
    assert by_name.node_targets["label"].tolist() == [0, 2, 1]
    assert named.node_targets["label"].tolist() == [2, 0, 1]


@row.changes("brackets.classes", "several labels are one class, and others have no target")
def _(graphs):
    classes = {"low": [0, 1], "high": [4]}
    dag = graphs("brackets", "(4 (0 a) (2 (1 b) (4 c)))\n", labels="target", classes=classes)
    assert dag.node_targets["label"].tolist() == [0, 0, 1, -1, 1]
    assert dag.schema.node_targets[0].size == 2


@row.changes("brackets.binarize", "phrases have two children at most; the words stay as they are")
def _(graphs):
    plain, binary = (graphs("brackets", TREE, binarize=value) for value in (False, True))
    assert words(plain) == words(binary)
    children = binary.input_ptr.diff()[binary.nodes_of_type("phrase")]
    assert children.max() == 2 < plain.input_ptr.diff().max()
    assert "@NP-SBJ-1" in binary.strings("type:phrase", "label")


@row.changes("brackets.branching", "which side of a split phrase is the new node")
def _(graphs):
    spans = {}
    for side in ("left", "right"):
        dag = graphs("brackets", "(S (A a) (B b) (C c))\n", binarize=True, branching=side)
        new = dag.nodes_of_type("phrase")[dag.strings("type:phrase", "label").index("@S")]
        spans[side] = [words(dag)[child] for child in dag.input_index[dag.input_ptr[new] :][:2]]
    assert spans == {"left": ["a", "b"], "right": ["b", "c"]}


@row.changes("brackets.collapse_unary", "a chain of single children is one node")
def _(graphs):
    text = "(S (X (Y (A a) (B b))))\n"
    plain, merged = (graphs("brackets", text, collapse_unary=v) for v in (False, True))
    assert (counts(plain)["phrase"], counts(merged)["phrase"]) == (3, 1)
    assert merged.strings("type:phrase", "label") == ["S+X+Y"]


@row.changes("brackets.remove_traces", "empty elements are left out")
def _(graphs):
    assert words(graphs("brackets", TREE)) == ["the", "old", "dog", "barks", "*T*"]
    assert words(graphs("brackets", TREE, remove_traces=True)) == ["the", "old", "dog", "barks"]


@row.changes("brackets.strip_functions", "NP-SBJ-1 is read as NP")
def _(graphs):
    labels = graphs("brackets", TREE).strings("type:phrase", "label")
    stripped = graphs("brackets", TREE, strip_functions=True).strings("type:phrase", "label")
    assert (labels, stripped) == (["NP-SBJ-1", "VP", "S"], ["NP", "VP", "S"])


@row.changes("brackets.sequence", "there is the relation `next`, from each word to the next one")
def _(graphs):
    assert not graphs("brackets", TREE).relations
    dag = graphs("brackets", TREE, sequence=True)
    assert dag.relations["next"].index.tolist() == [0, 1, 2, 3]


# CoNLL-U

SENTENCE = """\
1\ta\tA\tDET\tDT\tNumber=Sing\t2\tdet:x\t2:det|3:dep\t_
2\tman\tM\tNOUN\tNN\t_\t3\tnsubj\t3:nsubj\t_
3\tsees\tS\tVERB\tVB\t_\t0\troot\t0:root\t_
"""


@row.changes("conllu.tree", "a word reads its dependents, or the word before it, head or not")
def _(graphs):
    heads = "1\ta\t_\tX\t_\t_\t2\tdep\t_\t_\n2\tb\t_\tX\t_\t_\t0\troot\t_\t_\n"
    text = heads + "3\tc\t_\tX\t_\t_\t2\tdep\t_\t_\n"
    assert graphs("conllu", text, tree="heads").input_index.tolist() == [0, 2]
    assert graphs("conllu", text, tree="chain").input_index.tolist() == [0, 1]
    with pytest.raises(RecordError, match="data.tree=chain"):
        graphs("conllu", heads.replace("\t2\t", "\t_\t").replace("\t0\t", "\t_\t"), tree="heads")


@row.changes("conllu.features", "these columns are the features of words, in this order")
def _(graphs):
    dag = graphs("conllu", SENTENCE, features=["lemma", "xpos", "feats"])
    assert [c.name for c in dag.schema.types[0].features] == ["lemma", "xpos", "feats"]
    assert words(dag, "lemma") == ["A", "M", "S"]
    assert words(dag, "xpos") == ["DT", "NN", "VB"]


@row.refused("conllu.features", "the target as a feature, too")
def _(graphs):
    with pytest.raises(ConfigError, match="upos"):
        graphs("conllu", SENTENCE, features=["form", "upos"])


@row.changes("conllu.relation_column", "deps adds the enhanced graph and keeps the tree")
def _(graphs):
    tree, both = (graphs("conllu", SENTENCE, relation_column=c) for c in ("deprel", "deps"))
    assert "enhanced" not in tree.relations
    assert both.relations["enhanced"].index.tolist() == [0, 0, 1]
    assert both.strings("relation:enhanced", "deprel") == ["det", "dep", "nsubj"]
    assert both.input_index.tolist() == tree.input_index.tolist()


@row.changes("conllu.subtypes", "false reads det:x as det")
def _(graphs):
    kept, cut = (graphs("conllu", SENTENCE, subtypes=value) for value in (True, False))
    assert kept.strings("inputs", "deprel") == ["det:x", "nsubj"]
    assert cut.strings("inputs", "deprel") == ["det", "nsubj"]


@row.changes("conllu.target", "this column is what is predicted, and no feature")
def _(graphs):
    tags, relations = (graphs("conllu", SENTENCE, target=t) for t in ("upos", "deprel"))
    assert tags.node_targets["upos"].tolist() == [UPOS.index(t) for t in ("DET", "NOUN", "VERB")]
    assert relations.node_targets["deprel"].tolist() == [0, 1, 2]  # alphabetical
    assert not relations.schema.inputs.features


@row.changes("conllu.labels", "the codes of the target: their places in this list")
def _(graphs):
    named = graphs("conllu", SENTENCE, target="deprel", labels=["root", "nsubj", "det:x"])
    assert named.node_targets["deprel"].tolist() == [2, 1, 0]


@row.changes("conllu.position", "inputs know on which side of the head they stand, and how far")
def _(graphs):
    text = SENTENCE.replace("3\tsees\tS\tVERB\tVB\t_\t0", "3\tsees\tS\tVERB\tVB\t_\t0")
    far = "\n".join(f"{i}\tw\tw\tX\t_\t_\t{0 if i == 3 else 3}\tdep\t_\t_" for i in range(1, 9))
    assert [c.name for c in graphs("conllu", text).schema.inputs.features] == ["deprel"]
    position = graphs("conllu", far + "\n", position=True).columns["inputs"]["position"].tolist()
    before, after = position[:2], position[2:]
    assert len({*before, *after[:4]}) == 6  # two words before, one to four after
    assert after[3] == after[4]  # from four words on it is far


# Pairs


@row.changes("pairs.across", "there is the relation `across`, from every word to all of the other")
def _(tmp_path):
    for side, sentence in (("a", "one two"), ("b", "red green blue")):
        (tmp_path / f"{side}.toks").write_text(f"{sentence}\n")
        heads = " ".join(["0", *["1"] * (len(sentence.split()) - 1)])
        (tmp_path / f"{side}.parents").write_text(f"{heads}\n")
        (tmp_path / f"{side}.rels").write_text(heads.replace("0", "root").replace("1", "x") + "\n")
    assert not read(tmp_path, "pairs").dag.relations
    dag = read(tmp_path, "pairs", across=True).dag
    assert dag.relations["across"].ptr.diff().tolist() == [3, 3, 2, 2, 2]
    assert dag.relations["across"].index[:3].tolist() == [2, 3, 4]


# List operations


@row.changes("listops.check_answers", "a wrong answer is a bad record")
def _(graphs):
    wrong = "5\t( ( ( [MAX 2 ) 4 ) ] )\n"
    with pytest.raises(RecordError, match="4"):
        graphs("listops", wrong)
    assert graphs("listops", wrong, check_answers=False).graph_column("answer").tolist() == [5]


@row.changes("listops.nodes", "what is a node: brackets and tokens, lists and digits, or tokens")
def _(graphs):
    text = "4\t( ( ( [MAX 2 ) 4 ) ] )\n"
    found = {way: graphs("listops", text, nodes=way) for way in ("brackets", "lists", "tokens")}
    assert counts(found["brackets"]) == {"token": 4, "pair": 3}
    assert counts(found["lists"]) == {"digit": 2, "list": 1}
    assert counts(found["tokens"]) == {"token": 4}
    assert found["tokens"].depth.tolist() == [0, 1, 2, 3]
    assert {dag.graph_column("answer").item() for dag in found.values()} == {4}


# Graphs


@row.changes("graphs.schema", "graphs of another schema are refused; null takes that of the file")
def _(tmp_path):
    schemas = [Schema((NodeType(name, 0),)) for name in ("city", "town")]
    for schema in schemas:
        builder = GraphBuilder(schema)
        builder.output(builder.node(schema.types[0].name))
        builder.finish()
        save_graphs(builder.build(), tmp_path / "some.npz")
    assert read(tmp_path / "some.npz", "graphs").dag.schema == schemas[1]
    with pytest.raises(DataError, match="another schema"):
        read(tmp_path / "some.npz", "graphs", schema=schemas[0].to_dict())
