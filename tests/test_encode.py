"""The encoder: what each kind of column becomes, what comes back, what is refused."""

import copy
import datetime as dt
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from altbi.encoding import CATEGORY_WEIGHT, LIMIT, MISSING_WEIGHT, OTHER, Drift, TableEncoder
from altbi.encoding import encoder as encoder_module
from altbi.errors import AltbiError, ModelFileError, ParameterError, TableError
from altbi.table import as_table

UNTIMED = settings(deadline=None)  # a busy machine is no failure
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CELLS = {
    "number": (FLOATS, pa.float64()),
    "boolean": (st.booleans(), pa.bool_()),
    "date": (st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)), pa.timestamp("us")),
    "category": (st.text("abcé€", max_size=2), pa.string()),
}


@st.composite
def tables(draw, missing=True):
    n_rows = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=5))
    columns = {}
    for place, kind in enumerate(kinds):
        cells, type_ = CELLS[kind]
        cells = st.none() | cells if missing and draw(st.booleans()) else cells
        values = draw(st.lists(cells, min_size=n_rows, max_size=n_rows))
        columns[f"c{place}"] = pa.array(values, type_)
    assume(any(column.null_count < n_rows for column in columns.values()))
    return as_table(pa.table(columns))


def table(**columns):
    return as_table(pa.table(columns))


def encoded(fitted, **columns):
    return TableEncoder().fit(fitted).transform(table(**columns))


def restored(encoder):
    return TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))


MIXED = table(
    size=[1.0, None, 3.0, 2.0],
    flag=pa.array([True, False, None, True]),
    day=pa.array([dt.datetime(2020, 1, 1), dt.datetime(2022, 1, 1), None, None], pa.timestamp("s")),
    colour=["red", "red", None, "blue"],
    still=[7, 7, 7, 7],
    void=pa.nulls(4),
)


MIXED_DAYS = [dt.datetime(2020, 1, 1), dt.datetime(2022, 1, 1), None, None]


# What a table becomes


@UNTIMED
@given(tables())
def test_rows_of_the_sample_lie_in_the_unit_interval(sample):
    units = TableEncoder().fit_transform(sample)
    assert units.dtype == np.float32
    assert units.flags.c_contiguous
    assert units.shape[0] == len(sample)
    assert ((units >= 0) & (units <= 1)).all()


@UNTIMED
@given(tables(), tables())
def test_json_gives_the_same_encoder_to_the_bit(sample, other):
    encoder = TableEncoder(max_categories=2).fit(sample)
    again = restored(encoder)
    assert again.transform(sample).tobytes() == encoder.transform(sample).tobytes()
    assert again.columns == encoder.columns
    assert again.notes() == encoder.describe_changes()
    if (other.names, other.kinds) == (sample.names, sample.kinds):
        assert again.transform(other).tobytes() == encoder.transform(other).tobytes()


@UNTIMED
@given(tables(), st.data())
def test_a_row_does_not_depend_on_its_company(sample, data):
    encoder = TableEncoder().fit(sample)
    whole = encoder.transform(sample)
    rows = data.draw(st.lists(st.integers(0, len(sample) - 1), min_size=1, max_size=20))
    np.testing.assert_array_equal(encoder.transform(sample.take(np.array(rows))), whole[rows])
    np.testing.assert_array_equal(encoder.transform(sample.slice(0, 1)), whole[:1])


@UNTIMED
@given(tables(missing=False))
def test_expected_turns_the_sample_back(sample):
    encoder = TableEncoder(max_categories=99, min_count=1).fit(sample)
    cells = encoder.decode_expected(encoder.transform(sample))
    for number, (column, back) in enumerate(zip(encoder.columns, cells, strict=True)):
        if column.kind == "category":
            assert back.to_pylist() == sample.categories(number).to_pylist()
            continue
        known = sample.numbers([number])[:, 0]
        back = back.cast(pa.int64()) if column.kind == "date" else back
        numbers = back.cast(pa.float64()).to_numpy() / (1e6 if column.kind == "date" else 1)
        span = min(column.high / 2 - column.low / 2, 8e307) * 2
        np.testing.assert_array_less(np.abs(numbers / 2 - known / 2), span * 1e-7 + 1e-6)


@UNTIMED
@given(st.lists(FLOATS, min_size=2, max_size=30), st.lists(FLOATS, min_size=1, max_size=5))
def test_any_finite_number_is_encoded_finitely(fitted, later):
    units = encoded(table(a=fitted), a=pa.array(later, pa.float64()))
    assert (np.abs(units) <= LIMIT).all()


def test_numbers_are_scaled_by_the_fitted_range_and_not_clipped():
    units = encoded(table(a=[10.0, 20.0, 12.0]), a=[10.0, 15.0, 0.0, 40.0])
    np.testing.assert_array_equal(units, np.float32([[0], [0.5], [-1], [3]]))


def test_far_values_are_held():
    units = encoded(table(a=[0.0, 1e-300]), a=[1e308, -1e308, 5e-301])
    np.testing.assert_array_equal(units[:, 0], np.float32([LIMIT, -LIMIT, 0.5]))


def test_a_range_wider_than_float64_does_not_overflow():
    sample = table(a=[-1.7e308, 1.7e308, 0.0, None])
    encoder = TableEncoder().fit(sample)
    units = encoder.transform(sample)
    np.testing.assert_array_equal(units[:, 0], [0, 1, 0.5, 0.5])
    back = encoder.decode_expected(units)[0].to_numpy()
    np.testing.assert_allclose(back[:3], [-1.7e308, 1.7e308, 0.0], atol=1e300)
    assert np.isfinite(encoder.decode_expected(units * 10)[0].to_numpy()).all()
    np.testing.assert_array_equal(restored(encoder).transform(sample), units)


def test_tiny_ranges_are_scaled_too():
    assert encoded(table(a=[0.0, 5e-324]), a=[0.0, 5e-324]).tolist() == [[0], [1]]


def test_constant_columns_are_kept():
    sample = table(a=[5.0, 5.0], b=[1.0, 2.0])
    encoder = TableEncoder().fit(sample)
    assert encoder.transform(table(a=[5.0, 7.0], b=[1.0, 1.0]))[:, 0].tolist() == [0, 2]
    assert encoder.decode_expected(np.full((1, 2), 0.3))[0].to_pylist() == [5.0]
    assert encoder.columns[0].constant
    assert encoder.columns[0].constant
    assert not encoder.columns[1].constant


def test_missing_cells_take_the_median_and_are_marked():
    sample = table(a=[0.0, 1.0, 10.0, None, float("nan")])
    units = TableEncoder().fit_transform(sample)
    mark = np.float32(MISSING_WEIGHT)
    np.testing.assert_array_equal(units[:, 0], np.float32([0, 0.1, 1, 0.1, 0.1]))
    np.testing.assert_array_equal(units[:, 1], [0, 0, 0, mark, mark])


def test_cells_missing_only_later_take_the_fill_unmarked():
    units = encoded(table(a=[0.0, 1.0, 10.0], c=["u", "u", "v"]), a=[None], c=pa.nulls(1))
    np.testing.assert_array_equal(units, np.float32([[0.1, 0, 0]]))


def test_every_kind_can_miss_cells():
    encoder = TableEncoder().fit(MIXED)
    units = encoder.transform(MIXED)
    owners = encoder.feature_columns
    assert owners.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 5]
    mark, category = np.float32(MISSING_WEIGHT), np.float32(CATEGORY_WEIGHT)
    np.testing.assert_array_equal(units[:, 0:2], [[0, 0], [0.5, mark], [1, 0], [0.5, 0]])
    np.testing.assert_array_equal(units[:, 2:4], [[category, 0], [0, 0], [category, mark], [category, 0]])
    np.testing.assert_array_equal(units[:, 4:6], [[0, 0], [1, 0], [0, mark], [0, mark]])
    expected = [[category, 0, 0], [category, 0, 0], [0, 0, mark], [0, category, 0]]
    np.testing.assert_array_equal(units[:, 6:9], expected)
    np.testing.assert_array_equal(units[:, 9:], [[0, 0, mark]] * 4)


def test_a_column_that_was_all_missing_only_shows_presence():
    sample = table(a=[1.0, 2.0], void=pa.nulls(2))
    for later in (pa.array([1e30, None]), pa.array(["text", None]), pa.array([True, None])):
        units = encoded(sample, a=[1.0, 1.0], void=later)
        np.testing.assert_array_equal(units[:, 1:], [[0, 0], [0, np.float32(MISSING_WEIGHT)]])


def test_an_all_missing_category_accepts_anything():
    sample = table(a=[1.0, 2.0], void=pa.array([None, None], pa.string()))
    units = encoded(sample, a=[1.0, 1.0], void=[3.0, None])
    np.testing.assert_array_equal(units[:, 1:], [[0.25, 0], [0, np.float32(MISSING_WEIGHT)]])


def test_levels_are_the_frequent_ones_and_ties_go_by_text():
    sample = table(c=["z", "b", "a", "b", "a", "c", "c", "c", "once"])
    column = TableEncoder(max_categories=2).fit(sample).columns[0]
    assert column.categories == ("c", "a")
    assert column.rare == 3
    assert TableEncoder().fit(sample).columns[0].categories == ("c", "a", "b")
    assert TableEncoder(max_categories=0).fit_transform(sample).tolist() == [[CATEGORY_WEIGHT]] * 9


def test_at_most_32_levels_by_default():
    texts = [f"{number:03}" for number in range(40)] * 2
    assert TableEncoder().fit(table(c=texts)).columns[0].categories == tuple(sorted(texts)[:64:2])


def test_rare_and_unseen_levels_are_others():
    sample = table(c=["a", "a", "b", ""])
    units = encoded(sample, c=["a", "b", "never", ""])
    np.testing.assert_array_equal(units, [[0.25, 0], [0, 0.25], [0, 0.25], [0, 0.25]])


def test_the_layout_of_text_does_not_matter():
    sample = table(c=["a", "b", "a", "b", None])
    encoder = TableEncoder().fit(sample)
    cells = pa.array(["b", None, "x", "a"])
    layouts = [
        cells.dictionary_encode(),
        cells.cast(pa.large_string()),
        cells.cast(pa.string_view()),
    ]
    expected = encoder.transform(table(c=cells))
    for layout in layouts:
        np.testing.assert_array_equal(encoder.transform(table(c=layout)), expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_sources_give_identical_encodings(dtype):
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


def test_blocks_of_rows_leave_no_seam(monkeypatch):
    values = np.random.default_rng(0).normal(size=(500, 3))
    values[::7, 1] = np.nan
    sample = as_table(values)
    whole = TableEncoder().fit_transform(sample)
    monkeypatch.setattr(encoder_module, "CELLS_AT_ONCE", 10)
    monkeypatch.setattr(encoder_module, "COLUMNS_AT_ONCE", 2)
    np.testing.assert_array_equal(TableEncoder().fit_transform(sample), whole)


# What comes back


def test_fold_adds_the_units_of_a_column():
    encoder = TableEncoder().fit(MIXED)
    parts = np.random.default_rng(0).random((5, encoder.n_features_encoded))
    folded = encoder.sum_by_column(parts)
    assert folded.shape == (5, len(encoder.names))
    for number in range(len(encoder.names)):
        own = parts[:, encoder.feature_columns == number].sum(axis=1)
        np.testing.assert_allclose(folded[:, number], own)


def test_expected_speaks_the_columns_own_terms():
    encoder = TableEncoder().fit(MIXED)
    units = np.zeros((2, encoder.n_features_encoded))
    units[1] = [0.25, 0, 0.6, 0, 1, 0, 0.1, 0.2, 0.9, 0.5, 0.5, 0]
    size, flag, day, colour, still, void = encoder.decode_expected(units.astype(np.float32))
    assert size.to_pylist() == [1.0, 1.5]
    assert flag.to_pylist() == [False, True]
    assert day.type == pa.timestamp("us")
    assert [moment.year for moment in day.to_pylist()] == [2020, 2022]
    assert colour.to_pylist() == ["red", OTHER]
    assert still.to_pylist() == [7.0, 7.0]
    assert void.to_pylist() == [None, None]


def test_expected_dates_stay_in_the_calendar():
    encoder = TableEncoder().fit(MIXED)
    far = encoder.decode_expected(np.full((1, encoder.n_features_encoded), 1e9))[2]
    assert far.to_pylist()[0].year == 9999


def test_notes_report_every_change():
    assert TableEncoder().fit(MIXED).notes() == [
        "Column 'size' has 1 missing cells (25.00%); they take a neutral value and are marked.",
        "Column 'flag' has 1 missing cells (25.00%); they take a neutral value and are marked.",
        "Column 'day' has 2 missing cells (50.00%); they take a neutral value and are marked.",
        "Column 'colour' has 1 missing cells (25.00%); they take a neutral value and are marked.",
        "Column 'colour' has 1 rare categories; they count as '(other)'.",
        "Column 'still' holds a single value; it is kept as a constant.",
        "Column 'void' has no value in any of 4 rows; it is kept as constant.",
    ]
    assert TableEncoder().fit(table(a=[1, 2])).notes() == []


# What is refused


def refusal(action, error=TableError):
    with pytest.raises(error) as caught:
        action()
    return str(caught.value)


def test_infinity_is_named_with_column_and_row():
    bad = table(a=[1.0, 2.0, 3.0], b=[1.0, 2.0, -math.inf])
    encoder = TableEncoder().fit(table(a=[1.0, 2.0], b=[1.0, 2.0]))
    for action in (lambda: TableEncoder().fit(bad), lambda: encoder.transform(bad)):
        message = refusal(action)
        assert "Column 'b' contains infinity, first in row 2" in message
        assert "Replace" in message


def test_infinity_in_a_later_block_keeps_its_row(monkeypatch):
    monkeypatch.setattr(encoder_module, "CELLS_AT_ONCE", 4)
    values = np.ones((20, 2))
    encoder = TableEncoder().fit(as_table(values))
    values[13, 1] = np.inf
    assert "'x1' contains infinity, first in row 13" in refusal(
        lambda: encoder.transform(as_table(values))
    )


def test_an_empty_table_is_refused():
    for sample in (np.full((3, 2), np.nan), pa.table({"a": pa.nulls(3)})):
        assert "Every cell" in refusal(lambda sample=sample: TableEncoder().fit(as_table(sample)))


def test_other_columns_are_listed():
    encoder = TableEncoder().fit(table(a=[1, 2], b=[1, 2]))
    message = refusal(lambda: encoder.transform(table(a=[1], c=[1])))
    assert "columns ['b'] are missing and columns ['c'] are unexpected" in message
    assert "Pass the columns 'a', 'b', in this order" in message
    assert "only the order" in refusal(lambda: encoder.transform(table(b=[1], a=[1])))
    wide = TableEncoder().fit(as_table(np.ones((2, 50))))
    assert "50 in all" in refusal(lambda: wide.transform(as_table(np.ones((2, 49)))))


@pytest.mark.parametrize(
    ("fitted", "later"),
    [
        (pa.array(["a", "b"]), pa.array([1.0, 2.0])),
        (pa.array([1.0, 2.0]), pa.array(["a", "b"])),
        (pa.array([1.0, 2.0]), pa.array([1, 2], pa.timestamp("s"))),
        (pa.array([True, False]), pa.array(["a", None])),
    ],
)
def test_another_kind_is_refused_unless_all_missing(fitted, later):
    encoder = TableEncoder().fit(table(k=fitted))
    kind = as_table(pa.table({"k": later})).kinds[0]
    message = refusal(lambda: encoder.transform(table(k=later)))
    assert f"Column 'k' is a {kind} column, but expected a {encoder.kinds[0]}" in message
    units = encoder.transform(table(k=pa.array([None, None], later.type)))
    np.testing.assert_array_equal(units, encoder.transform(table(k=pa.nulls(2))))
    np.testing.assert_array_equal(units, encoder.transform(table(k=pa.nulls(2, fitted.type))))


def test_parameters_are_checked_at_fit():
    sample = table(a=[1, 2])
    for wrong in ({"max_categories": -1}, {"min_count": 0}):
        message = refusal(lambda wrong=wrong: TableEncoder(**wrong).fit(sample), ParameterError)
        assert next(iter(wrong)) in message


def test_an_encoder_must_be_fitted():
    assert "Call fit first" in refusal(lambda: TableEncoder().transform(MIXED), AltbiError)


# Hostile state

STATE = TableEncoder().fit(MIXED).to_json()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@UNTIMED
@given(JSON)
def test_foreign_json_is_refused(state):
    refusal(lambda: TableEncoder.from_json(state), ModelFileError)


@UNTIMED
@given(st.data(), JSON)
def test_a_changed_field_gives_an_encoder_that_works_or_a_model_file_error(data, value):
    state = copy.deepcopy(STATE)
    column = data.draw(st.sampled_from([*state["columns"], state]))
    column[data.draw(st.sampled_from(sorted(column)) | st.text())] = value
    try:
        encoder = TableEncoder.from_json(state)
    except ModelFileError:
        return
    assert restored(encoder).columns == encoder.columns
    if (encoder.names, encoder.kinds) == (MIXED.names, MIXED.kinds):
        assert np.isfinite(encoder.transform(MIXED)).all()


@pytest.mark.parametrize(
    ("number", "change", "part"),
    [
        (0, {"low": math.nan}, "column 0, low: nan, but expected a finite number"),
        (0, {"high": math.inf}, "high"),
        (0, {"low": 10**400}, "low"),
        (0, {"low": True}, "low"),
        (0, {"low": 9.0}, "low <= high"),
        (0, {"fill": 1.5}, "fill from 0 to 1"),
        (0, {"missing": -1}, "missing"),
        (0, {"missing": True}, "missing"),
        (0, {"present": 2.0}, "present"),
        (0, {"present": 0, "missing": 0}, "at least one row"),
        (0, {"present": 0}, "all cells are missing"),
        (0, {"kind": "nested"}, "kind"),
        (0, {"kind": ["number"]}, "kind"),
        (0, {"name": 3}, "name"),
        (0, {"name": "flag"}, "two columns alike"),
        (0, {"categories": ["x"]}, "unless it is a category"),
        (0, {"extra": 1}, "no others"),
        (3, {"categories": ["a", "a"]}, "each category once"),
        (3, {"categories": ["\ud800"]}, "a text"),
        (3, {"categories": "ab"}, "a list of texts"),
        (3, {"categories": ["a", "b", "c"]}, "not more categories"),
        (3, {"low": -1.0}, "no range"),
        (
            3,
            {
                "categories": [str(i) for i in range(40)],
                "distinct": 40,
                "present": 99,
                "scales": [0.3] * 42,
            },
            "max_categories",
        ),
        (0, {"centre": 1e9}, "a centre within the range"),
        (0, {"scales": [1.0, 1.0, 1.0]}, "a scale above 0 for each unit"),
        (0, {"scales": [0.0]}, "scale"),
        (0, {"scales": [-1.0, 0.5]}, "scale"),
        (0, {"scales": ["a"]}, "scales"),
        (0, {"scales": [1.0, 1e-40]}, "category or gap"),
        (3, {"scales": [1e-40, 1.0, 1.0]}, "category or gap"),
        (0, {"scales": 3.0}, "a list of numbers"),
    ],
)
def test_each_rule_of_the_state(number, change, part):
    state = copy.deepcopy(STATE)
    state["columns"][number].update(change)
    message = refusal(lambda: TableEncoder.from_json(state), ModelFileError)
    assert part in message
    assert len(message) < 400


def test_the_number_of_columns_is_bounded():
    for columns in ([], [None] * 100_001):
        state = {**STATE, "columns": columns}
        message = refusal(lambda state=state: TableEncoder.from_json(state), ModelFileError)
        assert "1 to 100000 columns" in message
    void = {**STATE, "columns": STATE["columns"][5:]}
    assert "no value" in refusal(lambda: TableEncoder.from_json(void), ModelFileError)


@pytest.mark.parametrize(
    ("n_new", "n_rare", "said"), [(11, 1, True), (10, 1, False), (100, 9, False)]
)
def test_levels_that_crowd_where_they_were_rare_are_said(n_new, n_rare, said):
    """They were 0.5 % of the rows at fit, or, where nothing is said, 4.5 %."""
    learned = ["red"] * (200 - n_rare) + [f"rare {i}" for i in range(n_rare)]
    encoder = TableEncoder().fit(as_table(pa.table({"a": learned})))
    found = Drift()
    for new in (n_new // 2, n_new - n_new // 2):
        found += encoder.drift(as_table(pa.table({"a": ["new"] * new + ["red"] * (50 - new)})))

    sentences = [
        f"Levels that were rare at the fit, or are new, stand in 'a' ({n_new} cells) of 100 rows; "
        "they count as '(other)'. If the table has changed, fit again."
    ]
    assert list(found.describe()) == (sentences if said else [])
    assert found.unseen == {}


def test_numbers_too_large_to_be_told_apart_are_not_called_a_single_value():
    def notes(values):
        return list(TableEncoder().fit(as_table(pa.table({"a": values}))).notes())

    (large,) = notes([1e29 + i for i in range(9)])
    assert "holds numbers too large to be told apart" in large
    (single,) = notes([2.0**53] * 9)
    assert "holds a single value" in single


def test_a_column_that_left_its_range_is_said_and_a_few_cells_are_not():
    learned = as_table(pa.table({"a": np.arange(100.0), "b": np.arange(100.0)}))
    encoder = TableEncoder().fit(learned)

    def sentences(a):
        found = Drift()
        for half in (slice(0, 50), slice(50, 100)):
            found += encoder.drift(as_table(pa.table({"a": a[half], "b": np.arange(50.0)})))
        return list(found.describe())

    few, many = np.arange(100.0), np.arange(100.0)
    few[:5] = -1.0
    many[:3], many[97:] = -1.0, 100.5
    assert sentences(few) == []
    odd = as_table(pa.table({"a": np.full(99, -1.0), "b": np.arange(99.0)}))
    assert list(encoder.drift(odd).describe()) == []  # too few rows to speak of a change
    assert sentences(many) == [
        "Many cells lie outside the range that was learned: in 'a' (6 cells) of 100 rows. If the "
        "table has changed since the fit, fit again."
    ]


# Deviations


def test_numbers_become_deviations_from_the_median_that_wild_values_do_not_change():
    sample = table(x=[*range(1, 100), 1e6], half=[0.0] * 90 + [1.0] * 10)
    rows = TableEncoder().fit(sample).standardize(sample)

    # The lower median is 50, the quartiles are 25.75 and 75.25.
    scale = (75.25 - 25.75) / 1.349
    np.testing.assert_allclose(rows[:99, 0], (np.arange(1, 100) - 50) / scale, rtol=1e-6)
    far = (1e6 - 50) / scale
    assert rows[99, 0] == pytest.approx(20 + 5 * math.log(far / 20), rel=1e-6)
    # Its quartiles are equal: the standard deviation, 0.3, is one deviation.
    np.testing.assert_allclose(rows[[0, 99], 1], [0, 1 / 0.3], rtol=1e-6)


def test_one_enormous_value_does_not_blur_the_others():
    """In units of the range, the others are all 1 up to rounding."""
    values = [-1e15, *np.linspace(0, 1, 50)]
    encoder = TableEncoder().fit(table(x=values))

    assert len(np.unique(encoder.transform(table(x=values)))) < 10
    rows = encoder.standardize(table(x=values))
    assert len(np.unique(rows)) == 51
    assert rows[0] < -100


def test_levels_gaps_and_booleans_have_bounded_weights():
    sample = table(
        colour=["red"] * 50 + ["blue"] * 49 + [None],
        paid=pa.array([True] * 99 + [False]),
        gaps=[1.0, 2.0] * 49 + [None, None],
    )
    encoder = TableEncoder().fit(sample)
    red, blue, gone = encoder.standardize(sample)[[0, 50, 99]]

    # Exchanging one of two even categories is as far as two deviations of a number.
    assert np.square(red[:4] - blue[:4]).sum() == pytest.approx(4, rel=0.01)
    assert gone[:4].tolist() == [0, 0, 0, 0.5]  # a gap: half a deviation, and no category
    assert abs(red[4] - gone[4]) == pytest.approx(6, rel=0.01)  # the rarest choice: six
    assert red[6] == 0
    assert np.isnan(gone[5])
    assert gone[6] == 0.5
    new = table(colour=["green"], paid=[True], gaps=[1.0])
    unseen = encoder.standardize(new)[0]
    assert unseen[2] == pytest.approx(6 / math.sqrt(2))
    assert 18 < np.square(red[:4] - unseen[:4]).sum() < 25


@UNTIMED
@given(tables())
def test_deviations_are_finite_and_held(sample):
    encoder = TableEncoder().fit(sample)
    rows = encoder.standardize(sample)

    assert rows.shape == (len(sample), encoder.n_features_encoded)
    assert np.nanmax(np.abs(rows)) < 4000
    gaps = np.isnan(rows)
    assert gaps.sum() == sum(
        column.missing for column in encoder.columns if column.kind != "category"
    )
    again = restored(encoder).standardize(sample)
    assert np.array_equal(again, rows, equal_nan=True)
    cells = [array.to_pylist() for array in encoder.decode(np.nan_to_num(rows))]
    assert [c.count(None) for c in cells] == [column.missing for column in encoder.columns]


def test_rows_in_deviations_turn_back_into_cells():
    encoder = TableEncoder().fit(MIXED)
    size, flag, day, colour, still, void = encoder.decode(encoder.standardize(MIXED))

    assert size.to_pylist() == [1, None, 3, 2]
    assert flag.to_pylist() == [True, False, None, True]
    assert day.to_pylist() == MIXED_DAYS
    assert colour.to_pylist() == ["red", "red", None, OTHER]
    assert still.to_pylist() == [7] * 4
    assert void.to_pylist() == [None] * 4


def test_numbers_come_back_without_the_noise_of_float32():
    values = [round(0.1 * k, 1) for k in range(100)] + [1e9]
    encoder = TableEncoder().fit(table(x=values))

    (x,) = encoder.decode(encoder.standardize(table(x=values)))

    assert x.to_pylist()[:100] == values[:100]
    assert x[100].as_py() == pytest.approx(1e9, rel=1e-5)


def test_the_middle_of_some_rows_is_a_value_of_theirs_or_the_strongest_level():
    sample = table(x=[1.0, 2.0, 9.0, 3.0], colour=["red", "red", "blue", "blue"])
    encoder = TableEncoder().fit(sample)
    rows = encoder.standardize(sample)

    x, colour = encoder.decode(encoder.group_medians(np.stack([rows[[0, 1, 2]], rows[[3, 2, 1]]])))

    assert x.to_pylist() == [2, 3]
    assert colour.to_pylist() == ["red", "blue"]
    assert encoder.decode(encoder.group_medians(rows[None]))[0].to_pylist() == [2]


@pytest.mark.parametrize("wild", [-3.4e38, -1e20, 1e20, 1e308, -1e308])
def test_one_wild_value_does_not_change_what_a_deviation_is(wild):
    values = np.random.default_rng(0).normal(size=1000)
    with_wild = np.where(np.arange(1000) == 3, wild, values)

    usual, found = (
        TableEncoder().fit(as_table(cells[:, None])).columns[0] for cells in (values, with_wild)
    )

    assert found.scales[0] / found.half == pytest.approx(usual.scales[0] / usual.half, rel=0.01)


@pytest.mark.parametrize("n_columns", [1, 3, 600])
@pytest.mark.parametrize("place", [0, 511, 512, 1022])
def test_what_stands_out_is_found_wherever_it_stands(n_columns, place):
    rows = np.random.default_rng(0).random((1023, n_columns))
    encoder = TableEncoder().fit(as_table(rows))
    high, low, gap = rows.copy(), rows.copy(), rows.copy()
    high[place, -1], low[place, 0], gap[place, -1] = 2, -1, np.nan
    first, last = encoder.names[0], encoder.names[-1]

    assert encoder.drift(as_table(rows)).outside == {}
    assert encoder.drift(as_table(high)).outside == {last: 1}
    assert encoder.drift(as_table(low)).outside == {first: 1}
    assert encoder.drift(as_table(gap)).missing == {last: 1}


def test_what_stands_out_is_counted_for_its_own_column_whatever_stands_before_it():
    sample = pa.table({"sort": ["a", "b"] * 50, "size": np.arange(100.0), "rank": np.arange(100.0)})
    encoder = TableEncoder().fit(as_table(sample))
    rows = pa.table({"sort": ["a", "b", "a"], "size": [5.0, 6, 7], "rank": [500.0, None, 7]})

    found = encoder.drift(as_table(rows))

    assert found.outside == {"rank": 1}
    assert found.missing == {"rank": 1}
    # A column of numbers may come as texts that are all missing: the others keep their places.
    texts = rows.set_column(1, "size", pa.nulls(3, pa.string()))
    assert encoder.drift(as_table(texts)).outside == {"rank": 1}


def test_a_column_without_values_stays_at_nothing_when_it_gets_some():
    encoder = TableEncoder().fit(as_table(np.array([[1.0, np.nan], [2, np.nan], [4, np.nan]])))

    units = encoder.standardize(as_table(np.array([[2.0, 1e9], [2, -3]])))

    assert (units[:, 1] == 0).all()


@pytest.mark.parametrize("width", [1, 3, 10, 700])
def test_rows_side_by_side_are_encoded_and_counted_as_one_by_one(width):
    generator = np.random.default_rng(0)
    encoder = TableEncoder().fit(as_table(generator.normal(size=(300, width))))
    rows = generator.normal(size=(259, width)) * 2
    # Far out, farther and farthest, beside each other and alone.
    rows[7::64, -1] = 1e6
    rows[8::32, 0] = 60
    rows[40::32, -1] = -900
    rows[9::64, 0] = np.nan
    parts = [as_table(rows[n : n + 1]) for n in range(len(rows))]

    for encode in (encoder.transform, encoder.standardize):
        alone = np.vstack([encode(part) for part in parts])
        assert np.array_equal(encode(as_table(rows)), alone, equal_nan=True)
        assert np.array_equal(encode(as_table(rows[:256])), alone[:256], equal_nan=True)
        assert np.array_equal(encode(as_table(np.asfortranarray(rows))), alone, equal_nan=True)
    counted = Drift()
    for part in parts:
        counted += encoder.drift(part)
    assert encoder.drift(as_table(rows)) == counted
