"""Bytes of archives and workbooks, written without the packages that read them."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

import pyarrow as pa

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
CONTENT = "application/vnd.openxmlformats-officedocument.spreadsheetml"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

# The parts of a workbook that are the same for every table.
WORKBOOK_FILES = {
    "[Content_Types].xml": f'<Types xmlns="{TYPES}">'
    '<Default Extension="rels" ContentType='
    '"application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{CONTENT}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{CONTENT}.worksheet+xml"/>'
    "</Types>",
    "_rels/.rels": f'<Relationships xmlns="{RELATIONS}">'
    f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    "</Relationships>",
    "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
    '<sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{RELATIONS}">'
    f'<Relationship Id="rId1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    "</Relationships>",
}


def build_workbook(rows: Sequence[Sequence[str | float]]) -> bytes:
    """Return an Excel workbook (.xlsx) of one sheet with these cells, at most 26 columns."""
    xml_rows = []
    for number, row in enumerate(rows, start=1):
        cells = "".join(
            _format_cell(f"{chr(65 + at)}{number}", cell) for at, cell in enumerate(row)
        )
        xml_rows.append(f'<row r="{number}">{cells}</row>')
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(xml_rows)}</sheetData></worksheet>'
    files = WORKBOOK_FILES | {"xl/worksheets/sheet1.xml": sheet}
    return zip_files({name: (HEAD + xml).encode() for name, xml in files.items()})


def _format_cell(position: str, value: str | float) -> str:
    """Return the XML of a cell: a text that is written in place, or a number."""
    if isinstance(value, str):
        return f'<c r="{position}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f'<c r="{position}"><v>{value}</v></c>'


def zip_files(files: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of these files."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return sink.getvalue()


def compress(content: bytes, codec: str) -> bytes:
    """Return the content as a stream of a codec of Arrow, such as "zstd"."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    compressed: bytes = sink.getvalue().to_pybytes()
    return compressed
