"""Tables in files: read in chunks, written in chunks, scanned for types and a sample."""

from altbi.io._atomic import atomic_file, atomic_files, report_errors_as
from altbi.io._column_selection import (
    ColumnSelection,
    Label,
    SelectedColumns,
    format_names,
    parse_labels_column,
    select_columns,
)
from altbi.io._folders import UNFINISHED_MARKER, is_table_file
from altbi.io._open import open_table
from altbi.io._prefetch import prefetch, write_in_background
from altbi.io._progress import ProgressCallback, no_progress
from altbi.io._scan import (
    ColumnParser,
    RowSampler,
    ScanResult,
    TableScan,
    largest_sample_key,
    scan_table,
)
from altbi.io._source import Source
from altbi.io._type_inference import ExpectedType
from altbi.io._writers import (
    TableWriter,
    check_writable,
    format_of,
    open_stream_writer,
    open_writer,
)

__all__ = [
    "UNFINISHED_MARKER",
    "ColumnParser",
    "ColumnSelection",
    "ExpectedType",
    "Label",
    "ProgressCallback",
    "RowSampler",
    "ScanResult",
    "SelectedColumns",
    "Source",
    "TableScan",
    "TableWriter",
    "atomic_file",
    "atomic_files",
    "check_writable",
    "format_names",
    "format_of",
    "is_table_file",
    "largest_sample_key",
    "no_progress",
    "open_stream_writer",
    "open_table",
    "open_writer",
    "parse_labels_column",
    "prefetch",
    "report_errors_as",
    "scan_table",
    "select_columns",
    "write_in_background",
]
