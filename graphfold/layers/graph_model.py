"""GraphModel: encoder, passes of cells, readout and head in one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from graphfold.batching import Batch, Cell, Network, Pass, Rounds, States, Up
from graphfold.batching.kernels.gather import OfTypes, RowIndex
from graphfold.dag import Schema
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.encoders.feature_encoder import FeatureEncoder, GraphInputs
from graphfold.layers.factories import Faults, argument, build, name_of, require_kind
from graphfold.layers.heads.head import Head
from graphfold.layers.model import Lowering, Model
from graphfold.layers.node_pairs import NodePairs
from graphfold.layers.readouts.readout import Readout
from graphfold.layers.virtual_node import VirtualNode

#: A class or function that makes a cell once the schema is known; or a finished cell.
CellFactory: TypeAlias = Callable[..., Cell]


class GraphModel(Model):
    """A model of an encoder, passes of cells, a readout and a head, for a schema.

    Every part but the passes is a factory (a class, or a partial of it with its options). It is
    called with those of these arguments that it takes and does not have yet:

    - encoder: `schema`;
    - cells: `input_size` (the encoder's width for the type), `arity` (the type's number of inputs,
      in a pass `Up`) and `edge_columns` (the feature columns of the edges of the pass) or, where
      the pass follows several relations, `relation_columns` (relation -> its feature columns);
    - readout: `input_size` (the width of its field);
    - head: `schema`, `input_size` and `level` (of the readout's rows), and `scalers`.

    The head reads the rows of the readout, each followed by the inputs of its graph (see
    `Schema.graph_inputs`), such as descriptors of a molecule.

    Args:
        schema: the schema of the graphs, its string features encoded as codes.
        encoder: makes the `FeatureEncoder`.
        passes: the passes over a graph, in order; the scheduler needs the same list.
        cells: for each pass, type name -> cell. A type without a cell in a pass keeps the state of
            an earlier pass. None in all passes is for a type without states.
        readout: makes the `Readout`.
        head: makes the `Head`.
        per_round_weights: whether each round of message passing has its own cells.
        scalers: target name -> (mean, standard deviation) of the training part.
        run: how cells run, "auto", "compiled", "eager" or "reference"; see `Network`.
        learned_absent: fields whose value for an absent child is learned instead of zero.
        backend: what runs compiled cells; see `Network`.
        virtual_node: the relation that joins a further node in every graph with all others, see
            `VirtualNode`; None for no such node. Its type "virtual" needs a cell.
        pairs: arguments of `NodePairs`, which adds nodes of the type "pair"; None for none.

    Raises:
        ConfigError: if the parts do not fit the schema or each other; it names every fault.
    """

    network: Network

    def __init__(
        self,
        schema: Schema,
        encoder: Callable[..., FeatureEncoder],
        passes: Sequence[Pass],
        cells: Sequence[Mapping[str, CellFactory | None]],
        readout: Callable[..., Readout],
        head: Callable[..., Head],
        per_round_weights: bool = False,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        run: str = "auto",
        learned_absent: Sequence[str] = (),
        backend: str = "auto",
        virtual_node: str | None = None,
        pairs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._adds = choose_addition(virtual_node, pairs)
        data_schema = schema
        schema = schema if self._adds is None else self._adds.schema(schema)
        self._num_types = len(data_schema.types)
        faults = Faults()
        faults.messages += _misfits(schema, passes, cells)
        with faults.collect():
            self.encoder = build(encoder, schema=schema)
        built: list[dict[str, Cell | list[Cell]]] = []
        if not faults.messages:
            builder = _CellBuilder(schema, self.encoder.widths, per_round_weights)
            steps = zip(passes, cells, strict=True)
            built = [builder.build_all(item, by_type, faults) for item, by_type in steps]
        widths = _field_widths(built)
        if not faults.messages:
            with faults.collect():
                self.network = Network(
                    schema,
                    *zip(passes, built, strict=True),
                    run=run,
                    backend=backend,
                    learned_absent=learned_absent,
                )
            with faults.collect():
                _require_field(readout, widths)
        with faults.collect():
            # 1 stands for an unknown width, so that other faults of the readout are found.
            width = widths.get(argument(readout, "field"), 1)
            self.readout = build(readout, input_size=width)
            require_kind(self.readout, Readout, "readout")
            self.inputs = GraphInputs(data_schema)
            self.head = self._build_head(head, data_schema, scalers)
        faults.report("the model")

    def _build_head(
        self,
        factory: Callable[..., Head],
        schema: Schema,
        scalers: Mapping[str, tuple[float, ...]] | None,
    ) -> Head:
        """The head over the rows of the readout; raises ConfigError if they do not fit."""
        readout = self.readout
        if readout.pairs and self.inputs.size:
            raise ConfigError(
                f"{type(readout).__name__} gives pairs, which cannot be joined to "
                f"{self.inputs!r}. Leave those inputs out, or use another readout."
            )
        width = readout.output_size + self.inputs.size
        offers = {"input_size": width, "level": readout.level}
        head = build(factory, schema=schema, scalers=scalers, **offers)
        require_kind(head, Head, "head")
        if readout.pairs != head.pairs:
            raise ConfigError(
                f"{name_of(factory)} reads {'pairs' if head.pairs else 'single vectors'}, but "
                f"{type(readout).__name__} gives {'pairs' if readout.pairs else 'single vectors'}. "
                f"Use {'PairReadout' if head.pairs else 'another readout'}."
            )
        return head

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes, which the scheduler plans."""
        return self.network.passes

    @property
    def lowering(self) -> Lowering | None:
        """Adds the virtual node or the pairs; None without either."""
        return None if self._adds is None else self._adds.lower

    def state_parts(self) -> list[Callable[..., Any]]:
        """The encoder and the cells."""
        return [*self.encoder.modules(), *self.network.modules()]

    def states(self, batch: Batch) -> States:
        """The states of all nodes of the data after all passes."""
        computed = batch.computed
        return self.states_from(batch, self.encoder(computed.dag, computed.schedule.sources))

    def states_from(self, batch: Batch, x: Mapping[str, Tensor]) -> States:
        """The states of all nodes of the data, with x in place of the encoder's output.

        Shape:
            x: type name -> [num_nodes_of_type, width], in node order of `batch.computed`
        """
        computed = batch.computed
        states: States = self.network(computed, x)
        if self._adds is None:
            return states
        nodes = RowIndex.of(computed.dag, OfTypes(frozenset(range(self._num_types))))
        return states.of(nodes, self._num_types)

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_rows, width] the rows of the readout, with the inputs of graphs."""
        rows: Tensor = self.readout(states, batch.dag)
        joined: Tensor = self.inputs(rows, self.head.row_graph, batch.dag)
        return joined


def choose_addition(
    virtual_node: str | None, pairs: Mapping[str, Any] | None
) -> VirtualNode | NodePairs | None:
    """The nodes that a model adds to the graphs of the data, from its arguments.

    Raises:
        ConfigError: if both arguments are set, or one is wrong.
    """
    if virtual_node is not None and pairs is not None:
        raise ConfigError("a model adds pairs or a virtual node. Set one of them to null.")
    if virtual_node is not None:
        return VirtualNode(virtual_node)
    return None if pairs is None else build(NodePairs, **pairs)


class _CellBuilder:
    """Builds cells with arguments from the schema and the encoder."""

    def __init__(self, schema: Schema, widths: Mapping[str, int], per_round: bool) -> None:
        self.schema = schema
        self.widths = widths
        self.per_round = per_round

    def build_all(
        self, item: Pass, by_type: Mapping[str, CellFactory | None], faults: Faults
    ) -> dict[str, Cell | list[Cell]]:
        """The cells of one pass; notes the faults of others."""
        built: dict[str, Cell | list[Cell]] = {}
        for name, factory in by_type.items():
            if factory is not None:
                with faults.collect():
                    built[name] = self._build(item, name, factory)
                    _require_width(built[name], name)
        return built

    def _build(self, item: Pass, name: str, factory: CellFactory) -> Cell | list[Cell]:
        schema, relations = self.schema, item.relations
        columns = {relation: schema.relation(relation).features for relation in relations}
        offers: dict[str, Any] = {"input_size": self.widths[name]}
        if len(relations) > 1:
            offers["relation_columns"] = columns
        else:
            offers["edge_columns"] = next(iter(columns.values()), schema.inputs.features)
        arity = schema.types[schema.type_index(name)].arity
        if isinstance(item, Up) and not relations and arity is not None:
            offers["arity"] = arity
        if not (self.per_round and isinstance(item, Rounds)):
            return build(factory, **offers)
        if isinstance(factory, Cell):
            raise ConfigError(
                f"per_round_weights needs a way to make cells, but type '{name}' has one that is "
                "made. Give its class, or a partial of it."
            )
        return [build(factory, **offers) for _ in range(item.rounds)]


def _misfits(
    schema: Schema, passes: Sequence[Pass], cells: Sequence[Mapping[str, CellFactory | None]]
) -> Iterator[str]:
    """Faults in the names of types and relations, and in the number of passes."""
    types = [node_type.name for node_type in schema.types]
    relations = [edge.name for edge in schema.relations]
    strange = [item for item in passes if not isinstance(item, Pass)]
    if strange:
        yield f"passes has {strange[0]!r}, which is no pass. Give Up, Down or Rounds."
        return
    if len(passes) != len(cells):
        yield f"there are {len(passes)} passes but cells for {len(cells)}. Give each pass its own."
    followed = [(name, type(item).__name__) for item in passes for name in item.relations]
    for name, kind in followed:
        if name not in relations:
            yield (
                f"there is no relation '{name}' for {kind}.{did_you_mean(name, relations)} "
                f"The schema has: {', '.join(relations) or 'none'}."
            )
    named = [name for by_type in cells for name in by_type]
    for name in dict.fromkeys(named):
        if name not in types:
            yield (
                f"cells names the type '{name}', which the schema lacks."
                f"{did_you_mean(name, types)} It has: {', '.join(types)}."
            )
    for name in types:
        if name not in named:
            yield f"type '{name}' has no cell in any pass. Add one to cells."


def _field_widths(built: Sequence[Mapping[str, Cell | list[Cell]]]) -> dict[str, int]:
    """Field -> width, over all cells."""
    widths: dict[str, int] = {}
    for by_type in built:
        for cell in by_type.values():
            widths |= (cell if isinstance(cell, Cell) else cell[0]).fields
    return widths


def _require_width(cells: Cell | list[Cell], name: str) -> None:
    cell = cells if isinstance(cells, Cell) else cells[0]
    for field, width in cell.fields.items():
        if width < 1:
            raise ConfigError(
                f"{type(cell).__name__} of type '{name}' has the field '{field}' with width "
                f"{width}. Set a width of at least 1."
            )


def _require_field(readout: Any, widths: Mapping[str, int]) -> None:
    field = argument(readout, "field")
    if field not in widths:
        raise ConfigError(
            f"{name_of(readout)} reads field '{field}', which no cell computes."
            f"{did_you_mean(str(field), widths)} They compute: {', '.join(widths)}."
        )
