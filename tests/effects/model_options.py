"""Options of whole models: what they change in weights, states and predictions.

Models are built from their configs over tiny data, and mostly not trained.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from effects import walk
from effects.lab import Lab, read
from effects.table import Rows
from omegaconf import OmegaConf
from torch import Tensor
from training.run.test_chemprop_encoder import GOLDEN

from graphfold.batching import Batch, Down, Rounds, Up
from graphfold.batching.reference import ReferenceRun
from graphfold.batching.run import find_compiled
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError
from graphfold.layers import Model
from graphfold.training.config.build_model import (
    build_model,
    complete_model_config,
    count_roots,
    decide,
)
from graphfold.training.config.folder import config_folder
from graphfold.training.run.chemprop_encoder import take_encoder
from graphfold.training.run.initial_weights import make_model

ROWS = row = Rows()

same = torch.testing.assert_close

#: Models of molecules, of sentences with heads, and of others that need data of their own; all
#: others read trees.
MOLECULES = (
    *("attentive_fp", "bag", "block_neighbourhood", "dmpnn"),
    *("fingerprint", "fragments", "gat", "gatv2", "gcn", "ggnn", "gin", "gine"),
    *("mpnn", "pna", "weave"),
)
SENTENCES = (
    *("inside_outside", "relation_tree_lstm", "sequence_child_sum_tree_lstm", "word_tree_lstm"),
)
OTHERS = {"aligned_tree_lstm": "pairs"}

Changes = Mapping[str, Any]


def data_of(lab: Lab, model: str, needs: Changes) -> DataModule:
    """Data that a model can read, with the options that it needs."""
    kind = OTHERS.get(model) or ("molecules" if model in MOLECULES else "trees")
    kind = "sentences" if model in SENTENCES else kind
    given: dict[str, Any] = {
        "molecules": {"adapter": "smiles", "path": "molecules.csv", "target_columns": ["y"]},
        "trees": {"adapter": "brackets", "path": "trees.txt", "num_classes": 5, "binarize": True},
        "sentences": {"adapter": "conllu", "path": "words.conllu"},
        "pairs": {"corpus": "sick", "root": lab.corpora},
    }[kind]
    if "path" in given:
        given["path"] = lab.folder / given["path"]
    return lab.made(**given, **needs)


def config_of(model: str, **changes: Any) -> dict[str, Any]:
    """The config of a model as its file has it, with other values of some dotted keys."""
    loaded = OmegaConf.load(config_folder() / "model" / f"{model}.yaml")
    if "defaults" in loaded:
        del loaded["defaults"]
    whole = OmegaConf.create({"model": loaded, "trainer": {"max_epochs": 1}})
    for key, value in changes.items():
        OmegaConf.update(whole.model, key, value, force_add=True)
    found = OmegaConf.to_container(whole.model, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


class Made:
    """A model that is built from its config, always with the same draws.

    Args:
        lab: has the data.
        name: of the config.
        data: options of the data, beside those that the model needs.
        **changes: dotted keys of the config, with __ for dots.
    """

    def __init__(self, lab: Lab, name: str, data: Changes | None = None, **changes: Any) -> None:
        keys = {key.replace("__", "."): value for key, value in changes.items()}
        config = config_of(name, **keys)
        if "run" in config and "run" not in keys:
            config["run"] = "eager"  # to compile takes longer than all else
        needs = {**config.get("needs_data", {}), **(data or {})}
        self.data = data_of(lab, name, needs)
        self.lab = lab
        schema = self.data.spec.schema
        torch.manual_seed(2)
        self.config = complete_model_config(
            config,
            schema,
            count_roots(self.data),
            lambda: self.data.encoded("train"),
        )
        self.model: Model = build_model(self.config, schema, self.data.spec.scalers)

    def batch(self) -> Batch:
        """All records of the test part."""
        (batch,) = self.data.loader(
            "test", self.model.passes, share=False, lowering=self.model.lowering
        )
        return batch

    def predict(self, training: bool = False, draw: int = 0) -> Tensor:
        """The raw outputs of the head."""
        torch.manual_seed(draw)
        with torch.no_grad():
            found: Tensor = self.model.train(training)(self.batch())
        return found


@row.changes(
    ["data.features_from", "smiles.descriptors"],
    "the head reads them, beside the states of atoms",
)
def _(lab, option):
    options, name = {
        "data.features_from": ({"features_from": {"graph": ["z"]}}, "z"),
        "smiles.descriptors": ({"descriptors": ["torsions"], "fingerprint_size": 64}, "torsions"),
    }[option]
    made = Made(lab, "gcn", options, hidden_size=8)
    batch = made.batch()
    with torch.no_grad():
        before = made.model.eval()(batch)
        batch.dag.columns["graph"][name][0] += 1  # of one molecule alone
        after = made.model(batch)
    changed = (before != after).any(1).tolist()
    assert changed == [True] + [False] * (len(changed) - 1)
    assert len(changed) > 1


# What all models have


def shared(*names: str) -> list[str]:
    """The ids of keys that the parts of models share."""
    return sorted(
        name
        for name in walk.options()
        if name.startswith("model/") and name.rpartition(".")[2] in names
    )


def model_of(option: str) -> str:
    return option.partition("/")[2].rpartition(".")[0]


def widths(model: Model) -> set[int]:
    return {size for parameter in model.parameters() for size in parameter.shape}


#: Option -> the model that has it, and its key there.
WIDTHS = {
    **{option: (model_of(option), "hidden_size") for option in shared("hidden_size")},
    "tree_lstm.hidden_size": ("block_tree_lstm", "root__hidden_size"),
    "neighbourhood.hidden_size": ("block_neighbourhood", "root__hidden_size"),
}
DROPOUTS = {
    **{option: (model_of(option), "dropout") for option in shared("dropout")},
    "FeatureEncoder.dropout": ("tree_rnn", "encoder__dropout"),
    "tree_lstm.dropout": ("block_tree_lstm", "root__dropout"),
}


@row.changes([*WIDTHS], "the width of states, in all parts of the model")
def _(lab, option):
    name, key = WIDTHS[option]
    for width in (44, 52):
        assert {44, 52} & widths(Made(lab, name, **{key: width}).model) == {width}


@row.changes([*DROPOUTS], "in training, and only there, entries are dropped at random")
def _(lab, option):
    name, key = DROPOUTS[option]
    plain, dropping = (Made(lab, name, **{"hidden_size": 8, key: p}) for p in (0.0, 0.5))
    assert torch.equal(plain.predict(), dropping.predict())
    assert torch.equal(plain.predict(True, draw=0), plain.predict(True, draw=1))
    assert torch.equal(dropping.predict(True, draw=0), dropping.predict(True, draw=0))
    assert not torch.allclose(dropping.predict(True, draw=0), dropping.predict(True, draw=1))


@row.changes(shared("depth"), "the rounds of messages over bonds, or the depth of trees of blocks")
def _(lab, option):
    name = model_of(option)
    two, three = (Made(lab, name, hidden_size=8, depth=n) for n in (2, 3))
    if name != "block_neighbourhood":  # its trees are as deep
        rounds = [sum(getattr(p, "rounds", 0) for p in made.model.passes) for made in (two, three)]
        assert rounds == [2, 3]
    if name != "dmpnn":  # no path of the test molecules has three bonds, and messages never go back
        assert not torch.allclose(two.predict(), three.predict())


@row.changes(shared("layers"), "so many passes, each over the h of the one before")
def _(lab, option):
    one, two = (Made(lab, model_of(option), hidden_size=8, layers=n).model for n in (1, 2))
    assert [len(one.passes), len(two.passes)] == [1, 2]
    assert sum(p.numel() for p in two.parameters()) > sum(p.numel() for p in one.parameters())
    made = Made(lab, model_of(option), hidden_size=8, layers=2)
    before = made.predict()
    with torch.no_grad():  # the first layer reaches the head by way of the second one alone
        for name, weight in made.model.network.named_parameters():
            if name.startswith("passes.0.") or ".0.word" in name:
                weight.add_(0.5)
    assert not torch.allclose(before, made.predict())


NEEDS = shared("needs_data")


@row.changes(NEEDS, "the data get these options; another value is refused")
def _(lab, option):
    name = model_of(option)
    base = {"aligned_tree_lstm": "pairs", "inside_outside": "sentences"}.get(name, "molecules")
    base = "trees" if name == "sequence_tree_lstm" else base
    needs = config_of(name)["needs_data"]
    words = [w for w in lab.base(base) if not w.startswith("model")]
    config = lab.compose([*words, f"model={name}"])
    for key, value in needs.items():
        assert config.data[key] == value
        other = "none" if isinstance(value, str) else str(not value).lower()
        with pytest.raises(ConfigError, match=f"needs data.{key}"):
            lab.compose([*words, f"model={name}", f"++data.{key}={other}"])


@row.changes("model/dmpnn.encoder_from", "encoder and cells begin with the weights of that file")
def _(lab, tmp_path):
    width = GOLDEN["hyper_parameters"]["d_h"]
    state = {
        "W_i.weight": torch.randn(width, 72 + 14),
        "W_h.weight": torch.randn(width, width),
        "W_o.weight": torch.randn(width, 72 + width),
        "W_o.bias": torch.randn(width),
    }
    options = {**GOLDEN["hyper_parameters"], "d_v": 72, "d_e": 14, "depth": 3}
    path = tmp_path / "encoder.pt"
    torch.save({"hyper_parameters": options, "state_dict": state}, path)
    words = [f"data.path={lab.folder}/molecules.csv", "data.target_columns=[y]"]
    config = lab.compose(
        [
            *("data=smiles", "model=dmpnn", *words, "data.features=chemprop-v2"),
            *(f"model.hidden_size={width}", f"model.encoder_from={path}"),
        ]
    )
    data = lab.made(**config.data)
    model = make_model(decide(config, data), data)
    assert not has(model, state["W_h.weight"])
    assert "weights" in take_encoder(model, Path(str(config.model["encoder_from"])))
    assert has(model, state["W_h.weight"])


def has(model: Model, weight: Tensor) -> bool:
    """Whether a model has this very weight."""
    return any(torch.equal(own, weight) for own in model.parameters())


@row.changes(shared("level"), "a row of the head is a graph or a node")
def _(lab, option):
    name = model_of(option)
    levels = ("graph",) if name == "block_neighbourhood" else ("node", "auto")
    for level in levels:
        made = Made(lab, name, hidden_size=8, level=level)
        rows = made.batch().dag.num_graphs if level == "graph" else made.batch().dag.num_nodes
        assert len(made.predict()) == rows
    with pytest.raises(ConfigError):
        Made(lab, name, hidden_size=8, level="node" if levels == ("graph",) else "graph")


# Graph models


HAS_SCATTER = importlib.util.find_spec("torch_scatter") is not None
#: Option -> values that compute the same, and a value that is refused.
WAYS: dict[str, tuple[tuple[Any, ...], str | None]] = {
    "run": (("auto", "compiled", "eager", "reference"), "quick"),
    "backend": (("auto", "torch", *(["scatter"] if HAS_SCATTER else [])), "quick"),
}


@row.nothing(
    [f"{model}.{name}" for model in ("GraphModel", "BlockModel") for name in WAYS],
    "however cells are run, numbers and gradients are the same to 1e-5; other ways are refused",
)
def _(lab, option):
    kind, _, name = option.partition(".")
    model = {"GraphModel": "child_sum_tree_lstm", "BlockModel": "block_tree_lstm"}[kind]
    (first, *others), wrong = WAYS[name]
    found = {}
    for value in (first, *others):
        made = Made(lab, model, **{"hidden_size": 8, "run": "auto", name: value})
        batch, head = made.batch(), made.model.head
        with (
            mock.patch("graphfold.batching.run.find_compiled", wraps=find_compiled) as compiled,
            mock.patch("graphfold.batching.network.ReferenceRun", wraps=ReferenceRun) as one_by_one,
        ):
            raw = made.model.eval()(batch)
        if name == "run":
            assert (compiled.called, one_by_one.called) == (
                value != "reference",
                value == "reference",
            )
        head.losses(raw, head.target_rows(batch.dag)).sum().backward()
        gradients = [p.grad for p in made.model.parameters() if p.grad is not None]
        found[value] = torch.cat([raw.detach().view(-1), *(g.view(-1) for g in gradients)]).float()
    for value in others:
        same(found[first], found[value], rtol=1e-4, atol=1e-5)
    if wrong is not None:
        with pytest.raises(ConfigError, match=wrong):
            Made(lab, model, **{"hidden_size": 8, name: wrong}).predict()


@row.changes(["GraphModel.run", "GraphModel.backend"], "what the network tells of its cells")
def _(lab):
    for run, backend, is_compiled in (("compiled", "torch", True), ("eager", "auto", False)):
        made = Made(lab, "binary_tree_lstm", hidden_size=8, run=run, backend=backend)
        made.predict()
        ways = {*made.model.network.execution.values()}
        assert (ways == {"compiled (torch)"}) == is_compiled


def encoded(made: Made, name: str, text: str, **options: Any) -> Batch:
    """A planned batch of other records, encoded for the model."""
    path = made.lab.write(f"others/{name}", text)
    adapter = made.data.source.spec.name
    return made.model.plan(made.data.spec.encode(read(path, adapter, **options).dag))


@row.changes("GraphModel.learned_absent", "an absent child has a learned state instead of zeros")
def _(lab):
    plain, learned = (
        Made(lab, "binary_tree_lstm", hidden_size=8, learned_absent=fields)
        for fields in ([], ["h", "c"])
    )
    more = {*dict(learned.model.named_parameters())} - {*dict(plain.model.named_parameters())}
    assert len(more) == 2
    assert all("absent" in name for name in more)
    # The root has one child; the zeros that stand for the other one are learned.
    text, options = "(1 (1 (1 a) (1 film)))\n", {"num_classes": 5, "binarize": True}
    batch = encoded(learned, "absent.txt", text, **options)
    assert batch.dag.num_nodes == 4
    found = []
    for value in (0.0, 1.0):
        torch.nn.init.constant_(learned.model.network.absent["h"], value)
        found.append(learned.model(batch))
    same(found[0][:-1], found[1][:-1])
    assert not torch.allclose(found[0][-1], found[1][-1])


@row.changes("GraphModel.per_round_weights", "every round of message passing has its own weights")
def _(lab):
    names = [
        {
            name
            for name, _ in Made(
                lab, "gcn", hidden_size=8, per_round_weights=v
            ).model.network.named_parameters()
        }
        for v in (False, True)
    ]
    assert len(names[1]) == 3 * len(names[0])
    made = Made(lab, "gcn", hidden_size=8, per_round_weights=True)
    found = [made.predict()]
    for cell in made.model.network.cells[0]["atom"]:
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.mul_(1.5)
        found.append(made.predict())
    assert len(found) == 4
    assert not any(torch.allclose(a, b) for a, b in pairwise(found))


def reached(made: Made, smiles: str) -> list[bool]:
    """Of each atom, whether the state of the first one depends on its features."""
    batch = encoded(made, "chain.csv", f"smiles,y\n{smiles},1\n", target_columns=["y"])
    computed = batch.computed
    x = made.model.encoder(computed.dag, computed.schedule.sources)
    x["atom"] = x["atom"].detach().requires_grad_()
    made.model.eval().states_from(batch, x)["h"][0].square().sum().backward()
    return x["atom"].grad.abs().sum(1).gt(0).tolist()


@row.changes("GraphModel.virtual_node", "a node that is joined with all others of its graph")
def _(lab):
    plain, joined = (
        Made(lab, "gcn", hidden_size=8, virtual_node=relation) for relation in (None, "bond")
    )
    batch = joined.batch()
    assert batch.computed.dag.num_nodes == batch.dag.num_nodes + batch.num_graphs
    assert joined.predict().shape == plain.predict().shape
    assert plain.batch().computed.dag.num_nodes == batch.dag.num_nodes
    near, far = [True] * 4 + [False] * 4, [True] * 8
    assert [reached(made, "CCOCCCNC") for made in (plain, joined)] == [near, far]


@row.changes("GraphModel.pairs", "nodes for every two nodes that a short path joins")
def _(lab):
    counts = []
    for distance in (1, 2):
        batch = Made(lab, "weave", hidden_size=8, pairs={"relation": "bond", "distance": distance})
        counts.append(batch.batch().computed.dag.num_nodes_by_type[-1])
    dag = batch.batch().dag
    assert counts[0] == len(dag.relations["bond"].index) // 2 < counts[1]
    for distance in (1, 3):
        pairs = {"relation": "bond", "distance": distance}
        made = Made(lab, "weave", hidden_size=8, depth=2, pairs=pairs)  # to the pair, and back
        assert reached(made, "CCOCCCNC") == [place <= distance for place in range(8)]


@row.changes("GraphModel.passes", "what is done with the graphs, in order")
def _(lab):
    made = Made(lab, "bidirectional_tree_lstm", hidden_size=8)
    assert made.model.passes == (Up(), Down())


@row.changes("Rounds.rounds", "how many rounds: how far a change is seen")
def _(lab):
    for rounds in (1, 2, 4):
        passes = [{"_target_": "graphfold.batching.Rounds", "relation": "bond", "rounds": rounds}]
        made = Made(
            lab,
            "gcn",
            hidden_size=8,
            passes=passes,
            readout___target_="graphfold.layers.SumReadout",
        )
        assert made.model.passes == (Rounds("bond", rounds),)
        assert reached(made, "CCOCCCNC") == [distance <= rounds for distance in range(8)]


@row.changes("Rounds.relation", "the edges along which messages go")
def _(lab):
    passes = [{"_target_": "graphfold.batching.Rounds", "relation": "none", "rounds": 1}]
    with pytest.raises(ConfigError, match="no relation 'none'"):
        Made(lab, "gcn", hidden_size=8, passes=passes)


@row.changes(["Up.edges", "Down.edges"], "the edges that lead up or down: inputs, or a relation")
def _(lab, option):
    kind = option.partition(".")[0]
    cells = config_of("child_sum_tree_lstm", hidden_size=8)["cells"]
    upper = [{k: {**c, "own": ["h"]} for k, c in cells[0].items()}]
    found = []
    for edges in ("inputs", "next"):
        passes = [
            {"_target_": "graphfold.batching.Up"},
            {"_target_": f"graphfold.batching.{kind}", "edges": edges},
        ]
        parts = {"passes": passes, "cells": [*cells, *upper]}
        made = Made(lab, "child_sum_tree_lstm", {"sequence": True}, hidden_size=8, **parts)
        found.append(made.predict())
    assert not torch.allclose(*found)


GIN = {"_target_": "graphfold.layers.GINCell", "_partial_": True, "hidden_size": 8}
#: Part -> its model, a key of it with another class, and the class.
PARTS = {
    "GraphModel.cells": ("gcn", "cells", [{"atom": GIN}], "GINCell"),
    "GraphModel.readout": (
        *("gcn", "readout___target_", "graphfold.layers.MaxReadout", "MaxReadout"),
    ),
    "GraphModel.head": ("gcn", "head___target_", "graphfold.layers.QuantileHead", "QuantileHead"),
    "BlockModel.head": (
        *("block_neighbourhood", "head___target_", "graphfold.layers.QuantileHead", "QuantileHead"),
    ),
}


@row.changes([*PARTS], "the class that is named is the part of the model")
def _(lab, option):
    name, key, value, kind = PARTS[option]
    plain, other = (Made(lab, name, hidden_size=8, **more).model for more in ({}, {key: value}))
    kinds = [{type(module).__name__ for module in model.modules()} for model in (plain, other)]
    assert [kind in found for found in kinds] == [False, True]


@row.changes(["GraphModel.encoder", "FeatureEncoder.size"], "the width of the features of a node")
def _(lab):
    for size in (5, 9):
        made = Made(lab, "mv_rnn", hidden_size=8, encoder__size=size)
        assert made.model.encoder.widths["word"] == size


@row.changes("FeatureEncoder.features", "the columns of each type that are read")
def _(lab):
    whole = Made(lab, "gcn", hidden_size=8)
    one = Made(lab, "gcn", hidden_size=8, encoder__features={"atom": ["element"]})
    sizes = [m.model.encoder.encoders["atom"].state_dict() for m in (whole, one)]
    assert sum(v.numel() for v in sizes[1].values()) < sum(v.numel() for v in sizes[0].values())
    dag = one.batch().dag
    before = one.predict()
    for name, column in dag.columns["type:atom"].items():
        if name != "element":
            column.zero_()
    encoded = [one.model.encoder(d)["atom"] for d in (dag, one.batch().dag)]
    assert torch.equal(encoded[0], encoded[1])
    assert before.shape == one.predict().shape
    with pytest.raises(ConfigError, match="which type 'atom' lacks"):
        Made(lab, "gcn", hidden_size=8, encoder__features={"atom": ["colour"]})


# Models of blocks


@row.changes("BlockModel.root", "the function that makes the root block")
def _(lab):
    names = [
        {*dict(Made(lab, f"block_{root}", hidden_size=8).model.named_parameters())}
        for root in ("tree_lstm", "neighbourhood")
    ]
    assert names[0] != names[1]


@row.changes("neighbourhood.radius", "how far away atoms are seen")
def _(lab):
    found = [
        Made(lab, "block_neighbourhood", hidden_size=8, root__radius=radius).predict()
        for radius in (1, 2)
    ]
    assert not torch.allclose(*found)


@row.changes("neighbourhood.relation", "the edges along which neighbours are looked for")
def _(lab):
    with pytest.raises(Exception, match="absent"):
        Made(lab, "block_neighbourhood", hidden_size=8, root__relation="absent")
