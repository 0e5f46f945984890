"""Tables in files: sources that are read in chunks, and sinks that are written in chunks."""

from altbi.files.ahead import ahead, behind
from altbi.files.folder import UNFINISHED, is_part_of_table
from altbi.files.open import open_source
from altbi.files.settle import Expected, missing_words, present_cells
from altbi.files.sink import SINKS, Sink, check_writable, format_of, open_sink, stream_sink
from altbi.files.source import Source
from altbi.files.survey import Columns, Look, RowSample, Survey, key_bar, survey

__all__ = [
    "SINKS",
    "UNFINISHED",
    "Columns",
    "Expected",
    "Look",
    "RowSample",
    "Sink",
    "Source",
    "Survey",
    "ahead",
    "behind",
    "check_writable",
    "format_of",
    "is_part_of_table",
    "key_bar",
    "missing_words",
    "open_sink",
    "open_source",
    "present_cells",
    "stream_sink",
    "survey",
]
