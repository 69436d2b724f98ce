"""Compiled models: metrics, labels, layers, stored graphs, checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, check_batched, neg, times
from torch import nn
from torch.nn import functional as F

from graphfold import blocks as td
from graphfold.dag import collate, validate
from graphfold.errors import EngineError


def labelled_tree() -> td.Block:
    tree = td.ForwardDeclaration()
    leaf = (td.Scalar("int32"), td.Identity()) >> td.Metric("leaf")
    own = (td.Scalar("int32"), td.Identity()) >> td.Metric("internal")
    internal = td.AllOf(own, td.Slice(start=2) >> td.Map(tree())) >> td.Void()
    block = td.OneOf(lambda x: len(x) > 2, (leaf, internal))
    tree.resolve_to(block)
    return block


def test_a_metric_without_values_is_empty() -> None:
    block = td.Map(td.Vector(2) >> td.Metric("m")) >> td.Void()
    assert td.compile(block).result([[], []]).metrics["m"].shape == (0, 2)
    assert block.eval([])[1]["m"].shape == (0, 2)


def test_a_constant_may_be_learned() -> None:
    start = nn.Parameter(torch.zeros(2))
    model = td.compile(td.Map(td.Vector(2)) >> td.Fold(add(), start))
    model([[[1, 2]], []]).sum().backward()
    assert start.grad is not None
    assert start.grad.tolist() == [2.0, 2.0]
    assert [name for name, _ in model.named_parameters()] == ["blocks.constant.value"]


def test_attention_is_the_softmax_of_the_scores() -> None:
    score = nn.Linear(3, 1)
    block = td.Map(td.Vector(3)) >> td.Attention(score)
    values = torch.randn(5, 3)
    want = (torch.softmax(score(values), 0) * values).sum(0)
    got = td.compile(block)([values.tolist(), []])
    torch.testing.assert_close(got[0], want)
    assert got[1].tolist() == [0.0] * 3
    check_batched(block, [values.tolist(), values[:2].tolist()])


def test_layers_show_what_they_are() -> None:
    fc, plain = td.FC(5), td.FC(2, None, input_keep_prob=0.5, weight_norm=True)
    assert repr(fc) == "FC(? -> 5, relu)"
    block = td.Vector(3) >> fc >> plain
    assert repr(fc) == "FC(3 -> 5, relu)"
    assert repr(plain) == "FC(5 -> 2, input_keep_prob=0.5, weight_norm=True)"
    assert repr(td.Function(fc)) == "<Function fn=FC(3 -> 5, relu)>"
    assert "FC(3 -> 5, relu)" in repr(td.compile(block))
    assert repr(td.FC(1, torch.tanh, normalization_fn=torch.abs)) == (
        "FC(? -> 1, tanh, normalization_fn=abs)"
    )
    assert repr(td.Embedding(10, 3)) == "Embedding(10, 3)"
    other = td.Embedding(10, 3, trainable=False, mod_inputs=False, sparse=True)
    assert repr(other) == "Embedding(10, 3, trainable=False, mod_inputs=False, sparse=True)"
    cell = td.Function(td.RNNCell(nn.GRUCell(3, 4)))
    assert repr(cell) == "<Function fn=RNNCell( (cell): GRUCell(3, 4) )>"


def test_a_sparse_embedding_names_its_rows() -> None:
    layer = td.Embedding(10, 2, sparse=True)
    td.compile(td.Scalar("int64") >> layer >> nn.Linear(2, 1))([3, 3, 4]).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse


def sums() -> td.Block:
    return td.Map(td.Vector(2) >> td.FC(3, torch.tanh)) >> td.Sum() >> td.FC(2, None)


def test_graphs_are_lowered_once_and_cut_as_needed() -> None:
    torch.manual_seed(0)
    model = td.compile(sums())
    examples = [torch.randn(n, 2).tolist() for n in (3, 0, 2, 5, 1)]
    data = td.BlockDataset(model, examples)
    validate(data.dag)
    torch.testing.assert_close(model(data[[4, 0]]), model([examples[4], examples[0]]))
    got = torch.cat([model(batch) for batch in data.loader(batch_size=2)])
    torch.testing.assert_close(got, model(examples))


@pytest.mark.parametrize("kind", [tuple, list, np.array, torch.tensor, iter])
def test_a_dataset_is_of_any_iterable(kind: Any) -> None:
    model = td.compile(td.Vector(2) >> neg())
    data = td.BlockDataset(model, kind([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert model(data[[2, 0]]).tolist() == [[-5, -6], [-1, -2]]


@pytest.mark.parametrize(
    "example", ["text", b"text", {"a": 1}, 5, None, np.array(3), torch.ones(())]
)
def test_a_dataset_of_one_example_is_refused(example: Any) -> None:
    with pytest.raises(td.BlockTypeError, match="one example where a list was meant"):
        td.BlockDataset(td.compile(td.Length()), example)


def test_a_loader_shuffles_each_epoch_differently() -> None:
    model = td.compile(td.Scalar())
    data = td.BlockDataset(model, range(40))

    def epochs(seed: int, count: int) -> list[list[float]]:
        loader = data.loader(7, shuffle=True, seed=seed)
        return [torch.cat([model(b) for b in loader]).tolist() for _ in range(count)]

    orders = epochs(0, 3)
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len({*map(tuple, orders), tuple(range(40))}) == 4
    assert epochs(0, 3) == orders
    assert epochs(1, 1)[0] not in orders
    loader = data.loader(7, shuffle=True)
    next(iter(loader))  # an epoch that is broken off was one, too
    assert torch.cat([model(batch) for batch in loader]).tolist() == orders[1]
    loader.sampler.set_epoch(2)
    assert torch.cat([model(batch) for batch in loader]).tolist() == orders[2]
    ordered = data.loader(7)
    assert [torch.cat([model(b) for b in ordered]).tolist() for _ in range(2)] == [[*range(40)]] * 2


def test_options_of_the_engine_are_reached() -> None:
    layer = nn.Linear(1, 1)

    def model(run: str) -> td.CompiledModel:
        step = td.Function(layer) >> torch.tanh
        tree = td.recursive(
            lambda x: td.OneOf(len, {1: td.Vector(1), 2: td.Record((x, x)) >> add() >> step})
        )
        return td.compile(tree, run=run)

    examples = [(([1], [2]), ([3], [4]))]
    actual = []
    for run in ("eager", "compiled"):
        made = model(run)
        layer.zero_grad()
        output = made(examples)
        output.sum().backward()
        actual.append([output.item(), *(p.grad.item() for p in made.parameters())])  # type: ignore
        assert set(made.execution.values()) == {
            "compiled (native)" if run == "compiled" else "eager (run=eager)"
        }
        assert next(iter(made.execution)) in repr(made)
    assert actual[1] == pytest.approx(actual[0])


def test_options_of_the_engine_are_passed_on_at_every_run() -> None:
    options = {"run": "compiled", "backend": "torch"}
    model = td.compile(td.Scalar() >> neg(), **options)
    schema = model.lower([1]).schema
    network = model._network_of(schema)
    assert {name: getattr(network, name) for name in options} == options
    model.run, model.backend = "auto", "native"
    assert model._network_of(schema) is network
    actual = (network.run, network.backend)
    assert actual == ("auto", "native")


def test_processes_lower_as_one_does() -> None:
    examples = [[n, "x", *([m, "y"] for m in range(n % 3))] for n in range(20)]
    one, several = td.compile(labelled_tree()), td.compile(labelled_tree())
    dag = several.lower(examples, num_workers=2)
    validate(dag)
    want, got = one.result(examples), several.result(several.batch(dag))
    assert {n: v.tolist() for n, v in got.metrics.items()} == {
        n: v.tolist() for n, v in want.metrics.items()
    }
    assert got.labels == want.labels
    assert dag.schema == one.node_types.schema
    assert torch.equal(dag.origin, one.lower(examples).origin)
    with pytest.raises(td.BlockKeyError) as caught:
        td.compile(td.OneHot(3)).lower([1, 2] * 20 + [7], num_workers=2)
    assert caught.value.key == 7  # type: ignore[attr-defined]


def test_leaves_run_first_and_what_nobody_waits_for_last() -> None:
    def body(tree: td.Block) -> td.Block:
        noted = td.AllOf(td.Metric("m"), td.Identity()) >> td.GetItem(1)
        pair = td.Record((tree, tree)) >> add() >> noted
        leaf = td.Vector(2) >> nn.Linear(2, 2)
        return td.OneOf(lambda x: isinstance(x, tuple), (leaf, pair))

    tree = td.recursive(body, output_type=[2])
    scored = td.compile(tree >> td.AllOf(nn.Linear(2, 1), nn.Tanh()))
    deep: Any = [1, 2]
    for _ in range(4):
        deep = (deep, [3, 4])
    batch = scored.batch([deep, ([1, 1], [2, 2])])
    names = [batch.dag.schema.types[g.op_type].name for g in batch.schedule.passes[0].groups]
    assert names.count("Linear(x)") == 1
    assert names.count("Linear_2(0:0)") == 1
    assert names.count("add(0:0,1:0)") == 4


def test_graphs_of_different_times_are_brought_together() -> None:
    model = td.compile(td.OneOf(lambda x: x > 0, (td.Scalar() >> neg(), td.Scalar() >> times(3))))
    early = model.lower([-1.0])
    late = model.lower([2.0])
    assert early.schema != late.schema
    both = collate([model.widen(early), model.widen(late)])
    assert model(model.batch(both)).tolist() == [1.0, 6.0]
    assert model(model.batch(early)).tolist() == [1.0]
    other = td.compile(model.root)
    swapped = other.lower([2.0, -1.0])
    assert other(other.batch(other.widen(early))).tolist() == [1.0]
    assert other(other.batch(swapped)).tolist() == [6.0, 1.0]


def test_an_unknown_operation_is_refused() -> None:
    dag = td.compile(td.Scalar() >> neg()).lower([1])
    other = td.compile(td.Scalar() >> times(2))
    with pytest.raises(TypeError, match="the model has no operation 'neg'"):
        other(other.batch(dag))


def test_state_dicts_hold_every_module_once() -> None:
    model = td.compile(sums())
    other = td.compile(sums())
    assert list(model.state_dict()) == [
        f"blocks.{layer}.{name}" for layer in ("FC_3", "FC_2") for name in ("weight", "bias")
    ]
    other.load_state_dict(model.state_dict())
    examples = [[[1, 2], [3, 4]], []]
    torch.testing.assert_close(model(examples), other(examples))


def test_state_dicts_hold_no_zeros() -> None:
    root = td.Map(td.Vector(2)) >> td.RNN(td.RNNCell(nn.GRUCell(2, 2))) >> td.GetItem(1)
    assert all("GRUCell" in name for name in td.compile(root).state_dict())
    constant = td.compile(td.AllOf(td.Scalar(), np.ones(2)) >> td.Function(lambda x, y: x))
    assert list(constant.state_dict()) == ["blocks.constant.value"]


def test_equal_nodes_may_be_computed_once() -> None:
    model, shared = td.compile(sums()), td.compile(sums(), share=True)
    shared.load_state_dict(model.state_dict())
    examples = [[[1, 2], [1, 2]], [[1, 2]], [[1, 2], [1, 2]], []]
    batch = shared.batch(examples)
    assert batch.schedule.passes[0].num_rows < batch.dag.num_nodes
    for one in (model, shared):
        one(examples).square().sum().backward()
    torch.testing.assert_close(shared(examples), model(examples))
    for p, q in zip(model.parameters(), shared.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    noisy = td.compile(td.Vector(2) >> nn.Dropout(0.5), share=True)
    with pytest.raises(EngineError, match="share=False"):
        noisy([[1, 2]])


def test_masks_of_leaves_are_drawn_in_the_order_of_nodes() -> None:
    model = td.compile(td.Map(td.Vector(4) >> nn.Dropout(0.5)) >> td.Sum())
    examples = [[[1, 2, 3, 4]] * n for n in (1, 3)]
    torch.manual_seed(0)
    got = model(examples)
    torch.manual_seed(0)
    rows = F.dropout(torch.tensor([[1.0, 2, 3, 4]] * 4), 0.5)
    torch.testing.assert_close(got, torch.stack([rows[0], rows[1:].sum(0)]))


def test_batch_norm_of_leaves_sees_the_whole_batch() -> None:
    norm = nn.BatchNorm1d(2)
    values = torch.randn(6, 2)
    got = td.compile(td.Vector(2) >> norm)(values.tolist())
    torch.testing.assert_close(got, nn.BatchNorm1d(2)(values))


def test_a_function_that_forgets_its_type_is_refused() -> None:
    block = td.Scalar() >> td.Function(lambda x: x, infer_output_type=False).set_output_type([3])
    with pytest.raises(TypeError, match="for 2 nodes of output type"):
        td.compile(block)([1, 2])


def test_a_frozen_model_gives_the_same_and_sees_other_weights() -> None:
    torch.manual_seed(0)
    model = td.compile(td.Map(td.Vector(3) >> td.FC(4)) >> td.Sum(), run="compiled").eval()
    examples = [[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]
    with torch.no_grad():
        want = model(examples).clone()
        for _ in range(2):
            torch.testing.assert_close(model.freeze()(examples), want)
        model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
        got = model(examples).clone()
    torch.testing.assert_close(got, td.compile(model.root, run="eager").eval()(examples).detach())
    assert not torch.allclose(got, want)
