import sys
from datetime import datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import altbi
from altbi.model._score_source import ScoreCounts, ScoreSummary
from altbi.report import render
from altbi.report._summarize import (
    _compute_bins,
    _list_thresholds,
    build_reasons_table,
    describe_column,
    describe_threshold,
    format_expected,
    format_nearest,
    format_value,
)
from altbi.table import list_values
from small_tables import (
    create_pipeline,
    fast_altbi,
    fast_detector,
    fast_settings,
    mixed_table,
    write_csv,
)

DAY, EVENING = datetime(2024, 2, 28), datetime(2024, 2, 28, 23, 58)
FEATURES = ["size", "count", "colour", "sold", "day"]


def summarize(path, settings=None, model=None, **options):
    """Return the summary and the table of reasons."""
    pipeline = create_pipeline(path, **options)
    prepared = pipeline.fit(settings or fast_settings()) if model is None else None
    prepared = prepared or pipeline.prepare(model)
    scored = pipeline.score(prepared)
    explained = pipeline.explain_top(prepared, scored)
    reasons = build_reasons_table(explained, prepared.selected)
    return pipeline.summarize(prepared, scored, explained), reasons


@pytest.fixture(scope="module")
def table():
    return mixed_table(3000)


@pytest.fixture(scope="module")
def model(table):
    return fast_detector().fit(table.select(FEATURES)).model_


@pytest.fixture(scope="module")
def scores(table, model):
    return model.score(table.select(FEATURES))


@pytest.fixture(scope="module")
def summary(table, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("summary") / "t.csv"
    write_csv(table, path)
    return summarize(path, model=model, ids=("invoice",), top=50)[0]


def test_thresholds_have_exact_counts(summary, scores):
    thresholds = [threshold for threshold, _ in summary.thresholds]
    counts = [count for _, count in summary.thresholds]

    assert counts == [int((scores > threshold).sum()) for threshold in thresholds]
    assert thresholds == sorted(thresholds, reverse=True)
    assert (summary.threshold, summary.flagged) in summary.thresholds
    assert set(range(50)) <= set(counts)
    assert max(counts) == 3000
    assert 50 < len(counts) < 300


def test_bins_contain_all_rows(summary, scores):
    assert sum(count for _, _, count in summary.bins) == 3000
    for (_, end, _), (start, _, _) in zip(summary.bins, summary.bins[1:], strict=False):
        assert end == start
    assert summary.bins[0][0] <= scores.min()
    assert summary.bins[-1][1] >= scores.max()
    for start, end, count in summary.bins:
        margin = 2**-15 * np.abs([start, end])
        least = ((scores >= start + margin[0]) & (scores < end - margin[1])).sum()
        most = ((scores >= start - margin[0]) & (scores < end + margin[1])).sum()
        assert least <= count <= most


def test_thresholds_of_equal_scores_have_exact_counts():
    scores = np.repeat([8.0, 5.0, 4.0, 2.0, 1.0], [1, 3, 40, 90, 66])
    scored = ScoreSummary(top=2)
    scored.counts.add(scores)
    scored.n_rows, scored.n_flagged = len(scores), 4

    thresholds = _list_thresholds(scored, scores[:2], 4.5)

    assert thresholds == tuple(sorted(thresholds, reverse=True))
    assert dict(thresholds) == {limit: int((scores > limit).sum()) for limit, _ in thresholds}
    assert {0, 1, 4, 44, 134, 200} == {count for _, count in thresholds}


@pytest.mark.parametrize("score", [-2.5, 0.0, 3.7])
def test_equal_scores_have_one_bin(score):
    counts = ScoreCounts()
    counts.add(np.full(40, score))

    ((start, end, count),) = _compute_bins(counts)

    assert start <= score <= end
    assert (end - start, count) == (pytest.approx(0, abs=1e-4), 40)


def test_constant_table_has_a_page(tmp_path):
    write_csv(pa.table({"a": [1.0] * 60, "b": ["x"] * 60}), tmp_path / "t.csv")

    summary, _ = summarize(tmp_path / "t.csv")

    assert summary.bins == ((0.0, 0.0, 60),)
    assert [column.share for column in summary.columns] == [0, 0]
    assert "60 rows have scores from 0 to 0." in render(summary)


def test_columns_and_training_are_summarized(summary):
    assert {column.name for column in summary.columns} == set(FEATURES)
    shares = [column.share for column in summary.columns]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    n_reasons = sum(len(row.reasons) for row in summary.top)
    assert sum(column.n_reasons for column in summary.columns) == n_reasons
    assert [step.step for step in summary.history] == list(range(5))
    assert summary.versions["numpy"] == np.__version__
    assert ("torch" in summary.versions) == ("torch" in sys.modules)


def format_column(column, reference):
    is_compared = reference.null_count < len(reference)
    return [format_value(each) if is_compared else "not compared" for each in column.to_pylist()]


def test_top_rows_have_the_nearest_reference_rows(summary, table, model):
    explanation = model.explain(table.select(FEATURES))
    decoded = dict(zip(FEATURES, model.encoder.decode(model.scorer.distance.rows), strict=True))
    shown = {name: decoded[name] for name in summary.shown_columns}
    reference = set(zip(*(format_column(each, each) for each in shown.values()), strict=True))
    assert "not compared" in next(iter(reference))  # dates

    assert summary.score_by == "distance"
    for row in summary.top[:10]:
        nearest = explanation.nearest(row.number).select(summary.shown_columns)
        columns = (format_column(nearest[name], each) for name, each in shown.items())
        assert row.nearest == tuple(zip(*columns, strict=True))
        assert set(row.nearest) <= reference
        for reason in row.reasons:
            column = summary.shown_columns.index(reason.column)
            assert reason.nearest == tuple(values[column] for values in row.nearest)


def test_models_of_losses_have_no_nearest_rows(tmp_path):
    write_csv(mixed_table(200), tmp_path / "t.csv")

    summary, reasons = summarize(tmp_path / "t.csv", fast_altbi().settings(), ids=("invoice",))

    assert summary.score_by == "loss"
    assert not any(row.nearest for row in summary.top)
    assert not any(reason.nearest for row in summary.top for reason in row.reasons)
    assert reasons.column_names[-3:] == ["expected", "z_score", "contribution"]


def test_few_neighbours_are_all_shown(tmp_path):
    write_csv(mixed_table(200), tmp_path / "t.csv")

    summary, reasons = summarize(
        tmp_path / "t.csv", fast_settings(n_groups=1, n_reference=3), ids=("invoice",)
    )

    assert {len(row.nearest) for row in summary.top} == {2}
    assert reasons.column_names[-2:] == ["nearest_1", "nearest_2"]


def test_dates_are_compared_with_dates(tmp_path):
    rng = np.random.default_rng(0)
    days = np.datetime64("1900-01-01", "D") + rng.integers(0, 45_000, 300)
    days[7] = np.datetime64("2900-05-06")
    write_csv(pa.table({"day": days, "size": rng.normal(size=300)}), tmp_path / "t.csv")

    summary, reasons = summarize(tmp_path / "t.csv")

    (row,) = [row for row in summary.top if row.number == 7]
    (reason,) = [reason for reason in row.reasons if reason.column == "day"]
    assert reason.value == "2900-05-06"
    assert reason.expected == "1901-10-21 to 2022-08-08"
    record = next(record for record in reasons.to_pylist() if record["column"] == "day")
    assert record["expected"] == reason.expected


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_empty_texts_differ_from_missing_values(tmp_path, format_):
    texts = np.where(np.arange(200) % 20 == 0, "x", "")
    table = pa.table({"a": np.random.default_rng(0).normal(size=200), "b": texts, "key": texts})
    path = tmp_path / f"t.{format_}"
    {"csv": write_csv, "parquet": pyarrow.parquet.write_table}[format_](table, path)

    summary, reasons = summarize(path, ids=("key",), top=200)

    empty = "''" if format_ == "parquet" else ""
    column = summary.shown_columns.index("b")
    shown = {row.number: (row.values[column], row.ids) for row in summary.top}
    assert shown[0] == ("x", ("x",))
    assert shown[1] == (empty, ("",))
    (fact,) = (column for column in summary.columns if column.name == "b")
    assert fact.content == ("'', x" if format_ == "parquet" else "x")
    records = [record for record in reasons.to_pylist() if record["column"] == "b"]
    assert {record["value"] for record in records if record["row"] % 20} <= {empty}
    assert {record["id_key"] for record in records} <= {"", "x"}
    expected = {record["expected"] for record in records if record["row"] % 20 == 0}
    # In CSV, "x" is the only value, so it is not rare.
    assert expected == ({"'' (190 rows)"} if format_ == "parquet" else set())


def test_unknown_labels_stay_unknown(tmp_path):
    bad = [None if i % 2 else i % 4 == 0 for i in range(40)]
    size = [None if i % 4 == 1 else float(i) for i in range(40)]
    write_csv(pa.table({"size": size, "bad": bad}), tmp_path / "t.csv")

    summary, reasons = summarize(tmp_path / "t.csv", label="bad", top=40)

    assert {row.number: row.label for row in summary.top} == dict(enumerate(bad))
    (column,) = summary.columns
    assert (column.missing, column.content) == (0.25, "0 to 39")
    flagged = {row.number for row in summary.top if row.score > summary.threshold}
    assert {record["row"] for record in reasons.to_pylist() if record["outlier"]} == flagged


@pytest.mark.slow
def test_page_of_small_table_is_below_300_kb(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({f"measurement {i}": rng.normal(size=1000).round(4) for i in range(10)})
    write_csv(table, tmp_path / "t.csv")

    summary, _ = summarize(tmp_path / "t.csv", fast_settings(), top=200)

    assert len(summary.top) == 200
    assert len(render(summary).encode()) < 300_000


@pytest.mark.slow
def test_extreme_score_has_a_wide_bin(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(35)]
    table = pa.table({name: rng.normal(size=1000) for name in (*names, "x")})
    model = fast_detector().fit(table).model_
    x = rng.normal(size=1000)
    x[3] = 123456.789012
    write_csv(table.set_column(35, "x", [x]), tmp_path / "t.csv")

    summary, reasons = summarize(tmp_path / "t.csv", model=model)

    *others, last = summary.bins
    widths = [end - start for start, end, _ in others]
    assert max(widths) == pytest.approx(min(widths))
    assert last[1] - last[0] > 10 * widths[0]
    assert len(summary.shown_columns) == 30
    assert summary.top[0].number == 3
    assert "123456.789012" in reasons["value"].to_pylist()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({}, "threshold is estimated"),
        ({"contamination": 0.1}, "A contamination of 10.00% was given"),
        ({"threshold": 3.0}, "The threshold was given."),
    ],
)
def test_threshold_is_described(parameters, text):
    X = np.random.default_rng(0).normal(size=(100, 2))

    assert text in describe_threshold(fast_detector(**parameters).fit(X).model_)


@pytest.mark.slow
def test_private_threshold_is_described():
    from altbi.torch import PrivacyBudget

    X = np.random.default_rng(0).uniform(size=(200, 2))
    budget = PrivacyBudget(3, delta=1e-4, bounds=(0, 1))

    text = describe_threshold(altbi.ALTBI(privacy=budget).fit(X).model_)

    assert text.startswith("About 10% of the training rows")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), ""),
        ("", "''"),
        (True, "true"),
        (3.0, "3"),
        (1.5, "1.5"),
        (DAY, "2024-02-28"),
        (EVENING, "2024-02-28 23:58:00"),
        ("text", "text"),
    ],
)
def test_values_are_formatted_by_type(value, text):
    assert format_value(value) == text


def test_all_digits_are_kept_on_demand():
    assert format_value(0.1 + 0.2, digits=None) == "0.30000000000000004"
    assert format_value(0.1 + 0.2) == "0.3"


@pytest.mark.parametrize(
    ("expected", "value", "text"),
    [
        (EVENING, DAY, "2024-02-29"),
        (EVENING, EVENING, "2024-02-28 23:58:00"),
        (datetime.max, DAY, "9999-12-31"),
        (None, DAY, ""),
        (EVENING, None, "2024-02-28 23:58:00"),
    ],
)
def test_expected_value_is_formatted_like_the_value(expected, value, text):
    assert format_expected(expected, value) == text


def test_expected_numbers_have_few_digits():
    assert format_expected(1234.5678, 1.0, digits=4) == "1235"


def test_nearest_dates_have_no_time_without_need():
    assert format_nearest(DAY, DAY) == "2024-02-28"
    assert format_nearest(EVENING, DAY) == "2024-02-28 23:58:00"


def test_columns_are_described_by_kind():
    table = pa.table(
        {
            "flag": [True, False],
            "on": [True, True],
            "day": pa.array([0, 86_400], pa.timestamp("s")),
            "word": ["b", "a"],
            "none": pa.nulls(2, pa.float64()),
        }
    )
    columns = fast_detector().fit(table).encoder_.columns

    assert [describe_column(column) for column in columns] == [
        "true or false", "true", "1970-01-01 to 1970-01-02", "2 more", "no values",
    ]  # fmt: skip


FAR = 2**62


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.timestamp("s"), FAR, f"{FAR} s"),
        (pa.timestamp("us", "UTC"), FAR, f"{FAR} us"),
        (pa.date32(), 2**31 - 1, f"{2**31 - 1} d"),
        (pa.duration("s"), FAR, f"{FAR} s"),
        (pa.timestamp("ns"), 1_500, datetime(1970, 1, 1, microsecond=1)),
        (pa.time64("ns"), 1_500, time(0, 0, 0, 1)),
        (pa.duration("ns"), 1_500, timedelta(microseconds=1)),
        (pa.int8(), 7, 7),
    ],
    ids=str,
)
def test_values_that_python_cannot_hold_are_texts(type_, value, expected):
    integers = pa.int32() if type_ == pa.date32() else pa.int64()
    integers = pa.int8() if type_ == pa.int8() else integers
    column = pa.chunked_array([pa.array([value, None], integers).view(type_)])
    assert list_values(column) == [expected, None]


def test_dates_after_9999_have_reasons_and_a_page(tmp_path):
    days = pa.array([FAR] * 60, pa.int64()).view(pa.timestamp("s"))
    table = pa.table({"day": days, "id": days, "size": np.arange(60.0)})

    found = altbi.detect(table, tmp_path / "out", id="id", detector=fast_detector())

    assert set(found.reasons()["id_id"].to_pylist()) == {f"{FAR} s"}
