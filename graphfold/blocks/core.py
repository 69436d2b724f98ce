"""Blocks, what they are made of, and what runs them for one example.

- `Block` is the base of everything that is composed, `Pipe` puts blocks in a row, and
  `convert_to_block` makes blocks of other things;
- a `Wire` connects the blocks of a composition and carries the types that flow;
- a `Primitive` is a block that computes; each is one class, here or in your own code;
- `check_blocks` looks at all blocks of a model before anything runs;
- a `Context` is one run: `Evaluation` computes at once, which is slow and says what is right,
  `Depth` counts calls, a `Recorder` records what a batch has to compute.

They need each other, so they stand in one file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, singledispatch
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from graphfold.batching import Cell
from graphfold.blocks.block_errors import (
    BlockAttributeError,
    BlockItemError,
    BlockRecursionError,
    BlockScopeError,
    BlockTypeError,
    quoted,
)
from graphfold.blocks.inference.typed import Typed, append, transaction
from graphfold.blocks.inference.types import (
    PyObjectType,
    ResultType,
    TensorType,
    TupleType,
    TypeLike,
    VoidType,
    float_dtype_of,
    in_dtype,
    in_short,
    tensor_types,
)
from graphfold.blocks.running.cells import CellContext

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11; torch brings it along


#: A block with children asks for their results, (child, input) by (child, input).
Steps: TypeAlias = Generator[tuple["Block", Any], Any, Any]


class Block(Typed, ABC):
    """A function from a Python object, or from tensors, to tensors.

    `a >> b` gives what a returns to b. A block may be used in any number of places; it has the same
    types in all of them and shares its weights.

    A block without children defines `apply`. One with children defines `steps`, which asks for the
    children's results instead of calling them, so that input may be nested as deeply as it likes.
    One that computes tensors is a `Primitive`.

    Args:
        children: the blocks that it consists of.
        input_type: what it takes, if known.
        output_type: what it gives, if known.
        name: what messages and state dicts call it.
    """

    #: True if it has `apply`, False if it has `steps`.
    is_simple: ClassVar[bool] = True

    #: Keeps numpy arrays from taking `array >> block` apart.
    __array_ufunc__ = None

    @transaction()
    def __init__(
        self,
        children: Sequence[Block] = (),
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        self._children: list[Block] = []
        self._kind = type(self).__name__.strip("_")
        for child in children:
            self._add_child(child)
        super().__init__(input_type, output_type, name)
        for child in children:
            self._conclude(self._child_found, child)

    @property
    def children(self) -> list[Block]:
        """The blocks that it consists of."""
        return self._children

    @property
    def parent(self) -> Block | None:
        """The first block that it became a part of; None for what is no part of any."""
        return next((p for p in self._parents if not p.is_forward_declaration_ref), None)

    @property
    def is_forward_declaration_ref(self) -> bool:
        """True for a reference to a block that is declared elsewhere."""
        return False

    def below(self) -> Sequence[Block]:
        """Its children; of a reference, the block that is declared elsewhere."""
        return self._children

    def always(self) -> Sequence[Block]:
        """The blocks that run whenever this one does; by default all that it consists of."""
        return self._children

    def check_wiring(self) -> None:
        """Looks for faults that are none of types, before any type is missed.

        Raises:
            BlockValueError: if there is a cycle.
        """

    def apply(self, context: Context, x: Any) -> Any:
        """Computes, records or counts its result on one value.

        Args:
            context: what computes tensors, records or counts them.
            x: an instance of the input type.
        """
        raise NotImplementedError

    def steps(self, context: Context, x: Any) -> Steps:
        """Does so for a block with children: yields (child, input) and is sent the result."""
        raise NotImplementedError

    def own_modules(self) -> Iterator[nn.Module]:
        """The modules that the block itself calls, not those of its children."""
        return iter(())

    def metrics(self) -> Mapping[str, TensorType]:
        """Name -> type of the metrics that the block itself collects."""
        return {}

    def eval(self, inp: Any, tolist: bool = False) -> Any:
        """Computes its result on one example at once: for tests and for trying out.

        Args:
            inp: an instance of the input type.
            tolist: whether tensors are turned into Python lists and numbers.

        Returns:
            An instance of the output type, where tensors have no batch dimension, sequences are
            lists and endless ones `itertools.repeat`. If there are metrics, a pair of that and a
            dict of their values, name -> [num_values, ...].

        Raises:
            BlockTypeError: if the types are not all known, or a static check fails.
        """
        return evaluate(self, inp, tolist)

    def max_depth(self, inp: Any) -> int:
        """The longest chain of calls that one example needs; a reduction counts as balanced.

        Args:
            inp: an instance of the input type.
        """
        return max_depth(self, inp)

    def tree(self, max_lines: int = 50) -> str:
        """The block and its parts with their types, one on a line, to be printed.

        Args:
            max_lines: after how many the rest is left out.
        """
        lines: list[str] = []
        shown: set[int] = set()
        stack: list[tuple[Block, int]] = [(self, 0)]
        while stack and len(lines) < max_lines:
            block, level = stack.pop()
            is_known, parts = id(block) in shown, block.below()
            title = str(block) if not parts else f"<{' '.join([block._kind, *block._title()])}>"
            types = f"{in_short(block.input_type)} -> {in_short(block.output_type)}"
            again = " (see above)" if is_known and parts else ""
            lines.append(f"{'  ' * level}{title} {types}{again}")
            if not is_known:
                shown.add(id(block))
                stack.extend((part, level + 1) for part in reversed(parts))
        return "\n".join([*lines, *(["..."] if stack else [])])

    def reads(self, *sources: Any) -> Self:
        """Connects sources to the input, within `Composition.scope`; returns the block.

        Args:
            *sources: blocks, outputs of blocks (`block[i]`), or what converts to a block.

        Raises:
            BlockScopeError: if there is no scope.
            BlockTypeError: if the types do not fit.
            BlockValueError: if the input is connected already.
        """
        current_scope("reads").connect(sources, self)
        return self

    def __call__(self, *sources: Any) -> Any:
        """Its result on other results, in the function of `compose`; called anew each time."""
        return current_scope("calling a block").call(self, sources)

    def __rshift__(self, other: Any) -> Block:
        """`(a >> b).eval(x)` is `b.eval(a.eval(x))`."""
        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        return Pipe(other, self)

    def __getitem__(self, key: Any) -> Any:
        """One output, to be read in a `Composition`; a slice gives a tuple of outputs."""
        if isinstance(key, slice):
            return current_scope("slicing").item(self, key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise BlockTypeError(
                f"{self} has outputs with numbers, but is asked for {key!r}. Give an integer."
            )
        wire = Wire(self, key)
        wire.kind  # noqa: B018  (a number that is too high is an error here)
        return wire

    def __iter__(self) -> Iterator[Any]:
        # Python would take block[0], block[1], ... for an endless sequence.
        raise BlockTypeError(f"{self} cannot be iterated. Name its outputs: block[0], block[1].")

    def __repr__(self) -> str:
        facts = [f"{key}={shown(value)}" for key, value in sorted(self._facts().items())]
        return f"<{' '.join([self._kind, *self._title(), *facts])}>"

    def set_constructor_name(self, kind: str) -> Self:
        """Sets what messages call this kind of block; returns the block."""
        self._kind = kind
        return self

    def _title(self) -> list[str]:
        return [repr(self._name)] if self._name else []

    def _facts(self) -> dict[str, Any]:
        """Facts that messages show beside the kind."""
        return {}

    def _add_child(self, child: Block) -> None:
        append(self._children, child)
        if not any(parent is self for parent in child._parents):
            append(child._parents, self)

    def _conclude(self, draw: Callable[[Any], None], found: Any) -> None:
        """Draws conclusions; an error in a child's type also names the block that has the child."""
        if self.is_simple:
            return draw(found)
        try:
            draw(found)
        except BlockTypeError as error:
            if "whole" in error.facts or str(self) in error.message:
                raise
            raise type(error)(f"{self}: {error.message}", whole=self._kind) from error


@singledispatch
def convert_to_block(block_like: Any) -> Block:
    """The block that `block_like` says.

    - a block: itself;
    - a tensor or a numpy array: a `FromTensor` of it;
    - a dict, a list of pairs, a tuple: a `Record` of it;
    - an `nn.Module` or another callable: a `Function` of it, which takes batches of tensors.

    `convert_to_block.register(cls, function)` adds a class.

    Raises:
        BlockTypeError: if it is none of these.
    """
    raise BlockTypeError(
        f"{quoted(block_like)} cannot be converted to a block. Give a block, a tensor, a module or "
        "function of tensors, or a dict, a list of pairs or a tuple of such."
    )


@convert_to_block.register
def _(block_like: Block) -> Block:
    return block_like


def convert_to_part(block_like: Any, takes: ResultType, place: str) -> Block:
    """Converts to a block that takes a type, in the place that it has in another.

    Raises:
        BlockTypeError: if it converts to none, or to one that takes something else.
    """
    try:
        return convert_to_block(block_like).set_input_type(takes)
    except BlockTypeError as error:
        raise type(error)(f"{place}: {error.message}", whole=place) from error


@transaction()
def Pipe(*blocks: Any, name: str | None = None) -> Block:
    """Each block reads the one before: `Pipe(a, b, c)` is `a >> b >> c`.

    Args:
        *blocks: blocks, or what converts to blocks; none at all give `Identity`.
    """
    parts = [convert_to_block(block) for block in blocks]
    if not parts:
        return Identity(name)
    return parts[0] if len(parts) == 1 else _Pipe(parts, name)


class _Pipe(Block):
    """Blocks in a row; `a >> b >> c` is one of a pipe and a block, however long it becomes."""

    is_simple = False

    def __init__(self, parts: Sequence[Block], name: str | None) -> None:
        first, last = parts[0], parts[-1]
        self._first: Block = first._first if isinstance(first, _Pipe) else first
        self._last: Block = last._last if isinstance(last, _Pipe) else last
        super().__init__(parts, name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        for block in self._plan:
            x = block.apply(context, x) if block.is_simple else (yield block, x)
        return x

    @cached_property
    def _plan(self) -> list[Block]:
        """All blocks in the row, none of them a pipe."""
        plan: list[Block] = []
        stack: list[Block] = [self]
        while stack:
            block = stack.pop()
            if isinstance(block, _Pipe):
                stack.extend(reversed(block.children))
            else:
                plan.append(block)
        return plan

    # Types go straight to the block at the end, and from there back up through the queue of
    # parents: so no row is too long for Python's stack.
    def _input_found(self, kind: ResultType) -> None:
        self._first.set_input_type(kind)

    def _output_found(self, kind: ResultType) -> None:
        self._last.set_output_type(kind)

    def _child_found(self, child: Block) -> None:
        parts = self._children
        for left, right in pairwise(parts):
            if child is left or child is right:
                unify((Wire(left),), right, self._kind)
        self.set_input_type(parts[0].input_type)
        self.set_output_type(parts[-1].output_type)


class Identity(Block):
    """Gives what it takes."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return x

    def _input_found(self, kind: ResultType) -> None:
        self.set_output_type(kind)

    def _output_found(self, kind: ResultType) -> None:
        self.set_input_type(kind)


def shown(value: Any) -> str:
    """A value as a message shows it: a function by its name, a module on one line."""
    if isinstance(value, nn.Module):
        return " ".join(repr(value).split())
    value = getattr(value, "func", value)  # of a partial
    name = getattr(value, "__name__", None)
    return quoted(value) if name is None else repr(name)


class Scope(ABC):
    """Interface of what is being wired: a composition."""

    @abstractmethod
    def connect(self, sources: Any, block: Any) -> None:
        """Connects sources to the input of a block, which has no other."""

    @abstractmethod
    def call(self, block: Any, sources: Sequence[Any]) -> Wire:
        """Uses a block once more; returns its result."""

    @abstractmethod
    def item(self, source: Any, key: Any) -> Wire:
        """An item of a result."""


#: The composition that is being wired.
SCOPE: ContextVar[Scope | None] = ContextVar("scope", default=None)


def current_scope(what: str) -> Scope:
    """The composition that is being wired.

    Raises:
        BlockScopeError: if there is none; the message says what would have needed it.
    """
    current = SCOPE.get()
    if current is None:
        raise BlockScopeError(
            f"Block's {what} method was called outside of a Composition scope. Use compose, or "
            "`with composition.scope():`."
        )
    return current


class Call:
    """One use of a block in a composition.

    Attributes:
        block: the block.
        composition: where it is used.
        sources: the wires that it reads; None as long as it is not connected.
    """

    def __init__(self, block: Block, composition: Scope) -> None:
        self.block = block
        self.composition = composition
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
        """The type of what it carries; None as long as that is unknown.

        Raises:
            BlockTypeError: if the block does not have several outputs, or not so many.
        """
        kind = self.block.output_type
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
        """An item of what it carries, or a tuple of items."""
        if isinstance(key, int) and self.index is None:
            return Wire(self.source, key)
        return current_scope("getting an item").item(self, key)

    def __iter__(self) -> Any:
        raise BlockTypeError("a wire cannot be iterated. Name its items: x[0], x[1].")

    def __rshift__(self, other: Any) -> Wire:
        """The result of a block, or of what converts to one, on it."""
        return current_scope("calling a block").call(other, (self,))

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


def unify(wires: Sequence[Wire], reader: Block, whole: str) -> None:
    """Tells a reader the type of what it reads, or those that it reads what it takes.

    Args:
        wires: what the reader reads; together, in a tuple, if they are not one.
        reader: the block.
        whole: the kind of block in which they are connected.

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
                whole=whole,
            ) from error


def _push_back(
    wires: Sequence[Wire], kinds: Sequence[ResultType | None], takes: ResultType, reader: Block
) -> None:
    """Tells the sources of wires what type their reader takes."""
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
        place = f"input {number} of block {reader}" if len(wires) > 1 else f"block {reader}"
        if kind is not None and kind != item:
            raise BlockTypeError(
                f"{_named(wire)} has type {kind}; cannot connect it to {place} having type "
                f"{item}. Type mismatch between input type {kind} and expected input type "
                f"{item}.",
                whole=str(reader),
            )
        if wire.index is None:
            wire.block.set_output_type(item)


def _no_tensor(wire: Wire | None, fault: str) -> str:
    whose = "a result" if wire is None else _named(wire)
    return (
        f"{whose} names tensors that are not there yet: {fault}. Wrap the module or function "
        "that computes in Function: td.Function(f)(x)."
    )


def _named(wire: Wire) -> str:
    return f"output of block {wire}" if wire.index is None else str(wire)


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


def walk(root: Block) -> list[Block]:
    """All blocks that a block consists of or declares, each once, children before parents."""
    seen: set[int] = {id(root)}
    found: list[Block] = []
    stack: list[tuple[Block, Iterator[Block]]] = [(root, iter(root.below()))]
    while stack:
        block, below = stack[-1]
        child = next((b for b in below if id(b) not in seen), None)
        if child is None:
            found.append(block)
            stack.pop()
        else:
            seen.add(id(child))
            stack.append((child, iter(child.below())))
    return found


@transaction()
def check_blocks(root: Block) -> list[Block]:
    """All blocks, once they have passed their checks; the root takes Python objects, or nothing.

    Raises:
        BlockTypeError: if a type is unknown, or a check fails.
        BlockValueError: if there is a cycle, or a block that contains itself in every case.
    """
    if not isinstance(root.input_type, VoidType) and not _is_constant(root):
        root.set_input_type(PyObjectType())
    blocks = walk(root)
    for block in blocks:
        block.check_wiring()
    _refuse_endless_recursion(blocks)
    for block in blocks:  # checks may find types, which may make children (zeros, empty)
        block.check()
    blocks = walk(root)
    metrics: dict[str, TensorType] = {}
    for name, kind in (item for block in blocks for item in block.metrics().items()):
        first = metrics.setdefault(name, kind)
        if first != kind:
            raise BlockTypeError(
                f"Metric {name} has incompatible types: {first} vs. {kind}. Give one of them "
                "another name."
            )
    return blocks


def _refuse_endless_recursion(blocks: Sequence[Block]) -> None:
    """Raises BlockRecursionError if running a block always needs that very block.

    Args:
        blocks: all blocks of a model, children before parents.
    """
    ending: set[int] = set()
    left = blocks
    while left:
        rest = []
        for block in left:
            if all(id(part) in ending for part in block.always()):
                ending.add(id(block))
            else:
                rest.append(block)
        if len(rest) == len(left):
            declared = next(block for block in left if block.is_forward_declaration_ref)
            raise BlockRecursionError(
                f"{declared.name} contains itself whatever the example is, so it would never end. "
                "Put a OneOf, an Optional or a Map around the inner one."
            )
        left = rest


def _is_constant(root: Block) -> bool:
    """True for a root that takes nothing without saying so, as compositions of constants do."""
    if root.input_type is not None or not root.children:
        return False
    return all(isinstance(child.input_type, VoidType) for child in root.children)


class Context(ABC):
    """Base of the runs: tensors are computed (eval), recorded (lowering) or counted (depth).

    What a tensor is while it is in flight is the context's own business; blocks only pass it on.
    Tuples are tuples then, sequences lists, and endless ones `itertools.repeat`.

    Attributes:
        active: (id of a declared block, id of what it is given) -> how often that runs inside of
            itself.
    """

    def __init__(self) -> None:
        self.active: dict[tuple[int, int], int] = {}

    @abstractmethod
    def from_example(self, kind: TensorType, value: np.ndarray) -> Any:
        """A tensor that the example holds, given as an array of the type."""

    @abstractmethod
    def visit(self, primitive: Primitive, x: Any) -> Any:
        """The result of a primitive block on its input."""


class Recorder(Context):
    """Base of the run that records what examples need computed.

    A tensor in flight is an array of the example, a constant, or an output of a node. Lowering has
    the one that there is.
    """

    @abstractmethod
    def constant(self, block: Any) -> Any:
        """The tensor of a `FromTensor`."""

    @abstractmethod
    def node(self, block: Primitive, tensors: Iterable[Any]) -> Sequence[Any]:
        """The tensors that a new node gives, which takes these.

        Args:
            block: what the node computes.
            tensors: one for each of `block.input_tensors`.
        """

    @abstractmethod
    def reduction(self, block: Primitive, tensors: Sequence[Any], kind: TensorType) -> Any:
        """The first tensor that a new node gives, which takes any number of tensors.

        Args:
            block: what the node computes.
            tensors: all of one type.
            kind: the type.
        """

    @abstractmethod
    def metric(self, metric: Any, value: Any, label: Any) -> None:
        """Notes a tensor as a value of a metric."""


def run(block: Block, context: Context, x: Any) -> Any:
    """The result of a block on one value.

    The blocks that wait for a child stand on a stack of our own, so the depth of the example is not
    limited by that of Python's.
    """
    stack: list[Steps] = []
    while True:
        if block.is_simple:
            value = block.apply(context, x)
        else:
            stack.append(block.steps(context, x))
            value = None
        while True:
            if not stack:
                return value
            try:
                block, x = stack[-1].send(value)
                break
            except StopIteration as result:
                stack.pop()
                value = result.value


class Evaluation(Context):
    """Computes at once; a tensor in flight is a batch of one.

    Args:
        dtype: the dtype of floating-point tensors; None for that of their types.
        device: where to compute; None for the CPU.

    Attributes:
        metrics: name -> the values so far, [1, ...] each.
    """

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None = None) -> None:
        super().__init__()
        self._dtype = dtype
        self._device = device
        self.metrics: dict[str, list[Tensor]] = {}

    def from_example(self, kind: TensorType, value: np.ndarray) -> Tensor:
        return self.cast(
            torch.as_tensor(np.asarray(value), device=self._device or "cpu"), kind
        ).unsqueeze(0)

    def visit(self, primitive: Primitive, x: Any) -> Any:
        return primitive.evaluate(self, x)

    def cast(self, tensor: Tensor, kind: TensorType) -> Tensor:
        """A tensor in the dtype that its type has in this model."""
        return tensor.to(in_dtype(kind, self._dtype))

    def zeros(self, kind: TensorType, size: int = 1) -> Tensor:
        """[size, ...] zeros of a type."""
        dtype = in_dtype(kind, self._dtype)
        return torch.zeros((size, *kind.shape), dtype=dtype, device=self._device)


class Depth(Context):
    """Counts calls; a tensor in flight is the number of calls that it waits for.

    Attributes:
        deepest: the largest number that was noted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.deepest = 0

    def note(self, depth: int) -> None:
        """Notes the depth of a result."""
        self.deepest = max(self.deepest, depth)

    def from_example(self, kind: TensorType, value: np.ndarray) -> int:
        return 0

    def visit(self, primitive: Primitive, x: Any) -> Any:
        return primitive.depth(self, x)


def evaluate(block: Block, inp: Any, tolist: bool) -> Any:
    """`Block.eval`."""
    blocks = check_blocks(block)
    modules = [module for b in blocks for module in b.own_modules()]
    device = next((t.device for m in modules for t in [*m.parameters(), *m.buffers()]), None)
    context = Evaluation(float_dtype_of(modules), device)
    result = _without_batch(block.output_type, run(block, context, inp), tolist)
    kinds = {name: kind for b in blocks for name, kind in b.metrics().items()}
    if not kinds:
        return result
    values = {}
    for name, kind in sorted(kinds.items()):
        value = torch.cat(context.metrics.get(name) or [context.zeros(kind, 0)])
        values[name] = value.tolist() if tolist else value
    return result, values


def max_depth(block: Block, inp: Any) -> int:
    """`Block.max_depth`."""
    check_blocks(block)
    context = Depth()
    value = run(block, context, inp)
    if block.output_type is not None:
        block.output_type.for_each_terminal(
            lambda kind, depth: context.note(depth) if isinstance(kind, TensorType) else None, value
        )
    return context.deepest


def _without_batch(kind: ResultType | None, value: Any, tolist: bool) -> Any:
    """A result with tensors of their own shape, or as lists."""
    if kind is None or isinstance(kind, PyObjectType):
        return value
    flat = []
    for item in kind.flatten(value):
        tensor = item[0] if isinstance(item, Tensor) else item
        flat.append(tensor.tolist() if tolist and isinstance(tensor, Tensor) else tensor)
    return kind.unflatten(iter(flat), value)
