"""Dependency trees: from the head of every word to its dependents, or to what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfold.errors import RecordError, shortened

#: Makes the error about a token (1-based) from what is wrong with the sentence.
Fault = Callable[[int, str], RecordError]


def parse_head(text: str, token: int, num_tokens: int, fault: Fault) -> int:
    """The head of a token as a number: 0 for the root, else the 1-based number of another token.

    Raises:
        RecordError: made by `fault`, if it is missing, no number, out of range or the token itself.
    """
    if text in ("", "_"):
        raise fault(token, f"token {token} has no head")
    if not (text.isascii() and text.isdigit()):
        raise fault(token, f"token {token} has head '{text}', which is not a number")
    digits = text.lstrip("0") or "0"
    # By length first: Python refuses to read a number of thousands of digits.
    if len(digits) > len(str(num_tokens)) or int(digits) > num_tokens:
        count = f"{num_tokens} token" + "s" * (num_tokens != 1)
        raise fault(
            token, f"token {token} has head {shortened(digits)}, but the sentence has {count}"
        )
    head = int(digits)
    if head == token:
        raise fault(token, f"token {token} is its own head")
    return head


def find_dependents(heads: Sequence[int], fault: Fault) -> tuple[int, list[list[int]]]:
    """The root and the dependents of every word, in word order.

    Args:
        heads: the 1-based number of each word's head, 0 for the root.
        fault: makes the error about a token.

    Returns:
        The 0-based number of the root, and for each word the 0-based numbers of its dependents.

    Raises:
        RecordError: made by `fault`, if there is no root, a second one, or a cycle.
    """
    dependents: list[list[int]] = [[] for _ in heads]
    roots = [word for word, head in enumerate(heads) if head == 0]
    if not roots:
        raise fault(1, "no token has head 0, so the sentence has no root")
    if len(roots) > 1:
        first, second = roots[0] + 1, roots[1] + 1
        raise fault(
            second, f"tokens {first} and {second} both have head 0, but a tree has one root"
        )
    for word, head in enumerate(heads):
        if head:
            dependents[head - 1].append(word)
    _refuse_cycle(heads, fault)
    return roots[0], dependents


def _refuse_cycle(heads: Sequence[int], fault: Fault) -> None:
    """Walks from every word to the root, over words that no earlier walk has seen."""
    walk_of = [0] * (len(heads) + 1)
    for start in range(1, len(heads) + 1):
        token = start
        while token and not walk_of[token]:
            walk_of[token] = start
            token = heads[token - 1]
        if token and walk_of[token] == start:
            cycle = [token]
            while heads[cycle[-1] - 1] != token:
                cycle.append(heads[cycle[-1] - 1])
            path = " -> ".join(str(member) for member in [*cycle, token])
            raise fault(token, f"the heads of tokens {path} form a cycle")
