"""Random networks by a seed: fields that only some types write, rounds, `previous`, `initial`.

`python tests/random_networks.py 0 20000 2` compares 20,000 of them from seed 0 on in 2 processes,
and prints the seeds that differ, and how far it has come. Compiling cells takes most of the time,
so `SAME_CELLS` seeds in a row have cells and passes of one form, with other weights, graphs, plans,
losses and engines.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor, nn

from graphfold.batching import (
    Batch,
    Cell,
    Children,
    Down,
    Network,
    Pass,
    Rounds,
    Up,
    build_schedule,
)
from graphfold.batching.engine.compiled import programs
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import GraphfoldError

WIDTHS = {"h": 2, "c": 3, "d": 1}
SIZE, NUM_CODES = 2, 2
SAME_CELLS = 8
CODE = (Column("code", "int64", size=NUM_CODES),)
#: How a cell may read a field of its children.
WAYS = ("sum", "mean", "max", "rows", "weighted", "attend")
#: Name -> the attributes of a network.
ENGINES = {
    "native": {"run": "auto", "backend": "native"},
    "torch": {"run": "auto", "backend": "torch"},
    "eager": {"run": "eager", "backend": "auto"},
}


@dataclass(frozen=True)
class Spec:
    """The parts of a cell.

    Args:
        fields: that it writes.
        reads: what it declares.
        children: (way, field) of what it reads of children.
        previous: the fields that it reads of its own nodes.
        arity: the number of children that it declares.
        is_eager: whether it calls what no backend has.
        initial: whether it has an initial state.
        after: a field that it computes in the end, or None.
        tables: whether it makes tables of the edges.
    """

    fields: tuple[str, ...]
    reads: tuple[str, ...]
    children: tuple[tuple[str, str], ...]
    previous: tuple[str, ...]
    arity: int | None
    is_eager: bool
    initial: bool
    after: str | None
    tables: bool


class SpecCell(Cell):
    """A cell of the parts of a `Spec`."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec, self.arity, self.reads = spec, spec.arity, spec.reads
        self.fields = {name: WIDTHS[name] for name in spec.fields}
        self.own = nn.Linear(SIZE, SIZE)
        read = [*(name for _, name in spec.children), *spec.previous]
        self.parts = nn.ModuleList(nn.Linear(WIDTHS[name], SIZE, bias=False) for name in read)
        self.out = nn.ModuleDict({name: nn.Linear(SIZE, WIDTHS[name]) for name in spec.fields})
        self.start = nn.ModuleDict({name: nn.Linear(SIZE, WIDTHS[name]) for name in spec.fields})
        self.edge = nn.Parameter(torch.randn(1, 1))
        self.last = nn.Linear(WIDTHS[spec.fields[0]], WIDTHS[spec.after]) if spec.after else None

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        if not self.spec.initial:
            result: dict[str, Tensor] = super().initial(x)
            return result
        return {name: layer(x) for name, layer in self.start.items()}

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if not self.spec.tables or "weight" not in edge:
            return edge
        weight = edge["weight"].nan_to_num()  # of an absent child there is none
        return {"weight": torch.tanh(weight.unsqueeze(1) * self.edge).squeeze(1)}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        total = self.own(x)
        if self.spec.is_eager:
            total = total.cumsum(1)
        read = [self._read(children, way, name) for way, name in self.spec.children]
        read += [children.previous(name) for name in self.spec.previous]
        for layer, values in zip(self.parts, read, strict=True):
            total = total + layer(values)
        total = torch.tanh(total)
        return {name: layer(total) for name, layer in self.out.items()}

    def _read(self, children: Children, way: str, name: str) -> Tensor:
        if self.arity:
            return children.stack(name)[:, 0] - 0.5 * children.stack(name)[:, 1]
        if way == "rows":
            return children.sum(torch.sin(children.rows(name)))
        if way == "attend":
            return children.attend(name, children.rows(name)[:, 0])
        if way == "weighted" and "weight" in children.edge:
            return children.sum(name, children.edge["weight"].nan_to_num())
        if way in ("mean", "max"):
            result: Tensor = getattr(children, way)(name)
            return result
        return children.sum(name)

    def after(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.last is None or self.spec.after is None:
            return {}
        return {self.spec.after: self.last(state[self.spec.fields[0]])}


class Maker:
    """Makes a network, a batch and its input from a seed.

    Most of what its cells read is there; now and then something is not.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed // SAME_CELLS)
        self.seed = seed
        self.types = "abc"[: self.rng.randint(1, 3)]
        arity = {"a": 0, "b": None, "c": 2}
        self.schema = Schema(
            types=tuple(NodeType(name, arity[name], CODE) for name in self.types),
            inputs=EdgeType("inputs", (Column("weight", "float64"),)),
            relations=(EdgeType("link", (Column("weight", "float64"),)), EdgeType("order")),
        )
        self.fault = 0.1 if self.rng.random() < 0.2 else 0.0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def some(self, names: Sequence[str], least: int = 0) -> tuple[str, ...]:
        """Some names, in the order of all."""
        if len(names) < least:
            return tuple(names)
        chosen = self.rng.sample(sorted(names), self.rng.randint(least, len(names)))
        return tuple(sorted(chosen))

    def network(self) -> Network:
        """A network of one to four passes."""
        has: dict[str, set[str]] = {name: set() for name in self.types}
        passes, cells = [], []
        for _ in range(self.rng.randint(1, 4)):
            item = self._pass()
            passes.append(item)
            cells.append(self._cells(item, has))
        written = sorted(
            {f for c in cells for own in c.values() for one in own for f in one.fields}
        )
        absent = self.some(written) if self.chance(0.3) else ()
        torch.manual_seed(self.seed)
        network = Network(
            self.schema,
            *zip(
                passes,
                [{n: own if len(own) > 1 else own[0] for n, own in by.items()} for by in cells],
                strict=True,
            ),
            learned_absent=absent,
        ).double()
        for parameter in network.absent.values():
            nn.init.normal_(parameter)
        self.rng = random.Random(self.seed)
        return network

    def _pass(self) -> Pass:
        return self.rng.choice(
            [Up(), Up(), Down(), Up("order"), Down("order")]
            + [Rounds("link", self.rng.randint(1, 3)) for _ in range(4)]
        )

    def _cells(self, item: Pass, has: dict[str, set[str]]) -> dict[str, list[Cell]]:
        """The cells of a pass; `has` becomes what the types have after it."""
        torch.manual_seed(self.seed)
        names = self.some(self.types, 1)
        if not isinstance(item, Rounds):
            return self._round(item, names, has, 0)
        count = item.rounds if self.chance(0.5) else 1
        result: dict[str, list[Cell]] = {name: [] for name in names}
        for number in range(count):
            for name, own in self._round(item, names, has, number).items():
                result[name] += own
        return result

    def _round(
        self, item: Pass, names: Sequence[str], has: dict[str, set[str]], number: int
    ) -> dict[str, list[Cell]]:
        """One cell for each type; cells of rounds read the states before the round."""
        fields = {name: self.some([*WIDTHS], 1) for name in names}
        initial = {name: self.chance(0.9) for name in names}
        new = {name: own | {*fields.get(name, ())} for name, own in has.items()}
        if isinstance(item, Rounds) and number == 0:
            for name in names:
                missing = {*fields[name]} - has[name]
                has[name] |= missing
                initial[name] |= bool(missing) and not self.chance(self.fault)
        read = has if isinstance(item, Rounds) else new
        result = {
            name: [self._cell(item, name, fields[name], initial[name], has, read)] for name in names
        }
        for name, (cell,) in result.items():
            has[name] |= {*cell.fields}
            if cell.spec.after is not None and not isinstance(item, Rounds):
                has[name].add(cell.spec.after)
        return result

    def _cell(
        self,
        item: Pass,
        name: str,
        fields: tuple[str, ...],
        initial: bool,
        has: Mapping[str, set[str]],
        read: Mapping[str, set[str]],
    ) -> SpecCell:
        everywhere = sorted(set(WIDTHS).intersection(*read.values()))
        somewhere = sorted(set().union(*read.values()))
        previous = sorted(has[name])
        if self.chance(self.fault):
            everywhere = somewhere = previous = [*WIDTHS]
        reads = self.some(everywhere)
        wanted = self.some(reads, min(1, len(reads)))
        wanted += self.some(somewhere) if self.chance(0.3) else ()
        way, arity = self.rng.choice(WAYS), None
        if isinstance(item, Up) and item.relation is None:
            arity = {"a": 0, "b": None, "c": 2}[name] if self.chance(0.8) else None
        return SpecCell(
            Spec(
                fields=fields,
                reads=reads,
                children=tuple((way, field) for field in wanted if arity != 0),
                previous=self.some(previous) if self.chance(0.6) else (),
                arity=arity,
                is_eager=self.chance(0.1),
                initial=initial,
                after=self.rng.choice([*WIDTHS]) if self.chance(0.1) else None,
                tables=self.chance(0.3),
            )
        )

    def dag(self) -> TypedDAG:
        """One to four graphs of a few nodes; with few types now and then."""
        builder, rng = GraphBuilder(self.schema), self.rng
        for _ in range(rng.randint(1, 4)):
            names = self.some(self.types, 1) if self.chance(0.3) else self.types
            nodes: list[int] = []
            for _ in range(rng.randint(1, 6)):
                name = rng.choice(names)
                nodes.append(builder.node(name, code=rng.randrange(NUM_CODES)))
                if name != "a":
                    self._inputs(builder, nodes, name)
            ends = [rng.sample(nodes * 2, 2) for _ in range(rng.randint(0, 8))]
            weight = [rng.choice([0.5, 1.0, -1.0]) for _ in ends]
            builder.edges("link", [s for s, _ in ends], [t for _, t in ends], weight=weight)
            later = sorted({(min(end), max(end)) for end in ends if end[0] != end[1]})
            builder.edges("order", [s for s, _ in later], [t for _, t in later])
            builder.output(nodes[-1])
            builder.finish()
        return builder.build()

    def _inputs(self, builder: GraphBuilder, nodes: Sequence[int], name: str) -> None:
        """Adds inputs to the last node, of type `name`; of two slots, some stay absent."""
        earlier: list[int | None] = [*nodes[:-1]]
        if name == "c":
            read = [self.rng.choice([*earlier, None]) for _ in range(2)]
        else:
            read = [self.rng.choice(earlier) for _ in range(self.rng.randint(0, 3)) if earlier]
        weight = [None if node is None else self.rng.choice([0.5, 2.0]) for node in read]
        builder.inputs(nodes[-1], read, weight=weight)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fills new memory with NaN and skips the trial of programs.

    A trial would hide a wrong program: its cell would run as it is.
    """
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        forms = mock.patch.object(programs, "MAX_FORMS", 1 << 15)  # cells come again and again
        with warnings.catch_warnings(), mock.patch.object(programs, "check"), forms:
            warnings.filterwarnings("ignore", ".*is not compiled")
            warnings.filterwarnings("ignore", ".*do(es)? not run as")
            yield
    finally:
        torch.use_deterministic_algorithms(False)


Results = dict[str, Tensor] | tuple[type[Exception], str]


def run(network: Network, batch: Batch, codes: Mapping[str, Tensor], seed: int) -> Results:
    """Every state and every gradient by name; or the error that refuses the network."""
    generator = torch.Generator().manual_seed(seed)
    tables = {
        name: torch.randn(NUM_CODES, SIZE, dtype=torch.float64, generator=generator)
        for name in sorted(codes)
    }
    leaves = {f"x {name}": table.requires_grad_() for name, table in tables.items()}
    try:
        states = network(batch, {name: leaves[f"x {name}"][own] for name, own in codes.items()})
    except GraphfoldError as error:
        return type(error), str(error).split("\n")[0]
    loss = torch.zeros((), dtype=torch.float64)
    result = {}
    for number, name in enumerate(sorted(states)):
        has = states.has(name, batch.dag.op_type)
        result[f"has {name}"] = has
        result[name] = values = states[name]
        if (seed + number) % 3 == 0:
            continue  # a field on which the loss does not depend
        if (seed + number) % 3 == 1:
            values = states.at(name, has.nonzero().flatten()[::2])
        weight = torch.linspace(-1, 2, values.numel(), dtype=torch.float64).view_as(values)
        loss = loss + (values * weight).sum()
    leaves |= dict(network.named_parameters())
    tensors = list(leaves.values())
    loss = loss + sum(0.0 * tensor.sum() for tensor in tensors)
    grads = torch.autograd.grad(loss, tensors)
    result |= {f"gradient of {name}": grad for name, grad in zip(leaves, grads, strict=True)}
    return {name: value.detach() for name, value in result.items()}


def compare(seed: int) -> Counter[str]:
    """Raises AssertionError if native code, or the other engine of a seed, differs from the
    reference; counts what ran how.
    """
    maker = Maker(seed)
    network, dag = maker.network(), maker.dag()
    codes = {name: dag.columns[f"type:{name}"]["code"] for name in maker.types}
    policy = maker.rng.choice(["depth", "agenda"])
    whole, shared = (
        Batch(dag, build_schedule(dag, network.passes, policy, share)) for share in (False, True)
    )
    network.run, ways = "reference", Counter[str]()
    want = run(network, whole, codes, seed)
    ways["refused" if isinstance(want, tuple) else "right"] += 1
    with poisoned():
        for name in ("native", ("torch", "eager")[seed % 2]):
            for key, value in ENGINES[name].items():
                setattr(network, key, value)
            for kind, batch in {"whole": whole, "shared": shared}.items():
                _assert_same(run(network, batch, codes, seed), want, f"seed {seed}, {name}, {kind}")
            ways.update(f"{name}: {how.split(' (')[0]}" for how in network.execution.values())
    return ways


def _assert_same(result: Results, want: Results, place: str) -> None:
    if isinstance(want, tuple) or isinstance(result, tuple):
        assert result == want, f"{place}: {result} instead of {want}"
        return
    assert result.keys() == want.keys(), f"{place}: {result.keys()} instead of {want.keys()}"
    torch.testing.assert_close(
        result, want, rtol=1e-10, atol=1e-10, msg=lambda text: f"{place}: {text}"
    )


def try_seed(seed: int) -> tuple[int, Counter[str], str]:
    """`compare`, with the error as a text."""
    torch.set_num_threads(1)
    try:
        return seed, compare(seed), ""
    except Exception:
        return seed, Counter(), traceback.format_exc(limit=-3)


def main(first: int, count: int, num_processes: int = 1) -> int:
    """Compares `count` networks; prints the seeds that differ, and in the end how many ran how."""
    ways, failed = Counter[str](), 0
    with multiprocessing.get_context("spawn").Pool(num_processes) as pool:
        result = pool.imap_unordered(try_seed, range(first, first + count), 16)
        for number, (seed, own, error) in enumerate(result, start=1):
            ways += own
            if number % 1000 == 0:
                print(f"{number} of {count} compared, {failed} differ", flush=True)
            if error:
                failed += 1
                print(f"seed {seed}: {error}", flush=True)
    print(dict(ways), f"{failed} of {count} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
