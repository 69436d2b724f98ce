"""All rows of the table of effects."""

from effects import (
    cell_options,
    command_options,
    corpus_options,
    data_options,
    doctor_options,
    head_options,
    model_options,
    molecule_options,
    readout_options,
    text_options,
    training_options,
    tune_options,
)
from effects.table import rows_of

ROWS = rows_of(
    data_options,
    text_options,
    molecule_options,
    corpus_options,
    cell_options,
    readout_options,
    head_options,
    model_options,
    training_options,
    doctor_options,
    command_options,
    tune_options,
)
