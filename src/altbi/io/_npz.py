"""Arrays in files: one npy, or an npz archive of several."""

import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, final

import pyarrow as pa
from numpy.typing import NDArray

from altbi._terminal import printable
from altbi.errors import TableError
from altbi.io._compressed import CompressedFile, first_line, report_damage
from altbi.io._csv_header import check_names
from altbi.io._formats import check_zip_member
from altbi.io._npy import Member, arrow_type, read_header, row_chunks, to_arrow
from altbi.io._source import BATCH_BYTES, BATCH_ROWS, Source

__all__ = ["NumpySource", "open_npy", "open_npz"]

_MOST_COLUMNS = 1 << 18


@final
class NumpySource(Source):
    """A table made of arrays.

    Parameters
    ----------
    packed : CompressedFile
        The file.
    format : str
        "npz" or "npy".
    members : sequence of Member
        The arrays that are read: one with two axes, or any number with one.
    sides : tuple of str
        The arrays that stand beside the table.
    notes : list of str
        What was assumed.
    """

    def __init__(
        self,
        packed: CompressedFile,
        format: str,
        members: Sequence[Member],
        *,
        sides: tuple[str, ...],
        notes: list[str],
    ) -> None:
        self.name = packed.name
        self.paths = (packed.path,)
        self.format = format
        self.sides = sides
        self.notes = notes
        self.n_rows = members[0].shape[0]
        self._packed = packed
        self._places = dict(_columns(members))
        self.schema = pa.schema(
            [(name, arrow_type(member.dtype)) for name, (member, _) in self._places.items()]
        )

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, chunk by chunk, all arrays side by side."""
        some = list(columns) or self.schema.names[:1]
        members = {self._places[name][0].name: self._places[name][0] for name in some}
        schema = pa.schema([self.schema.field(name) for name in some])
        size = max(BATCH_BYTES // sum(member.row_bytes for member in members.values()), 1)
        chunks = [row_chunks(member, min(size, BATCH_ROWS)) for member in members.values()]
        for parts in zip(*chunks, strict=True):
            arrays = dict(zip(members, parts, strict=True))
            cells = [self._cells(arrays, name) for name in some]
            yield pa.RecordBatch.from_arrays(cells, schema=schema).select(list(columns))

    def _cells(self, arrays: dict[str, NDArray[Any]], name: str) -> pa.Array:
        member, place = self._places[name]
        array = arrays[member.name]
        try:
            return to_arrow(array if place is None else array[:, place])
        except (pa.ArrowException, ValueError, OverflowError) as cause:
            raise TableError(
                f"{member.where}: column {name!r} cannot be read ({first_line(cause)}). "
                "Write it again."
            ) from cause


def open_npy(packed: CompressedFile) -> NumpySource:
    """Read what an npy file says about itself."""
    member = read_header("x0", packed.where, packed.opened)
    _check(member)
    return NumpySource(packed, "npy", [member], sides=(), notes=[])


def open_npz(packed: CompressedFile) -> NumpySource:
    """Tell which arrays of an npz file are the table, and which stand beside it."""
    members = _members(packed)
    matrix = _find_matrix(packed, members)
    if matrix is None:
        return _from_vectors(packed, members)
    _check(matrix)
    sides = [
        member
        for member in members
        if member.shape == matrix.shape[:1] and arrow_type(member.dtype) is not None
    ]
    left = [member for member in members if member not in sides and member is not matrix]
    return NumpySource(
        packed,
        "npz",
        [matrix, *sides],
        sides=tuple(member.name for member in sides),
        notes=_notes(packed, matrix, sides, left),
    )


def _members(packed: CompressedFile) -> list[Member]:
    with report_damage(packed.where, "the npz file"), zipfile.ZipFile(packed.path) as archive:
        arrays = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    for member in arrays:
        check_zip_member(packed, member)
    files = [member.filename for member in arrays]
    names = [file.removesuffix(".npy") for file in files]
    if not names or max(Counter(names).values()) > 1:
        raise TableError(
            f"{packed.where}: expected one or more arrays with names of their own, but it holds "
            f"{printable(', '.join(names)) or 'none'}. Write it again with numpy.savez."
        )
    packs = [CompressedFile(packed.path, packed.name, "zip", file) for file in files]
    return [
        read_header(name, f"{packed.where}: array {name!r}", pack.opened)
        for name, pack in zip(names, packs, strict=True)
    ]


def _find_matrix(packed: CompressedFile, members: Sequence[Member]) -> Member | None:
    """Find the array with two axes that is the table: the only one, or the one named X."""
    matrices = [member for member in members if len(member.shape) == 2]
    named = [member for member in matrices if member.name == "X"]
    if len(matrices) > 1 and not named:
        raise TableError(
            f"{packed.where}: several arrays have two axes ({_listed(matrices)}). Call the one "
            "that is the table X, or save it alone."
        )
    return next(iter(named or matrices), None)


def _from_vectors(packed: CompressedFile, members: Sequence[Member]) -> NumpySource:
    lengths = {member.shape for member in members}
    if len(lengths) > 1 or len(members[0].shape) != 1:
        raise TableError(
            f"{packed.where}: expected an array with two axes, or arrays with one axis of the same "
            f"length, but it holds {_listed(members)}. Reshape what is the table, and save it."
        )
    for member in members:
        _check(member)
    return NumpySource(packed, "npz", members, sides=(), notes=[])


def _check(member: Member) -> None:
    """Refuse an array that is no table, by what its header says."""
    if arrow_type(member.dtype) is None:
        what = "Python objects" if member.dtype.hasobject else f"cells of type {member.dtype}"
        raise TableError(
            f"{member.where}: it holds {what}, but expected numbers, booleans, text or dates. "
            "Turn it into one of these, for example with astype(float) or astype(str)."
        )
    width = member.shape[1] if len(member.shape) == 2 else 1
    if len(member.shape) not in (1, 2) or width > _MOST_COLUMNS:
        raise TableError(
            f"{member.where}: its shape is {member.shape}, but expected rows and at most "
            f"{_MOST_COLUMNS} columns. Reshape it."
        )
    if not member.shape[0] or not width:
        raise TableError(
            f"{member.where}: its shape is {member.shape}, so it holds no rows or no columns."
        )


def _columns(members: Sequence[Member]) -> Iterator[tuple[str, tuple[Member, int | None]]]:
    names = []
    for member in members:
        wide = len(member.shape) == 2
        for place in range(member.shape[1]) if wide else (None,):
            name = member.name if place is None else f"x{place}"
            names.append(name)
            yield name, (member, place)
    check_names(names, members[0].where)


def _notes(
    packed: CompressedFile, matrix: Member, sides: Sequence[Member], left: Sequence[Member]
) -> list[str]:
    notes = []
    if sides:
        names = ", ".join(repr(member.name) for member in sides)
        notes.append(
            f"{packed.where}: the table is {matrix.name!r}; {names} "
            "beside it is read only where it is named."
        )
    if left:
        notes.append(f"{packed.where}: {_listed(left)} cannot be a column, and is left out.")
    return notes


def _listed(members: Sequence[Member]) -> str:
    shown = [f"{member.name!r} {member.shape}" for member in members[:5]]
    return ", ".join(shown) + (", …" if len(members) > 5 else "")
