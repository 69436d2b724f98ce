"""The members of an ensemble in a run folder: each trained in a folder of its own, then joined."""

from __future__ import annotations

from collections.abc import Sequence

from graphfold.files import write_bytes
from graphfold.training.run.best_and_last import read_progress
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics


def join_members(folder: RunFolder, members: Sequence[RunFolder]) -> None:
    """Writes best.ckpt of an ensemble: the best epoch of every member."""
    whole = Checkpoint.join([Checkpoint.load(member.best) for member in members])
    write_bytes(folder.best, whole.encode())


def read_histories(members: Sequence[RunFolder]) -> list[Metrics]:
    """The metrics of every epoch; of an ensemble with the number of the member before them."""
    histories = [list(read_progress(Checkpoint.load(m.last))["history"]) for m in members]
    if len(members) == 1:
        return histories[0]
    return [
        {"member": number, **row}
        for number, history in enumerate(histories, start=1)
        for row in history
    ]
