import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from example_tables import FLOATS, MIXED, make_table, tables
from hypothesis import given
from hypothesis import strategies as st

from altbi.encoding import CATEGORY_WEIGHT, LIMIT, MISSING_WEIGHT, OTHER, TableEncoder, _encoder
from altbi.errors import AltbiError, ParameterError, TableError
from altbi.table import as_table

INDICATOR, CATEGORY = np.float32(MISSING_WEIGHT), np.float32(CATEGORY_WEIGHT)


def encode(sample, **columns):
    return TableEncoder().fit(sample).transform(make_table(**columns))


def restore(encoder):
    return TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))


# Encoding


@pytest.mark.slow
@given(tables())
def test_sample_is_encoded_in_unit_interval(sample):
    features = TableEncoder().fit_transform(sample)
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    assert features.shape[0] == len(sample)
    assert ((features >= 0) & (features <= 1)).all()


@pytest.mark.slow
@given(tables(), tables())
def test_json_restores_encoder_to_the_bit(sample, other):
    encoder = TableEncoder(max_categories=2).fit(sample)
    restored = restore(encoder)
    assert restored.transform(sample).tobytes() == encoder.transform(sample).tobytes()
    assert restored.columns == encoder.columns
    assert restored.describe_problems() == encoder.describe_problems()
    if (other.names, other.kinds) == (sample.names, sample.kinds):
        assert restored.transform(other).tobytes() == encoder.transform(other).tobytes()


@pytest.mark.slow
@given(tables(), st.data())
def test_row_is_encoded_independently_of_others(sample, data):
    encoder = TableEncoder().fit(sample)
    features = encoder.transform(sample)
    rows = data.draw(st.lists(st.integers(0, len(sample) - 1), min_size=1, max_size=20))
    np.testing.assert_array_equal(encoder.transform(sample.take(np.array(rows))), features[rows])
    np.testing.assert_array_equal(encoder.transform(sample.slice(0, 1)), features[:1])


@given(st.lists(FLOATS, min_size=2, max_size=30), st.lists(FLOATS, min_size=1, max_size=5))
def test_finite_numbers_are_encoded_as_finite(fitted, later):
    features = encode(make_table(a=fitted), a=pa.array(later, pa.float64()))
    assert (np.abs(features) <= LIMIT).all()


@pytest.mark.parametrize(
    ("fitted", "later", "expected"),
    [
        ([10.0, 20.0, 12.0], [10.0, 15.0, 0.0, 40.0], [0, 0.5, -1, 3]),
        ([0.0, 1e-300], [1e308, -1e308, 5e-301], [LIMIT, -LIMIT, 0.5]),
        ([0.0, 5e-324], [0.0, 5e-324], [0, 1]),
        ([5.0, 5.0], [5.0, 7.0], [0, 2]),
    ],
    ids=["outside the range", "clipped at the limit", "tiny range", "constant"],
)
def test_numbers_are_scaled_by_fitted_range(fitted, later, expected):
    features = encode(make_table(a=fitted), a=later)
    np.testing.assert_array_equal(features[:, 0], np.float32(expected))


def test_range_wider_than_float64_does_not_overflow():
    sample = make_table(a=[-1.7e308, 1.7e308, 0.0, None])
    encoder = TableEncoder().fit(sample)
    features = encoder.transform(sample)
    np.testing.assert_array_equal(features[:, 0], [0, 1, 0.5, 0.5])
    decoded = encoder.decode_expected(features)[0].to_numpy()
    np.testing.assert_allclose(decoded[:3], [-1.7e308, 1.7e308, 0.0], atol=1e300)
    assert np.isfinite(encoder.decode_expected(features * 10)[0].to_numpy()).all()
    np.testing.assert_array_equal(restore(encoder).transform(sample), features)


def test_missing_numbers_become_median_with_indicator():
    features = TableEncoder().fit_transform(make_table(a=[0.0, 1.0, 10.0, None, float("nan")]))
    np.testing.assert_array_equal(features[:, 0], np.float32([0, 0.1, 1, 0.1, 0.1]))
    np.testing.assert_array_equal(features[:, 1], [0, 0, 0, INDICATOR, INDICATOR])


def test_newly_missing_values_have_no_indicator():
    features = encode(make_table(a=[0.0, 1.0, 10.0], c=["u", "u", "v"]), a=[None], c=pa.nulls(1))
    np.testing.assert_array_equal(features, np.float32([[0.1, 0, 0]]))


def test_every_kind_may_have_missing_values():
    encoder = TableEncoder().fit(MIXED)
    features = encoder.transform(MIXED)
    assert encoder.feature_columns.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 5]
    size = [[0, 0], [0.5, INDICATOR], [1, 0], [0.5, 0]]
    flag = [[CATEGORY, 0], [0, 0], [CATEGORY, INDICATOR], [CATEGORY, 0]]
    day = [[0, 0], [1, 0], [0, INDICATOR], [0, INDICATOR]]
    colour = [[CATEGORY, 0, 0], [CATEGORY, 0, 0], [0, 0, INDICATOR], [0, CATEGORY, 0]]
    still, void = np.zeros((4, 1)), [[0, INDICATOR]] * 4
    np.testing.assert_array_equal(features, np.hstack([size, flag, day, colour, still, void]))


@pytest.mark.parametrize(
    ("fitted", "value"), [(pa.nulls(2), 0), (pa.nulls(2, pa.string()), CATEGORY)]
)
@pytest.mark.parametrize("later", [[1e30, None], ["text", None], [True, None]])
def test_column_without_values_encodes_presence_only(fitted, value, later):
    sample = make_table(a=[1.0, 2.0], void=fitted)
    features = encode(sample, a=[1.0, 1.0], void=pa.array(later))
    np.testing.assert_array_equal(features[:, 1:], [[value, 0], [0, INDICATOR]])


def test_rare_and_unknown_categories_are_encoded_alike():
    features = encode(make_table(c=["a", "a", "b", ""]), c=["a", "b", "never", ""])
    np.testing.assert_array_equal(features, [[0.25, 0], [0, 0.25], [0, 0.25], [0, 0.25]])


def test_arrow_type_of_text_does_not_matter():
    encoder = TableEncoder().fit(make_table(c=["a", "b", "a", "b", None]))
    values = pa.array(["b", None, "x", "a"])
    expected = encoder.transform(make_table(c=values))
    assert expected.any()
    for column in (
        values.dictionary_encode(),
        values.cast(pa.large_string()),
        values.cast(pa.string_view()),
    ):
        np.testing.assert_array_equal(encoder.transform(make_table(c=column)), expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_table_types_are_encoded_alike(dtype):
    values = np.array([[1, 20, 7], [2, 10, 7], [4, 90, 7]], dtype=dtype)
    names = ["x0", "x1", "x2"]
    sources = [
        values,
        np.asfortranarray(values),
        np.repeat(values, 2, axis=0)[::2],
        pd.DataFrame(values, columns=names),
        pl.DataFrame(values, schema=names),
        pa.table(dict(zip(names, values.T, strict=True))),
    ]
    values.flags.writeable = False
    before = values.copy()
    expected = TableEncoder().fit_transform(as_table(values.astype(np.float64)))
    for source in sources:
        assert TableEncoder().fit_transform(as_table(source)).tobytes() == expected.tobytes()
    np.testing.assert_array_equal(values, before)


def test_booleans_and_numbers_are_interchangeable():
    flags = np.array([[True], [False]])
    encoder = TableEncoder().fit(as_table(flags))
    np.testing.assert_array_equal(encoder.transform(as_table(flags.astype(int))), [[0.25], [0]])
    assert encoder.kinds == ("boolean",)


def test_block_size_does_not_change_features(monkeypatch):
    values = np.random.default_rng(0).normal(size=(500, 3))
    values[::7, 1] = np.nan
    sample = as_table(values)
    expected = TableEncoder().fit_transform(sample)
    monkeypatch.setattr(_encoder, "BLOCK_VALUES", 10)
    monkeypatch.setattr(_encoder, "FIT_COLUMNS", 2)
    np.testing.assert_array_equal(TableEncoder().fit_transform(sample), expected)


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [1, 3, 10, 700])
def test_extreme_values_do_not_affect_other_rows(n_columns):
    generator = np.random.default_rng(0)
    encoder = TableEncoder().fit(as_table(generator.normal(size=(300, n_columns))))
    rows = generator.normal(size=(130, n_columns)) * 2
    rows[7::64, -1] = 1e6
    rows[8::32, 0] = 60
    rows[40::32, -1] = -900
    rows[9::64, 0] = np.nan
    single_rows = [as_table(rows[n : n + 1]) for n in range(len(rows))]

    for encode_rows in (encoder.transform, encoder.standardize):
        expected = np.vstack([encode_rows(row) for row in single_rows])
        for table in (rows, np.asfortranarray(rows)):
            assert np.array_equal(encode_rows(as_table(table)), expected, equal_nan=True)
        assert np.array_equal(encode_rows(as_table(rows[:128])), expected[:128], equal_nan=True)
    total = encoder.drift(single_rows[0])
    for row in single_rows[1:]:
        total += encoder.drift(row)
    assert encoder.drift(as_table(rows)) == total


# Robust z-scores


def test_z_scores_ignore_extreme_values():
    sample = make_table(x=[*range(1, 100), 1e6], half=[0.0] * 90 + [1.0] * 10)
    rows = TableEncoder().fit(sample).standardize(sample)

    # The lower median is 50, the quartiles are 25.75 and 75.25.
    scale = (75.25 - 25.75) / 1.349
    np.testing.assert_allclose(rows[:99, 0], (np.arange(1, 100) - 50) / scale, rtol=1e-6)
    extreme = (1e6 - 50) / scale
    assert rows[99, 0] == pytest.approx(20 + 5 * math.log(extreme / 20), rel=1e-6)
    # The quartiles of the other column are equal, so the standard deviation of 0.3 is used.
    np.testing.assert_allclose(rows[[0, 99], 1], [0, 1 / 0.3], rtol=1e-6)


def test_one_extreme_value_keeps_others_distinct():
    values = [-1e15, *np.linspace(0, 1, 50)]
    encoder = TableEncoder().fit(make_table(x=values))

    assert len(np.unique(encoder.transform(make_table(x=values)))) < 10
    rows = encoder.standardize(make_table(x=values))
    assert len(np.unique(rows)) == 51
    assert rows[0] < -100


def test_categories_missing_values_and_booleans_have_bounded_weights():
    sample = make_table(
        colour=["red"] * 50 + ["blue"] * 49 + [None],
        paid=pa.array([True] * 99 + [False]),
        holed=[1.0, 2.0] * 49 + [None, None],
    )
    encoder = TableEncoder().fit(sample)
    red, blue, missing = encoder.standardize(sample)[[0, 50, 99]]

    # The distance of two equally frequent categories is that of two robust z-scores.
    assert np.square(red[:4] - blue[:4]).sum() == pytest.approx(4, rel=0.01)
    assert missing[:4].tolist() == [0, 0, 0, 0.5]
    assert red[4] == missing[4] == 0  # only the rarity of booleans counts
    assert red[6] == 0
    assert np.isnan(missing[5])
    assert missing[6] == 0.5
    unknown = encoder.standardize(make_table(colour=["green"], paid=[True], holed=[1.0]))[0]
    assert unknown[:4].tolist() == [0, 0, 0, 0]


def test_column_without_values_has_zero_z_scores():
    encoder = TableEncoder().fit(as_table(np.array([[1.0, np.nan], [2, np.nan], [4, np.nan]])))
    rows = encoder.standardize(as_table(np.array([[2.0, 1e9], [2, -3]])))
    assert (rows[:, 1] == 0).all()


@pytest.mark.slow
@given(tables())
def test_z_scores_are_bounded_and_restored(sample):
    encoder = TableEncoder().fit(sample)
    rows = encoder.standardize(sample)

    assert rows.shape == (len(sample), encoder.n_features_encoded)
    assert np.nanmax(np.abs(rows)) < 4000
    numeric = [c for c in encoder.columns if c.kind != "category" and c.is_standardized]
    assert np.isnan(rows).sum() == sum(column.n_missing for column in numeric)
    assert np.array_equal(restore(encoder).standardize(sample), rows, equal_nan=True)
    decoded = [array.null_count for array in encoder.decode(np.nan_to_num(rows))]
    expected = [c.n_missing if c.is_standardized else len(sample) for c in encoder.columns]
    assert decoded == expected


# Decoding


@pytest.mark.slow
@given(tables(has_missing=False))
def test_decoded_features_are_the_values(sample):
    encoder = TableEncoder(max_categories=99, min_count=1).fit(sample)
    decoded = encoder.decode_expected(encoder.transform(sample))
    for number, (column, array) in enumerate(zip(encoder.columns, decoded, strict=True)):
        if column.kind == "category":
            assert array.to_pylist() == sample.categories(number).to_pylist()
            continue
        values = sample.numbers([number])[:, 0]
        array = array.cast(pa.int64()) if column.kind == "date" else array
        numbers = array.cast(pa.float64()).to_numpy() / (1e6 if column.kind == "date" else 1)
        width = min(column.high / 2 - column.low / 2, 8e307) * 2
        np.testing.assert_array_less(np.abs(numbers / 2 - values / 2), width * 1e-7 + 1e-6)


def test_expected_values_have_types_of_columns():
    encoder = TableEncoder().fit(MIXED)
    features = np.zeros((2, encoder.n_features_encoded))
    features[1] = [0.25, 0, 0.6, 0, 1, 0, 0.1, 0.2, 0.9, 0.5, 0.5, 0]
    size, flag, day, colour, still, void = encoder.decode_expected(features.astype(np.float32))
    assert size.to_pylist() == [1.0, 1.5]
    assert flag.to_pylist() == [False, True]
    assert day.type == pa.timestamp("us")
    assert [moment.year for moment in day.to_pylist()] == [2020, 2022]
    assert colour.to_pylist() == ["red", OTHER]
    assert still.to_pylist() == [7.0, 7.0]
    assert void.to_pylist() == [None, None]


def test_expected_dates_are_valid_datetimes():
    encoder = TableEncoder().fit(MIXED)
    far = encoder.decode_expected(np.full((1, encoder.n_features_encoded), 1e9))[2]
    assert far.to_pylist()[0].year == 9999


def test_z_scores_are_decoded_to_values():
    encoder = TableEncoder().fit(MIXED)
    size, flag, day, colour, still, void = encoder.decode(encoder.standardize(MIXED))

    assert size.to_pylist() == [1, None, 3, 2]
    assert flag.to_pylist() == [None] * 4  # only the rarity of booleans counts
    assert day.to_pylist() == [None] * 4  # the position of a date does not count
    assert colour.to_pylist() == ["red", "red", None, OTHER]
    assert still.to_pylist() == [7] * 4
    assert void.to_pylist() == [None] * 4


def test_decoded_numbers_lack_float32_noise():
    values = [round(0.1 * k, 1) for k in range(100)] + [1e9]
    encoder = TableEncoder().fit(make_table(x=values))

    (x,) = encoder.decode(encoder.standardize(make_table(x=values)))

    assert x.to_pylist()[:100] == values[:100]
    assert x[100].as_py() == pytest.approx(1e9, rel=1e-5)


def test_group_median_is_value_or_frequent_category():
    sample = make_table(x=[1.0, 2.0, 9.0, 3.0], colour=["red", "red", "blue", "blue"])
    encoder = TableEncoder().fit(sample)
    rows = encoder.standardize(sample)

    x, colour = encoder.decode(encoder.group_medians(np.stack([rows[[0, 1, 2]], rows[[3, 2, 1]]])))

    assert x.to_pylist() == [2, 3]
    assert colour.to_pylist() == ["red", "blue"]
    assert encoder.decode(encoder.group_medians(rows[None]))[0].to_pylist() == [2]


def test_contributions_are_summed_by_column():
    encoder = TableEncoder().fit(MIXED)
    contributions = np.random.default_rng(0).random((5, encoder.n_features_encoded))
    summed = encoder.sum_by_column(contributions)
    assert summed.shape == (5, len(encoder.names))
    for number in range(len(encoder.names)):
        own = contributions[:, encoder.feature_columns == number].sum(axis=1)
        np.testing.assert_allclose(summed[:, number], own)


# Errors


def test_infinity_is_reported_with_column_and_row(monkeypatch):
    bad = make_table(a=[1.0, 2.0, 3.0], b=[1.0, 2.0, -math.inf])
    encoder = TableEncoder().fit(make_table(a=[1.0, 2.0], b=[1.0, 2.0]))
    for method in (TableEncoder().fit, encoder.transform):
        with pytest.raises(TableError, match=r"'b' contains infinity, first in row 2.*Replace"):
            method(bad)
    monkeypatch.setattr(_encoder, "BLOCK_VALUES", 4)
    later = make_table(a=[1.0] * 20, b=[1.0] * 13 + [math.inf] + [1.0] * 6)
    with pytest.raises(TableError, match="'b' contains infinity, first in row 13"):
        encoder.transform(later)


@pytest.mark.parametrize("sample", [np.full((3, 2), np.nan), pa.table({"a": pa.nulls(3)})])
def test_table_without_values_is_rejected(sample):
    with pytest.raises(TableError, match="Every value of the table's 3 rows is missing"):
        TableEncoder().fit(as_table(sample))


def test_other_columns_are_listed():
    encoder = TableEncoder().fit(make_table(a=[1, 2], b=[1, 2]))
    with pytest.raises(
        TableError,
        match=r"columns \['b'\] are missing and columns \['c'\] are unexpected. "
        "Pass the columns 'a', 'b', in this order",
    ):
        encoder.transform(make_table(a=[1], c=[1]))
    with pytest.raises(TableError, match="another order"):
        encoder.transform(make_table(b=[1], a=[1]))
    with pytest.raises(TableError, match="50 in all"):
        TableEncoder().fit(as_table(np.ones((2, 50)))).transform(as_table(np.ones((2, 49))))
    with pytest.raises(TableError, match="300 in all") as caught:
        encoder.transform(make_table(**{f"{'x' * 500}{i}": [1] for i in range(300)}))
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("fitted", "later"),
    [
        (pa.array(["a", "b"]), pa.array([1.0, 2.0])),
        (pa.array([1.0, 2.0]), pa.array(["a", "b"])),
        (pa.array([1.0, 2.0]), pa.array([1, 2], pa.timestamp("s"))),
        (pa.array([True, False]), pa.array(["a", None])),
    ],
)
def test_other_kind_is_rejected_unless_all_missing(fitted, later):
    encoder = TableEncoder().fit(make_table(k=fitted))
    kind = make_table(k=later).kinds[0]
    message = f"Column 'k' is a {kind} column, but expected a {encoder.kinds[0]}"
    with pytest.raises(TableError, match=message):
        encoder.transform(make_table(k=later))
    features = encoder.transform(make_table(k=pa.nulls(2, later.type)))
    np.testing.assert_array_equal(features, encoder.transform(make_table(k=pa.nulls(2))))
    np.testing.assert_array_equal(
        features, encoder.transform(make_table(k=pa.nulls(2, fitted.type)))
    )


@pytest.mark.parametrize("parameters", [{"max_categories": -1}, {"min_count": 0}])
def test_parameters_are_checked_at_fit(parameters):
    encoder = TableEncoder(**parameters)
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        encoder.fit(make_table(a=[1, 2]))


def test_unfitted_encoder_raises_error():
    with pytest.raises(AltbiError, match="Call fit first"):
        TableEncoder().transform(MIXED)
