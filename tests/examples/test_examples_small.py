"""The examples on a small scale: they run as scripts, and their blocks agree with the reference."""

from __future__ import annotations

import json
import random
import runpy
import sys
from typing import Any

import pytest
import torch
from example_files import FOLDER, example
from thinned import thinned

from graphfold import blocks as td

TREES = """(3 (2 It) (4 (3 's) (4 (2 a) (4 lovely))))
(1 (2 A) (0 (1 dull) (2 film)))
(4 lovely)
(0 (1 dull) (0 (1 dull) (2 ,)))
"""


def agree(model: td.CompiledModel, examples: list[Any]) -> None:
    """The engine, the reference and `eval` give the same, in float64."""
    model.eval()
    assert td.verify(model, examples) < 1e-10
    model.double()
    batched = model(examples)
    for row, one in zip(batched, examples, strict=True):
        torch.testing.assert_close(row, model.root.eval(one))


@pytest.mark.filterwarnings("ignore:FunctionCell is not compiled")  # dropout, and labels
def test_sentiment_learns_four_trees(tmp_path):
    module = example("sentiment")
    (tmp_path / "trees.txt").write_text(TREES)
    codes: dict[str, int] = {}
    trees = list(module.read(tmp_path / "trees.txt", codes))
    assert trees[1] == (1, (2, codes["a"]), (0, (1, codes["dull"]), (2, codes["film"])))
    assert list(codes) == ["it", "'s", "a", "lovely", "dull", "film", ","]
    torch.manual_seed(0)
    model = td.compile(module.sentiment(len(codes), size=8))
    assert td.verify(model, trees) < 1e-10
    data = td.BlockDataset(model, trees)
    before = model.eval().result(data[[0, 1, 2, 3]])
    assert before.metrics["nodes"].shape == (7 + 5 + 1 + 5, 5)
    assert before.labels["roots"] == [3, 1, 4, 0]
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    loader = data.loader(2, shuffle=True)
    for _ in range(60):
        module.train(model, loader, optimizer)
    assert module.accuracy(model, data.loader(3), "roots") == 1.0
    assert module.accuracy(model, data.loader(3), "nodes") > 0.9


def test_tree_rnn():
    module = example("tree_rnn")
    rng = random.Random(0)
    formulas = [module.random_formula(rng, 3) for _ in range(20)]
    assert module.truth(("xor", True, ("not", ("and", True, False)))) is False
    assert module.truth(("or", False, True)) is True
    torch.manual_seed(0)
    agree(td.compile(module.tree_rnn(4)), formulas)


@pytest.mark.parametrize("name", thinned(["sum", "min"], ["min"]))
def test_reductions_learn_two_numbers(name):
    module = example("sum_and_min")
    torch.manual_seed(0)
    model = td.compile(module.reduction(16))
    lists = module.random_lists(random.Random(0), 400, 2)
    wanted = module.targets(name, lists)
    true = sum(lists[0]) if name == "sum" else min(lists[0])
    assert float(wanted[0]) == pytest.approx(true)
    module.train(model, lists, wanted, 80)
    errors = (model(lists) - wanted).abs() / module.target_range(name, 2)
    assert errors.mean() < 0.02
    agree(model, [*lists[:5], [0.5] * 7])


def test_languages_read_files_and_tell_them_apart(tmp_path):
    module = example("languages")
    rng = random.Random(1)
    for name in ("first", "second"):
        lines = module.invented_lines(rng, 60)
        (tmp_path / name).write_text("\n\n".join(lines), encoding="utf-8")
    assert len(module.read_lines(tmp_path / "first", 50)) == 50
    files = [str(tmp_path / name) for name in ("first", "second")]
    assert module.main([*files, "--epochs", "8"]) > 0.8
    assert module.main([*files, "--epochs", "8", "--validation"]) > 0.8
    with pytest.raises(SystemExit):
        module.main(files[:1])
    torch.manual_seed(0)
    agree(td.compile(module.language_model("abc", 2, 4)), ["ab c", "", "  ca  b zebra"])


SMALL = {
    "calculator": ["--depth", "2", "--expressions", "50", "--epochs", "1"],
    "sum_and_min": ["min", "--lists", "50", "--epochs", "1"],
    "languages": ["--lines", "40", "--epochs", "1"],
}


@pytest.mark.parametrize("name", thinned(SMALL, ["sum_and_min"]))
def test_settings_are_chosen_on_other_examples_than_the_result(name, capsys):
    seen = []
    module = example(name)
    lower = td.CompiledModel.lower

    def watched(model: td.CompiledModel, examples: Any, num_workers: int = 0) -> Any:
        seen.append(set(map(repr, examples)))
        return lower(model, examples, num_workers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(td.CompiledModel, "lower", watched)
        for arguments in ([], ["--validation"]):
            module.main([*SMALL[name], *arguments])
    known, test, again, validation = seen
    assert known == again
    assert not test & validation
    assert not (test | validation) & known
    printed = capsys.readouterr().out.splitlines()
    assert "test" in printed[0]
    assert "validation" in printed[1]


def test_the_composed_attention_is_the_ready_one():
    module = example("attention")
    torch.manual_seed(0)
    score = torch.nn.Linear(3, 1)
    vectors = td.Map(td.Vector(3))
    composed, ready = vectors >> module.attention(score), vectors >> td.Attention(score)
    sequence = torch.randn(7, 3).tolist()
    torch.testing.assert_close(composed.eval(sequence), ready.eval(sequence))
    h = torch.tensor(sequence)
    torch.testing.assert_close(composed.eval(sequence), score(h).softmax(0).T[0] @ h)
    rng = random.Random(0)
    agree(td.compile(module.adder(4)), [module.random_sequence(rng, n)[0] for n in (3, 9)])


def test_weave_is_its_equations():
    """Against the formulas, for three atoms, with the weights of the blocks."""
    module = example("graph_convolution")
    torch.manual_seed(0)
    size = [module.ATOM_SIZE, module.PAIR_SIZE]
    block = td.Record((td.Map(td.Vector(size[0])), td.Map(td.Map(td.Vector(size[1])))))
    model = td.compile(block >> module.weave(5, 6), ragged=True)
    layers = [m for m in model.modules() if isinstance(m, td.FC)]
    by_inputs = {(m.weight.shape[1], m.weight.shape[0]): m for m in layers}
    f_aa, f_pa, f_a = (by_inputs[n, 5] for n in (size[0], size[1], 10))
    f_ap, f_pp, f_p = (by_inputs[n, 6] for n in (2 * size[0], size[1], 12))
    atoms, rows = module.molecule_of("CC=O")
    a, p = torch.tensor(atoms), torch.tensor(rows)
    new_a = f_a(torch.cat([f_aa(a), f_pa(p).sum(1)], 1))
    pairs = [
        [
            torch.cat(
                [f_ap(torch.cat([a[i], a[j]])) + f_ap(torch.cat([a[j], a[i]])), f_pp(p[i, j])]
            )
            for j in range(3)
        ]
        for i in range(3)
    ]
    new_p = f_p(torch.stack([torch.stack(row) for row in pairs]))
    found_atoms, found_pairs = model([(atoms, rows)])
    torch.testing.assert_close(found_atoms[0], new_a)
    torch.testing.assert_close(torch.stack(list(found_pairs[0])), new_p)


def test_graph_convolution_runs_on_its_handful_and_on_tables(tmp_path):
    module = example("graph_convolution")
    assert module.main(["--epochs", "1", "--molecules", "6"])[0] > 0
    header = "smiles,measured log solubility in mols per litre\n"
    (tmp_path / "t.csv").write_text(header + "".join(f"{s} ,{y}\n" for s, y in module.HANDFUL[:6]))
    assert module.read(tmp_path / "t.csv") == list(module.HANDFUL[:6])
    with pytest.raises(ValueError, match="RDKit cannot read SMILES 'C1'"):
        module.molecule_of("C1")


VALUES = [None, True, -3, 2.5, "", "text", [], [1, [None, {}]], {}, {"b": [], "a": {"c": False}}]


def test_any_json_value_is_taken():
    module = example("json_records")
    torch.manual_seed(0)
    model = td.compile(module.record_model(3, 4))
    assert model(VALUES).shape == (len(VALUES), 3)
    agree(model, VALUES)


def test_json_records_reads_files(tmp_path):
    module = example("json_records")
    for name, values in (("a", [{"n": n} for n in range(30)]), ("b", [[n] for n in range(30)])):
        (tmp_path / name).write_text("\n".join(map(json.dumps, values)))
    assert module.read(tmp_path / "b")[7] == [7]
    files = [str(tmp_path / name) for name in "ab"]
    assert module.main([*files, "--epochs", "8"]) == 1.0
    with pytest.raises(SystemExit):
        module.main(files[:1])


#: Those that need an engine are a few lines for it alone, see test_predict_on_engines.
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("predict_on")]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_example_says_what_it_is_and_how_to_run_it(path):
    if path.stem == "spacy_component":
        pytest.importorskip("spacy", reason="spacy is not installed")
    module = example(path.stem)
    assert callable(module.main)
    assert module.__doc__ is not None
    assert f"    python examples/{path.name}" in module.__doc__


def test_examples_run_as_scripts(monkeypatch, capsys):
    script = str(FOLDER / "attention.py")
    arguments = ["--length", "5", "--sequences", "50", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    runpy.run_path(script, run_name="__main__")
    assert capsys.readouterr().out.startswith("epoch 1: ")
