"""Mixed tables: typos, identifiers, dates, missing values and wrong pairs."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from altbi import OutlierDetector

# Texts with more than 32 categories raise a warning about features.
pytestmark = pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")

N_ROWS = 2000
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def make_numbers(rng, n_rows=N_ROWS):
    return pd.DataFrame(
        {
            "share": rng.random(n_rows),
            "size": rng.uniform(10, 20, n_rows),
            "kind": rng.choice(["a", "b", "c"], n_rows),
        }
    )


def fit_score(frame):
    return OutlierDetector(random_state=0).fit(frame).outlier_score(frame)


def compute_ranks(scores):
    """Return the rank of each score; the highest one has rank 0."""
    return np.argsort(np.argsort(-scores, kind="stable"), kind="stable")


def make_names(rng, n_names):
    """Return distinct names of three to five syllables."""
    names = set()
    while len(names) < n_names:
        n = rng.integers(3, 6)
        syllables = zip(
            rng.choice(list("bdfgklmnprstvz"), n), rng.choice(list("aeiou"), n), strict=True
        )
        names.add("".join(a + b for a, b in syllables).title())
    return sorted(names)


def misspell(rng, text, known):
    """Return a text with one letter deleted, inserted or replaced, which is not known."""
    while True:
        i, letter = rng.integers(1, len(text)), rng.choice(LETTERS)
        variants = (
            text[:i] + text[i + 1 :],
            text[:i] + letter + text[i:],
            text[:i] + letter + text[i + 1 :],
        )
        typo = variants[rng.integers(3)]
        if typo not in known:
            known.add(typo)
            return typo


# Items 1 and 8: typos and other categories that occur once


@pytest.mark.parametrize("n_cities", [20, 100])
@pytest.mark.parametrize("error", ["typo", "other text"])
def test_unique_categories_are_among_highest_scores(n_cities, error):
    rng = np.random.default_rng(n_cities)
    names = make_names(rng, n_cities)
    cities, known = rng.choice(names, N_ROWS).astype(object), set(names)
    rows = rng.choice(N_ROWS, 30, replace=False)
    others = make_names(rng, 1000)
    for row in rows:
        cities[row] = misspell(rng, cities[row], known) if error == "typo" else others.pop()
    scores = fit_score(make_numbers(rng).assign(city=cities))
    n_highest = 50 if error == "typo" or n_cities == 20 else 300
    assert (compute_ranks(scores)[rows] < n_highest).sum() >= 27


def test_common_categories_beyond_32_are_usual():
    rng = np.random.default_rng(0)
    names = np.array(make_names(rng, 100))
    frame = make_numbers(rng).assign(city=names[rng.integers(0, 100, N_ROWS)])
    scores = fit_score(frame)
    median = frame.assign(score=scores).groupby("city")["score"].median()
    assert median.max() < np.quantile(scores, 0.9)


# Item 2: identifiers


@cache
def score_without_repeats():
    return fit_score(make_devices(()))


def make_devices(rows, n_times=5):
    """Return a table in which each `n_times` of the rows have the same identifier."""
    frame = make_numbers(np.random.default_rng(0))
    numbers = np.arange(N_ROWS) + 50_000
    for first in range(0, len(rows), n_times):
        numbers[rows[first : first + n_times]] = numbers[rows[first]]
    return frame.assign(device=[f"DV-{number:08}" for number in numbers])


def test_device_used_five_times_is_raised():
    rows = np.array([7, 900, 1200, 1500, 1900])
    ranks = compute_ranks(fit_score(make_devices(rows)))[rows]
    before = compute_ranks(score_without_repeats())[rows]
    assert (ranks < before).all()
    assert ranks.max() < 100
    assert np.median(before) > 400


def test_common_repeats_are_not_at_the_top():
    rng = np.random.default_rng(1)
    rows = rng.choice(N_ROWS, N_ROWS // 2, replace=False)
    is_repeated = np.isin(np.arange(N_ROWS), rows)
    ranks = compute_ranks(fit_score(make_devices(rows, n_times=2)))
    assert 0.3 < is_repeated[ranks < 100].mean() < 0.75


def test_rare_repeats_are_raised():
    rows = np.array([3, 1700, 40, 800])
    ranks = compute_ranks(fit_score(make_devices(rows, n_times=2)))
    assert ranks[rows].max() < 100


@pytest.mark.parametrize("kind", ["number", "text"])
def test_values_of_unique_ids_do_not_count(kind):
    rng = np.random.default_rng(2)
    frame = make_numbers(rng)
    ids = rng.permutation(N_ROWS) + 100_000
    ids = ids if kind == "number" else np.array([f"K{number}" for number in ids], dtype=object)
    detector = OutlierDetector(random_state=0).fit(frame.assign(id=ids))
    scores = detector.outlier_score(frame.assign(id=ids))
    new = ids + 7_000_000 if kind == "number" else "N" + ids
    np.testing.assert_array_equal(detector.model_.score_table(frame.assign(id=new))[0], scores)
    np.testing.assert_array_equal(fit_score(frame.assign(id=ids[::-1])), scores)
    # The column changes the initial weights of the network, and so the reference rows.
    assert np.corrcoef(compute_ranks(fit_score(frame)), compute_ranks(scores))[0, 1] > 0.95


# Item 3: dates


def make_month(start, n_days, seed, n_rows=N_ROWS):
    rng = np.random.default_rng(seed)
    minutes = rng.integers(0, n_days, n_rows) * 1440 + rng.integers(480, 1080, n_rows)
    days = np.datetime64(start) + minutes.astype("timedelta64[m]")
    return make_numbers(rng, n_rows).assign(day=days, due=days + np.timedelta64(36, "h"))


@pytest.fixture(scope="module")
def january():
    return OutlierDetector(random_state=0).fit(make_month("2026-01-01", 31, seed=0))


@pytest.mark.parametrize(("start", "n_days"), [("2026-02-01", 28), ("2026-10-01", 31)])
def test_other_months_are_flagged_like_january(january, start, n_days):
    flagged = [
        (january.predict(frame) == -1).mean()
        for frame in (make_month("2026-01-01", 31, seed=0), make_month(start, n_days, seed=1))
    ]
    assert flagged[0] > 0
    assert 1 / 1.5 < flagged[1] / flagged[0] < 1.5


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("day", "1900-01-01 12:00"),
        ("day", "2099-01-01 12:00"),
        ("day", "2026-01-10 03:00"),
        ("due", "2026-01-01 12:00"),
    ],
    ids=["1900", "future", "at night", "due before the day"],
)
def test_wrong_dates_are_raised(january, column, value):
    frame = make_month("2026-01-05", 20, seed=3, n_rows=200)
    scores = january.outlier_score(frame)
    wrong = january.outlier_score(frame.assign(**{column: np.datetime64(value)}))
    assert np.median(wrong - scores) > 2
    assert (wrong > np.quantile(scores, 0.95)).mean() > 0.9


# Item 7: missing values and wrong pairs


def test_missing_value_counts_where_it_is_rare():
    rng = np.random.default_rng(3)
    frame = make_numbers(rng).assign(often=rng.random(N_ROWS), rarely=rng.random(N_ROWS))
    frame["often"] = frame["often"].mask(rng.random(N_ROWS) < 0.4)
    frame["text"] = np.where(rng.random(N_ROWS) < 0.4, None, rng.choice(["x", "y"], N_ROWS))
    frame["code"] = rng.choice(["x", "y"], N_ROWS)
    detector = OutlierDetector(random_state=0).fit(frame)
    scores = detector.outlier_score(frame)

    def compute_change(name):
        """Return how much scores change if the present values of a column are missing."""
        is_present = frame[name].notna().to_numpy()
        holed = frame.assign(**{name: None})
        return np.median((detector.outlier_score(holed) - scores)[is_present])

    for name in ("share", "rarely", "kind", "code"):
        assert compute_change(name) > 3
    for name in ("often", "text"):
        assert compute_change(name) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("has_numbers", [True, False])
def test_wrong_pairs_are_among_highest_scores(has_numbers):
    rng = np.random.default_rng(4)
    n_rows, n_cities = 5000, 30
    city = rng.integers(0, n_cities, n_rows)
    rows = rng.choice(n_rows, 30, replace=False)
    postcode = city.copy()
    postcode[rows] = (city[rows] + rng.integers(1, n_cities, 30)) % n_cities
    frame = make_numbers(rng, n_rows) if has_numbers else make_numbers(rng, n_rows)[["kind"]]
    frame["city"] = [f"City {number}" for number in city]
    frame["postcode"] = [f"P-{10_000 + 37 * number}" for number in postcode]
    ranks = compute_ranks(fit_score(frame))
    assert (ranks[rows] < 60).sum() >= 27
