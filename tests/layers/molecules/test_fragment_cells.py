"""The cells over fragments against their equations, and a model over atoms and fragments."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem
from torch import Tensor

from graphfold.batching import Batch, Cell, Down, Network, Rounds, Up, build_schedule
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.layers import (
    FeatureEncoder,
    FragmentCell,
    GINECell,
    GraphModel,
    ReadersCell,
    RegressionHead,
    TypeReadout,
)

SIZE = 5
#: A lone atom, a bond, a branch, fused and bridged rings, two parts, a chain of rings.
SMILES = (
    "C",
    "CO",
    "CC(C)(C)O",
    "CC(=O)Nc1ccc2CCCCc2c1",
    "C1CC2CCC1CC2",
    "CC(=O)[O-].[Na+]",
    "OC1CCC2(CC1)OCCN2c1ccc(cc1)-c1ccncc1",
)
PASSES = (Rounds("bond", 2), Up(), Down())


def molecules(smiles: tuple[str, ...], option: str = "rings_and_paths") -> TypedDAG:
    adapter = SmilesAdapter(target_columns="y", fragments=option)  # type: ignore[arg-type]
    builder = GraphBuilder(adapter.schema)
    for text in smiles:
        adapter.parse(Record(1, RecordRow(text, ("1.0",))), builder)
    return builder.build()


def make_model(dag: TypedDAG) -> GraphModel:
    torch.manual_seed(0)
    up = partial(FragmentCell, hidden_size=SIZE)
    down = partial(ReadersCell, hidden_size=SIZE)
    cells: list[dict[str, partial[Cell]]] = [
        {"atom": partial(GINECell, hidden_size=SIZE)},
        {"fragment": up, "molecule": up},
        {"atom": down, "fragment": down},
    ]
    types = {"atom": ["sum", "mean"], "fragment": ["sum", "max"], "molecule": ["sum"]}
    return GraphModel(
        dag.schema,
        partial(FeatureEncoder, size=SIZE),
        PASSES,
        cells,
        partial(TypeReadout, types=types),
        RegressionHead,
        scalers={"y": (0.0, 1.0)},
    ).double()


def run(cells: list[dict[str, Cell]], passes: tuple[Up | Down, ...], x: Tensor) -> Tensor:
    """[num_nodes, SIZE] the states of ethanol with a junction more: `star`."""
    dag = star()
    network = Network(dag.schema, *zip(passes, cells, strict=True)).double()
    features = {"atom": x[:4], "fragment": x[4:8], "molecule": x.new_zeros(1, 0)}
    states = network(Batch(dag, build_schedule(dag, passes)), features)
    return states["h"]


def star() -> TypedDAG:
    """Isobutane: three bonds that meet in a junction, which is the root."""
    return molecules(("CC(C)C",))


class Given(Cell):
    """The features as the state."""

    arity = 0
    fields = {"h": SIZE}

    def forward(self, x, children):
        return {"h": x}


def unit(gates: Tensor, kept: Tensor) -> Tensor:
    z, u = torch.sigmoid(gates[:SIZE]), torch.tanh(gates[SIZE:])
    return z * kept + (1 - z) * u


def test_up_and_down_are_their_equations():
    dag, x = star(), torch.randn(9, SIZE, dtype=torch.float64)
    fragment, molecule = FragmentCell(SIZE, SIZE).double(), FragmentCell(0, SIZE).double()
    atom_down, down = ReadersCell(SIZE).double(), ReadersCell(SIZE).double()
    up = {"atom": Given(), "fragment": fragment, "molecule": molecule}
    got = run([up, {"atom": atom_down, "fragment": down}], (Up(), Down()), x)
    inputs = [dag.input_index[a:b].tolist() for a, b in dag.input_ptr.unfold(0, 2, 1).tolist()]
    (root,) = inputs[8]
    assert [n for n in inputs[root] if n < 4] == [1]
    assert len(inputs[root]) == 4

    def rise(node: int, cell: FragmentCell, below: Tensor) -> Tensor:
        atoms = x[[n for n in inputs[node] if n < 4]].sum(0)
        gates = cell.from_children(torch.cat([atoms, below]))
        if cell.from_x is not None:
            gates = gates + cell.from_x(x[node])
        return unit(gates, below)

    h = x.clone()
    for node in (n for n in range(4, 8) if n != root):
        h[node] = rise(node, fragment, torch.zeros_like(x[0]))
    h[root] = rise(root, fragment, sum(h[n] for n in inputs[root] if n >= 4))
    h[8] = rise(8, molecule, h[root])

    def sink(own: Tensor, readers: Tensor, cell: ReadersCell) -> Tensor:
        return unit(cell.linear(torch.cat([own, readers])), own)

    want = h.clone()
    want[root] = sink(h[root], h[8], down)
    for node in (n for n in range(4, 8) if n != root):
        want[node] = sink(h[node], want[root], down)
    for atom in range(4):
        readers = [want[n] for n in range(4, 8) if atom in inputs[n]]
        want[atom] = sink(h[atom], sum(readers), atom_down)
    torch.testing.assert_close(got, want)


def renumbered(smiles: str, seed: int) -> str:
    molecule = Chem.MolFromSmiles(smiles)
    (text,) = Chem.MolToRandomSmilesVect(molecule, 1, randomSeed=seed)
    return text


@pytest.mark.parametrize("option", ["rings_and_paths", "brics"])
def test_outputs_do_not_depend_on_the_order_of_the_atoms(option):
    dag = molecules(SMILES, option)
    model = make_model(dag)
    first = model(Batch(dag, build_schedule(dag, PASSES)))

    @settings(max_examples=10)
    @given(seed=st.integers(1, 10_000))
    def compare(seed):
        turned = molecules(tuple(renumbered(text, seed) for text in SMILES), option)
        second = model(Batch(turned, build_schedule(turned, PASSES)))
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)

    compare()


def test_equal_nodes_of_a_batch_are_computed_once_to_the_same_numbers():
    dag = molecules(SMILES * 2)
    model = make_model(dag)
    plans = [build_schedule(dag, PASSES, share=share) for share in (False, True)]
    first, second = (model(Batch(dag, plan)) for plan in plans)
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)
    assert plans[1].passes[1].num_rows < plans[0].passes[1].num_rows
    assert set(model.network.execution.values()) == {"compiled (native)"}
