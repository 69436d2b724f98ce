"""Recursive blocks: declared first, then defined in terms of themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfold.blocks.block import Block, convert_to_block, function_name
from graphfold.blocks.block_errors import (
    BlockDeclarationError,
    BlockRecursionError,
    BlockTypeError,
    quoted,
)
from graphfold.blocks.contexts import Context, Steps
from graphfold.blocks.inference.typed import Typed, append, assign, transaction
from graphfold.blocks.inference.types import ResultType, TypeLike

#: The number of times that a block may run inside itself with the same object; more never end.
MOST_INSIDE = 1000


class ForwardDeclaration(Typed):
    """A block that will be defined later, for blocks that contain themselves.

    ```python
    tree = ForwardDeclaration(PyObjectType(), output_type)
    block = ... tree() ... tree() ...
    tree.resolve_to(block)
    ```

    `recursive` does the same in one call.

    Args:
        input_type: the type of its input, if it is known.
        output_type: the type of its output, if it is known.
        name: its name in messages and state dicts.
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
        """Defines the block.

        Raises:
            BlockDeclarationError: if it is defined already.
            BlockTypeError: if its types contradict the declared ones.
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
    """Stands for a declared block; made by a `ForwardDeclaration`."""

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
        append(target._parents, self)  # so that it learns the types of the target
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
        if count > MOST_INSIDE and not hasattr(x, "__next__"):  # an iterator may have moved on
            raise BlockRecursionError(
                f"{self.target} contains itself and runs again and again with the same object: "
                f"{quoted(x)}. Let it pass on a part of what it is given to itself, and "
                "check whether the example contains itself."
            )
        value = yield self.target, x
        if count == 1:
            del active[key]
        else:
            active[key] = count - 1
        return value

    def _infer_from_input(self, kind: ResultType) -> None:
        if self.target is not None:
            self.target.set_input_type(kind)

    def _infer_from_output(self, kind: ResultType) -> None:
        if self.target is not None:
            self.target.set_output_type(kind)

    def _infer_from_child(self, child: Block) -> None:
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
        function: from a reference to the block to its definition.
        input_type: the type of its input, where that cannot be inferred.
        output_type: the type of its output, where that cannot be inferred.
        name: its name; by default that of the function.

    Raises:
        BlockTypeError: if the types do not fit.
    """
    if function is None:
        return lambda later: recursive(
            later, input_type=input_type, output_type=output_type, name=name
        )
    declared = ForwardDeclaration(input_type, output_type, name or function_name(function))
    block = convert_to_block(function(declared()))
    declared.resolve_to(block)
    return block
