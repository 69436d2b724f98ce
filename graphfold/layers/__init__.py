"""Layers: cells, encoders, readouts and heads, and the model that joins them."""

from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.encoders.feature_encoder import FeatureEncoder
from graphfold.layers.graph_model import GraphModel
from graphfold.layers.heads.classification import (
    ClassificationHead,
    MultiLabelHead,
    PairClassificationHead,
)
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.numbers import (
    EvidentialHead,
    MeanVarianceHead,
    QuantileHead,
    RegressionHead,
)
from graphfold.layers.heads.relatedness import RelatednessHead
from graphfold.layers.model import Model
from graphfold.layers.molecules.attention import (
    AttentiveFPCell,
    AttentiveFPFirstCell,
    GATCell,
    GATv2Cell,
)
from graphfold.layers.molecules.convolutions import GCNCell, GINCell, GINECell, PNACell
from graphfold.layers.molecules.fingerprint_cell import FingerprintCell
from graphfold.layers.molecules.fragment_cells import FragmentCell, ReadersCell
from graphfold.layers.molecules.mpnn import (
    DMPNNAtomCell,
    DMPNNBondCell,
    GGNNCell,
    MPNNCell,
    WeaveAtomCell,
    WeavePairCell,
)
from graphfold.layers.readouts.pooling import (
    AttentionReadout,
    AttentiveReadout,
    GatedReadout,
    MaxReadout,
    MeanReadout,
    ScaledSumReadout,
    Set2SetReadout,
    SumReadout,
)
from graphfold.layers.readouts.readout import (
    BondReadout,
    NodeReadout,
    OutputReadout,
    PairReadout,
    Readout,
    RootReadout,
    TypeReadout,
)
from graphfold.layers.trees.alignment import AlignmentCell
from graphfold.layers.trees.inside_outside import InsideCell, LabelCell, OutsideCell
from graphfold.layers.trees.leaves_and_bags import BagCell, DeepSetCell, LeafCell, NeighboursCell
from graphfold.layers.trees.tree_convolution import (
    TreeCodingCell,
    TreeConvolutionCell,
    TreePoolingCell,
)
from graphfold.layers.trees.tree_lstm import (
    AttentiveTreeLSTMCell,
    ChildSumTreeLSTMCell,
    LeafLSTMCell,
    NaryTreeLSTMCell,
    RelationTreeLSTMCell,
)
from graphfold.layers.trees.tree_rnn import (
    MVLeafCell,
    MVRNNCell,
    RNTNCell,
    TreeFCCell,
    TreeGRUCell,
    TreeRNNCell,
)

__all__ = [
    "AlignmentCell",
    "AttentionReadout",
    "AttentiveFPCell",
    "AttentiveFPFirstCell",
    "AttentiveReadout",
    "AttentiveTreeLSTMCell",
    "BagCell",
    "BondReadout",
    "ChildSumTreeLSTMCell",
    "ClassificationHead",
    "ColumnEncoder",
    "DMPNNAtomCell",
    "DMPNNBondCell",
    "DeepSetCell",
    "EvidentialHead",
    "FeatureEncoder",
    "FingerprintCell",
    "FragmentCell",
    "GATCell",
    "GATv2Cell",
    "GCNCell",
    "GGNNCell",
    "GINCell",
    "GINECell",
    "GatedReadout",
    "GraphModel",
    "Head",
    "InsideCell",
    "LabelCell",
    "LeafCell",
    "LeafLSTMCell",
    "MPNNCell",
    "MVLeafCell",
    "MVRNNCell",
    "MaxReadout",
    "MeanReadout",
    "MeanVarianceHead",
    "Model",
    "MultiLabelHead",
    "NaryTreeLSTMCell",
    "NeighboursCell",
    "NodeReadout",
    "OutputReadout",
    "OutsideCell",
    "PNACell",
    "PairClassificationHead",
    "PairReadout",
    "QuantileHead",
    "RNTNCell",
    "ReadersCell",
    "Readout",
    "RegressionHead",
    "RelatednessHead",
    "RelationTreeLSTMCell",
    "RootReadout",
    "ScaledSumReadout",
    "Set2SetReadout",
    "SumReadout",
    "TreeCodingCell",
    "TreeConvolutionCell",
    "TreeFCCell",
    "TreeGRUCell",
    "TreePoolingCell",
    "TreeRNNCell",
    "TypeReadout",
    "WeaveAtomCell",
    "WeavePairCell",
]
