"""Blocks: whole models over nested data, composed of a few pieces that batch themselves.

The combinators of TensorFlow Fold: Looks et al. (2017), https://arxiv.org/abs/1702.02181,
section 3.
"""

from graphfold.blocks.attention import Attention, attend
from graphfold.blocks.block import Block
from graphfold.blocks.choices import OneOf, Optional
from graphfold.blocks.compiled import CompiledModel, compile
from graphfold.blocks.compose import Pipe, compose
from graphfold.blocks.composition import Composition
from graphfold.blocks.concat import Concat
from graphfold.blocks.constants import FromTensor, Void, Zeros
from graphfold.blocks.convert import convert_to_block
from graphfold.blocks.dataset import BlockDataset
from graphfold.blocks.declaration import ForwardDeclaration, recursive
from graphfold.blocks.errors import (
    BlockIndexError,
    BlockKeyError,
    BlockTypeError,
    BlockValueError,
)
from graphfold.blocks.features import Features
from graphfold.blocks.folds import Fold, Reduce
from graphfold.blocks.function import Function
from graphfold.blocks.inputs import OneHot, OneHotFromList, Scalar, Tensor, Vector
from graphfold.blocks.layer import Layer
from graphfold.blocks.layers import FC, Embedding
from graphfold.blocks.metric import Metric
from graphfold.blocks.model import BlockModel
from graphfold.blocks.node_rows import NodeRows
from graphfold.blocks.record import AllOf, Record
from graphfold.blocks.recurrent import RNNCell
from graphfold.blocks.reductions import Max, Mean, Min, Sum
from graphfold.blocks.results import Result
from graphfold.blocks.rnn import RNN
from graphfold.blocks.sequences import Broadcast, Map, NGrams, Zip, ZipWith
from graphfold.blocks.simple import GetItem, Identity, InputTransform, Length, Nth, Slice
from graphfold.blocks.type_conversion import canonicalize_type, convert_to_type
from graphfold.blocks.types import (
    BroadcastSequenceType,
    PyObjectType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    VoidType,
)
from graphfold.blocks.verify import verify

__all__ = [
    "FC",
    "RNN",
    "AllOf",
    "Attention",
    "Block",
    "BlockDataset",
    "BlockIndexError",
    "BlockKeyError",
    "BlockModel",
    "BlockTypeError",
    "BlockValueError",
    "Broadcast",
    "BroadcastSequenceType",
    "CompiledModel",
    "Composition",
    "Concat",
    "Embedding",
    "Features",
    "Fold",
    "ForwardDeclaration",
    "FromTensor",
    "Function",
    "GetItem",
    "Identity",
    "InputTransform",
    "Layer",
    "Length",
    "Map",
    "Max",
    "Mean",
    "Metric",
    "Min",
    "NGrams",
    "NodeRows",
    "Nth",
    "OneHot",
    "OneHotFromList",
    "OneOf",
    "Optional",
    "Pipe",
    "PyObjectType",
    "RNNCell",
    "Record",
    "Reduce",
    "Result",
    "ResultType",
    "Scalar",
    "SequenceType",
    "Slice",
    "Sum",
    "Tensor",
    "TensorType",
    "TupleType",
    "Vector",
    "Void",
    "VoidType",
    "Zeros",
    "Zip",
    "ZipWith",
    "attend",
    "canonicalize_type",
    "compile",
    "compose",
    "convert_to_block",
    "convert_to_type",
    "recursive",
    "verify",
]
