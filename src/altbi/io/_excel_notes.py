"""Notes on the cells of a workbook that python-calamine reads as empty, although they are not.

They are counted in the XML of .xlsx files.
"""

import re
import zipfile
from collections.abc import Iterator
from typing import IO
from xml.etree import ElementTree

from altbi.io._files import CompressedFile

_PIECE_BYTES = 1 << 20
_TAIL_BYTES = (
    1 << 16
)  # a cell with a formula of 8,192 letters, the most that Excel allows, is shorter
_ERROR = re.compile(rb"""<(?:\w+:)?c\s[^>]*?\bt=["']e["']""")
# A cell with a formula, and without a value or with an empty one; texts may be empty.
_WITHOUT_RESULT = re.compile(
    rb"""
    <(?:\w+:)?c\s(?![^>]*\bt=["'](?:str|e)["'])[^>]*>\s*
    <(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*
    (?:<(?:\w+:)?v\s*(?:/>|>\s*</(?:\w+:)?v>)\s*)?
    </
    """,
    re.VERBOSE,
)


def describe_cells(packed: CompressedFile, name: str, where: str) -> Iterator[str]:
    """Yield notes on errors, and on formulas without a stored result, in a sheet of an .xlsx file.

    `name` is the name of the sheet, and `where` that of file and sheet in messages.
    """
    if not zipfile.is_zipfile(packed.path):
        return
    with zipfile.ZipFile(packed.path) as archive:
        member = _find_member(archive, name)
        if member is None:
            return
        with archive.open(member) as file:
            n_errors, n_without_result = _count_cells(file)
    if n_errors:
        yield f"Errors such as #N/A in {where} count as missing: {n_errors} in all."
    if n_without_result:
        yield (
            f"Formulas without a stored result in {where} count as missing: {n_without_result} in "
            "all. Open the workbook in Excel or LibreOffice and save it to store the results."
        )


def _find_member(archive: zipfile.ZipFile, name: str) -> str | None:
    """Return the member of an .xlsx archive that holds a sheet, or None if it is not known."""
    members = archive.namelist()
    if not {"xl/workbook.xml", "xl/_rels/workbook.xml.rels"} <= set(members):
        return None
    sheets = ElementTree.fromstring(archive.read("xl/workbook.xml")).iter()
    ids = {
        value
        for each in sheets
        if each.tag.endswith("}sheet") and each.get("name") == name
        for key, value in each.attrib.items()
        if key.endswith("}id")
    }
    relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    targets = [each.get("Target", "") for each in relations if each.get("Id") in ids]
    paths = [target[1:] if target.startswith("/") else f"xl/{target}" for target in targets]
    return next((path for path in paths if path in members), None)


def _count_cells(file: IO[bytes]) -> tuple[int, int]:
    """Return how many cells of a sheet, given as XML, hold errors, and how many no result."""
    n_errors = n_without_result = 0
    tail = b""  # of the earlier pieces, as a cell may start there
    while piece := file.read(_PIECE_BYTES):
        text = tail + piece
        n_errors += _count_new(_ERROR, text, len(tail))
        if b"<f" in text or b":f" in text:
            n_without_result += _count_new(_WITHOUT_RESULT, text, len(tail))
        tail = text[-_TAIL_BYTES:]
    return n_errors, n_without_result


def _count_new(pattern: re.Pattern[bytes], text: bytes, n_counted: int) -> int:
    """Return how many matches in a text end behind the first bytes, which were searched before."""
    return sum(found.end() > n_counted for found in pattern.finditer(text))
