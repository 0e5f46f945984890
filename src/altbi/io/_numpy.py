"""NumPy arrays in files: one npy file, or an npz archive of several. Pickles are never loaded."""

import shutil
import tempfile
import tokenize
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError, describe_cause, list_names, quote
from altbi.io._files import CompressedFile, check_zip_member, report_damage
from altbi.io._source import BATCH_BYTES, BATCH_ROWS, MAX_COLUMNS, Source, check_names
from altbi.table import get_arrow_type, to_arrow

_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# The errors of NumPy and of the Python parser for a damaged header.
_HEADER_ERRORS = (
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


@dataclass(frozen=True, slots=True)
class _ArrayFile:
    """An array in an npy file or npz archive, and the contents of its header."""

    name: str  # in the archive
    where: str  # in messages
    open: Callable[[], AbstractContextManager[BinaryIO]]  # a stream of header and values
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool  # whether it is stored column by column

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; at least one."""
        return max(self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64)), 1)

    def chunks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the array, from its first row on, in chunks of at most `rows` rows.

        An incomplete file raises a `TableError`. An array in Fortran order is first copied to a
        temporary file and mapped into memory.
        """
        with self.open() as stream:
            _read_header(stream, self.where)
            if not self.is_fortran:
                yield from self._read_rows(stream, rows)
                return
            # In Fortran order the values of a row are not adjacent, so a stream cannot yield rows.
            with tempfile.TemporaryFile() as file:
                shutil.copyfileobj(stream, file, 1 << 20)
                file.flush()
                if file.tell() < self.shape[0] * self.row_bytes:
                    raise self._build_incomplete_error(0)
                array = np.memmap(file, dtype=self.dtype, mode="r", shape=self.shape, order="F")
                for start in range(0, self.shape[0], rows):
                    yield array[start : start + rows]

    def _read_rows(self, stream: BinaryIO, rows: int) -> Iterator[NDArray[Any]]:
        """Yield chunks of a C-order stream at its first value; an early end raises `TableError`."""
        for start in range(0, self.shape[0], rows):
            shape = (min(rows, self.shape[0] - start), *self.shape[1:])
            data = stream.read(shape[0] * self.row_bytes)
            if len(data) < shape[0] * self.row_bytes:
                raise self._build_incomplete_error(start + len(data) // self.row_bytes)
            yield np.frombuffer(data, dtype=self.dtype).reshape(shape)

    def _build_incomplete_error(self, n_found: int) -> TableError:
        """Return the error for an array that ends after `n_found` complete rows."""
        return TableError(
            f"{self.where}: it ends after {n_found} complete rows, but expected {self.shape[0]}. "
            "It seems incomplete: copy or write the file again."
        )


@final
class NumpySource(Source):
    """A table of at most one 2-D array and any number of 1-D arrays of the same length.

    The columns of the 2-D array are called x0, x1, ...; a 1-D array is a column with its own name.
    `format` is "npy" or "npz". Duplicate names raise a `TableError`.
    """

    def __init__(
        self,
        packed: CompressedFile,
        format: str,
        arrays: Sequence[_ArrayFile],
        *,
        extra_columns: tuple[str, ...] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.format = format
        self.extra_columns = extra_columns
        self.notes = list(notes)
        self.n_rows = arrays[0].shape[0]
        columns = [
            (array.name if index is None else f"x{index}", array, index)
            for array in arrays
            for index in (range(array.shape[1]) if len(array.shape) == 2 else (None,))
        ]
        check_names([name for name, *_ in columns], arrays[0].where)
        self._columns = {name: (array, index) for name, array, index in columns}
        self.schema = pa.schema([(name, get_arrow_type(array.dtype)) for name, array, _ in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches with these columns; without columns, they only have rows.

        An array that is incomplete or cannot be converted raises a `TableError`.
        """
        names = list(columns) or self.schema.names[:1]  # one column shows the number of rows
        arrays = {self._columns[name][0].name: self._columns[name][0] for name in names}
        schema = pa.schema([self.schema.field(name) for name in names])
        n_rows = max(BATCH_BYTES // sum(array.row_bytes for array in arrays.values()), 1)
        readers = [array.chunks(min(n_rows, BATCH_ROWS)) for array in arrays.values()]
        for chunks in zip(*readers, strict=True):
            values = dict(zip(arrays, chunks, strict=True))
            converted = [self._convert_column(values, name) for name in names]
            yield pa.RecordBatch.from_arrays(converted, schema=schema).select(list(columns))

    def _convert_column(self, chunks: dict[str, NDArray[Any]], name: str) -> pa.Array:
        """Convert one column to Arrow; `chunks` holds the chunk of each array by its name.

        Values that Arrow cannot hold raise a `TableError`.
        """
        array, index = self._columns[name]
        chunk = chunks[array.name]
        try:
            return to_arrow(chunk if index is None else chunk[:, index])
        except (pa.ArrowException, ValueError, OverflowError) as cause:
            raise TableError(
                f"{array.where}: column {quote(name)} cannot be read ({describe_cause(cause)}). "
                "Write the file again."
            ) from cause


def open_npy(packed: CompressedFile) -> NumpySource:
    """Open an npy file; only its header is read.

    A 1-D array is a table with the column x0. Arrays with more axes, without values, or of an
    unsupported type such as complex numbers or objects raise a `TableError`.
    """
    array = _open_array("x0", packed.where, packed.open)
    _check_array(array)
    return NumpySource(packed, "npy", [array])


def open_npz(packed: CompressedFile) -> NumpySource:
    """Open an npz archive; only the headers of its arrays are read.

    The table is the 2-D array, of several the one named X. 1-D arrays of its length are columns
    that are read only if they are named; others are ignored with a note. Without a 2-D array, all
    arrays must be 1-D columns. Other archives, and columns of unsupported types, raise a
    `TableError`.
    """
    arrays = _open_members(packed)
    matrix = _find_matrix(packed, arrays)
    if matrix is None:
        return _open_vectors(packed, arrays)
    _check_array(matrix)
    extra = [
        array
        for array in arrays
        if array.shape == matrix.shape[:1] and get_arrow_type(array.dtype) is not None
    ]
    ignored = [array for array in arrays if array not in extra and array is not matrix]
    names = tuple(array.name for array in extra)
    notes = []
    if extra:
        notes.append(
            f"{packed.where}: the table is {quote(matrix.name)}; {list_names(names)} is read "
            "only if it is named."
        )
    if ignored:
        notes.append(f"{packed.where}: {_format_arrays(ignored)} cannot be a column; ignored.")
    return NumpySource(packed, "npz", [matrix, *extra], extra_columns=names, notes=notes)


def _open_members(packed: CompressedFile) -> list[_ArrayFile]:
    """Read the headers of the arrays in an npz archive, and return the arrays.

    A damaged archive, an archive without arrays and duplicate names raise a `TableError`.
    """
    with report_damage(packed.where, "the npz file"), zipfile.ZipFile(packed.path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    for member in members:
        check_zip_member(packed, member)
    files = [member.filename for member in members]
    names = [file.removesuffix(".npy") for file in files]
    if not names or max(Counter(names).values()) > 1:
        raise TableError(
            f"{packed.where}: expected arrays with unique names, but it holds "
            f"{list_names(names) or 'none'}. Write it again with numpy.savez."
        )
    return [
        _open_array(
            name,
            f"{packed.where}: array {quote(name)}",
            CompressedFile(packed.path, packed.name, "zip", file).open,
        )
        for name, file in zip(names, files, strict=True)
    ]


def _find_matrix(packed: CompressedFile, arrays: Sequence[_ArrayFile]) -> _ArrayFile | None:
    """Return the 2-D array that is the table: the one named X or the only one.

    Returns None if there is no 2-D array. Several 2-D arrays without an X raise a `TableError`.
    """
    matrices = [array for array in arrays if len(array.shape) == 2]
    named = [array for array in matrices if array.name == "X"]
    if len(matrices) > 1 and not named:
        raise TableError(
            f"{packed.where}: several arrays have two axes ({_format_arrays(matrices)}). Name the "
            "one with the table X, or save it alone."
        )
    return next(iter(named or matrices), None)


def _open_vectors(packed: CompressedFile, arrays: Sequence[_ArrayFile]) -> NumpySource:
    """Open an archive of 1-D arrays, which are the columns.

    Arrays of different lengths, with another number of axes, or of an unsupported type raise a
    `TableError`.
    """
    if len({array.shape for array in arrays}) > 1 or len(arrays[0].shape) != 1:
        raise TableError(
            f"{packed.where}: expected an array with two axes, or arrays with one axis of the same "
            f"length, but it holds {_format_arrays(arrays)}. Reshape the arrays, and save them."
        )
    for array in arrays:
        _check_array(array)
    return NumpySource(packed, "npz", arrays)


def _open_array(
    name: str, where: str, open_bytes: Callable[[], AbstractContextManager[BinaryIO]]
) -> _ArrayFile:
    """Read the header of an array and return its description; the values are not read.

    A damaged header raises a `TableError`.
    """
    with open_bytes() as stream:
        shape, is_fortran, dtype = _read_header(stream, where)
    return _ArrayFile(name, where, open_bytes, shape, dtype, is_fortran and len(shape) > 1)


def _read_header(stream: BinaryIO, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether in Fortran order, and dtype; the stream is then at the first value.

    A damaged header raises a `TableError`.
    """
    try:
        version = np.lib.format.read_magic(stream)
        shape, is_fortran, dtype = _HEADER_READERS[version](stream)
    except _HEADER_ERRORS as cause:
        raise TableError(
            f"{where}: it is not a complete NumPy array. Write it again with numpy.savez or save."
        ) from cause
    # A boolean is an integer to NumPy, but not the length of an axis.
    if any(type(length) is not int or length < 0 for length in shape):
        raise TableError(f"{where}: its shape {shape} is invalid. Write the file again.")
    return shape, is_fortran, dtype


def _check_array(array: _ArrayFile) -> None:
    """Raise a `TableError` for an unsupported type, more than two axes, or no values."""
    if get_arrow_type(array.dtype) is None:
        what = "Python objects" if array.dtype.hasobject else f"values of type {array.dtype}"
        raise TableError(
            f"{array.where}: it holds {what}, but expected numbers, booleans, text or dates. "
            "Convert it, for example with astype(float) or astype(str)."
        )
    n_columns = array.shape[1] if len(array.shape) == 2 else 1
    if len(array.shape) not in (1, 2) or n_columns > MAX_COLUMNS:
        raise TableError(
            f"{array.where}: its shape is {array.shape}, but expected rows and at most "
            f"{MAX_COLUMNS} columns. Reshape it."
        )
    if not array.shape[0] or not n_columns:
        raise TableError(
            f"{array.where}: its shape is {array.shape}, so it holds no rows or no columns."
        )


def _format_arrays(arrays: Sequence[_ArrayFile]) -> str:
    """Return the names and shapes of the first five arrays for a message."""
    shown = [f"{quote(array.name)} {array.shape}" for array in arrays[:5]]
    return ", ".join(shown) + (", …" if len(arrays) > 5 else "")
