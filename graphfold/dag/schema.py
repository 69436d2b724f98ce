"""The schema: which node types, edges, features and targets a corpus has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import torch

from graphfold.errors import SchemaError

#: What a column may hold. A "string" column is stored as codes into a dictionary of the corpus.
DTYPES: Mapping[str, torch.dtype] = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "float32": torch.float32,
    "float64": torch.float64,
    "string": torch.int64,
}

#: The code of a missing value in an integer column; a missing float is NaN.
MISSING = -1

#: What a feature of whole graphs is for; see `Column`.
Role: TypeAlias = Literal["input", "weight", "note"]
ROLES = ("input", "weight", "note")

#: What a target may be read for; see `Column`.
Task: TypeAlias = Literal["regression", "classification"]
TASKS = ("regression", "classification")

#: The graph feature that says how many records a record counts for in training.
RECORD_WEIGHT = "record_weight"

#: A bound of a target: its value is above, or below, the number in its column.
ABOVE, BELOW = 1, 2


def bound_column(target: str) -> str:
    """The graph feature that holds `ABOVE`, `BELOW` or 0 (the value itself) of a target."""
    return f"{target}:bound"


@dataclass(frozen=True)
class Column:
    """One named value of every row: a feature or a target.

    Args:
        name: its name, unique among its neighbours.
        dtype: a key of `DTYPES`.
        shape: the shape of one row; () for a number.
        unit: the unit of the values, such as "kcal/mol"; None for a pure number or a code.
        size: for integer columns that hold codes, how many there are (0 .. size-1); None for as
            many as there are `names`, if there are any.
        role: what a feature of whole graphs is for: "input", which is scaled and read by models,
            "weight", how many records the graph counts for in training, or "note", which no model
            reads. None for the usual: floats and counts (uint8) are inputs, others are notes. A
            feature of nodes or edges is scaled as an "input", and read as it is for None.
        ordered: of codes: whether they are grades of one thing, such as sentiments from 0, very
            negative, to 4, and no names.
        names: of codes: the meaning of each, in order, such as ("no", "yes"); of a target the
            names of its classes. Empty for codes without names.
        task: of a target, "regression" or "classification", as its reader was configured; None
            where it has no such option. Two classes of whole graphs are scored by areas under
            curves.

    Raises:
        SchemaError: if there is no such dtype, role or task, a weight is no single float, or there
            are not as many names as codes.
    """

    name: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    unit: str | None = None
    size: int | None = None
    role: Role | None = None
    ordered: bool = False
    names: tuple[str, ...] = ()
    task: Task | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "names", tuple(self.names))
        if self.names and self.size is None:
            object.__setattr__(self, "size", len(self.names))
        if self.dtype not in DTYPES:
            raise SchemaError(
                f"column '{self.name}' has the dtype '{self.dtype}'. Use one of "
                f"{', '.join(DTYPES)}."
            )
        if self.role not in (None, *ROLES):
            raise SchemaError(
                f"column '{self.name}' has the role '{self.role}'. Use one of {', '.join(ROLES)}."
            )
        if self.task not in (None, *TASKS):
            raise SchemaError(
                f"column '{self.name}' has the task '{self.task}'. Use one of {', '.join(TASKS)}."
            )
        if self.names and (self.torch_dtype.is_floating_point or len(self.names) != self.size):
            raise SchemaError(
                f"column '{self.name}' has {len(self.names)} names for {self.size} codes of "
                f"{self.dtype}. Give a column of integers one name for each code."
            )
        if self.role == "weight" and (self.shape or not self.torch_dtype.is_floating_point):
            raise SchemaError(
                f"column '{self.name}' is a weight, but holds {self.dtype}{list(self.shape)}. Make "
                "it a single float32 or float64."
            )

    def __str__(self) -> str:
        """The name, what one row holds, and the unit: logS float32 [log mol/L]."""
        codes = "" if self.size is None else f" ({self.size} codes)"
        shape = "".join(f" x {size}" for size in self.shape)
        return f"{self.name} {self.dtype}{shape}{codes}" + (f" [{self.unit}]" if self.unit else "")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of the tensor that holds the column."""
        return DTYPES[self.dtype]

    @property
    def classes(self) -> Sequence[Any]:
        """The classes of a target: their names, else 0, 1 and so on; empty for numbers."""
        return self.names or range(2 if self.dtype == "bool" else self.size or 0)

    @property
    def is_input(self) -> bool:
        """True if models read it, as a feature of whole graphs."""
        if self.role is None:
            return self.torch_dtype.is_floating_point or self.dtype == "uint8"
        return self.role == "input"

    @property
    def missing(self) -> float | int:
        """The code of a missing value."""
        if self.torch_dtype.is_floating_point:
            return float("nan")
        return MISSING if self.dtype in ("int32", "int64", "string") else 0


@dataclass(frozen=True)
class NodeType:
    """A type of node; the model has a cell for each.

    Args:
        name: the op type.
        arity: how many input slots each node has, or None for any number.
        features: the columns that only nodes of this type have.
        inputs: names of the types that may be inputs; None for any type.
    """

    name: str
    arity: int | None = None
    features: tuple[Column, ...] = ()
    inputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class EdgeType:
    """A kind of edge: the ordered inputs, or one relation between nodes."""

    name: str
    features: tuple[Column, ...] = ()
    targets: tuple[Column, ...] = ()


Rows = TypeVar("Rows", NodeType, EdgeType)


@dataclass(frozen=True)
class Schema:
    """The node types, edges, features and targets of a corpus.

    Args:
        types: the node types; a node's `op_type` is the index of its type here.
        inputs: features and targets of the ordered, acyclic input edges.
        relations: the relations, which may be cyclic.
        node_targets: targets that every node has (missing values allowed).
        graph_features: columns of whole graphs, such as an identifier or the source text; their
            `role` says what each is for.
        graph_targets: targets of whole graphs (missing values allowed).

    Raises:
        SchemaError: if a name occurs twice in one place, a type names an unknown input type,
            there are two weights, a target has a role, or a feature of nodes or edges another role
            than "input".
    """

    types: tuple[NodeType, ...]
    inputs: EdgeType = EdgeType("inputs")
    relations: tuple[EdgeType, ...] = ()
    node_targets: tuple[Column, ...] = ()
    graph_features: tuple[Column, ...] = ()
    graph_targets: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        _refuse_repeated(self.types)
        _refuse_repeated(self.relations)
        for space, columns in self.spaces().items():
            # A node's features and its targets are given by name together, so they must differ.
            _refuse_repeated(columns + (self.node_targets if space.startswith("type:") else ()))
        for node_type in self.types:
            for name in node_type.inputs or ():
                self.type_index(name)
        self._check_roles()

    def __repr__(self) -> str:
        """A tree of the kinds of rows with their columns, and the dtype and unit of each."""
        spaces = self.spaces() | {"graph": self.graph_features}
        titles = {"node": "targets of nodes", "graph": "features of graphs", "inputs": "inputs"}
        titles |= {f"relation:{r.name}": f"relation {r.name}" for r in self.relations}
        lines = []
        for item in self.types:
            arity = "any number of" if item.arity is None else item.arity
            lines.append(_branch(f"type {item.name} ({arity} inputs)", item.features))
        lines += [_branch(title, spaces[key]) for key, title in titles.items() if spaces[key]]
        if self.graph_targets:
            lines.append(_branch("targets of graphs", self.graph_targets))
        return "\n  ".join(["Schema(", *lines]) + "\n)"

    def spaces(self) -> dict[str, tuple[Column, ...]]:
        """The columns of every kind of row.

        The key says what one row is: "node", "graph", "inputs" (one input edge), "type:NAME" (one
        node of that type) or "relation:NAME" (one edge of that relation).
        """
        spaces = {
            "node": self.node_targets,
            "graph": self.graph_features + self.graph_targets,
            "inputs": self.inputs.features + self.inputs.targets,
        }
        spaces |= {f"type:{t.name}": t.features for t in self.types}
        return spaces | {f"relation:{r.name}": r.features + r.targets for r in self.relations}

    def targets(self) -> list[tuple[str, Column]]:
        """(space, column) of every target: of graphs, nodes, inputs and relations."""
        groups = {"graph": self.graph_targets, "node": self.node_targets}
        groups |= {"inputs": self.inputs.targets}
        groups |= {f"relation:{edge.name}": edge.targets for edge in self.relations}
        return [(space, column) for space, group in groups.items() for column in group]

    def with_features(
        self, features: Callable[[str, tuple[Column, ...]], Iterable[Column]]
    ) -> Schema:
        """A copy with other features.

        Args:
            features: gives the features of a space, from its key in `spaces` and those it has.
        """

        def changed(space: str, rows: Rows) -> Rows:
            return replace(rows, features=tuple(features(space, rows.features)))

        return replace(
            self,
            types=tuple(changed(f"type:{t.name}", t) for t in self.types),
            inputs=changed("inputs", self.inputs),
            relations=tuple(changed(f"relation:{edge.name}", edge) for edge in self.relations),
            graph_features=tuple(features("graph", self.graph_features)),
        )

    @property
    def graph_inputs(self) -> tuple[Column, ...]:
        """The features of whole graphs that models read; see the role of a `Column`."""
        return tuple(column for column in self.graph_features if column.is_input)

    @property
    def weight(self) -> Column | None:
        """The weight of a graph in training, a feature of whole graphs; None without one."""
        weights = [column for column in self.graph_features if column.role == "weight"]
        return weights[0] if weights else None

    def type_index(self, name: str) -> int:
        """The index of a node type; raises SchemaError if the schema lacks it."""
        for index, node_type in enumerate(self.types):
            if node_type.name == name:
                return index
        types = ", ".join(t.name for t in self.types)
        raise SchemaError(f"schema has no node type '{name}'. It has: {types}.")

    def relation(self, name: str) -> EdgeType:
        """A relation by its name; raises SchemaError if the schema lacks it."""
        for edge in self.relations:
            if edge.name == name:
                return edge
        relations = ", ".join(edge.name for edge in self.relations) or "none"
        raise SchemaError(f"schema has no relation '{name}'. It has: {relations}.")

    def _check_roles(self) -> None:
        weights = [column.name for column in self.graph_features if column.role == "weight"]
        if len(weights) > 1:
            raise SchemaError(
                f"schema has the weights {', '.join(weights)}. Give the role to one of them."
            )
        for space, columns in self.spaces().items():
            targets = [target for place, target in self.targets() if place == space]
            for column in columns:
                roles = () if column in targets else ROLES if space == "graph" else ("input",)
                if column.role not in (None, *roles):
                    raise SchemaError(
                        f"column '{column.name}' of {space} has the role '{column.role}', but a "
                        "target has none, and a feature of nodes or edges none but input. Leave "
                        "it out."
                    )

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, ready for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Schema:
        """The schema that `to_dict` (or JSON of it) describes."""
        return Schema(
            types=tuple(
                NodeType(
                    item["name"],
                    item["arity"],
                    _columns(item["features"]),
                    None if item["inputs"] is None else tuple(item["inputs"]),
                )
                for item in data["types"]
            ),
            inputs=_edge_type(data["inputs"]),
            relations=tuple(_edge_type(item) for item in data["relations"]),
            node_targets=_columns(data["node_targets"]),
            graph_features=_columns(data["graph_features"]),
            graph_targets=_columns(data["graph_targets"]),
        )


def _branch(title: str, columns: tuple[Column, ...]) -> str:
    return "\n    ".join([title, *map(str, columns)])


def _refuse_repeated(items: tuple[NodeType | EdgeType | Column, ...]) -> None:
    names = [item.name for item in items]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"schema names '{name}' twice in one place. Rename one of the two.")


def _columns(items: Any) -> tuple[Column, ...]:
    return tuple(Column(**item) for item in items)


def _edge_type(item: Mapping[str, Any]) -> EdgeType:
    return EdgeType(item["name"], _columns(item["features"]), _columns(item["targets"]))
