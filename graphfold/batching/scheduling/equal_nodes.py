"""Equal nodes: which nodes must come to the same state, stage by stage.

Whether two nodes are equal does not depend on what else there is: nodes of a batch are equal if and
only if they are so in the corpus. So a loader finds them once for all its batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from graphfold.batching.scheduling.equal_in_rounds import find_equal_in_rounds
from graphfold.batching.scheduling.passes import Pass, Rounds, Up
from graphfold.batching.scheduling.sharing import Distinct, find_differing, find_distinct
from graphfold.dag import TypedDAG


def find_equal(dag: TypedDAG, passes: Sequence[Pass]) -> tuple[Distinct, ...]:
    """Which nodes are equal before all passes, then after each stage of those that share.

    A pass up is one stage, and so is each round of message passing.

    Args:
        dag: a batch or a whole corpus, on the CPU.
        passes: the passes of the model, in order.

    Raises:
        SchemaError: if a pass names a relation that the schema lacks.
    """
    found = [find_differing(dag)]
    for item in sharing_passes(passes):
        if isinstance(item, Rounds):
            found += find_equal_in_rounds(dag, item, found[-1])
        else:
            found.append(find_distinct(dag, found[0]))
    return tuple(found)


def sharing_passes(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """The passes that share: those up from the beginning, and the rounds that follow them."""
    ups = tuple(takewhile(lambda item: isinstance(item, Up), passes))
    rounds = takewhile(lambda item: isinstance(item, Rounds), passes[len(ups) :])
    return (*ups, *rounds)
