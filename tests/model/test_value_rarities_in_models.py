"""Models with rarities of values: saved, loaded, and applied to any rows in any form."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from model_files import FAST, FRAME, rewrite, rewrite_text

import altbi
from altbi import OutlierDetector
from altbi.errors import ModelFileError, TableError
from altbi.model._file import read_header, read_model

N_ROWS = 4000
N_SINGLE_IDS = 3900


def make_frame(n_rows=N_ROWS, seed=0):
    """Return columns of all roles, with typos, repeated identifiers and missing values."""
    rng = np.random.default_rng(seed)
    city = rng.integers(0, 200, n_rows)
    start = pd.Timestamp("2025-01-06") + pd.to_timedelta(rng.integers(0, 150 * 24, n_rows), "h")
    words = rng.integers(0, 3000, (n_rows, 7))
    order = np.concatenate([np.arange(N_SINGLE_IDS), np.repeat(np.arange(50) + 5000, 2)])
    order = np.resize(rng.permutation(order), n_rows)
    codes = 149 * np.arange(60) + rng.integers(1003, 1053, 60)
    frame = pd.DataFrame(
        {
            "amount": rng.gamma(2, 20, n_rows).round(2),
            "city": [f"Stadt {number:03}" for number in city],
            "postcode": [f"D-{10_000 + 37 * number}" for number in city],
            "code": codes[rng.integers(0, 60, n_rows)],
            "order": [f"ORD-{number:07}" for number in order],
            "comment": [" ".join(f"word{word}" for word in row) for row in words],
            "start": start,
            "end": start + pd.to_timedelta(rng.integers(1, 72, n_rows), "h"),
            "paid": rng.random(n_rows) < 0.3,
        }
    )
    frame["amount"] = frame["amount"].mask(rng.random(n_rows) < 0.05)
    frame["city"] = frame["city"].mask(rng.random(n_rows) < 0.01)
    frame.loc[3:9, "city"] = [f"Satdt {number:03}" for number in city[3:10]]
    frame.loc[20, "end"] = frame.loc[20, "start"] - pd.Timedelta(hours=5)
    frame.loc[21, "end"] = pd.NaT
    frame.loc[22, "postcode"] = frame.loc[24, "postcode"]
    return frame


MIXED = make_frame()


# Texts with more than 32 categories raise a warning about features.
pytestmark = pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")


@pytest.fixture(scope="module")
def detector():
    return OutlierDetector(n_reference=60, schedule=FAST).fit(MIXED)


@pytest.fixture(scope="module")
def content(detector):
    return detector.model_.to_bytes()


@pytest.fixture
def path(tmp_path, content):
    path = tmp_path / "mixed.altbi"
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def scores(detector):
    return detector.model_.score(MIXED)


def test_columns_have_rarities_by_their_roles(detector):
    encoder, values = detector.model_.encoder, detector.model_.scorer.values
    roles = [column.role.role if column.role else column.kind for column in encoder.columns]
    assert roles == [
        "number", "category", "category", "code", "identifier", "free text", "date", "date",
        "boolean",
    ]  # fmt: skip
    learned = [
        {name for name in column.__struct_fields__ if getattr(column, name) is not None}
        for column in values.columns
    ]
    assert all("missing" in names for names in learned)
    assert [names - {"missing"} for names in learned] == [
        {"signs"},
        {"categories", "patterns", "misspellings"},
        {"categories", "patterns", "misspellings"},
        {"categories"},
        {"repeats"},
        set(),
        {"dates"},
        {"dates"},
        {"categories"},
    ]
    assert set(values.rules.names) == {"city", "postcode"}
    assert [(each.first, each.second) for each in values.differences] == [(6, 7)]


def test_copies_of_texts_have_missing_values_only():
    frame = MIXED[["amount", "city"]].assign(copy=MIXED["city"])
    model = OutlierDetector(n_reference=60, schedule=FAST).fit(frame).model_
    assert model.encoder.columns[2].role.role == "duplicate"
    column = model.scorer.values.columns[2]
    assert all(
        getattr(column, name) is None for name in column.__struct_fields__ if name != "missing"
    )
    assert set(model.scorer.values.rules.names) == {"city", "copy"}


@pytest.mark.parametrize(("n_numbers", "has_signs"), [(99, True), (100, False)])
def test_signs_of_wide_tables_do_not_count(n_numbers, has_signs):
    numbers = np.random.default_rng(0).random((60, n_numbers))
    model = OutlierDetector(n_reference=30, schedule=FAST).fit(numbers).model_
    assert (model.scorer.values.columns[0].signs is not None) == has_signs


# Files


def test_loaded_model_scores_alike(detector, path, scores):
    loaded = altbi.load(path)

    np.testing.assert_array_equal(loaded.score(MIXED), scores)
    assert loaded.scorer.values == detector.model_.scorer.values
    assert loaded.to_bytes() == path.read_bytes()
    other = make_frame(300, seed=1)
    np.testing.assert_array_equal(loaded.score(other), detector.model_.score(other))
    ours, theirs = loaded.explain(MIXED[:30]), detector.model_.explain(MIXED[:30])
    np.testing.assert_array_equal(ours.contributions, theirs.contributions)
    assert [ours.reasons(row) for row in range(30)] == [theirs.reasons(row) for row in range(30)]


def test_single_identifiers_and_free_text_are_not_stored(content):
    counts = MIXED["order"].value_counts()
    single, repeated = counts.index[counts == 1], counts.index[counts > 1]
    assert len(single) == N_SINGLE_IDS
    assert not [text for text in single if text.encode() in content]
    assert all(text.encode() in content for text in repeated)
    words = set(" ".join(MIXED["comment"]).split())
    assert len(words) > 1000
    assert not words.intersection(re.findall("word[0-9]+", content.decode("latin-1")))


def test_categories_that_occur_once_are_in_broken_rules_only(path):
    counts = MIXED["city"].value_counts()
    single = set(counts.index[counts == 1])
    assert len(single) == 7
    header = read_header(path)
    columns = header["values"]["rules"]["columns"]
    assert single.issubset(*[column["values"] for column in columns if column["name"] == "city"])
    header["values"]["rules"] = None
    assert not [text for text in single if text in json.dumps(header)]


def test_values_of_a_scorer_by_loss_are_null(write_model):
    assert read_header(write_model("loss"))["values"] is None
    assert len(read_header(write_model("distance"))["values"]["columns"]) == len(FRAME.columns)


def test_file_grows_with_distinct_texts_only(content):
    double = pd.concat([MIXED, MIXED], ignore_index=True).drop(columns=["order", "comment"])
    small = OutlierDetector(n_reference=60, schedule=FAST).fit(double).model_.to_bytes()
    assert len(small) < 1.5 * len(content)


# Hostile files


def assert_rejected(path, message="."):
    with pytest.raises(ModelFileError, match=message) as caught:
        altbi.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(path))


def set_value(values, keys, value):
    *keys, last = keys
    for key in keys:
        values = values[key]
    values[last] = value


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["columns"], [], "existing columns"),
        (["rules", "columns", 0, "name"], "another", "rules are about other columns"),
        (["rules", "columns", 0, "name"], "postcode", "distinct columns"),
        (["rules", "rules", 0, "dependent"], 7, "existing column"),
        (["differences", 0, "second"], 9, "differences of existing columns"),
        (["differences", 0, "second"], 6, "differences of two columns"),
        (["differences", 0, "counts"], [0], "length"),
        (["columns", 0, "signs", "n_zero"], -1, "n_zero"),
        (["columns", 0, "signs", "n_zero"], 10**30, "n_zero|out of range"),
        (["columns", 0, "missing"], None, "missing"),
        (["columns", 1, "categories", "counts", 0], "many", "counts"),
        (["columns", 1, "categories", "counts", 0], 2**53, "rows"),
        (["columns", 1, "categories", "n_single"], -1, "n_single"),
        (["columns", 1, "categories", "categories", 0], 5, "categories"),
        (["columns", 1, "categories", "categories"], [], "one count for each"),
        (["columns", 1, "patterns", "unseen"], 1e9, "unseen"),
        (["columns", 1, "misspellings", "categories"], [], "categories"),
        (["columns", 4, "repeats", "n_rows"], 1, "n_rows"),
        (["columns", 4, "repeats", "counts", 0], 1, "counts"),
        (["columns", 6, "dates", "low"], 1e12, "low"),
        (["columns", 6, "dates", "hours"], [1], "hours"),
        (["columns", 6, "dates", "days"], {"1": 1}, "days"),
        (["columns", 8, "code"], "import os", "code"),
        (["code"], "import os", "code"),
    ],
    ids=str,
)
def test_hostile_values_are_rejected_in_one_sentence(path, keys, value, message):
    values = read_header(path)["values"]
    set_value(values, keys, value)
    rewrite(path, values=values)
    assert_rejected(path, message)


@pytest.mark.parametrize("values", [None, 5, [], {}, "values", {"columns": 3}], ids=str)
def test_values_of_wrong_types_are_rejected(path, values):
    rewrite(path, values=values)
    assert_rejected(path)


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: [*c, c[0]]], ids=["few", "many"])
def test_other_number_of_columns_is_rejected(path, change):
    values = read_header(path)["values"]
    values |= {"columns": change(values["columns"]), "differences": []}
    rewrite(path, values=values)
    assert_rejected(path, "its rarities do not fit its columns")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "-1e999", '"\\ud800"'])
def test_numbers_that_are_not_finite_are_rejected(path, text):
    marker = 12345.678
    values = read_header(path)["values"]
    values["columns"][6]["dates"]["low"] = marker
    rewrite(path, values=values)
    rewrite_text(path, lambda header: header.replace(str(marker), text))
    assert_rejected(path)


def test_million_entries_are_rejected_fast(path):
    values = read_header(path)["values"]
    values["columns"][4]["repeats"] |= {"identifiers": ["a"] * 10**6, "counts": [2] * 10**6}
    rewrite(path, values=values)
    assert_rejected(path, "length")


def test_rarities_of_other_kinds_give_finite_scores(path):
    """The columns' rarities fit no kind of column, but they are valid."""
    values = read_header(path)["values"]
    everything = {
        name: part for column in values["columns"] for name, part in column.items() if part
    }
    everything["missing"] = {"n_present": 2**53, "n_missing": 0}
    values["columns"] = [everything] * len(values["columns"])
    pairs = [(0, 1), (6, 1), (2, 7), (6, 7), (0, 8)]
    values["differences"] = [
        values["differences"][0] | {"first": first, "second": second} for first, second in pairs
    ]
    rewrite(path, values=values)
    loaded = altbi.load(path)
    rows = make_frame(40, seed=2)
    rows.iloc[::3, 6] = pd.NaT
    explanation = loaded.explain(rows)
    assert np.isfinite(loaded.score(rows)).all()
    assert np.isfinite(explanation.contributions).all()
    for row in range(len(rows)):
        assert all(reason.note.isprintable() for reason in explanation.reasons(row, top=9))


def test_extreme_spread_of_rarities_gives_finite_scores(path):
    tensors, _ = read_model(path)
    tensors["spreads"][-1] = 1e-9
    rewrite(path, tensors)
    assert np.isfinite(altbi.load(path).score(MIXED)).all()


# Scores of a row


def test_row_alone_scores_like_in_table(detector, scores):
    model = detector.model_
    for row in range(0, N_ROWS, 61):
        assert model.score_table(MIXED[row : row + 1])[0][0] == scores[row]


def test_order_of_rows_does_not_matter(detector, scores):
    order = np.random.default_rng(0).permutation(N_ROWS)
    shuffled = detector.model_.score_table(MIXED.iloc[order])[0]
    np.testing.assert_array_equal(shuffled, scores[order])


def test_slices_and_chunks_score_like_the_table(detector, scores):
    model = detector.model_
    arrow = pa.Table.from_pandas(MIXED, preserve_index=False)
    chunked = pa.concat_tables([arrow.slice(0, 7), arrow.slice(7, 400), arrow.slice(407)])
    np.testing.assert_array_equal(model.score_table(chunked)[0], scores)
    np.testing.assert_array_equal(model.score_table(arrow.slice(300, 301))[0], scores[300:601])
    dictionary = arrow.set_column(1, "city", arrow["city"].dictionary_encode())
    np.testing.assert_array_equal(model.score_table(dictionary)[0], scores)


def test_10000_rows_score_like_fewer(detector, scores):
    times = 3
    rows = pd.concat([MIXED] * times, ignore_index=True)
    assert len(rows) > 10_000
    found = detector.model_.score_table(rows)[0]
    np.testing.assert_array_equal(found, np.tile(scores, times))


def test_columns_in_other_order_score_alike(detector, scores):
    backwards = MIXED[MIXED.columns[::-1]]
    np.testing.assert_array_equal(detector.model_.score(backwards), scores)


@pytest.mark.parametrize("change", ["missing", "extra"])
def test_other_columns_are_refused_by_name(detector, change):
    rows = MIXED.drop(columns="city") if change == "missing" else MIXED.assign(more=1)
    with pytest.raises(TableError, match="differs from the one at fit"):
        detector.model_.score(rows)


def test_column_without_values_is_scored(detector, scores):
    for name in ("city", "start", "order", "amount"):
        rows = MIXED.assign(**{name: None})
        found = detector.model_.score_table(rows)[0]
        assert np.isfinite(found).all()
        is_present = MIXED[name].notna()
        if is_present.all():
            assert np.median(found - scores) > 0.05


def test_contributions_add_up_to_the_scores(detector, scores):
    explanation = detector.explain(MIXED)

    np.testing.assert_array_equal(explanation.score, scores)
    total = explanation.contributions.sum(axis=1) + explanation.remainder
    np.testing.assert_allclose(total, scores, rtol=1e-6)
    assert (explanation.remainder == 0).all()


def test_contributions_of_rare_values_are_highest(detector):
    explanation = detector.explain(MIXED)
    columns = list(MIXED.columns)
    for row in range(3, 10):
        first = explanation.reasons(row)[0]
        assert first.column == "city"
        assert first.value.startswith("Satdt")
    assert columns[explanation.contributions[20].argmax()] in {"start", "end"}
    assert columns[explanation.contributions[21].argmax()] == "end"


def test_missing_date_is_a_reason(detector):
    reason = detector.explain(MIXED[21:22]).reasons(0)[0]
    assert reason.column == "end"
    assert reason.note == "a value"


# Files of rows


@pytest.mark.slow
def test_csv_file_scores_like_the_frame(tmp_path):
    frame = MIXED.assign(comment=MIXED["comment"] + ', "quoted"')
    frame.to_csv(tmp_path / "t.csv", index=False)
    detector = OutlierDetector(n_reference=60, schedule=FAST, random_state=0)
    of_file = altbi.detect(str(tmp_path / "t.csv"), detector=detector, report=False)
    of_frame = altbi.detect(frame, detector=detector, report=False)
    expected = of_frame.scores()["score"].to_numpy()
    np.testing.assert_array_equal(of_file.scores()["score"].to_numpy(), expected)
    np.testing.assert_array_equal(detector.fit(frame).model_.score(frame), expected)
