"""The weights of a chemprop encoder in a D-MPNN of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from graphfold.errors import ConfigError
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.graph_model import GraphModel
from graphfold.layers.molecules.dmpnn import DMPNNAtomCell, DMPNNBondCell

SomeCell = TypeVar("SomeCell", DMPNNAtomCell, DMPNNBondCell)


def load_chemprop_weights(model: GraphModel, weights: Mapping[str, Tensor]) -> None:
    """Gives a D-MPNN the weights of chemprop's `BondMessagePassing`, as its `state_dict` has them.

    On graphs with the same features the states of the atoms are then those of chemprop: W_i is what
    the encoder does with a bond, W_h the messages, and W_o is split into what the encoder does with
    an atom and what the atom makes of its bonds. Number of rounds and activation are those of the
    model's config. W_i and W_h of chemprop have no bias, unless one is asked for there; nor have
    they here.

    Args:
        model: the model, whose feature set is `chemprop-v2` or `chemprop-v1`.
        weights: `W_i.weight`, `W_h.weight`, `W_o.weight` and `W_o.bias`.

    Raises:
        ConfigError: if weights are missing, have no place or another shape.
    """
    bond, atom = _cell(model, DMPNNBondCell), _cell(model, DMPNNAtomCell)
    of_bond, of_atom = _input(model, "bond"), _input(model, "atom")
    missing = {"W_i.weight", "W_h.weight", "W_o.weight", "W_o.bias"} - weights.keys()
    biases = {"W_i.bias", "W_h.bias", "W_d.weight"} & weights.keys()
    if missing or biases:
        raise ConfigError(
            f"the weights lack {sorted(missing)} and have {sorted(biases)} beside. Give those of a "
            "BondMessagePassing without bias and without descriptors of atoms."
        )
    width = of_atom.weight.shape[1]
    from_atom, from_bond = _split(weights["W_i.weight"], width)
    own, message = _split(weights["W_o.weight"], width)
    pairs = (
        ("W_i", of_bond.weight, torch.cat([from_bond, from_atom], 1)),  # ours has the bond first
        ("W_h", bond.message.weight, weights["W_h.weight"]),
        ("W_o", of_atom.weight, own),
        ("W_o", atom.from_bonds.weight, message),
        ("W_o.bias", atom.from_bonds.bias, weights["W_o.bias"]),
    )
    for name, mine, theirs in pairs:
        if mine.shape != theirs.shape:
            raise ConfigError(
                f"{name} is {list(theirs.shape)}, but the model has {list(mine.shape)} there. Set "
                "model.hidden_size and data.features to those of the weights."
            )
    with torch.no_grad():
        for _, mine, theirs in pairs:
            mine.copy_(theirs)


def _split(weight: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The columns for an atom, and the others."""
    return weight[:, :width], weight[:, width:]


def _cell(model: GraphModel, kind: type[SomeCell]) -> SomeCell:
    found = [module for module in model.network.modules() if isinstance(module, kind)]
    if len(found) != 1:
        raise ConfigError(
            f"the model has {len(found)} cells {kind.__name__}, not one. Use model=dmpnn with "
            "per_round_weights=false."
        )
    return found[0]


def _input(model: GraphModel, name: str) -> nn.Linear:
    """The linear layer of the encoder for nodes of a type."""
    encoder = model.encoder.encoders[name]
    if not isinstance(encoder, ColumnEncoder) or encoder.linear is None or encoder.codes:
        raise ConfigError(
            f"the features of type '{name}' are no row of numbers. Set data.features=chemprop-v2."
        )
    return encoder.linear
