"""Hashes of records, by which repeated records of one or two corpora are found.

The hash of a molecule is that of its key, see `molecule_keys`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphfold.dag import EdgeType, NodeType, TypedDAG
from graphfold.dag.depth import run_numbers, spread_runs
from graphfold.datasets.adapter import CHANGED_TO
from graphfold.datasets.splits.split import Split
from graphfold.errors import count_of, shortened

Codes: TypeAlias = NDArray[np.uint64]

#: Rounds over the relations: atoms that differ within this many bonds get different codes.
_ROUNDS = 8


def hash_graphs(dag: TypedDAG) -> Tensor:
    """[num_graphs] int64, equal for graphs of equal structure and features; targets do not count.

    Inputs are hashed in order, from the leaves up. Nodes with relations (atoms) are distinguished
    by their neighbourhoods (Weisfeiler and Lehman, 1968), so the hash of a molecule does not depend
    on the numbers of its atoms.
    """
    codes = _node_codes(dag)
    for _ in range(_ROUNDS if dag.relations else 0):
        codes = _mix(codes + _neighbour_codes(dag, codes))
    codes = _join_inputs(dag, codes)
    outputs = codes[dag.output_index.numpy()]
    if not dag.relations:  # the order of the outputs means something: root a, root b
        outputs = outputs * _positions(dag.output_ptr)
    total = _segment_sum(_mix(codes), dag.node_ptr) + _segment_sum(_mix(outputs), dag.output_ptr)
    return torch.from_numpy(_mix(total).view(np.int64))


def _node_codes(dag: TypedDAG) -> Codes:
    """[num_nodes] a code of each node's type and features."""
    codes = np.zeros(dag.num_nodes, np.uint64)
    for node_type in dag.schema.types:
        nodes = dag.nodes_of_type(node_type.name).numpy()
        rows = _row_codes(dag, f"type:{node_type.name}", node_type, len(nodes))
        codes[nodes] = _mix(_hash_text(node_type.name) + rows)
    return codes


def _neighbour_codes(dag: TypedDAG, codes: Codes) -> Codes:
    """[num_nodes] the sum of the codes of each node's neighbours with their edges."""
    total = np.zeros(dag.num_nodes, np.uint64)
    for edge_type in dag.schema.relations:
        relation = dag.relations[edge_type.name]
        space = f"relation:{edge_type.name}"
        edges = _row_codes(dag, space, edge_type, len(relation.index))
        message = _mix(codes[relation.index.numpy()] + edges + _hash_text(edge_type.name))
        total += _segment_sum(message, relation.ptr)
    return total


def _join_inputs(dag: TypedDAG, codes: Codes) -> Codes:
    """[num_nodes] codes of each node with everything below it, in order."""
    depth, ptr, index = dag.depth.numpy(), dag.input_ptr.numpy(), dag.input_index.numpy()
    edges = _row_codes(dag, "inputs", dag.schema.inputs, len(index))
    position = _positions(dag.input_ptr)
    order = np.argsort(depth, kind="stable")
    starts = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    for first, last in pairwise(starts):
        nodes = order[first:last]
        ends, _, rows = spread_runs(ptr[nodes], ptr[nodes + 1] - ptr[nodes])
        child = np.where(index[rows] < 0, np.uint64(0), codes[index[rows]])
        below = _segment_sum(_mix(child * position[rows] + edges[rows]), torch.from_numpy(ends))
        codes[nodes] = _mix(codes[nodes] + below)
    return codes


def _row_codes(dag: TypedDAG, space: str, kind: NodeType | EdgeType, num_rows: int) -> Codes:
    """[num_rows] a code of the features of each node or edge of a type."""
    total = np.zeros(num_rows, np.uint64)
    for column in kind.features:
        total = _mix(total + _hash_text(column.name) + _column_codes(dag, space, column.name))
    return total


def _column_codes(dag: TypedDAG, space: str, name: str) -> Codes:
    """[num_rows] a code of the value of one column in each row; strings count, not their codes."""
    values = dag.columns[space][name].numpy()
    if (space, name) in dag.dictionaries:
        strings = dag.dictionaries[space, name]
        words = np.zeros(len(strings) + 1, np.uint64)  # -1, a missing word, picks the last entry
        used = np.bincount(values.reshape(-1) + 1, minlength=1)[1:]
        for number in np.flatnonzero(used).tolist():
            words[number] = _hash_text(strings[number])
        hashed: Codes = words[values]
        return hashed
    if values.dtype.kind == "f":
        values = values.astype(np.float64).view(np.int64)
    width = int(np.prod(values.shape[1:]))
    flat = values.reshape(len(values), width).astype(np.int64).view(np.uint64)
    weights = _mix(np.arange(1, flat.shape[1] + 1, dtype=np.uint64))
    code: Codes = _mix((flat + np.uint64(1)) * weights).sum(1, dtype=np.uint64)
    return code


def _positions(ptr: Tensor) -> Codes:
    """[num_rows] an odd number for each place within its run."""
    begin = ptr.numpy()
    place = np.arange(begin[-1]) - begin[run_numbers(begin)]
    return (_mix(place.astype(np.uint64)) | np.uint64(1)).astype(np.uint64)


def _segment_sum(values: Codes, ptr: Tensor) -> Codes:
    """[num_runs] sums of consecutive runs, modulo 2 to the 64."""
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=total[1:])
    bounds = ptr.numpy()
    sums: Codes = total[bounds[1:]] - total[bounds[:-1]]
    return sums


def _mix(values: Codes) -> Codes:
    """The finaliser of splitmix64 (Steele et al. 2014): every bit depends on every bit."""
    values = np.atleast_1d(values) + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash_text(text: str) -> np.uint64:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def has_molecules(dag: TypedDAG) -> bool:
    """True if the records are molecules: they have a SMILES."""
    return ("graph", "smiles") in dag.dictionaries


def molecule_smiles(dag: TypedDAG) -> list[str]:
    """[num_graphs] the SMILES that each graph was made of, after stripping of salts and the like.

    Args:
        dag: molecules, as read, perhaps without their nodes.
    """
    smiles = dag.strings("graph", "smiles")
    changed: Sequence[str | None] = [None] * len(smiles)
    if ("graph", CHANGED_TO) in dag.dictionaries:
        changed = dag.strings("graph", CHANGED_TO)
    return [new or text or "" for new, text in zip(changed, smiles, strict=True)]


def molecule_keys(dag: TypedDAG) -> list[str]:
    """[num_graphs] the canonical SMILES of each record.

    It does not depend on the order of the atoms, atom maps, explicit hydrogens or a Kekulé form,
    but on stereo, charges and isotopes.

    Args:
        dag: molecules, as read, perhaps without their nodes.
    """
    from graphfold.datasets.molecules.molecule import canonical_smiles

    return canonical_smiles(molecule_smiles(dag))


def hash_records(dag: TypedDAG) -> Tensor:
    """[num_graphs] int64, equal for records that hold the same molecule, or the same graph."""
    if not has_molecules(dag):
        return hash_graphs(dag)
    hashes = np.array([_hash_text(key) for key in molecule_keys(dag)], np.uint64)
    return torch.from_numpy(hashes.view(np.int64))


def repeated_molecules(dag: TypedDAG) -> list[list[int]]:
    """The records of each molecule that occurs more than once.

    Args:
        dag: the records, as read.

    Returns:
        Increasing record numbers, two or more in each list; none of other graphs than molecules.
    """
    return _equal(hash_records(dag)) if has_molecules(dag) else []


#: How many molecules a message names.
_SHOWN = 3


def describe_leak(facts: TypedDAG, hashes: Tensor, split: Split) -> str | None:
    """A message about molecules that are in train and in val or test; None without any.

    Args:
        facts: molecules, as read, perhaps without their nodes.
        hashes: [num_records] see `hash_records`.
        split: of the records.
    """
    is_train = torch.zeros(sum(split.sizes().values()), dtype=torch.bool)
    is_train[split.train] = True
    repeated = [(same, int(is_train[same].sum())) for same in _equal(hashes)]
    shared = [(same, count) for same, count in repeated if 0 < count < len(same)]
    if not shared:
        return None
    smiles = facts.strings("graph", "smiles")
    names = ", ".join(shortened(smiles[same[0]] or "") for same, _ in shared[:_SHOWN])
    more = f" and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
    held_out = sum(len(same) - count for same, count in shared)
    return (
        f"{count_of(held_out, 'record')} of val or test hold molecules that train has too, so "
        f"scores flatter the model: {names}{more}. Keep the records of a molecule together with "
        "data.groups=molecule, or make the files anew where they are the split."
    )


def _equal(hashes: Tensor) -> list[list[int]]:
    """The increasing positions of each repeated number, sorted by the first position."""
    values, order = hashes.sort(stable=True)
    same = values[1:] == values[:-1]
    is_repeated = torch.zeros(len(values), dtype=torch.bool)
    is_repeated[1:] |= same
    is_repeated[:-1] |= same
    begins = np.flatnonzero(values[is_repeated].diff().numpy()) + 1
    parts = np.split(order[is_repeated].numpy(), begins)
    return sorted(part.tolist() for part in parts if len(part))
