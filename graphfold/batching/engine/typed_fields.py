"""TypedFields: the state of the nodes, type by type, as rounds of message passing leave it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from graphfold.batching.engine.field_sources import FieldsByType
from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.scheduling.schedule import PassSchedule

#: op type -> [num_rows_of_type, width]
Parts = Mapping[int, Tensor]


class TypedFields(Mapping[str, Tensor]):
    """The fields of all rows of a plan in which every type has one group.

    A round makes the rows of a type in one call, so they stay as the cell returned them. As a
    mapping it gives whole fields, [num_rows + 1, width] with row 0 for absent children and zeros
    for types without the field; these are joined only when someone asks for them.

    Args:
        plan: the plan whose rows they are.
        parts: field -> its rows, of the types that have it.
        absent: field -> [1, width] what an absent child reads.
        whole: the fields that are there as one tensor, [num_rows + 1, width].

    Attributes:
        groups: op type -> its rows.
    """

    def __init__(
        self,
        plan: PassSchedule,
        parts: Mapping[str, Parts],
        absent: Mapping[str, Tensor],
        whole: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.plan = plan
        self.parts = parts
        self.absent = absent
        self.groups = plan.types
        self._whole = dict(whole or {})

    @staticmethod
    def split(
        plan: PassSchedule, fields: Mapping[str, Tensor], of_type: FieldsByType
    ) -> TypedFields:
        """Whole fields, [num_rows + 1, width] each, in the parts of the types that have them."""
        sizes = [1, *(group.size for group in plan.groups)]
        types = [group.op_type for group in plan.groups]
        pieces = {name: rows.split_with_sizes(sizes) for name, rows in fields.items()}
        parts = {
            name: {
                op_type: part
                for op_type, part in zip(types, rows[1:], strict=True)
                if name in of_type.get(op_type, ())
            }
            for name, rows in pieces.items()
        }
        absent = {name: rows[0] for name, rows in pieces.items()}
        return TypedFields(plan, parts, absent, fields)

    def __getitem__(self, field: str) -> Tensor:
        if field not in self._whole:
            rows = [self.part(field, group.op_type) for group in self.plan.groups]
            self._whole[field] = torch.cat([self.absent[field], *rows])
        return self._whole[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def dtype(self, field: str) -> torch.dtype:
        """The dtype of a field."""
        return self.absent[field].dtype

    def part(self, field: str, op_type: int) -> Tensor:
        """[num_rows_of_type, width] a field of one type; zeros if it lacks the field."""
        part = self.parts[field].get(op_type)
        if part is not None:
            return part
        group = self.groups.get(op_type)
        size = 0 if group is None else group.size
        return self.absent[field].new_zeros(size, self.absent[field].shape[1])

    def join(
        self, op_type: int, fields: Mapping[str, Tensor], absent: Mapping[str, Tensor]
    ) -> TypedFields:
        """A copy where one type has further fields.

        Shape:
            fields: [num_rows_of_type, width] each
            absent: [1, width] each, see the class
        """
        new = {name: dict(self.parts.get(name, {})) for name in fields}
        if op_type in self.groups:
            for name, rows in fields.items():
                new[name][op_type] = rows
        absent = {**absent, **self.absent}
        return TypedFields(self.plan, {**self.parts, **new}, absent, self.whole_but(fields))

    def whole_but(self, names: Collection[str]) -> dict[str, Tensor]:
        """The fields that are one tensor and do not change with `names`."""
        return {name: rows for name, rows in self._whole.items() if name not in names}

    def find(self, field: str, row: RowIndex) -> tuple[Tensor, RowIndex]:
        """A tensor that holds a field, [any, width], and where in it some rows are.

        Rows of types without the field are zeros. Rows that are known on a GPU alone, which would
        have to be waited for, must be of types that have it.
        """
        if field in self._whole or len(self.parts[field]) != 1:
            return self[field], row
        ((op_type, part),) = self.parts[field].items()
        group, known = self.groups[op_type], row.rows_on_cpu
        if known is not None and len(known):
            lowest, highest = (int(end) for end in known.aminmax())
            if lowest < group.start or highest >= group.stop:
                return self[field], row
        return part, row.derive(group.start, lambda rows: rows - group.start)
