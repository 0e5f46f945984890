"""Notes about the types of text columns."""

import pyarrow as pa
import pytest

from altbi.io import scan_table
from altbi.io._text_formats import NUMBER, TEXT_FORMATS
from altbi.io._type_notes import describe_format, describe_placeholders, describe_text


def test_common_missing_words_come_first():
    counts = [("a", 1), ("b", 20), ("c", 1), ("d", 1), ("e", 2), ("f", 1), ("g", 1)]

    (note,) = describe_placeholders("c", counts)

    assert (
        "'b' (20 rows), 'e' (2 rows), 'a' (1 row), 'c' (1 row), 'd' (1 row), and 2 others." in note
    )
    assert list(describe_placeholders("c", [])) == []


@pytest.mark.parametrize(
    ("sample", "note"),
    [(["0123", "5"], "begin with 0"), (["0", "0.5", None], None), ([None], None), ([], None)],
)
def test_numbers_that_begin_with_zero_are_noted(sample, note):
    notes = list(describe_format("c", NUMBER, pa.array(sample, pa.string()), None))

    assert [note in each for each in notes] == ([True] if note else [])


def test_other_formats_are_named():
    comma = next(
        each for each in TEXT_FORMATS if each.description == "numbers with a decimal comma"
    )

    assert list(describe_format("c", comma, pa.array(["1,5"]), None)) == [
        "Column 'c' is read as numbers with a decimal comma."
    ]


@pytest.mark.parametrize("row", [0, 1])
def test_row_with_an_unusual_space_is_named_once(row):
    texts = ["1", "2", "3"]
    texts[row] += "\u00a0"

    (note,) = describe_text("c", pa.array(texts), lambda _: (row, texts[row]))

    assert f"because row {row} (counted from 0) holds '{row + 1}\\xa0', though most of" in note


def test_texts_without_majority_are_not_noted():
    assert list(describe_text("c", pa.array(["1", "x", "y"]), lambda _: (1, "x"))) == []
    assert len(list(describe_text("c", pa.array(["1", "2", "y"]), lambda _: (2, "y")))) == 1
    assert list(describe_text("c", pa.array(["1", "2", "y"]), lambda _: None)) == []


@pytest.mark.parametrize(
    ("texts", "rounded"),
    [
        (["5", "12345678901234567890", "12345678901234567891"], "'12345678901234567890'"),
        ([" -9007199254740993 ", None], "' -9007199254740993 '"),
        (["10000000000000000000", "+9007199254740993"], "'+9007199254740993'"),
        (["1" + "2" * 300], "'1222"),
        (["9007199254740991", "9007199254740992", "10000000000000000000"], None),
        (["12345678901234567890.5", "1e30", "1" * 200 + ".0"], None),
        ([None], None),
    ],
)
def test_integers_that_numbers_round_are_noted(texts, rounded):
    sample = pa.array(texts, pa.string())

    notes = list(describe_format("c", NUMBER, sample, None))

    assert len(notes) == (rounded is not None)
    for note in notes:
        assert f"some of its integers, such as {rounded}" in note
        assert "pass --as category:NAME, --id or --exclude" in note


def test_rounded_integers_of_csv_files_are_noted(open_bytes):
    source = open_bytes(b"name,n\nx,12345678901234567890\ny,12345678901234567891\n")
    found = scan_table(source, ["n"], source.batches(["n"]), limit=9, seed=0)
    assert "are rounded" in found.notes[0]
