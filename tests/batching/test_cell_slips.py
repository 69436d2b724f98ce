"""The commonest slips of one who writes a cell: messages name cell, line, fault and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Children, Network, Rounds, States, Up, build_schedule
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError, GraphfoldError, KindError, SchemaError, ShapeError
from graphfold.layers import LeafCell

WAYS = ["auto", "eager", "reference"]
SCHEMA = Schema(
    types=(NodeType("word", arity=0), NodeType("phrase", arity=2)), relations=(EdgeType("next"),)
)
X = {"word": torch.ones(6, 4), "phrase": torch.empty(3, 0)}


class Mine(Cell):
    """A cell with any function of (x, children) as its forward."""

    def __init__(self, function: Callable[..., Any], arity: int | None = 2, **fields: int) -> None:
        super().__init__()
        self.function, self.arity, self.fields = function, arity, fields or {"h": 8}
        self.reads = ("h",)

    def forward(self, x: Tensor, children: Children) -> Any:
        return self.function(x, children)


#: The line of `Mine.forward`.
LINE = rf"{re.escape(__file__)}:{Mine.forward.__code__.co_firstlineno}: "


def graphs() -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    for _ in range(3):
        words = builder.nodes("word", 2)
        builder.edges("next", words, words[::-1])
        builder.output(builder.node("phrase", words))
        builder.finish()
    return builder.build()


def run(cell: Any, way: str = "auto", x: Any = X) -> States:
    network = Network(SCHEMA, (Up(), {"word": LeafCell(4, 8), "phrase": cell}), run=way)
    dag = graphs()
    return network(Batch(dag, build_schedule(dag, network.passes)), x)


def total(children: Children) -> Tensor:
    return children.sum("h")


NEEDED = r"the engine needs a mapping .* Return \{'h': \[group_size, 8\]\}"
STATES: dict[str, tuple[Callable[[], Cell], type[GraphfoldError], str]] = {
    "tuple": (lambda: Mine(lambda x, c: (total(c),)), KindError, f"a tuple of 1, but {NEEDED}"),
    "tensor": (
        lambda: Mine(lambda x, c: total(c)),
        KindError,
        rf"a Tensor of .* 8\], but {NEEDED}",
    ),
    "nothing": (lambda: Mine(lambda x, c: None), KindError, f"None, but {NEEDED}"),
    "list": (
        lambda: Mine(lambda x, c: {"h": [1.0]}),
        KindError,
        f"a list of 1 for 'h', but {NEEDED}",
    ),
    "number": (lambda: Mine(lambda x, c: {"h": 0.5}), KindError, f"a float for 'h', but {NEEDED}"),
    "undeclared": (
        lambda: Mine(lambda x, c: {"h": total(c), "c": total(c)}),
        ShapeError,
        "returns the field 'c', which its fields do not declare. Add it to fields",
    ),
    "not_returned": (
        lambda: Mine(lambda x, c: {"h": total(c)}, h=8, c=8),
        ShapeError,
        "declares the field 'c' but returns only h. Return every field",
    ),
    "empty": (
        lambda: Mine(lambda x, c: {}),
        ShapeError,
        "declares the field 'h' but returns only n",
    ),
    "width": (
        lambda: Mine(lambda x, c: {"h": total(c)[:, :3]}),
        ShapeError,
        r"returns 'h' of shape \[(group_size|3|1), 3\] .* its fields say \[(group_size|3|1), 8\]",
    ),
    "rows": (
        lambda: Mine(lambda x, c: {"h": total(c).sum(0)}),
        ShapeError,
        r"returns 'h' of shape \[8\] .* its fields say .* Return one row per node",
    ),
    "edges": (
        lambda: Mine(lambda x, c: {"h": c.rows("h")}),
        ShapeError,
        r"returns 'h' of shape \[(\d+|num_child_edges), 8\] .* Return one row per node",
    ),
    "name": (
        lambda: Mine(lambda x, c: {"h": c.sum("H")}),
        SchemaError,
        "reads field 'H', but its children have only 'h'. Did you mean 'h'. Correct the name",
    ),
    "name_of_rows": (
        lambda: Mine(lambda x, c: {"h": c.max("hidden")}),
        SchemaError,
        "reads field 'hidden', but its children have only 'h'. Correct the name",
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STATES)
def test_wrong_states_and_reads_of_a_cell(name: str, way: str) -> None:
    make, kind, text = STATES[name]
    with pytest.raises(kind, match=rf"^{LINE}Mine\(h=8.*\) (returns )?{text}"):
        run(make(), way)


@pytest.mark.parametrize("way", WAYS)
def test_a_field_that_no_neighbour_has(way: str) -> None:
    cell = Mine(lambda x, c: {"h": c.sum("g")}, None)
    cell.initial = lambda x: {"h": x.new_zeros(len(x), 8)}  # type: ignore[method-assign]
    network = Network(SCHEMA, (Rounds("next", 1), {"word": cell}), run=way)
    dag = graphs()
    with pytest.raises(SchemaError, match=f"^{LINE}.* reads field 'g', but its children have only"):
        network(Batch(dag, build_schedule(dag, network.passes)), X)


@pytest.mark.parametrize("way", WAYS)
def test_a_stack_of_any_number_names_cell_and_line(way: str) -> None:
    with pytest.raises(ShapeError, match=r"stack\('h'\) needs a fixed number") as caught:
        run(Mine(lambda x, c: {"h": c.stack("h").sum(1)}, None), way)
    notes = "\n".join(caught.value.__notes__)
    assert "in Mine of type 'phrase'" in notes
    assert re.search(r"at line \d+ of test_cell_slips.py, `run\(Mine\(lambda x, c", notes)


class NoChildren(Mine):
    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return {"h": x}


class OneMore(Mine):
    def forward(self, x: Tensor, children: Children, edge: Tensor) -> Any:  # type: ignore[override]
        return {"h": x}


class BareBefore(Mine):
    def before(self) -> Any:  # type: ignore[override]
        return None


class NoFields(Cell):
    def forward(self, x: Tensor, children: Children) -> Any:
        return {}


class ListedFields(NoFields):
    fields = ["h"]  # type: ignore[assignment]


class SpelledWidth(NoFields):
    fields = {"h": "8"}  # type: ignore[dict-item]


class SpelledReads(NoFields):
    fields, reads = {"h": 8}, "h"  # type: ignore[assignment]


class Forgetful(NoFields):
    fields = {"h": 8}

    def __init__(self) -> None:
        self.size = 8


class Forward(Mine):
    """Its forward may be called with more than it is called with."""

    def forward(self, x: Tensor, children: Children, scale: float = 1.0, *more: Any) -> Any:
        return {"h": scale * total(children)}


NOTHING = Mine(lambda x, c: None)
INTERFACES = {
    "no_children": (
        lambda: NoChildren(len),
        r"NoChildren\(h=8\).forward takes \(x\), but it is called with \(x, children\)",
    ),
    "one_more": (lambda: OneMore(len), r"takes \(x, children, edge\), .* Define forward\(self, x"),
    "before": (lambda: BareBefore(len), r"before takes \(\), but it is called with \(x\)"),
    "no_fields": (NoFields, "the fields of NoFields are None, but a mapping of names to widths"),
    "listed": (ListedFields, r"the fields of ListedFields are \['h'\], but a mapping"),
    "spelled": (SpelledWidth, "the fields of SpelledWidth are {'h': '8'}, but a mapping"),
    "reads": (SpelledReads, r"SpelledReads reads 'h', but a tuple .* Set reads = \('h',\)"),
    "no_super": (Forgetful, r"Forgetful does not call super\(\).__init__\(\)"),
}


@pytest.mark.parametrize("name", INTERFACES)
def test_how_a_cell_is_written(name: str) -> None:
    make, text = INTERFACES[name]
    cell = make()
    with pytest.raises(KindError, match=rf"^{re.escape(__file__)}:\d+: .*{text}"):
        run(cell)


@pytest.mark.parametrize("value", [nn.Linear(2, 2), nn.Parameter(torch.ones(2))])
def test_super_is_called_before_modules_are_set(value: Any) -> None:
    class Early(NoFields):
        def __init__(self) -> None:
            self.part = value

    with pytest.raises(KindError, match=r"Early sets 'part' before it calls super\(\).__init__"):
        Early()
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        Forward(len).absent  # noqa: B018


def test_a_forward_may_take_more() -> None:
    assert run(Forward(len))["h"].shape == (9, 8)


def build(*steps: Any) -> Network:
    cells = {"word": LeafCell(4, 8), "phrase": Forward(len)}
    return Network(SCHEMA, *(steps or [(Up(), cells)]))


PAIRS = r"takes pairs of a pass and its cells, but this is {} Give \(Up\(\), {{'TYPE': cell}}\)"
ARGUMENTS: dict[str, tuple[Callable[[], object], type[GraphfoldError], str]] = {
    "no_cells": (lambda: build(Up()), KindError, PAIRS.format(r"an? Up\.")),
    "listed": (lambda: build([Up()], [{}]), KindError, PAIRS.format(r"a list of 1\.")),
    "class": (lambda: build((Up, {})), KindError, PAIRS.format(r"the class Up and a dict\.")),
    "word": (lambda: build(("up", {})), KindError, PAIRS.format(r"a str and a dict\.")),
    "plan_of_one": (lambda: build_schedule(graphs(), Up()), KindError, "passes is Up"),  # type: ignore[arg-type]
    "plan_of_class": (
        lambda: build_schedule(graphs(), [Up]),  # type: ignore[list-item]
        KindError,
        "passes has <class .*Up'>, which is no pass. Give Up",
    ),
    "cells": (
        lambda: build((Up(), [NOTHING])),
        KindError,
        "the cells of a pass are a list of 1, but a mapping of type names to cells",
    ),
    "cell_class": (
        lambda: run(Mine),
        KindError,
        r"'phrase' has the class Mine .* Make one: Mine\(",
    ),
    "module": (lambda: run(nn.Linear(2, 2)), KindError, "'phrase' has a Linear .* a subclass of C"),
    "function": (lambda: run(len), KindError, "type 'phrase' has a builtin_function_or_method"),
    "none": (lambda: run(None), KindError, "type 'phrase' has None for its cell"),
    "type": (
        lambda: build((Up(), {"wrod": LeafCell(4, 8)})),
        ConfigError,
        "the type 'wrod', which the schema lacks. Did you mean 'word'. It has: word, phrase",
    ),
    "dags": (lambda: build()([graphs()], X), KindError, "takes a Batch, but this is a list of 1"),  # type: ignore[arg-type]
    "x": (
        lambda: run(Forward(len), x=torch.ones(6, 4)),
        KindError,
        r"x is a Tensor of shape \[6, 4\], but a mapping of type names .* for each of word, phrase",
    ),
    "no_x": (
        lambda: run(Forward(len), x=None),
        ShapeError,
        r"no x\['word'\], so LeafCell.before got the features of 'word', \[6, 0\], which",
    ),
    "x_part": (
        lambda: run(Forward(len), x={**X, "word": [1.0]}),
        KindError,
        r"x\['word'\] is a list of 1. Give a tensor, or a mapping of names to tensors",
    ),
    "x_spelled": (
        lambda: run(Forward(len), x={"word": X["word"], "phrases": X["phrase"]}),
        ShapeError,
        "type 'phrase' has a cell but no input. x names phrases, .* Did you mean 'phrases'",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_arguments_of_a_network(name: str) -> None:
    call, kind, text = ARGUMENTS[name]
    with pytest.raises(kind, match=text) as caught:
        call()
    assert isinstance(caught.value, TypeError) == (kind is KindError)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("value", "came"), [(None, "None"), ((1, 2), "a tuple of 2"), (torch.ones(1), None)]
)
def test_wrong_returns_of_other_methods(value: Any, came: str | None, way: str) -> None:
    for method in ("before", "after"):
        cell_type = type("Odd", (Forward,), {method: lambda self, x: value})
        if came is None and method == "before":
            continue  # a tensor is right there
        with pytest.raises(
            KindError, match=rf"Odd\(h=8\).{method} returns (is )?{came or 'a Ten'}"
        ):
            run(cell_type(len), way)
