import numpy as np
import pyarrow as pa
import pytest

from altbi.duplicates._hashes import MISSING, hash_column, hash_texts
from altbi.table import as_table


def hash_values(values):
    table = pa.table({"x": values})
    return hash_column(as_table(table), 0, table["x"].combine_chunks())


def test_distinct_texts_have_distinct_hashes():
    texts = ["", "a", "aa", "a" * 8, "a" * 9, "ab", "ba", "a\x00", *map(str, range(100_000))]

    assert len(np.unique(hash_texts(pa.array(texts)))) == len(texts)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 1023, 1024, 1025, 5000])
def test_hash_depends_on_each_text_alone(length):
    text = "ü" * (length // 2) + "x" * (length % 2)
    alone = hash_texts(pa.array([text]))[0]

    among = hash_texts(pa.array(["before", None, text, "after"]).slice(1, 2))

    assert among.tolist() == [int(MISSING), int(alone)]


def test_end_of_a_long_text_counts():
    hashes = hash_texts(pa.array(["x" * 5000 + "a", "x" * 5000 + "b", "x" * 5000 + "a"]))

    assert hashes[0] == hashes[2] != hashes[1]


def test_middle_of_a_long_text_counts():
    hashes = hash_texts(pa.array(["x" * 1500 + letter + "x" * 500 for letter in "ab"]))

    assert hashes[0] != hashes[1]


def test_numbers_are_hashed_by_value():
    hashes = hash_values([0.0, -0.0, 1.0, None, float("nan"), 2.0])

    assert hashes[0] == hashes[1]
    assert hashes[3] == hashes[4] == MISSING
    assert len(np.unique(hashes)) == 4


@pytest.mark.parametrize("type_", [pa.int64(), pa.decimal128(25)])
def test_large_integers_are_hashed_exactly(type_):
    hashes = hash_values(pa.array([2**62, 2**62 + 1, 2**62, None], type_))

    assert hashes[0] == hashes[2] != hashes[1]
    assert hashes[3] == MISSING


@pytest.mark.parametrize("type_", [pa.int32(), pa.int64(), pa.float32(), pa.float64()])
def test_type_of_a_number_does_not_count(type_):
    assert hash_values(pa.array([1, 2, None], type_)).tolist() == hash_values([1, 2, None]).tolist()


def test_categories_are_hashed_as_texts():
    values = pa.array(["a", "b", None, "a"])

    assert hash_values(values.dictionary_encode()).tolist() == hash_values(values).tolist()


def test_no_texts_have_no_hashes():
    assert len(hash_texts(pa.array([], pa.string()))) == 0
    assert hash_texts(pa.array([None], pa.string())).tolist() == [int(MISSING)]
