"""One array of an npy file or npz archive, read by its rows; pickles are never opened."""

import shutil
import tempfile
import tokenize
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError

__all__ = ["Member", "arrow_type", "read_header", "row_chunks", "to_arrow"]

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# Whatever the parser of a literal may say about letters that are none.
_BROKEN = (
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)
_UNITS = {"D": "D", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
_UNITS |= dict.fromkeys("YMWhm", "s")


@dataclass(frozen=True, slots=True)
class Member:
    """An array in a file.

    Parameters
    ----------
    name : str
        What it is called in the archive.
    where : str
        What messages call it.
    opened : callable
        Opens its bytes from the start.
    shape : tuple of int
        Its shape.
    dtype : numpy.dtype
        The type of its cells.
    by_columns : bool
        Whether it is stored column by column (Fortran order).
    """

    name: str
    where: str
    opened: Callable[[], AbstractContextManager[BinaryIO]]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; at least one."""
        return max(self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64)), 1)


def read_header(
    name: str, where: str, opened: Callable[[], AbstractContextManager[BinaryIO]]
) -> Member:
    """Read what an array says about itself."""
    with opened() as stream:
        shape, by_columns, dtype = _skip_header(stream, where)
    return Member(name, where, opened, shape, dtype, by_columns and len(shape) > 1)


def row_chunks(member: Member, rows: int) -> Iterator[NDArray[Any]]:
    """Give at most this many rows at a time."""
    with member.opened() as stream:
        _skip_header(stream, member.where)
        if not member.by_columns:
            yield from _by_rows(member, stream, rows)
            return
        # Every row is spread over the whole array, so it is laid down on disk and mapped.
        with tempfile.TemporaryFile() as file:
            shutil.copyfileobj(stream, file, 1 << 20)
            yield from _mapped(member, file, rows)


def arrow_type(dtype: np.dtype[Any]) -> pa.DataType | None:
    """Give the type of a column of such cells; None when a table has no such columns."""
    if dtype.itemsize == 0 or dtype.kind not in "biufUMm":
        return None
    if dtype.kind in "Mm" and np.datetime_data(dtype)[0] not in _UNITS:
        return None
    return to_arrow(np.empty(0, dtype=dtype)).type


def to_arrow(cells: NDArray[Any]) -> pa.Array:
    """Turn a column into one of Arrow's; NaN stays a number, no moment becomes a null."""
    kind, dtype = cells.dtype.kind, cells.dtype.newbyteorder("=")
    if kind == "f" and dtype.itemsize not in (4, 8):
        dtype = np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    if kind in "Mm":
        unit = _UNITS[np.datetime_data(dtype)[0]]
        dtype = np.dtype(f"{kind}8[{'s' if kind == 'm' and unit == 'D' else unit}]")
    return pa.array(np.ascontiguousarray(cells, dtype=dtype))


def _skip_header(stream: BinaryIO, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        shape, by_columns, dtype = _HEADERS[version](stream)
    except _BROKEN as cause:
        raise TableError(
            f"{where}: it is no whole array of numpy. Write it again with numpy.savez or save."
        ) from cause
    if any(length < 0 for length in shape):
        raise TableError(f"{where}: its shape {shape} makes no sense. Write it again.")
    return shape, by_columns, dtype


def _by_rows(member: Member, stream: BinaryIO, rows: int) -> Iterator[NDArray[Any]]:
    for start in range(0, member.shape[0], rows):
        shape = (min(rows, member.shape[0] - start), *member.shape[1:])
        data = stream.read(shape[0] * member.row_bytes)
        if len(data) < shape[0] * member.row_bytes:
            raise _incomplete(member, start + len(data) // member.row_bytes)
        yield np.frombuffer(data, dtype=member.dtype).reshape(shape)


def _mapped(member: Member, file: Any, rows: int) -> Iterator[NDArray[Any]]:  # noqa: ANN401
    file.flush()
    if file.tell() < member.shape[0] * member.row_bytes:
        raise _incomplete(member, 0)
    whole = np.memmap(file, dtype=member.dtype, mode="r", shape=member.shape, order="F")
    for start in range(0, member.shape[0], rows):
        yield whole[start : start + rows]


def _incomplete(member: Member, found: int) -> TableError:
    return TableError(
        f"{member.where}: it ends after {found} whole rows, but expected {member.shape[0]}. "
        "It seems incomplete: copy or write the file again."
    )
