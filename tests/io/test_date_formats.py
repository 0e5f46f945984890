"""Dates and times of day in text, in national formats."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.io._date_formats import _MONTH_NAMES, DATE_ORDERS, SHORT_YEAR_ORDERS, DatePattern

NAME_FIRST, DAY_FIRST = "month name, day, year", "day, month name, year"


def parse(pattern, *texts):
    return pattern.parse(pa.array(texts, pa.string())).to_pylist()


@pytest.mark.parametrize(
    ("order", "text", "clock", "value"),
    [
        ("day.month.year", "31.12.2026", "24", (2026, 12, 31)),
        ("day.month.year", "1.2.2026 8:05", "24", (2026, 2, 1, 8, 5)),
        ("day/month/year", "31/12/2026 23:59:59", "24", (2026, 12, 31, 23, 59, 59)),
        ("month/day/year", "12/31/2026, 3:36:07 PM", "12", (2026, 12, 31, 15, 36, 7)),
        ("month/day/year", "12/31/2026 12:00 a.m.", "12", (2026, 12, 31)),
        ("month/day/year", "12/31/2026 12:00\u202fpm", "12", (2026, 12, 31, 12)),
        ("month/day/year", "12/31/2026", "12", (2026, 12, 31)),
        ("day-month-year", "31-12-2026", "24", (2026, 12, 31)),
        ("month-day-year", "12-31-2026", "24", (2026, 12, 31)),
        ("year/month/day", "2026/12/31 10:30:59.25", "24", (2026, 12, 31, 10, 30, 59, 250000)),
        ("year-month-day", "2026-1-5", "24 or hour", (2026, 1, 5)),
        ("year-month-day", "2026-01-05T10", "24 or hour", (2026, 1, 5, 10)),
        ("year.month.day", "2026.12.31", "24", (2026, 12, 31)),
        (DAY_FIRST, "31 Dec 2026", "24", (2026, 12, 31)),
        (DAY_FIRST, "31-DEC-2026", "24", (2026, 12, 31)),
        (DAY_FIRST, "31DEC2026", "24", (2026, 12, 31)),
        (DAY_FIRST, "31. Januari 2026 08:05", "24", (2026, 1, 31, 8, 5)),
        (DAY_FIRST, "3. März 2026", "24", (2026, 3, 3)),
        (DAY_FIRST, "1er août 2026", "24", (2026, 8, 1)),
        (DAY_FIRST, "31 de enero de 2026", "24", (2026, 1, 31)),
        (DAY_FIRST, "1 sept. 2026", "24", (2026, 9, 1)),
        (NAME_FIRST, "Dec 31, 2026", "24", (2026, 12, 31)),
        (NAME_FIRST, "december 31st 2026", "24", (2026, 12, 31)),
        (NAME_FIRST, "Dec. 31, 2026 3:36 PM", "12", (2026, 12, 31, 15, 36)),
    ],
)
def test_dates_are_parsed_by_order(order, text, clock, value):
    pattern = DatePattern(order, clock)

    assert parse(pattern, text, None) == [dt.datetime(*value), None]
    assert pattern.may_parse(text)


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("day.month.year", "31.02.2026"),
        ("day.month.year", "29.02.2026"),
        ("day.month.year", "0.1.2026"),
        ("day.month.year", "1.13.2026"),
        ("day.month.year", "1.0.2026"),
        ("day.month.year", "1.1.26"),
        ("day.month.year", "1.1.2026 24:00"),
        ("day.month.year", "1.1.2026 10:60"),
        ("day.month.year", "1.1.2026 10:10:60"),
        ("day.month.year", "1.1.2026 3 PM"),
        ("day.month.year", "1.1.20260"),
        ("day/month/year", "1.1.2026"),
        (DAY_FIRST, "31 Foo 2026"),
        (DAY_FIRST, "31 juin 2026"),
        (NAME_FIRST, "Smarch 13, 2026"),
    ],
)
def test_dates_that_do_not_exist_are_refused(order, text):
    with pytest.raises(pa.ArrowInvalid):
        parse(DatePattern(order, "24"), text, None)


def test_years_of_two_digits_are_1969_to_2068():
    pattern = DatePattern("day/month/year", "24", 2)

    dates = parse(pattern, "1/1/69", "1/1/99", "1/1/00", "1/1/68")

    assert [date.year for date in dates] == [1969, 1999, 2000, 2068]
    assert parse(DatePattern(DAY_FIRST, "24", 2), "31-Dec-26") == [dt.datetime(2026, 12, 31)]


def test_version_numbers_are_no_dates():
    with pytest.raises(pa.ArrowInvalid):
        parse(DatePattern("day.month.year", "24", 2), "1.10.12")
    assert parse(DatePattern("day.month.year", "24", 2), "01.10.12") == [dt.datetime(2012, 10, 1)]


@pytest.mark.parametrize(
    ("clock", "text", "value"),
    [
        ("24", "15:36", (15, 36)),
        ("24", "0:05:07", (0, 5, 7)),
        ("24", "23:59:59.5", (23, 59, 59, 500000)),
        ("12", "3:36 p.m.", (15, 36)),
        ("12", "3:36AM", (3, 36)),
        ("12", "3 PM", (15,)),
        ("12", "12 am", (0,)),
        ("12", "12:30 PM", (12, 30)),
    ],
)
def test_times_of_day_are_parsed(clock, text, value):
    pattern = DatePattern("", clock)

    assert parse(pattern, text, None) == [dt.time(*value), None]
    assert pattern.may_parse(text)


@pytest.mark.parametrize(
    ("clock", "text"),
    [
        ("24", "24:00"),
        ("24", "2:1"),
        ("24", "3 PM"),
        ("12", "13 PM"),
        ("12", "0 AM"),
        ("12", "3:36"),
    ],
)
def test_times_that_do_not_exist_are_refused(clock, text):
    with pytest.raises(pa.ArrowInvalid):
        parse(DatePattern("", clock), text)


@given(st.dates(), st.sampled_from([order for order in DATE_ORDERS if "name" not in order]))
def test_all_dates_are_parsed(date, order):
    text = order.replace("year", f"{date.year:04}").replace("month", str(date.month))
    text = text.replace("day", str(date.day))

    assert parse(DatePattern(order, "24"), text) == [dt.datetime.combine(date, dt.time())]


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_days_exist_as_in_the_calendar(year, month, day):
    try:
        exists = bool(
            dt.date(year or 400, month, day)
        )  # Python has no year 0, which is a leap year
    except ValueError:
        exists = False

    try:
        DatePattern("day.month.year", "24").parse(pa.array([f"{day}.{month}.{year:04}"]))
        parsed = True
    except pa.ArrowInvalid:
        parsed = False
    assert parsed == exists


def test_names_of_months_are_unique():
    names = " ".join(_MONTH_NAMES).split()

    assert len(_MONTH_NAMES) == 12
    assert len(names) == len(set(names))
    assert all(name == name.lower() and name.isalpha() for name in names)


DATELIKE = st.text(st.sampled_from("0123456789:./- TDecmay,pMn"), max_size=12)


@given(DATELIKE, st.sampled_from([*DATE_ORDERS, ""]), st.sampled_from(["24", "12"]), st.booleans())
def test_quick_check_never_refuses_a_date(text, order, clock, short):
    pattern = DatePattern(order, clock, 2 if short and order in SHORT_YEAR_ORDERS else 4)
    try:
        pattern.parse(pa.array([text]))
    except pa.ArrowInvalid:
        return
    assert pattern.may_parse(text)
