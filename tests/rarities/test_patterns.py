import math
import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from altbi.rarities import _patterns
from altbi.rarities._patterns import (
    MAX_FORMATS,
    MAX_SPELLINGS,
    N_TRAITS,
    TextPatterns,
    fit_text_patterns,
    read_writing,
)

STATES = [a + b for a in "ACDFGHIKLMNOPQ" for b in "AEIOU"]
PHONES = [f"{number:03d}-{number * 7 % 10_000:04d}" for number in range(100, 900)]
NAMES = [
    f"{first} {last}"
    for first in ("Ann", "Bo", "Chris", "Dana", "Elisabeth", "Fred", "Gwen", "Hu")
    for last in ("Ng", "Lee", "Smith", "O'Neil", "Mayer-Lund", "de Vries", "Garcia", "Kim")
]


def make_array(values):
    return pa.array(values, pa.large_string())


def fit(values):
    patterns = fit_text_patterns(make_array(values))
    assert patterns is not None
    return patterns


def score(patterns, *texts):
    return patterns.score(make_array(list(texts))).tolist()


@pytest.fixture(scope="module")
def phones():
    return fit([*PHONES, "123-45a7"])


def test_writing_has_format_and_spelling():
    writing = read_writing("AB-123 new york")
    assert writing.spelling == "AA-999 aaa aaaa"
    assert writing.format == "A-9 a a"
    assert read_writing("one two three four five").format == "a a"


def test_lower_case_code_is_rare():
    patterns = fit(STATES * 30 + ["ca"])
    usual, lower, unseen = score(patterns, "CA", "ca", "zz")
    assert usual == 0
    assert lower > 6
    assert unseen == lower


def test_unit_among_numbers_is_rare():
    numbers = [f"{n / 10:.1f}" for n in range(100, 999)] * 2
    usual, unit, missing = score(fit([*numbers, "12.0 oz"]), "55.5", "12.0 oz", "N/A")
    assert usual == 0
    assert unit > 6
    assert missing > 6


def test_letter_in_phone_number_is_rare(phones):
    usual, letter, short = score(phones, "555-1234", "123-45a7", "555-123")
    assert usual == 0
    assert letter > 5.5
    assert short > 5.5


def test_outer_spaces_are_rare():
    names = NAMES * 20
    patterns = fit([*names, "Ann Smith "])
    usual, trailing, double = score(patterns, "Ann Smith", "Ann Smith ", "Ann  Smith")
    assert usual < 1
    assert trailing > 4
    assert double > 4


def test_unique_names_are_not_rare():
    generator = random.Random(0)
    parts = ["".join(generator.choices("abcdefghij", k=k)) for k in range(2, 12) for _ in range(40)]
    names = [
        " ".join(generator.choice(parts).title() for _ in range(generator.choice([2, 2, 2, 3])))
        for _ in range(3_000)
    ]
    scores = fit(names).score(make_array(names))
    assert scores.max() < 5
    assert np.quantile(scores, 0.99) < 3


def test_rare_category_of_usual_format_scores_zero():
    countries = ["Mexico", "Canada", "France", "Norway", "Sweden", "Greece"] * 500 + ["Poland"]
    assert score(fit(countries), "Poland") == [0]


def test_format_of_several_rare_categories_is_not_rare():
    usual = [f"{letter}aland" for letter in "ABCDEFGHIJKLMNOPQRST"] * 500
    rare = [f"{letter}a-Islands" for letter in "ABCD"] * 10
    assert max(score(fit(usual + rare), "Aa-Islands", "Ea-Islands")) < 3.5


def test_number_with_fewer_digits_is_not_rare():
    numbers = [str(number) for number in range(1, 3_000)]
    assert max(score(fit(numbers), "5", "42", "777", "2999")) < 4


def test_established_values_outweigh_many_rare_ones():
    codes = [f"{n}" for n in range(10_000, 10_040)] * 25
    errors = [f"1{letter}0{n}x" for n, letter in enumerate("abcdefghij" * 3)]
    patterns = fit(codes + errors)
    assert min(score(patterns, *errors)) > 3


def test_long_text_is_rare():
    words = ["abcd", "abcde", "abcdef"] * 100
    patterns = fit(words)
    usual, long = score(patterns, "abcde", "abcdefghijklmnopqrstuvwxyz")
    assert usual == 0
    assert long > 3


def test_missing_values_score_zero(phones):
    assert score(phones, None, "123-45a7", None)[::2] == [0, 0]
    assert phones.score(make_array([None, None])).tolist() == [0, 0]
    assert phones.score(make_array([])).shape == (0,)


@pytest.mark.parametrize("values", [[], [None] * 50, ["one"] * 19])
def test_few_values_fit_nothing(values):
    assert fit_text_patterns(make_array(values)) is None


def test_one_row_equals_row_in_table(phones):
    texts = [*PHONES[:50], "", "ﬁ", "\x00", "x" * 5_000, "N/A", "12", "١٢٣-٤٥٦٧", "日本", "É", None]
    together = score(phones, *texts)
    assert [score(phones, text)[0] for text in texts] == together
    assert score(phones, *texts[::-1]) == together[::-1]
    assert all(math.isfinite(value) and value >= 0 for value in together)


def test_row_order_changes_nothing():
    values = [*PHONES, *NAMES, "12a", "", "日本", "ÀÉ 12"] * 2
    shuffled = random.Random(1).sample(values, len(values))
    assert fit(values) == fit(shuffled)


def test_composed_and_decomposed_accents_are_equal():
    patterns = fit(["né", "Zoë", "abc", "Año"] * 10)
    assert score(patterns, "ne\u0301lu") == score(patterns, "n\u00e9lu")


def test_saved_patterns_score_equally(phones):
    loaded = msgspec.json.decode(msgspec.json.encode(phones), type=TextPatterns)
    assert loaded == phones
    texts = ["123-45a7", "555-1234", "?"]
    assert score(loaded, *texts) == score(phones, *texts)


def test_number_of_formats_is_bounded(monkeypatch):
    numbers = [*(f"{n}" for n in range(300, 700)), *(f"{n}" for n in range(20, 40)), "5000"]
    values = [f"a{separator}{number}" for separator in "-+/:;" for number in numbers]
    unlimited = fit(values)
    monkeypatch.setattr(_patterns, "MAX_FORMATS", 3)
    monkeypatch.setattr(_patterns, "MAX_SPELLINGS", 3)
    limited = fit(values)
    assert len(unlimited.formats) > len(limited.formats) == 3
    assert len(unlimited.spellings) > len(limited.spellings) == 3
    assert (np.array(score(limited, *values)) <= score(unlimited, *values)).all()


def test_free_text_is_saved_small():
    generator = random.Random(2)
    texts = [
        " ".join("x" * generator.randint(1, 9) for _ in range(generator.randint(1, 30)))
        + generator.choice(".!?:;")
        for _ in range(5_000)
    ]
    patterns = fit(texts)
    assert len(patterns.formats) <= MAX_FORMATS
    assert len(patterns.spellings) <= MAX_SPELLINGS
    assert len(msgspec.json.encode(patterns)) < 30_000


def test_descriptions_name_what_is_unusual(phones):
    assert phones.describe("555-1234") == ""
    expected = "no lower-case letter, as in 99.9 % of the values"
    assert phones.describe("123-45a7") == expected
    assert phones.describe("555-123") == "a text like '999-9999', not '999-999'"
    cities = fit(["New York", "Rome"] * 200)
    assert cities.describe("rome") == "no lower-case first letter, as in all of the values"
    expected = "a lower-case letter, as in all of the values"
    assert cities.describe("ROME") == expected
    words = fit(["abcd", "abcde", "abcdef"] * 100)
    assert words.describe("abcdefghijklmnopqrstuvwxyz").startswith("a text like 'aaa")
    names = fit([f"{'a' * (1 + n % 5)} {'b' * (1 + n % 7)}" for n in range(300)])
    assert names.describe("aaa " + "b" * 40) == "a shorter text (44 characters here)"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("having", [0.0] * (N_TRAITS - 1)),
        ("having", [math.nan] * N_TRAITS),
        ("lacking", [-1.0] * N_TRAITS),
        ("lacking", [1e300] * N_TRAITS),
        ("lengths", [0.0] * 3),
        ("shares", [2.0] * N_TRAITS),
        ("unseen", math.inf),
        ("usual", "a" * 65),
        ("formats", [{"signature": "a", "rarity": 1.0, "unseen": 0.0}] * 2),
        ("spellings", [{"signature": "a", "rarity": 1.0}] * 2),
        ("spellings", [{"signature": f"{n}", "rarity": 1.0} for n in range(MAX_SPELLINGS + 1)]),
        ("pattern", "(a+)+"),
    ],
)
def test_hostile_state_is_refused(phones, field, value):
    state = msgspec.to_builtins(phones) | {field: value}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(state, TextPatterns)


def test_high_rarities_of_state_stay_finite(phones):
    state = msgspec.to_builtins(phones)
    state |= {"formats": [{"signature": "a", "rarity": 50.0, "unseen": 50.0}], "spellings": []}
    patterns = msgspec.convert(state, TextPatterns)
    assert score(patterns, "aaaa") == [50]


def test_description_shows_where_long_formats_differ():
    start = "ab " * 12
    values = [f"{start}{letter}-{number}" for letter in "cd" for number in range(100, 140)]
    patterns = fit_text_patterns(pa.array(values, pa.large_string()))

    found = patterns.describe(f"{start}c--123")

    usual, own = found.removeprefix("a text like ").split(", not ")
    assert usual != own
    assert usual.endswith("a-999'")
    assert own.endswith("a--999'")
