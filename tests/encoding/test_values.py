import sys

import numpy as np
import pyarrow as pa
import pytest
from example_tables import make_table

from altbi.encoding import MAX_STANDARDIZED, Drift, TableEncoder
from altbi.table import as_table


@pytest.mark.parametrize("n_columns", [1, 3, 600])
@pytest.mark.parametrize("row", [0, 511, 1022])
def test_single_values_are_counted_anywhere(n_columns, row):
    rows = np.random.default_rng(0).random((1023, n_columns))
    encoder = TableEncoder().fit(as_table(rows))
    high, low, missing = rows.copy(), rows.copy(), rows.copy()
    high[row, -1], low[row, 0], missing[row, -1] = 2, -1, np.nan
    first, last = encoder.names[0], encoder.names[-1]

    assert encoder.drift(as_table(rows)).outside == {}
    assert encoder.drift(as_table(high)).outside == {last: 1}
    assert encoder.drift(as_table(low)).outside == {first: 1}
    assert encoder.drift(as_table(missing)).missing == {last: 1}


def test_values_are_counted_for_their_own_column():
    numbers = np.arange(100.0)
    encoder = TableEncoder().fit(make_table(sort=["a", "b"] * 50, size=numbers, rank=numbers))
    rows = pa.table({"sort": ["a", None, "c"], "size": [5.0, 6, 7], "rank": [500.0, None, 7]})

    drift = encoder.drift(as_table(rows))

    assert drift == Drift(
        missing={"sort": 1, "rank": 1}, unseen={"sort": 1}, outside={"rank": 1}, others={}, rows=3
    )
    # A column of numbers may arrive as texts that are all missing.
    texts = rows.set_column(1, "size", pa.nulls(3, pa.string()))
    assert encoder.drift(as_table(texts)).outside == {"rank": 1}


def test_columns_without_values_have_no_range():
    encoder = TableEncoder().fit(make_table(a=[1.0, 2.0], b=pa.nulls(2, pa.float64())))

    drift = encoder.drift(make_table(a=[1.0, 3.0], b=[-5.0, 5.0]))

    assert drift.outside == {"a": 1}


def test_missing_and_unknown_values_are_described():
    names = [f"n{number}" for number in range(7)]
    sample = make_table(c=["a", "b"] * 5, **{name: np.arange(10.0) for name in names})
    rows = make_table(c=["z"], **{name: pa.nulls(1) for name in names})

    missing, unknown = TableEncoder().fit(sample).drift(rows).describe()

    assert missing == (
        "Missing values in 'n0' (1 values), 'n1' (1 values), 'n2' (1 values), 'n3' (1 values), "
        "'n4' (1 values) and 2 more columns, where the training sample had none. If the table has "
        "changed, fit again."
    )
    assert unknown == (
        "Unknown categories in 'c' (1 values), which the training sample did not have. If the "
        "table has changed, fit again."
    )


@pytest.mark.parametrize(
    ("n_new", "n_rare", "is_reported"), [(11, 1, True), (10, 1, False), (100, 9, False)]
)
def test_many_unknown_categories_are_described(n_new, n_rare, is_reported):
    learned = ["red"] * (200 - n_rare) + [f"rare {number}" for number in range(n_rare)]
    encoder = TableEncoder().fit(make_table(a=learned))
    drift = Drift()
    for n in (n_new // 2, n_new - n_new // 2):
        drift += encoder.drift(make_table(a=["new"] * n + ["red"] * (50 - n)))

    warning = (
        f"Rare or unknown categories in 'a' ({n_new} values) of 100 rows, more than in the "
        "training sample. If the table has changed, fit again."
    )
    assert list(drift.describe()) == ([warning] if is_reported else [])
    assert drift.unseen == {}


@pytest.mark.parametrize("n_common", [0, 5])
def test_rare_categories_are_expected_where_most_were_rare(n_common):
    texts = [f"text {number}" for number in range(200)]
    encoder = TableEncoder().fit(make_table(a=["red"] * n_common + texts[n_common:]))

    drift = encoder.drift(make_table(a=texts))

    assert encoder.columns[0].n_rare == 200 - n_common
    assert list(drift.describe()) == []


def test_only_many_values_outside_range_are_described():
    numbers = np.arange(100.0)
    encoder = TableEncoder().fit(make_table(a=numbers, b=numbers))

    def describe(a):
        drift = Drift()
        for half in (slice(0, 50), slice(50, 100)):
            drift += encoder.drift(make_table(a=a[half], b=np.arange(50.0)))
        return list(drift.describe())

    few, many = np.arange(100.0), np.arange(100.0)
    few[:5] = -1.0
    many[:3], many[97:] = -1.0, 100.5
    assert describe(few) == []
    too_few_rows = make_table(a=np.full(99, -1.0), b=np.arange(99.0))
    assert list(encoder.drift(too_few_rows).describe()) == []
    assert describe(many) == [
        "Many values outside the range of the training sample in 'a' (6 values) of 100 rows. If "
        "the table has changed, fit again."
    ]


@pytest.mark.parametrize("scale", [1.0, sys.float_info.min])
def test_no_standardized_value_exceeds_the_maximum(scale):
    state = TableEncoder().fit(as_table(np.arange(9.0)[:, None])).to_json()
    state["columns"][0]["scales"] = [scale]
    ends = np.array([[sys.float_info.max], [-sys.float_info.max]])

    standardized = TableEncoder.from_json(state).standardize(as_table(ends))

    assert (np.abs(standardized) <= MAX_STANDARDIZED).all()
    assert np.abs(standardized).max() > 0.99 * MAX_STANDARDIZED
