"""Workbooks as bytes: .xlsx and .ods files with just enough XML to be read."""

import io
import zipfile
from xml.sax.saxutils import escape, quoteattr

SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
# Numbers of the styles in `STYLES`. Excel stores dates and times as days since 1900.
DATE, MOMENT, TIME, DURATION, PERCENT = 1, 2, 3, 4, 5
STYLES = (
    f'<styleSheet xmlns="{SHEET}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/>'
    '<xf numFmtId="22"/><xf numFmtId="21"/><xf numFmtId="46"/><xf numFmtId="9"/>'
    "</cellXfs></styleSheet>"
)


def column_name(index):
    """Return the letters of a column, counted from 0."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def make_cell(value, reference):
    """Return the XML of a cell: number, boolean, text, "#ERROR!", (style, number) or None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{reference}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, tuple):
        return f'<c r="{reference}" s="{value[0]}"><v>{value[1]}</v></c>'
    if not isinstance(value, str):
        return f'<c r="{reference}"><v>{value!r}</v></c>'
    if value.startswith("#"):
        return f'<c r="{reference}" t="e"><v>{value}</v></c>'
    text = f'<t xml:space="preserve">{escape(value)}</t>'
    return f'<c r="{reference}" t="inlineStr"><is>{text}</is></c>'


def make_sheet(rows):
    """Return the XML of a sheet, or a text unchanged."""
    if isinstance(rows, str):
        return rows
    lines = (
        "".join(make_cell(value, f"{column_name(i)}{number}") for i, value in enumerate(row))
        for number, row in enumerate(rows, start=1)
    )
    data = "".join(f'<row r="{number}">{line}</row>' for number, line in enumerate(lines, start=1))
    return f'<worksheet xmlns="{SHEET}"><sheetData>{data}</sheetData></worksheet>'


def make_xlsx(sheets, hidden=()):
    """Return a workbook; `sheets` has rows, or the XML of a sheet, by name."""
    described = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{i}" r:id="r{i}"'
        + (' state="hidden"' if name in hidden else "")
        + "/>"
        for i, name in enumerate(sheets, start=1)
    )
    related = "".join(
        f'<Relationship Id="r{i}" Type="{OFFICE}/worksheet" Target="worksheets/s{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    members = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}"><sheets>{described}'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{related}'
        f'<Relationship Id="rS" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": STYLES,
    }
    for i, rows in enumerate(sheets.values(), start=1):
        members[f"xl/worksheets/s{i}.xml"] = make_sheet(rows)
    return zip_members(members)


def make_ods(rows):
    """Return an OpenDocument spreadsheet with one sheet of texts and numbers."""
    ns = "urn:oasis:names:tc:opendocument:xmlns"
    lines = "".join(
        "<table:table-row>"
        + "".join(
            f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p>'
            "</table:table-cell>"
            if isinstance(value, str)
            else f'<table:table-cell office:value-type="float" office:value="{value}"/>'
            for value in row
        )
        + "</table:table-row>"
        for row in rows
    )
    content = (
        f'<office:document-content xmlns:office="{ns}:office:1.0" xmlns:table="{ns}:table:1.0" '
        f'xmlns:text="{ns}:text:1.0"><office:body><office:spreadsheet>'
        f'<table:table table:name="Data">{lines}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    manifest = f'<manifest:manifest xmlns:manifest="{ns}:manifest:1.0"/>'
    return zip_members(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": manifest,
            "content.xml": content,
        }
    )


def zip_members(members):
    """Return a zip archive; `members` has texts by name."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else None)
    return stream.getvalue()
