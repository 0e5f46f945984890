"""JSON lines: one object per line, objects within it flattened."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from altbi.errors import TableError
from altbi.io._compressed import CompressedFile, first_line, limited
from altbi.io._csv_header import check_names
from altbi.io._encodings import utf8_pieces
from altbi.io._json_types import JsonTypes, Written, read_rows
from altbi.io._line_blocks import Block, complete_lines
from altbi.io._source import Source

__all__ = ["JsonLinesSource", "open_json_lines"]

Path = tuple[str, ...]


@final
class JsonLinesSource(Source):
    """A JSON lines file.

    Parameters
    ----------
    packed : CompressedFile
        The file.
    encoding : str
        What it is written in.
    columns : mapping
        For each path of keys, the type of its column; the column's name is ``a.b``.
    plain : bool
        Whether Arrow can read the file by itself.
    n_rows : int
        How many lines are not blank.
    notes : list of str
        What was assumed.
    """

    format = "jsonl"
    loose = True

    def __init__(
        self,
        packed: CompressedFile,
        *,
        encoding: str,
        columns: Mapping[Path, pa.DataType],
        plain: bool,
        n_rows: int,
        notes: list[str],
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.schema = pa.schema([(".".join(path), type_) for path, type_ in columns.items()])
        self.n_rows = n_rows
        self.notes = notes
        self._packed = packed
        self._encoding = encoding
        self._paths = {".".join(path): path for path in columns}
        self._plain = plain

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, block by block."""
        wanted = list(columns)
        some = wanted or self.schema.names[:1]
        for block in _blocks(self._packed, self._encoding):
            arrays = self._read_by_arrow(block, some) if self._plain else self._read(block, some)
            schema = pa.schema([self.schema.field(name) for name in some])
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield from limited(batch.select(wanted))

    def _read_by_arrow(self, block: Block, names: list[str]) -> list[pa.Array]:
        tree: dict[str, Any] = {}
        for name in names:
            *above, last = self._paths[name]
            node = tree
            for key in above:
                node = node.setdefault(key, {})
            node[last] = self.schema.field(name).type
        try:
            table = pajson.read_json(
                pa.BufferReader(block.data),
                read_options=pajson.ReadOptions(block_size=len(block.data) + 1),
                parse_options=pajson.ParseOptions(
                    explicit_schema=pa.schema(_fields(tree)), unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowException, UnicodeError) as cause:
            raise self._changed(block, cause) from cause
        return [_at(table, self._paths[name]) for name in names]

    def _read(self, block: Block, names: list[str]) -> list[pa.Array]:
        cells: list[list[Any]] = [[] for _ in names]
        wanted = [(self._paths[name], self.schema.field(name).type) for name in names]
        try:
            for _, row in read_rows(block, self._packed.where):
                for column, (path, type_) in zip(cells, wanted, strict=True):
                    column.append(_typed(_dig(row, path), type_))
            return [
                pa.array(column, type_) for column, (_, type_) in zip(cells, wanted, strict=True)
            ]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            if isinstance(cause, TableError):
                raise
            raise self._changed(block, cause) from cause

    def _changed(self, block: Block, cause: BaseException) -> TableError:
        return TableError(
            f"{self._packed.where}: the lines from {block.line} on are not what they were when the "
            f"file was opened ({first_line(cause)}). Read it again when nobody writes to it."
        )


def open_json_lines(packed: CompressedFile, encoding: str, notes: list[str]) -> JsonLinesSource:
    """TableScan through a JSON lines file once, for its columns and their types."""
    seen = JsonTypes(packed.where)
    for block in _blocks(packed, encoding):
        seen.add(block)
    if not seen.n_rows:
        raise TableError(f"{packed.where}: it holds no rows. Expected one JSON object per line.")
    columns = seen.columns()
    check_names([".".join(path) for path in columns], packed.where)
    return JsonLinesSource(
        packed,
        encoding=encoding,
        columns=columns,
        plain=seen.plain and "mixed" not in seen.kinds.values(),
        n_rows=seen.n_rows,
        notes=[*notes, *seen.notes()],
    )


def _blocks(packed: CompressedFile, encoding: str) -> Iterator[Block]:
    def cut(data: bytes) -> int:
        return data.rfind(b"\n") + 1

    return complete_lines(utf8_pieces(packed, encoding), cut, packed.where)


def _fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [
        pa.field(key, pa.struct(_fields(below)) if isinstance(below, dict) else below)
        for key, below in tree.items()
    ]


def _at(table: pa.Table, path: Path) -> pa.Array:
    """Give the column at the end of a path; below a missing object, everything is missing."""
    column = table.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _dig(row: Any, path: Path) -> Any:  # noqa: ANN401 - whatever the line holds
    for key in path:
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


def _typed(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    if type_ == pa.string():
        # Truth is written as JSON writes it; all else is a text already, or was left as one.
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, Written):
        return int(value) if type_ == pa.int64() else float(value)
    return value
