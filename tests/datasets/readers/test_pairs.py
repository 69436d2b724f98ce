import math

import pytest
from datasets.tree_files import corpus_folder, inputs_of, read

from graphfold.datasets.readers.pairs import ENTAILMENT, PairsAdapter
from graphfold.errors import DataError, RecordError

FILES = {
    "a.txt": ["A dog barks.", "It rains", "Don't go"],
    "a.toks": ["A dog barks .", "It rains", "Do n't go"],
    "a.parents": ["2 3 0 3", "2 0", "3 3 0"],
    "a.rels": ["det nsubj root punct", "nsubj root", "aux neg root"],
    "b.txt": ["Dogs bark", "Rain", "Stay"],
    "b.toks": ["Dogs bark", "Rain", "Stay"],
    "b.parents": ["2 0", "0", "0"],
    "b.rels": ["nsubj root", "root", "root"],
    "sim.txt": ["4.5", "1", "3.25"],
    "id.txt": ["11", "12", "13"],
}
TABLE = "pair_ID\tsentence_A\tentailment_judgment\r\n13\tx\tNEUTRAL\r\n11\ty\tENTAILMENT\r\n"


@pytest.fixture
def folder(tmp_path):
    """A folder like sick/parsed/train with three pairs."""
    folder = tmp_path / "parsed" / "train"
    folder.mkdir(parents=True)
    for name, lines in FILES.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "SICK_train.txt").write_bytes(TABLE.encode())
    return folder


def replace_line(folder, name, line, text):
    lines = (folder / name).read_text().split("\n")
    lines[line - 1] = text
    (folder / name).write_text("\n".join(lines))


def test_a_pair_is_two_trees_in_one_graph(folder):
    dag = read(PairsAdapter(), folder).dag
    assert dag.strings("type:word", "form")[:6] == ["A", "dog", "barks", ".", "Dogs", "bark"]
    assert [inputs_of(dag, node) for node in range(6)] == [[], [0], [1, 3], [], [], [4]]
    assert dag.strings("inputs", "deprel")[:4] == ["det", "nsubj", "punct", "nsubj"]
    assert dag.output_index[:2].tolist() == [2, 5]
    assert dag.graph_column("relatedness").tolist() == [4.5, 1.0, 3.25]
    assert dag.graph_column("entailment").tolist() == [
        ENTAILMENT.index("ENTAILMENT"),
        -1,
        ENTAILMENT.index("NEUTRAL"),
    ]
    assert dag.strings("graph", "pair_id") == ["11", "12", "13"]
    assert dag.strings("graph", "sentence_b") == FILES["b.txt"]
    assert dag.span[:6].tolist() == [[0, 1], [2, 5], [6, 11], [11, 12], [0, 4], [5, 9]]


def test_what_may_be_absent_is_missing(folder):
    for name in ("a.txt", "sim.txt", "id.txt"):
        (folder / name).unlink()
    dag = read(PairsAdapter(), folder).dag
    assert dag.strings("graph", "sentence_a")[0] == "A dog barks ."
    assert dag.strings("graph", "pair_id") == [None] * 3
    assert all(math.isnan(score) for score in dag.graph_column("relatedness"))
    assert dag.graph_column("entailment").tolist() == [-1] * 3


FAULTS = {
    "head out of range": ("a.parents", "2 9 0 3", "token 2 has head 9, but the sentence has 4"),
    "head is text": ("b.parents", "x 0", "token 1 has head 'x', which is not a number"),
    "head of many digits": ("b.parents", "9" * 5000 + " 0", "token 1 has head 9{80}"),
    "negative head": ("b.parents", "-1 0", "token 1 has head '-1', which is not a number"),
    "own head": ("b.parents", "1 0", "token 1 is its own head"),
    "no root": ("b.parents", "2 1", "no token has head 0"),
    "two roots": ("a.parents", "2 0 0 3", "tokens 2 and 3 both have head 0"),
    "cycle": ("a.parents", "2 4 0 1", "the heads of tokens 1 -> 2 -> 4 -> 1 form a cycle"),
    "fewer parents": ("a.parents", "2 3 0", "has 4 words in a.toks, but 3 parents"),
    "more relations": ("b.rels", "a b c", "has 2 words in b.toks, but 3 rels"),
    "no words": ("b.toks", "  ", "the sentence has no words"),
    "score is text": ("sim.txt", "high", "the score 'high' is not a number from 1 to 5"),
    "score out of range": ("sim.txt", "5.5", "the score '5.5' is not a number from 1 to 5"),
    "score infinite": ("sim.txt", "inf", "the score 'inf' is not a number from 1 to 5"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_pair_names_the_file_and_is_left_out(folder, name):
    file, text, message = FAULTS[name]
    replace_line(folder, file, 1, text)
    with pytest.raises(RecordError, match=rf"{file}:1: .*{message}") as caught:
        read(PairsAdapter(), folder)
    assert caught.value.path == str(folder / file)
    assert f"Correct {file}, or set data.on_error=skip." in str(caught.value)
    result = read(PairsAdapter(), folder, "skip")
    assert result.dag.strings("graph", "pair_id") == ["12", "13"]
    assert [(error.path, error.line) for error in result.skipped] == [(str(folder / file), 1)]


@pytest.mark.parametrize("text", ["", "NaN", "NA", "None"])
def test_a_score_may_be_missing(folder, text):
    replace_line(folder, "sim.txt", 2, text)
    scores = read(PairsAdapter(), folder).dag.graph_column("relatedness")
    assert scores.isnan().tolist() == [False, True, False]


def test_a_judgment_of_another_kind_names_the_table(folder):
    table = folder.parent.parent / "SICK_train.txt"
    table.write_text(TABLE.replace("NEUTRAL", "PERHAPS"))
    with pytest.raises(RecordError, match=r"SICK_train\.txt:2: the judgment 'PERHAPS' is none of"):
        read(PairsAdapter(), folder)


def test_files_of_different_lengths_are_refused(folder):
    replace_line(folder, "b.parents", 3, "")
    with pytest.raises(DataError, match=r"a\.toks has 3 lines, but b\.parents has 2"):
        read(PairsAdapter(), folder, "skip")


def test_bytes_that_are_no_text_name_their_file(folder):
    (folder / "b.toks").write_bytes(b"Dogs bark\nR\xe9gen\nStay\n")
    with pytest.raises(RecordError, match=r"b\.toks:2: byte 2 of the line \(0xe9\) is not UTF-8"):
        read(PairsAdapter(), folder)
    result = read(PairsAdapter(), folder, "skip")
    assert result.dag.strings("graph", "pair_id") == ["11", "13"]


@pytest.mark.parametrize("name", ["a.toks", "b.parents", "a.rels"])
def test_an_absent_file_is_refused(folder, name):
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"train/{name}: no such file"):
        read(PairsAdapter(), folder)


def test_the_scores_of_sick_are_those_of_its_published_table(data_root):
    folder = corpus_folder(data_root, "sick") / "parsed" / "dev"
    dag = read(PairsAdapter(), folder).dag
    assert dag.num_graphs == 500
    assert (dag.output_ptr.diff() == 2).all()
    judgments = dag.graph_column("entailment")
    assert (judgments >= 0).all()
    assert int((judgments == ENTAILMENT.index("NEUTRAL")).sum()) == 282
    scores = dag.graph_column("relatedness")
    assert not scores.isnan().any()
    published = {}
    for line in (folder.parent.parent / "SICK_trial.txt").read_text().splitlines()[1:]:
        number, *_, score, _ = line.split("\t")
        published[number] = float(score)
    ids = dag.strings("graph", "pair_id")
    assert scores.tolist() == pytest.approx([published[number] for number in ids])


def test_a_folder_is_needed(folder, tmp_path):
    with pytest.raises(DataError, match=r"a\.toks: is a file, not a folder"):
        read(PairsAdapter(), folder / "a.toks")
    with pytest.raises(DataError, match="absent: no such folder"):
        read(PairsAdapter(), tmp_path / "absent")


def test_empty_files_are_refused(folder):
    for name in FILES:
        (folder / name).write_text("")
    with pytest.raises(DataError, match="holds no pairs"):
        read(PairsAdapter(), folder)
