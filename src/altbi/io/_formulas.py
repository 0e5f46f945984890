"""Quote texts that a spreadsheet would run as a formula, as CSV files have them, and undo it.

A quoted text has an apostrophe before it, as OWASP recommends against CSV injection. A text that
looks as if it were quoted gets one more apostrophe, so that the original is always recovered.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["quote_formulas", "quote_names", "quote_schema", "unquote_formulas"]

QUOTE = "'"
# Full-width signs start a formula in some languages of the spreadsheet. A tab, a line break or a
# null character may be dropped when the file is opened, so that the next character comes first.
STARTS = r"[=\x{FF1D}@\x{FF20}+\x{FF0B}\-\x{FF0D}\t\r\n\x00]"
# A sign alone, or before a number: -5, +3.2, -1e5, -1,234.50, +49 30 123456, -5 %, -$5, -5 €.
NUMBER = (
    r"[+\-](?:[\p{Zs}\p{Sc}]{0,3}(?:\d[\d.,'\x{2019}\p{Zs}]*|[.,]\d+)(?:[eE][+\-]?\d+)?"
    r"[\p{Zs}\p{Sc}%]{0,3})?"
)


def quote_formulas(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before texts and column names that are formulas.

    Columns of text and of bytes are quoted, also with a dictionary; these columns become plain
    text. Other columns are unchanged. Bytes that are not UTF-8 raise a `pyarrow.ArrowInvalid`.
    """
    return _convert_texts(table, _quote, quote_names(table.column_names))


def unquote_formulas(table: pa.Table) -> pa.Table:
    """Return the table whose texts and names `quote_formulas` has quoted; types may differ."""
    names = _unquote(pa.array(table.column_names, pa.string())).to_pylist()
    return _convert_texts(table, _unquote, names)


def quote_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the tables that `quote_formulas` returns for tables of a schema."""
    return quote_formulas(schema.empty_table()).schema


def quote_names(names: Sequence[str]) -> list[str]:
    """Return the column names, with an apostrophe before those that are formulas."""
    quoted: list[str] = _quote(pa.array(names, pa.string())).to_pylist()
    return quoted


def _convert_texts(table: pa.Table, convert: Callable[[Any], Any], names: list[str]) -> pa.Table:
    """Return the table with these column names, and with its columns of text converted."""
    columns = []
    for column in table.columns:
        type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if _is_text(type_):
            column = convert(column.cast(type_).cast(_text_type(type_)))
        columns.append(column)
    return pa.Table.from_arrays(columns, names=names)


def _is_text(type_: pa.DataType) -> bool:
    """Return whether CSV files have the values of a type as they are: texts and bytes."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def _text_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of text that values of a type of text or bytes are converted to."""
    is_large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    return pa.large_string() if is_large else pa.string()


def _quote(texts: Any) -> Any:  # noqa: ANN401 - an array or a chunked array
    """Return the texts with an apostrophe before formulas; missing values stay missing."""
    formulas = _find_formulas(texts)
    if not pc.any(formulas).as_py():
        return texts
    start, nothing = (pa.scalar(text, texts.type) for text in (QUOTE, ""))
    return pc.if_else(formulas, pc.binary_join_element_wise(start, texts, nothing), texts)


def _unquote(texts: Any) -> Any:  # noqa: ANN401 - an array or a chunked array
    """Return the texts without the apostrophe that `_quote` has put before formulas."""
    quoted = pc.and_(pc.starts_with(texts, QUOTE), _find_formulas(texts))
    if not pc.any(quoted).as_py():
        return texts
    return pc.if_else(quoted, pc.utf8_slice_codeunits(texts, 1), texts)


def _find_formulas(texts: Any) -> Any:  # noqa: ANN401 - an array or a chunked array
    """Return for each text whether it is a formula, possibly with apostrophes before it.

    Signs, alone or before a number, are no formulas. Missing values stay missing.
    """
    found = pc.match_substring_regex(texts, rf"\A{QUOTE}*{STARTS}")
    if not pc.any(found).as_py():
        return found
    return pc.and_not(found, pc.match_substring_regex(texts, rf"\A{QUOTE}*{NUMBER}\z"))
