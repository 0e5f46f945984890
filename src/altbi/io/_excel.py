"""Excel workbooks and OpenDocument spreadsheets: the first sheet with a table, read at once.

The workbook is read in a child process with limited memory. A small workbook can demand any amount
of it, and the library that reads it would end this process.
"""

import datetime
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from altbi.errors import MissingExtraError, TableError, describe_cause, list_names, shorten
from altbi.io._csv_header import name_columns
from altbi.io._excel_layout import Row, count_titles, has_data, has_table, is_filled
from altbi.io._excel_notes import describe_cells
from altbi.io._files import CompressedFile, report_damage
from altbi.io._number_formats import LIKE_THOUSANDS
from altbi.io._source import BATCH_ROWS, MemorySource, Source

# Limits of what a workbook unpacks to, and of the child process.
MAX_UNPACKED_BYTES = 1 << 31
MAX_MEMBERS = 10_000
_LEAST_MAX_BYTES, _LARGEST_MAX_BYTES = 1 << 31, 1 << 32
_MAX_CPU_SECONDS = 600

_REFUSED = 3  # exit code of the child process if it has written a message
CHILD = "from altbi.io._excel import run_child; run_child()"
# Memory that is reserved and not used counts against the limit.
_CHILD_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
_HEAD_ROWS = 50
_SHOWN_CELLS = 3

# The types of columns by those of their cells.
_TYPES = {
    bool: pa.bool_(),
    int: pa.float64(),
    float: pa.float64(),
    str: pa.string(),
    datetime.date: pa.timestamp("us"),
    datetime.datetime: pa.timestamp("us"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
}


def open_excel(packed: CompressedFile, *, header: bool | None = None) -> Source:
    """Open the first sheet with a table of a workbook: .xlsx, .xlsm, .xlsb, .xls or .ods.

    A sheet of notes, with less than three columns and 20 rows, is only read if no sheet has more.
    The sheet is held in memory. Types come from the cells. A column of several types becomes text,
    and the types of text columns are inferred as in CSV files. Empty cells and errors such as #N/A
    are missing. Lines above the names of the columns are skipped. The source has notes on all this.
    `header` is whether the first line holds the names; None detects it.

    A damaged or encrypted workbook, one that unpacks to more than `MAX_UNPACKED_BYTES`, one that
    needs more memory than the child process has, and one without rows raise a `TableError`.
    Without python-calamine, a `MissingExtraError` is raised.
    """
    if importlib.util.find_spec("python_calamine") is None:
        raise MissingExtraError(
            f"{packed.where}: reading Excel workbooks needs python-calamine. Install it with pip "
            "install 'altbi[excel]', or save the sheet as CSV."
        )
    _check_size(packed)
    arguments = json.dumps({"path": packed.path, "name": packed.name, "header": header})
    paths = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    child = subprocess.run(
        # -P: no module is imported from the working directory, which may hold hostile files.
        [sys.executable, "-P", "-c", CHILD, arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=os.environ | _CHILD_ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    if child.returncode == _REFUSED:
        raise TableError(child.stdout.decode())
    if child.returncode:
        cause = subprocess.CalledProcessError(child.returncode, CHILD)
        cause.add_note(child.stderr.decode(errors="replace"))
        raise TableError(
            f"{packed.where}: the workbook cannot be read. It seems damaged, or needs more than "
            f"{_compute_max_bytes() >> 30} GiB of memory. Save the sheet as CSV."
        ) from cause
    table = pa.ipc.open_stream(child.stdout).read_all()
    source = MemorySource(table.replace_schema_metadata(None))
    source.name, source.paths = packed.name, (packed.path,)
    source.format, source.is_untyped = "excel", True
    source.notes = json.loads(table.schema.metadata[b"notes"])
    return source


def _check_size(packed: CompressedFile) -> None:
    """Raise a `TableError` for a workbook that unpacks to too much, or whose zip is damaged.

    Files that are not zip archives, such as .xls, are only compared with the limit themselves.
    """
    n_bytes, n_members = Path(packed.path).stat().st_size, 1
    if zipfile.is_zipfile(packed.path):
        with report_damage(packed.where, "the workbook"), zipfile.ZipFile(packed.path) as archive:
            sizes = [member.file_size for member in archive.infolist()]
        n_bytes, n_members = sum(sizes), len(sizes)
    if n_bytes > MAX_UNPACKED_BYTES or n_members > MAX_MEMBERS:
        raise TableError(
            f"{packed.where}: the workbook unpacks to {n_bytes >> 20} MiB in {n_members} files, "
            f"but at most {MAX_UNPACKED_BYTES >> 20} MiB in {MAX_MEMBERS} files are read. Save the "
            "sheet as CSV."
        )


def run_child() -> None:
    """Read the workbook that the first argument of the process describes, and write the result.

    The standard output is an Arrow IPC stream with notes in its metadata. If the workbook is
    refused, it is a message, and the exit code is `_REFUSED`.
    """
    _limit_child()
    request = json.loads(sys.argv[1])
    try:
        table, notes = read_workbook(
            CompressedFile(request["path"], request["name"]), request["header"]
        )
    except TableError as error:
        sys.stdout.buffer.write(str(error).encode())
        sys.exit(_REFUSED)
    table = table.replace_schema_metadata({"notes": json.dumps(notes)})
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
        writer.write_table(table, BATCH_ROWS)


def _limit_child() -> None:
    """Limit memory and time of this process, where the operating system can."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_compute_max_bytes(),) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _compute_max_bytes() -> int:
    """Return how many bytes the child process may use: half of the memory, but 2 to 4 GiB."""
    if not hasattr(os, "sysconf"):
        return _LEAST_MAX_BYTES
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(installed // 2, _LEAST_MAX_BYTES), _LARGEST_MAX_BYTES)


def read_workbook(packed: CompressedFile, header: bool | None) -> tuple[pa.Table, list[str]]:
    """Return the first sheet with a table, and notes; see `open_excel`."""
    name, rows, others = _find_sheet(packed)
    where = f"{packed.where}, sheet {name!r}"
    filled = (row for row in rows if any(map(is_filled, row)))
    head = list(itertools.islice(filled, _HEAD_ROWS))
    n_titles = 0 if header is False else count_titles(head)
    titles, first, body = head[:n_titles], head[n_titles], head[n_titles + 1 :]
    cells = [_format_cell(cell) for cell in first]
    if not name_columns(cells, header, where).header:
        body.insert(0, first)
    columns = _build_columns(itertools.chain(body, filled))
    if not columns:
        more = f" To read one of the sheets {list_names(others)}, save it as CSV." if others else ""
        raise TableError(
            f"{where}: it holds no rows, only the line with the names of the columns. If that line "
            f"is a row, pass --no-header.{more}"
        )
    # Cells that are only formatted make columns without any content.
    kept = [index for index, text in enumerate(cells) if text or _has_values(columns[index])]
    named = name_columns([cells[index] for index in kept], header, where)
    table = pa.table([columns[index] for index in kept], named.names)
    notes = [*_describe_sheets(packed, name, others), *_describe_titles(where, titles)]
    return table, [*notes, *named.notes, *describe_cells(packed, name, where)]


def _find_sheet(packed: CompressedFile) -> tuple[str, Iterator[Row], list[str]]:
    """Return the name and the rows of the first visible sheet with a table, and the other names.

    If all sheets with data are notes, it is the first of them. All rows have the same length, and
    empty cells are "". Damaged and encrypted workbooks, and workbooks without data, raise a
    `TableError`.
    """
    import python_calamine

    try:
        with Path(packed.path).open("rb") as file:
            workbook = python_calamine.CalamineWorkbook.from_filelike(file)
        visible = [
            each.name
            for each in workbook.sheets_metadata
            if each.typ == python_calamine.SheetTypeEnum.WorkSheet
            and each.visible == python_calamine.SheetVisibleEnum.Visible
        ]
        for is_chosen in (has_table, has_data):
            for name in visible:
                sheet = workbook.get_sheet_by_name(name)
                if is_chosen(sheet.iter_rows()):
                    others = [other for other in workbook.sheet_names if other != name]
                    return name, sheet.iter_rows(), others
    except python_calamine.PasswordError as cause:
        raise TableError(
            f"{packed.where}: the workbook is encrypted. Save it without a password, or as CSV."
        ) from cause
    except python_calamine.CalamineError as cause:
        raise TableError(
            f"{packed.where}: the workbook cannot be read ({describe_cause(cause)}). It seems "
            "damaged: save it again, or save the sheet as CSV."
        ) from cause
    raise TableError(f"{packed.where}: no visible sheet holds data. Expected one with a table.")


def _build_columns(rows: Iterator[Row]) -> list[pa.ChunkedArray]:
    """Return the columns of a sheet; there are none without rows."""
    chunks: list[list[pa.Array]] = []
    while chunk := list(itertools.islice(rows, BATCH_ROWS)):
        chunks.append([_build_array(cells) for cells in zip(*chunk, strict=True)])
    return [_unify(list(arrays)) for arrays in zip(*chunks, strict=True)]


def _build_array(cells: Sequence[Any]) -> pa.Array:
    """Return cells as an array of their type; cells of several types become text."""
    values = [cell if is_filled(cell) else None for cell in cells]
    types = {_TYPES[type(value)] for value in values if value is not None}
    if len(types) > 1:
        return _format_values(values)
    type_ = types.pop() if types else pa.null()
    if pa.types.is_timestamp(type_):
        values = [_to_datetime(value) for value in values]
    return pa.array(values, type_)


def _unify(arrays: list[pa.Array]) -> pa.ChunkedArray:
    """Return the arrays of a column as one; arrays of several types become text."""
    types = {array.type for array in arrays} - {pa.null()}
    type_ = types.pop() if len(types) == 1 else pa.string()
    return pa.chunked_array(
        [
            array.cast(type_)
            if array.type in (type_, pa.null())
            else _format_values(array.to_pylist())
            for array in arrays
        ],
        type_,
    )


def _to_datetime(value: datetime.date | None) -> datetime.datetime | None:
    """Return a date as the moment at which it begins; moments are returned unchanged."""
    if value is None or isinstance(value, datetime.datetime):
        return value
    return datetime.datetime.combine(value, datetime.time())


def _format_values(values: Sequence[Any]) -> pa.Array:
    """Return the values of cells as texts, and None as null.

    The number 1.234 becomes 1.2340, so that its point is not taken for a thousands separator.
    """
    texts = [None if value is None else _format_cell(value) for value in values]
    for index, value in enumerate(values):
        if isinstance(value, float) and re.fullmatch(LIKE_THOUSANDS, texts[index] or ""):
            texts[index] = f"{texts[index]}0"
    return pa.array(texts, pa.string())


def _format_cell(value: Any) -> str:  # noqa: ANN401 - a cell
    """Return a cell as a text that `TypeInference` would parse to its value.

    Numbers have as many digits as necessary. Moments at midnight are dates.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _has_values(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds a value."""
    return bool(column.null_count < len(column))


def _describe_sheets(packed: CompressedFile, name: str, others: list[str]) -> list[str]:
    """Return a list of one note that names the sheets, or of none if there is only one."""
    if not others:
        return []
    return [
        f"Of the sheets of {packed.where}, {name!r} was read, but not {list_names(others)}. Save "
        "another sheet as CSV to read it."
    ]


def _describe_titles(where: str, titles: list[Row]) -> list[str]:
    """Return a list of one note on the lines above the table, or of none."""
    if not titles:
        return []
    texts = [_format_cell(cell) for row in titles for cell in row if is_filled(cell)]
    shown = [repr(shorten(text, 40)) for text in texts[:_SHOWN_CELLS]]
    more = ", …" if len(texts) > _SHOWN_CELLS else ""
    return [f"Lines above the table in {where} were skipped: {', '.join(shown)}{more}."]
