"""Options of `DataModule`: where records come from, their parts, batches, words."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from effects.lab import Lab
from effects.table import Rows
from training.tiny_runs import MOLECULES, WORDS

from graphfold.batching import POLICIES, Rounds, Up
from graphfold.batching.batch import plan_batch
from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.splits.split_records import SPLITS
from graphfold.datasets.splits.split_ways import scaffold_groups
from graphfold.errors import ConfigError, DataError, RecordError

ROWS = row = Rows()


def made(lab: Lab, **settings: Any) -> DataModule:
    """Data of these settings alone, prepared."""
    given = {"cache_dir": f"{lab.folder}/cache", "num_workers": 0, **settings}
    data = DataModule(**given)
    data.prepare()
    return data


def trees(lab: Lab, **settings: Any) -> DataModule:
    given = {"adapter": "brackets", "num_classes": 5, "path": lab.folder / "trees.txt"}
    return made(lab, **{**given, **settings})


def molecules(lab: Lab, **settings: Any) -> DataModule:
    given = {"adapter": "smiles", "target_columns": ["y"], "path": lab.folder / "molecules.csv"}
    return made(lab, **{**given, **settings})


def words(data: DataModule) -> list[str | None]:
    return data.raw.strings("type:word", "form")


def parts(data: DataModule) -> dict[str, list[int]]:
    return {name: data.split.part(name).tolist() for name in ("train", "val", "test")}


# Where records come from


@row.changes("data.corpus", "the files of that corpus are read, with its adapter and its split")
def _(lab):
    named = made(lab, corpus="sst", root=lab.corpora)
    path = {"train": "train.txt", "val": "dev.txt", "test": "test.txt"}
    by_hand = trees(
        lab, binarize=True, path={part: lab.corpora / "sst" / name for part, name in path.items()}
    )
    assert difference(named.raw, by_hand.raw) is None
    assert parts(named) == parts(by_hand)


@row.changes("data.adapter", "what reads the file: by its name or by the path of its class")
def _(lab):
    by_name = trees(lab)
    by_path = trees(lab, adapter="graphfold.datasets.readers.brackets.BracketsAdapter")
    assert difference(by_name.raw, by_path.raw) is None
    with pytest.raises(RecordError, match="CoNLL-U"):
        made(lab, adapter="conllu", path=lab.folder / "trees.txt")


@row.nothing(
    "data.path", "one file, gzipped, in two halves by list, pattern or folder: same records"
)
def _(lab):
    whole = (lab.folder / "trees.txt").read_text()
    lines = whole.splitlines(keepends=True)
    folder = lab.folder / "halves"
    first = lab.write("halves/1.txt", "".join(lines[:11]))
    second = lab.write("halves/2.txt", "".join(lines[11:]))
    packed = lab.folder / "trees.txt.gz"
    packed.write_bytes(gzip.compress(whole.encode()))
    expected = trees(lab)
    for path in (packed, [str(first), str(second)], f"{folder}/*.txt", str(folder)):
        data = trees(lab, path=path)
        assert words(data) == words(expected)
        labels = [d.raw.node_targets["label"].tolist() for d in (data, expected)]
        assert labels[0] == labels[1]
        assert parts(data) == parts(expected)


@row.changes("data.path", "a file for each part gives the split")
def _(lab):
    own = {"train": "abc", "val": "d", "test": "ef"}
    path = {
        part: lab.write(f"given/{part}.txt", "".join(f"(1 {w})\n" for w in letters))
        for part, letters in own.items()
    }
    data = trees(lab, path=path)
    for part, letters in own.items():
        assert [words(data)[i] for i in data.split.part(part).tolist()] == list(letters)


@row.changes("data.variant", "which of the alternatives of a corpus is read")
def _(lab, tmp_path):
    folder = tmp_path / "moleculeace"
    folder.mkdir()
    for name, letter in (("CHEMBL1862_Ki", "C"), ("CHEMBL2034_Ki", "N")):
        rows = "".join(f"{letter * (i + 1)},{i},{'test' if i > 6 else 'train'}\n" for i in range(9))
        (folder / f"{name}.csv").write_text(f"smiles,y [pEC50/pKi],split\n{rows}")
    first = made(lab, corpus="moleculeace", root=tmp_path)
    assert first.raw.strings("graph", "smiles")[0] == "C"
    chosen = made(lab, corpus="moleculeace", root=tmp_path, variant="CHEMBL2034_Ki")
    assert chosen.raw.strings("graph", "smiles")[0] == "N"


@row.nothing("data.root", "the same corpus in another folder is the same data")
def _(lab, tmp_path):
    shutil.copytree(lab.corpora / "sst", tmp_path / "sst")
    here, there = (made(lab, corpus="sst", root=root) for root in (lab.corpora, tmp_path))
    assert words(here) == words(there)
    with pytest.raises(DataError, match="sst"):
        made(lab, corpus="sst", root=tmp_path / "sst")


@row.nothing("data.cache_dir", "packed data go there and nowhere else, and are the same")
def _(lab, tmp_path):
    first = trees(lab)
    before = sorted(os.listdir(lab.folder))
    own = trees(lab, cache_dir=str(tmp_path / "own"))
    again = trees(lab, cache_dir=str(tmp_path / "own"))
    assert difference(first.raw, own.raw) is None
    assert difference(own.raw, again.raw) is None
    assert [*(tmp_path / "own").rglob("*.*")]
    assert sorted(os.listdir(lab.folder)) == before


@row.changes("data.on_error", "raise stops at a bad record; skip leaves it out and lists it")
def _(lab):
    text = (lab.folder / "trees.txt").read_text()
    path = lab.write("bad.txt", f"{text}(1 (9 a) (0 b))\n")
    with pytest.raises(RecordError, match="bad.txt:31"):
        trees(lab, path=path)
    data = trees(lab, path=path, on_error="skip")
    assert [error.line for error in data.skipped] == [31]
    assert words(data) == words(trees(lab))


@row.nothing("data.num_workers", "other processes read a file, and the graphs are the same bits")
def _(lab, tmp_path):
    rows = "".join(f"{smiles},{i}\n" for i, smiles in enumerate(MOLECULES * 40))
    path = lab.write("many.csv", f"smiles,y\n{rows}")
    found = []
    for number in (0, 2):
        place = "graphfold.datasets.storage.reading.ProcessPoolExecutor"
        with mock.patch(place, wraps=ProcessPoolExecutor) as pool:
            own = {"path": path, "num_workers": number, "cache_dir": str(tmp_path / str(number))}
            found.append(molecules(lab, **own))
        assert [call.args[0] for call in pool.call_args_list] == [number] * (number > 0)
    assert difference(found[0].raw, found[1].raw) is None


# Parts


@row.changes("data.split", "how records are divided; each is in exactly one part")
def _(lab):
    found = {}
    for name in SPLITS:
        label = {"target_columns": ["active"], "task": "classification"}
        if name == "given":
            file = lab.folder / "trees.txt"
            data = trees(lab, path={"train": file, "test": file})
        else:
            data = molecules(lab, split=name, **(label if name == "stratified" else {}))
        found[name] = parts(data)
        together = sorted(n for part in found[name].values() for n in part)
        assert together == list(range(data.raw.num_graphs))
        if name.startswith("scaffold"):
            own = scaffold_groups(data.raw)
            sets = [{own[n] for n in part} for part in found[name].values()]
            assert not sets[0] & sets[1]
            assert not sets[0] & sets[2]
    assert len({str(found[name]) for name in SPLITS if name != "repeated_kfold"}) == len(SPLITS) - 1
    own = molecules(lab, split="effects.data_options.last_is_test")
    assert parts(own)["test"] == [29]


@row.changes("data.fractions", "the shares of train, val and test")
def _(lab):
    for fractions, sizes in (([0.5, 0.2, 0.3], [15, 6, 9]), ([0.9, 0.1, 0.0], [27, 3, 0])):
        found = parts(molecules(lab, split="random", fractions=fractions))
        assert [len(part) for part in found.values()] == sizes
    with pytest.raises(ConfigError, match="sum 1"):
        molecules(lab, split="random", fractions=[0.5, 0.2, 0.2])


@row.changes("data.seed", "another seed divides and orders records anew; the same one does not")
def _(lab):
    first, again, other = (molecules(lab, split="random", seed=seed) for seed in (0, 0, 1))
    assert parts(first) == parts(again) != parts(other)
    orders = [_numbers(data.loader("train", [Up()])) for data in (first, again, other)]
    assert orders[0] == orders[1]
    fixed = [molecules(lab, split="scaffold", seed=seed) for seed in (0, 1)]
    assert parts(fixed[0]) == parts(fixed[1])
    orders = [_numbers(data.loader("train", [Up()])) for data in fixed]
    assert orders[0] != orders[1]
    assert sorted(chain(*orders[0])) == sorted(chain(*orders[1]))


@row.changes("data.num_folds", "the number of folds, each of which is the test part once")
def _(lab):
    for folds in (3, 5):
        tests = [
            parts(molecules(lab, split="kfold", num_folds=folds, fold=k)) for k in range(folds)
        ]
        assert sorted(n for part in tests for n in part["test"]) == list(range(30))
        assert {len(part["test"]) for part in tests} == {30 // folds}


@row.changes("data.fold", "which fold is the test part; one that is not there is refused")
def _(lab):
    found = [parts(molecules(lab, split="kfold", fold=fold))["test"] for fold in (0, 1)]
    assert not {*found[0]} & {*found[1]}
    with pytest.raises(ConfigError, match="fold"):
        molecules(lab, split="kfold", fold=5)


@row.changes("data.num_repeats", "how often the records are divided anew: more values of fold")
def _(lab):
    options = {"split": "repeated_kfold", "num_folds": 3}
    tests = [
        parts(molecules(lab, num_repeats=2, fold=fold, **options))["test"] for fold in range(6)
    ]
    for repeat in (tests[:3], tests[3:]):
        assert sorted(chain(*repeat)) == list(range(30))
    assert tests[0] not in tests[3:]
    with pytest.raises(ConfigError, match="fold"):
        molecules(lab, num_repeats=1, fold=3, **options)


@row.changes("data.groups", "records of one molecule, scaffold or cluster are in one part")
def _(lab):
    assert len(MOLECULES) == 10  # each of which stands in three rows
    for split in ("random", "kfold"):
        divided = {}
        for groups in ("none", "molecule", "scaffold", "butina"):
            folds = {"num_folds": 3} if split == "kfold" else {}
            found = parts(molecules(lab, split=split, groups=groups, **folds))
            place = {number: part for part, numbers in found.items() for number in numbers}
            divided[groups] = any(len({place[m + 10 * k] for k in range(3)}) > 1 for m in range(10))
        assert divided == {"none": True, "molecule": False, "scaffold": False, "butina": False}


@row.changes("data.stratify_by", "this label has its share in every part")
def _(lab):
    rows = "".join(f"{'C' * (i % 9 + 1)},{i},{int(i % 5 == 0)},{i % 2}\n" for i in range(300))
    path = lab.write("labels.csv", f"smiles,y,rare,half\n{rows}")
    given = {"adapter": "smiles", "target_columns": ["rare", "half"], "task": "classification"}
    for name, share in (("rare", 0.2), ("half", 0.5)):
        data = made(lab, path=path, split="stratified", stratify_by=name, **given)
        for numbers in parts(data).values():
            count = data.raw.graph_column(name)[numbers].sum().item()
            assert abs(count - share * len(numbers)) < 1
    with pytest.raises(ConfigError, match="stratify_by"):
        made(lab, path=path, split="stratified", **given)


# Batches


@row.changes("data.batch_size", "the most records in a batch")
def _(lab):
    for size in (4, 100):
        data = molecules(lab, split="random", batch_size=size)
        sizes = [batch.num_graphs for batch in data.loader("train", [Up()])]
        assert sizes == [size] * (24 // size) + [24 % size] * (24 % size > 0)


@row.changes("data.max_nodes", "the most nodes in a batch, unless one record alone has more")
def _(lab):
    data = molecules(lab, split="random", max_nodes=7)
    batches = list(data.loader("train", [Up()]))
    assert sum(batch.num_graphs for batch in batches) == 24
    assert all(b.dag.num_nodes <= 7 or b.num_graphs == 1 for b in batches)
    assert max(b.num_graphs for b in batches) > 1


@row.nothing(
    ["data.batch_size", "data.max_nodes", "data.policy", "data.share"],
    "predictions and scores of a trained model stay the same to 1e-6, however they are batched",
)
def _(lab):
    run = lab.run("trees")
    items = (lab.folder / "trees.txt").read_text().splitlines()
    expected = _probabilities(run.predict(items))
    for setting in (
        {"batch_size": 2},
        {"max_nodes": 30},
        {"share": False},
        {"share": True},
        *({"policy": policy} for policy in POLICIES),
    ):
        found = _probabilities(run.predict(items, **setting))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


class Operators(Adapter):
    """Operators in postfix notation, each of a type of its own."""

    def __init__(self) -> None:
        types = (NodeType("scan", 0), NodeType("sort", 1), NodeType("join", 2))
        self.schema = Schema(types, graph_targets=(Column("cost"),))

    def records(self, path: Path) -> Iterator[Record]:
        lines = path.read_text().splitlines()
        return (Record(number, line) for number, line in enumerate(lines, 1))

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        stack: list[int] = []
        arity = {node_type.name: node_type.arity for node_type in self.schema.types}
        for name in record.content.split():
            inputs = [stack.pop() for _ in range(arity[name])]
            stack.append(graph.node(name, inputs))
        graph.output(*stack)
        graph.finish(line=record.line, cost=1.0)


@row.changes("data.policy", "which nodes run together")
def _(lab):
    text = "scan scan join sort\nscan sort scan join\n"
    path = {part: lab.write(f"policy/{part}.txt", text) for part in ("train", "val", "test")}
    calls = {}
    for policy in POLICIES:
        data = made(lab, policy=policy, adapter="effects.data_options.Operators", path=path)
        (batch,) = data.loader("test", [Up()])
        calls[policy] = batch.schedule.report([Up()]).total.launches
    assert calls == {"depth": 5, "agenda": 4, "critical_path": 4, "one_by_one": 8}


@row.changes("data.share", "auto: where that changes nothing; true or false: always, or never")
def _(lab):
    place = "graphfold.loader.plan_batch"
    for share, dropout, wanted in (
        ("auto", 0.3, {False, True}),  # in training it draws, and in evaluation it does not
        ("auto", 0.0, {True}),
        ("true", 0.0, {True}),
        ("false", 0.0, {False}),
    ):
        with mock.patch(place, wraps=plan_batch) as plan:
            lab.run_anew("trees", f"model.dropout={dropout}", f"data.share={share}")
        assert {call.args[4] for call in plan.call_args_list} == wanted
    words = [*lab.base("trees"), "model.dropout=0.3", "data.share=true"]
    code, _, errors = lab.command("train", *words, f"hydra.run.dir={lab.folder}/shared")
    assert (code, "drew random numbers" in errors) == (2, True)


@row.changes("data.share", "true: equal nodes of a batch are computed once")
def _(lab):
    data = trees(lab)
    sizes = {
        share: sum(b.schedule.passes[0].num_rows for b in data.loader("train", [Up()], share=share))
        for share in (False, True)
    }
    assert sizes[True] < sizes[False]


@row.nothing("data.shapes", "static: padded batches make the same step, and few shapes")
def _(lab):
    step = (*("optimizer=sgd", "optimizer.lr=0.1"), "data.batch_size=8")
    free, static = (lab.run("molecules", *step, f"data.shapes={s}") for s in ("free", "static"))
    for name, value in static.weights().items():
        torch.testing.assert_close(value, free.weights()[name], rtol=1e-4, atol=1e-5)
    assert re.search(r"static shapes: \d of 3 batches fill one of 12 sizes", static.printed)
    assert "static shapes" not in free.printed
    loader = lab.data("molecules", *step, "data.shapes=static").loader("train", [Rounds("bond", 1)])
    assert len({batch.dag.num_nodes for batch in loader}) <= len(loader.dataset.padding.sizes)
    for other in ("policy=agenda", "share=true"):
        with pytest.raises(ConfigError, match=r"data\.shapes=static fills the levels"):
            lab.data("trees", "data.shapes=static", f"data.{other}")


# Words


@row.changes("data.min_count", "words that are rarer in the training part are unknown")
def _(lab):
    rare = "(1 (1 rare) (1 film))\n" + "(1 (1 film) (1 good))\n" * 9
    path = {p: lab.write(f"rare/{p}.txt", rare) for p in ("train", "val", "test")}
    assert known(trees(lab, path=path)) == {"rare", "film", "good"}
    assert known(trees(lab, path=path, min_count=2)) == {"film", "good"}


@row.changes("data.max_vocabulary", "only so many words are known, the most frequent ones")
def _(lab):
    text = "(1 (1 a) (1 b))\n(1 (1 a) (1 c))\n(1 (1 a) (1 c))\n"
    path = {p: lab.write(f"most/{p}.txt", text) for p in ("train", "val", "test")}
    assert known(trees(lab, path=path, max_vocabulary=2)) == {"a", "c"}


@row.changes("data.lowercase", "words are counted and looked up in lower case")
def _(lab):
    path = {
        p: lab.write(f"case/{p}.txt", "(1 (1 Film) (1 film))\n") for p in ("train", "val", "test")
    }
    data = trees(lab, path=path)
    lower = trees(lab, path=path, lowercase=True)
    assert (known(data), known(lower)) == ({"Film", "film"}, {"film"})
    assert len(set(lower.encoded().features("word")["form"].tolist())) == 1


@row.changes("data.features_from", "graphs, nodes and edges have these features, scaled")
def _(lab):
    data = molecules(lab, features_from={"graph": ["z"]})
    assert [column.name for column in data.raw.schema.graph_inputs] == ["z"]
    scaled = data.encoded("train").graph_column("z")
    torch.testing.assert_close(scaled.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.std(correction=0), torch.tensor(1.0))


@row.changes("data.characters", "beginning, end and shape of a word are features, too")
def _(lab):
    columns = [
        [c.name for c in trees(lab, characters=value).encoded().schema.types[0].features]
        for value in (False, True)
    ]
    assert columns[0] == ["form"]
    assert len(columns[1]) == 2
    codes = trees(lab, characters=True).encoded().features("word")[columns[1][1]]
    by_word = dict(zip(words(trees(lab)), map(str, codes.tolist()), strict=True))
    assert by_word["bad"] != by_word["bright"]


@row.changes("data.vectors", "embeddings begin with these vectors, and words of the file are known")
def _(lab, tmp_path):
    path = tmp_path / "v.txt"
    vectors = {word: [float(i), 1.0, -float(i)] for i, word in enumerate(WORDS)}
    path.write_text("".join(f"{w} {a} {b} {c}\n" for w, (a, b, c) in vectors.items()))
    loop = lab.loop("trees", f"data.vectors={path}")
    data = lab.data("trees", f"data.vectors={path}")
    (vocabulary,) = data.spec.vocabularies.values()
    table = loop.model.encoder.encoders["word"].table.detach()
    for word, embedding in zip(("", *vocabulary.words), table, strict=False):
        if word in vectors:
            assert embedding.tolist() == vectors[word]
    assert {*vectors} & {*words(data)} <= {*vocabulary.words}


def known(data: DataModule) -> set[str]:
    """The words that a model is to know."""
    return {*data.spec.vocabularies["type:word", "form"].words}


def last_is_test(records, settings):
    """A split of one's own."""
    from graphfold.datasets.splits.split import Split

    numbers = torch.arange(len(records))
    return Split(numbers[:-2], numbers[-2:-1], numbers[-1:], "own")


def _numbers(loader) -> list[list[int]]:
    """The targets of the records of each batch, which tell them apart."""
    return [batch.dag.graph_column("y").tolist() for batch in loader]


def _probabilities(predictions) -> torch.Tensor:
    """[num_nodes, num_classes] of all trees."""
    return torch.tensor(
        [[*node["probabilities"].values()] for p in predictions for node in p["nodes"]]
    )
