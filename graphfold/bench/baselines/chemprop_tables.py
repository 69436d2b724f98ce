"""Tables of SMILES as users of chemprop read them and predict them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from graphfold.bench.baselines.molecule_models import import_chemprop

#: Records at a time in chemprop's own command.
BATCH_SIZE = 64


def read_with_chemprop(chunks: Iterable[Sequence[str]]) -> None:
    """Makes chemprop's graphs of molecules, a batch for each chunk of SMILES, and keeps none."""
    chemprop = import_chemprop()
    featurize = chemprop.featurizers.SimpleMoleculeMolGraphFeaturizer()
    for chunk in chunks:
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
