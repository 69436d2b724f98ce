"""The batches of a loader: records, plans, policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from postfix_adapter import NAME, random_expressions, write_expressions

from graphfold.batching import Batch, Pass, Rounds, Up, build_schedule
from graphfold.batching.scheduling import schedule_report
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.dag.compare import difference
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.loading import loader as loader_module
from graphfold.datasets.loading.loader import GraphDataset, GraphLoader
from graphfold.datasets.loading.sampler import BatchSampler
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.packing import pack

PASSES = [Rounds("next", 2), Up()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> GraphDataset:
    folder = tmp_path_factory.mktemp("data")
    path = write_expressions(folder / "f.txt", random_expressions(100))
    dag = pack(AdapterSpec(NAME), path, folder / "cache").dag
    return GraphDataset(FeatureSpec.fit(dag).encode(dag), PASSES)


def make_loader(dataset: GraphDataset) -> GraphLoader:
    sizes = dataset.dag.node_ptr.diff()
    sampler = BatchSampler(torch.arange(len(sizes)), sizes, 16, shuffle=True)
    return GraphLoader(dataset, sampler)


def assert_same(first: Batch, second: Batch) -> None:
    assert difference(first.dag, second.dag) is None
    assert first.dag.dictionaries == second.dag.dictionaries
    left: list[torch.Tensor] = []
    right: list[torch.Tensor] = []
    first.schedule.map_tensors(lambda t: left.append(t) or t)  # type: ignore[func-returns-value]
    second.schedule.map_tensors(lambda t: right.append(t) or t)  # type: ignore[func-returns-value]
    assert len(left) == len(right) > 0
    assert all(map(torch.equal, left, right))
    groups = [[plan.groups for plan in batch.schedule.passes] for batch in (first, second)]
    assert groups[0] == groups[1]


def test_batches_hold_the_records_of_the_sampler(dataset: GraphDataset) -> None:
    loader = make_loader(dataset)
    assert len(loader) == 7
    for batch, numbers in zip(loader, loader.sampler, strict=True):
        assert batch.dag.origin[:, 2].tolist() == numbers
        assert len(batch.schedule.passes) == 2


def test_equal_nodes_of_a_corpus_are_found_once(
    dataset: GraphDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def find_and_note(dag: TypedDAG, passes: Sequence[Pass]) -> EqualNodes:
        found.append(tuple(passes))
        return deduplicate(dag, passes)

    monkeypatch.setattr(loader_module, "deduplicate", find_and_note)
    corpus, up, rounds = replace(dataset.dag), [Up()], [Rounds("next", 2)]
    for passes in (up, rounds, up, rounds):
        shared = GraphDataset(corpus, passes, share=True)[[4, 2]]
        assert_same(shared, Batch(shared.dag, build_schedule(shared.dag, passes, share=True)))
    assert found == [tuple(up), tuple(rounds)]
    GraphDataset(corpus, [Rounds("next", 1)])
    assert len(found) == 2


@pytest.mark.parametrize(
    ("most", "most_nodes", "asked"),
    [(3, 1 << 16, [3, 3, 3, 6, 6, 6, 7]), (8, 1, [1, 2, 3, 4, 5, 6, 7]), (8, 1 << 16, [7] * 7)],
)
def test_batches_are_made_some_at_a_time(
    dataset: GraphDataset,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    most_nodes: int,
    asked: list[int],
) -> None:
    monkeypatch.setattr(loader_module, "PLAN_AHEAD", most)
    monkeypatch.setattr(loader_module, "PLAN_AHEAD_NODES", most_nodes)
    made: list[list[int]] = []

    class Noted(GraphDataset):
        def __getitem__(self, numbers: Sequence[int]) -> Batch:
            made.append(list(numbers))
            return super().__getitem__(numbers)

    loader = make_loader(Noted(dataset.dag, PASSES))
    assert [len(made) for _ in loader] == asked
    assert made == list(loader.sampler)


class Counted(GraphDataset):
    """Counts the batches that it makes."""

    num_made = 0

    def __getitem__(self, numbers: Sequence[int]) -> Batch:
        self.num_made += 1
        return super().__getitem__(numbers)


def in_file_order(dataset: GraphDataset) -> GraphLoader:
    sizes = dataset.dag.node_ptr.diff()
    return GraphLoader(dataset, BatchSampler(torch.arange(len(sizes)), sizes, 16))


def test_batches_of_every_epoch_are_planned_once(dataset: GraphDataset) -> None:
    counted = Counted(dataset.dag, PASSES)
    loader = in_file_order(counted)
    next(iter(loader))  # an epoch that is broken off leaves nothing behind
    counted.num_made = 0
    first, second = list(loader), list(loader)
    assert counted.num_made == len(first) == 7
    for one, other in zip(first, second, strict=True):
        assert one is other
    for batch, numbers in zip(second, loader.sampler, strict=True):
        assert_same(batch, dataset[numbers])


def test_batches_are_planned_anew_for_another_policy(dataset: GraphDataset) -> None:
    loader = in_file_order(GraphDataset(dataset.dag, PASSES))
    by_depth = next(iter(list(loader))).schedule.passes[1]
    loader.choose_policy("one_by_one")
    one_by_one = next(iter(loader)).schedule.passes[1]
    assert len(by_depth.groups) < len(one_by_one.groups) == by_depth.num_rows


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_that_change_or_are_large_are_not_kept(
    dataset: GraphDataset, monkeypatch: pytest.MonkeyPatch, shuffle: bool
) -> None:
    counted = Counted(dataset.dag, PASSES)
    loader = make_loader(counted) if shuffle else in_file_order(counted)
    if not shuffle:
        monkeypatch.setattr(loader_module, "KEPT_NODES", dataset.dag.num_nodes - 1)
    for _ in range(2):
        assert len(list(loader)) == 7
    assert counted.num_made == 14


def test_an_empty_batch(dataset: GraphDataset) -> None:
    assert dataset[[]].num_graphs == 0


def test_iterating_draws_no_random_numbers(dataset: GraphDataset) -> None:
    state = torch.get_rng_state()
    assert len(list(make_loader(dataset))) == 7
    assert torch.equal(torch.get_rng_state(), state)


def test_the_policy_with_the_fewest_calls_is_chosen(
    dataset: GraphDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = make_loader(GraphDataset(dataset.dag, PASSES))
    loader.choose_policy("auto")
    assert list(loader.calls) == ["depth", "critical_path"]  # as many calls, so the simpler one
    assert len(set(loader.calls.values())) == 1
    batch = next(iter(loader))
    groups = [len(plan.groups) for plan in batch.schedule.passes]
    assert loader.policy == "depth"
    assert loader.calls["depth"] >= 2 + groups[1]
    monkeypatch.setattr(schedule_report, "CANDIDATES", ("one_by_one", "depth"))
    loader.choose_policy("auto")
    assert list(loader.calls) == ["depth", "one_by_one"]
    loader.choose_policy("one_by_one")
    assert loader.policy == "one_by_one"
    plan = next(iter(loader)).schedule.passes[1]
    assert len(plan.groups) == next(iter(loader)).dag.num_nodes


def test_mixed_types_need_fewer_calls_on_the_critical_path() -> None:
    types = (NodeType("leaf", 0), NodeType("a", 1), NodeType("b", 1))
    builder = GraphBuilder(Schema(types))
    for chain in ("abab", "bab"):  # by depth, an `a` and a `b` are never the same call
        node = builder.node("leaf")
        for name in chain:
            node = builder.node(name, inputs=[node])
        builder.output(node)
        builder.finish()
    loader = make_loader(GraphDataset(builder.build(), [Up()]))
    loader.choose_policy("auto")
    assert loader.calls == {"critical_path": 5, "depth": 8}
    assert loader.policy == "critical_path"
    assert len(next(iter(loader)).schedule.passes[0].groups) == 5


def test_rounds_alone_are_not_tried(dataset: GraphDataset) -> None:
    loader = make_loader(GraphDataset(dataset.dag, [Rounds("next", 2)]))
    loader.choose_policy("auto")
    assert (loader.policy, loader.calls) == ("depth", {})


@pytest.mark.gpu
def test_batches_can_be_pinned(dataset: GraphDataset) -> None:
    loader = GraphLoader(dataset, make_loader(dataset).sampler, pin_memory=True)
    assert next(iter(loader)).dag.op_type.is_pinned()
