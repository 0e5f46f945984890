"""JSON lines: one object per line; nested objects are flattened."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from altbi.errors import TableError
from altbi.io._files import Block, CompressedFile, describe_cause, read_utf8, split_lines
from altbi.io._source import Source, check_names, split_batch

Kind = Literal["null", "bool", "int", "double", "string", "mixed", "object", "clash"]
Path = tuple[str, ...]

_MAX_DEPTH = 32
_BLANK = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_KINDS: dict[pa.DataType, Kind] = {
    pa.null(): "null",
    pa.bool_(): "bool",
    pa.int64(): "int",
    pa.float64(): "double",
    pa.string(): "string",
}


@final
class JsonLinesSource(Source):
    """A JSON lines file; `columns` has the type at each path of keys."""

    format = "jsonl"
    is_untyped = True

    def __init__(
        self,
        packed: CompressedFile,
        *,
        encoding: str,
        columns: Mapping[Path, pa.DataType],
        is_plain: bool,
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
        self._is_plain = is_plain

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns, block by block."""
        wanted = list(columns)
        some = wanted or self.schema.names[:1]
        for block in _blocks(self._packed, self._encoding):
            arrays = self._read_by_arrow(block, some) if self._is_plain else self._read(block, some)
            schema = pa.schema([self.schema.field(name) for name in some])
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield from split_batch(batch.select(wanted))

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
            raise self._changed_error(block, cause) from cause
        return [_at(table, self._paths[name]) for name in names]

    def _read(self, block: Block, names: list[str]) -> list[pa.Array]:
        cells: list[list[Any]] = [[] for _ in names]
        wanted = [(self._paths[name], self.schema.field(name).type) for name in names]
        try:
            for _, row in _read_objects(block, self._packed.where):
                for column, (path, type_) in zip(cells, wanted, strict=True):
                    column.append(_convert(_get(row, path), type_))
            return [
                pa.array(column, type_) for column, (_, type_) in zip(cells, wanted, strict=True)
            ]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            if isinstance(cause, TableError):
                raise
            raise self._changed_error(block, cause) from cause

    def _changed_error(self, block: Block, cause: BaseException) -> TableError:
        return TableError(
            f"{self._packed.where}: the lines from {block.line} on are not what they were when the "
            f"file was opened ({describe_cause(cause)}). Read it again when nobody writes to it."
        )


def open_json_lines(packed: CompressedFile, encoding: str, notes: list[str]) -> JsonLinesSource:
    """Open a JSON lines file; it is read once for its columns and their types."""
    seen = _ColumnTypes(packed.where)
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
        is_plain=seen.is_plain and "mixed" not in seen.kinds.values(),
        n_rows=seen.n_rows,
        notes=[*notes, *seen.notes()],
    )


def _blocks(packed: CompressedFile, encoding: str) -> Iterator[Block]:
    def find_end(data: bytes) -> int:
        return data.rfind(b"\n") + 1

    return split_lines(read_utf8(packed, encoding), find_end, packed.where)


def _fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [
        pa.field(key, pa.struct(_fields(below)) if isinstance(below, dict) else below)
        for key, below in tree.items()
    ]


def _at(table: pa.Table, path: Path) -> pa.Array:
    """Return the column at a path; values inside a missing object are missing."""
    column = table.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _get(row: Any, path: Path) -> Any:  # noqa: ANN401 - whatever the line holds
    for key in path:
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


def _convert(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    if type_ == pa.string():
        # Truth is written as JSON writes it; all else is a text already, or was left as one.
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, _NumberText):
        return int(value) if type_ == pa.int64() else float(value)
    return value


class _NumberText(str):
    """A number as it is written in the file."""

    __slots__ = ()


_DECODER = json.JSONDecoder(
    parse_int=_NumberText, parse_float=_NumberText, parse_constant=_NumberText, strict=False
)


class _ColumnTypes:
    """The kinds of values under each key of a file.

    Parameters
    ----------
    where : str
        Name of the file in messages.

    Attributes
    ----------
    kinds : dict
        The kind at each path of keys, in the order of first appearance.
    is_plain : bool
        Whether Arrow can read the file; otherwise Python reads it line by line.
    n_rows : int
        Lines that are not blank.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.kinds: dict[Path, Kind] = {}
        self.lists: dict[str, int] = {}
        self.is_plain = True
        self.n_rows = 0

    def notes(self) -> Iterator[str]:
        """Yield a note for each column that holds lists."""
        for name, line in self.lists.items():
            yield f"Column {name!r} holds lists (line {line}); they are read as text."

    def add(self, block: Block) -> None:
        """Add the next lines."""
        quick = _quick_kinds(block.data)
        if quick is None or not self._fits(quick[0]):
            self._add_by_line(block)
            return
        for path, kind in quick[0].items():
            self.kinds[path] = _join(self.kinds.get(path, "null"), kind)
        self.n_rows += quick[1]

    def columns(self) -> dict[Path, pa.DataType]:
        """Return the type of each column; columns of one object are adjacent."""
        types = {kind: type_ for type_, kind in _KINDS.items()} | {"mixed": pa.string()}
        tree: dict[str, Any] = {}
        for path in self.kinds:
            node = tree
            for key in path:
                node = node.setdefault(key, {})
        return {
            path: types[self.kinds[path]] for path in _leaves(tree) if self.kinds[path] != "object"
        }

    def _fits(self, kinds: Mapping[Path, Kind]) -> bool:
        joined = (_join(self.kinds.get(path, "null"), kind) for path, kind in kinds.items())
        return "clash" not in joined

    def _add_by_line(self, block: Block) -> None:
        """Add the next lines one by one, because Arrow cannot read some of them."""
        self.is_plain = False
        for line, row in _read_objects(block, self.where):
            self.n_rows += 1
            for path, value in _walk(row, self.where, line):
                before = self.kinds.get(path, "null")
                kind = _join(before, _kind(value, f"{self.where}: line {line}", path))
                if isinstance(value, list):
                    self.lists[".".join(path)] = line
                if kind == "clash":
                    raise TableError(
                        f"{self.where}: line {line}: {'.'.join(path)!r} holds an object in some "
                        "lines and a plain value in others. Use different names."
                    )
                self.kinds[path] = kind


def _read_objects(block: Block, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object of each line that is not blank; numbers stay as written."""
    for line, text in enumerate(block.data.split(b"\n"), start=block.line):
        if not text.strip():
            continue
        try:
            row = _DECODER.decode(text.decode().strip())
        except (ValueError, RecursionError) as cause:
            raise TableError(
                f"{where}: line {line} is no JSON ({_reason(cause)}). Expected one object on each "
                "line; jq -c . FILE writes them so."
            ) from cause
        if not isinstance(row, dict):
            raise TableError(
                f"{where}: line {line} holds no object, but expected names and values as in "
                '{"price": 1.5}.'
            )
        yield line, row


def _walk(row: dict[str, Any], where: str, line: int) -> Iterator[tuple[Path, Any]]:
    """Yield the paths and values of an object and its nested objects."""
    pending: list[tuple[Path, Any]] = [((key,), value) for key, value in reversed(row.items())]
    while pending:
        path, value = pending.pop()
        yield path, value
        if isinstance(value, dict):
            if len(path) == _MAX_DEPTH:
                raise TableError(
                    f"{where}: line {line} has objects within objects, more than {_MAX_DEPTH} "
                    "deep. Write flatter lines."
                )
            pending += [((*path, key), inner) for key, inner in reversed(value.items())]


def _kind(value: object, where: str, path: Path) -> Kind:
    name = ".".join(path)
    if isinstance(value, list):
        return "mixed"
    if isinstance(value, str) or not name.isascii():
        _check_letters(value, name, where)
    if isinstance(value, _NumberText):
        is_integer = value.lstrip("-").isdigit()
        return "int" if is_integer and len(value) <= 20 and _in_int64(int(value)) else "double"
    kinds: dict[type, Kind] = {bool: "bool", str: "string", dict: "object"}
    return kinds.get(type(value), "null")


def _in_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _check_letters(value: object, name: str, where: str) -> None:
    """Raise an error for half of a surrogate pair, which is not a letter."""
    try:
        (name + value if isinstance(value, str) else name).encode()
    except UnicodeEncodeError as cause:
        raise TableError(
            f"{where}: column {name!r} holds half a letter ({cause.object[cause.start]!a}). "
            "Write the text again."
        ) from cause


def _join(one: Kind, other: Kind) -> Kind:
    """Return the narrowest kind that holds both; an object and a plain value clash."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if "object" in (one, other):
        return "clash"
    return "double" if {one, other} == {"int", "double"} else "mixed"


def _quick_kinds(data: bytes) -> tuple[dict[Path, Kind], int] | None:
    """Return the kinds that Arrow infers; None if it cannot read the lines."""
    if _may_be_deep(data):
        return None
    options = pajson.ReadOptions(block_size=len(data) + 1)
    try:
        table = pajson.read_json(pa.BufferReader(data), read_options=options)
    except (pa.ArrowException, UnicodeError):
        return None
    kinds = dict(_arrow_kinds(table.schema))
    if None in kinds.values() or table.num_rows != data.count(b"\n") - len(_BLANK.findall(data)):
        return None
    return {path: kind for path, kind in kinds.items() if kind}, table.num_rows


def _arrow_kinds(
    fields: Iterable[pa.Field], above: Path = ()
) -> Iterator[tuple[Path, Kind | None]]:
    for field in fields:
        path = (*above, field.name)
        if len(path) > _MAX_DEPTH:
            yield path, None
        elif pa.types.is_struct(field.type):
            yield path, "object"
            yield from _arrow_kinds(field.type, path)
        elif pa.types.is_temporal(field.type):
            yield path, "string"  # Arrow has read a date, but the file holds a text
        else:
            yield path, _KINDS.get(field.type)


def _may_be_deep(data: bytes) -> bool:
    """Return whether a line may nest so deep that Arrow's reader would overflow its stack."""
    opening = data.count(b"{") + data.count(b"[")
    if opening <= data.count(b"\n") + _MAX_DEPTH:
        return False
    letters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    positions = np.flatnonzero((letters == ord("{")) | (letters == ord("[")))
    opened = np.diff(np.searchsorted(positions, ends), prepend=0)
    return bool(opened.max(initial=0) > 2 * _MAX_DEPTH)


def _leaves(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    for key, below in tree.items():
        path = (*above, key)
        yield path
        yield from _leaves(below, path)


def _reason(cause: BaseException) -> str:
    if isinstance(cause, json.JSONDecodeError):
        return f"{cause.msg} at letter {cause.colno}"
    return "nested too deep" if isinstance(cause, RecursionError) else "not UTF-8"
