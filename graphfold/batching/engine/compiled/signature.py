"""The signatures of the cells of a pass."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.batching.engine.compiled.trace import Signature
from graphfold.batching.engine.pass_inputs import PassInputs, parts


def signature_of(
    inputs: PassInputs, op_type: int, differentiate: bool, in_rounds: bool = False
) -> Signature:
    """The signature of a cell in a pass: all that its program depends on."""
    widths = {name: value.shape[1] for name, value in inputs.given.items()} | inputs.fields
    table = inputs.tables.get(op_type)

    def kind(name: str, value: Tensor) -> tuple[str, tuple[int, ...], torch.dtype, bool]:
        return name, tuple(value.shape[1:]), value.dtype, differentiate and value.requires_grad

    return Signature(
        dtype=inputs.dtype(next(iter(inputs.fields))),
        arity=None if in_rounds else inputs.cells[op_type].arity,
        x=tuple(kind(name, value) for name, value in parts(inputs.x[op_type])),
        edge=tuple(
            kind(name, value) for name, value in (inputs.edge if table is None else table).items()
        ),
        fields=tuple(widths.items()),
        given=tuple(
            (name, differentiate and value.requires_grad) for name, value in inputs.given.items()
        ),
        shared=tuple(
            (name, tuple(value.shape), value.dtype, differentiate and value.requires_grad)
            for name, value in inputs.shared.items()
        ),
        differentiate=differentiate,
        has_tables=table is not None,
        in_rounds=in_rounds,
    )
