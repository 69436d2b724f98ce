"""Weights out of chemprop's own file: the states of the atoms are chemprop's.

The numbers in chemprop_encoder.json are those of chemprop 2.3.1; scripts/make_chemprop_encoder.py
makes them again.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from enum import Enum
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from training.tiny_runs import run, write_molecules

from graphfold.batching import Rounds
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import CheckpointError, ConfigError
from graphfold.layers import (
    DMPNNAtomCell,
    DMPNNBondCell,
    FeatureEncoder,
    GraphModel,
    MeanReadout,
    RegressionHead,
)
from graphfold.training.run.chemprop_encoder import take_encoder

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "chemprop_encoder.json").read_text())

#: Features in two columns each, so that their order matters.
ATOM = (Column("first", "float32", (3,)), Column("second", "float32"))
BOND = (Column("order", "float32", (2,)), Column("ring", "float32"))
SOURCE = (Column("source_first", "float32", (3,)), Column("source_second", "float32"))
SCHEMA = Schema(
    types=(NodeType("atom", 0, ATOM), NodeType("bond", 0, (*BOND, *SOURCE))),
    relations=(EdgeType("continues"), EdgeType("arrives")),
    graph_targets=(Column("y", "float32"),),
)


def content(**changes: Any) -> dict[str, Any]:
    state = {name: torch.tensor(value) for name, value in GOLDEN["state_dict"].items()}
    options = {**GOLDEN["hyper_parameters"], **changes.pop("options", {})}
    return {"hyper_parameters": options, "state_dict": {**state, **changes}}


def save(path: Path, **changes: Any) -> Path:
    torch.save(content(**changes), path)
    return path


def model(width: int = 5, rounds: int = 3, schema: Schema = SCHEMA, **options: Any) -> GraphModel:
    return GraphModel(
        schema,
        encoder=partial(FeatureEncoder, size=width),
        passes=[Rounds("continues", rounds), Rounds("arrives", 1)],
        cells=[
            {"bond": partial(DMPNNBondCell, hidden_size=width, **options)},
            {"atom": partial(DMPNNAtomCell, hidden_size=width)},
        ],
        readout=MeanReadout,
        head=RegressionHead,
    )


def graph() -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    atoms = GOLDEN["atom_features"]
    features = {"first": [row[:3] for row in atoms], "second": [row[3] for row in atoms]}
    builder.nodes("atom", len(atoms), **features)
    twice = [row for row in GOLDEN["bond_features"] for _ in range(2)]
    bonds = {"order": [row[:2] for row in twice], "ring": [row[2] for row in twice]}
    ends = [pair for a, b in GOLDEN["bonds"] for pair in ((a, b), (b, a))]
    sources, targets = zip(*ends, strict=True)
    of_sources = {f"source_{name}": [rows[a] for a in sources] for name, rows in features.items()}
    first = builder.nodes("bond", len(ends), **bonds, **of_sources).start
    pairs = [
        (first + before, first + after)
        for after, source in enumerate(sources)
        for before, target in enumerate(targets)
        if source == target and before != after ^ 1
    ]
    builder.edges("continues", *zip(*pairs, strict=True))
    builder.edges("arrives", range(first, first + len(ends)), targets)
    builder.output(*range(len(atoms)))
    builder.finish(columns={"y": 0.0})
    return builder.build()


@pytest.mark.parametrize("prefix", ["", "message_passing."])
def test_the_states_of_atoms_are_those_of_chemprop(tmp_path: Path, prefix: str) -> None:
    ours, dag = model(), graph()
    stored = content()
    state = {f"{prefix}{name}": value for name, value in stored["state_dict"].items()}
    torch.save(
        {**stored, "state_dict": {**state, "predictor.x": torch.zeros(1)}}, tmp_path / "mp.pt"
    )
    said = take_encoder(ours, tmp_path / "mp.pt")
    count = sum(value.numel() for value in stored["state_dict"].values())
    assert said.startswith(f"encoder_from: {count} weights of encoder and cells taken")
    with torch.no_grad():
        states = ours.states(ours.plan(dag))["h"][: len(GOLDEN["states"])]
    torch.testing.assert_close(states, torch.tensor(GOLDEN["states"]), rtol=1e-5, atol=1e-6)


def test_all_misfits_are_reported_together(tmp_path: Path) -> None:
    path = save(tmp_path / "mp.pt", options={"depth": 6, "activation": "tanh"})
    with pytest.raises(ConfigError) as error:
        take_encoder(model(width=7, bias=True), path)
    for said in (
        "Its width is 5, not 7: set model.hidden_size=5.",
        "Its depth is 6, not 4: set model.depth=6.",
        "Its activation is tanh",
        "Its messages have no bias",
    ):
        assert said in error.value.message
    narrow = content()["state_dict"]["W_i.weight"][:, :6]
    save(path, **{"W_i.weight": narrow})
    with pytest.raises(
        ConfigError, match="4 numbers of an atom and 2 of a bond, but the data have"
    ):
        take_encoder(model(), path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mp.pt"
    with pytest.raises(CheckpointError, match="cannot be read"):
        take_encoder(model(), path)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="more than tensors, plain values and classes"):
        take_encoder(model(), path)
    torch.save({**content(), "cls": Path}, path)
    with pytest.raises(CheckpointError, match="without other classes"):
        take_encoder(model(), path)
    torch.save({"weights": 1}, path)
    with pytest.raises(CheckpointError, match="has no 'state_dict'"):
        take_encoder(model(), path)
    torch.save({"state_dict": {"W_i.weight": torch.zeros(1)}}, path)
    with pytest.raises(CheckpointError, match="has no weights W_h.weight, W_o.weight, W_o.bias"):
        take_encoder(model(), path)
    save(path, **{"W_i.bias": torch.zeros(5)}, options={"undirected": True})
    with pytest.raises(CheckpointError, match=r"has W_i\.bias, undirected=True, which a D-MPNN"):
        take_encoder(model(), path)


def test_wrong_models_and_features_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, table = save(tmp_path / "mp.pt"), write_molecules(tmp_path / "m.csv")
    data = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "logger=none"]
    settings = [*data, f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path}/run"]
    words = [*settings, "model=dmpnn", f"model.encoder_from={path}"]
    assert run("train", *words) == 2
    assert "Set data.features=chemprop-v2." in capsys.readouterr().err
    assert run("train", *settings, "model=gcn", f"+model.encoder_from={path}") == 2
    assert "the model has no DMPNNBondCell" in capsys.readouterr().err
    assert run("train", *words, f"init_from={tmp_path}") == 2
    assert "init_from and model.encoder_from both give the weights" in capsys.readouterr().err
    assert run("train", *words, "model.encoder_from=3") == 2
    assert (
        "model.encoder_from is 3, but it must be a path on this machine" in capsys.readouterr().err
    )


@pytest.fixture
def chemprop(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand-ins for the classes of chemprop that its files name; only pickling finds them."""
    kinds = {
        "BondMessagePassing": "message_passing.base",
        "AtomMessagePassing": "message_passing.base",
    }
    kinds |= {"MeanAggregation": "agg", "RegressionFFN": "predictors"}
    kinds |= {"GraphTransform": "transforms"}
    stand_ins: dict[str, Any] = {
        name: type(name, (), {"__module__": f"chemprop.nn.{place}"})
        for name, place in kinds.items()
    }
    home = "lightning.fabric.utilities.data"
    stand_ins["AttributeDict"] = type("AttributeDict", (dict,), {"__module__": home})
    stand_ins["Activation"] = Enum(
        "Activation", {"RELU": "relu", "TANH": "tanh"}, module="chemprop.nn.utils", type=str
    )
    places = {"chemprop", "chemprop.nn", "chemprop.nn.message_passing"}
    places |= {home.rpartition(".")[0], "lightning", "lightning.fabric"}
    modules = {
        name: ModuleType(name) for name in places | {m.__module__ for m in stand_ins.values()}
    }
    for name, made in stand_ins.items():
        setattr(modules[made.__module__], name, made)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return stand_ins


def files_of_chemprop(folder: Path, classes: dict[str, Any], **options: Any) -> list[Path]:
    """Message passing alone, a whole model, and a checkpoint of its trainer, as chemprop 2.3.1."""
    attributes = classes["AttributeDict"]
    plain = content()
    own = {
        **plain["hyper_parameters"],
        "dropout": 0.0,
        "d_vd": None,
        "V_d_transform": None,
        "graph_transform": None,
        "activation": classes["Activation"].RELU,
        "cls": classes["BondMessagePassing"],
    }
    alone = {
        "hyper_parameters": attributes({**own, **options}),
        "state_dict": OrderedDict(plain["state_dict"]),
    }
    parts = {
        "message_passing": alone["hyper_parameters"],
        "agg": attributes({"dim": 0, "cls": classes["MeanAggregation"]}),
        "predictor": attributes({"n_tasks": 1, "cls": classes["RegressionFFN"]}),
    }
    state = OrderedDict({f"message_passing.{k}": v for k, v in plain["state_dict"].items()})
    whole = {"hyper_parameters": parts, "state_dict": state}
    trainer = {"epoch": 1, "pytorch-lightning_version": "2.5", "callbacks": {}, "loops": {}}
    contents = {"mp.pt": alone, "model.pt": whole, "last.ckpt": {**whole, **trainer}}
    for name, saved in contents.items():
        torch.save(saved, folder / name)
    return [folder / name for name in contents]


def test_files_that_chemprop_wrote_are_read_without_chemprop(
    tmp_path: Path, chemprop: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files_of_chemprop(tmp_path, chemprop)
    for name in [name for name in sys.modules if name.partition(".")[0] == "chemprop"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "chemprop", None)  # an import would fail
    dag, expected = graph(), torch.tensor(GOLDEN["states"])
    for path in paths:
        ours = model()
        take_encoder(ours, path)
        with torch.no_grad():
            states = ours.states(ours.plan(dag))["h"][: len(expected)]
        torch.testing.assert_close(states, expected, rtol=1e-5, atol=1e-6)


def test_modules_of_torch_in_the_options_stand_for_what_they_do(
    tmp_path: Path, chemprop: dict[str, Any]
) -> None:
    """chemprop 2.3.1 has an identity where nothing is transformed, and may have the activation."""
    nothing = {key: torch.nn.Identity() for key in TRANSFORMS}
    dag, expected = graph(), torch.tensor(GOLDEN["states"])
    options = {**nothing, "activation": torch.nn.ReLU(), "metrics": {"rmse", "mae"}}
    for path in files_of_chemprop(tmp_path, chemprop, **options):
        ours = model()
        take_encoder(ours, path)
        with torch.no_grad():
            states = ours.states(ours.plan(dag))["h"][: len(expected)]
        torch.testing.assert_close(states, expected, rtol=1e-5, atol=1e-6)
    for path in files_of_chemprop(tmp_path, chemprop, activation=torch.nn.Tanh()):
        with pytest.raises(ConfigError, match="Its activation is tanh"):
            take_encoder(model(), path)


TRANSFORMS = ("V_d_transform", "E_d_transform", "graph_transform")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_that_does_something_is_refused(
    name: str, tmp_path: Path, chemprop: dict[str, Any]
) -> None:
    for path in files_of_chemprop(tmp_path, chemprop, **{name: chemprop["GraphTransform"]()}):
        with pytest.raises(CheckpointError, match=f"has {name}=GraphTransform, which a D-MPNN"):
            take_encoder(model(), path)


def test_options_in_classes_of_chemprop_are_compared(
    tmp_path: Path, chemprop: dict[str, Any]
) -> None:
    for path in files_of_chemprop(tmp_path, chemprop, activation=chemprop["Activation"].TANH):
        with pytest.raises(ConfigError, match="Its activation is tanh"):
            take_encoder(model(), path)
    for path in files_of_chemprop(tmp_path, chemprop, cls=chemprop["AtomMessagePassing"]):
        with pytest.raises(CheckpointError, match="cls=AtomMessagePassing, which a D-MPNN here"):
            take_encoder(model(), path)
    torch.save({**content(), "callbacks": chemprop["Activation"]}, tmp_path / "x.pt")
    take_encoder(model(), tmp_path / "x.pt")  # classes elsewhere in the file mean nothing
