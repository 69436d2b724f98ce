"""Errors in a cell's forward name the cell, its type and the shapes of its arguments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphfold import cli
from graphfold.batching import Batch, Cell, Children, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.layers import LeafCell


class Wrong(Cell):
    """Multiplies by a matrix of the wrong shape."""

    arity, fields = 2, {"h": 8}

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(7, 8)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:  # type: ignore[override]
        return {"h": self.linear(children.stack("h").flatten(1))}


@pytest.mark.filterwarnings("ignore:Wrong is not compiled")
@pytest.mark.parametrize("way", ["auto", "eager", "reference"])
def test_the_note_names_cell_type_and_shapes(way: str) -> None:
    schema = Schema(types=(NodeType("word", arity=0), NodeType("phrase", arity=2)))
    builder = GraphBuilder(schema)
    for _ in range(3):
        builder.output(builder.node("phrase", builder.nodes("word", 2)))
        builder.finish()
    dag = builder.build()
    cells = {"word": LeafCell(4, 8), "phrase": Wrong()}
    network = Network(schema, (Up(), cells), run=way)
    batch = Batch(dag, build_schedule(dag, network.passes))
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        network(batch, {"word": torch.randn(6, 4), "phrase": torch.empty(3, 0)})
    shapes = "a group of 3: x [3, 0], children's h [6, 8]"
    if way == "reference":
        shapes = "a group of 1: x [1, 0], children's h [2, 8]"
    note = f"in Wrong of type 'phrase', called with {shapes}"
    assert note in caught.value.__notes__


def test_the_command_prints_the_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        error = RuntimeError("mat1 and mat2")
        error.add_note("in Wrong of type 'phrase'")
        raise error

    monkeypatch.setattr(cli.listing, "run", fail)
    assert cli.main(["list"]) == 1
    assert "mat1 and mat2. Add --debug for the traceback.\nin Wrong of" in capsys.readouterr().err
