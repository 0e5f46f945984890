"""Notes about the types of text columns."""

import pyarrow as pa
import pytest

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


def test_texts_without_majority_are_not_noted():
    assert list(describe_text("c", pa.array(["1", "x", "y"]), lambda _: (1, "x"))) == []
    assert len(list(describe_text("c", pa.array(["1", "2", "y"]), lambda _: (2, "y")))) == 1
    assert list(describe_text("c", pa.array(["1", "2", "y"]), lambda _: None)) == []
