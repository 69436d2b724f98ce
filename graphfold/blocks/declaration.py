"""Recursive blocks: declared first, defined in terms of themselves, resolved then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfold.blocks.block_errors import (
    BlockDeclarationError,
    BlockRecursionError,
    BlockTypeError,
    quoted,
)
from graphfold.blocks.core import Block, Context, Steps, convert_to_block
from graphfold.blocks.inference.typed import Typed, append, assign, transaction
from graphfold.blocks.inference.types import ResultType, TypeLike

#: How often a block may run inside of itself with the very same object: then it will never end.
MOST_INSIDE = 1000


class ForwardDeclaration(Typed):
    """A block that will be defined later, for blocks that contain themselves.

    ```python
    tree = ForwardDeclaration(PyObjectType(), output_type)
    block = ... tree() ... tree() ...
    tree.resolve_to(block)
    ```

    `recursive` says the same in one piece.

    Args:
        input_type: what it will take, if known.
        output_type: what it will give, if known.
    """

    def __init__(
        self,
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(input_type, output_type, name)
        self._references: list[Reference] = []
        self._resolved = False

    def __call__(self) -> Block:
        """A reference to the block that will be defined.

        Raises:
            BlockDeclarationError: if it is defined already.
        """
        self._require_open()
        reference = Reference(self.input_type, self.output_type, self._name)
        self._references.append(reference)
        return reference

    def __repr__(self) -> str:
        return f"<ForwardDeclaration {self.name!r}>"

    @transaction()
    def resolve_to(self, target_block: Any) -> None:
        """Defines it.

        Raises:
            BlockDeclarationError: if it is defined already.
            BlockTypeError: if the types are not those that were declared.
        """
        self._require_open()
        target = convert_to_block(target_block)
        self.set_io_types(target)
        for reference in self._references:
            reference.resolve(target)
        self._resolved = True

    def _require_open(self) -> None:
        if self._resolved:
            raise BlockDeclarationError(
                f"Declaration {self.name} has already been resolved. Use the block that it was "
                "resolved to."
            )


class Reference(Block):
    """Stands for a block that is declared; made by a `ForwardDeclaration`."""

    is_simple = False

    def __init__(
        self, input_type: ResultType | None, output_type: ResultType | None, name: str | None
    ) -> None:
        self.target: Block | None = None
        super().__init__(input_type=input_type, output_type=output_type, name=name)
        self.set_constructor_name("ForwardDeclaration()")

    @property
    def is_forward_declaration_ref(self) -> bool:
        return True

    def resolve(self, target: Block) -> None:
        """Sets the block that it refers to."""
        assign(vars(self), "target", target)
        append(target._parents, self)  # whose types it needs
        self.set_io_types(target)

    def check(self) -> None:
        if self.target is None:
            raise BlockTypeError(
                f"Forward declaration {self.name} was never resolved. Call resolve_to."
            )
        super().check()

    def below(self) -> Sequence[Block]:
        return () if self.target is None else [self.target]

    def always(self) -> Sequence[Block]:
        return self.below()

    def steps(self, context: Context, x: Any) -> Steps:
        active, key = context.active, (id(self.target), id(x))
        count = active[key] = active.get(key, 0) + 1
        if count > MOST_INSIDE:
            self._refuse_endless(x)
        value = yield self.target, x  # type: ignore[misc]
        if count == 1:
            del active[key]
        else:
            active[key] = count - 1
        return value

    def _refuse_endless(self, x: Any) -> None:
        if not hasattr(x, "__next__"):  # an iterator may have moved on
            raise BlockRecursionError(
                f"{self.target} contains itself and runs again and again with the same object: "
                f"{quoted(x)}. Let it pass on a part of what it is given to itself, and "
                "check whether the example contains itself."
            )

    def _input_found(self, kind: ResultType) -> None:
        if self.target is not None:
            self.target.set_input_type(kind)

    def _output_found(self, kind: ResultType) -> None:
        if self.target is not None:
            self.target.set_output_type(kind)

    def _child_found(self, child: Block) -> None:
        self.set_input_type(child.input_type)
        self.set_output_type(child.output_type)


def recursive(
    function: Callable[[Block], Any] | None = None,
    *,
    input_type: TypeLike | None = None,
    output_type: TypeLike | None = None,
    name: str | None = None,
) -> Any:
    """A block that contains itself, from a function of itself.

    ```python
    tree = recursive(lambda tree: OneOf(len, {1: leaf, 2: Record((tree, tree)) >> combine}))
    ```

    The argument may be used any number of times. As a decorator, `@recursive(output_type=...)`
    turns a function into a block.

    Args:
        function: from the block that it defines to what that is.
        input_type: what it takes, where that cannot be found out.
        output_type: what it gives, where that cannot be found out.

    Raises:
        BlockTypeError: if the types do not fit.
    """
    if function is None:
        return lambda later: recursive(
            later, input_type=input_type, output_type=output_type, name=name
        )
    own = getattr(function, "__name__", "")
    declared = ForwardDeclaration(
        input_type, output_type, name or (own if own.isidentifier() else None)
    )
    block = convert_to_block(function(declared()))
    declared.resolve_to(block)
    return block
