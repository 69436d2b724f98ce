"""Wires: what connects the blocks of a composition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphfold.blocks.errors import BlockAttributeError, BlockItemError, BlockTypeError
from graphfold.blocks.types import PyObjectType, ResultType, TupleType, VoidType

if TYPE_CHECKING:
    from graphfold.blocks.block import Block


class Call:
    """One use of a block in a composition.

    Attributes:
        block: the block.
        sources: the wires that it reads; None as long as it is not connected.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.sources: tuple[Wire, ...] | None = None


@dataclass(frozen=True, eq=False)
class Wire:
    """The result of a block, or one item of it.

    It is no tensor: nothing is computed while blocks are wired. What would compute with it, a
    module, a function of torch, an operator, is refused with what to do instead. A module cannot
    simply be taken for a `Function`: by the time it gets to torch with the wire, it has picked the
    parameters and modes that it would use.
    """

    source: Block | Call
    index: int | None = None

    @property
    def block(self) -> Block:
        """The block that the wire comes from."""
        return self.source.block if isinstance(self.source, Call) else self.source

    @property
    def kind(self) -> ResultType | None:
        """The type of what it carries; None as long as that is unknown."""
        kind = self.block.output_type
        if kind is None or self.index is None:
            return kind
        return item_type(kind, self.index, self.block)

    def __getitem__(self, key: Any) -> Any:
        """An item of what it carries, or a tuple of items."""
        from graphfold.blocks.simple import GetItem

        if isinstance(key, int) and self.index is None:
            return Wire(self.source, key)
        return GetItem(key)(self)

    def __iter__(self) -> Any:
        raise BlockTypeError("a wire cannot be iterated. Name its items: x[0], x[1].")

    def __rshift__(self, other: Any) -> Wire:
        """What a block, or what converts to one, makes of it."""
        from graphfold.blocks.convert import convert_to_block

        result: Wire = convert_to_block(other)(self)
        return result

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        found = [
            item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else [arg])
        ]
        wire = next((item for item in found if isinstance(item, Wire)), None)
        raise BlockTypeError(_no_tensor(wire, f"torch's {func.__name__} cannot compute with it"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a protocol of Python asks whether it is supported
            raise AttributeError(name)
        raise BlockAttributeError(_no_tensor(self, f"it has no '{name}'"))

    def _refuse(self, *others: Any) -> Any:
        raise BlockTypeError(_no_tensor(self, "operators cannot compute with it"))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __rpow__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __abs__ = __invert__ = _refuse
    __and__ = __or__ = __xor__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = __len__ = __float__ = __int__ = _refuse

    def __str__(self) -> str:
        return str(self.block) if self.index is None else f"output {self.index} of {self.block}"


def item_type(kind: ResultType, index: int, block: Block) -> ResultType:
    """The type of one output of a block whose output type is `kind`.

    Raises:
        BlockTypeError: if it does not have several, or not so many.
    """
    if not isinstance(kind, TupleType):
        raise BlockTypeError(
            f"cannot get output {index} of block {block}: bad output type {kind}, expected "
            "TupleType. Read the whole output, or use GetItem."
        )
    if not -len(kind) <= index < len(kind):
        raise BlockItemError(
            f"cannot get {index}-th output of block {block} with {len(kind)} outputs. Name one of "
            "them."
        )
    return kind[index]


def type_of(wires: Sequence[Wire]) -> ResultType | None:
    """The type of what some wires carry together; None as long as that is unknown."""
    if not wires:
        return VoidType()
    kinds = [wire.kind for wire in wires]
    if any(kind is None for kind in kinds):
        return None
    return kinds[0] if len(kinds) == 1 else TupleType(*kinds)  # type: ignore[arg-type]


def push_back(wires: Sequence[Wire], kind: ResultType, reader: Block) -> None:
    """Tells the sources of wires what type their reader takes.

    Raises:
        BlockTypeError: if they give something else.
    """
    if isinstance(kind, PyObjectType):
        wanted: Sequence[ResultType] = [kind] * len(wires)
    elif len(wires) == 1:
        wanted = [kind]
    elif isinstance(kind, TupleType) and len(kind) == len(wires):
        wanted = list(kind)
    elif isinstance(kind, VoidType) and not wires:
        return
    else:
        expects = len(kind) if isinstance(kind, TupleType) else 1
        raise BlockTypeError(
            f"block {reader} has {len(wires)} inputs but expects {expects}: its input type is "
            f"{kind}. Connect as many."
        )
    for number, (wire, item) in enumerate(zip(wires, wanted, strict=True)):
        place = f"input {number} of block {reader}" if len(wires) > 1 else f"block {reader}"
        if wire.kind is not None and wire.kind != item:
            raise BlockTypeError(
                f"{_named(wire)} has type {wire.kind}; cannot connect it to {place} having type "
                f"{item}. Type mismatch between input type {wire.kind} and expected input type "
                f"{item}.",
                whole=str(reader),
            )
        if wire.index is None:
            wire.block.set_output_type(item)


def _no_tensor(wire: Wire | None, fault: str) -> str:
    whose = "a result" if wire is None else _named(wire)
    return (
        f"{whose} stands for tensors that are not there yet: {fault}. Wrap the module or function "
        "that computes in Function: td.Function(f)(x)."
    )


def _named(wire: Wire) -> str:
    return f"output of block {wire}" if wire.index is None else str(wire)


def is_void(kind: ResultType | None) -> bool:
    """Whether a type is known and void."""
    return isinstance(kind, VoidType)
