"""Contributions: against the reference engine, the model with features taken away, and the sum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training.tiny_runs import MOLECULES, train, write_corpora, write_molecules

import graphfold
from graphfold.batching import Batch
from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.inference.explanation.explain import METHODS, Explained, Explainer, networks_of
from graphfold.inference.explanation.methods import (
    Units,
    find_units,
    gradient_times_input,
    integrated_gradients,
    mask_each,
)
from graphfold.inference.predictor import Predictor
from graphfold.layers import GraphModel

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]
SMILES = ["CCO", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "C", "[Na+].[Cl-]", "C/C=C/C#N"]
RUNS = ["dmpnn", "gin", "classes", "trees"]


TREES = ["experiment=sst_tree_lstm"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("explain")
    table, root = write_molecules(folder / "m.csv"), write_corpora(folder / "corpora")
    data = ["data=smiles", f"data.path={table}", *SMALL]
    numbers = "data.target_columns=['a b',c]"
    classes = ["data.target_columns=[active]", "data.task=classification"]
    return {
        "dmpnn": train(folder / "dmpnn", *data, "model=dmpnn", numbers),
        "gin": train(folder / "gin", *data, "model=gin", numbers),
        "classes": train(folder / "classes", *data, "model=dmpnn", *classes),
        "trees": train(folder / "sst", *TREES, f"data.root={root}", *SMALL),
        "two_trees": train(folder / "two", *TREES, f"data.root={root}", *SMALL, "ensemble=2"),
    }


def load(runs: dict[str, Path], name: str) -> tuple[Predictor, TypedDAG]:
    """A run in float64, and some graphs as its adapter reads them."""
    predictor = graphfold.load(runs[name])
    predictor.trained.model.double()
    texts = SMILES
    if name.endswith("trees"):
        path = runs[name].parent / "corpora" / "sst" / "test.txt"
        texts = path.read_text().splitlines()[:4]
    records = [predictor.adapter.record_of(text) for text in texts]
    return predictor, read_records(predictor.adapter, Path(), records, "raise").dag


def prepare(predictor: Predictor, dag: TypedDAG) -> tuple[Explained, Units]:
    model = predictor.trained.model
    assert isinstance(model, GraphModel)
    batch = model.plan(predictor.trained.spec.encode(dag), share=False)
    return Explained(model, batch), find_units(model, batch)


def sums(shares: Tensor, units: Units, num_graphs: int) -> Tensor:
    total = shares.new_zeros(num_graphs, shares.shape[1])
    for kind in units.kinds:
        total.index_add_(0, kind.graph, shares[kind.unit])
    return total


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("engine", ["autograd", "reference"])
def test_gradients_of_all_engines_agree(runs: dict[str, Path], name: str, engine: str) -> None:
    predictor, dag = load(runs, name)
    explained, units = prepare(predictor, dag)
    found = gradient_times_input(explained, units)
    assert found.abs().sum() > 0
    explained.model.network.engine = engine
    torch.testing.assert_close(found, gradient_times_input(explained, units))


@pytest.mark.parametrize("name", RUNS)
def test_gradients_are_the_derivative_of_a_common_scale(runs: dict[str, Path], name: str) -> None:
    """The sum over units is d/ds of the number at s times the inputs, here by a difference."""
    predictor, dag = load(runs, name)
    explained, units = prepare(predictor, dag)
    step = 1e-6
    with torch.no_grad():
        more, less = (
            explained({n: x * scale for n, x in explained.inputs.items()})
            for scale in (1 + step, 1 - step)
        )
    found = sums(gradient_times_input(explained, units), units, dag.num_graphs)
    torch.testing.assert_close(found, (more - less) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", RUNS)
def test_integrated_gradients_add_up(runs: dict[str, Path], name: str) -> None:
    predictor, dag = load(runs, name)
    explained, units = prepare(predictor, dag)
    shares = integrated_gradients(explained, units)
    with torch.no_grad():
        empty = explained({name: torch.zeros_like(x) for name, x in explained.inputs.items()})
        difference = explained(explained.inputs) - empty
    found = sums(shares, units, dag.num_graphs)
    scale = sums(shares.abs(), units, dag.num_graphs)
    assert bool(((found - difference).abs() <= 0.02 * scale).all())


def test_contributions_that_do_not_add_up_are_told(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphfold.inference.explanation import methods as integrated

    predictor, dag = load(runs, "dmpnn")
    explained, units = prepare(predictor, dag)
    for name, value in {"FEWEST_STEPS": 1, "MOST_STEPS": 1, "TOLERANCE": 1e-9}.items():
        monkeypatch.setattr(integrated, name, value)
    with pytest.warns(UserWarning, match="do not add up within 0% after 1 steps"):
        integrated_gradients(explained, units)


def without_atom(dag: TypedDAG, atom: int, sources: Tensor) -> TypedDAG:
    """The graphs with missing codes in place of the features of an atom, wherever they are."""
    columns = {space: dict(own) for space, own in dag.columns.items()}
    for space, is_own in (("type:atom", torch.arange(len(dag.nodes_of_type("atom"))) == atom),):
        for name, column in columns[space].items():
            columns[space][name] = torch.where(is_own, -1, column.long())
    for name, column in columns["type:bond"].items():
        if name.startswith("source_"):
            columns["type:bond"][name] = torch.where(sources == atom, -1, column.long())
    return replace(dag, columns=columns)


def test_masking_an_atom_is_predicting_without_its_features(runs: dict[str, Path]) -> None:
    predictor, _ = load(runs, "dmpnn")
    model = predictor.trained.model
    records = [predictor.adapter.record_of("OCC(=O)N")]
    dag = read_records(predictor.adapter, Path(), records, "raise").dag
    explained, units = prepare(predictor, dag)
    found = mask_each(explained, units)
    # begin and end of the bonds of OCC(=O)N, each in both directions
    sources = torch.tensor([0, 1, 1, 2, 2, 3, 2, 4])
    whole = explained(explained.inputs)
    for atom in range(5):
        changed = without_atom(explained.batch.dag, atom, sources)
        with torch.no_grad():
            number = model.head.decode(model(Batch(changed, explained.batch.schedule)))
        torch.testing.assert_close(found[atom], (whole - number)[0].detach())


def test_masking_a_bond_is_predicting_without_its_features(runs: dict[str, Path]) -> None:
    for name, space in (("dmpnn", "type:bond"), ("gin", "relation:bond")):
        predictor, _ = load(runs, name)
        model = predictor.trained.model
        records = [predictor.adapter.record_of("C#N")]
        explained, units = prepare(
            predictor, read_records(predictor.adapter, Path(), records, "raise").dag
        )
        (kind,) = (kind for kind in units.kinds if kind.name == "bond")
        found = mask_each(explained, units)[kind.unit]
        columns = {
            n: column if n.startswith("source_") else torch.full(column.shape, -1)
            for n, column in explained.batch.dag.columns[space].items()
        }
        dag = explained.batch.dag
        changed = replace(dag, columns={**dag.columns, space: columns})
        with torch.no_grad():
            whole = explained(explained.inputs)
            number = model.head.decode(model(Batch(changed, explained.batch.schedule)))
        assert kind.ends is not None
        assert kind.ends.tolist() == [[0, 1]]
        torch.testing.assert_close(found, whole - number)


@pytest.mark.filterwarnings("ignore:DMPNNAtomCell is not compiled")  # a batch without any bond
@pytest.mark.parametrize("method", ["gradient", "masking"])
def test_a_molecule_is_explained_the_same_in_any_batch(runs: dict[str, Path], method: str) -> None:
    predictor, dag = load(runs, "dmpnn")
    explainer = Explainer(predictor, method)
    together = explainer.explain_graphs(dag)
    for text, found in zip(SMILES, together, strict=True):
        record = predictor.adapter.record_of(text)
        own = read_records(predictor.adapter, Path(), [record], "raise").dag
        (alone,) = explainer.explain_graphs(own)
        assert alone.to_dict() == found.to_dict()


def test_some_targets_alone_are_explained_as_among_all(runs: dict[str, Path]) -> None:
    predictor, dag = load(runs, "dmpnn")
    every = Explainer(predictor, "gradient").explain_graphs(dag)
    some = Explainer(predictor, "gradient", ["c"])
    assert some.columns == ["c_base", "c_atom_contributions", "c_bond_contributions"]
    for found, wanted in zip(some.explain_graphs(dag), every, strict=True):
        assert list(found.values) == ["c"]
        assert found.listed("c", "atom") == wanted.listed("c", "atom")


def test_symmetric_atoms_contribute_the_same(runs: dict[str, Path]) -> None:
    predictor, _ = load(runs, "dmpnn")
    record = predictor.adapter.record_of("CCCCC")
    dag = read_records(predictor.adapter, Path(), [record], "raise").dag
    for method in METHODS:
        (found,) = Explainer(predictor, method).explain_graphs(dag)
        atoms = found.values["c"]["atom"]
        assert list(atoms) == pytest.approx(list(atoms)[::-1])
        assert found.ends["bond"] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_all_molecules_of_the_tiny_table_have_a_number_for_each_atom(
    runs: dict[str, Path],
) -> None:
    predictor, _ = load(runs, "gin")
    records = [predictor.adapter.record_of(text) for text in MOLECULES]
    dag = read_records(predictor.adapter, Path(), records, "raise").dag
    counts = dag.row_ptr("type:atom").diff().tolist()
    for found, count in zip(
        Explainer(predictor, "masking").explain_graphs(dag), counts, strict=True
    ):
        assert len(found.values["c"]["atom"]) == count


def test_the_class_that_an_ensemble_predicts_is_explained(runs: dict[str, Path]) -> None:
    predictor, dag = load(runs, "two_trees")
    members = networks_of(predictor.trained.model)
    batch = members[0].plan(predictor.trained.spec.encode(dag), share=False)
    each = Explained.of_members(members, batch)
    together = torch.stack([one.probabilities for one in each if one.probabilities is not None])
    assert len(together) == 2
    wanted = together.mean(0).argmax(1).tolist()
    assert [one.classes.tolist() for one in each if one.classes is not None] == [wanted, wanted]
    values = [prediction.targets["label"].value for prediction in predictor.predict_graphs(dag)]
    assert [int(value) for value in values] == wanted
