"""Compiled models: metrics, labels, layers, stored graphs, checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, check_batched, neg, same, times
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


def test_metrics_come_in_the_order_of_the_blocks_with_their_labels() -> None:
    trees = [
        [1, "a", [2, "b"], [3, "c"], [4, "d"]],
        [5, "e", [6, "f", [7, "g"]]],
    ]
    model = td.compile(labelled_tree())
    for engine in ("fast", "autograd", "reference"):
        model.engine = engine
        result = model.run(trees)
        assert result.output is None
        assert result.metrics["leaf"].tolist() == [2, 3, 4, 7]
        assert result.metrics["internal"].tolist() == [1, 5, 6]
        assert result.labels == {"leaf": ["b", "c", "d", "g"], "internal": ["a", "e", "f"]}


def test_a_metric_without_values_is_empty() -> None:
    block = td.Map(td.Vector(2) >> td.Metric("m")) >> td.Void()
    assert td.compile(block).run([[], []]).metrics["m"].shape == (0, 2)
    assert block.eval([])[1]["m"].shape == (0, 2)


def test_losses_may_be_metrics() -> None:
    weight = nn.Parameter(torch.tensor(3.0))
    block = td.Map(td.AllOf(td.Scalar(), weight) >> td.Function(torch.mul) >> td.Metric("m"))
    model = td.compile(block >> td.Void())
    model.run([[1, 2], [4]]).metrics["m"].sum().backward()
    assert weight.grad is not None
    assert weight.grad.item() == 7.0


def test_a_constant_may_be_learned() -> None:
    start = nn.Parameter(torch.zeros(2))
    model = td.compile(td.Map(td.Vector(2)) >> td.Fold(add(), start))
    model([[[1, 2]], []]).sum().backward()
    assert start.grad is not None
    assert start.grad.tolist() == [2.0, 2.0]
    assert [name for name, _ in model.named_parameters()] == ["blocks.constant.value"]


@pytest.mark.parametrize("cell", [nn.GRUCell(3, 4), nn.LSTMCell(3, 4), nn.RNNCell(3, 4)])
def test_recurrent_cells_run_like_torch(cell: Any) -> None:
    block = td.Map(td.Vector(3)) >> td.RNN(td.RNNCell(cell)) >> td.GetItem(0) >> td.GetItem(-1)
    values = torch.randn(5, 3)
    layer = {nn.GRUCell: nn.GRU, nn.LSTMCell: nn.LSTM, nn.RNNCell: nn.RNN}[type(cell)](3, 4)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    want = layer(values.unsqueeze(1))[0][-1, 0]
    torch.testing.assert_close(td.compile(block)([values.tolist()])[0], want)


def test_attention_is_the_softmax_of_the_scores() -> None:
    score = nn.Linear(3, 1)
    block = td.Map(td.Vector(3)) >> td.Attention(score)
    values = torch.randn(5, 3)
    want = (torch.softmax(score(values), 0) * values).sum(0)
    got = td.compile(block)([values.tolist(), []])
    torch.testing.assert_close(got[0], want)
    assert got[1].tolist() == [0.0] * 3
    check_batched(block, [values.tolist(), values[:2].tolist()])


def filled(value: float) -> Any:
    return lambda weight: nn.init.constant_(weight, value)


def test_fc() -> None:
    block = td.Vector(2) >> td.FC(1, None, filled(2))
    assert td.compile(block)([[0, 0], [1, 0], [1, 1]]).tolist() == [[0.0], [2.0], [4.0]]
    block = td.Vector(2) >> td.FC(1, None, filled(7), weight_norm=True)
    torch.testing.assert_close(block.eval([1, 1]), torch.tensor([2**0.5]))
    halved = td.Vector(1) >> td.FC(1, F.relu, filled(4), normalization_fn=lambda x: x / 2)
    assert td.compile(halved)([[-1], [1]]).tolist() == [[0.0], [2.0]]
    chained = td.Vector(1) >> (td.FC(1, None, filled(2)) >> td.FC(1, None, filled(3)))
    assert chained.eval([1.0], tolist=True) == [6.0]


def test_a_layer_has_one_input_type() -> None:
    layer = td.FC(2)
    td.Vector(2) >> layer
    with pytest.raises(TypeError, match="Type mismatch between input type"):
        td.Vector(3) >> layer


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_embedding_goes_round(dtype: str) -> None:
    table = np.array([[1, 2], [3, 4]])
    model = td.compile(td.Scalar(dtype) >> td.Embedding(2, 2, table))
    numbers = [0, 1, 7] + ([-5] if dtype != "uint8" else [])
    assert model(numbers).tolist() == [table[abs(n) % 2].tolist() for n in numbers]


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


def test_embedding_may_refuse_what_is_out_of_range() -> None:
    with pytest.raises(IndexError):
        td.compile(td.Scalar("int64") >> td.Embedding(2, 2, mod_inputs=False))([2])


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


def test_a_loader_shuffles_anew_each_time() -> None:
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

    def model(fuse: bool) -> td.CompiledModel:
        step = td.Function(layer) >> torch.tanh
        tree = td.recursive(
            lambda x: td.OneOf(len, {1: td.Vector(1), 2: td.Record((x, x)) >> add() >> step})
        )
        return td.compile(tree, fuse=fuse)

    examples = [(([1], [2]), ([3], [4]))]
    found = []
    for fuse in (False, True):
        made = model(fuse)
        layer.zero_grad()
        output = made(examples)
        output.sum().backward()
        found.append([output.item(), *(p.grad.item() for p in made.parameters())])  # type: ignore
        assert set(made.execution.values()) == {
            "compiled (native)" if fuse else "as it is (fuse=False)"
        }
        assert next(iter(made.execution)) in repr(made)
    assert found[1] == pytest.approx(found[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_examples_are_read_in_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    pair = td.Record({0: td.Vector(2) >> td.FC(2), 1: td.Vector(2)}) >> td.Function(torch.mul)
    model = td.compile(pair, fuse=True).to(dtype)
    output = model([([1, 2], [3, 4])])
    assert output.dtype == dtype
    assert set(model.execution.values()) == {"compiled (native)"}


def test_options_of_the_engine_are_passed_on_at_every_run() -> None:
    options = {"engine": "autograd", "kernel": "scatter", "fuse": True, "backend": "torch"}
    model = td.compile(td.Scalar() >> neg(), **options)
    schema = model.lower([1]).schema
    network = model._network_of(schema)
    assert {name: getattr(network, name) for name in options} == options
    model.engine, model.kernel, model.fuse, model.backend = "fast", "native", None, "native"
    assert model._network_of(schema) is network
    found = (network.engine, network.kernel, network.fuse, network.backend)
    assert found == ("fast", "native", None, "native")


def test_processes_lower_as_one_does() -> None:
    examples = [[n, "x", *([m, "y"] for m in range(n % 3))] for n in range(20)]
    one, several = td.compile(labelled_tree()), td.compile(labelled_tree())
    dag = several.lower(examples, num_workers=2)
    validate(dag)
    want, got = one.run(examples), several.run(several.batch(dag))
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


@pytest.mark.parametrize("name", ["keys", "type", "training", "a b"])
def test_any_name_will_do(name: str) -> None:
    model = td.compile(td.Vector(2) >> td.Function(nn.Linear(2, 2), name=name))
    assert model([[1, 2]]).shape == (1, 2)
    assert len(model.state_dict()) == 2


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


def test_models_compute_in_the_dtype_of_their_parameters() -> None:
    model = td.compile(sums()).double()
    examples = [[[1, 2]], []]
    assert model(examples).dtype == torch.float64
    same(model(examples)[0], model.root.eval(examples[0]))
    assert td.compile(td.Scalar("float64"))([0.1]).item() == 0.1


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    hidden = td.AllOf(td.Scalar()) >> td.Concat() >> td.FC(8)
    model = td.compile(td.Map(hidden) >> td.Sum() >> td.FC(1, None))
    examples = [torch.randn(n).tolist() for n in range(1, 9)]
    target = torch.tensor([[sum(e)] for e in examples])
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    batch, losses = model.batch(examples), []
    for _ in range(60):
        loss = F.mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_a_list_of_nothing() -> None:
    assert td.compile(td.Scalar() >> neg())([]).shape == (0,)
