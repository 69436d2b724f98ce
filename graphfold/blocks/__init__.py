"""Blocks: whole models over nested data, composed of a few pieces that batch themselves.

The combinators of TensorFlow Fold: Looks et al. (2017), https://arxiv.org/abs/1702.02181,
section 3.
"""

from graphfold.blocks.block import Block, Identity, Pipe, convert_to_block
from graphfold.blocks.block_errors import (
    BlockIndexError,
    BlockKeyError,
    BlockTypeError,
    BlockValueError,
)
from graphfold.blocks.block_model import BlockModel
from graphfold.blocks.choices import OneOf, Optional
from graphfold.blocks.composition import Composition, compose
from graphfold.blocks.constants import FromTensor, Void, Zeros
from graphfold.blocks.declaration import ForwardDeclaration, recursive
from graphfold.blocks.folds import RNN, Fold, Reduce
from graphfold.blocks.function import Concat, Function
from graphfold.blocks.inference.types import (
    BroadcastSequenceType,
    PyObjectType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    VoidType,
    canonicalize_type,
    convert_to_type,
)
from graphfold.blocks.inputs import OneHot, OneHotFromList, Scalar, Tensor, Vector
from graphfold.blocks.layers import FC, Embedding, Layer, RNNCell
from graphfold.blocks.node_rows import Features, NodeRows
from graphfold.blocks.primitive import Primitive
from graphfold.blocks.record import AllOf, Record
from graphfold.blocks.reductions import Max, Mean, Min, Reduction, Sum
from graphfold.blocks.running.compare_blocks import verify
from graphfold.blocks.running.compiled import CompiledModel, compile
from graphfold.blocks.running.dataset import BlockDataset
from graphfold.blocks.running.results import Metric, Result
from graphfold.blocks.selection import GetItem, InputTransform, Length, Nth, Slice
from graphfold.blocks.sequences import Attention, Broadcast, Map, NGrams, Zip, ZipWith, attend

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
    "Primitive",
    "PyObjectType",
    "RNNCell",
    "Record",
    "Reduce",
    "Reduction",
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
