"""What a file is, by its first bytes and never by its name alone."""

import codecs
import zipfile

from altbi.errors import TableError
from altbi.io._compressed import CompressedFile, report_damage
from altbi.io._encodings import guess_encoding

__all__ = ["FORMATS", "check_zip_member", "detect_compression", "detect_format"]

FORMATS = ("csv", "jsonl", "parquet", "arrow", "npz", "npy")
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
}
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_TABLES = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
}
_FOREIGN = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"%PDF-": "a PDF document",
    b"\x80\x04": "a Python pickle, which is never read because it can run code",
    b"\x80\x05": "a Python pickle, which is never read because it can run code",
    **dict.fromkeys((*_COMPRESSIONS, *_ZIPS), "compressed twice"),
}


def detect_compression(path: str, name: str, start: bytes) -> tuple[CompressedFile, str | None]:
    """Tell how a file that starts like this is compressed; an npz file is told by its members."""
    if start.startswith(_ZIPS):
        return _find_zip_member(CompressedFile(path, name))
    for magic, compression in _COMPRESSIONS.items():
        if start.startswith(magic):
            return CompressedFile(path, name, compression), None
    return CompressedFile(path, name), None


def detect_format(packed: CompressedFile, head: bytes) -> str:
    """Tell the format of an unpacked file by its head, or say what it is instead."""
    for magic, table in _TABLES.items():
        if head.startswith(magic):
            return table
    for magic, kind in _FOREIGN.items():
        if head.startswith(magic):
            raise TableError(f"{packed.where}: it is {kind}. Save the table as CSV or Parquet.")
    return _text_format(packed, head)


def _find_zip_member(packed: CompressedFile) -> tuple[CompressedFile, str | None]:
    with report_damage(packed.where, "the zip file"), zipfile.ZipFile(packed.path) as archive:
        members = [
            member
            for member in archive.infolist()
            if not member.filename.endswith("/") and not member.filename.startswith("__MACOSX/")
        ]
    names = [member.filename for member in members]
    if any(name.startswith("xl/") for name in names):
        raise TableError(f"{packed.where}: it is an Excel workbook. Save it as CSV.")
    if names and all(name.endswith(".npy") for name in names):
        return packed, "npz"
    if len(names) != 1:
        raise TableError(
            f"{packed.where}: the zip holds {len(names)} files, but expected exactly one table. "
            "Unpack it, and give one of its files."
        )
    check_zip_member(packed, members[0])
    return CompressedFile(packed.path, packed.name, "zip", names[0]), None


def check_zip_member(packed: CompressedFile, member: zipfile.ZipInfo) -> None:
    """Refuse what the standard library cannot unpack."""
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    if member.flag_bits & 1 or member.compress_type not in known:
        what = "encrypted" if member.flag_bits & 1 else "compressed in an uncommon way"
        raise TableError(
            f"{packed.where}: {member.filename!r} in the zip is {what}. Unpack it first."
        )


def _text_format(packed: CompressedFile, head: bytes) -> str:
    encoding = guess_encoding(packed, head)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    text = text.removeprefix("\ufeff").lstrip()
    if text.startswith("{"):
        return "jsonl"
    if text.startswith("[") and text[1:].lstrip().startswith("{"):
        raise TableError(
            f"{packed.where}: it is one JSON list, which cannot be read piece by piece. "
            "Write one object per line: jq -c '.[]' FILE > FILE.jsonl"
        )
    return "csv"
