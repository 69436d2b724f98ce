"""Generated graphs: the same from the same seed, with several types at mixed depths."""

from __future__ import annotations

import numpy as np
import pytest

from graphfold.batching import Up, build_schedule
from graphfold.bench.benchmarks.schedule import FAMILIES, letters_to_sentences, word_lattices
from graphfold.dag import TypedDAG, validate


def launches(dag: TypedDAG, policy: str) -> int:
    return build_schedule(dag, [Up()], policy).report([Up()]).total.launches


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_gives_the_same_graphs(name: str) -> None:
    one, again, other = (FAMILIES[name](5, seed) for seed in (3, 3, 4))
    validate(one)
    assert one.num_graphs == 5
    assert one.op_type.tolist() == again.op_type.tolist()
    assert one.input_index.tolist() == again.input_index.tolist()
    assert one.input_index.tolist() != other.input_index.tolist()


@pytest.mark.parametrize("name", FAMILIES)
def test_types_are_spread_over_depths(name: str) -> None:
    dag = FAMILIES[name](8, 0)
    depths = [set(dag.depth[dag.op_type == t].tolist()) for t in range(len(dag.schema.types))]
    assert sum(len(own) > 3 for own in depths) >= 2
    assert np.bincount(dag.op_type.numpy()).min() > 0


@pytest.mark.parametrize("name", FAMILIES)
def test_a_policy_that_looks_ahead_saves_launches(name: str) -> None:
    dag = FAMILIES[name](16, 0)
    assert launches(dag, "critical_path") < 0.75 * launches(dag, "depth")


def test_every_word_and_phrase_of_a_sentence_is_classified() -> None:
    dag = letters_to_sentences(3, 0)
    names = np.array([t.name for t in dag.schema.types])[dag.op_type.numpy()]
    assert (names == "label").sum() == (names == "word").sum() + (names == "phrase").sum()
    assert (names == "word").sum() == (names == "phrase").sum() + 3


def test_a_letter_reads_the_letter_before_it_and_words_that_end_there() -> None:
    dag = word_lattices(4, 0)
    names = np.array([t.name for t in dag.schema.types])[dag.op_type.numpy()]
    read = np.diff(dag.input_ptr.numpy())[names == "letter"]
    assert (read == 0).sum() == 4  # the first of each
    assert (read > 1).any()
