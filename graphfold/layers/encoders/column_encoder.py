"""ColumnEncoder: columns of codes and numbers become one vector per row.

The input of a cell beside its children is one tensor, or several by name (`NodeInput`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

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
    """The features as they come from the encoder: one tensor.

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
    """The tensors that `before` returned, by name; a single one has the name "x"."""
    return {"x": x} if isinstance(x, Tensor) else x


#: From so many rows on, those with equal codes are encoded once: on a CPU it pays to look for them.
MANY_ROWS = 256

#: So many ones and zeros may stand for codes on a GPU; 256 MB in single precision.
MOST_ONES = 1 << 26

#: Of an embedding's entries at first. Adagrad at its usual rate hardly moves larger ones: with a
#: standard deviation of 1, a Tree-LSTM on SST was points behind after four epochs.
INITIAL_STD = 0.1


class ColumnEncoder(nn.Module):
    """A linear map of all columns of a row: an embedding for each code, a product for numbers.

    It equals a linear layer without bias over one-hot codes and numbers side by side, but reads
    only the rows of the weight that the codes name. A missing code has an embedding of its own,
    zero at the start; a missing number adds nothing.

    Args:
        columns: the columns; integers are codes and need a `size`, bool and floats are numbers.
        size: width of the result.

    Attributes:
        sparse: whether the gradient of the table is a sparse tensor; not at first.

    Shape:
        columns: name -> [num_rows, *shape of the column]
        returns: [num_rows, size]

    Raises:
        ConfigError: if there are no columns, some cannot be encoded (it names them all), or `size`
            is not positive.
    """

    sizes: Tensor  # [num_codes] how many codes each place of a row chooses from
    starts: Tensor  # [num_codes] where its embeddings begin in the table

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
        self,
        columns: Mapping[str, Tensor],
        ptr: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """One vector per row; with `ptr` [num_segments + 1], the sum of each segment's rows.

        Args:
            columns: name -> [num_rows, ...].
            ptr: where segments begin.
            rows: those that are encoded, all by default.
        """
        terms = []
        if self.table is not None:
            codes = _side_by_side([columns[column.name] for column in self.codes], rows)
            terms.append(self._embed(codes, self.table, ptr))
        if self.linear is not None:
            dtype = self.linear.weight.dtype
            own = [columns[column.name].to(dtype) for column in self.numbers]
            numbers = _side_by_side(own, rows)
            with NativeLinear():
                product = self.linear(numbers.nan_to_num(0.0))
            terms.append(product if ptr is None else segment_sum(product, ptr))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def share_of(self, names: Collection[str], columns: Mapping[str, Tensor]) -> Tensor:
        """[num_rows, size] what some columns add; the shares of all of them add up to the whole."""
        terms = []
        if self.table is not None:
            is_own = [c.name in names for c in self.codes for _ in range(math.prod(c.shape))]
            own = torch.tensor(is_own, device=self.sizes.device).nonzero().view(-1)
            codes = _side_by_side([columns[column.name] for column in self.codes])[:, own]
            index = torch.where(codes < 0, self.sizes[own], codes) + self.starts[own]
            terms.append(functional.embedding(index, self.table).sum(1))
        if self.linear is not None:
            dtype = self.linear.weight.dtype
            numbers = [
                columns[column.name].to(dtype).nan_to_num(0.0) * (column.name in names)
                for column in self.numbers
            ]
            terms.append(self.linear(_side_by_side(numbers)))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    @torch.no_grad()
    def set_embeddings(self, name: str, embeddings: Tensor) -> None:
        """Gives the codes of a column embeddings in place of those that were drawn.

        Args:
            name: a column of one code a row.
            embeddings: [num_codes, size]

        Raises:
            ShapeError: if there are not as many of that width.
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
        """Sums of embeddings; the embeddings themselves are never held."""
        codes = torch.where(codes < 0, self.sizes, codes)
        is_sum = codes.shape[1] > 1  # a single embedding is not found faster among fewer rows
        if ptr is None and codes.is_cpu and len(codes) >= MANY_ROWS and is_sum:
            columns, kind = find_kinds({"codes": codes}, len(codes), codes.device)
            return self._sums(columns["codes"], table).index_select(0, kind)
        if ptr is None and not self.sparse and use_product(codes, table):
            return self._product(codes, table)
        return self._sums(codes, table, ptr)

    def _product(self, codes: Tensor, table: Tensor) -> Tensor:
        """The sums as a product of rows that are one where a code is, and zero elsewhere."""
        rows = table.new_zeros(len(codes), len(table)).scatter_(1, codes + self.starts, 1.0)
        with torch.autocast(codes.device.type, enabled=False):  # which sums are not narrowed by
            return rows @ table

    def _sums(self, codes: Tensor, table: Tensor, ptr: Tensor | None = None) -> Tensor:
        index, offsets = codes + self.starts, None
        if ptr is None and index.shape[1] == 1:  # there is nothing to sum: in half of the time
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
        """Normal and small, so that training can outgrow it; zero for missing codes."""
        table = torch.randn(int((self.sizes + 1).sum()), size) * INITIAL_STD
        table[self.starts + self.sizes] = 0
        return table


def use_product(codes: Tensor, table: Tensor) -> bool:
    """True if the sums of embeddings, and their gradient, are found by a product in less time.

    Training on a GPU: the gradient of `embedding_bag` takes twenty launches there.
    """
    is_trained = torch.is_grad_enabled() and table.requires_grad
    return not codes.is_cpu and is_trained and len(codes) * len(table) <= MOST_ONES


def _side_by_side(columns: Sequence[Tensor], rows: Tensor | None = None) -> Tensor:
    """[num_rows, total width] columns of any row shape, or some rows of them."""
    if rows is not None and len(columns) > 1:  # one selection takes less time than one for each
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
