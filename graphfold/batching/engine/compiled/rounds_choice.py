"""Whether rounds of message passing are compiled."""

from __future__ import annotations

from collections.abc import Mapping

from graphfold.batching.engine.compiled.choice import find_compiled, refuse
from graphfold.batching.engine.compiled.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.round_trial import RoundTrial
from graphfold.batching.engine.compiled.rounds import RoundsInputs


def why_not_unrolled(inputs: RoundsInputs) -> str | None:
    """Why rounds cannot be one pass; None if they can."""
    written = {name for cell in inputs.cells.values() for name in cell.fields}
    with_cell = {code % inputs.num_types for code in inputs.cells}
    for name, parts in inputs.state.parts.items():
        if name in written and not parts.keys() <= with_cell:
            return f"nodes without a cell have the field '{name}', which others compute in rounds"
        is_read = any(name in cell.read_fields for cell in inputs.cells.values())
        if is_read and name not in written and len(inputs.unrolled.first) > 2:
            return f"several rounds read the field '{name}' of an earlier pass"
        if is_read and name not in written and len(parts) > 1:
            return f"nodes of several types have the field '{name}' of an earlier pass"
    return None


def find_compiled_rounds(
    inputs: RoundsInputs, fuse: bool | None
) -> Mapping[int, CompiledCell] | str:
    """The programs of all cells, or why the cells run as they are; see `find_compiled`."""
    reason = why_not_unrolled(inputs)
    if reason is None:
        return find_compiled(inputs.as_pass, fuse, RoundTrial)
    names = dict.fromkeys(type(cell).__name__ for cell in inputs.cells.values())
    return refuse(", ".join(names), reason, fuse)
