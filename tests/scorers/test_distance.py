"""Remembered rows: distances to the nearest, a row itself left out, and which rows are chosen."""

import pickle

import numpy as np
import pytest
import torch

from altbi.scorers._distance import DistanceScorer, _distinct, fit_distance_scorer, compute_whitening

RNG = np.random.default_rng(0)
UNCERTAIN = np.zeros(200, dtype=bool)


def rows_of(shape, generator=RNG):
    return generator.normal(size=shape).astype(np.float32)


def squares_of(memory, row):
    apart = memory.rows.astype(np.float64) - row
    if memory.whitening is not None:
        apart = apart @ memory.whitening.astype(np.float64)
    return (apart**2).sum(axis=1)


def by_hand(memory, row):
    """Take the nearest row of each lot, one exact match left out, and average the squares."""
    squares = squares_of(memory, row)
    equal = np.flatnonzero((memory.rows == row).all(axis=1))
    squares[equal[:1]] = np.inf
    numbers = np.arange(len(squares))
    groups = [numbers[lot :: memory.counted] for lot in range(memory.counted)]
    nearest = [lot[squares[lot].argmin()] for lot in groups]
    return squares[nearest].mean(), nearest


def is_near(memory, row):
    """Whether a remembered row is so near that single precision would not tell how near."""
    size = row.astype(np.float64)
    if memory.whitening is not None:
        size = size @ memory.whitening.astype(np.float64)
    return squares_of(memory, row).min() < 0.0099 * (1 + (size**2).sum())


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize(("n_reference", "width"), [(2, 1), (11, 3), (300, 7), (1000, 40)])
def test_scores_and_neighbours_are_those_of_plain_arithmetic(n_reference, width, n_groups):
    memory = DistanceScorer(rows_of((n_reference, width)), n_groups)
    rows = np.vstack([rows_of((70, width)), memory.rows[:70], np.full((1, width), 20)])
    rows = rows.astype(np.float32)

    scores, contributions = memory.score(rows), memory.contributions(rows)

    for place, row in enumerate(rows):
        score, numbers = by_hand(memory, row)
        assert scores[place] == pytest.approx(score, rel=1e-9 if is_near(memory, row) else 1e-5)
        apart = memory.rows[numbers].astype(np.float64) - row
        np.testing.assert_allclose(contributions[place], (apart**2).mean(axis=0))


@pytest.mark.parametrize("n_equal", [1, 2])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_of_rows_that_hardly_differ_one_equal_one_is_left_out(n_groups, n_equal):
    row = np.full(4, 1000, dtype=np.float32)
    most_similar = np.nextafter(row, np.float32(2000))
    memory = DistanceScorer(np.vstack([most_similar, *[row] * n_equal, rows_of((8, 4))]), n_groups)

    score = memory.score(row[None])[0]

    assert score == pytest.approx(by_hand(memory, row)[0], rel=1e-9)
    assert score != pytest.approx(by_hand(memory, most_similar)[0], rel=1e-9)


@pytest.mark.parametrize("whitens", [False, True])
@pytest.mark.parametrize("distance", [1e-3, 1e-2, 0.1, 1, 10, 100])
def test_a_small_distance_far_out_is_not_lost_in_rounding(distance, whitens):
    """All rows are 20 deviations off in 30 columns, and some a thousandth away from the others."""
    generator = np.random.default_rng(1)
    remembered = 20 + 0.5 * rows_of((500, 30), generator)
    rows = remembered[:400] + distance / 30 * rows_of((400, 30), generator)
    whitening = rows_of((30, 30), generator) if whitens else None
    memory = DistanceScorer(remembered, n_groups=5, whitening=whitening)

    scores, contributions = memory.score(rows), memory.contributions(rows)

    exact = np.array([by_hand(memory, row)[0] for row in rows])
    np.testing.assert_allclose(scores, exact, rtol=1e-4)
    np.testing.assert_allclose(contributions.sum(axis=1), scores, rtol=1e-4)
    near = np.array([is_near(memory, row) for row in rows])
    assert near.all() == (distance <= 10)
    np.testing.assert_allclose(scores[near], exact[near], rtol=1e-7 if whitens else 1e-9)


def test_four_digits_are_sure_where_a_few_remembered_rows_lie_far_out():
    """The worst that was found: most of the remembered rows are elsewhere, and the rows beside."""
    generator = np.random.default_rng(0)
    remembered = rows_of((400, 100), generator)
    remembered[:8] = 20 + 2 * rows_of((8, 100), generator)
    memory = DistanceScorer(remembered, n_groups=1)
    rows = 20 + 2 * rows_of((300, 100), generator)

    exact = np.array([by_hand(memory, row)[0] for row in rows])

    np.testing.assert_allclose(memory.score(rows), exact, rtol=1e-4)


def test_rows_beyond_single_precision_are_measured_all_the_same():
    remembered = rows_of((20, 3))
    remembered[1::2] *= np.float32(1e20)  # one of the two lots
    memory = DistanceScorer(remembered, n_groups=2)
    rows = rows_of((50, 3)) * 3

    exact = [by_hand(memory, row)[0] for row in rows]

    np.testing.assert_allclose(memory.score(rows), exact, rtol=1e-6)


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_single_precision_is_tried_where_most_remembered_rows_are_apart(share, monkeypatch):
    generator = np.random.default_rng(3)
    apart = 10 * rows_of((round(300 * share), 4), generator)
    pairs = 10 + np.repeat(rows_of((150, 4), generator), 2, axis=0)[: 300 - len(apart)]
    rows = np.vstack([apart, pairs + 0.01 * rows_of(pairs.shape, generator)])
    # The first two are apart, whatever comes among the rows that are looked at.
    order = [0, 1, *(2 + generator.permutation(len(rows) - 2))]
    memory, used = DistanceScorer(rows[order], n_groups=3), []
    watch_lows(memory, used, monkeypatch)

    memory.score(rows_of((10, 4), generator))

    assert (torch.float32 in [precision for precision, _ in used]) == (share > 0.5)


def watch_lows(memory, used, monkeypatch):
    group_minima = type(memory._groups).group_minima

    def watched(groups, some, precision):
        used.append((precision, len(some)))
        return group_minima(groups, some, precision)

    monkeypatch.setattr(type(memory._groups), "lows", watched)


@pytest.mark.parametrize("spread", [1, 0.01])
def test_which_precision_a_row_is_measured_in_is_up_to_the_row_and_the_memory(spread, monkeypatch):
    """Rows near to and far from remembered ones, and with gaps: in any company the same."""
    generator = np.random.default_rng(2)
    memory = DistanceScorer(3 + spread * rows_of((300, 8), generator), n_groups=3)
    rows = 3 + spread * rows_of((900, 8), generator)
    rows[::3] = memory.rows + 1e-4
    rows[1::6, 2] = np.nan
    used = []
    watch_lows(memory, used, monkeypatch)
    scores = memory.score(rows)

    # Where the remembered rows are near each other, single precision is not tried at all.
    doubles = sum(count for precision, count in used if precision == torch.float64)
    singles = sum(count for precision, count in used if precision == torch.float32)
    if spread < 1:
        assert (singles, doubles) == (0, 900)
    else:  # 300 beside a remembered row, 150 with gaps, and a few by chance
        assert singles == 900
        assert 450 <= doubles < 500
    order = generator.permutation(900)
    assert np.array_equal(memory.score(rows[order]), scores[order])
    assert all(memory.score(rows[n : n + 1])[0] == scores[n] for n in range(0, 900, 37))
    assert np.isfinite(scores).all()


def test_rows_that_are_alike_are_the_nearest_of_all_with_weights():
    memory = DistanceScorer(rows_of((40, 3)), n_groups=3)
    rows = np.vstack([rows_of((5, 3)), memory.rows[:5]])
    weights = RNG.random(rows.shape).astype(np.float32)

    found = memory.most_similar(rows, weights, 7)

    for place, row in enumerate(rows):
        squares = (weights[place] * (memory.rows.astype(np.float64) - row) ** 2).sum(axis=1)
        squares[(memory.rows == row).all(axis=1)] = np.inf
        assert found[place].tolist() == squares.argsort()[:7].tolist()
    assert memory.most_similar(rows, weights, 100).shape == (10, 39)


def test_every_lot_has_two_rows():
    counts = [DistanceScorer(rows_of((n, 2)), n_groups=3).counted for n in (2, 3, 4, 5, 6, 100)]

    assert counts == [1, 1, 2, 2, 3, 3]


def test_of_a_remembered_row_one_equal_is_left_out_and_no_more():
    twins = np.array([[0, 0], [0, 0], [3, 0]], dtype=np.float32)
    memory = DistanceScorer(twins, n_groups=1)

    assert memory.score(twins).tolist() == [0, 0, 9]
    # A row beside a remembered one is not that row, however near it is.
    beside = np.array([[3, 1e-5], [3, 1e-7], [-0.0, 0.0]], dtype=np.float32)
    assert memory.score(beside)[0] == pytest.approx(1e-10, rel=0.01)
    assert memory.score(beside)[1:].tolist() == [0, 0]
    assert memory.most_similar(twins, np.ones_like(twins), 1).tolist() == [[1], [1], [0]]


def test_minus_zero_is_zero():
    memory = DistanceScorer(np.array([[-0.0, 1], [5, 5]], dtype=np.float32), n_groups=1)

    assert memory.score(np.array([[0.0, 1]], dtype=np.float32)).tolist() == [41]


@pytest.mark.parametrize("width", [1, 3, 10, 33, 129])
@pytest.mark.parametrize("n_reference", [30, 999])
def test_a_score_does_not_depend_on_company_place_or_threads(width, n_reference):
    memory = DistanceScorer(rows_of((n_reference, width)) * 5, n_groups=3)
    rows = rows_of((1200, width)) * 5
    scores = memory.score(rows)
    order = RNG.permutation(len(rows))

    assert np.array_equal(memory.score(rows[order]), scores[order])
    assert np.array_equal(memory.score(rows[700:703]), scores[700:703])
    assert memory.score(rows[511:512])[0] == scores[511]
    assert np.array_equal(memory.contributions(rows[5:6])[0], memory.contributions(rows)[5])
    before = torch.get_num_threads()
    torch.set_num_threads(3 - min(before, 2))
    try:
        assert np.array_equal(memory.score(rows), scores)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["gaps", "whitened", "whitened and near"])
def test_products_that_are_not_exact_do_not_depend_on_company_either(kind):
    """Weights of gaps and whitened rows have more digits than a float32: every rounding shows."""
    generator = np.random.default_rng(0)
    mixing = None if kind == "gaps" else rows_of((6, 6), generator)
    centre, spread = (5, 0.1) if kind == "whitened and near" else (0, 1)
    memory = DistanceScorer(centre + spread * rows_of((300, 6), generator), 3, mixing)
    rows = centre + spread * rows_of((1024, 6), generator)
    if kind == "gaps":
        rows[np.arange(1024), np.arange(1024) % 6] = np.nan
    scores = memory.score(rows)
    order = generator.permutation(1024)

    assert np.array_equal(memory.score(rows[order]), scores[order])
    alone = [memory.score(rows[n : n + 1])[0] for n in range(1024)]
    assert np.array_equal(alone, scores)
    if kind != "whitened":
        assert np.array_equal(memory.contributions(rows[order]), memory.contributions(rows)[order])


def test_distances_for_explanations_are_measured_on_one_thread(monkeypatch):
    memory, rows, seen = DistanceScorer(rows_of((30, 4)), 3), rows_of((5, 4)), []
    weighed = type(memory._groups)._weighed

    def watched(*arguments):
        seen.append(torch.get_num_threads())
        return weighed(*arguments)

    monkeypatch.setattr(type(memory._groups), "_weighed", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        memory.contributions(rows)
        memory.most_similar(rows, np.ones_like(rows), 2)
        assert (seen, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(before)


def test_no_rows_have_no_scores():
    assert DistanceScorer(rows_of((30, 4)), 3).score(rows_of((0, 4))).shape == (0,)


def test_equal_rows_are_measured_once():
    rows = RNG.integers(0, 3, size=(5000, 4)).astype(np.float32)

    distinct, places = _distinct(rows)

    assert len(distinct) == 81
    assert np.array_equal(distinct[places], rows)


def test_rows_that_are_taken_for_equal_by_accident_are_not(monkeypatch):
    """With equal factors the cells of a row may change places, and its key stays."""

    class Factors:
        def integers(self, *_, size, dtype):
            return np.zeros(size, dtype)

    monkeypatch.setattr(np.random, "default_rng", lambda _: Factors())
    rows = np.array([[1, 2], [2, 1], [1, 2]], dtype=np.float32)

    distinct, places = _distinct(rows)

    assert np.array_equal(distinct[places], rows)


def select_columns(rows, losses, certain=UNCERTAIN, **changes):
    settings = {"keep": 0.5, "n_reference": 1000, "n_groups": 3, "seed": 0} | changes
    return fit_distance_scorer(rows, losses, certain=certain, **settings)


def are_in(rows, memory):
    texts = {row.tobytes() for row in memory.rows}
    return np.array([row.tobytes() in texts for row in rows])


def test_the_least_odd_rows_are_remembered_and_then_those_near_them():
    rows = rows_of((200, 2))
    rows[:20] *= 100  # far from all others
    losses = np.zeros(200)
    losses[:20] = np.linspace(-1, 1, 20)  # half of them look harmless at first

    memory = select_columns(rows, losses, keep=0.8)

    assert len(memory.rows) == 160
    assert not are_in(rows, memory)[:20].any()
    assert memory.n_groups == 3


def test_what_is_given_decides_the_first_round():
    """A dense cluster is near to itself: only its oddness tells that it is not normal."""
    rows = rows_of((200, 2))
    rows[:60] = rows[:60] * 0.1 + 8
    losses = np.where(np.arange(200) < 60, 1.0, 0.0)

    memory = select_columns(rows, losses, keep=0.6)

    assert not are_in(rows, memory)[:60].any()
    assert are_in(rows[:60], select_columns(rows, -losses, keep=0.6)).any()


def test_among_equally_odd_rows_the_order_of_the_table_does_not_decide():
    """The first rows of a table sorted by its labels must not be all that is remembered."""
    rows = rows_of((200, 1))

    found = np.flatnonzero(are_in(rows, select_columns(rows, np.zeros(200), n_reference=50)))

    assert 60 < np.median(found) < 140


def test_the_memory_is_bounded_seeded_and_large_enough():
    rows, losses = rows_of((200, 2)), RNG.random(200)

    small = select_columns(rows, losses, n_reference=20)
    assert len(small.rows) == 20
    assert np.array_equal(select_columns(rows, losses, n_reference=20).rows, small.rows)
    assert not np.array_equal(select_columns(rows, losses, n_reference=20, seed=1).rows, small.rows)
    # A share of nearly nothing still leaves two rows for every lot.
    assert len(select_columns(rows, losses, keep=0.001).rows) == 6
    two = select_columns(rows[:2], losses[:2], UNCERTAIN[:2])
    assert len(two.rows) == 2


def test_rows_known_to_be_normal_are_always_kept():
    rows = rows_of((200, 2))
    certain = np.arange(200) < 150
    rows[:150] += 50

    memory = select_columns(rows, np.where(certain, 9.0, 0.0), certain)

    assert are_in(rows, memory)[:150].all()
    assert len(memory.rows) == 150


def test_gaps_are_passed_over_and_the_rest_counts_for_them():
    memory = DistanceScorer(rows_of((51, 4)), n_groups=3)
    rows = rows_of((70, 4))
    rows[5:40, 1] = np.nan
    rows[7, 3] = np.nan

    scores, contributions = memory.score(rows), memory.contributions(rows)

    for place in (0, 5, 7):
        seen = ~np.isnan(rows[place])
        squares = ((memory.rows[:, seen].astype(np.float64) - rows[place, seen]) ** 2).sum(axis=1)
        groups = squares.reshape(-1, 3)
        expected = groups.min(axis=0).mean() * 4 / seen.sum()
        assert scores[place] == pytest.approx(expected, rel=1e-6)
        assert contributions[place].sum() == pytest.approx(expected, rel=1e-6)
        assert not contributions[place, ~seen].any()
    # Rows with gaps do not change those without.
    assert np.array_equal(memory.score(rows[~np.isnan(rows).any(axis=1)])[:5], scores[:5])
    assert np.array_equal(memory.score(rows[5:6]), scores[5:6])
    assert np.isfinite(memory.score(np.full((1, 4), np.nan, dtype=np.float32))).all()


def test_gaps_are_remembered_as_the_middle():
    rows = rows_of((20, 2))
    rows[:, 0] = np.nan

    memory = select_columns(rows, np.zeros(20), UNCERTAIN[:20])

    assert not memory.rows[:, 0].any()


def test_rows_with_enough_equals_score_nothing_at_all():
    """Not even what is left of rounding, in which a threshold would find groups."""
    rows = np.repeat(rows_of((4, 12)) * 7, 30, axis=0)

    assert not DistanceScorer(rows, n_groups=3).score(rows).any()


def test_known_rows_are_drawn_first():
    rows = rows_of((200, 2))
    certain = np.arange(200) >= 190
    rows[190:] += 50

    memory = select_columns(rows, np.zeros(200), certain, n_reference=20)

    assert are_in(rows, memory)[190:].all()
    assert len(memory.rows) == 20


def test_a_remembered_row_that_has_lost_a_cell_is_not_its_own_neighbour():
    memory = DistanceScorer(rows_of((30, 3)), n_groups=2)
    row = memory.rows[4:5].copy()
    row[0, 1] = np.nan

    seen = [0, 2]
    squares = ((memory.rows[:, seen].astype(np.float64) - row[0, seen]) ** 2).sum(axis=1)
    squares[4] = np.inf
    expected = np.mean([squares[0::2].min(), squares[1::2].min()]) * 3 / 2
    assert memory.score(row)[0] == pytest.approx(expected, rel=1e-6)


def whitened_memory(n_reference=40, width=6, n_groups=3):
    """Remember rows; whitened by a matrix that no test below would pass without."""
    mixing = np.random.default_rng(9).normal(size=(width, width)).astype(np.float32)
    return DistanceScorer(rows_of((n_reference, width)), n_groups, mixing)


def whitened_squares(memory, rows):
    """All squared distances, by plain arithmetic."""
    matrix = memory.whitening.astype(np.float64)
    seen, query = memory.rows @ matrix, np.nan_to_num(rows) @ matrix
    return ((query[:, None] - seen) ** 2).sum(axis=2)


def test_distances_are_measured_after_whitening():
    memory, rows = whitened_memory(), rows_of((50, 6))

    squares = whitened_squares(memory, rows)

    expected = np.mean([squares[:, lot::3].min(axis=1) for lot in range(3)], axis=0)
    np.testing.assert_allclose(memory.score(rows), expected, rtol=1e-6)


def test_whitened_a_row_is_not_its_own_neighbour_nor_when_it_has_lost_a_cell():
    memory = whitened_memory(n_groups=2)
    rows = memory.rows[[4, 4]].copy()
    rows[1, 2] = np.nan

    squares = whitened_squares(memory, rows)
    squares[:, 4] = np.inf

    expected = np.mean([squares[:, lot::2].min(axis=1) for lot in range(2)], axis=0)
    np.testing.assert_allclose(memory.score(rows), expected, rtol=1e-6)


def test_whitened_scores_do_not_depend_on_company():
    memory, rows = whitened_memory(width=130), rows_of((700, 130))
    rows[5, 3] = np.nan
    rows[6] = memory.rows[0]

    scores = memory.score(rows)

    assert np.array_equal(memory.score(rows[::-1])[::-1], scores)
    assert all(memory.score(rows[n : n + 1])[0] == scores[n] for n in (0, 5, 6, 333, 699))


def test_whitened_parts_add_up():
    memory, rows = whitened_memory(), rows_of((30, 6))
    rows[3, 2] = np.nan

    np.testing.assert_allclose(memory.contributions(rows).sum(axis=1), memory.score(rows), rtol=1e-6)


def test_rows_that_are_alike_are_found_column_by_column_whatever_the_whitening():
    memory, rows = whitened_memory(), rows_of((20, 6))
    weights = np.ones_like(rows)

    plain = DistanceScorer(memory.rows, memory.n_groups).most_similar(rows, weights, 4)

    assert np.array_equal(memory.most_similar(rows, weights, 4), plain)


def test_whitening_makes_what_varies_together_independent():
    """All columns say the same; a row in which they disagree is odd, though each cell is usual."""
    generator = np.random.default_rng(0)
    shared = 3 * generator.normal(size=(200, 1))
    rows = (shared + 0.1 * generator.normal(size=(200, 4))).astype(np.float32)
    rows[0] = [1.5, -1.5, 1.5, -1.5]
    rows[1] = 9.9  # further along than any other, in all columns alike

    plain, whitened = (
        select_columns(rows, np.zeros(200), keep=0.9, whiten=whiten) for whiten in (False, True)
    )

    assert plain.score(rows).argmax() == 1
    assert whitened.score(rows).argmax() == 0
    spreads = [
        np.linalg.eigvalsh(np.cov(seen.T)).max() for seen in (rows, rows @ whitened.whitening)
    ]
    assert spreads[0] > 30
    assert spreads[1] < 1.5


def test_rows_that_do_not_vary_can_be_whitened():
    memory = select_columns(np.ones((200, 3), dtype=np.float32), np.zeros(200), whiten=True)

    assert np.isfinite(memory.whitening).all()
    assert memory.score(np.array([[1, 1, 2]], dtype=np.float32))[0] > 0


def test_a_whitened_memory_survives_pickling():
    memory, rows = whitened_memory(), rows_of((9, 6))

    assert np.array_equal(pickle.loads(pickle.dumps(memory)).score(rows), memory.score(rows))


def test_fewer_rows_than_units_can_be_whitened():
    rows = rows_of((40, 90))

    spread = np.abs(rows @ compute_whitening(rows)).max()

    assert spread < 20


def test_whitening_is_about_deviations_from_the_mean():
    rows = rows_of((200, 3))

    np.testing.assert_allclose(compute_whitening(rows), compute_whitening(rows + 50), rtol=1e-3, atol=1e-4)


def test_rows_that_are_not_kept_and_gaps_leave_the_whitening_alone():
    rows = rows_of((200, 3))
    losses = np.zeros(200)
    losses[:50] = 1
    wild, gappy = rows.copy(), rows.copy()
    wild[:50] *= 1000
    gappy[60, 1] = np.nan

    plain, others, gaps = (
        select_columns(some, losses, keep=0.75, whiten=True).whitening for some in (rows, wild, gappy)
    )

    assert np.array_equal(plain, others)
    np.testing.assert_allclose(gaps, plain, rtol=0.2, atol=0.1)
