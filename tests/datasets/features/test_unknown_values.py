"""Counts of unknown values against a count by hand, and when a warning comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfold.dag import TypedDAG, select
from graphfold.datasets.adapter import read_records
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_spec import FeatureSpec, UnknownValues
from graphfold.datasets.readers.conllu import ConlluAdapter


def sentences(*relations: str) -> TypedDAG:
    """Sentences of three words; both dependents have the same relation, such as `det`."""
    adapter = ConlluAdapter()
    texts = [
        f"1\ta\t_\tX\t_\t_\t2\t{name}\t_\t_\n2\tb\t_\tX\t_\t_\t0\troot\t_\t_\n"
        f"3\tc\t_\tX\t_\t_\t2\t{name}\t_\t_\n"
        for name in relations
    ]
    return read_records(adapter, Path(), map(adapter.record_of, texts)).dag


def count(trained: TypedDAG, new: TypedDAG, batches: int = 1, **options: int) -> list[str]:
    """The warnings about new graphs, in batches, for a model trained with others."""
    spec = FeatureSpec.fit(trained, **options)
    unknown = UnknownValues(FeatureSpec.from_dict(spec.to_dict()))
    for first in range(batches):
        unknown.add(spec.encode(select(new, range(first, new.num_graphs, batches))))
    return unknown.sentences()


@pytest.mark.parametrize("batches", [1, 3])
def test_missing_and_new_values_are_counted_by_record(batches):
    trained = sentences("det", "obj")
    assert count(trained, trained, batches) == []
    (said,) = count(trained, sentences(*["det", "_", "new"] * 3), batches)
    begin = "missing or never seen in training: 12 of 18 values of 'deprel' of inputs"
    assert said.startswith(begin)
    assert "(67%; in training 0%), in 6 of 9 records." in said


def test_few_new_values_are_ordinary():
    trained = sentences("det", "obj")
    assert count(trained, sentences(*["det"] * 400, *["new"] * 100)) == []  # a fifth
    assert count(trained, sentences(*["det"] * 300, *["new"] * 200))  # two fifths


def test_few_values_may_be_new_by_chance():
    trained = sentences("det", "obj")
    assert count(trained, sentences("new")) == []  # both values
    assert count(trained, sentences("new", "new"))


def test_what_training_lacked_may_be_absent():
    half = sentences("det", "_")
    assert count(half, sentences("_", "det")) == []
    assert count(half, sentences(*["_"] * 20))
    rare = sentences("det", "det", "obj")
    assert count(rare, sentences("obj", "det"), min_count=3) == []  # a third had no id there
    assert count(sentences("_"), sentences("_")) == []


def test_what_is_unknown_in_the_validation_part_is_ordinary():
    """The validation scores of the model already include as many unknown values."""
    trained = sentences(*["det"] * 40)
    spec = FeatureSpec.fit(trained).held_out([sentences(*["det", "new"] * 20)])
    for new, is_said in ((["det", "other"] * 20, False), (["det"] * 3 + ["other"] * 37, True)):
        unknown = UnknownValues(FeatureSpec.from_dict(spec.to_dict()))
        unknown.add(spec.encode(sentences(*new)))
        assert len(unknown.sentences()) == is_said
    assert "(92%; in the validation part 50%)" in unknown.sentences()[0]


def test_a_run_does_not_warn_of_its_test_part(tmp_path):
    """All words of val and test are new; so are those that its scores are about."""
    for part, word in (("train", "a"), ("dev", "b"), ("test", "c")):
        lines = [f"(3 (2 {word}{n}) (4 {word}))" for n in range(40)]
        (tmp_path / f"{part}.txt").write_text("\n".join(lines))
    parts = {part: str(tmp_path / f"{name}.txt") for part, name in PARTS.items()}
    data = DataModule(
        adapter="brackets", path=parts, split="given", cache_dir=str(tmp_path), batch_size=4
    )
    data.prepare()
    unknown = UnknownValues(data.spec)
    for piece in data.chunks("test", encoded=True):
        unknown.add(piece)
    assert any(count.known == 0 for count in unknown.counts.values())
    assert unknown.sentences() == []


PARTS = {"train": "train", "val": "dev", "test": "test"}
