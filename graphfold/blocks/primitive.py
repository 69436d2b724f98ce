"""Primitive: a block that computes; each is one class, of graphfold or of your own code."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

from graphfold.batching import Cell
from graphfold.blocks.block import Block
from graphfold.blocks.contexts import Context, Depth, Evaluation, Recorder
from graphfold.blocks.inference.types import TensorType, tensor_types
from graphfold.blocks.running.cells import CellContext


class Primitive(Block):
    """A block that computes tensors; this one class defines all that it does.

    - `evaluate` computes it for one example at once: the definition of the right result;
    - `lower` records the work for a batch, mostly a node: `recorder.node` has as many inputs as the
      block takes tensors, `recorder.reduction` any number;
    - `depth` counts the calls;
    - `cell` makes the cell that computes its nodes on the engine, many at once.

    A primitive without nodes, such as a constant, has no `cell`.
    """

    #: True if functions read its tensor directly, from the block's module.
    is_constant: ClassVar[bool] = False

    @abstractmethod
    def evaluate(self, evaluation: Evaluation, x: Any) -> Any:
        """Computes the result for one example.

        Args:
            evaluation: knows the dtype and device of the model.
            x: an instance of the input type; tensors are batches of one, [1, ...].

        Returns:
            An instance of the output type, with tensors [1, ...].
        """

    @abstractmethod
    def lower(self, recorder: Recorder, x: Any) -> Any:
        """Records the work for one example.

        Args:
            recorder: makes nodes.
            x: an instance of the input type, with the recorder's stand-ins for tensors.

        Returns:
            An instance of the output type, with the recorder's stand-ins for tensors.
        """

    @abstractmethod
    def depth(self, depth: Depth, x: Any) -> Any:
        """Counts the calls.

        Args:
            depth: notes the depth of results that the block does not return.
            x: an instance of the input type; a tensor is the number of calls that it waits for.

        Returns:
            An instance of the output type, with numbers of calls for tensors.
        """

    def cell(self, context: CellContext) -> Cell:
        """Makes the cell of a node type that computes it.

        Args:
            context: the sources of the tensors, and the dtype in which the model computes.
        """
        raise NotImplementedError(f"{self} makes nodes, so it needs a cell")

    @property
    def operation(self) -> tuple[Hashable, str] | None:
        """A key for the computation, and a name; blocks of equal keys are one operation.

        None for a block that neither makes nodes nor holds tensors.
        """
        return self, self.name

    @property
    def input_tensors(self) -> list[TensorType]:
        """The types of the input tensors, in order; empty if the input is anything else."""
        return [] if self.input_type is None else tensor_types(self.input_type) or []

    @property
    def output_tensors(self) -> list[TensorType]:
        """The types of the output tensors, in order; empty if the output is anything else."""
        return [] if self.output_type is None else tensor_types(self.output_type) or []

    def apply(self, context: Context, x: Any) -> Any:
        return context.visit(self, x)
