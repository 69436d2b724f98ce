"""All rows of the table of effects."""

from effects import molecule_options, text_options
from effects.table import rows_of

ROWS = rows_of(text_options, molecule_options)
