"""Languages of kernels: what the writer of a kernel has to have said."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch


class Language(ABC):
    """How a language of kernels says what all of them can do.

    `row` and `column` are names that a kernel knows.
    """

    #: Whether a kernel is told the stride of the last dimension, or may take it for one.
    has_last_stride: bool

    @abstractmethod
    def functions(self, dtype: torch.dtype) -> Mapping[str, str]:
        """What each of `operations.FUNCTIONS` is called for numbers of a dtype."""

    @abstractmethod
    def number(self, value: float, dtype: torch.dtype) -> str:
        """A number of the code."""

    @abstractmethod
    def cast(self, value: str, dtype: torch.dtype) -> str:
        """A value as one of a dtype."""

    def fill(self, value: float, dtype: torch.dtype) -> str:
        """The same number in every column."""
        return self.number(value, dtype)

    @abstractmethod
    def assign(self, name: str, value: str, dtype: torch.dtype) -> str:
        """The line that gives a value a name."""

    @abstractmethod
    def load(self, tensor: str, terms: Sequence[str], is_one: bool) -> str:
        """What lies at an address, the sum of `terms`; `is_one` if it is one for all elements."""

    @abstractmethod
    def store(self, tensor: str, terms: Sequence[str], value: str) -> str:
        """The line that writes a value to an address."""
