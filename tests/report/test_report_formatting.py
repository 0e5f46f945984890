from datetime import datetime

import pyarrow as pa
import pytest

from altbi.report._formatting import (
    describe_column,
    format_expected,
    format_nearest,
    format_number,
    format_score,
    format_share,
    format_value,
)
from small_tables import fast_detector

DAY, EVENING = datetime(2024, 2, 28), datetime(2024, 2, 28, 23, 58)


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
    ("number", "text"), [(1e16, "1e+16"), (-1e-5, "-1e-05"), (float("inf"), "inf"), (0.0, "0")]
)
def test_extreme_numbers_have_exponents(number, text):
    assert format_number(number) == text


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


@pytest.mark.parametrize(
    ("score", "threshold", "text"),
    [(1.23456, 3.0, "1.235"), (1234.5, 3000.0, "1,234"), (1e8, 3.0, "1e+08"), (0.5, 0.0, "0.500")],
)
def test_scores_have_the_decimals_of_the_threshold(score, threshold, text):
    assert format_score(score, threshold) == text


def test_small_shares_are_not_zero():
    assert [format_share(share) for share in (0.0, 1e-5, 0.002, 1.0)] == [
        "0%", "under 0.01%", "0.20%", "100%",
    ]  # fmt: skip


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
