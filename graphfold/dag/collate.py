"""Many graphs into one `TypedDAG`, and some or each of them out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.dag.depth import IntArray, run_pointers, runs
from graphfold.dag.typed_dag import Dictionaries, Relation, TypedDAG, pointers
from graphfold.errors import SchemaError


@outside_modes
def collate(dags: Sequence[TypedDAG]) -> TypedDAG:
    """All graphs of `dags`, in order, in one `TypedDAG`: concatenation plus offsets.

    Raises:
        SchemaError: if `dags` is empty or their schemas differ.
    """
    if not dags:
        raise SchemaError("nothing to collate. Give at least one graph.")
    first = dags[0]
    if any(dag.schema != first.schema for dag in dags):
        raise SchemaError("graphs of different schemas cannot be collated. Convert one of them.")
    dags = _share_dictionaries(dags)
    files = tuple(dict.fromkeys(file for dag in dags for file in dag.files))
    nodes = _offsets([dag.num_nodes for dag in dags])
    graphs = _offsets([dag.num_graphs for dag in dags])
    shifted = list(zip(dags, nodes, strict=True))
    return TypedDAG(
        schema=first.schema,
        op_type=torch.cat([dag.op_type for dag in dags]),
        input_ptr=_cat_pointers([dag.input_ptr for dag in dags]),
        input_index=torch.cat([_shift(dag.input_index, offset) for dag, offset in shifted]),
        batch=torch.cat([dag.batch + offset for dag, offset in zip(dags, graphs, strict=True)]),
        num_graphs=sum(dag.num_graphs for dag in dags),
        depth=torch.cat([dag.depth for dag in dags]),
        output_ptr=_cat_pointers([dag.output_ptr for dag in dags]),
        output_index=torch.cat([dag.output_index + offset for dag, offset in shifted]),
        span=torch.cat([dag.span for dag in dags]),
        origin=torch.cat([_recode_files(dag, files) for dag in dags]),
        columns={
            space: {name: torch.cat([dag.columns[space][name] for dag in dags]) for name in columns}
            for space, columns in first.columns.items()
        },
        relations={
            name: Relation(
                _cat_pointers([dag.relations[name].ptr for dag in dags]),
                torch.cat([dag.relations[name].index + offset for dag, offset in shifted]),
            )
            for name in first.relations
        },
        dictionaries=dags[0].dictionaries,
        files=files,
    )


@outside_modes
def select(dag: TypedDAG, graphs: Tensor | Sequence[int]) -> TypedDAG:
    """The graphs with the given numbers, in the given order, as one `TypedDAG`.

    Array operations only: the cost does not depend on the size of `dag`, save for pointers that
    are computed once per `dag`.
    """
    chosen = torch.as_tensor(graphs, dtype=torch.int64, device="cpu")
    numbers = chosen.numpy()
    spaces = {space for space, columns in dag.columns.items() if columns} - {"graph"}
    spaces |= {"node", "inputs", *(f"relation:{name}" for name in dag.relations)}
    pick = {space: _rows(_row_ptr(dag, space), numbers) for space in spaces} | {"graph": chosen}
    nodes, inputs = pick["node"], pick["inputs"]
    first, count = _runs_of(_row_ptr(dag, "node"), numbers)
    offset = run_pointers(count)[:-1] - first  # [num_selected], what each graph's nodes move by

    def moved(space: str) -> Tensor:
        """[num_edges] what the nodes move by that the edges of a space read."""
        return torch.from_numpy(offset.repeat(_runs_of(_row_ptr(dag, space), numbers)[1]))

    output_ptr = dag.output_ptr.numpy()
    output_count = _runs_of(output_ptr, numbers)[1]
    outputs = dag.output_index.index_select(0, _rows(output_ptr, numbers))
    input_count = _runs_of(dag.input_ptr.numpy(), nodes.numpy())[1]
    return replace(
        dag,
        op_type=dag.op_type.index_select(0, nodes),
        input_ptr=torch.from_numpy(run_pointers(input_count)),
        input_index=_shift(dag.input_index.index_select(0, inputs), moved("inputs")),
        batch=torch.from_numpy(np.arange(len(numbers)).repeat(count)),
        num_graphs=len(numbers),
        depth=dag.depth.index_select(0, nodes),
        output_ptr=torch.from_numpy(run_pointers(output_count)),
        output_index=outputs + torch.from_numpy(offset.repeat(output_count)),
        span=dag.span.index_select(0, nodes),
        origin=dag.origin.index_select(0, chosen),
        columns={
            space: {name: column.index_select(0, pick[space]) for name, column in columns.items()}
            for space, columns in dag.columns.items()
        },
        relations={
            name: Relation(
                torch.from_numpy(run_pointers(_runs_of(own.ptr.numpy(), nodes.numpy())[1])),
                own.index.index_select(0, pick[f"relation:{name}"]) + moved(f"relation:{name}"),
            )
            for name, own in dag.relations.items()
        },
    )


@outside_modes
def nodes_of_graphs(dag: TypedDAG, graphs: Tensor | Sequence[int]) -> Tensor:
    """[num_selected_nodes] the nodes of the graphs with the given numbers, as `select` has them."""
    numbers = torch.as_tensor(graphs, dtype=torch.int64, device="cpu").numpy()
    return _rows(_row_ptr(dag, "node"), numbers)


@outside_modes
def split(dag: TypedDAG) -> list[TypedDAG]:
    """Each graph as a `TypedDAG` of its own; `collate(split(dag))` equals `dag`.

    Every tensor is cut once, for all graphs: of thousands of graphs `select` would take seconds.
    """
    nodes, inputs, graphs = (_row_ptr(dag, space) for space in ("node", "inputs", "graph"))
    parts: dict[str, Any] = {
        "op_type": _cut(dag.op_type, nodes),
        "input_ptr": _cut_pointers(dag.input_ptr, nodes),
        "input_index": _cut_index(dag.input_index, inputs, nodes),
        "batch": _cut(torch.zeros_like(dag.batch), nodes),
        "depth": _cut(dag.depth, nodes),
        "output_ptr": _cut_pointers(dag.output_ptr, graphs),
        "output_index": _cut_index(dag.output_index, dag.output_ptr.numpy(), nodes),
        "span": _cut(dag.span, nodes),
        "origin": _cut(dag.origin, graphs),
    }
    columns = {
        space: {name: _cut(column, _row_ptr(dag, space)) for name, column in group.items()}
        for space, group in dag.columns.items()
    }
    relations = {
        name: (
            _cut_pointers(relation.ptr, nodes),
            _cut_index(relation.index, _row_ptr(dag, f"relation:{name}"), nodes),
        )
        for name, relation in dag.relations.items()
    }
    return [
        replace(
            dag,
            num_graphs=1,
            columns={s: {name: c[k] for name, c in group.items()} for s, group in columns.items()},
            relations={
                name: Relation(ptr[k], index[k]) for name, (ptr, index) in relations.items()
            },
            **{name: cut[k] for name, cut in parts.items()},
        )
        for k in range(dag.num_graphs)
    ]


def _cut(rows: Tensor, ptr: IntArray) -> tuple[Tensor, ...]:
    """The rows of each graph, copied: a view would be stored with the rows of all graphs."""
    if len(ptr) == 1:
        return ()
    parts: Any = torch.split_with_sizes_copy  # whose annotation says None
    found: tuple[Tensor, ...] = parts(rows, np.diff(ptr).tolist())
    return found


def _cut_pointers(ptr: Tensor, begin: IntArray) -> tuple[Tensor, ...]:
    """The pointers of each graph, from 0 on; `begin` says where its nodes (or itself) begin."""
    pointers, first, count = ptr.numpy(), begin[:-1], np.diff(begin)
    moved = pointers[runs(first, first + count + 1)] - pointers[first].repeat(count + 1)
    return _cut(torch.from_numpy(moved), run_pointers(count + 1))


def _cut_index(index: Tensor, ptr: IntArray, nodes: IntArray) -> tuple[Tensor, ...]:
    """The node numbers of each graph, counted from its own first node; `ptr` cuts them."""
    return _cut(_shift(index, torch.from_numpy(-nodes[:-1].repeat(np.diff(ptr)))), ptr)


def _row_ptr(dag: TypedDAG, space: str) -> IntArray:
    return dag.row_ptr(space).numpy()


# On the few numbers of a batch, numpy's operations take a fraction of the time of torch's.


def _rows(ptr: IntArray, numbers: IntArray) -> Tensor:
    first, count = _runs_of(ptr, numbers)
    return torch.from_numpy(runs(first, first + count))


def _runs_of(ptr: IntArray, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Beginnings and lengths of the runs with these numbers."""
    first = ptr[numbers]
    return first, ptr[numbers + 1] - first


def _shift(index: Tensor, offset: Tensor | int) -> Tensor:
    """Node numbers moved by `offset`; an absent slot stays absent."""
    return torch.where(index < 0, index, index + offset)


def _offsets(counts: Sequence[int]) -> list[int]:
    return pointers(torch.tensor(counts, dtype=torch.int64, device="cpu"))[:-1].tolist()


def _cat_pointers(ptrs: Sequence[Tensor]) -> Tensor:
    return pointers(torch.cat([ptr[1:] - ptr[:-1] for ptr in ptrs]))


def _recode_files(dag: TypedDAG, files: tuple[str, ...]) -> Tensor:
    if dag.files == files[: len(dag.files)]:
        return dag.origin
    codes = torch.tensor([files.index(file) for file in dag.files] + [-1], device="cpu")
    origin = dag.origin.clone()
    origin[:, 0] = codes[origin[:, 0]]
    return origin


def _share_dictionaries(dags: Sequence[TypedDAG]) -> Sequence[TypedDAG]:
    """Recodes the graphs, so that a code means the same string in all of them."""
    first = dags[0].dictionaries
    if all(dag.dictionaries is first or dag.dictionaries == first for dag in dags):
        return dags
    merged = {
        key: tuple(dict.fromkeys(word for dag in dags for word in dag.dictionaries[key]))
        for key in first
    }
    return [recode(dag, merged) for dag in dags]


@outside_modes
def recode(dag: TypedDAG, dictionaries: Dictionaries) -> TypedDAG:
    """Replaces the dictionaries of some columns.

    A string that its new dictionary lacks becomes a missing value (-1).
    """
    columns = {space: dict(group) for space, group in dag.columns.items()}
    for key, words in dictionaries.items():
        space, name = key
        code = {word: index for index, word in enumerate(words)}
        lookup = [code.get(word, -1) for word in dag.dictionaries[key]] + [-1]
        # The last entry answers -1, so a missing value stays missing.
        columns[space][name] = torch.tensor(lookup, device="cpu")[columns[space][name]]
    return replace(dag, columns=columns, dictionaries={**dag.dictionaries, **dictionaries})
