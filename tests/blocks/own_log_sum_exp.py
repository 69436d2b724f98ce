"""A primitive of a third party, and a model of it: all that it takes is in this file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphfold import blocks as td
from graphfold.batching import Cell, Children, NodeInput, State
from graphfold.blocks.running.cells import CellContext, field_of
from graphfold.dag import Schema


class LogSumExp(td.Primitive):
    """log sum exp(s x) over a sequence of vectors, with a learned s; zeros of none."""

    expected_input = (td.SequenceType,)

    def __init__(self, size: int, name: str | None = None) -> None:
        self.size = size
        self.scale = nn.Linear(1, size, bias=False)
        kind = td.TensorType([size])
        super().__init__(input_type=td.SequenceType(kind), output_type=kind, name=name)

    def own_modules(self) -> Iterator[nn.Module]:
        yield self.scale

    def evaluate(self, evaluation: Any, x: Sequence[Tensor]) -> Tensor:
        if not x:
            return evaluation.zeros(self.output_tensors[0])
        return torch.logsumexp(torch.stack(list(x)) * self.scale.weight[:, 0], 0)

    def lower(self, recorder: Any, x: Sequence[Any]) -> Any:
        return recorder.reduction(self, x, self.output_tensors[0])

    def depth(self, depth: Any, x: Sequence[int]) -> int:
        return 1 + max(x, default=0)

    def cell(self, context: CellContext) -> Cell:
        assert isinstance(context.sources, int)
        kind = self.output_tensors[0]
        return LogSumExpCell(self.scale, field_of(context.sources, kind), field_of(0, kind))


class LogSumExpCell(Cell):
    """The cell of `LogSumExp`, for all nodes of a group."""

    reads = ()

    def __init__(self, scale: nn.Linear, field: str, output: str) -> None:
        super().__init__()
        self.scale = scale
        self.field = field
        self.output = output
        self.fields = {output: scale.out_features}

    def forward(self, x: NodeInput, children: Children) -> State:
        scaled = children.rows(self.field) * self.scale.weight[:, 0]
        total = scaled.new_zeros(children.group_size, scaled.shape[1])
        total = total.index_add(0, children.parent, scaled.exp())
        some = total > 0
        return {self.output: torch.where(some, torch.where(some, total, 1.0).log(), 0.0)}


def soft_trees(schema: Schema, size: int = 4) -> td.Block:
    """The state of every inner node is the `LogSumExp` of its children, squashed."""

    def tree(tree: td.Block) -> td.Block:
        children = td.InputTransform(lambda node: node.inputs) >> td.Map(tree) >> LogSumExp(size)
        inner = children >> td.Function(torch.tanh)
        leaves = (t for t in schema.types if t.arity == 0)
        cases: dict[str, td.Block] = {t.name: td.Features(t.features, size) for t in leaves}
        cases |= {t.name: inner for t in schema.types if t.arity != 0}
        return td.OneOf(lambda node: node.type, cases)

    root = td.InputTransform(lambda graph: graph.root)
    return root >> td.recursive(tree, output_type=[size])
