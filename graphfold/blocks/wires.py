"""Wires: connections between the blocks of a composition, and the types that flow through them."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from graphfold.blocks.block_errors import (
    BlockAttributeError,
    BlockItemError,
    BlockScopeError,
    BlockTypeError,
)
from graphfold.blocks.inference.typed import Typed
from graphfold.blocks.inference.types import PyObjectType, ResultType, TupleType, VoidType

#: The `Composition` that is being wired.
SCOPE: ContextVar[Any] = ContextVar("scope", default=None)


def current_scope(method: str) -> Any:
    """The `Composition` that is being wired.

    Raises:
        BlockScopeError: if there is none; the message names the method that needs it.
    """
    current = SCOPE.get()
    if current is None:
        raise BlockScopeError(
            f"Block's {method} method was called outside of a Composition scope. Use compose, or "
            "`with composition.scope():`."
        )
    return current


class Call:
    """One use of a block in a composition.

    Attributes:
        block: the block.
        composition: where it is used.
        sources: the wires that it reads; None until it is connected.
    """

    def __init__(self, block: Any, composition: Any) -> None:
        self.block = block
        self.composition = composition
        self.sources: tuple[Wire, ...] | None = None


@dataclass(frozen=True, eq=False)
class Wire:
    """The result of a block, or one item of the result.

    It is no tensor: nothing is computed while blocks are wired. A module, a function of torch or an
    operator that would compute with it is refused, with the remedy. A module cannot simply become a
    `Function`: when it calls torch with the wire, it has already picked its parameters and modes.
    """

    source: Any  # a Block, or a Call
    index: int | None = None

    @property
    def block(self) -> Any:
        """The block that the wire comes from."""
        return self.source.block if isinstance(self.source, Call) else self.source

    @property
    def kind(self) -> ResultType | None:
        """The type that it carries; None while it is unknown.

        Raises:
            BlockTypeError: if the block does not have several outputs, or not so many.
        """
        kind: ResultType | None = self.block.output_type
        if kind is None or self.index is None:
            return kind
        if not isinstance(kind, TupleType):
            raise BlockTypeError(
                f"cannot get output {self.index} of block {self.block}: bad output type {kind}, "
                "expected TupleType. Read the whole output, or use GetItem."
            )
        if not -len(kind) <= self.index < len(kind):
            raise BlockItemError(
                f"cannot get {self.index}-th output of block {self.block} with {len(kind)} "
                "outputs. Name one of them."
            )
        return kind[self.index]

    def __getitem__(self, key: Any) -> Any:
        """An item of the result, or a tuple of items."""
        if isinstance(key, int) and self.index is None:
            return Wire(self.source, key)
        return current_scope("getting an item").item(self, key)

    def __iter__(self) -> Any:
        raise BlockTypeError("a wire cannot be iterated. Name its items: x[0], x[1].")

    def __rshift__(self, other: Any) -> Wire:
        """The result of a block, or of an object that converts to one, on this result."""
        wire: Wire = current_scope("calling a block").call(other, (self,))
        return wire

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        items = [
            item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else [arg])
        ]
        wire = next((item for item in items if isinstance(item, Wire)), None)
        raise BlockTypeError(_no_tensor(wire, f"torch's {func.__name__} cannot compute with it"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks whether a protocol is supported
            raise AttributeError(name)
        raise BlockAttributeError(_no_tensor(self, f"it has no '{name}'"))

    def __str__(self) -> str:
        return str(self.block) if self.index is None else f"output {self.index} of {self.block}"


def _refuse(self: Wire, *others: Any) -> Any:
    raise BlockTypeError(_no_tensor(self, "operators cannot compute with it"))


_OPERATORS = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow matmul rmatmul neg abs "
    "invert and or xor lt le gt ge bool len float int"
)
for _operator in _OPERATORS.split():
    setattr(Wire, f"__{_operator}__", _refuse)


def unify(wires: Sequence[Wire], reader: Typed, place: str) -> None:
    """Passes types along a connection, from the wires to their reader or back.

    Args:
        wires: the input of the reader; several wires are one tuple.
        reader: the block.
        place: the kind of block in which they are connected.

    Raises:
        BlockTypeError: if the types do not fit.
    """
    kinds = [wire.kind for wire in wires]
    if reader.input_type is not None:
        _push_back(wires, kinds, reader.input_type, reader)
    elif None not in kinds:
        kind = kinds[0] if len(kinds) == 1 else TupleType(*kinds)  # type: ignore[arg-type]
        try:
            reader.set_input_type(kind)
        except BlockTypeError as error:
            if "cannot connect" in error.message:
                raise
            raise type(error)(
                f"cannot connect {', '.join(map(str, wires))} of type {kind} to "
                f"{reader}: {error.message.removeprefix(f'{reader}: ')}",
                whole=place,
            ) from error


def _push_back(
    wires: Sequence[Wire], kinds: Sequence[ResultType | None], takes: ResultType, reader: Typed
) -> None:
    """Sets the types of the sources of wires to the input type of their reader."""
    wanted: Sequence[ResultType]
    if isinstance(takes, PyObjectType):
        wanted = [takes] * len(wires)
    elif len(wires) == 1:
        wanted = [takes]
    elif isinstance(takes, TupleType) and len(takes) == len(wires):
        wanted = list(takes)
    elif isinstance(takes, VoidType) and not wires:
        return
    else:
        expects = len(takes) if isinstance(takes, TupleType) else 1
        raise BlockTypeError(
            f"block {reader} has {len(wires)} inputs but expects {expects}: its input type is "
            f"{takes}. Connect as many."
        )
    for number, (wire, kind, item) in enumerate(zip(wires, kinds, wanted, strict=True)):
        if kind is not None and kind != item:
            place = f"input {number} of block {reader}" if len(wires) > 1 else f"block {reader}"
            raise BlockTypeError(
                f"{_named(wire)} has type {kind}; cannot connect it to {place} having type "
                f"{item}. Type mismatch between input type {kind} and expected input type "
                f"{item}.",
                whole=str(reader),
            )
        if wire.index is None:
            wire.block.set_output_type(item)


def _no_tensor(wire: Wire | None, fault: str) -> str:
    name = "a result" if wire is None else _named(wire)
    return (
        f"{name} names tensors that are not there yet: {fault}. Wrap the module or function "
        "that computes in Function: td.Function(f)(x)."
    )


def _named(wire: Wire) -> str:
    return f"output of block {wire}" if wire.index is None else str(wire)
