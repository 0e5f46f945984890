"""The bytes of a file, unpacked on the way, in pieces of a few megabytes."""

import contextlib
import errno
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from altbi._terminal import printable
from altbi.errors import TableError
from altbi.io._source import BATCH_BYTES, BATCH_ROWS

__all__ = ["PIECE", "CompressedFile", "first_line", "limited", "report_damage"]

PIECE = 1 << 22
_DAMAGE = (
    pa.ArrowException,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    UnicodeError,
    NotImplementedError,
    struct.error,
)
_CODECS = ("gzip", "bz2", "zstd", "lz4")


@dataclass(frozen=True, slots=True)
class CompressedFile:
    """A file, perhaps compressed.

    Parameters
    ----------
    path : str
        Where it is.
    name : str
        What messages call it.
    compression : str, optional
        "gzip", "bz2", "zstd", "lz4", "xz" or "zip".
    member : str, optional
        The one file in a zip.
    """

    path: str
    name: str
    compression: str | None = None
    member: str | None = None

    @property
    def where(self) -> str:
        """The name as a terminal can show it."""
        return printable(self.name)

    @contextlib.contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Give the unpacked bytes; a damaged file is a `TableError`."""
        what = f"the {self.compression} data" if self.compression else "the file"
        with contextlib.ExitStack() as stack, report_damage(self.where, what):
            file = stack.enter_context(Path(self.path).open("rb"))
            yield self._unpacked(file, stack)

    def pieces(self, size: int = PIECE) -> Iterator[bytes]:
        """Read from the start to the end."""
        with self.opened() as stream:
            while piece := stream.read(size):
                yield piece

    def _unpacked(self, file: BinaryIO, stack: contextlib.ExitStack) -> BinaryIO:
        if self.compression in _CODECS:
            stream = stack.enter_context(pa.CompressedInputStream(file, self.compression))
            return cast(BinaryIO, stream)
        if self.compression == "xz":
            return cast(BinaryIO, stack.enter_context(lzma.open(file)))
        if self.compression == "zip":
            archive = stack.enter_context(zipfile.ZipFile(file))
            return cast(BinaryIO, stack.enter_context(archive.open(self.member or "")))
        return file


@contextlib.contextmanager
def report_damage(where: str, what: str) -> Iterator[None]:
    """Turn what libraries say about a broken file into one sentence."""
    try:
        yield
    except (*_DAMAGE, OSError) as cause:
        # With a number it is the operating system that speaks, and its sentence is the clearest;
        # except of a place before the start of the file, which a damaged zip has named.
        if isinstance(cause, OSError) and cause.errno not in (None, errno.EINVAL):
            raise
        raise TableError(
            f"{where}: {what} cannot be read to the end ({first_line(cause)}). "
            "It seems damaged or incomplete: copy or write the file again."
        ) from cause


def first_line(cause: BaseException) -> str:
    """Give the part of a foreign message that says what was wrong."""
    lines = printable(str(cause).replace("\n", " ").strip()) or type(cause).__name__
    return lines[:200].rstrip(".")


def limited(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of bounded size; without rows there is no part."""
    parts = max(-(-batch.nbytes // BATCH_BYTES), -(-batch.num_rows // BATCH_ROWS), 1)
    step = max(-(-batch.num_rows // parts), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
