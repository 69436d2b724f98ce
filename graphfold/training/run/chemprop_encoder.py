"""Weights of a D-MPNN from an encoder that chemprop 2 saved (`model.encoder_from`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphfold.batching import Rounds
from graphfold.errors import CheckpointError, ConfigError
from graphfold.layers import ColumnEncoder, DMPNNAtomCell, DMPNNBondCell, GraphModel, Model
from graphfold.layers.activation import get_activation

#: The weights of chemprop's `BondMessagePassing`; in the file of a full model after a prefix.
WEIGHTS = ("W_i.weight", "W_h.weight", "W_o.weight", "W_o.bias")
PREFIX = "message_passing."

#: Weights of options that DMPNN cells do not have.
UNKNOWN = ("W_i.bias", "W_h.bias", "W_d.weight")

#: The class of chemprop whose weights they are.
ENCODER = "BondMessagePassing"

#: Files of chemprop also name classes of these packages (its own, activations, metrics); a `_Named`
#: replaces each.
STOOD_FOR = ("chemprop.", "torch.nn.modules.", "torchmetrics.")

#: Other names in the files, and their replacements.
PLAIN = ((dict, "lightning.fabric.utilities.data.AttributeDict"), (set, "builtins.set"))

#: The class of an option that is not set.
NOTHING = "Identity"


def take_encoder(model: Model, path: Path) -> str:
    """Copies the weights of chemprop's message passing into a D-MPNN.

    With v an atom's features, e a bond's, and h states, chemprop computes W_i cat(v, e), W_h h and
    W_o cat(v, h) + b. Here the encoder of bonds holds W_i, that of atoms the part of W_o for v, and
    the cells hold the rest. The widths, the depth, and the features (`data.features=chemprop-v2`)
    must be those of the file; CheMeleon's (Burns et al. 2025, https://arxiv.org/abs/2506.15792) is
    of width 2048 and depth 6.

    Args:
        model: the new model.
        path: a file of chemprop 2 or its trainer: a full model, a checkpoint, or message passing
            alone. Nothing that it names is imported.

    Returns:
        A line for the user.

    Raises:
        CheckpointError: if the file cannot be read, or is no such encoder.
        ConfigError: if the model is no D-MPNN, or differs in widths, depth or activation; it lists
            all differences.
    """
    weights, options = _read(path)
    parts = _parts_of(model)
    if parts is None:
        raise ConfigError(
            f"model.encoder_from: {path} holds a directed message passing network, but the model "
            "has no DMPNNBondCell and DMPNNAtomCell. Choose model=dmpnn."
        )
    faults = list(_misfits(model, parts, weights, options))
    if faults:
        raise ConfigError(f"model.encoder_from: {path} does not fit. " + " ".join(faults))
    of_bond, of_atom, bonds, atom = parts
    w_i, w_o = weights["W_i.weight"], weights["W_o.weight"]
    width = w_o.shape[1] - w_o.shape[0]
    with torch.no_grad():
        # A bond's own features come first here, and in chemprop those of its atom.
        of_bond.weight.copy_(torch.cat([w_i[:, width:], w_i[:, :width]], dim=1))
        of_atom.weight.copy_(w_o[:, :width])
        for bond in bonds:
            bond.message.weight.copy_(weights["W_h.weight"])
        atom.from_bonds.weight.copy_(w_o[:, width:])
        atom.from_bonds.bias.copy_(weights["W_o.bias"])
    count = sum(weight.numel() for weight in weights.values())
    return f"encoder_from: {count:,} weights of encoder and cells taken from {path}"


def _read(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """The weights by chemprop's names, and the options of the encoder."""
    content = _load(path)
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: has no 'state_dict'. Name a file that chemprop 2 wrote.")
    if any(name.startswith(PREFIX) for name in state):
        state = {n.removeprefix(PREFIX): w for n, w in state.items() if n.startswith(PREFIX)}
    missing = [name for name in WEIGHTS if not isinstance(state.get(name), Tensor)]
    if missing:
        raise CheckpointError(
            f"{path}: has no weights {', '.join(missing)}. Name the file of a BondMessagePassing."
        )
    weights = {name: state[name].float() for name in WEIGHTS}
    options = content.get("hyper_parameters") or {}
    options = options.get("message_passing", options)
    further = [name for name in UNKNOWN if name in state]
    further += [f"{key}={value}" for key, value in _unknown_options(options).items()]
    if further:
        raise CheckpointError(
            f"{path}: has {', '.join(further)}, which a D-MPNN here lacks. Train one without."
        )
    return weights, options


class _Named:
    """Replaces a class or a function in a file, and its instances; it does nothing.

    Args:
        *values: the arguments of an instance, such as the value of an enum.
    """

    name = ""
    values: tuple[Any, ...] = ()

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __setstate__(self, state: Any) -> None:
        """Ignores the state of a module."""

    def __str__(self) -> str:
        return str(self.values[0]) if self.values else self.name


def _load(path: Path) -> Any:
    """The content of a file of torch, read without importing or running anything.

    The reader of torch refuses all but tensors and plain values. The other classes (`cls`, the enum
    of activations, a module of torch) become a `_Named` each.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            replaced = [
                (type("_Named", (_Named,), {"name": name.rpartition(".")[2]}), name)
                for name in names
                if name.startswith(STOOD_FOR)
            ]
            with torch.serialization.safe_globals([*replaced, *PLAIN]):
                return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from error
    except Exception as error:  # of a damaged file, or one with classes, any part may fail
        raise CheckpointError(
            f"{path}: holds more than tensors, plain values and classes of chemprop, or is "
            "damaged. Save it as {'hyper_parameters': ..., 'state_dict': ...}, without other "
            "classes."
        ) from error


def _unknown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in a file that DMPNN cells do not have."""
    keys = ("undirected", "V_d_transform", "E_d_transform", "graph_transform")
    unknown = {key: options.get(key) for key in keys if str(options.get(key)) != NOTHING}
    kind = options.get("cls")
    if isinstance(kind, type) and issubclass(kind, _Named) and kind.name != ENCODER:
        unknown["cls"] = kind.name
    return {key: value for key, value in unknown.items() if value}


def _parts_of(
    model: Model,
) -> tuple[nn.Linear, nn.Linear, list[DMPNNBondCell], DMPNNAtomCell] | None:
    """The layers that hold the weights; None if it is another kind of model."""
    if not isinstance(model, GraphModel):
        return None
    cells = list(model.network.modules())
    bonds = [cell for cell in cells if isinstance(cell, DMPNNBondCell)]
    atoms = [cell for cell in cells if isinstance(cell, DMPNNAtomCell)]
    if not bonds or len(atoms) != 1 or "bond" not in model.encoder.encoders:
        return None
    layers = []
    for name in ("bond", "atom"):
        encoder = model.encoder.encoders[name]
        assert isinstance(encoder, ColumnEncoder)
        if encoder.linear is None or encoder.table is not None:
            raise ConfigError(
                "model.encoder_from reads weights for numbers, but the features of molecules are "
                "codes. Set data.features=chemprop-v2."
            )
        layers.append(encoder.linear)
    return layers[0], layers[1], bonds, atoms[0]


def _misfits(
    model: Model,
    parts: tuple[nn.Linear, nn.Linear, list[DMPNNBondCell], DMPNNAtomCell],
    weights: Mapping[str, Tensor],
    options: Mapping[str, Any],
) -> Iterator[str]:
    """The differences between a model and a file, with the settings that remove them."""
    of_bond, of_atom, bonds, _ = parts
    width, hidden = weights["W_o.weight"].shape[1], weights["W_h.weight"].shape[0]
    if of_bond.out_features != hidden:
        yield f"Its width is {hidden}, not {of_bond.out_features}: set model.hidden_size={hidden}."
    rounds = next(p.rounds for p in model.passes if isinstance(p, Rounds))
    depth = options.get("depth")
    if depth is not None and depth != rounds + 1:
        yield f"Its depth is {depth}, not {rounds + 1}: set model.depth={depth}."
    sizes = (width - hidden, weights["W_i.weight"].shape[1] - width + hidden)
    num_atom, num_bond = of_atom.in_features, of_bond.in_features - of_atom.in_features
    if sizes != (num_atom, num_bond):
        yield (
            f"It reads {sizes[0]} numbers of an atom and {sizes[1]} of a bond, but the data have "
            f"{num_atom} and {num_bond}: set data.features to the features that it was trained "
            "with."
        )
    name = str(options.get("activation", "relu")).lower()
    if bonds[0].activation is not get_activation(name):
        yield f"Its activation is {name}: set it in the cells of the model."
    if any(bond.message.bias is not None for bond in bonds):
        yield "Its messages have no bias: leave bias out of the cells of the model."
