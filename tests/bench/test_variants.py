"""The variants of a benchmark compute the same, and one that does not is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphfold.bench import engine_variants, sequence, treefc
from graphfold.bench.chains import chain_graphs, torch_lstm
from graphfold.bench.one_by_one import TreeLSTMLoop
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell

VARIANTS: list[tuple[str, Callable[[], Any]]] = [
    ("roots", lambda: treefc.Variants(treefc.random_trees(2), 3, is_identical=False)),
    ("forwards", lambda: sequence.Variants([[3, 1, 2], [2]], 3)),
]


@pytest.mark.parametrize(("attribute", "make"), VARIANTS, ids=lambda value: str(value)[:8])
def test_a_wrong_variant_is_refused(attribute: str, make: Callable[[], Any]) -> None:
    variants = make()
    variants.require_equal()
    right = getattr(variants, attribute)

    def wrong(*args: Any) -> Any:
        result = right["cat_levels"](*args)
        return result * 1.1 if isinstance(result, Tensor) else (result[0] * 1.1, result[1])

    setattr(variants, attribute, {**right, "cat_levels": wrong})
    with pytest.raises(RuntimeError, match="variant cat_levels differs from graphfold"):
        variants.require_equal()


def test_cells_as_they_are_are_a_variant_where_others_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = sequence.Variants([[2]], 3).network
    both = {"graphfold": True, "untraced": False}
    for fuse, want in ((True, both), (None, both), (False, {"graphfold": False})):
        network.fuse = fuse
        assert engine_variants.fusions(network) == want
    monkeypatch.setattr(engine_variants, "why_missing", lambda dtype: "no C compiler")
    for fuse in (True, None, False):
        network.fuse = fuse
        assert engine_variants.fusions(network) == {"graphfold": fuse}
    network.to("meta")
    monkeypatch.setattr(engine_variants, "why_missing", lambda dtype: None)
    assert engine_variants.fusions(network) == {"graphfold": False}


def test_hand_batched_trees_are_the_perfect_ones() -> None:
    trees = treefc.make_trees("identical", 2)
    assert int(trees.depth.max()) == 7
    treefc.Variants(trees, 3, is_identical=True).require_equal()


def test_the_loop_over_nodes_is_the_paper_s_tree_lstm() -> None:
    schema = Schema((NodeType("word", 0), NodeType("phrase", 2)))
    builder = GraphBuilder(schema)
    left, right = builder.nodes("word", 2)
    builder.output(builder.node("phrase", [left, right]))
    builder.finish()
    leaf, inner = LeafLSTMCell(3, 2), NaryTreeLSTMCell(0, 2)
    words = torch.randn(2, 3)
    h = TreeLSTMLoop((1, inner), (0, leaf))(builder.build(), {0: words, 1: torch.empty(1, 0)})
    i, o, u = leaf.from_x(words).chunk(3, dim=1)
    c_below = torch.sigmoid(i) * torch.tanh(u)
    h_below = torch.sigmoid(o) * torch.tanh(c_below)
    f_left, f_right, i, o, u = inner.from_h(h_below.view(1, -1)).chunk(5, dim=1)
    kept = torch.sigmoid(f_left) * c_below[0] + torch.sigmoid(f_right) * c_below[1]
    c = torch.sigmoid(i) * torch.tanh(u) + kept
    torch.testing.assert_close(h, torch.cat([h_below, torch.sigmoid(o) * torch.tanh(c)]))


def test_a_chain_is_torch_s_lstm() -> None:
    cell = NaryTreeLSTMCell(3, 4, arity=1)
    x = torch.randn(5, 3)
    dag = chain_graphs([5])
    h = TreeLSTMLoop((0, cell))(dag, {0: x})
    want, _ = torch_lstm(cell, 3)(x)
    torch.testing.assert_close(h, want)
