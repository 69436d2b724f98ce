"""`graphfold verify`: the fast engine against the reference, on a real model and real graphs."""

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
from graphfold.batching.kernels.segment import get_kernel
from graphfold.batching.scheduling.policies import get_policy
from graphfold.dag import TypedDAG, select, split
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError
from graphfold.files import write_json
from graphfold.layers import Model
from graphfold.layers.model import attribute_set
from graphfold.layers.normalisation import is_batch_norm
from graphfold.layers.uncertainty.ensemble import Ensemble, members_of
from graphfold.progress import shown
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.config.model import decide
from graphfold.training.loop.checks import can_share, describe_execution
from graphfold.training.run.initial_weights import make_model
from graphfold.training.run.run_folder import find_checkpoint
from graphfold.training.run.trained import TrainedModel

#: Both engines compute in float64 and differ only in the order of sums.
TOLERANCE = 1e-9

#: How many graphs are compared unless the user says otherwise: the reference is slow.
EXAMPLES = 16


@dataclass(frozen=True)
class Comparison:
    """The distance of the fast engine from the reference under one policy."""

    policy: str
    kernel: str
    share: bool  # whether equal nodes were computed once
    outputs: float  # largest difference over the largest value, of states and outputs
    gradients: float  # the same of the gradients of all parameters
    differs: str  # the first place that differs, or ""
    cells: str = ""  # how they ran

    @property
    def is_equal(self) -> bool:
        return not self.differs

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them, which knows no NaN."""
        found = {**asdict(self), "equal": self.is_equal}
        for name in ("outputs", "gradients"):
            found[name] = found[name] if math.isfinite(found[name]) else None
        return found


def run_verify(
    run: Path | None = None,
    overrides: Sequence[str] = (),
    policy: str | None = None,
    kernel: str | None = None,
    examples: int | None = None,
    json_path: Path | None = None,
    config_dir: Path | None = None,
    trusted: Collection[str] = (),
) -> int:
    """Compares states, outputs and gradients in float64; prints a table.

    Args:
        run: a run folder or checkpoint whose model is compared; else `overrides` name one.
        overrides: of the config, as for training.
        policy: one policy; all of them by default.
        kernel: what reduces over children; "native" by default.
        examples: how many graphs.
        json_path: where the comparisons are written as JSON.
        config_dir: a further folder of config files.
        trusted: third-party packages that the run may name.

    Returns:
        The exit code: 1 if anything differs.
    """
    names = [policy] if policy else list(POLICIES)
    for name in names:
        get_policy(name)
    get_kernel(kernel or "native")
    if run is not None:
        model, dag = _from_run(run, trusted)
    else:
        model, dag = _from_config(overrides, config_dir)
    if not model.passes:
        raise ConfigError(
            f"{type(model).__name__} has no cells, so there is nothing to compare. Name a network."
        )
    dag = select(dag, range(min(examples or EXAMPLES, dag.num_graphs)))
    compared = compare(model, dag, names, kernel or "native")
    found = list(shown(compared, "comparing under each policy", lambda _: dag.num_graphs))
    Console().print(_table(found, dag))
    for cells in dict.fromkeys(comparison.cells for comparison in found):
        if cells:
            print(f"cells: {cells}")
    for comparison in found:
        if not comparison.is_equal:
            Console(stderr=True).print(f"policy {comparison.policy}: {comparison.differs}")
    if json_path is not None:
        rows = [c.to_dict() for c in found]
        write_json(json_path, {"examples": dag.num_graphs, "comparisons": rows})
    return 0 if all(comparison.is_equal for comparison in found) else 1


def compare(
    model: Model, dag: TypedDAG, policies: Sequence[str], kernel: str
) -> Iterator[Comparison]:
    """Compares the fast engine with the reference, under several policies, sharing or not.

    The reference takes one example at a time, from the encoder to the head, so what depends on the
    batch differs. That is in evaluation mode: dropout and batch normalisation look at all examples
    in training. What may draw random numbers is compared in training, too, over the whole batch and
    with the same seed on both sides.
    """
    model = copy.deepcopy(model).double()
    computed = dag if model.lowering is None else model.lowering(dag, 0)
    is_by_row = can_share(model, training=True)
    together = {mode: [dag] for mode in ((False,) if is_by_row else (False, True))}
    with _float64():
        with attribute_set(model.networks, "engine", "reference"):
            want, _ = _results(model, {**together, False: split(dag) or [dag]}, "depth")
        gradients = [name for name in want if name.startswith("gradient")]
        outputs = [name for name in want if name not in gradients]
        for network in model.networks:
            network.engine, network.kernel = "fast", kernel
        for policy, share in product(policies, (False, True) if is_by_row else (False,)):
            got, cells = _results(model, together, policy, share)
            differs = _first_difference(got, want, (dag, computed))
            if differs and _depends_on_batch(got, want, model, dag):
                differs = f"{differs}; {_DEPENDS_ON_BATCH}"
            yield Comparison(
                policy,
                kernel,
                share,
                _distance(outputs, got, want),
                _distance(gradients, got, want),
                differs,
                cells,
            )


_DEPENDS_ON_BATCH = (
    "a reference that computes all examples together gives what the engine gives, so a part of the "
    "model looks at other examples of the batch, or draws random numbers. Let it treat each row "
    "alone"
)


def _depends_on_batch(
    got: Mapping[str, Tensor], want: Mapping[str, Tensor], model: Model, dag: TypedDAG
) -> bool:
    """True if a reference that computes all examples together is right where `want` differs."""
    with attribute_set(model.networks, "engine", "reference"):
        together, _ = _results(model, {False: [dag]}, "depth")
    names = list(together)
    return _distance(names, got, together) <= TOLERANCE < _distance(names, got, want)


def _results(
    model: Model,
    graphs: Mapping[bool, Sequence[TypedDAG]],
    policy: str,
    share: bool = False,
) -> tuple[dict[str, Tensor], str]:
    """Every state, the outputs and every gradient, by name; and how the cells ran.

    Args:
        model: the model.
        graphs: for each mode, whether it is training, batches that are computed one by one.
        policy: how to plan them.
        share: whether equal nodes are computed once.
    """
    results: dict[str, Tensor] = {}
    for is_training, dags in graphs.items():
        batches = [model.plan(dag, policy, share) for dag in dags]
        fresh = copy.deepcopy(model).train(is_training)  # a forward may change statistics
        for module in fresh.modules():
            if is_batch_norm(module):  # a single node has no statistics of a batch
                module.eval()
        mode = " in training" if is_training else ""
        results |= {f"{name}{mode}": value for name, value in _numbers(fresh, batches).items()}
    return results, describe_execution(fresh)


def _numbers(model: Model, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """The states and outputs of all batches, joined, and the gradients, by name."""
    torch.manual_seed(0)
    found: dict[str, list[Tensor]] = {}
    losses = []
    for batch in batches:
        states = model.states(batch)
        raw = model.outputs(model.rows(states, batch))
        losses.append(model.losses(raw, model.head.target_rows(batch.dag)).sum())
        for name in sorted(states):
            found.setdefault(f"field '{name}'", []).append(states[name].detach())
        found.setdefault("output", []).append(raw.detach())
    results = {name: torch.cat(parts) for name, parts in found.items()}
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss = torch.stack(losses).sum()
    grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    for (name, parameter), grad in zip(parameters.items(), grads, strict=True):
        results[f"gradient of {name}"] = torch.zeros_like(parameter) if grad is None else grad
    return results


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


def _distance(names: Sequence[str], got: Mapping[str, Tensor], want: Mapping[str, Tensor]) -> float:
    return distance((got[name] for name in names), (want[name] for name in names))


def _first_difference(
    got: Mapping[str, Tensor], want: Mapping[str, Tensor], graphs: Sequence[TypedDAG]
) -> str:
    """The place where the first tensor that differs does so first; a state names its node.

    Args:
        got: the tensors by name.
        want: those that they should be.
        graphs: the graphs of the data, and those that are computed; states are of either.
    """
    for name in want:
        if _distance([name], got, want) <= TOLERANCE:
            continue
        error = (got[name] - want[name]).abs().flatten(1 if want[name].dim() > 1 else 0)
        rows = error.amax(1) if error.dim() > 1 else error.view(-1)
        row = int(torch.nonzero(~(rows <= TOLERANCE))[0])
        place = f"{name} differs in row {row}"
        if name.startswith("field"):
            dag = next(dag for dag in graphs if dag.num_nodes == len(rows))
            file, line = dag.place(int(dag.batch[row]))
            node_type = dag.schema.types[int(dag.op_type[row])].name
            place = f"{name} differs at node {row}, a '{node_type}' of {file}:{line}"
        return f"{place} by {float(rows[row]):.3g}"
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
    """A part that has records, the least used for fitting first."""
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


def _table(found: Sequence[Comparison], dag: TypedDAG) -> Table:
    table = Table(title=f"fast engine against the reference, float64, {dag!r}")
    for heading in ("policy", "kernel", "equal nodes", "outputs", "gradients", "equal"):
        table.add_column(heading)
    for row in found:
        equal = "yes" if row.is_equal else "NO"
        nodes = "computed once" if row.share else "all computed"
        errors = f"{row.outputs:.1e}", f"{row.gradients:.1e}"
        table.add_row(row.policy, row.kernel, nodes, *errors, equal)
    return table
