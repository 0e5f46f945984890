import copy
import math

import numpy as np
import pytest
from example_tables import MIXED, make_table
from hypothesis import given
from hypothesis import strategies as st

from altbi.encoding import CATEGORY_WEIGHT, TableEncoder
from altbi.errors import ModelFileError
from altbi.table import as_table

STATE = TableEncoder().fit(MIXED).to_json()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def fit_column(values):
    return TableEncoder().fit(make_table(a=values)).columns[0]


def test_frequent_categories_are_ranked_with_ties_by_text():
    sample = make_table(c=["z", "b", "a", "b", "a", "c", "c", "c", "once"])
    column = TableEncoder(max_categories=2).fit(sample).columns[0]
    assert column.categories == ("c", "a")
    assert column.n_rare == 3
    assert TableEncoder().fit(sample).columns[0].categories == ("c", "a", "b")
    assert TableEncoder(max_categories=0).fit_transform(sample).tolist() == [[CATEGORY_WEIGHT]] * 9


def test_columns_have_at_most_32_categories():
    texts = [f"{number:03}" for number in range(40)] * 2
    assert fit_column(texts).categories == tuple(sorted(texts)[:64:2])


def test_constant_columns_are_detected():
    encoder = TableEncoder().fit(make_table(a=[5.0, 5.0], b=[1.0, 2.0]))
    assert [column.is_constant for column in encoder.columns] == [True, False]
    assert encoder.decode_expected(np.full((1, 2), 0.3))[0].to_pylist() == [5.0]


@pytest.mark.parametrize("extreme", [-3.4e38, -1e20, 1e20, 1e308, -1e308])
def test_extreme_value_does_not_change_robust_scale(extreme):
    values = np.random.default_rng(0).normal(size=1000)
    changed = np.where(np.arange(1000) == 3, extreme, values)

    plain, robust = (
        TableEncoder().fit(as_table(cells[:, None])).columns[0] for cells in (values, changed)
    )

    expected = plain.scales[0] / plain.prescale
    assert robust.scales[0] / robust.prescale == pytest.approx(expected, rel=0.01)


def test_changes_by_the_encoding_are_described():
    indicator = "they are marked by an indicator"
    missing = f"{indicator}, and replaced by the median or left out of distances."
    category = f"{indicator}, like a category of their own."
    assert TableEncoder().fit(MIXED).describe_problems() == [
        f"Column 'size' has 1 missing values (25.00%); {missing}",
        f"Column 'flag' has 1 missing values (25.00%); {missing}",
        f"Column 'day' has 2 missing values (50.00%); {missing}",
        f"Column 'colour' has 1 missing values (25.00%); {category}",
        "Column 'colour' has 1 rare categories; they count as '(other)'.",
        "Column 'still' holds a single value; it is a constant.",
        "Column 'void' has no value in any of 4 rows; it is a constant.",
    ]
    assert TableEncoder().fit(make_table(a=[1, 2])).describe_problems() == []


def test_indistinguishable_numbers_are_not_called_single_value():
    def describe(values):
        return TableEncoder().fit(make_table(a=values)).describe_problems()

    (large,) = describe([1e29 + i for i in range(9)])
    assert "holds numbers too large to be distinguished" in large
    (single,) = describe([2.0**53] * 9)
    assert "holds a single value" in single


# State of model files


@given(JSON)
def test_unrelated_json_is_rejected(state):
    with pytest.raises(ModelFileError):
        TableEncoder.from_json(state)


@given(st.data(), JSON)
def test_changed_field_is_rejected_or_harmless(data, value):
    state = copy.deepcopy(STATE)
    changed = data.draw(st.sampled_from([*state["columns"], state]))
    changed[data.draw(st.sampled_from(sorted(changed)) | st.text())] = value
    try:
        encoder = TableEncoder.from_json(state)
    except ModelFileError:
        return
    assert TableEncoder.from_json(encoder.to_json()).columns == encoder.columns
    if (encoder.names, encoder.kinds) == (MIXED.names, MIXED.kinds):
        assert np.isfinite(encoder.transform(MIXED)).all()


MANY_CATEGORIES = {
    "categories": [str(number) for number in range(40)],
    "n_categories": 40,
    "n_present": 99,
    "scales": [0.3] * 42,
}


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, {"low": math.nan}, "finite numbers"),
        (0, {"high": math.inf}, "finite numbers"),
        (0, {"low": 10**400}, "out of range"),
        (0, {"low": True}, "low"),
        (0, {"low": 9.0}, "low <= median <= high"),
        (0, {"median": 1e9}, "low <= median <= high"),
        (0, {"fill_value": 1.5}, "fill_value"),
        (0, {"fill_value": math.nan}, "fill_value"),
        (0, {"n_missing": -1}, "n_missing"),
        (0, {"n_present": 2.0}, "n_present"),
        (0, {"n_present": 0, "n_missing": 0}, "at least one row"),
        (0, {"n_rare_rows": 10**6}, "at most as many rare rows as values"),
        (0, {"n_present": 0}, "all values are missing"),
        (0, {"kind": "nested"}, "kind"),
        (0, {"kind": ["number"]}, "kind"),
        (0, {"name": 3}, "name"),
        (0, {"name": "flag"}, "the same name"),
        (0, {"categories": ["x"]}, "only in category columns"),
        (0, {"extra": 1}, "unknown field `extra`"),
        (0, {"scales": [1.0, 1.0, 1.0]}, "one scale for each encoded feature"),
        (0, {"scales": [-1.0, 0.5]}, "scales"),
        (0, {"scales": ["a"]}, "scales"),
        (0, {"scales": 3.0}, "scales"),
        (0, {"scales": [1.0, 1e-40]}, "at least 0.001"),
        (3, {"scales": [1e-40, 1.0, 1.0]}, "at least 0.001"),
        (3, {"categories": ["a", "a"]}, "distinct categories"),
        (3, {"categories": "ab"}, "categories"),
        (3, {"categories": ["a", "b", "c"], "scales": [1.0] * 5}, "at most as many categories"),
        (3, {"low": -1.0}, "no range"),
        (3, MANY_CATEGORIES, "max_categories"),
    ],
)
def test_invalid_column_state_is_rejected(number, change, message):
    state = copy.deepcopy(STATE)
    state["columns"][number].update(change)
    with pytest.raises(ModelFileError, match=message) as caught:
        TableEncoder.from_json(state)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "length >= 1"),
        ([None] * 100_001, "length <= 100000"),
        (STATE["columns"][5:], "no column has a value"),
    ],
    ids=["none", "too many", "no values"],
)
def test_invalid_list_of_columns_is_rejected(columns, message):
    with pytest.raises(ModelFileError, match=message):
        TableEncoder.from_json({**STATE, "columns": columns})
