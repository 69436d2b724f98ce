"""What every block must hold: eval as expected, and batched by all engines as eval."""

from __future__ import annotations

from typing import Any

import torch

from graphfold.blocks import Block, Function, PyObjectType, compile, verify

ENGINES = ("fast", "autograd", "reference")


def neg() -> Block:
    return Function(torch.neg)


def add() -> Block:
    return Function(torch.add)


def sub() -> Block:
    return Function(torch.sub)


def times(factor: float) -> Block:
    return Function(lambda x: factor * x)


def check(block: Block, example: Any, expected: Any, depth: int | None = None) -> None:
    """Checks the value of one example, evaluated and batched, and perhaps its depth."""
    got = block.eval(example, tolist=True)
    assert got == expected, got
    assert type(got) is type(expected)
    assert not any(k == PyObjectType() for k in block.output_type.terminal_types())
    if depth is not None:
        assert block.max_depth(example) == depth
    check_batched(block, [example, example])


def check_batched(block: Block, examples: list[Any]) -> None:
    """Checks that a batch gives what the examples give one by one, with every engine."""
    alone = [block.eval(example) for example in examples]
    model = compile(block, ragged=True)
    has_metrics = bool(model.run(examples).metrics)
    for engine in ENGINES:
        model.engine = engine
        result = model.run(examples)
        for number, value in enumerate(alone):
            output = value[0] if has_metrics else value
            same(pick(result.output, number), output)
        for name, values in result.metrics.items():
            torch.testing.assert_close(values, torch.cat([value[1][name] for value in alone]))
    model.engine = "fast"
    assert verify(model, examples) < 1e-9


def pick(batched: Any, number: int) -> Any:
    """One example of a batched output, where tuples are those of batches."""
    if isinstance(batched, tuple):
        return tuple(pick(item, number) for item in batched)
    return None if batched is None else batched[number]


def same(batched: Any, alone: Any) -> None:
    """Checks one example of a batch against its evaluation, in which a sequence is a list."""
    if isinstance(alone, list) and not isinstance(batched, list):
        count = len(alone)
        for position in range(count):
            same(pick(batched, position), alone[position])
    elif isinstance(alone, (list, tuple)):
        assert len(batched) == len(alone)
        for one, other in zip(batched, alone, strict=True):
            same(one, other)
    elif alone is None:
        assert batched is None
    else:
        torch.testing.assert_close(batched, alone, rtol=1e-5, atol=1e-6)
