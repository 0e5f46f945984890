"""Tables in files: sources that are read in chunks, and sinks that are written in chunks."""

from altbi.files.open import open_source
from altbi.files.sink import SINKS, Sink, format_of, open_sink, stream_sink
from altbi.files.source import Source
from altbi.files.survey import Columns, RowSample, Survey, survey

__all__ = [
    "SINKS",
    "Columns",
    "RowSample",
    "Sink",
    "Source",
    "Survey",
    "format_of",
    "open_sink",
    "open_source",
    "stream_sink",
    "survey",
]
