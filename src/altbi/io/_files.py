"""The bytes of a file: decompressed in pieces, and decoded to UTF-8."""

import codecs
import contextlib
import errno
import itertools
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from altbi.errors import ParameterError, TableError, describe_cause, escape_text, quote

LINE_BYTES = 1 << 24
_PIECE_BYTES = 1 << 22
_HEAD_BYTES = 4096
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
_ARROW_CODECS = ("gzip", "bz2", "zstd", "lz4")
COMPRESSION_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}
_OLD_WORKBOOK_MAGIC = b"\xd0\xcf\x11\xe0"
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it starts with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WIDE_ENCODINGS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
_FALLBACK = "cp1252"


@dataclass(frozen=True, slots=True)
class CompressedFile:
    """The path of a file, its name in messages, and how it is compressed, if at all."""

    path: str
    name: str
    compression: str | None = None  # "gzip", "bz2", "zstd", "lz4", "xz" or "zip"
    member: str | None = None  # name of the member to read from a zip archive

    @property
    def where(self) -> str:
        """The name of the file, escaped so that it is safe to print."""
        return escape_text(self.name)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Yield a stream of the decompressed bytes.

        Damaged data raises a `TableError`, also if it is found inside the ``with`` block.
        """
        what = f"the {self.compression} data" if self.compression else "the file"
        with contextlib.ExitStack() as stack, report_damage(self.where, what):
            file = stack.enter_context(Path(self.path).open("rb"))
            yield self._decompress(file, stack)

    def pieces(self, size: int = _PIECE_BYTES) -> Iterator[bytes]:
        """Yield the decompressed bytes in pieces of at most `size` bytes.

        An empty file yields nothing; a damaged file raises a `TableError`.
        """
        with self.open() as stream:
            while piece := stream.read(size):
                yield piece

    def _decompress(self, file: BinaryIO, stack: contextlib.ExitStack) -> BinaryIO:
        """Return a stream of the decompressed bytes, which the stack closes.

        A file without compression is returned unchanged.
        """
        if self.compression in _ARROW_CODECS:
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
    """Convert the errors that libraries raise for damaged files to a `TableError`.

    `where` is the name of the file and `what` the damaged content in the message. Errors of the
    operating system, such as a missing file, are raised unchanged.
    """
    try:
        yield
    except (*_DAMAGE, OSError) as cause:
        # An error with a number comes from the operating system, so the file is not damaged. The
        # exception is EINVAL, which is raised for the negative offsets of a damaged zip archive.
        if isinstance(cause, OSError) and cause.errno not in (None, errno.EINVAL):
            raise
        raise TableError(
            f"{where}: {what} cannot be read to the end ({describe_cause(cause)}). "
            "It seems damaged or incomplete: copy or write the file again."
        ) from cause


def detect_compression(path: str, name: str, start: bytes) -> tuple[CompressedFile, str | None]:
    """Return the file with the compression found in its first bytes, and "npz", "excel" or None.

    Files of these two formats are returned without compression, because their readers unpack them.
    Other zip archives that do not hold exactly one readable file raise a `TableError`.
    """
    if start.startswith(_OLD_WORKBOOK_MAGIC):
        return CompressedFile(path, name), "excel"
    kinds = (kind for magic, kind in COMPRESSION_MAGIC.items() if start.startswith(magic))
    compression = next(kinds, None)
    if compression == "zip":
        return _find_zip_member(CompressedFile(path, name))
    return CompressedFile(path, name, compression), None


def _find_zip_member(packed: CompressedFile) -> tuple[CompressedFile, str | None]:
    """Return the only file of a zip archive and None, or other archives unchanged and their format.

    The formats are "npz" and "excel", which includes OpenDocument spreadsheets. Damaged and
    encrypted archives, and archives without or with several files, raise a `TableError`.
    """
    with report_damage(packed.where, "the zip file"), zipfile.ZipFile(packed.path) as archive:
        members = [
            member
            for member in archive.infolist()
            if not member.filename.endswith("/") and not member.filename.startswith("__MACOSX/")
        ]
    names = [member.filename for member in members]
    if any(name.startswith("xl/") for name in names) or {"content.xml", "mimetype"} <= set(names):
        return packed, "excel"
    if names and all(name.endswith(".npy") for name in names):
        return packed, "npz"
    if len(names) != 1:
        raise TableError(
            f"{packed.where}: the zip holds {len(names)} files, but expected exactly one table. "
            "Unpack it, and pass one of its files."
        )
    check_zip_member(packed, members[0])
    return CompressedFile(packed.path, packed.name, "zip", names[0]), None


def check_zip_member(packed: CompressedFile, member: zipfile.ZipInfo) -> None:
    """Raise a `TableError` for a member that is encrypted or that Python cannot decompress."""
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    if member.flag_bits & 1 or member.compress_type not in known:
        what = "encrypted" if member.flag_bits & 1 else "compressed in an uncommon way"
        raise TableError(
            f"{packed.where}: {quote(member.filename)} in the zip is {what}. Unpack it first."
        )


def guess_encoding(packed: CompressedFile, head: bytes) -> str:
    """Return the encoding that the first bytes of a file suggest: UTF-8, UTF-16 or UTF-32.

    Without a byte order mark and zero bytes it is always UTF-8, unvalidated. Binary files raise a
    `TableError`.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    if b"\0" not in head:
        return "utf-8"
    for encoding in _WIDE_ENCODINGS:
        if _is_wide_text(head[:_HEAD_BYTES], encoding):
            return encoding
    raise TableError(
        f"{packed.where}: it contains zero bytes, so it is not text, and not a known table format. "
        "Save the table as CSV, Parquet, Arrow, JSON lines or npz."
    )


def detect_encoding(
    packed: CompressedFile, head: bytes, asked: str | None, *, is_complete: bool
) -> tuple[str, list[str]]:
    """Return the encoding of a text file, and a list with a note if it is an assumption.

    `asked` is the encoding that the user states, or None; an unknown one raises a `ParameterError`.
    If `head`, the first bytes, is not UTF-8, the encoding of `replace_invalid_utf8` is returned.
    `is_complete` is whether these are all bytes of the file.
    """
    encoding = guess_encoding(packed, head) if asked is None else _normalize_encoding(asked)
    if encoding != "utf-8" or _is_start_of_utf8(head, is_complete):
        return encoding, []
    return replace_invalid_utf8(packed, encoding, is_stated=asked is not None)


def _is_start_of_utf8(head: bytes, is_complete: bool) -> bool:
    """Return whether bytes are UTF-8; the last letter must be complete if `is_complete`."""
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head, is_complete)
    except UnicodeDecodeError:
        return False
    return True


def replace_invalid_utf8(
    packed: CompressedFile, encoding: str, *, is_stated: bool = False
) -> tuple[str, list[str]]:
    """Return the encoding of a file that was taken for UTF-8, and a list of notes about it.

    The file is read to its end. If it is UTF-8, or `encoding` is another one, `encoding` is
    returned without a note. Otherwise cp1252 is assumed. Letters outside of ASCII that are UTF-8
    raise a `TableError`, because the file then has two encodings. So does every invalid byte if the
    user states the encoding, `is_stated`.
    """
    bad, has_other_letters = _find_invalid_utf8(packed) if encoding == "utf-8" else (None, False)
    if bad is None:
        return encoding, []
    if is_stated:
        raise TableError(
            f"{packed.where}: {bad} cannot be read as utf-8. Pass the right --encoding."
        )
    if has_other_letters:
        raise TableError(
            f"{packed.where}: {bad} is not UTF-8, while other letters of the file are. "
            "Repair the file, or pass its --encoding."
        )
    note = f"{packed.where} is not UTF-8 ({bad}), read as {_FALLBACK}; pass --encoding if wrong."
    return _FALLBACK, [note]


def read_utf8(packed: CompressedFile, encoding: str) -> Iterator[bytes]:
    """Yield the text of a file as UTF-8 in pieces, without a byte order mark.

    Pieces may end inside a character. UTF-8 input is not validated; invalid bytes in another
    encoding raise a `TableError` with their line.
    """
    if encoding == "utf-8":
        for index, piece in enumerate(packed.pieces()):
            yield piece.removeprefix(codecs.BOM_UTF8) if index == 0 else piece
        return
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line = 1
    for piece in packed.pieces():
        text = _decode(packed, decoder, encoding, piece, line)
        line += text.count(b"\n")
        yield text
    yield _decode(packed, decoder, encoding, b"", line, final=True)


def _decode(
    packed: CompressedFile,
    decoder: codecs.IncrementalDecoder,
    encoding: str,
    piece: bytes,
    line: int,
    *,
    final: bool = False,
) -> bytes:
    """Decode the next bytes and return them as UTF-8; invalid bytes raise a `TableError`.

    `line` is the number of the first line in the piece. `final` is True after the last piece.
    """
    try:
        return decoder.decode(piece, final).encode()
    except UnicodeError as cause:
        where = f"line {line} or later"
        if isinstance(cause, UnicodeDecodeError):
            line += cause.object[: cause.start].decode(encoding, "ignore").count("\n")
            where = f"byte 0x{cause.object[cause.start]:02x} in line {line}"
        raise TableError(
            f"{packed.where}: {where} cannot be read as {encoding}. Pass the right --encoding."
        ) from cause


def _normalize_encoding(asked: str) -> str:
    """Return Python's name of an encoding, without the suffix "-sig".

    An encoding that is unknown, or that Python cannot decode in pieces, raises a `ParameterError`.
    """
    try:
        "".encode(asked)
        codecs.getincrementaldecoder(asked)
        return codecs.lookup(asked).name.removesuffix("-sig")
    except (LookupError, UnicodeError, ValueError) as cause:
        raise ParameterError(
            f"encoding={quote(asked)}, but expected a text encoding such as utf-8, cp1252 or "
            "utf-16."
        ) from cause


def _is_wide_text(head: bytes, encoding: str) -> bool:
    """Return whether bytes are valid in a UTF-16 or UTF-32 encoding, and mostly ASCII letters."""
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(head)
    except UnicodeDecodeError:
        return False
    plain = sum(letter.isascii() for letter in text)
    return bool(text) and "\0" not in text and 2 * plain > len(text)


def _find_invalid_utf8(packed: CompressedFile) -> tuple[str | None, bool]:
    """Return a description of the first byte that is not UTF-8, or None if there is none.

    The second value is True if valid letters outside of ASCII were found. The file is read until
    both are known, or to its end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    bad, has_other_letters, line = None, False, 1
    # The empty piece at the end detects an incomplete letter.
    for piece in itertools.chain(packed.pieces(), [b""]):
        if piece and piece.isascii() and not decoder.getstate()[0]:
            line += piece.count(b"\n")
            continue
        try:
            text = decoder.decode(piece, not piece)
        except UnicodeDecodeError as cause:
            line += cause.object.count(b"\n", 0, cause.start)
            bad = f"byte 0x{cause.object[cause.start]:02x} in line {line}"
            decoder = codecs.getincrementaldecoder("utf-8")("ignore")
            text = decoder.decode(cause.object, not piece)
        has_other_letters = has_other_letters or not text.isascii()
        line += piece.count(b"\n")
        if bad and has_other_letters:
            break
    return bad, has_other_letters
