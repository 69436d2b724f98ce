"""Tables of SMILES as users of chemprop read them and predict them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from graphfold.bench.molecule_baselines import import_chemprop

#: Records at a time in chemprop's own command.
BATCH_SIZE = 64


def read_with_chemprop(smiles: Sequence[str], batch_size: int) -> None:
    """Makes chemprop's graphs of molecules, `batch_size` at a time, and keeps none."""
    chemprop = import_chemprop()
    featurize = chemprop.featurizers.SimpleMoleculeMolGraphFeaturizer()
    for chunk in _chunks(smiles, batch_size):
        points = [chemprop.data.MoleculeDatapoint.from_smi(text) for text in chunk]
        chemprop.data.BatchMolGraph([featurize(point.mol) for point in points])


@torch.inference_mode()
def predict_with_chemprop(smiles: Sequence[str], width: int, depth: int, output: Path) -> None:
    """Writes a number of chemprop's D-MPNN, freshly initialised, beside each SMILES."""
    chemprop = import_chemprop()
    nn, data = chemprop.nn, chemprop.data
    passing = nn.BondMessagePassing(d_h=width, depth=depth)
    head = nn.RegressionFFN(input_dim=width, hidden_dim=width)
    model: Any = chemprop.models.MPNN(passing, nn.MeanAggregation(), head).eval()
    points = [data.MoleculeDatapoint.from_smi(text) for text in smiles]
    loader = data.build_dataloader(
        data.MoleculeDataset(points), batch_size=BATCH_SIZE, shuffle=False
    )
    values = torch.cat([model(batch.bmg)[:, 0] for batch in loader]).tolist()
    lines = [f"{text},{value:.7g}\n" for text, value in zip(smiles, values, strict=True)]
    output.write_text("smiles,exp_pred\n" + "".join(lines))


def _chunks(smiles: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(smiles), size):
        yield smiles[start : start + size]
