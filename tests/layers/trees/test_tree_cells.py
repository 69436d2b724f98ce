"""Tree cells of the literature against loops over nodes and entries, written from the papers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import dags
from torch import Tensor

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.layers import (
    AttentiveTreeLSTMCell,
    LeafCell,
    LeafLSTMCell,
    MVLeafCell,
    MVRNNCell,
    RelationTreeLSTMCell,
    RNTNCell,
    TreeCodingCell,
    TreeConvolutionCell,
    TreePoolingCell,
)

D = 3
WORD = NodeType("word", 0)
PAIRS = Schema(types=(WORD, NodeType("phrase", 2)))
PHRASES = Schema(
    types=(WORD, NodeType("phrase", None)),
    inputs=EdgeType("inputs", (Column("deprel", "int64", size=4),)),
)
Array = np.ndarray
#: Of a node: its children, their relations, its features, and its state so far -> its state.
Rule = Callable[[list[dict[str, Array]], list[int], Array, dict[str, Array]], dict[str, Array]]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def run_loop(dag: TypedDAG, x: dict[str, Tensor], rules: list[dict[str, Rule]]) -> dict[int, dict]:
    """Node after node, pass after pass."""
    states: dict[int, dict[str, Array]] = {node: {} for node in range(dag.num_nodes)}
    names = [node_type.name for node_type in dag.schema.types]
    labels = dag.columns["inputs"].get("deprel", torch.zeros(dag.num_inputs))
    for by_type in rules:
        for node in torch.argsort(dag.depth, stable=True).tolist():
            name = names[dag.op_type[node]]
            row = dag.nodes_of_type(name).tolist().index(node)
            edges = range(dag.input_ptr[node], dag.input_ptr[node + 1])
            children = [states[int(dag.input_index[edge])] for edge in edges]
            relations = [int(labels[edge]) for edge in edges]
            features = x[name][row].detach().numpy()
            states[node] |= by_type[name](children, relations, features, states[node])
    return states


def check(
    schema: Schema, dag: TypedDAG, cells: list[dict[str, Cell]], rules: list[dict[str, Rule]]
) -> None:
    passes = [Up()] * len(cells)
    network = Network(schema, *zip(passes, cells, strict=True), run="compiled").double()
    generator = torch.Generator().manual_seed(0)
    x = {
        t.name: torch.randn(count, D, dtype=torch.float64, generator=generator)
        for t, count in zip(schema.types, dag.num_nodes_by_type, strict=True)
    }
    states = network(Batch(dag, build_schedule(dag, passes)), x)
    for node, want in run_loop(dag, x, rules).items():
        for field, value in want.items():
            got = states[field][node].detach().numpy()
            np.testing.assert_allclose(got, value, rtol=1e-9, atol=1e-12, err_msg=field)


def numbers(module: Cell) -> dict[str, Array]:
    return {name: p.detach().double().numpy() for name, p in module.named_parameters()}


def drawn(schema: Schema, arity: int = 4) -> st.SearchStrategy[TypedDAG]:
    return dags(schema, max_nodes=9, max_arity=arity)


few = settings(max_examples=4)


@few
@given(dag=drawn(PAIRS))
def test_rntn(dag):
    leaf, cell = LeafCell(D, D), RNTNCell(D, D)
    p, q = numbers(leaf), numbers(cell)
    tensor = q["tensor.weight"].reshape(D, 2 * D, 2 * D)

    def phrase(children, relations, x, own):
        z = np.concatenate([child["h"] for child in children])
        h = [z @ tensor[j] @ z + q["from_h.weight"][j] @ z for j in range(D)]
        return {"h": np.tanh(np.array(h) + q["from_h.bias"] + q["from_x.weight"] @ x)}

    def word(children, relations, x, own):
        return {"h": p["from_x.weight"] @ x + p["from_x.bias"]}

    check(PAIRS, dag, [{"word": leaf, "phrase": cell}], [{"word": word, "phrase": phrase}])


@few
@given(dag=drawn(PAIRS))
def test_mv_rnn(dag):
    leaf, cell = MVLeafCell(D, D, rank=2), MVRNNCell(D)
    p, q = numbers(leaf), numbers(cell)

    def word(children, relations, x, own):
        s, a, u, v = np.split(p["from_x.weight"] @ x + p["from_x.bias"], [D, 2 * D, 4 * D])
        return {"h": a, "m": (u.reshape(D, 2) @ v.reshape(2, D) + np.diag(s)).ravel()}

    def phrase(children, relations, x, own):
        a, b = (child["h"] for child in children)
        left, right = (child["m"].reshape(D, D) for child in children)
        h = q["from_h.weight"] @ np.concatenate([right @ a, left @ b]) + q["from_h.bias"]
        return {"h": np.tanh(h), "m": (q["from_m.weight"] @ np.vstack([left, right])).ravel()}

    check(PAIRS, dag, [{"word": leaf, "phrase": cell}], [{"word": word, "phrase": phrase}])


def lstm(q: dict[str, Array], total: Array, forget: list[Array], children: list, x: Array) -> dict:
    """Equations 4-8 of Tai et al. (2015), from what stands for the sum of the children."""
    i, o, u = np.split(q["from_sum.weight"] @ total + q["from_sum.bias"] + x, 3)
    c = sigmoid(i) * np.tanh(u)
    for f, child in zip(forget, children, strict=True):
        c = c + sigmoid(f) * child["c"]
    return {"c": c, "h": sigmoid(o) * np.tanh(c)}


@pytest.mark.parametrize("bases", [0, 2])
@few
@given(data=st.data())
def test_relation_tree_lstm(bases, data):
    dag = data.draw(drawn(PHRASES))
    columns = PHRASES.inputs.features
    cells = {
        "word": RelationTreeLSTMCell(D, D, columns, bases),
        "phrase": RelationTreeLSTMCell(D, D, columns, bases),
    }

    def rule(cell: Cell) -> Rule:
        q = numbers(cell)

        def node(children, relations, x, own):
            product = q["from_x.weight"] @ x
            total, forget = np.zeros(D), []
            for child, relation in zip(children, relations, strict=True):
                v, chosen = np.split(q["relation.table"][relation], [D])
                if bases:
                    matrices = q["from_child.weight"].reshape(bases, D, D)
                    mixed = sum((chosen[b] + bases**-0.5) * matrices[b] for b in range(bases))
                    total = total + mixed @ child["h"]
                else:
                    total = total + sigmoid(chosen) * child["h"]
                f = product[:D] + q["from_h.weight"] @ child["h"] + q["from_h.bias"] + v
                forget.append(f)
            return lstm(q, total, forget, children, product[D:])

        return node

    check(PHRASES, dag, [cells], [{name: rule(cell) for name, cell in cells.items()}])


@few
@given(dag=drawn(PHRASES))
def test_attentive_tree_lstm(dag):
    leaf, cell = LeafLSTMCell(D, D), AttentiveTreeLSTMCell(D, D)
    p, q = numbers(leaf), numbers(cell)

    def word(children, relations, x, own):
        i, o, u = np.split(p["from_x.weight"] @ x + p["from_x.bias"], 3)
        c = sigmoid(i) * np.tanh(u)
        return {"c": c, "h": sigmoid(o) * np.tanh(c)}

    def phrase(children, relations, x, own):
        product, forget, scores = q["from_x.weight"] @ x, [], []
        for child in children:
            f, key = np.split(q["from_h.weight"] @ child["h"] + q["from_h.bias"], 2)
            forget.append(f + product[:D])
            scores.append(q["score.weight"][0] @ np.tanh(key + product[D : 2 * D]))
        weights = np.exp(scores) / np.exp(scores).sum()
        mean = sum((w * c["h"] for w, c in zip(weights, children, strict=True)), np.zeros(D))
        total = np.tanh(q["from_mean.weight"] @ mean + q["from_mean.bias"])
        return lstm(q, total, forget, children, product[2 * D :])

    check(PHRASES, dag, [{"word": leaf, "phrase": cell}], [{"word": word, "phrase": phrase}])


@few
@given(dag=drawn(PHRASES, arity=6))
def test_tree_convolution(dag):
    cells = [
        {name: make() for name in ("word", "phrase")}
        for make in (
            lambda: TreeCodingCell(D, D),
            lambda: TreeConvolutionCell(D),
            lambda: TreePoolingCell(D),
        )
    ]

    def eta_r(k: int, n: int) -> float:
        return 0.5 if n == 1 else k / (n - 1)

    def mixed(left: Array, right: Array, children: list) -> Array:
        """Each child times a weight matrix of its own, made for its place."""
        n = len(children)
        matrices = [(1 - eta_r(k, n)) * left + eta_r(k, n) * right for k in range(n)]
        return sum((m @ c["v"] for m, c in zip(matrices, children, strict=True)), np.zeros(D))

    def coding(q: dict[str, Array]) -> Rule:
        def node(children, relations, x, own):
            left, right = np.split(q["from_children.weight"], 2, axis=1)
            below = mixed(left, right, children) / max(len(children), 1)
            return {"v": np.tanh(q["from_x.weight"] @ x + below + q["from_children.bias"])}

        return node

    def convolution(q: dict[str, Array]) -> Rule:
        def node(children, relations, x, own):
            top, left, right = np.split(q["from_window.weight"], 3, axis=1)
            window = top @ own["v"] + mixed(left, right, children)
            return {"h": np.tanh(window + q["from_window.bias"])}

        return node

    def pooling(children, relations, x, own):
        return {"pooled": np.max([own["h"], *(child["pooled"] for child in children)], axis=0)}

    rules = [
        {name: coding(numbers(cell)) for name, cell in cells[0].items()},
        {name: convolution(numbers(cell)) for name, cell in cells[1].items()},
        dict.fromkeys(("word", "phrase"), pooling),
    ]
    check(PHRASES, dag, cells, rules)


def test_words_of_an_mv_rnn_begin_near_the_identity():
    cell = MVLeafCell(D, 4, rank=2)
    given_x = cell.before(torch.zeros(5, D))
    off = given_x["m"].view(5, 4, 4) - torch.eye(4)
    assert off.abs().max() < 1
    assert off.abs().mean() < 0.5
