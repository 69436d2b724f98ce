"""All blocks of a model, and the checks that they pass before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphfold.blocks.errors import BlockRecursionError, BlockTypeError
from graphfold.blocks.inference.typed import transaction
from graphfold.blocks.inference.types import PyObjectType, TensorType, VoidType

if TYPE_CHECKING:
    from graphfold.blocks.block import Block


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
