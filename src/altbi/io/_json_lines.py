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
    """A JSON lines file; nested objects are flattened to columns such as ``address.city``.

    `columns` holds the type at each path of keys. If `is_plain`, Arrow reads the file; otherwise
    Python reads it line by line.
    """

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
        """Yield these columns, block by block.

        Keys that a line does not have are null. Lines that changed since the file was opened raise
        a `TableError`.
        """
        wanted = list(columns)
        some = wanted or self.schema.names[:1]  # one column shows the number of rows
        for block in _read_blocks(self._packed, self._encoding):
            arrays = (
                self._read_by_arrow(block, some)
                if self._is_plain
                else self._read_by_python(block, some)
            )
            schema = pa.schema([self.schema.field(name) for name in some])
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield from split_batch(batch.select(wanted))

    def _read_by_arrow(self, block: Block, names: list[str]) -> list[pa.Array]:
        """Return the columns of a block, parsed by Arrow.

        Lines that do not fit the schema raise a `TableError`.
        """
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
                    explicit_schema=pa.schema(_build_fields(tree)),
                    unexpected_field_behavior="ignore",
                ),
            )
        except (pa.ArrowException, UnicodeError) as cause:
            raise self._build_changed_error(block, cause) from cause
        return [_select_column(table, self._paths[name]) for name in names]

    def _read_by_python(self, block: Block, names: list[str]) -> list[pa.Array]:
        """Return the columns of a block, parsed by Python line by line.

        Lists become JSON text. In text columns, numbers stay as written. Lines that do not fit the
        schema, or are not JSON objects, raise a `TableError`.
        """
        cells: list[list[Any]] = [[] for _ in names]
        wanted = [(self._paths[name], self.schema.field(name).type) for name in names]
        try:
            for _, row in _read_objects(block, self._packed.where):
                for column, (path, type_) in zip(cells, wanted, strict=True):
                    column.append(_convert_value(_get_value(row, path), type_))
            return [
                pa.array(column, type_) for column, (_, type_) in zip(cells, wanted, strict=True)
            ]
        except RecursionError as cause:
            raise TableError(
                f"{self._packed.where}: the lines from {block.line} on hold lists that are nested "
                "too deep. Write flatter lines."
            ) from cause
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            if isinstance(cause, TableError):
                raise
            raise self._build_changed_error(block, cause) from cause

    def _build_changed_error(self, block: Block, cause: BaseException) -> TableError:
        """Return the error for lines that do not have the types found when the file was opened."""
        return TableError(
            f"{self._packed.where}: the lines from {block.line} on are not what they were when the "
            f"file was opened ({describe_cause(cause)}). Read it again when nobody writes to it."
        )


def open_json_lines(packed: CompressedFile, encoding: str, notes: list[str]) -> JsonLinesSource:
    """Open a JSON lines file; it is read once for its columns and their types.

    Columns with lists or mixed types are text. A file without rows, invalid lines, and a key that
    holds an object in some lines and a plain value in others raise a `TableError`. So do duplicate
    column names.
    """
    seen = _ColumnTypes(packed.where)
    for block in _read_blocks(packed, encoding):
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


def _read_blocks(packed: CompressedFile, encoding: str) -> Iterator[Block]:
    """Return an iterator over blocks of complete lines, decoded to UTF-8.

    A newline is added to the last line if it has none. Invalid bytes in other encodings and lines
    of more than `LINE_BYTES` bytes raise a `TableError`.
    """
    pieces = read_utf8(packed, encoding)
    return split_lines(pieces, lambda data: data.rfind(b"\n") + 1, packed.where)


def _build_fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    """Return the Arrow fields of a tree of keys: a dict is a struct, and a leaf is a type."""
    return [
        pa.field(key, pa.struct(_build_fields(below)) if isinstance(below, dict) else below)
        for key, below in tree.items()
    ]


def _select_column(table: pa.Table, path: Path) -> pa.Array:
    """Return the column at a path of keys as one array; values inside a missing object are null."""
    column = table.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _get_value(row: Any, path: Path) -> Any:  # noqa: ANN401 - whatever the line holds
    """Return the value at a path of keys in a row; None if a key or an object above is absent."""
    for key in path:
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


def _convert_value(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401
    """Convert a value that `_DECODER` returned to a Python value for a column of this Arrow type.

    None stays None. A list becomes JSON text. In a text column, booleans become "true" or "false",
    and numbers stay as written. In other columns, numbers become int or float.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return _format_json(value)
    if type_ == pa.string():
        # Booleans are written as in JSON. Numbers are texts already.
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, _NumberText):
        return int(value) if type_ == pa.int64() else float(value)
    return value


def _format_json(value: Any) -> str:  # noqa: ANN401
    """Return a parsed JSON value as JSON text again.

    Numbers stay as written. Lone surrogates are written as backslash escapes.
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_format_json, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_format_json(name)}: {_format_json(inner)}" for name, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, _NumberText):
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


class _NumberText(str):
    """The text of a number in the file, which is converted when the type of its column is known."""

    __slots__ = ()


_DECODER = json.JSONDecoder(
    parse_int=_NumberText, parse_float=_NumberText, parse_constant=_NumberText, strict=False
)


class _ColumnTypes:
    """Collects the kinds of values at each path of keys in a file, block by block.

    `where` is the name of the file in messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.kinds: dict[Path, Kind] = {}  # in the order of first appearance
        self.lists: dict[str, int] = {}  # a line with a list, for each column that holds lists
        self.is_plain = True  # whether Arrow can read the file; otherwise Python reads it
        self.n_rows = 0  # lines that are not blank

    def notes(self) -> Iterator[str]:
        """Yield a note for each column that holds lists."""
        for name, line in self.lists.items():
            yield f"Column {name!r} holds lists (line {line}); they are read as text."

    def add(self, block: Block) -> None:
        """Add the kinds in the next lines; invalid lines raise a `TableError`.

        Arrow infers the kinds. If it cannot, or if they do not fit the previous ones, Python reads
        the lines, and `is_plain` becomes False.
        """
        quick = _infer_kinds_by_arrow(block.data)
        if quick is None or not self._fits(quick[0]):
            self._add_by_line(block)
            return
        for path, kind in quick[0].items():
            self.kinds[path] = _join_kinds(self.kinds.get(path, "null"), kind)
        self.n_rows += quick[1]

    def columns(self) -> dict[Path, pa.DataType]:
        """Return the Arrow type at each path that is not an object.

        Columns of one object are adjacent. Columns of mixed kinds, and of lists, are texts.
        """
        types = {kind: type_ for type_, kind in _KINDS.items()} | {"mixed": pa.string()}
        tree: dict[str, Any] = {}
        for path in self.kinds:
            node = tree
            for key in path:
                node = node.setdefault(key, {})
        return {
            path: types[self.kinds[path]]
            for path in _walk_paths(tree)
            if self.kinds[path] != "object"
        }

    def _fits(self, kinds: Mapping[Path, Kind]) -> bool:
        """Return whether no path holds an object here and a plain value before, or vice versa."""
        joined = (_join_kinds(self.kinds.get(path, "null"), kind) for path, kind in kinds.items())
        return "clash" not in joined

    def _add_by_line(self, block: Block) -> None:
        """Add the next lines one by one in Python, and set `is_plain` to False.

        Invalid lines, and an object and a plain value under the same key, raise a `TableError`.
        """
        self.is_plain = False
        for line, row in _read_objects(block, self.where):
            self.n_rows += 1
            for path, value in _walk_values(row, self.where, line):
                before = self.kinds.get(path, "null")
                kind = _join_kinds(before, _infer_kind(value, f"{self.where}: line {line}", path))
                if isinstance(value, list):
                    self.lists[".".join(path)] = line
                if kind == "clash":
                    raise TableError(
                        f"{self.where}: line {line}: {'.'.join(path)!r} holds an object in some "
                        "lines and a plain value in others. Use different names."
                    )
                self.kinds[path] = kind


def _read_objects(block: Block, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and the object of each line that is not blank.

    Numbers are `_NumberText`. Lines that are not a JSON object raise a `TableError`.
    """
    for line, text in enumerate(block.data.split(b"\n"), start=block.line):
        if not text.strip():
            continue
        try:
            row = _DECODER.decode(text.decode().strip())
        except (ValueError, RecursionError) as cause:
            raise TableError(
                f"{where}: line {line} is no JSON ({_describe_reason(cause)}). Expected one "
                "object on each line; jq -c . FILE writes them so."
            ) from cause
        if not isinstance(row, dict):
            raise TableError(
                f"{where}: line {line} holds no object, but expected names and values as in "
                '{"price": 1.5}.'
            )
        yield line, row


def _walk_values(row: dict[str, Any], where: str, line: int) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of each key of a row, including nested objects and their keys.

    Objects nested deeper than `_MAX_DEPTH` raise a `TableError`.
    """
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


def _infer_kind(value: object, where: str, path: Path) -> Kind:
    """Return the kind of a value that `_DECODER` returned; lists are "mixed", and None is "null".

    Integers outside of 64 bits are "double". A lone surrogate in the text or in `path` raises a
    `TableError`, which starts with `where`.
    """
    name = ".".join(path)
    if isinstance(value, list):
        return "mixed"
    if isinstance(value, str) or not name.isascii():
        _check_surrogates(value, name, where)
    if isinstance(value, _NumberText):
        is_short_integer = value.lstrip("-").isdigit() and len(value) <= 20
        return "int" if is_short_integer and -(2**63) <= int(value) < 2**63 else "double"
    kinds: dict[type, Kind] = {bool: "bool", str: "string", dict: "object"}
    return kinds.get(type(value), "null")


def _check_surrogates(value: object, name: str, where: str) -> None:
    """Raise a `TableError` if the name or a text value holds half of a surrogate pair.

    Such a half cannot be encoded as UTF-8.
    """
    try:
        (name + value if isinstance(value, str) else name).encode()
    except UnicodeEncodeError as cause:
        raise TableError(
            f"{where}: column {name!r} holds half a letter ({cause.object[cause.start]!a}). "
            "Write the text again."
        ) from cause


def _join_kinds(one: Kind, other: Kind) -> Kind:
    """Return the narrowest kind that holds both; "null" fits every kind.

    "int" and "double" give "double". An object and a plain value give "clash". Other different
    kinds give "mixed".
    """
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if "object" in (one, other):
        return "clash"
    return "double" if {one, other} == {"int", "double"} else "mixed"


def _infer_kinds_by_arrow(data: bytes) -> tuple[dict[Path, Kind], int] | None:
    """Return the kind at each path that Arrow infers, and the number of rows.

    Returns None if Arrow cannot read the lines, infers a type that is not supported, or finds
    another number of rows than there are lines. Then Python must read them.
    """
    if _may_be_deep(data):
        return None
    options = pajson.ReadOptions(block_size=len(data) + 1)
    try:
        table = pajson.read_json(pa.BufferReader(data), read_options=options)
    except (pa.ArrowException, UnicodeError):
        return None
    kinds = dict(_convert_arrow_kinds(table.schema))
    if None in kinds.values() or table.num_rows != data.count(b"\n") - len(_BLANK.findall(data)):
        return None
    return {path: kind for path, kind in kinds.items() if kind}, table.num_rows


def _convert_arrow_kinds(
    fields: Iterable[pa.Field], above: Path = ()
) -> Iterator[tuple[Path, Kind | None]]:
    """Yield the path and kind of each Arrow field; nested fields follow their struct.

    A struct is an "object". Dates and times are "string", as in the file. The kind is None for
    lists, other types without a kind, and paths of more than `_MAX_DEPTH` keys.
    """
    for field in fields:
        path = (*above, field.name)
        if len(path) > _MAX_DEPTH:
            yield path, None
        elif pa.types.is_struct(field.type):
            yield path, "object"
            yield from _convert_arrow_kinds(field.type, path)
        elif pa.types.is_temporal(field.type):
            yield path, "string"  # Arrow has read a date, but the file holds a text
        else:
            yield path, _KINDS.get(field.type)


def _may_be_deep(data: bytes) -> bool:
    """Return whether a line may nest so deep that Arrow's reader would overflow its stack.

    The test counts opening brackets per line, also those inside of texts, so it may be wrongly
    True.
    """
    opening = data.count(b"{") + data.count(b"[")
    if opening <= data.count(b"\n") + _MAX_DEPTH:
        return False
    letters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    positions = np.flatnonzero((letters == ord("{")) | (letters == ord("[")))
    opened = np.diff(np.searchsorted(positions, ends), prepend=0)
    return bool(opened.max(initial=0) > 2 * _MAX_DEPTH)


def _walk_paths(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """Yield the path of each key in a tree of keys, parents before their children."""
    for key, below in tree.items():
        path = (*above, key)
        yield path
        yield from _walk_paths(below, path)


def _describe_reason(cause: BaseException) -> str:
    """Return a short reason why a line is not JSON: the syntax, its nesting, or its encoding."""
    if isinstance(cause, json.JSONDecodeError):
        return f"{cause.msg} at letter {cause.colno}"
    return "nested too deep" if isinstance(cause, RecursionError) else "not UTF-8"
