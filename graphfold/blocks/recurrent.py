"""Recurrent cells as torch has them, in the form that `RNN` and `Fold` take."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.layer import Layer
from graphfold.blocks.types import ResultType, TensorType, TupleType


class RNNCell(Layer):
    """(element, state) to (output, next state), by a recurrent cell of torch.

    The output is h. The state of an LSTM is (h, c), torch's order; that of the others is h.

    Args:
        cell: an `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell`.
        name: its name; by default that of the cell's class.

    Raises:
        BlockTypeError: if the cell is none of these, or is given something else.
    """

    def __init__(self, cell: nn.RNNCellBase, name: str | None = None) -> None:
        if not isinstance(cell, nn.RNNCellBase):
            raise BlockTypeError(
                f"{cell!r} is no recurrent cell of torch. Give an LSTMCell, GRUCell or RNNCell; "
                "any other module from (element, state) to (output, state) is used as it is."
            )
        h = TensorType((cell.hidden_size,))
        state = TupleType(h, h) if isinstance(cell, nn.LSTMCell) else h
        super().__init__(
            (TensorType((cell.input_size,)), state), (h, state), name or type(cell).__name__
        )
        self.cell = cell

    def build(self, kind: ResultType) -> None:
        """The cell has its parameters already."""

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        new = self.cell(x, state)
        return (new[0] if isinstance(new, tuple) else new), new
