"""A hundred molecules, and what compares models on them with PyTorch Geometric's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Pass, Rounds, build_schedule
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.layers import ColumnEncoder

CORES = ("C{}", "CC(C){}", "C1CC1{}", "c1ccccc1{}", "c1ccncc1{}", "C=CC{}", "C#CC{}", "O=C(C){}")
CORES += ("c1ccc2ccccc2c1{}", "C[Si](C)(C){}")
SUBSTITUENTS = ("", "F", "O", "N(C)C", "C(=O)O", "C#N", "S(=O)(=O)N", "OC1CCCC1", "[N+](=O)[O-]")
SUBSTITUENTS += (".[Na+].[Cl-]",)
SIZE = 8


@cache
def molecules() -> TypedDAG:
    """All of them, salts with lone atoms among them, in one batch."""
    adapter = SmilesAdapter(target_columns="y")
    builder = GraphBuilder(adapter.schema)
    for core in CORES:
        for substituent in SUBSTITUENTS:
            smiles = core.format(substituent)
            adapter.parse(Record(1, RecordRow(smiles, ("1.0",))), builder)
    dag = builder.build()
    assert dag.num_graphs == 100
    return dag


def edge_index() -> Tensor:
    """[2, num_edges] source and target."""
    relation = molecules().relations["bond"]
    target = torch.repeat_interleave(torch.arange(molecules().num_nodes), relation.ptr.diff())
    return torch.stack([relation.index, target])


def one_hot(columns: Mapping[str, Tensor], encoder: ColumnEncoder) -> tuple[Tensor, Tensor]:
    """Features [num_rows, num_features], and the weight of a linear layer that is the encoder."""
    sizes = [(column.size or 0) + 1 for column in encoder.codes]
    parts = [
        nn.functional.one_hot(columns[column.name].long(), size)
        for column, size in zip(encoder.codes, sizes, strict=True)
    ]
    assert encoder.table is not None
    return torch.cat(parts, 1).double(), encoder.table.detach().T


def bonds(encoder: ColumnEncoder) -> tuple[Tensor, Tensor]:
    """`one_hot` of the bonds."""
    return one_hot(molecules().columns["relation:bond"], encoder)


def randomise(module: nn.Module) -> None:
    """Gives every parameter random numbers, those that begin with zeros too."""
    generator = torch.Generator().manual_seed(5)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).to(parameter) / 2


def features() -> Tensor:
    """[num_atoms, SIZE] random ones, which require a gradient."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(molecules().num_nodes, SIZE, generator=generator, dtype=torch.float64)
    return x.requires_grad_()


def assert_equal(
    cell: Cell | list[Cell],
    convolution: Callable[[Tensor], Tensor],
    rounds: int = 2,
    weights: Iterable[tuple[Tensor, Tensor]] = (),
) -> None:
    """Checks states and gradients of some rounds against a layer that runs as often.

    Args:
        cell: in float64.
        convolution: one round on states.
        rounds: how many.
        weights: ours and theirs of which the gradients have to be equal, too.
    """
    passes: list[Pass] = [Rounds("bond", rounds)]
    dag = molecules()
    network = Network(dag.schema, (passes[0], {"atom": cell}), run="compiled").double()
    mine, theirs = features(), features()
    got = network(Batch(dag, build_schedule(dag, passes)), {"atom": mine})["h"]
    want = theirs
    for _ in range(rounds):
        want = convolution(want)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    factor = torch.linspace(-1, 1, got.numel(), dtype=got.dtype).view_as(got)
    pairs = [(mine, theirs), *weights]
    ours = torch.autograd.grad((got * factor).sum(), [pair[0] for pair in pairs])
    others = torch.autograd.grad((want * factor).sum(), [pair[1] for pair in pairs])
    for one, other in zip(ours, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
