"""FittedModel: the base of models that are fitted to all of the training part at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import nn

from graphfold.batching import Batch, Network, Pass, States
from graphfold.dag import Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers.assembly import build
from graphfold.layers.encoders.feature_encoder import GraphInputs
from graphfold.layers.heads.classification import ClassificationHead
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.multi_label import MultiLabelHead
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
