"""Rarity of dates: hours, weekdays, days of the month, and dates far off the range."""

import math

import msgspec
import numpy as np
import pandas as pd
import pytest

from altbi.rarities._date_rarity import DAY, DateRarity, fit_date_rarity
from altbi.rarities._rare_counts import USUAL_SHARE

YEAR_1, YEAR_9999 = -62_135_596_800.0, 253_402_300_799.0


def seconds(*texts):
    return np.array(texts, dtype="datetime64[us]").astype(np.int64) / 1e6


def business_hours(start="2026-01-01", n_days=1460, seed=0):
    """Return times from 8 to 18 o'clock of the workdays of four years, three a day."""
    days = np.arange(np.datetime64(start, "D"), np.datetime64(start, "D") + n_days)
    days = np.repeat(days[np.is_busday(days)], 3).astype("datetime64[s]").astype(np.int64)
    hours = np.random.default_rng(seed).integers(8, 18, len(days))
    return (days + 3600 * hours + 59).astype(np.float64)


DATES = business_hours()


@pytest.fixture(scope="module")
def rarity():
    return fit_date_rarity(DATES)


def score_of(rarity, *texts):
    return rarity.score(seconds(*texts)).tolist()


def test_usual_dates_have_rarity_zero(rarity):
    assert rarity.score(DATES).max() < 1
    assert score_of(rarity, "2026-06-10T12:30")[0] < 0.2


def test_unusual_hour_is_rare(rarity):
    noon, night, last = score_of(
        rarity, "2026-06-10T12:00", "2026-06-10T03:00", "2026-06-10T07:59:59.999999"
    )
    assert noon < 0.2
    assert night == last > 4


def test_unusual_weekday_is_rare(rarity):
    # 5 June 2026 is a Friday.
    friday, saturday, sunday, monday = score_of(
        rarity, *(f"2026-06-0{n}T12:00" for n in (5, 6, 7, 8))
    )
    assert max(friday, monday) < 0.5
    assert saturday == sunday > 4


def test_weekdays_are_those_of_the_calendar():
    days = pd.date_range("1965-01-01", "2030-12-31", freq="D")
    tuesdays = days[days.day_of_week == 1]
    rarity = fit_date_rarity(tuesdays.to_numpy().astype("datetime64[s]").astype(np.float64))
    dates = days.to_numpy().astype("datetime64[s]").astype(np.float64)
    np.testing.assert_array_equal(rarity.score(dates) > 1, days.day_of_week != 1)


def test_unusual_day_of_the_month_is_rare():
    firsts = np.arange("2000-01", "2030-01", dtype="datetime64[M]").astype("datetime64[s]")
    rarity = fit_date_rarity(firsts.astype(np.float64))
    first, second, last = score_of(rarity, "2024-02-01", "2024-02-02", "2024-02-29")
    assert first < 0.1  # not all weekdays are equally frequent
    assert second == last == pytest.approx(math.log(USUAL_SHARE * 361))


def test_rarest_part_of_a_date_counts_once(rarity):
    night, sunday, both = score_of(
        rarity, "2026-06-10T03:00", "2026-06-07T12:00", "2026-06-07T03:00"
    )
    assert both == max(night, sunday)


def test_next_period_is_as_usual_as_the_first():
    rarity = fit_date_rarity(business_hours("2026-01-01", 31))
    later = business_hours("2026-02-01", 28, seed=1)
    assert rarity.score(later).max() == rarity.score(business_hours("2026-01-01", 31)).max() == 0
    assert rarity.score(later + 3 * 366 * DAY).min() > 3


def test_range_has_a_margin_of_a_year():
    rarity = fit_date_rarity(DAY * np.arange(31))
    low, high = rarity.low, rarity.high
    near = [low - 365 * DAY, high + 365 * DAY]
    assert rarity.score(np.array(near)).tolist() == [0, 0]
    half, full, far = rarity.score(high + np.array([1.5, 2, 3]) * 366 * DAY)
    assert half == pytest.approx(full / 2)
    assert full == far == pytest.approx(math.log(32))
    assert rarity.score(np.array([low - 2 * 366 * DAY]))[0] == pytest.approx(math.log(32))


def test_margin_of_a_long_range_is_its_length():
    rarity = fit_date_rarity(1.03 * DAY * np.arange(4000))
    length = rarity.high - rarity.low
    near, far = rarity.score(rarity.high + np.array([0.99, 2.01]) * length)
    assert near < 1
    assert far == pytest.approx(math.log(4001))


def test_few_wrong_dates_do_not_move_the_range():
    wrong = seconds("1900-01-01", "2099-12-31")
    rarity = fit_date_rarity(np.concatenate([DATES, wrong]))
    expected = fit_date_rarity(DATES).describe(wrong[0])
    assert expected.startswith("2026-01-")
    assert rarity.describe(wrong[0]) == rarity.describe(wrong[1]) == expected
    assert rarity.score(wrong).min() > 6


def test_short_ranges_teach_no_parts():
    day = fit_date_rarity(np.arange(2000) * 30.0)
    assert (day.hours, day.weekdays, day.days) == ((), (), ())
    weeks = fit_date_rarity(np.arange(2000) * 864.0)
    assert (len(weeks.hours), weeks.weekdays, weeks.days) == (24, (), ())
    month = fit_date_rarity(np.arange(2000) * 1200.0)
    assert (len(month.hours), len(month.weekdays), month.days) == (24, 7, ())
    year = fit_date_rarity(np.arange(2000) * 15_000.0)
    assert (len(year.hours), len(year.weekdays), len(year.days)) == (24, 7, 31)


@pytest.mark.parametrize(
    ("n_rows", "sizes"), [(69, (0, 0, 0)), (70, (0, 7, 0)), (310, (24, 7, 31))]
)
def test_parts_need_ten_rows_for_each_value(n_rows, sizes):
    rarity = fit_date_rarity(np.linspace(0, 500 * DAY, n_rows))
    assert (len(rarity.hours), len(rarity.weekdays), len(rarity.days)) == sizes


def test_parts_count_all_rows(rarity):
    assert (
        sum(rarity.hours) == sum(rarity.weekdays) == sum(rarity.days) == rarity.n_rows == len(DATES)
    )
    assert rarity.weekdays[5:] == (0, 0)  # Monday is first
    assert sum(rarity.hours[8:18]) == len(DATES)


@pytest.mark.parametrize("dates", [[], [np.nan], [np.nan] * 500])
def test_column_without_dates_learns_nothing(dates):
    assert fit_date_rarity(np.array(dates)) is None


def test_missing_dates_have_rarity_zero(rarity):
    assert rarity.score(np.array([np.nan, np.nan])).tolist() == [0, 0]
    assert rarity.score(np.array([])).shape == (0,)


def test_missing_dates_do_not_count_at_fit(rarity):
    holed = np.concatenate([[np.nan], DATES, [np.nan] * 50])
    assert fit_date_rarity(holed) == rarity


def test_one_row_makes_dates_hardly_rare():
    rarity = fit_date_rarity(seconds("2026-01-01"))
    assert rarity.score(np.array([YEAR_1, YEAR_9999])).max() == pytest.approx(math.log(2))
    assert score_of(rarity, "2026-01-01", "2026-12-31") == [0, 0]


@pytest.mark.parametrize(
    "dates",
    [
        np.array([YEAR_1, YEAR_1 - DAY, YEAR_9999, YEAR_9999 + DAY]),
        np.array([-1e12, 1e12, 9.2e18, -9.2e18]),
        np.array([-0.0, 1e-6, -1e-6, 0.999999]),
        np.random.default_rng(0).uniform(-9.2e18, 9.2e18, 1000),
        np.random.default_rng(0).uniform(-1e13, 1e13, 1000),
    ],
    ids=["years 1 and 9999", "beyond", "microseconds", "random", "random years"],
)
def test_extreme_dates_have_finite_rarities(rarity, dates):
    for fitted in (rarity, fit_date_rarity(np.repeat(dates, 200))):
        scores = fitted.score(dates)
        assert np.isfinite(scores).all()
        assert 0 <= scores.min() <= scores.max() <= math.log(fitted.n_rows + 1)


def test_dates_before_1970_have_their_own_parts():
    nights = np.arange("1950-01-01", "1970-01-01", dtype="datetime64[D]").astype("datetime64[s]")
    rarity = fit_date_rarity(nights.astype(np.float64) + 23.5 * 3600)
    usual, rare = score_of(rarity, "1960-05-04T23:59:59.999999", "1960-05-05T00:00")
    assert usual < 0.2
    assert rare > 5


@pytest.mark.parametrize("unit", ["s", "far"])
def test_fitted_state_can_be_loaded(rarity, unit):
    dates = DATES if unit == "s" else np.linspace(8.5e18, 9.2e18, 500)
    fitted = fit_date_rarity(dates)
    loaded = msgspec.json.decode(msgspec.json.encode(fitted), type=DateRarity)
    assert loaded == fitted
    np.testing.assert_array_equal(loaded.score(dates), fitted.score(dates))
    assert " to " in loaded.describe(YEAR_1)
    for date in (YEAR_1, *dates[:50], *dates[:50] + DAY / 2):
        assert loaded.describe(date) == fitted.describe(date)


def test_row_alone_scores_like_in_table(rarity):
    rng = np.random.default_rng(0)
    dates = np.concatenate([DATES, rng.uniform(-1e10, 1e10, 300), [np.nan, YEAR_1, YEAR_9999]])
    scores = rarity.score(dates)
    alone = [rarity.score(dates[row : row + 1])[0] for row in range(len(dates))]
    np.testing.assert_array_equal(alone, scores)
    order = rng.permutation(len(dates))
    np.testing.assert_array_equal(rarity.score(dates[order]), scores[order])
    assert fit_date_rarity(DATES[rng.permutation(len(DATES))]) == rarity


@pytest.mark.parametrize(
    ("dates", "far", "expected"),
    [
        (["2026-01-01T05:00", "2026-01-01T06:00"], YEAR_1, "2026-01-01 to 2026-01-01"),
        (["2026-01-01", "2026-03-01T06:00"], YEAR_9999, "2026-01-01 to 2026-02-28"),
        (["0001-01-01"], YEAR_9999, "0001-01-01 to 0001-01-01"),
        (["1969-12-31T23:00"], YEAR_9999, "1969-12-31 to 1969-12-31"),
    ],
)
def test_description_of_a_far_date_is_the_range(dates, far, expected):
    rarity = fit_date_rarity(seconds(*dates))
    assert rarity.describe(far) == expected
    assert rarity.describe(rarity.low) == rarity.describe(rarity.high + 365 * DAY) == ""


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2026-06-10T12:00", ""),
        ("2026-06-10T03:00", "another time of day"),
        ("2026-06-07T12:00", "another day of the week"),
        ("2026-06-07T03:00", "another time of day"),  # of equally rare parts the first one
        ("1900-06-06T03:00", "2026-01-01 to 2029-12-31"),
        ("9999-06-09T12:00", "2026-01-01 to 2029-12-31"),
    ],
)
def test_description_is_about_the_rarest_part(date, expected):
    low, high = seconds("2026-01-01T12:00", "2029-12-31T12:00")
    rarity = DateRarity(
        low=low,
        high=high,
        n_rows=6200,
        hours=(0,) * 12 + (6200,) + (0,) * 11,
        weekdays=(1240,) * 5 + (0, 0),
        days=(200,) * 31,
    )
    assert rarity.describe(seconds(date)[0]) == expected
    assert (score_of(rarity, date)[0] > 0) == bool(expected)


def test_description_of_an_unusual_day_of_the_month():
    firsts = np.arange("2000-01", "2030-01", dtype="datetime64[M]").astype("datetime64[s]")
    rarity = fit_date_rarity(firsts.astype(np.float64))
    assert rarity.describe(seconds("2024-02-02")[0]) == "another day of the month"
    assert rarity.describe(seconds("2024-02-01")[0]) == ""


# Hostile states

STATE = {
    "low": 0.0,
    "high": 1e9,
    "n_rows": 500,
    "hours": [20] * 24,
    "weekdays": [70] * 7,
    "days": [16] * 31,
}


@pytest.mark.parametrize(
    "change",
    [
        {"low": 2e9},
        {"low": float("nan")},
        {"high": float("inf")},
        {"low": -1e300},
        {"low": "2026"},
        {"low": None},
        {"n_rows": -1},
        {"n_rows": 2**53 + 1},
        {"hours": [20] * 23},
        {"hours": [20] * 25},
        {"hours": [-1] * 24},
        {"hours": [1.5] * 24},
        {"weekdays": [70] * 6},
        {"days": [16] * 30},
        {"days": [2**60] * 31},
        {"days": [1] * 10**6},
        {"days": None},
        {"extra": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_contradictory_states_are_refused(change):
    msgspec.convert(STATE, DateRarity)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(STATE | change, DateRarity)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hours": [0] * 24}, "1970-01-01 to 2001-09-09"),
        (
            {"hours": [2**53] * 24, "days": [2**53] * 31, "n_rows": 2**53},
            "1970-01-01 to 2001-09-09",
        ),
        # 9999-12-31 is a Friday.
        ({"weekdays": [2**53, 0, 0, 0, 0, 0, 0], "n_rows": 0}, "another day of the week"),
        ({"low": -1e19, "high": 1e19}, ""),
        ({"low": 5e-324, "high": 5e-324, "n_rows": 0}, ""),
        ({"low": 1e19, "high": 1e19}, " to "),
        ({"low": -1e19, "high": -1e19}, " to "),
        ({"hours": [], "weekdays": [], "days": []}, "1970-01-01 to 2001-09-09"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_extreme_states_give_finite_rarities(change, expected):
    rarity = msgspec.convert(STATE | change, DateRarity)
    scores = rarity.score(np.array([0.0, -1e10, YEAR_1, YEAR_9999, 9.2e18, -9.2e18, np.nan]))
    assert np.isfinite(scores).all()
    assert 0 <= scores.min() <= scores.max() < 50
    assert scores[-1] == 0
    found = rarity.describe(YEAR_9999)
    assert expected in found
    assert bool(found) == bool(expected)
