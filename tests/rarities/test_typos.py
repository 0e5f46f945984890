import copy
import math
import pickle
import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from altbi.rarities import _typos
from altbi.rarities._typos import MAX_LENGTH, N_STEPS, Misspellings, fit_misspellings

CITIES = ["birmingham", "montgomery", "huntsville", "mobile", "tuscaloosa", "hoover", "auburn"]


def make_array(values):
    return pa.array(values, pa.large_string())


def fit(values):
    typos = fit_misspellings(make_array(values))
    assert typos is not None
    return typos


def score(typos, *texts):
    return typos.score(make_array(list(texts))).tolist()


@pytest.fixture
def cities():
    return fit(CITIES * 50 + ["birminghxm", "york"])


@pytest.mark.parametrize(
    "typo", ["birminghxm", "birmigham", "birmiingham", "brimingham", "Birmingham ", "BIRMINGHAM"]
)
def test_typo_is_rare_and_named(cities, typo):
    assert score(cities, typo)[0] > 2
    assert cities.suggest([typo]) == [("birmingham", 50)]


def test_other_words_score_zero(cities):
    texts = ["birmingham", "york", "gadsden", "burlington", ""]
    assert score(cities, *texts) == [0] * 5
    assert cities.suggest(texts) == [None] * 5


def test_rarity_grows_with_frequency():
    few, many = (fit(["mobile"] * n + ["hoover"] * 10) for n in (20, 2_000))
    assert score(few, "mobole")[0] + 2 < score(many, "mobole")[0]


def test_rarity_falls_with_own_count():
    rare, repeated = (fit(CITIES * 50 + ["mobole"] * n) for n in (1, 4))
    difference = score(rare, "mobole")[0] - score(repeated, "mobole")[0]
    assert 0.7 * math.log(4) < difference <= math.log(4)


def test_comparable_categories_are_no_typos():
    typos = fit(CITIES * 50 + ["mobilo"] * 10)
    assert score(typos, "mobilo") == [0]


@pytest.mark.parametrize(
    ("categories", "rare"),
    [
        ([f"A{n}" for n in range(1, 9)], "A9"),
        ([str(year) for year in range(2010, 2020)], "2020"),
        ([f"item {n}" for n in range(10, 40)], "item 41"),
        ([f"type {letter}" for letter in "abcdef"], "type g"),
        (["type a", "type b"], "type c"),
        (["Sedan - Liability", "Sedan - Collision", "Sport - Collision"], "Sport - Liability"),
    ],
)
def test_members_of_families_are_no_typos(categories, rare):
    values = [category for n, category in enumerate(categories) for _ in range(100 + 40 * n)]
    assert score(fit([*values, rare]), rare) == [0]


def test_letters_and_digits_count_separately():
    codes = [f"{word}-{n}" for word in ("scip", "heart", "pneu") for n in range(8)]
    other_digit, other_letter = score(fit(codes * 40), "scip-9", "scjp-3")
    assert other_digit == 0
    assert other_letter > 2


def test_replaced_word_is_no_typo():
    styles = ["American Pale Wheat Ale", "German Pilsner", "Belgian Witbier", "Scottish Stout"] * 50
    other_word, letter = score(fit(styles), "American Dark Wheat Ale", "American Pole Wheat Ale")
    assert other_word == 0
    assert letter > 2


def test_repeated_typos_do_not_hide_each_other():
    typos = fit(["yes"] * 800 + ["no"] * 100 + ["yxs"] * 11 + ["yex"] * 9 + ["xes"] * 5)
    assert min(score(typos, "yxs", "yex", "xes")) > 2


def test_frequent_typos_do_not_hide_others():
    frequent = ["intensive care"] * 990 + ["intensxve care"] * 8 + ["intensive cxre"] * 5
    typos = fit([*frequent, "intxnsivx care"])
    assert min(score(typos, "intensxve care", "intensive cxre", "intxnsivx care")) > 2


def test_short_texts_may_differ_in_case_only():
    typos = fit(["CA", "NY", "TX"] * 100)
    lower, other = score(typos, "ca", "cx")
    assert lower > 3
    assert other == 0


def test_missing_values_score_zero(cities):
    assert score(cities, None, "birminghxm", None)[::2] == [0, 0]
    assert cities.score(make_array([])).shape == (0,)


@pytest.mark.parametrize("values", [[], [None] * 9, ["a"] * 4, ["x" * (MAX_LENGTH + 1)] * 9])
def test_no_frequent_category_fits_nothing(values):
    assert fit_misspellings(make_array(values)) is None


def test_one_row_equals_row_in_table(cities):
    generator = random.Random(0)
    texts = ["".join(generator.sample(city, len(city))) for city in CITIES * 3]
    texts += [city[:-1] for city in CITIES] + [
        "",
        " ",
        "\x00",
        "ﬁ",
        "日本",
        "x" * 9_999,
        "\u0130" * 256,
    ]
    together = score(cities, *texts)
    for other in (fit(CITIES * 50 + ["birminghxm", "york"]) for _ in range(2)):
        assert [score(other, text)[0] for text in texts] == together
        assert score(other, *texts[::-1]) == together[::-1]
    assert all(math.isfinite(value) and value >= 0 for value in together)
    assert max(together) > 2


def test_full_cache_changes_nothing(cities, monkeypatch):
    texts = [city[1:] for city in CITIES]
    expected = score(cities, *texts)
    monkeypatch.setattr(_typos, "_MAX_CACHED", 2)
    limited = fit(CITIES * 50 + ["birminghxm", "york"])
    assert score(limited, *texts) == expected
    assert [score(limited, text)[0] for text in texts] == expected
    assert len(limited._cache) <= 2


def test_row_order_changes_nothing():
    values = CITIES * 7 + [city[1:] for city in CITIES] * 2 + ["A", "B"] * 9
    assert fit(values) == fit(random.Random(1).sample(values, len(values)))


def test_saved_typos_score_equally(cities):
    expected = score(cities, "mobil", "hover")
    decoded = msgspec.json.decode(msgspec.json.encode(cities), type=Misspellings)
    for loaded in (decoded, pickle.loads(pickle.dumps(cities)), copy.deepcopy(cities)):
        assert loaded == cities
        assert score(loaded, "mobil", "hover") == expected


def test_number_of_categories_is_bounded(monkeypatch):
    monkeypatch.setattr(_typos, "MAX_CATEGORIES", 4)
    monkeypatch.setattr(_typos, "MAX_REPEATED", 2)
    values = [city for n, city in enumerate(CITIES) for _ in range(5 + n)]
    typos = fit(values)
    assert typos.categories == tuple(CITIES[:2:-1])
    assert typos.repeated == ("huntsville", "montgomery")


def test_number_of_characters_is_bounded(monkeypatch):
    monkeypatch.setattr(_typos, "MAX_CATEGORY_CHARACTERS", 16)
    assert fit(["mobile"] * 9 + ["birmingham"] * 8 + ["hoover"] * 7).categories == (
        "mobile",
        "birmingham",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("categories", []),
        ("categories", CITIES[:-1]),
        ("categories", CITIES[:-1] + CITIES[:1]),
        ("categories", ["x" * (MAX_LENGTH + 1), *CITIES[1:]]),
        ("counts", [0] * 7),
        ("counts", [1, 2, 3, 4, 5, 6, 7]),
        ("repeated", ["york"]),
        ("crowding_same_digits", [0.0] * (N_STEPS - 1)),
        ("crowding_same_digits", [math.nan] * N_STEPS),
        ("crowding_other_digits", [1.5] * N_STEPS),
        ("pattern", "(a+)+"),
    ],
)
def test_hostile_state_is_refused(cities, field, value):
    state = msgspec.to_builtins(cities) | {field: value}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(state, Misspellings)


def test_large_counts_of_state_stay_finite(cities):
    state = msgspec.to_builtins(cities) | {"counts": [2**53] * 7}
    typos = msgspec.convert(state, Misspellings)
    assert np.isfinite(score(typos, "mobil", "mobile")).all()


def test_many_distinct_values_are_matched():
    generator = random.Random(3)
    words = ["".join(generator.choices("abcdefghijklmnop", k=12)) for _ in range(300)]
    typos = fit(words * 10)
    rare = [word[:5] + "z" + word[6:] for word in words]
    assert typos.suggest(rare) == [(word, 10) for word in words]
