"""Weights out of chemprop's own file: the states of the atoms are chemprop's.

The numbers in chemprop_encoder.json are those of chemprop 2.3.1; scripts/make_chemprop_encoder.py
makes them again.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import run, write_molecules

from graphfold.batching import Rounds
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.datasets.molecules.directed_bonds import add_directed_bonds
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
    add_directed_bonds(builder, sources, targets, features, bonds)
    builder.output(*range(len(atoms)))
    builder.finish(columns={"y": 0.0})
    return builder.build()


@pytest.mark.parametrize("prefix", ["", "message_passing."])
def test_the_states_of_atoms_are_those_of_chemprop(tmp_path: Path, prefix: str) -> None:
    ours, dag = model(), graph()
    found = content()
    state = {f"{prefix}{name}": value for name, value in found["state_dict"].items()}
    torch.save(
        {**found, "state_dict": {**state, "predictor.x": torch.zeros(1)}}, tmp_path / "mp.pt"
    )
    said = take_encoder(ours, tmp_path / "mp.pt")
    count = sum(value.numel() for value in found["state_dict"].values())
    assert said.startswith(f"encoder_from: {count} weights of encoder and cells taken")
    with torch.no_grad():
        states = ours.states(ours.plan(dag))["h"][: len(GOLDEN["states"])]
    torch.testing.assert_close(states, torch.tensor(GOLDEN["states"]), rtol=1e-5, atol=1e-6)


def test_all_that_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    path = save(tmp_path / "mp.pt", options={"depth": 6, "activation": "tanh"})
    with pytest.raises(ConfigError) as error:
        take_encoder(model(width=7, bias=True), path)
    for said in (
        "Its width is 5, not 7: set model.hidden_size=5.",
        "Its depth is 6, not 4: set model.passes.0.rounds=5.",
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
    with pytest.raises(CheckpointError, match="more than tensors and plain values, or is damaged"):
        take_encoder(model(), path)
    torch.save({**content(), "cls": Path}, path)
    with pytest.raises(CheckpointError, match="without 'cls' and other classes"):
        take_encoder(model(), path)
    torch.save({"weights": 1}, path)
    with pytest.raises(CheckpointError, match="has no 'state_dict'"):
        take_encoder(model(), path)
    torch.save({"state_dict": {"W_i.weight": torch.zeros(1)}}, path)
    with pytest.raises(CheckpointError, match="has no weights W_h.weight, W_o.weight, W_o.bias"):
        take_encoder(model(), path)
    for other in (
        {"W_o.bias": torch.zeros(4)},
        {"W_h.weight": torch.zeros(5)},
        {"W_i.weight": torch.zeros(4, 9)},
    ):
        with pytest.raises(CheckpointError, match="not those of a BondMessagePassing"):
            take_encoder(model(), save(path, **other))
    torch.save({**content(), "hyper_parameters": [1]}, path)
    with pytest.raises(CheckpointError, match="not those of a BondMessagePassing"):
        take_encoder(model(), path)
    save(path, **{"W_i.bias": torch.zeros(5)}, options={"undirected": True})
    with pytest.raises(CheckpointError, match=r"has W_i\.bias, undirected=True, which a D-MPNN"):
        take_encoder(model(), path)


def test_wrong_models_and_features_are_told(
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
    assert "model.encoder_from is 3, but it must be a string" in capsys.readouterr().err
