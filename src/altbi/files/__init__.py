"""Tables in files: sources that are read in chunks, and sinks that are written in chunks."""

from altbi.files.ahead import ahead, behind
from altbi.files.folder import UNFINISHED
from altbi.files.open import open_source
from altbi.files.sink import SINKS, Sink, format_of, open_sink, stream_sink
from altbi.files.source import Source
from altbi.files.survey import Columns, Look, RowSample, Survey, key_bar, survey

__all__ = [
    "SINKS",
    "UNFINISHED",
    "Columns",
    "Look",
    "RowSample",
    "Sink",
    "Source",
    "Survey",
    "ahead",
    "behind",
    "format_of",
    "key_bar",
    "open_sink",
    "open_source",
    "stream_sink",
    "survey",
]
