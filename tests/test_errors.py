"""Texts of errors: quoted values, lists of names, and the length of messages."""

import numpy as np
import pyarrow as pa
import pytest

import altbi
from altbi import IWAE, OutlierDetector, Schedule
from altbi.errors import (
    MAX_MESSAGE,
    AltbiError,
    TableError,
    describe_cause,
    list_names,
    quote,
    shorten_message,
)
from altbi.model import build_settings
from small_tables import fast_detector

LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it's", '"it\'s"'),
        ("\x1b\n\ud800", r"'\x1b\n\ud800'"),
        (np.str_("a"), "'a'"),
        (b"\xff", r"b'\xff'"),
        (1.5, "1.5"),
        (None, "None"),
        (["a" * 40], f"['{'a' * 40}']"),
        (["a"] * 1000, "['a', 'a', 'a', 'a', 'a', 'a', …]"),
        (10**5000, "an integer of 16610 bits"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_quoted_like_repr(value, shown):
    assert quote(value) == shown


class Long:
    def __repr__(self):
        return "\x1b" * 1000


@pytest.mark.parametrize("limit", [3, 7, 60])
@pytest.mark.parametrize(
    "value", ["a" * 70, "\x1b" * 70, "'\"" * 40, [LONG], {LONG: LONG}, Long()], ids=range(6)
)
def test_long_values_are_cut_to_the_limit(value, limit):
    shown = quote(value, limit)

    assert len(shown) <= limit
    assert "…" in shown
    assert shown.isprintable()


def test_escapes_are_cut_as_a_whole():
    assert [quote("\x1b" * 70, limit) for limit in (10, 11)] == [r"'\x1b…'", r"'\x1b\x1b…'"]


def test_text_of_the_limit_is_complete():
    assert (quote("abc", 5), quote("abcd", 5)) == ("'abc'", "'ab…'")


def test_lists_of_names_are_short():
    assert list_names([]) == ""
    assert list_names(["a", "b\n"]) == r"'a', 'b\n'"
    assert list_names([LONG] * 100_000).endswith("…', … (100000 in all)")
    assert len(list_names([LONG] * 100_000)) < 250
    assert list_names([str(number) for number in range(11)]).endswith("'9', … (11 in all)")


def test_long_messages_keep_start_and_end():
    message = f"t.csv: {LONG} is wrong. Fix it."

    text = str(TableError(message))

    assert len(text) == MAX_MESSAGE
    assert text.startswith("t.csv: xxx")
    assert text.endswith("xxx is wrong. Fix it.")
    assert shorten_message(message) == text
    assert str(TableError("short")) == "short"


HOSTILE_CALLS = {
    "column of infinity": lambda: fast_detector().fit(pa.table({LONG: [1.0, 2.0, np.inf]})),
    "unsupported column": lambda: fast_detector().fit(pa.table({LONG: [[1]] * 9})),
    "type of column": lambda: fast_detector().fit(pa.table({"x": [{LONG: 1}] * 9})),
    "mixed objects": lambda: fast_detector().fit(np.array([[1, LONG], [2, LONG]], dtype=object)),
    "parameter": lambda: OutlierDetector(contamination=LONG).settings(),
    "list as parameter": lambda: OutlierDetector(n_reference=[LONG] * 1000).settings(),
    "huge integer": lambda: OutlierDetector(max_rows=-(10**5000)).settings(),
    "name of a parameter": lambda: IWAE().set_params(**{LONG: 1}),
    "schedule": lambda: OutlierDetector(schedule=LONG).settings(),
    "backbone": lambda: OutlierDetector(backbone=LONG).settings(),
    "hidden": lambda: OutlierDetector(backbone=IWAE(hidden=(LONG,))).settings(),
    "huge share": lambda: OutlierDetector(contamination=10**5000).settings(),
    "schedule value": lambda: OutlierDetector(schedule=Schedule(n0=LONG)).settings(),
    "privacy": lambda: build_settings("ALTBI", {"privacy": LONG}),
    "option": lambda: altbi.detect(pa.table({"x": [1.0] * 9}), scores_format=LONG),
    "detector": lambda: altbi.detect(pa.table({"x": [1.0] * 9}), detector=LONG),
}


@pytest.mark.parametrize("call", HOSTILE_CALLS.values(), ids=HOSTILE_CALLS)
def test_hostile_values_have_short_messages(call):
    with pytest.raises(AltbiError) as caught:
        call()

    assert len(caught.value.args[0]) <= MAX_MESSAGE


def test_other_names_are_listed_briefly():
    names = [f"{number}{LONG}" for number in range(200)]
    detector = fast_detector().fit(pa.table({name: np.arange(9.0) for name in names}))

    with pytest.raises(AltbiError) as caught:
        detector.model_.score(pa.table({f"y{name}": np.arange(9.0) for name in names}))

    assert len(caught.value.args[0]) <= 800
    assert str(caught.value).endswith("(200 in all), in this order.")


def test_error_descriptions_are_one_short_line():
    assert describe_cause(ValueError("first.\nsecond")) == "first"
    assert describe_cause(pa.ArrowInvalid("what", "where")) == "what"
    assert describe_cause(ValueError()) == "ValueError"
    assert describe_cause(ValueError("\x1b" + "x" * 999)).startswith("\\x1bxxx")
    assert len(describe_cause(ValueError("x" * 999))) == 200
    with pytest.raises(UnicodeEncodeError) as caught:
        "\ud800".encode()
    assert "surrogates not allowed" in describe_cause(caught.value)
    assert describe_cause(KeyError("a")) == "missing 'a'"
    assert describe_cause("Invalid: text.\nLINE 1") == "Invalid: text"
