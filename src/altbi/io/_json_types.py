"""What the columns of a JSON lines file hold, settled over the whole file."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from altbi.errors import TableError
from altbi.io._line_blocks import Block

__all__ = ["DEPTH", "JsonTypes", "Written", "read_rows", "walk"]

Kind = Literal["null", "bool", "int", "double", "string", "mixed", "object", "clash"]
Path = tuple[str, ...]

DEPTH = 32
_BLANK = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_KINDS: dict[pa.DataType, Kind] = {
    pa.null(): "null",
    pa.bool_(): "bool",
    pa.int64(): "int",
    pa.float64(): "double",
    pa.string(): "string",
}


class Written(str):
    """A number as it stands in the file."""

    __slots__ = ()


_DECODER = json.JSONDecoder(
    parse_int=Written, parse_float=Written, parse_constant=Written, strict=False
)


class JsonTypes:
    """The kinds of values that were seen under each key, and how they can be read.

    Parameters
    ----------
    where : str
        What messages call the file.

    Attributes
    ----------
    kinds : dict
        For each path of keys, what stands there; in the order of their first appearance.
    plain : bool
        Whether Arrow can read the whole file; otherwise, Python has to, line by line.
    n_rows : int
        Lines that are not blank.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.kinds: dict[Path, Kind] = {}
        self.lists: dict[str, int] = {}
        self.plain = True
        self.n_rows = 0

    def notes(self) -> Iterator[str]:
        """Say which columns hold lists, and where one does."""
        for name, line in self.lists.items():
            yield f"Column {name!r} holds lists (line {line}); they are read as text."

    def add(self, block: Block) -> None:
        """TableScan at some more lines."""
        quick = _quick_kinds(block.data)
        if quick is None or not self._fits(quick[0]):
            self._add_slowly(block)
            return
        for path, kind in quick[0].items():
            self.kinds[path] = _join(self.kinds.get(path, "null"), kind)
        self.n_rows += quick[1]

    def columns(self) -> dict[Path, pa.DataType]:
        """Give the type of each column, those of one object side by side."""
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

    def _add_slowly(self, block: Block) -> None:
        """TableScan at each line by itself: some have what Arrow does not read."""
        self.plain = False
        for line, row in read_rows(block, self.where):
            self.n_rows += 1
            for path, value in walk(row, self.where, line):
                before = self.kinds.get(path, "null")
                kind = _join(before, _kind(value, f"{self.where}: line {line}", path))
                if isinstance(value, list):
                    self.lists[".".join(path)] = line
                if kind == "clash":
                    raise TableError(
                        f"{self.where}: line {line}: {'.'.join(path)!r} holds an object in some "
                        "lines and a plain value in others. Give the two names of their own."
                    )
                self.kinds[path] = kind


def read_rows(block: Block, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Parse each line that is not blank; numbers stay as written."""
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


def walk(row: dict[str, Any], where: str, line: int) -> Iterator[tuple[Path, Any]]:
    """Go through the values of an object, those of objects within it included."""
    prefetch: list[tuple[Path, Any]] = [((key,), value) for key, value in reversed(row.items())]
    while prefetch:
        path, value = prefetch.pop()
        yield path, value
        if isinstance(value, dict):
            if len(path) == DEPTH:
                raise TableError(
                    f"{where}: line {line} has objects within objects, more than {DEPTH} deep. "
                    "Write flatter lines."
                )
            prefetch += [((*path, key), inner) for key, inner in reversed(value.items())]


def _kind(value: object, where: str, path: Path) -> Kind:
    name = ".".join(path)
    if isinstance(value, list):
        return "mixed"
    if isinstance(value, str) or not name.isascii():
        _check_letters(value, name, where)
    if isinstance(value, Written):
        whole = value.lstrip("-").isdigit()
        return "int" if whole and len(value) <= 20 and _in_int64(int(value)) else "double"
    kinds: dict[type, Kind] = {bool: "bool", str: "string", dict: "object"}
    return kinds.get(type(value), "null")


def _in_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _check_letters(value: object, name: str, where: str) -> None:
    """Refuse half of a surrogate pair, which is no letter."""
    try:
        (name + value if isinstance(value, str) else name).encode()
    except UnicodeEncodeError as cause:
        raise TableError(
            f"{where}: column {name!r} holds half a letter ({cause.object[cause.start]!a}). "
            "Write the text again."
        ) from cause


def _join(one: Kind, other: Kind) -> Kind:
    """Give the narrowest kind that holds both; there is none for an object and a plain value."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if "object" in (one, other):
        return "clash"
    return "double" if {one, other} == {"int", "double"} else "mixed"


def _quick_kinds(data: bytes) -> tuple[dict[Path, Kind], int] | None:
    """Let Arrow tell the kinds; None when it cannot, or when it sees other rows than lines."""
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
        if len(path) > DEPTH:
            yield path, None
        elif pa.types.is_struct(field.type):
            yield path, "object"
            yield from _arrow_kinds(field.type, path)
        elif pa.types.is_temporal(field.type):
            yield path, "string"  # Arrow has read a date, but the file holds a text
        else:
            yield path, _KINDS.get(field.type)


def _may_be_deep(data: bytes) -> bool:
    """Tell whether a line could nest so deep that Arrow's reader would overflow its stack."""
    opening = data.count(b"{") + data.count(b"[")
    if opening <= data.count(b"\n") + DEPTH:
        return False
    letters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    places = np.flatnonzero((letters == ord("{")) | (letters == ord("[")))
    opened = np.diff(np.searchsorted(places, ends), prepend=0)
    return bool(opened.max(initial=0) > 2 * DEPTH)


def _leaves(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    for key, below in tree.items():
        path = (*above, key)
        yield path
        yield from _leaves(below, path)


def _reason(cause: BaseException) -> str:
    if isinstance(cause, json.JSONDecodeError):
        return f"{cause.msg} at letter {cause.colno}"
    return "nested too deep" if isinstance(cause, RecursionError) else "not UTF-8"
