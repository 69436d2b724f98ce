"""Block: the base of everything that is composed; Pipe, which puts blocks in a row; and checks."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, singledispatch
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from graphfold.blocks.block_errors import BlockRecursionError, BlockTypeError, quoted
from graphfold.blocks.contexts import Context, Depth, Evaluation, Steps, run
from graphfold.blocks.inference.typed import Typed, append, transaction
from graphfold.blocks.inference.types import (
    PyObjectType,
    ResultType,
    TensorType,
    TypeLike,
    VoidType,
    float_dtype_of,
    in_short,
)
from graphfold.blocks.wires import Wire, current_scope, unify

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11; torch brings it along


class Block(Typed, ABC):
    """A function from a Python object, or from tensors, to tensors.

    `a >> b` passes the result of a to b. A block may be used in any number of places; it has the
    same types in all of them and shares its weights.

    A block without children defines `apply`. A block with children defines `steps`, which asks for
    the children's results instead of calling them, so that input may be nested to any depth. A
    block that computes tensors is a `Primitive`.

    Args:
        children: the blocks that it consists of.
        input_type: the type of its input, if it is known.
        output_type: the type of its output, if it is known.
        name: its name in messages and state dicts.

    Attributes:
        children: the argument, a list.
    """

    #: True if it has `apply`, False if it has `steps`.
    is_simple: ClassVar[bool] = True

    #: Keeps numpy arrays from taking `array >> block` apart.
    __array_ufunc__ = None

    #: Facts that messages show beside the kind; set by constructors.
    _facts: Mapping[str, Any] = {}

    @transaction()
    def __init__(
        self,
        children: Sequence[Block] = (),
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        self.children: list[Block] = []
        self._kind = type(self).__name__.strip("_")
        for child in children:
            self._add_child(child)
        super().__init__(input_type, output_type, name)
        for child in children:
            self._apply_rule(self._infer_from_child, child)

    @property
    def parent(self) -> Block | None:
        """The first block that it became a part of; None if it is part of no block."""
        return next((p for p in self._parents if not p.is_forward_declaration_ref), None)

    @property
    def is_forward_declaration_ref(self) -> bool:
        """True for a reference to a block that is declared elsewhere."""
        return False

    def below(self) -> Sequence[Block]:
        """The children; of a reference, the block that is declared elsewhere."""
        return self.children

    def always(self) -> Sequence[Block]:
        """The blocks that run whenever this one does; by default all children."""
        return self.children

    def check_wiring(self) -> None:
        """Checks the connections, before types are checked.

        Raises:
            BlockValueError: if there is a cycle.
        """

    def apply(self, context: Context, x: Any) -> Any:
        """Computes, records or counts the result for one value.

        Args:
            context: computes tensors, records or counts them.
            x: an instance of the input type.
        """
        raise NotImplementedError

    def steps(self, context: Context, x: Any) -> Steps:
        """`apply` for a block with children: yields (child, input), is sent the child's result."""
        raise NotImplementedError

    def own_modules(self) -> Iterator[nn.Module]:
        """The modules that the block itself calls, without those of its children."""
        return iter(())

    def metrics(self) -> Mapping[str, TensorType]:
        """Name -> type of the metrics that the block itself collects."""
        return {}

    def eval(self, inp: Any, tolist: bool = False) -> Any:
        """Computes the result for one example at once: for tests and for trying out.

        Args:
            inp: an instance of the input type.
            tolist: whether tensors become Python lists and numbers.

        Returns:
            An instance of the output type, where tensors have no batch dimension, sequences are
            lists and endless ones `itertools.repeat`. If there are metrics, a pair of that and a
            dict of their values, name -> [num_values, ...].

        Raises:
            BlockTypeError: if a type is unknown, or a static check fails.
        """
        blocks = check_blocks(self)
        modules = [module for block in blocks for module in block.own_modules()]
        device = next((t.device for m in modules for t in [*m.parameters(), *m.buffers()]), None)
        context = Evaluation(float_dtype_of(modules), device)
        result = _without_batch(self.output_type, run(self, context, inp), tolist)
        kinds = {name: kind for block in blocks for name, kind in block.metrics().items()}
        if not kinds:
            return result
        values = {}
        for name, kind in sorted(kinds.items()):
            value = torch.cat(context.metrics.get(name) or [context.zeros(kind, 0)])
            values[name] = value.tolist() if tolist else value
        return result, values

    def max_depth(self, inp: Any) -> int:
        """The longest chain of calls that one example needs; a reduction counts as balanced.

        Args:
            inp: an instance of the input type.
        """
        check_blocks(self)
        context = Depth()
        value = run(self, context, inp)
        if self.output_type is not None:
            self.output_type.for_each_terminal(
                lambda kind, depth: context.note(depth) if isinstance(kind, TensorType) else None,
                value,
            )
        return context.deepest

    def tree(self, max_lines: int = 50) -> str:
        """The block and its parts with their types, one on a line, to be printed.

        Args:
            max_lines: the number of lines after which the rest is left out.
        """
        lines: list[str] = []
        shown: set[int] = set()
        stack: list[tuple[Block, int]] = [(self, 0)]
        while stack and len(lines) < max_lines:
            block, level = stack.pop()
            is_shown, parts = id(block) in shown, block.below()
            title = str(block) if not parts else f"<{' '.join([block._kind, *block._title()])}>"
            types = f"{in_short(block.input_type)} -> {in_short(block.output_type)}"
            again = " (see above)" if is_shown and parts else ""
            lines.append(f"{'  ' * level}{title} {types}{again}")
            if not is_shown:
                shown.add(id(block))
                stack.extend((part, level + 1) for part in reversed(parts))
        return "\n".join([*lines, *(["..."] if stack else [])])

    def reads(self, *sources: Any) -> Self:
        """Connects sources to the input, within `Composition.scope`; returns the block.

        Args:
            *sources: blocks, outputs of blocks (`block[i]`), or objects that convert to blocks.

        Raises:
            BlockScopeError: if there is no scope.
            BlockTypeError: if the types do not fit.
            BlockValueError: if the input is connected already.
        """
        current_scope("reads").connect(sources, self)
        return self

    def __call__(self, *sources: Any) -> Any:
        """Calls the block in the function of `compose`; each call is a new use of the block."""
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
        facts = [f"{key}={shown(value)}" for key, value in sorted(self._facts.items())]
        return f"<{' '.join([self._kind, *self._title(), *facts])}>"

    def set_constructor_name(self, kind: str) -> Self:
        """Sets the name of this kind of block in messages; returns the block."""
        self._kind = kind
        return self

    def _title(self) -> list[str]:
        return [repr(self._name)] if self._name else []

    def _add_child(self, child: Block) -> None:
        append(self.children, child)
        if not any(parent is self for parent in child._parents):
            append(child._parents, self)

    def _apply_rule(self, rule: Callable[[Any], None], fact: Any) -> None:
        """Applies a rule; an error in a child's type also names the block that has the child."""
        if self.is_simple:
            return rule(fact)
        try:
            rule(fact)
        except BlockTypeError as error:
            if "whole" in error.facts or str(self) in error.message:
                raise
            raise type(error)(f"{self}: {error.message}", whole=self._kind) from error


@singledispatch
def convert_to_block(block_like: Any) -> Block:
    """Converts an object to a block.

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
    """Converts an object to a block with an input type, for a place in another block.

    Raises:
        BlockTypeError: if it cannot be converted, or takes something else.
    """
    try:
        return convert_to_block(block_like).set_input_type(takes)
    except BlockTypeError as error:
        raise type(error)(f"{place}: {error.message}", whole=place) from error


@transaction()
def Pipe(*blocks: Any, name: str | None = None) -> Block:
    """Each block reads the one before: `Pipe(a, b, c)` is `a >> b >> c`.

    Args:
        *blocks: blocks, or objects that convert to blocks; without any it is `Identity`.
    """
    parts = [convert_to_block(block) for block in blocks]
    if not parts:
        return Identity(name)
    return parts[0] if len(parts) == 1 else _Pipe(parts, name)


class _Pipe(Block):
    """Blocks in a row; `a >> b >> c` is a pipe of a pipe and a block, to any length."""

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
        """All blocks in the row, with pipes replaced by their parts."""
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
    def _infer_from_input(self, kind: ResultType) -> None:
        self._first.set_input_type(kind)

    def _infer_from_output(self, kind: ResultType) -> None:
        self._last.set_output_type(kind)

    def _infer_from_child(self, child: Block) -> None:
        parts = self.children
        for left, right in pairwise(parts):
            if child is left or child is right:
                unify((Wire(left),), right, self._kind)
        self.set_input_type(parts[0].input_type)
        self.set_output_type(parts[-1].output_type)


class Identity(Block):
    """Returns its input unchanged."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return x

    def _infer_from_input(self, kind: ResultType) -> None:
        self.set_output_type(kind)

    def _infer_from_output(self, kind: ResultType) -> None:
        self.set_input_type(kind)


def shown(value: Any) -> str:
    """A value as a message shows it: a function by its name, a module on one line."""
    if isinstance(value, nn.Module):
        return " ".join(repr(value).split())
    value = getattr(value, "func", value)  # of a partial
    name = getattr(value, "__name__", None)
    return quoted(value) if name is None else repr(name)


def function_name(function: Callable[..., Any]) -> str | None:
    """The name of a function; None for a lambda."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else None


def walk(root: Block) -> list[Block]:
    """All blocks that a block consists of or declares, each once, children before parents."""
    seen: set[int] = {id(root)}
    blocks: list[Block] = []
    stack: list[tuple[Block, Iterator[Block]]] = [(root, iter(root.below()))]
    while stack:
        block, below = stack[-1]
        child = next((b for b in below if id(b) not in seen), None)
        if child is None:
            blocks.append(block)
            stack.pop()
        else:
            seen.add(id(child))
            stack.append((child, iter(child.below())))
    return blocks


@transaction()
def check_blocks(root: Block) -> list[Block]:
    """All blocks of a model, checked; the root takes Python objects, or nothing.

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
    for block in blocks:  # checks may infer types, which may make children (zeros, empty)
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
    rest = blocks
    while rest:
        undecided = []
        for block in rest:
            if all(id(part) in ending for part in block.always()):
                ending.add(id(block))
            else:
                undecided.append(block)
        if len(undecided) == len(rest):
            declared = next(block for block in rest if block.is_forward_declaration_ref)
            raise BlockRecursionError(
                f"{declared.name} contains itself whatever the example is, so it would never end. "
                "Put a OneOf, an Optional or a Map around the inner one."
            )
        rest = undecided


def _is_constant(root: Block) -> bool:
    """True for a root without an input type whose children all read nothing."""
    if root.input_type is not None or not root.children:
        return False
    return all(isinstance(child.input_type, VoidType) for child in root.children)


def _without_batch(kind: ResultType | None, value: Any, tolist: bool) -> Any:
    """A result of `Evaluation` without the batch dimension, or as lists."""
    if kind is None or isinstance(kind, PyObjectType):
        return value
    flat = []
    for item in kind.flatten(value):
        tensor = item[0] if isinstance(item, Tensor) else item
        flat.append(tensor.tolist() if tolist and isinstance(tensor, Tensor) else tensor)
    return kind.unflatten(iter(flat), value)
