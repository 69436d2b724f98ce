"""Primitive: the base of the blocks that compute; each is one class, here or in your own code."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, ClassVar

from graphfold.blocks.block import Block
from graphfold.blocks.inference.types import TensorType, tensor_types
from graphfold.blocks.running.evaluation import Context, Depth, Evaluation

if TYPE_CHECKING:
    from graphfold.batching import Cell
    from graphfold.blocks.running.cells import CellContext
    from graphfold.blocks.running.lowering import Recorder


class Primitive(Block):
    """A block that computes: all that is known of it is said here.

    - `evaluate` computes it for one example at once, which says what is right;
    - `lower` records what a batch has to compute, mostly a node: `recorder.node` has as many inputs
      as the block takes tensors, `recorder.reduction` any number;
    - `depth` counts the calls;
    - `cell` makes what computes its nodes on the engine, for many nodes at once.

    A primitive without nodes, such as a constant, has no `cell`.
    """

    #: True if functions read its tensor directly, from the block's module.
    is_constant: ClassVar[bool] = False

    @abstractmethod
    def evaluate(self, evaluation: Evaluation, x: Any) -> Any:
        """Computes it for one example.

        Args:
            evaluation: what knows the dtype and device of the model.
            x: an instance of the input type; tensors are batches of one, [1, ...].

        Returns:
            An instance of the output type, with tensors [1, ...].
        """

    @abstractmethod
    def lower(self, recorder: Recorder, x: Any) -> Any:
        """Records it for one example.

        Args:
            recorder: what makes nodes.
            x: an instance of the input type; of a tensor it says where the tensor comes from.

        Returns:
            An instance of the output type, with tensors as the recorder gives them.
        """

    @abstractmethod
    def depth(self, depth: Depth, x: Any) -> Any:
        """Counts the calls.

        Args:
            depth: what notes the depth of results that the block does not return.
            x: an instance of the input type; a tensor is the number of calls that it waits for.

        Returns:
            An instance of the output type, with numbers of calls for tensors.
        """

    def cell(self, context: CellContext) -> Cell:
        """Makes the cell of a node type that computes it.

        Args:
            context: how the tensors come, and in which dtype the model computes.
        """
        raise NotImplementedError(f"{self} makes nodes, so it needs a cell")

    @property
    def operation(self) -> tuple[Hashable, str] | None:
        """A key for what it computes, and a name; blocks of equal keys are one operation.

        None for what neither makes nodes nor holds tensors.
        """
        return self, self.name

    @property
    def input_tensors(self) -> list[TensorType]:
        """The types of the tensors that it takes, in order; none if it takes anything else."""
        return [] if self.input_type is None else tensor_types(self.input_type) or []

    @property
    def output_tensors(self) -> list[TensorType]:
        """The types of the tensors that it gives, in order; none if it gives anything else."""
        return [] if self.output_type is None else tensor_types(self.output_type) or []

    def apply(self, context: Context, x: Any) -> Any:
        return context.visit(self, x)
