"""Layers: cells, encoders, readouts and heads, and the model that joins them."""

from graphfold.layers.baselines.boosting import BoostingModel
from graphfold.layers.baselines.committee import CommitteeModel
from graphfold.layers.baselines.forest import ForestModel
from graphfold.layers.baselines.kernel import KernelModel
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.encoders.feature_encoder import FeatureEncoder
from graphfold.layers.graph_model import GraphModel
from graphfold.layers.heads.classification import ClassificationHead, PairClassificationHead
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.multi_label import MultiLabelHead
from graphfold.layers.heads.regression import RegressionHead
from graphfold.layers.heads.relatedness import RelatednessHead
from graphfold.layers.model import Model
from graphfold.layers.molecules.dmpnn import DMPNNAtomCell, DMPNNBondCell
from graphfold.layers.molecules.fingerprint import FingerprintCell
from graphfold.layers.molecules.gcn import GCNCell
from graphfold.layers.molecules.gin import GINCell, GINECell
from graphfold.layers.readouts.pooling import AttentionReadout, MaxReadout, MeanReadout, SumReadout
from graphfold.layers.readouts.readout import (
    NodeReadout,
    OutputReadout,
    PairReadout,
    Readout,
    RootReadout,
)
from graphfold.layers.trees.leaf import LeafCell
from graphfold.layers.trees.tree_gru import TreeGRUCell
from graphfold.layers.trees.tree_lstm import ChildSumTreeLSTMCell, LeafLSTMCell, NaryTreeLSTMCell
from graphfold.layers.trees.tree_rnn import TreeFCCell, TreeRNNCell

__all__ = [
    "AttentionReadout",
    "BoostingModel",
    "ChildSumTreeLSTMCell",
    "ClassificationHead",
    "ColumnEncoder",
    "CommitteeModel",
    "DMPNNAtomCell",
    "DMPNNBondCell",
    "FeatureEncoder",
    "FingerprintCell",
    "ForestModel",
    "GCNCell",
    "GINCell",
    "GINECell",
    "GraphModel",
    "Head",
    "KernelModel",
    "LeafCell",
    "LeafLSTMCell",
    "MaxReadout",
    "MeanReadout",
    "Model",
    "MultiLabelHead",
    "NaryTreeLSTMCell",
    "NodeReadout",
    "OutputReadout",
    "PairClassificationHead",
    "PairReadout",
    "Readout",
    "RegressionHead",
    "RelatednessHead",
    "RootReadout",
    "SumReadout",
    "TreeFCCell",
    "TreeGRUCell",
    "TreeRNNCell",
]
