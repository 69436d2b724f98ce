"""ColumnEncoder: from columns of codes and numbers to one vector per row.

The input of a cell, beside its children, is one tensor or several by name (`NodeInput`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.cell import NodeInput
from graphfold.batching.kernels.kinds import find_kinds
from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.native.linear import NativeLinear
from graphfold.dag import Column
from graphfold.errors import ConfigError, ShapeError


def features(x: NodeInput) -> Tensor:
    """The features from the encoder, one tensor.

    Raises:
        ShapeError: if they are several tensors by name.
    """
    if isinstance(x, Tensor):
        return x
    raise ShapeError(
        f"the features are a mapping of {', '.join(x) or 'nothing'}, but this cell reads one "
        "tensor. Concatenate them."
    )


def parts(x: NodeInput) -> Mapping[str, Tensor]:
    """The tensors that `before` returned, by name; a single tensor has the name "x"."""
    return {"x": x} if isinstance(x, Tensor) else x


#: From so many rows on, rows with equal codes are encoded once, which is faster on a CPU.
MANY_ROWS = 256

#: The largest number of entries of a one-hot matrix on a GPU; 256 MB in single precision.
MOST_ONES = 1 << 26

#: The standard deviation of new embeddings. Adagrad at its usual rate hardly moves larger ones:
#: with 1, a Tree-LSTM on SST was points behind after four epochs.
INITIAL_STD = 0.1


class ColumnEncoder(nn.Module):
    """A linear map of all columns of a row: an embedding for each code, a product for numbers.

    It equals a linear layer without bias over one-hot codes and numbers side by side, but reads
    only the rows of the weight that the codes name. A missing code has its own embedding, zero at
    first; a missing number adds nothing.

    Args:
        columns: the columns; integers are codes and need a `size`, bool and floats are numbers.
        size: width of the result.

    Attributes:
        sparse: whether the gradient of the table is a sparse tensor; False at first.

    Shape:
        columns: name -> [num_rows, *shape of the column]
        returns: [num_rows, size]

    Raises:
        ConfigError: if there are no columns, some cannot be encoded (it names them all), or `size`
            is not positive.
    """

    sizes: Tensor  # [num_codes] the number of possible codes in each place of a row
    starts: Tensor  # [num_codes] the first row of its embeddings in the table

    def __init__(self, columns: Sequence[Column], size: int) -> None:
        super().__init__()
        _refuse(columns, size)
        self.sparse = False
        self.codes = tuple(column for column in columns if _is_code(column))
        self.numbers = tuple(column for column in columns if not _is_code(column))
        sizes = [column.size or 0 for column in self.codes for _ in range(math.prod(column.shape))]
        width = sum(math.prod(column.shape) for column in self.numbers)
        self.register_buffer("sizes", torch.tensor(sizes, dtype=torch.int64), persistent=False)
        # One table for all codes; the last row of each place is for its missing code.
        self.register_buffer("starts", (self.sizes + 1).cumsum(0) - self.sizes - 1, False)
        self.table = nn.Parameter(self._draw_table(size)) if sizes else None
        self.linear = nn.Linear(width, size, bias=False) if width else None

    def forward(
        self, columns: Mapping[str, Tensor], ptr: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """One vector per row; with `ptr` [num_segments + 1], the sum of each segment's rows.

        Args:
            columns: name -> [num_rows, ...].
            ptr: where segments begin; None for one vector per row.
            rows: the rows to encode; None for all.
        """
        terms = []
        if self.table is not None:
            codes = _side_by_side([columns[column.name] for column in self.codes], rows)
            terms.append(self._embed(codes, self.table, ptr))
        if self.linear is not None:
            dtype = self.linear.weight.dtype
            numbers = _side_by_side([columns[c.name].to(dtype) for c in self.numbers], rows)
            with NativeLinear():
                product = self.linear(numbers.nan_to_num(0.0))
            terms.append(product if ptr is None else segment_sum(product, ptr))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    @torch.no_grad()
    def set_embeddings(self, name: str, embeddings: Tensor) -> None:
        """Replaces the embeddings of a column.

        Args:
            name: a column of one code a row.
            embeddings: [num_codes, size]

        Raises:
            ShapeError: if their number or width is another.
        """
        number = [column.name for column in self.codes].index(name)
        place = sum(math.prod(column.shape) for column in self.codes[:number])
        start, size = int(self.starts[place]), int(self.sizes[place])
        assert self.table is not None
        if embeddings.shape != (size, self.table.shape[1]):
            raise ShapeError(
                f"column '{name}' has {size} codes and embeddings of {self.table.shape[1]} "
                f"numbers, but was given {list(embeddings.shape)}."
            )
        self.table[start : start + size] = embeddings.to(self.table)

    def _embed(self, codes: Tensor, table: Tensor, ptr: Tensor | None) -> Tensor:
        """Sums of embeddings, without a tensor of the embeddings themselves."""
        codes = torch.where(codes < 0, self.sizes, codes)
        is_sum = codes.shape[1] > 1  # a single embedding is not looked up faster among fewer rows
        if ptr is None and codes.is_cpu and len(codes) >= MANY_ROWS and is_sum:
            kinds = find_kinds({"codes": codes}, len(codes), codes.device)
            return self._sums(kinds.columns["codes"], table).index_select(0, kinds.kind.rows)
        if ptr is None and not self.sparse and use_product(codes, table):
            return self._product(codes, table)
        return self._sums(codes, table, ptr)

    def _product(self, codes: Tensor, table: Tensor) -> Tensor:
        """The sums as a product of one-hot rows with the table."""
        rows = table.new_zeros(len(codes), len(table)).scatter_(1, codes + self.starts, 1.0)
        with _without_autocast(codes.device.type):  # sums are not narrowed
            return rows @ table

    def _sums(self, codes: Tensor, table: Tensor, ptr: Tensor | None = None) -> Tensor:
        index, offsets = codes + self.starts, None
        if ptr is None and index.shape[1] == 1:  # without a sum it takes half of the time
            return functional.embedding(index.view(-1), table, sparse=self.sparse)
        if ptr is not None:
            index, offsets = index.flatten(), ptr * index.shape[1]
        embedded: Tensor = functional.embedding_bag(
            index,
            table,
            offsets,
            mode="sum",
            sparse=self.sparse,
            include_last_offset=ptr is not None,
        )
        return embedded

    def _draw_table(self, size: int) -> Tensor:
        """Small normal numbers, which training can outgrow; zeros for missing codes."""
        table = torch.randn(int((self.sizes + 1).sum()), size) * INITIAL_STD
        table[self.starts + self.sizes] = 0
        return table


def use_product(codes: Tensor, table: Tensor) -> bool:
    """True if a product gives the sums of embeddings and their gradient in less time.

    That is training on a GPU: the gradient of `embedding_bag` takes twenty launches there.
    """
    is_trained = torch.is_grad_enabled() and table.requires_grad
    return not codes.is_cpu and is_trained and len(codes) * len(table) <= MOST_ONES


def _without_autocast(device_type: str) -> AbstractContextManager[object]:
    """Inside, nothing is narrowed; not all devices narrow."""
    if not torch.amp.is_autocast_available(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)


def _side_by_side(columns: Sequence[Tensor], rows: Tensor | None = None) -> Tensor:
    """[num_rows, total width] columns of any row shape, or some of their rows."""
    if rows is not None and len(columns) > 1:  # one selection is faster than one for each
        return _side_by_side(columns).index_select(0, rows)
    columns = [column if rows is None else column.index_select(0, rows) for column in columns]
    if all(column.dim() == 1 for column in columns):
        return torch.stack(list(columns), dim=1)
    return torch.cat([column.unsqueeze(1).flatten(1) for column in columns], dim=1)


def _is_code(column: Column) -> bool:
    return column.dtype in ("uint8", "int32", "int64")


def _refuse(columns: Sequence[Column], size: int) -> None:
    if not columns:
        raise ConfigError("there are no columns to encode. Name at least one.")
    if size < 1:
        raise ConfigError(f"an encoder of size {size} encodes nothing. Set a size of at least 1.")
    faults = [
        f"column '{column.name}' holds strings; encode it with a FeatureSpec first."
        for column in columns
        if column.dtype == "string"
    ]
    faults += [
        f"column '{column.name}' holds codes of unknown number; give it a size in the schema."
        for column in columns
        if _is_code(column) and column.size is None
    ]
    if faults:
        raise ConfigError(" ".join(faults))
