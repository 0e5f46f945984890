"""The encoding of a text file, settled over the whole file, and its text as UTF-8."""

import codecs
from collections.abc import Iterator

from altbi.errors import ParameterError, TableError
from altbi.io._compressed import CompressedFile

__all__ = ["detect_encoding", "guess_encoding", "utf8_pieces"]

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it starts with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
_LOOK = 4096
_FALLBACK = "cp1252"


def guess_encoding(packed: CompressedFile, head: bytes) -> str:
    """Tell what the head of a file is written in; no text at all is refused."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    if b"\0" not in head:
        return "utf-8"
    for encoding in _WIDE:
        if _looks_like(head[:_LOOK], encoding):
            return encoding
    raise TableError(
        f"{packed.where}: it holds zero bytes, so it is no text, and no table format that is known "
        "here. Save the table as CSV, Parquet, Arrow, JSON lines or npz."
    )


def detect_encoding(
    packed: CompressedFile, head: bytes, asked: str | None
) -> tuple[str, list[str]]:
    """Give the encoding of the whole file, and a note when it is an assumption.

    A file may be plain ASCII for a gigabyte before the first other letter comes, so all of it is
    looked at, once.
    """
    encoding = guess_encoding(packed, head) if asked is None else _known(asked)
    if encoding != "utf-8":
        return encoding, []
    bad, wide = _scan(packed)
    if bad is None:
        return encoding, []
    if asked is not None:
        raise TableError(
            f"{packed.where}: {bad} cannot be read as utf-8. Give the right --encoding."
        )
    if wide:
        raise TableError(
            f"{packed.where}: {bad} is not UTF-8, while other letters of the file are. "
            "Repair the file, or give its --encoding."
        )
    note = f"{packed.where} is not UTF-8 ({bad}), read as {_FALLBACK}; give --encoding if wrong."
    return _FALLBACK, [note]


def utf8_pieces(packed: CompressedFile, encoding: str) -> Iterator[bytes]:
    """Read the text as UTF-8, whatever it was written in, without a byte order mark."""
    if encoding == "utf-8":
        for place, piece in enumerate(packed.pieces()):
            yield piece.removeprefix(codecs.BOM_UTF8) if place == 0 else piece
        return
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line = 1
    for piece in packed.pieces():
        text = _decoded(packed, decoder, encoding, piece, line)
        line += text.count(b"\n")
        yield text
    yield _decoded(packed, decoder, encoding, b"", line, final=True)


def _decoded(
    packed: CompressedFile,
    decoder: codecs.IncrementalDecoder,
    encoding: str,
    piece: bytes,
    line: int,
    *,
    final: bool = False,
) -> bytes:
    try:
        return decoder.decode(piece, final).encode()
    except UnicodeError as cause:
        where = f"line {line} or later"
        if isinstance(cause, UnicodeDecodeError):
            line += cause.object[: cause.start].decode(encoding, "ignore").count("\n")
            where = f"byte 0x{cause.object[cause.start]:02x} in line {line}"
        raise TableError(
            f"{packed.where}: {where} cannot be read as {encoding}. Give the right --encoding."
        ) from cause


def _known(asked: str) -> str:
    """Give the usual name of a text encoding that Python can read in pieces."""
    try:
        "".encode(asked)
        codecs.getincrementaldecoder(asked)
        return codecs.lookup(asked).name.removesuffix("-sig")
    except (LookupError, UnicodeError, ValueError) as cause:
        raise ParameterError(
            f"encoding={asked!r}, but expected a text encoding such as utf-8, cp1252 or utf-16."
        ) from cause


def _looks_like(head: bytes, encoding: str) -> bool:
    """Tell whether this is text in a wide encoding without a mark, in mostly plain letters."""
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(head)
    except UnicodeDecodeError:
        return False
    plain = sum(letter.isascii() for letter in text)
    return bool(text) and "\0" not in text and 2 * plain > len(text)


def _scan(packed: CompressedFile) -> tuple[str | None, bool]:
    """Find the first byte that is not UTF-8, and whether there are letters that are no ASCII."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    bad, wide, line = None, False, 1
    for piece in _with_end(packed.pieces()):
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
        wide = wide or not text.isascii()
        line += piece.count(b"\n")
        if bad and wide:
            break
    return bad, wide


def _with_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Mark the end by an empty piece, so that a letter cut in half there is noticed."""
    yield from pieces
    yield b""
