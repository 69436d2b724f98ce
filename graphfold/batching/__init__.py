"""Scheduling and engines: cells of one node, run for whole batches of graphs."""

from graphfold.batching.batch import Batch
from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.batching.network import Network
from graphfold.batching.scheduling.passes import Down, Pass, Rounds, Up
from graphfold.batching.scheduling.policies import POLICIES
from graphfold.batching.scheduling.schedule import PassSchedule, Schedule, build_schedule
from graphfold.batching.states import States

__all__ = [
    "POLICIES",
    "Batch",
    "Cell",
    "Children",
    "Down",
    "Network",
    "NodeInput",
    "Pass",
    "PassSchedule",
    "Rounds",
    "Schedule",
    "State",
    "States",
    "Up",
    "build_schedule",
]
