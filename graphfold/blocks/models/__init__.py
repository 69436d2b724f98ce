"""Root blocks that configs may name, each made by a function of the encoded schema."""

from graphfold.blocks.models.neighbourhood import neighbourhood
from graphfold.blocks.models.tree_lstm import tree_lstm

__all__ = ["neighbourhood", "tree_lstm"]
