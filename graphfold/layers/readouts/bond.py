"""BondReadout: a row for each bond, made of its two atoms."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ShapeError
from graphfold.layers.readouts.readout import Readout


class BondReadout(Readout):
    """The sum and the difference of the two inputs of every output node, in either order the same.

        row = [h_u + h_v, |h_u - h_v|]

    The output nodes are bonds with targets, see `data.bond_target_columns`; u and v are their
    atoms.

    Shape:
        returns: [num_outputs, 2 * input_size], in the order of the graphs and of their outputs

    Raises:
        ShapeError: if an output node has another number of inputs than two.
    """

    level = "output"

    def __init__(self, input_size: int, field: str = "h") -> None:
        super().__init__(input_size, field)
        self.output_size = 2 * input_size

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """All bonds of all graphs."""
        first, last = dag.input_ptr[dag.output_index], dag.input_ptr[dag.output_index + 1]
        if bool((last - first != 2).any()):
            raise ShapeError(
                "BondReadout reads output nodes with two inputs, but the data has others. Set "
                "data.bond_target_columns, or use another readout."
            )
        one = self.read(states, dag, dag.input_index[first])
        other = self.read(states, dag, dag.input_index[first + 1])
        return torch.cat([one + other, (one - other).abs()], dim=1)
