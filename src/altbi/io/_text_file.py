"""Text files for DuckDB: the file itself if it is plain UTF-8, else a temporary copy in UTF-8."""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import final

from altbi.io._files import CompressedFile, detect_encoding, read_utf8
from altbi.io._private_folder import PrivateFolder

_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TextOptions:
    """What the user states about a text file; options that are None are detected."""

    encoding: str | None = None
    delimiter: str | None = None  # of a CSV file
    header: bool | None = None  # whether the first line of a CSV file holds the column names
    skip: int | None = None  # lines above the table of a CSV file; None finds title lines


@final
@dataclass(slots=True)
class TextFile:
    """A text file, and its temporary copy in UTF-8, which is made when it is first needed.

    DuckDB reads the file itself if it is plain UTF-8. Other encodings and compressed files are
    copied: DuckDB knows few of them, and does not verify the checksums of gzip. The copy is removed
    with the object. A pickled object makes its own copy again.
    """

    packed: CompressedFile
    encoding: str  # a codec of Python; UTF-8 files are not validated here
    is_stated: bool = False  # whether the user states the encoding
    _copy: PrivateFolder | None = field(default=None, init=False, compare=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, compare=False, repr=False)

    @property
    def is_copied(self) -> bool:
        """Whether a copy is read in place of the file."""
        return self.packed.compression is not None or self.encoding != "utf-8"

    @property
    def path(self) -> str:
        """Absolute path of a plain UTF-8 file with the text; makes the copy if there is none.

        Damaged data, and bytes that the encoding does not have, raise a `TableError`.
        """
        if not self.is_copied:
            return self.packed.path
        with self._lock:  # several threads may need the first copy at the same time
            if self._copy is None:
                folder = PrivateFolder()
                with Path(folder.path, "text").open("wb") as file:
                    file.writelines(read_utf8(self.packed, self.encoding))
                self._copy = folder
            return str(self._copy.path / "text")

    def with_encoding(self, encoding: str) -> "TextFile":
        """Return the same file, read in another encoding."""
        return TextFile(self.packed, encoding, self.is_stated)

    def __reduce__(self) -> tuple[type["TextFile"], tuple[CompressedFile, str, bool]]:
        """Return the type and its arguments without the copy, which only this process has."""
        return TextFile, (self.packed, self.encoding, self.is_stated)


def open_text_file(packed: CompressedFile, encoding: str | None) -> tuple[TextFile, list[str]]:
    """Return a text file with its encoding, and a list with a note if it is an assumption.

    `encoding` is the one that the user states, or None. The first bytes are read, and all of the
    file if they are not UTF-8. Errors are those of `detect_encoding`.
    """
    with packed.open() as stream:
        head = stream.read(_HEAD_BYTES)
    is_complete = len(head) < _HEAD_BYTES
    detected, notes = detect_encoding(packed, head, encoding, is_complete=is_complete)
    return TextFile(packed, detected, is_stated=encoding is not None), notes
