"""ListOps expressions made up at random, with the distribution of the published sets."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphfold.datasets.adapters.listops import END, OPERATORS, apply_operator
from graphfold.errors import ConfigError
from graphfold.files import write_text

#: The published sets are 90,000 and 10,000 examples of one pool of different expressions.
PUBLISHED_POOL = 100_000

#: After so many draws without a new expression there is none left worth waiting for.
_PATIENCE = 100_000


class ListOpsExample(NamedTuple):
    """One line of a ListOps file."""

    answer: int
    expression: str


@dataclass(frozen=True)
class ListOpsGenerator:
    """Draws expressions as the published sets were drawn.

    Source: Nangia & Bowman (2018), https://arxiv.org/abs/1804.06028, section 2, and the authors'
    script python/spinn/data/listops/make_data.py in https://github.com/nyu-mll/spinn. A place in an
    expression is an operation with probability 0.25, else a digit; operators, digits and the number
    of arguments (2 to 5) are uniform; at depth 20 there are only digits. Drawing goes on until
    there are enough *different* expressions, which makes short ones rarer than chance would: the
    size of the pool is part of the distribution. 100,000 reproduces the lengths of test_d20s.

    Args:
        operator_probability: how often a place holds an operation.
        max_arguments: the most arguments of an operation; the fewest are 2.
        max_depth: the depth at which there are only digits, so one more than the most operations
            inside one another.
        max_length: longer expressions (in tokens, brackets not counted) are drawn again; None for
            any length, as published.
        pool: how many different expressions are drawn, at least; what is asked for is a random part
            of them.

    Raises:
        ConfigError: if an option is out of its range, or expressions would have no end.
    """

    operator_probability: float = 0.25
    max_arguments: int = 5
    max_depth: int = 20
    max_length: int | None = None
    pool: int = PUBLISHED_POOL

    def __post_init__(self) -> None:
        if not 0 <= self.operator_probability < 1:
            raise ConfigError(
                f"operator_probability is {self.operator_probability}. Give 0 or more, less than 1."
            )
        for name, least in {"max_arguments": 2, "max_depth": 1, "max_length": 1, "pool": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}. Give {least} or more.")
        if self.max_length is None and self._mean_length() > 10_000:
            raise ConfigError(
                f"expressions would have {self._mean_length():.0f} tokens on average. Lower "
                "operator_probability, max_arguments or max_depth, or set max_length."
            )

    def draw(self, rng: random.Random) -> ListOpsExample | None:
        """One expression; None if it grew longer than `max_length`."""
        pieces: list[str] = []
        lists: list[_OpenList] = []
        length = 0
        while True:
            if len(lists) + 1 < self.max_depth and rng.random() < self.operator_probability:
                size = 2 + int(rng.random() * (self.max_arguments - 1))
                operator = OPERATORS[int(rng.random() * len(OPERATORS))]
                lists.append(_OpenList(operator, size, []))
                pieces.append("( " * (size + 1) + operator)
                length += 2
                continue
            value = int(rng.random() * 10)
            pieces.append(str(value))
            length += 1
            if self.max_length is not None and length > self.max_length:
                return None
            while lists:
                operator, size, values = lists[-1]
                values.append(value)
                pieces.append(")")
                if len(values) < size:
                    break
                value = apply_operator(operator, values)
                pieces.append(f"{END} )")
                lists.pop()
            else:
                return ListOpsExample(value, " ".join(pieces))

    def examples(
        self, count: int, seed: int, without: Collection[str] = ()
    ) -> list[ListOpsExample]:
        """`count` different expressions with their answers, in random order.

        Args:
            count: how many.
            seed: the same seed gives the same expressions.
            without: expressions that are not to be among them.

        Raises:
            ConfigError: if the options allow too few different expressions.
        """
        rng = random.Random(seed)
        wanted = max(count + len(without), self.pool)
        found: dict[str, int] = {}
        in_vain = 0
        while len(found) < wanted:
            example = self.draw(rng)
            if example is None or example.expression in found:
                in_vain += 1
                if in_vain == _PATIENCE:
                    break
            else:
                in_vain = 0
                found[example.expression] = example.answer
        if len(found) < count + len(without):
            raise ConfigError(
                f"these options allow only about {len(found)} different expressions, but {count} "
                "are wanted. Ask for fewer, or raise max_depth or max_arguments."
            )
        examples = [ListOpsExample(answer, text) for text, answer in found.items()]
        rng.shuffle(examples)
        return [example for example in examples if example.expression not in without][:count]

    def _mean_length(self) -> float:
        """The expected number of tokens, brackets not counted."""
        mean_arguments = (2 + self.max_arguments) / 2
        length = 1.0
        for _ in range(self.max_depth - 1):
            p = self.operator_probability
            length = 1 - p + p * (2 + mean_arguments * length)
        return length


class _OpenList(NamedTuple):
    operator: str
    size: int  # how many arguments it takes
    values: list[int]  # of those drawn so far


def write_listops(
    folder: Path,
    sizes: Mapping[str, int],
    seed: int,
    generator: ListOpsGenerator | None = None,
    without: Collection[str] = (),
) -> dict[str, Path]:
    """Writes splits in which no expression occurs twice, as `SPLIT.tsv` in the published format.

    Args:
        folder: where to; made if need be.
        sizes: the number of examples of each split, such as `{"train": 90_000, "test": 10_000}`.
        seed: the same seed gives the same files.
        generator: how to draw; the published distribution by default.
        without: expressions that are not to be in any split.

    Returns:
        The file of each split. Each is written whole or not at all.

    Raises:
        ConfigError: if there are not enough different expressions.
    """
    examples = (generator or ListOpsGenerator()).examples(sum(sizes.values()), seed, without)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    begin = 0
    for split, size in sizes.items():
        paths[split] = folder / f"{split}.tsv"
        part = examples[begin : begin + size]
        lines = [f"{example.answer}\t{example.expression}\n" for example in part]
        write_text(paths[split], "".join(lines))
        begin += size
    return paths
