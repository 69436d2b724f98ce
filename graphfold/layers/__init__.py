"""Layers: cells, encoders, readouts and heads, and the model that joins them."""

from graphfold.layers.classification import ClassificationHead, PairClassificationHead
from graphfold.layers.column_encoder import ColumnEncoder
from graphfold.layers.dmpnn import DMPNNAtomCell, DMPNNBondCell
from graphfold.layers.feature_encoder import FeatureEncoder
from graphfold.layers.fingerprint import FingerprintCell
from graphfold.layers.gcn import GCNCell
from graphfold.layers.gin import GINCell, GINECell
from graphfold.layers.graph_model import GraphModel
from graphfold.layers.head import Head
from graphfold.layers.leaf import LeafCell
from graphfold.layers.model import Model
from graphfold.layers.multi_label import MultiLabelHead
from graphfold.layers.pooling import AttentionReadout, MaxReadout, MeanReadout, SumReadout
from graphfold.layers.readout import (
    NodeReadout,
    OutputReadout,
    PairReadout,
    Readout,
    RootReadout,
)
from graphfold.layers.regression import RegressionHead
from graphfold.layers.relatedness import RelatednessHead
from graphfold.layers.tree_gru import TreeGRUCell
from graphfold.layers.tree_lstm import ChildSumTreeLSTMCell, LeafLSTMCell, NaryTreeLSTMCell
from graphfold.layers.tree_rnn import TreeFCCell, TreeRNNCell

__all__ = [
    "AttentionReadout",
    "ChildSumTreeLSTMCell",
    "ClassificationHead",
    "ColumnEncoder",
    "DMPNNAtomCell",
    "DMPNNBondCell",
    "FeatureEncoder",
    "FingerprintCell",
    "GCNCell",
    "GINCell",
    "GINECell",
    "GraphModel",
    "Head",
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
