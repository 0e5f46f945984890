"""Tables in files: read in chunks, written in chunks, scanned for types and a sample."""

from altbi.io._atomic_files import (
    atomic_file,
    atomic_files,
    remove_leftovers,
    report_errors_as,
)
from altbi.io._expected_type import ExpectedType
from altbi.io._formulas import quote_names, unquote_formulas
from altbi.io._open import UNFINISHED_MARKER, is_table_file, open_table
from altbi.io._private_folder import PrivateFolder
from altbi.io._scan import (
    ColumnParser,
    ColumnSelection,
    Label,
    ScanResult,
    SelectedColumns,
    TableScan,
    build_typed_parser,
    parse_labels_column,
    scan_table,
    select_columns,
)
from altbi.io._source import (
    ProgressCallback,
    Source,
    check_types,
    no_progress,
    open_in_memory,
    prefetch,
)
from altbi.io._sql import open_sql
from altbi.io._text_batches import InferenceState, is_total
from altbi.io._text_formats import PLAIN_FORMATS
from altbi.io._type_notes import describe_total
from altbi.io._writers import (
    TableWriter,
    check_writable,
    infer_format,
    open_stream_writer,
    open_writer,
    write_in_background,
)

__all__ = [
    "PLAIN_FORMATS",
    "UNFINISHED_MARKER",
    "ColumnParser",
    "ColumnSelection",
    "ExpectedType",
    "InferenceState",
    "Label",
    "PrivateFolder",
    "ProgressCallback",
    "ScanResult",
    "SelectedColumns",
    "Source",
    "TableScan",
    "TableWriter",
    "atomic_file",
    "atomic_files",
    "build_typed_parser",
    "check_types",
    "check_writable",
    "describe_total",
    "infer_format",
    "is_table_file",
    "is_total",
    "no_progress",
    "open_in_memory",
    "open_sql",
    "open_stream_writer",
    "open_table",
    "open_writer",
    "parse_labels_column",
    "prefetch",
    "quote_names",
    "remove_leftovers",
    "report_errors_as",
    "scan_table",
    "select_columns",
    "unquote_formulas",
    "write_in_background",
]
