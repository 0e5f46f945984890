"""Rarities of all values of a table."""

import json
import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from altbi.rarities import ColumnRarity, ValueRarities, _value_rarities, fit_value_rarities
from altbi.rarities._rare_counts import USUAL_SHARE
from altbi.rarities._value_rarities import find_missing, read_texts
from altbi.table import as_table

N_ROWS = 1200
USES = {
    "city": "category",
    "postcode": "category",
    "code": "category",
    "device": "identifier",
    "amount": "number",
    "start": "date",
    "end": "date",
    "note": "other",
}


def make_columns(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    city = rng.integers(0, 40, n_rows)
    start = rng.integers(0, 200, n_rows) * 86_400 + rng.integers(8, 18, n_rows) * 3600
    return {
        "city": [f"Großstadt {number:02}" for number in city],
        "postcode": [f"{10_000 + 7 * number}" for number in city],
        "code": rng.choice([11.0, 12.0, 13.5], n_rows).tolist(),
        "device": [f"device {number}" for number in range(n_rows)],
        "amount": rng.gamma(2.0, 10, n_rows).tolist(),
        "start": start.tolist(),
        "end": (start + rng.integers(86_400, 200_000, n_rows)).tolist(),
        "note": [f"note {number}" for number in range(n_rows)],
    }


TYPES = {"start": pa.timestamp("s"), "end": pa.timestamp("s")}


def table(**columns):
    return as_table(pa.table({name: pa.array(v, TYPES.get(name)) for name, v in columns.items()}))


TABLE = table(**make_columns())


@pytest.fixture(scope="module")
def rarities():
    return fit_value_rarities(TABLE, list(USES.values()))


def change_row(**values):
    """Return the first row of the table with other values."""
    columns = make_columns()
    return table(**{name: [values.get(name, columns[name][0])] for name in columns})


def score_row(rarities, **values):
    return dict(zip(USES, rarities.score(change_row(**values))[0].tolist(), strict=True))


def rarest(scores):
    return max(scores, key=scores.get)


def test_rarities_have_one_number_for_each_value(rarities):
    scores = rarities.score(TABLE)
    assert scores.shape == (N_ROWS, len(USES))
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    assert scores.min() >= 0


def test_usual_rows_have_low_rarities(rarities):
    scores = score_row(rarities)
    assert max(scores.values()) < 1
    assert rarities.score(TABLE).max() < 3


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("city", "Großstat 07"),
        ("city", "GROSSSTADT 07"),
        ("city", "elsewhere"),
        ("city", ""),
        ("code", 14.0),
        ("amount", -1.0),
        ("amount", 0.0),
        ("end", 200 * 86_400 * 40),
        *((name, None) for name in USES),
    ],
)
def test_rare_value_raises_its_own_column(rarities, column, value):
    usual, scores = score_row(rarities), score_row(rarities, **{column: value})
    assert scores[column] > usual[column] + 2
    assert rarest(scores) == column


def test_values_of_other_columns_do_not_count(rarities):
    usual = score_row(rarities)
    assert (
        score_row(rarities, note="an entirely different text", device="new", amount=1e300) == usual
    )


def test_wrong_pair_raises_both_columns(rarities):
    first = make_columns()["postcode"][0]
    other = next(code for code in make_columns()["postcode"] if code != first)
    scores = score_row(rarities, postcode=other)
    assert scores["postcode"] + scores["city"] > 2.5
    assert score_row(rarities)["city"] < 0.5


def test_copies_count_in_rules_only():
    columns = make_columns()
    pair = table(city=columns["city"], postcode=columns["postcode"])
    rarities = fit_value_rarities(pair, ["category", "copy"])
    assert rarities.columns[1] == ColumnRarity(missing=rarities.columns[1].missing)
    wrong = table(city=[columns["city"][0], "new"], postcode=["another", "new"])
    scores = rarities.score(wrong)
    assert scores[0].sum() > 2
    assert scores[1, 1] == 0


@pytest.mark.parametrize(
    ("start", "end", "blamed"),
    [
        (6 * 86_400 + 3 * 3600, 6 * 86_400 + 2 * 3600, 0),  # nothing starts at night
        (6 * 86_400 + 9 * 3600, -10 * 366 * 86_400, 1),  # far off the other ends
    ],
)
def test_end_before_start_raises_the_rarer_date(rarities, start, end, blamed):
    usual = score_row(rarities)
    scores = score_row(rarities, end=make_columns()["start"][0] - 7200)
    assert scores["end"] > usual["end"] + 2
    assert scores["start"] == usual["start"]
    dates = table(start=make_columns()["start"], end=make_columns()["end"])
    fitted = fit_value_rarities(dates, ["date", "date"])
    both = fitted.score(table(start=[start], end=[end]))[0]
    first, second = np.array([[start], [end]], dtype=np.float64)
    expected = [fitted.columns[n].dates.score(t)[0] for n, t in enumerate((first, second))]
    time = fitted.differences[0].score(first, second)[0]
    assert time > 2
    expected[blamed] += time
    np.testing.assert_allclose(both, expected)
    assert both.argmax() == blamed


def test_time_between_usual_dates_counts_for_the_second():
    start = range(0, 100_000, 100)  # too short a time to learn days and hours
    dates = table(start=list(start), end=[each + 3600 for each in start])
    scores = fit_value_rarities(dates, ["date", "date"]).score(table(start=[5e4], end=[4e4]))
    np.testing.assert_allclose(scores, [[0, math.log(USUAL_SHARE * 1001)]])


def test_integers_occur_in_rules_and_numbers_do_not():
    columns = make_columns()
    numbers = [int(code) for code in columns["postcode"]]
    pair = table(city=columns["city"], postcode=numbers)
    wrong = table(city=[columns["city"][0]] * 2, postcode=[numbers[0] + 7, -1])
    integer, number = (fit_value_rarities(pair, ["category", use]) for use in ("integer", "number"))
    assert set(integer.rules.names) == {"city", "postcode"}
    assert number.rules is None
    assert integer.columns[1] == number.columns[1]
    assert integer.columns[1].signs.n_positive == N_ROWS
    assert integer.columns[1].categories is None
    assert number.score(wrong)[0].sum() == 0
    assert integer.score(wrong)[0].sum() > 2
    assert number.score(wrong)[1, 1] == pytest.approx(math.log(N_ROWS + 1))
    assert integer.score(wrong)[1, 1] > number.score(wrong)[1, 1] + 2


def test_repeated_identifier_is_rare():
    devices = make_columns()["device"]
    devices[:5] = ["device 0"] * 5
    scores = fit_value_rarities(table(device=devices), ["identifier"]).score(table(device=devices))
    assert scores[:5, 0] == pytest.approx(math.log((N_ROWS + 1) / 6))
    assert (scores[5:] == 0).all()


@pytest.mark.parametrize("n_missing", [0, 1])
def test_missing_value_is_rarest_where_none_is_missing(rarities, n_missing):
    columns = make_columns()
    columns["note"][:n_missing] = [None] * n_missing
    fitted = fit_value_rarities(table(**columns), list(USES.values()))
    assert score_row(fitted, note=None)["note"] == pytest.approx(
        math.log(USUAL_SHARE * (N_ROWS + 1) / (n_missing + 1))
    )


def test_number_codes_are_texts_by_value():
    numbers = table(code=[1.0, -0.0, 0.0, 1e300, 2.5, -7.0, None])
    assert read_texts(numbers, 0).to_pylist() == [
        "1", "0", "0", str(int(1e300)), "2.5", "-7", None
    ]  # fmt: skip
    assert find_missing(numbers, 0).tolist() == [False] * 6 + [True]
    assert find_missing(table(text=["", None]), 0).tolist() == [False, True]


def test_integers_and_floats_score_alike():
    codes = [11, 12, 13] * 1000 + [14]
    fitted = fit_value_rarities(table(code=codes), ["category"])
    floats = table(code=[float(code) for code in codes])
    assert fitted == fit_value_rarities(floats, ["category"])
    np.testing.assert_array_equal(fitted.score(floats), fitted.score(table(code=codes)))
    assert fitted.score(floats)[-1, 0] > 3


def test_numbers_have_no_patterns_or_typos(rarities):
    code = rarities.columns[2]
    assert code.categories is not None
    assert code.patterns is code.misspellings is None
    city = rarities.columns[0]
    assert city.patterns is not None
    assert city.misspellings is not None


# Rows alone


def test_row_alone_scores_like_in_table(rarities):
    columns = make_columns(300, seed=1)
    for number, values in enumerate(columns.values()):
        values[number::11] = [None] * len(values[number::11])
    columns["city"][5::9] = [f"Großstat {row % 40:02}" for row in range(5, 300, 9)]
    columns["postcode"] = np.random.default_rng(2).permutation(columns["postcode"]).tolist()
    columns["amount"][::13] = [0.0, -1.0] * 12
    rows = table(**columns)
    scores = rarities.score(rows)
    assert ((scores > 2).sum(axis=0) > 20).all()
    alone = np.concatenate([rarities.score(rows.slice(n, n + 1)) for n in range(300)])
    np.testing.assert_array_equal(alone, scores)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_array_equal(rarities.score(rows.take(order)), scores[order])
    halves = [rarities.score(rows.slice(*ends)) for ends in ((0, 128), (128, 300))]
    np.testing.assert_array_equal(np.concatenate(halves), scores)


def test_order_of_training_rows_does_not_matter(rarities):
    order = np.random.default_rng(1).permutation(N_ROWS)
    assert fit_value_rarities(TABLE.take(order), list(USES.values())) == rarities


def test_no_rows_have_no_rarities(rarities):
    assert rarities.score(TABLE.slice(0, 0)).shape == (0, len(USES))


def test_one_row_and_missing_values_are_usual():
    one = TABLE.slice(0, 1)
    assert fit_value_rarities(one, list(USES.values())).score(one).max() == 0
    holes = (
        pa.nulls(60, pa.large_string()),
        pa.nulls(60, pa.float64()),
        pa.nulls(60, pa.timestamp("s")),
    )
    empty = as_table(pa.table({"a": holes[0], "b": holes[1], "c": holes[2], "d": holes[2]}))
    fitted = fit_value_rarities(empty, ["category", "category", "date", "date"])
    assert fitted.score(empty).max() == 0
    assert fitted.differences == ()
    values = table(a=["x"], b=[1.0], c=[0], d=[0])
    assert fitted.score(values).max() == 0


def test_huge_texts_and_integers_are_scored(rarities):
    scores = score_row(rarities, city="🙂" * 10**6, code=1.7e308, device="x" * 10**6)
    assert np.isfinite(list(scores.values())).all()
    assert scores["city"] > 3


def test_infinite_numbers_give_finite_rarities(rarities):
    # The encoder refuses them later, with a message.
    for value in (np.inf, -np.inf):
        assert np.isfinite(list(score_row(rarities, amount=value, code=value).values())).all()


def test_array_of_numbers_is_scored():
    numbers = np.random.default_rng(0).gamma(2, size=(10_000, 3))
    numbers[0] = [-1, 0, np.nan]
    fitted = fit_value_rarities(as_table(numbers), ["number"] * 3)
    scores = fitted.score(as_table(numbers))
    assert scores[0].min() > 5
    assert (scores[1:] == 0).all()


# Descriptions


def describe(rarities, column, **values):
    return rarities.describe(change_row(**values), 0, list(USES).index(column))


def test_descriptions_name_what_is_expected(rarities):
    city = make_columns()["city"]
    n_rows = city.count("Großstadt 07")
    assert describe(rarities, "city", city="Großstat 07", postcode=None) == (
        f"'Großstadt 07' ({n_rows} rows)"
    )
    assert describe(rarities, "note", note=None) == "a value"
    assert describe(rarities, "code", code=14.0).startswith(("'11' (", "'12' (", "'13.5' ("))
    assert describe(rarities, "amount", amount=-1.0) == (
        "a number above 0, as in 1,200 of 1,200 rows"
    )
    assert describe(rarities, "amount", amount=1.0) == ""
    first = make_columns()["postcode"][0]
    other = next(code for code in make_columns()["postcode"] if code != first)
    wrong = [describe(rarities, name, postcode=other) for name in ("postcode", "city")]
    assert all("usually" in sentence for sentence in wrong)


def test_descriptions_of_dates_name_other_column_or_range(rarities):
    start = make_columns()["start"][0]
    assert describe(rarities, "start", end=start - 7200) == "another time from end"
    assert describe(rarities, "end", end=start - 7200) == "another time from start"
    far = describe(rarities, "start", start=10**10, end=None)
    assert far == rarities.columns[5].dates.describe(1e10)
    assert far.startswith("1970-01-")
    assert " to 1970-07-" in far
    assert describe(rarities, "start", start=3 * 3600, end=None) == "another time of day"
    assert describe(rarities, "start") == ""


def test_description_of_repeats_has_the_count():
    rows = table(device=[*make_columns()["device"], "device 0", "device 0"])
    fitted = fit_value_rarities(rows, ["identifier"])
    assert fitted.describe(rows, 0, 0) == "once; it occurs 3 times"
    twice = rows.slice(0, N_ROWS + 1)
    assert fit_value_rarities(twice, ["identifier"]).describe(rows, 0, 0) == (
        "once; it occurs 2 times"
    )
    assert fitted.describe(rows, 5, 0) == ""


def test_description_of_pattern_where_no_category_is_frequent():
    codes = [f"AB-{number}" for number in range(100, 400)]
    rows = table(code=[*codes, "ab-7"])
    fitted = fit_value_rarities(rows, ["category"])
    assert fitted.describe(rows, 300, 0) == fitted.columns[0].patterns.describe("ab-7") != ""
    usual = table(code=["AB-100"])
    assert fitted.describe(usual, 0, 0) == fitted.columns[0].patterns.describe("AB-100")


def test_description_is_of_the_rarer_of_pattern_and_category():
    rows = table(code=["AB-1"] * 500 + [f"AB-{number}" for number in range(2, 400)])
    column = fit_value_rarities(rows, ["category"]).columns[0]
    assert column.find_note("ab 7 !").text == column.patterns.describe("ab 7 !") != ""
    # The format is usual, the category is not.
    assert column.find_note("AB-77").text == "'AB-1' (500 rows)"


def test_long_column_names_are_shortened():
    names = ["start", "x" * 500 + "\n"]
    columns = make_columns()
    types = [pa.array(columns[name], pa.timestamp("s")) for name in ("start", "end")]
    types[1] = pa.array([columns["start"][0] - 7200, *columns["end"][1:]], pa.timestamp("s"))
    rows = as_table(pa.table(types, names))
    text = fit_value_rarities(rows, ["date", "date"]).describe(rows, 0, 0)
    assert text.startswith("another time from xxx")
    assert text.isprintable()
    assert len(text) < 150


# Bounds


def test_only_first_dates_are_compared():
    start = pa.array(make_columns()["start"], pa.timestamp("s"))
    rows = as_table(pa.table({f"d{n}": start for n in range(12)}))
    differences = fit_value_rarities(rows, ["date"] * 12).differences
    assert len(differences) == 45
    assert max(each.second for each in differences) == 9


def test_stored_texts_of_all_columns_are_bounded(monkeypatch, rarities):
    text = json.dumps(json.dumps(msgspec.to_builtins(rarities)))
    city, postcode = (
        len(json.dumps(json.dumps(msgspec.to_builtins(rarities.columns[n])))) for n in (0, 1)
    )
    assert len(text) > city + postcode
    monkeypatch.setattr(_value_rarities, "MAX_BYTES", city + 1000)
    smaller = fit_value_rarities(TABLE, list(USES.values()))
    assert smaller.columns[0] == rarities.columns[0]
    assert smaller.columns[1] == ColumnRarity(missing=rarities.columns[1].missing)
    assert smaller.columns[2] == rarities.columns[2]  # few categories fit beside
    assert smaller.rules is None
    assert np.isfinite(smaller.score(TABLE)).all()


def test_patterns_count_where_categories_are_not_stored(monkeypatch):
    codes = [f"AB-{number}" for number in range(100, 400)] * 2
    rows = table(code=codes, x=["a"] * 600)
    everything = fit_value_rarities(rows, ["category", "other"])
    monkeypatch.setattr(_value_rarities, "MAX_BYTES", 5_000)
    smaller = fit_value_rarities(rows, ["category", "other"])
    assert smaller.columns[0].categories is None
    assert smaller.columns[0].patterns == everything.columns[0].patterns
    scores = smaller.score(table(code=["ab7", "AB-123"], x=["a", "a"]))
    assert scores[0, 0] > 3
    assert scores[1, 0] == 0


def test_bytes_are_those_of_escaped_header():
    column = fit_value_rarities(table(a=['é"\\\n🙂'] * 3), ["category"]).columns[0]
    text = json.dumps(msgspec.to_builtins(column))
    # The outer string has two quotes.
    assert _value_rarities._measure_size(column) == len(json.dumps(text)) - 2


# Hostile states


@pytest.fixture
def state(rarities):
    return json.loads(msgspec.json.encode(rarities))


def test_state_survives_json(rarities, state):
    loaded = msgspec.convert(state, ValueRarities)
    assert loaded == rarities
    np.testing.assert_array_equal(loaded.score(TABLE), rarities.score(TABLE))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["columns"], None),
        (["columns"], [{}]),
        (["columns"], [None] * 8),
        (["columns", 0, "missing"], None),
        (["columns", 0, "missing", "n_missing"], -1),
        (["columns", 0, "categories"], []),
        (["columns", 0, "categories", "counts", 0], 0),
        (["columns", 0, "categories", "categories", 0], "\ud800"),
        (["columns", 0, "patterns"], {}),
        (["columns", 0, "misspellings", "counts", 0], -1),
        (["columns", 0, "dates"], {"low": 0}),
        (["columns", 0, "repeats"], "many"),
        (["columns", 0, "signs"], {"n_zero": 1}),
        (["columns", 0, "extra"], 1),
        (["columns", 5, "dates", "low"], 1e300),
        (["rules"], []),
        (["rules", "rules", 0, "dependent"], 99),
        (["differences"], None),
        (["differences", 0, "second"], 8),
        (["differences", 0, "second"], 2**60),
        (["differences", 0, "second"], 5),
        (["differences", 0, "first"], -1),
        (["extra"], 1),
    ],
    ids=str,
)
def test_contradictory_states_are_refused(state, path, value):
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(state, ValueRarities)


def test_many_differences_and_columns_are_refused(state):
    difference = state["differences"][0]
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert(state | {"differences": [difference] * 46}, ValueRarities)
    columns = [{"missing": {"n_present": 1, "n_missing": 0}}] * 100_001
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert({"columns": columns}, ValueRarities)


def test_rarities_of_other_kinds_of_columns_are_harmless(state):
    """A hostile file may have dates of texts, categories of dates, and the like."""
    parts = [part for column in state["columns"] for part in column.items() if part[1]]
    everything = dict(parts) | {"missing": {"n_present": 2**53, "n_missing": 0}}
    state["columns"] = [everything] * len(USES)
    names = list(USES)
    state["differences"] = [
        state["differences"][0] | {"first": first, "second": second}
        for first, second in [(0, 5), (5, 1), (0, 1), (3, 4), (4, 6), (5, 6)]
    ]
    hostile = msgspec.convert(state, ValueRarities)
    rows = table(**make_columns(50, seed=1) | {"start": [None] * 25 + [-62_135_596_800] * 25})
    scores = hostile.score(rows)
    assert np.isfinite(scores).all()
    assert scores.min() >= 0
    for row in (0, 40):
        for number in range(len(names)):
            assert hostile.describe(rows, row, number).isprintable()


def test_frequent_text_of_another_format_is_usual():
    columns = {"browser": ["Chrome"] * 400 + ["Safari"] * 300 + ["IE"] * 250 + ["xx 9"] * 3}
    found = fit_value_rarities(table(**columns), ["category"]).score(table(**columns))
    assert found[:950].max() == 0
    assert found[-1, 0] > 3


def test_rarest_value_counts_beyond_what_is_usual(rarities):
    training = np.array([[0.0, 2.0]] * 40 + [[0.0, 0.0]] * 60)
    found = rarities.with_usual_rarest(training)
    columns, excess = found.find_rarest(np.array([[5.0, 1.0], [0.0, 2.0], [0.0, 0.0], [3.0, 3.0]]))
    assert found.usual_rarest == 2
    assert columns.tolist() == [0, 1, 0, 0]
    assert excess.tolist() == [3, 0, 0, 1]


def test_rarest_value_counts_in_full_where_it_is_exceptional(rarities):
    found = rarities.with_usual_rarest(np.array([[0.0, 2.0]] * 25 + [[0.0, 0.0]] * 75))
    assert found.usual_rarest == 0


def test_rare_missing_value_explains_its_pattern():
    columns = {"a": [1.0, None] * 200, "b": ["x", None] * 200, "c": [1.0] * 400}
    for name, value in (("a", None), ("b", "x"), ("c", None)):
        columns[name].append(value)
    columns["c"][:4] = [None] * 4  # often enough to be in patterns
    sample = table(**columns)
    found = fit_value_rarities(sample, ["number", "category", "number"])
    alone = found.columns[2].missing.rarity
    rarities, _ = found.patterns.score(np.array([[True, False, True]]))
    assert rarities[0] > alone > 0
    assert found.score(sample)[-1].sum() == pytest.approx(rarities[0])


def test_values_missing_together_are_usual():
    sample = table(a=[1.0, None] * 300 + [None], b=["x", None] * 300 + ["x"])
    found = fit_value_rarities(sample, ["number", "category"]).score(sample)
    assert found[:-1].max() == 0
    assert found[-1].sum() > 3
