"""Layers: modules that make their parameters once their input type is known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.blocks.block import Block, Pipe
from graphfold.blocks.block_errors import BlockIndexError, BlockTypeError, BlockValueError, quoted
from graphfold.blocks.function import Function
from graphfold.blocks.inference.typed import Typed
from graphfold.blocks.inference.types import (
    ResultType,
    TensorType,
    TupleType,
    TypeLike,
    is_size,
    tensor_types,
)
from graphfold.blocks.running.cells import flat_outputs
from graphfold.blocks.wires import Wire
from graphfold.layers.dropout import drop

Activation = Callable[[Tensor], Tensor]
#: Fills a tensor in place, like those of `torch.nn.init`.
Initializer = Callable[[Tensor], Any]


class Layer(nn.Module, Typed):
    """Base of modules with types, which may be used like blocks: `Vector(3) >> FC(5)`.

    A layer that is used in several places has one set of parameters and one input type. In
    `compose` it is called like a block; on batches of tensors like all modules, where the first
    batch sets the input type if it is not connected.

    Args:
        input_type: the type of its input, if it is known.
        output_type: the type of its output, if it is known.
        name: its name in messages and state dicts.
    """

    #: Keeps numpy arrays from taking `array >> layer` apart.
    __array_ufunc__ = None

    def __init__(
        self,
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        nn.Module.__init__(self)
        Typed.__init__(self, input_type, output_type, name)

    @abstractmethod
    def build(self, kind: ResultType) -> None:
        """Makes the parameters for an input type; called once.

        Raises:
            BlockTypeError: if the layer cannot take it.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Computes a batch of tensors; in `compose` calls the layer as a block.

        Raises:
            BlockTypeError: if it cannot take tensors of such a shape.
        """
        if any(isinstance(arg, (Wire, Block)) for arg in args):
            return Function(self)(*args)
        if self.input_type is None and args:
            kind = _type_of(args)
            with flat_outputs(args)[0].device:  # the parameters are made there
                self.set_input_type(kind)
        try:
            return super().__call__(*args, **kwargs)
        except RuntimeError:  # torch's, which names neither the layer nor its input type
            kind = _type_of(args)
            if _shapes(kind) != _shapes(self.input_type):
                self.set_input_type(kind)
            raise

    def __rshift__(self, other: Any) -> Block:
        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        return Pipe(other, self)

    def _infer_from_input(self, kind: ResultType) -> None:
        self.build(kind)


class FC(Layer):
    """A fully connected layer: activation(x W + b), float vector in, float vector out.

    Args:
        num_units_out: the size of the output.
        activation: the function of the products; None for none.
        initializer: fills the weight; by default Glorot's uniform, He's for a ReLU.
        input_keep_prob: probability of keeping a number of the input in training; None for 1.
        output_keep_prob: probability of keeping a number of the output in training; None for 1.
        normalization_fn: a function before the activation; not used without one.
        weight_norm: whether the weights of every unit are scaled to a learned length, at first 1.
        name: its name; by default FC and the number of units.

    Raises:
        BlockTypeError: if its input is not a vector of floats.
        BlockValueError: if a probability is not in (0, 1].
    """

    weight: nn.Parameter
    bias: nn.Parameter
    scales: nn.Parameter | None

    def __init__(
        self,
        num_units_out: int,
        activation: Activation | None = F.relu,
        initializer: Initializer | None = None,
        input_keep_prob: float | None = None,
        output_keep_prob: float | None = None,
        normalization_fn: Activation | None = None,
        weight_norm: bool = False,
        name: str | None = None,
    ) -> None:
        _require_sizes("FC", num_units_out=num_units_out)
        for probability in (input_keep_prob, output_keep_prob):
            if probability is not None and not 0 < probability <= 1:
                raise BlockValueError(
                    f"FC keeps with a probability above 0 and at most 1, not {probability!r}."
                )
        self.num_units_out = num_units_out
        super().__init__(output_type=[num_units_out], name=name or f"FC_{num_units_out}")
        self.activation = activation
        self.initializer = initializer
        self.input_keep_prob = input_keep_prob
        self.output_keep_prob = output_keep_prob
        self.normalization_fn = normalization_fn
        self.weight_norm = weight_norm

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self.num_units_out

    @property
    def drops_out(self) -> bool:
        """True if it draws random numbers in training."""
        return any((p or 1) < 1 for p in (self.input_keep_prob, self.output_keep_prob))

    def build(self, kind: ResultType) -> None:
        if not isinstance(kind, TensorType) or not kind.is_floating_point:
            dtype = kind.dtype if isinstance(kind, TensorType) else kind
            raise BlockTypeError(f"FC input dtype must be float32: {dtype}. Convert it first.")
        if kind.ndim != 1:
            raise BlockTypeError(
                f"FC input shape must be 1D: {list(kind.shape)}. Use Vector, or Concat for scalars."
            )
        self.weight = nn.Parameter(torch.empty(self.num_units_out, kind.shape[0]))
        self.bias = nn.Parameter(torch.zeros(self.num_units_out))
        self.scales = nn.Parameter(torch.ones(self.num_units_out)) if self.weight_norm else None
        if self.initializer is not None:
            self.initializer(self.weight.data)
        elif self.activation in (F.relu, torch.relu):
            nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")
        else:
            nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        if self.input_keep_prob is not None:
            x = drop(x, 1 - self.input_keep_prob, self.training)
        weight: Tensor = self.weight
        if self.scales is not None:
            weight = F.normalize(weight, dim=1) * self.scales.unsqueeze(1)
        y = F.linear(x, weight, self.bias)
        if self.activation is not None:
            y = self.activation(y if self.normalization_fn is None else self.normalization_fn(y))
        if self.output_keep_prob is not None:
            y = drop(y, 1 - self.output_keep_prob, self.training)
        return y

    def extra_repr(self) -> str:
        """The sizes, the activation, and the options that are set."""
        size = self.weight.shape[1] if hasattr(self, "weight") else "?"
        names = ("input_keep_prob", "output_keep_prob", "normalization_fn", "weight_norm")
        options = {name: getattr(self, name) for name in names}
        named = [f"{name}={_named(v)}" for name, v in options.items() if v not in (None, False)]
        activation = [] if self.activation is None else [_named(self.activation)]
        return ", ".join([f"{size} -> {self.num_units_out}", *activation, *named])


class Embedding(Layer):
    """A learned vector for every integer.

    Args:
        num_buckets: the number of vectors.
        num_units_out: the size of a vector.
        initializer: fills the table; or the table itself, [num_buckets, num_units_out]. By default
            normal, as in `nn.Embedding`.
        name: its name; by default Embedding and the two sizes.
        trainable: whether the vectors are learned.
        mod_inputs: whether integers wrap around: |x| mod num_buckets. If not, one that is negative
            or too large is an error when it is looked up: a BlockIndexError on a CPU, an assertion
            of the device on a GPU.
        sparse: whether the gradient of the table holds only the rows that were looked up, where the
            integers come from the example; the optimizer must support such gradients.

    Raises:
        BlockValueError: if the table has another shape, or no rows.
        BlockTypeError: if its input is not an integer.
    """

    weight: nn.Parameter

    def __init__(
        self,
        num_buckets: int,
        num_units_out: int,
        initializer: Initializer | Tensor | np.ndarray | None = None,
        name: str | None = None,
        trainable: bool = True,
        mod_inputs: bool = True,
        sparse: bool = False,
    ) -> None:
        _require_sizes("Embedding", num_buckets=num_buckets, num_units_out=num_units_out)
        self.num_buckets = num_buckets
        self.num_units_out = num_units_out
        name = name or f"Embedding_{num_buckets}_{num_units_out}"
        super().__init__(output_type=[num_units_out], name=name)
        self.mod_inputs = mod_inputs
        self.sparse = sparse
        table = torch.empty(num_buckets, num_units_out)
        if isinstance(initializer, (Tensor, np.ndarray)):
            if tuple(initializer.shape) != (num_buckets, num_units_out):
                raise BlockValueError(
                    f"the initializer of {self.name} has the shape {list(initializer.shape)}, but "
                    f"the table is [{num_buckets}, {num_units_out}]. Give a table of that shape."
                )
            table = torch.as_tensor(initializer).detach().clone().to(table.dtype)
        else:
            (nn.init.normal_ if initializer is None else initializer)(table)
        self.weight = nn.Parameter(table, requires_grad=trainable)

    def build(self, kind: ResultType) -> None:
        if not isinstance(kind, TensorType) or kind.ndim:
            raise BlockTypeError(f"Embeddings take scalar inputs. {self.name} is given {kind}.")
        if kind.is_floating_point or kind.dtype == "bool":
            raise BlockTypeError(
                f"Embeddings take integer inputs. {self.name} is given {kind}; use Scalar('int64')."
            )

    def forward(self, x: Tensor) -> Tensor:
        index = x.long()
        if self.mod_inputs:
            index = index.abs() % self.num_buckets
        try:
            return F.embedding(index, self.weight, sparse=self.sparse)
        except IndexError as error:
            wrong = index[(index < 0) | (index >= self.num_buckets)]
            raise BlockIndexError(
                f"{self.name} has vectors for 0 to {self.num_buckets - 1}, but is asked for "
                f"{wrong[0].item()}. Add buckets, or set mod_inputs=True."
            ) from error

    def extra_repr(self) -> str:
        """The sizes, and the options that differ from the defaults."""
        changed = {
            "trainable=False": not self.weight.requires_grad,
            "mod_inputs=False": not self.mod_inputs,
            "sparse=True": self.sparse,
        }
        options = [option for option, is_set in changed.items() if is_set]
        return ", ".join([f"{self.num_buckets}, {self.num_units_out}", *options])


class RNNCell(Layer):
    """From (element, state) to (output, next state), by a recurrent cell of torch.

    The output is h. The state of an LSTM is (h, c), torch's order; that of the others is h.

    Args:
        cell: an `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell`.
        name: its name; by default that of the cell's class.

    Raises:
        BlockTypeError: if the cell is none of these, or its input does not fit.
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


def _type_of(args: Sequence[Any]) -> ResultType:
    """The input type of a function of these batches."""
    kinds = [_batch_type(arg) for arg in args]
    return kinds[0] if len(kinds) == 1 and isinstance(args[0], Tensor) else TupleType(*kinds)


def _batch_type(arg: Any) -> ResultType:
    if isinstance(arg, (tuple, list)):
        return TupleType(*map(_batch_type, arg))
    if not isinstance(arg, Tensor) or not arg.ndim:
        raise BlockTypeError(f"layers take batches of tensors, not {quoted(arg)}. Add a dimension.")
    return TensorType(tuple(arg.shape[1:]), arg.dtype)


def _shapes(kind: ResultType | None) -> list[tuple[int, ...]]:
    return [item.shape for item in tensor_types(kind) or ()] if kind is not None else []


def _named(value: object) -> str:
    return str(getattr(value, "__name__", value))


def _require_sizes(layer: str, **sizes: object) -> None:
    for name, size in sizes.items():
        if not is_size(size):
            raise BlockTypeError(f"{layer}: {name} must be an integer: {size!r}. Give a size.")
        if not size:
            raise BlockValueError(f"{layer}: {name} must be positive: {size}. Give at least 1.")
