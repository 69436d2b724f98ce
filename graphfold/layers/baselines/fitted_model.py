"""Models that are fitted to the training part at once: their bases, and the mean of several."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Network, Pass, States
from graphfold.dag import Schema, TypedDAG
from graphfold.dag.typed_dag import repeat
from graphfold.errors import ConfigError
from graphfold.layers.assembly import build, require_kind
from graphfold.layers.encoders.feature_encoder import GraphInputs
from graphfold.layers.heads.classification import ClassificationHead, MultiLabelHead
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.regression import RegressionHead
from graphfold.layers.model import Model

#: The heads that say what one number, or the probabilities of one set of classes, stand for.
HEADS = (RegressionHead, MultiLabelHead, ClassificationHead)


class FittedModel(Model):
    """Predicts from the inputs of whole graphs (`Schema.graph_inputs`) alone.

    It has no cells and no parameters, but buffers, which `fit` fills. A subclass writes `fit` and
    `rows`, which gives what the head decodes.

    Args:
        schema: the schema of the graphs.
        head: makes the `Head`, one of `HEADS`; its layers are left out.
        scalers: target name -> (mean, standard deviation) of the training part.

    Raises:
        ConfigError: if the graphs have no inputs, or the head is another one.
    """

    network: Network

    def __init__(
        self,
        schema: Schema,
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        super().__init__()
        self.inputs = GraphInputs(schema)
        if not self.inputs.size:
            raise ConfigError(
                f"{type(self).__name__} reads numbers of whole graphs, but there are none. Set "
                "data.descriptors=[morgan] or [rdkit2d,morgan], or data.extra_columns."
            )
        self.network = Network(schema, (), ())
        self.head = build(head, schema=schema, scalers=scalers, level="graph", input_size=1)
        if not isinstance(self.head, HEADS):
            names = ", ".join(kind.__name__ for kind in HEADS)
            raise ConfigError(
                f"{type(self).__name__} cannot have the head {type(self.head).__name__}. Use one "
                f"of {names}, or model.head._target_=auto."
            )
        self.head.layers = nn.Sequential()  # what is fitted gives what they would

    @property
    def passes(self) -> tuple[Pass, ...]:
        """None: nothing is computed node by node."""
        return ()

    def states(self, batch: Batch) -> States:
        """No fields of any node."""
        return States({}, torch.zeros_like(batch.dag.op_type), {})

    @abstractmethod
    def fit(self, dag: TypedDAG) -> None:
        """Fits the model.

        Args:
            dag: the training part, encoded.

        Raises:
            ConfigError: if the library that fits is not installed, or an option does not fit.
        """


#: Rows that whole weights may make of one row, on average.
MOST_REPETITIONS = 10


class TargetModel(FittedModel):
    """Has a module of buffers for each target, from inputs to what the head decodes.

    Each is fitted to the graphs where its target is measured. A target that is measured nowhere is
    predicted by its scaler's mean, or by equal probabilities, with a warning. Graphs of weight 0
    are left out; a whole weight is the graph so often, see `repeated`.

    A subclass writes `fit_target`, and `empty` for a module to load a state into.

    Args:
        schema: the schema of the graphs.
        head: makes the `Head`.
        scalers: target name -> (mean, standard deviation) of the training part.

    Raises:
        ConfigError: as `FittedModel`.
    """

    def __init__(
        self,
        schema: Schema,
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        super().__init__(schema, head, scalers)
        self.targets = nn.ModuleList(self.empty() for _ in self.head.columns)

    @property
    def num_outputs(self) -> int:
        """The raw outputs of one target."""
        return self.head.num_classes if isinstance(self.head, ClassificationHead) else 1

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_graphs, ...] what the head decodes."""
        x = self.inputs.read(batch.dag)
        return torch.cat([self.raw(target(x)) for target in self.targets], dim=1)

    def fit(self, dag: TypedDAG) -> None:
        """Fits every target; see `FittedModel.fit`."""
        x = self.inputs.read(dag)
        wanted = self.head.target_rows(dag)
        known = self.head.measured(wanted)
        weights = dag.weights()
        if weights is not None:
            known = known & (weights > 0).view(-1, *[1] * (known.dim() - 1))
        if isinstance(self.head, RegressionHead):
            wanted = (wanted - self.head.mean) / self.head.std
        columns = wanted.view(len(x), -1).T, known.view(len(x), -1).T
        for number, (y, is_known) in enumerate(zip(*columns, strict=True)):
            if is_known.any():
                own = None if weights is None else weights[is_known].double()
                self.targets[number] = self.fit_target(x[is_known], y[is_known], own)
            else:
                warnings.warn(
                    f"'{self.head.targets[number]}' is measured nowhere in the training part, so "
                    f"{type(self).__name__} says the same of every record.",
                    stacklevel=2,
                )

    @abstractmethod
    def empty(self) -> nn.Module:
        """A module for one target that is not fitted: [num_rows, num_outputs] zeros, raw."""

    @abstractmethod
    def fit_target(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> nn.Module:
        """A module from [num_rows, size] to what `raw` takes.

        Args:
            x: [num_rows, size] the inputs, float32.
            y: [num_rows] standardised numbers, or classes.
            weights: [num_rows] float64, how often each row counts, above 0; None for once.
        """

    def raw(self, fitted: Tensor) -> Tensor:
        """[num_rows, num_outputs] what the head decodes, from what a fitted module gives."""
        return fitted


def repeated(x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows for a library that samples and counts rows: whole weights as repetitions.

    There, a row of weight 2 is not the row twice: a forest draws rows whatever their weights, and
    the fewest rows of a leaf are rows. Weights that are not all whole, or would make more than
    `MOST_REPETITIONS` rows of each on average, are given back as they are.

    Returns:
        Inputs, targets and what weights are left; None for none.
    """
    if weights is None or bool((weights == 1).all()):
        return x, y, None
    if bool((weights != weights.round()).any()) or weights.mean() > MOST_REPETITIONS:
        return x, y, weights
    times = weights.long()
    return repeat(x, times), repeat(y, times), None


def draw_seed() -> int:
    """A seed for another library, from torch's generator."""
    return int(torch.randint(2**31 - 1, ()))


def import_ensemble(name: str) -> Any:
    """The module `sklearn.ensemble`.

    Raises:
        ConfigError: if scikit-learn is not installed; it names the model and the extra.
    """
    try:
        from sklearn import ensemble
    except ImportError as error:
        raise ConfigError(
            f"model={name} is fitted by scikit-learn, which cannot be imported ({error}). Install "
            "it with pip install 'graphfold[baselines]'."
        ) from error
    return ensemble


class CommitteeModel(FittedModel):
    """Says the mean of what its members say, each fitted to all of the training part.

    Members that err in different ways, such as trees and a kernel, err less together (Krogh and
    Vedelsby 1995). Numbers are averaged as they are, probabilities as logits or logarithms.

    Args:
        schema: the schema of the graphs.
        members: make the models, each a `FittedModel`.
        head: makes the `Head`.
        scalers: target name -> (mean, standard deviation) of the training part.

    Raises:
        ConfigError: if there are no members, or one cannot be made.
    """

    def __init__(
        self,
        schema: Schema,
        members: Sequence[Callable[..., FittedModel]],
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        super().__init__(schema, head, scalers)
        if not members:
            raise ConfigError("a committee has no members. Set model.members.")
        made = [build(item, schema=schema, head=head, scalers=scalers) for item in members]
        for number, member in enumerate(made):
            require_kind(member, FittedModel, f"model.members[{number}]")
        self.members = nn.ModuleList(made)

    def fit(self, dag: TypedDAG) -> None:
        """Fits every member."""
        for member in self.models:
            member.fit(dag)

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_graphs, ...] the mean of the members' rows."""
        return torch.stack([member.rows(states, batch) for member in self.models]).mean(0)

    @property
    def models(self) -> list[FittedModel]:
        """The members."""
        return [member for member in self.members if isinstance(member, FittedModel)]
