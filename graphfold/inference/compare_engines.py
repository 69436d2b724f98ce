"""`graphfold verify`: compares the fast engine with the reference, on a model and its data."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from graphfold.batching import POLICIES, Batch
from graphfold.dag import TypedDAG, select, split
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError
from graphfold.files import write_json
from graphfold.layers import Model
from graphfold.layers.model import attribute_set
from graphfold.layers.uncertainty.ensemble import Ensemble, members_of
from graphfold.progress import shown
from graphfold.training.config.build_model import decide
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.loop.checks import can_share, describe_execution
from graphfold.training.run.initial_weights import make_model
from graphfold.training.run.run_folder import find_checkpoint
from graphfold.training.run.trained import TrainedModel

#: Both engines compute in float64 and differ only in the order of sums.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Comparison:
    """The distance of the fast engine from the reference under one policy.

    Args:
        policy: the scheduling policy.
        share: whether equal nodes were computed once.
        outputs: the largest difference over the largest value, of states and outputs.
        gradients: likewise of the gradients of all parameters.
        differs: the first place that differs; empty if everything is equal.
        cells: how the cells ran.
    """

    policy: str
    share: bool
    outputs: float
    gradients: float
    differs: str
    cells: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None for NaN."""
        numbers = {"outputs": self.outputs, "gradients": self.gradients}
        finite = {name: v if math.isfinite(v) else None for name, v in numbers.items()}
        return {**asdict(self), **finite, "equal": not self.differs}


def run_verify(
    run: Path | None = None,
    overrides: Sequence[str] = (),
    examples: int = 16,
    json_path: Path | None = None,
    config_dir: Path | None = None,
    trusted: Collection[str] = (),
) -> int:
    """Compares states, outputs and gradients in float64; prints a table.

    Args:
        run: a run folder or checkpoint whose model is compared; else `overrides` name one.
        overrides: of the config, as for training.
        examples: how many graphs are compared; the reference is slow.
        json_path: where the comparisons are written as JSON.
        config_dir: a further folder of config files.
        trusted: third-party packages that the run may name.

    Returns:
        The exit code: 1 if anything differs.
    """
    model, dag = _from_config(overrides, config_dir) if run is None else _from_run(run, trusted)
    if not model.passes:
        raise ConfigError(
            f"{type(model).__name__} has no cells, so there is nothing to compare. Name a network."
        )
    dag = select(dag, range(min(examples, dag.num_graphs)))
    comparisons = list(shown(compare(model, dag), "comparing", lambda _: dag.num_graphs))
    title = f"fast engine against the reference, float64, {dag!r}"
    table = Table("policy", "equal nodes", "outputs", "gradients", "equal", title=title)
    for row in comparisons:
        nodes = "computed once" if row.share else "all computed"
        errors = f"{row.outputs:.1e}", f"{row.gradients:.1e}"
        table.add_row(row.policy, nodes, *errors, "NO" if row.differs else "yes")
    Console().print(table)
    print(f"cells: {comparisons[0].cells}")
    different = [row for row in comparisons if row.differs]
    for row in different:
        Console(stderr=True).print(f"policy {row.policy}: {row.differs}")
    if json_path is not None:
        rows = [row.to_dict() for row in comparisons]
        write_json(json_path, {"examples": dag.num_graphs, "comparisons": rows})
    return int(bool(different))


def compare(
    model: Model, dag: TypedDAG, policies: Sequence[str] = tuple(POLICIES)
) -> Iterator[Comparison]:
    """Compares the fast engine with the reference in evaluation mode, under several policies.

    The reference takes one example at a time, from the encoder to the head, so what depends on the
    batch differs.
    """
    model = copy.deepcopy(model).double().eval()
    computed = dag if model.lowering is None else model.lowering(dag, 0)
    with _float64():
        with attribute_set(model.networks, "run", "reference"):
            want = _numbers(model, [model.plan(one, "depth", False) for one in split(dag) or [dag]])
        gradients = [name for name in want if name.startswith("gradient")]
        outputs = [name for name in want if name not in gradients]
        for network in model.networks:
            network.run = "auto"
        for policy, share in product(policies, (False, True) if can_share(model) else (False,)):
            got = _numbers(model, [model.plan(dag, policy, share)])
            yield Comparison(
                policy,
                share,
                distance([got[name] for name in outputs], [want[name] for name in outputs]),
                distance([got[name] for name in gradients], [want[name] for name in gradients]),
                _first_difference(got, want, (dag, computed)),
                describe_execution(model),
            )


def _numbers(model: Model, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """The states and outputs of all batches, joined, and the gradients, by name."""
    pieces: dict[str, list[Tensor]] = {}
    losses = []
    for batch in batches:
        states = model.states(batch)
        raw = model.outputs(model.rows(states, batch))
        losses.append(model.losses(raw, model.head.target_rows(batch.dag)).sum())
        for name in sorted(states):
            pieces.setdefault(f"field '{name}'", []).append(states[name].detach())
        pieces.setdefault("output", []).append(raw.detach())
    results = {name: torch.cat(parts) for name, parts in pieces.items()}
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss = torch.stack(losses).sum()
    grads = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    return results | {f"gradient of {n}": g for n, g in zip(parameters, grads, strict=True)}


def distance(got: Iterable[Tensor], want: Iterable[Tensor]) -> float:
    """The largest difference of two tensors, relative to the largest value (at least 1).

    NaN, wherever it stands, gives NaN: `max` of Python would pass it over.
    """
    errors = (
        float((a - b).abs().max() / b.abs().max().clamp(min=1))
        for a, b in zip(got, want, strict=True)
        if b.numel()
    )
    return float(torch.tensor([0.0, *errors], dtype=torch.float64).max())


def _first_difference(
    got: Mapping[str, Tensor], want: Mapping[str, Tensor], graphs: Sequence[TypedDAG]
) -> str:
    """The first row of the first tensor that differs, with its node if it is a state.

    Args:
        got: the tensors by name.
        want: the expected tensors.
        graphs: the graphs of the data, and those that are computed; states are of either.
    """
    for name in want:
        if distance([got[name]], [want[name]]) <= TOLERANCE:
            continue
        rows = (got[name] - want[name]).abs().flatten(1).amax(1)
        row = int(torch.nonzero(~(rows <= TOLERANCE))[0])
        place = f"{name} differs in row {row}"
        if name.startswith("field"):
            dag = next(dag for dag in graphs if dag.num_nodes == len(rows))
            file, line = dag.place(int(dag.batch[row]))
            node_type = dag.schema.types[int(dag.op_type[row])].name
            place = f"{name} differs at node {row}, a '{node_type}' of {file}:{line}"
        return (
            f"{place} by {float(rows[row]):.3g}. Perhaps a part of the model looks at other "
            "examples of the batch: let it treat each row alone."
        )
    return ""


def _from_run(run: Path, trusted: Collection[str]) -> tuple[Model, TypedDAG]:
    trained = TrainedModel.load(find_checkpoint(run), trusted)
    data = trained.data({})
    data.prepare({"split": trained.checkpoint.split, "spec": trained.checkpoint.spec})
    members = members_of(trained.model.cpu())
    return members[0] if len(members) == 1 else Ensemble(members), _some_part(data)


def _from_config(overrides: Sequence[str], config_dir: Path | None) -> tuple[Model, TypedDAG]:
    config = compose(overrides, config_dir).config
    data = check_parts(config)
    data.prepare()
    return make_model(decide(config, data), data), _some_part(data)


def _some_part(data: DataModule) -> TypedDAG:
    """The records of the first part with records out of test, val and train."""
    for part in ("test", "val", "train"):
        if len(data.split.part(part)):
            return data.encoded(part)
    return data.encoded()


@contextmanager
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
