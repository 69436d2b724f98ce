"""The settings of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from graphfold.bench.measure import Row
from graphfold.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Settings:
    """The options of `graphfold bench`.

    Args:
        batch_sizes: in place of the benchmark's own, if there are any.
        hidden_sizes: likewise.
        shapes: the models or graphs to measure; all of the benchmark if there are none.
        threads: of torch.
        device: where models and batches are, "cpu" or "cuda".
        overrides: of the config, for benchmarks of an experiment.
        config_dir: a further folder of config files for these.
    """

    batch_sizes: Sequence[int] = ()
    hidden_sizes: Sequence[int] = ()
    shapes: Sequence[str] = ()
    threads: int = 1
    device: str = "cpu"
    overrides: Sequence[str] = ()
    config_dir: Path | None = None

    def sizes(
        self, hidden_sizes: Sequence[int], batch_sizes: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """(hidden size, batch size) of every model and batch; the arguments are the defaults."""
        yield from product(self.hidden_sizes or hidden_sizes, self.batch_sizes or batch_sizes)

    def chosen(self, shapes: Iterable[str]) -> list[str]:
        """Those of a benchmark's shapes that are to be measured.

        Raises:
            ConfigError: if it has not one that was asked for.
        """
        known = list(shapes)
        for shape in self.shapes:
            if shape not in known:
                hint = did_you_mean(shape, known)
                raise ConfigError(f"--shape has no '{shape}'.{hint} Use {', '.join(known)}.")
        return [shape for shape in known if not self.shapes or shape in self.shapes]

    def row(
        self, benchmark: str, batch_size: int, hidden_size: int, phase: str = "", **more: Any
    ) -> Row:
        """The part that the rows of one setting have in common; `more` are fields of `Row`."""
        shape = more.pop("shape", "")
        return Row(benchmark, "", shape, batch_size, hidden_size, phase, self.threads, **more)
