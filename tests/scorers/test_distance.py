import pickle
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from altbi._tiles import TILE_ROWS, is_position_independent
from altbi.scorers import _reference_groups
from altbi.scorers._distance import (
    _MAX_BLOCK_VALUES,
    DistanceScorer,
    _average_groups,
    _choose_block_rows,
    _find_distinct_rows,
    compute_whitening,
    fit_distance_scorer,
)

RNG = np.random.default_rng(0)
UNLABELLED = np.zeros(200, dtype=bool)


def sample(shape, generator=RNG):
    return generator.normal(size=shape).astype(np.float32)


def compute_squares(scorer, row):
    difference = scorer.rows.astype(np.float64) - row
    if scorer.whitening is not None:
        difference = difference @ scorer.whitening.astype(np.float64)
    return (difference**2).sum(axis=1)


def score_plainly(scorer, row):
    """Return the mean squared distance to the nearest row of each group, and these rows."""
    squares = compute_squares(scorer, row)
    equal = np.flatnonzero((scorer.rows == row).all(axis=1))
    squares[equal[:1]] = np.inf
    numbers = np.arange(len(squares))
    groups = [numbers[group :: scorer.n_groups_used] for group in range(scorer.n_groups_used)]
    nearest = [group[squares[group].argmin()] for group in groups]
    return squares[nearest].mean(), nearest


def is_near(scorer, row):
    """Return whether a distance is too small for single precision."""
    size = row.astype(np.float64)
    if scorer.whitening is not None:
        center = scorer.rows.mean(axis=0, dtype=np.float64)
        size = (size - center) @ scorer.whitening.astype(np.float64)
    return compute_squares(scorer, row).min() < 0.0099 * (1 + (size**2).sum())


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize(("n_reference", "width"), [(2, 1), (11, 3), (300, 7), (1000, 40)])
def test_scores_equal_plain_arithmetic(n_reference, width, n_groups):
    scorer = DistanceScorer(sample((n_reference, width)), n_groups)
    rows = np.vstack([sample((70, width)), scorer.rows[:70], np.full((1, width), 20)])
    rows = rows.astype(np.float32)

    scores, contributions = scorer.score(rows), scorer.contributions(rows)

    for index, row in enumerate(rows):
        score, numbers = score_plainly(scorer, row)
        assert scores[index] == pytest.approx(score, rel=1e-9 if is_near(scorer, row) else 1e-5)
        difference = scorer.rows[numbers].astype(np.float64) - row
        np.testing.assert_allclose(contributions[index], (difference**2).mean(axis=0))


@pytest.mark.parametrize("n_equal", [1, 2])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_one_equal_reference_row_is_excluded(n_groups, n_equal):
    row = np.full(4, 1000, dtype=np.float32)
    most_similar = np.nextafter(row, np.float32(2000))
    scorer = DistanceScorer(np.vstack([most_similar, *[row] * n_equal, sample((8, 4))]), n_groups)

    score = scorer.score(row[None])[0]

    assert score == pytest.approx(score_plainly(scorer, row)[0], rel=1e-9)
    assert score != pytest.approx(score_plainly(scorer, most_similar)[0], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("whitens", [False, True])
@pytest.mark.parametrize("distance", [1e-3, 1e-2, 0.1, 1, 10, 100])
def test_small_distances_far_out_are_exact(distance, whitens):
    """All values are near 20 in 30 columns, and distances are as small as 0.001."""
    generator = np.random.default_rng(1)
    reference = 20 + 0.5 * sample((500, 30), generator)
    rows = reference[:400] + distance / 30 * sample((400, 30), generator)
    whitening = sample((30, 30), generator) if whitens else None
    scorer = DistanceScorer(reference, n_groups=5, whitening=whitening)

    scores, contributions = scorer.score(rows), scorer.contributions(rows)

    exact = np.array([score_plainly(scorer, row)[0] for row in rows])
    np.testing.assert_allclose(scores, exact, rtol=1e-4)
    np.testing.assert_allclose(contributions.sum(axis=1), scores, rtol=1e-4)
    near = np.array([is_near(scorer, row) for row in rows])
    # With a whitening, norms are those of centered rows.
    assert near.all() == (distance <= (0.1 if whitens else 10))
    np.testing.assert_allclose(scores[near], exact[near], rtol=1e-7 if whitens else 1e-9)


def test_four_digits_are_correct_far_out():
    """The worst case found: scored rows are near a few reference rows far from all others."""
    generator = np.random.default_rng(0)
    reference = sample((400, 100), generator)
    reference[:8] = 20 + 2 * sample((8, 100), generator)
    scorer = DistanceScorer(reference, n_groups=1)
    rows = 20 + 2 * sample((300, 100), generator)

    exact = np.array([score_plainly(scorer, row)[0] for row in rows])

    np.testing.assert_allclose(scorer.score(rows), exact, rtol=1e-4)


def test_distances_beyond_single_precision_are_correct():
    reference = sample((20, 3))
    reference[1::2] *= np.float32(1e20)  # one of the two groups
    scorer = DistanceScorer(reference, n_groups=2)
    rows = sample((50, 3)) * 3

    exact = [score_plainly(scorer, row)[0] for row in rows]

    np.testing.assert_allclose(scorer.score(rows), exact, rtol=1e-6)


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_single_precision_needs_distant_reference_rows(share, monkeypatch):
    generator = np.random.default_rng(3)
    difference = 10 * sample((round(300 * share), 4), generator)
    pairs = 10 + np.repeat(sample((150, 4), generator), 2, axis=0)[: 300 - len(difference)]
    rows = np.vstack([difference, pairs + 0.01 * sample(pairs.shape, generator)])
    # The first two rows are always distant ones.
    order = [0, 1, *(2 + generator.permutation(len(rows) - 2))]
    scorer, used = DistanceScorer(rows[order], n_groups=3), []
    record_precisions(scorer, used, monkeypatch)

    scorer.score(sample((10, 4), generator))

    assert (np.float32 in [precision for precision, _ in used]) == (share > 0.5)


def record_precisions(scorer, used, monkeypatch):
    group_minima = type(scorer._groups).compute_group_minima

    def recording(groups, some, precision):
        used.append((precision, len(some)))
        return group_minima(groups, some, precision)

    monkeypatch.setattr(type(scorer._groups), "compute_group_minima", recording)


@pytest.mark.parametrize("spread", [1, 0.01])
def test_precision_depends_on_row_and_scorer_only(spread, monkeypatch):
    """Rows are near to and far from reference rows, and have missing values."""
    generator = np.random.default_rng(2)
    scorer = DistanceScorer(3 + spread * sample((300, 8), generator), n_groups=3)
    rows = 3 + spread * sample((900, 8), generator)
    rows[::3] = scorer.rows + 1e-4
    rows[1::6, 2] = np.nan
    used = []
    record_precisions(scorer, used, monkeypatch)
    scores = scorer.score(rows)

    # Rows with missing values need neither. Single precision is not used if reference rows are near
    # each other.
    doubles = sum(count for precision, count in used if precision == np.float64)
    singles = sum(count for precision, count in used if precision == np.float32)
    if spread < 1:
        assert (singles, doubles) == (0, 750)
    else:  # 300 near a reference row, and a few others
        assert singles == 750
        assert 300 <= doubles < 350
    order = generator.permutation(900)
    assert np.array_equal(scorer.score(rows[order]), scores[order])
    assert all(scorer.score(rows[n : n + 1])[0] == scores[n] for n in range(0, 900, 37))
    assert np.isfinite(scores).all()


def test_most_similar_uses_weights():
    scorer = DistanceScorer(sample((40, 3)), n_groups=3)
    rows = np.vstack([sample((5, 3)), scorer.rows[:5]])
    weights = RNG.random(rows.shape).astype(np.float32)

    found = scorer.most_similar(rows, weights, 7)

    for index, row in enumerate(rows):
        squares = (weights[index] * (scorer.rows.astype(np.float64) - row) ** 2).sum(axis=1)
        squares[(scorer.rows == row).all(axis=1)] = np.inf
        assert found[index].tolist() == squares.argsort()[:7].tolist()
    assert scorer.most_similar(rows, weights, 100).shape == (10, 39)


def test_every_group_has_two_rows():
    counts = [
        DistanceScorer(sample((n, 2)), n_groups=3).n_groups_used for n in (2, 3, 4, 5, 6, 100)
    ]

    assert counts == [1, 1, 2, 2, 3, 3]


def test_only_one_equal_reference_row_is_excluded():
    twins = np.array([[0, 0], [0, 0], [3, 0]], dtype=np.float32)
    scorer = DistanceScorer(twins, n_groups=1)

    assert scorer.score(twins).tolist() == [0, 0, 9]
    # A row that nearly equals a reference row is another row.
    beside = np.array([[3, 1e-5], [3, 1e-7], [-0.0, 0.0]], dtype=np.float32)
    assert scorer.score(beside)[0] == pytest.approx(1e-10, rel=0.01)
    assert scorer.score(beside)[1:].tolist() == [0, 0]
    assert scorer.most_similar(twins, np.ones_like(twins), 1).tolist() == [[1], [1], [0]]


def test_minus_zero_equals_zero():
    scorer = DistanceScorer(np.array([[-0.0, 1], [5, 5]], dtype=np.float32), n_groups=1)

    assert scorer.score(np.array([[0.0, 1]], dtype=np.float32)).tolist() == [41]


@pytest.mark.parametrize("width", [1, 3, 10, 33, 129])
@pytest.mark.parametrize("n_reference", [30, 999])
def test_score_does_not_depend_on_other_rows(width, n_reference):
    scorer = DistanceScorer(sample((n_reference, width)) * 5, n_groups=3)
    rows = sample((1200, width)) * 5
    scores = scorer.score(rows)
    order = RNG.permutation(len(rows))

    assert np.array_equal(scorer.score(rows[order]), scores[order])
    assert np.array_equal(scorer.score(rows[700:703]), scores[700:703])
    assert scorer.score(rows[511:512])[0] == scores[511]
    assert np.array_equal(scorer.contributions(rows[5:6])[0], scorer.contributions(rows)[5])
    for limit in (1, 2):
        with threadpool_limits(limit, "blas"):
            assert np.array_equal(scorer.score(rows), scores)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["missing", "whitened", "whitened and near"])
def test_rounding_does_not_depend_on_other_rows(kind):
    """Weights and whitened rows have more digits than float32, so rounding matters."""
    generator = np.random.default_rng(0)
    mixing = None if kind == "missing" else sample((6, 6), generator)
    centre, spread = (5, 0.1) if kind == "whitened and near" else (0, 1)
    scorer = DistanceScorer(centre + spread * sample((300, 6), generator), 3, mixing)
    rows = centre + spread * sample((1024, 6), generator)
    if kind == "missing":
        rows[np.arange(1024), np.arange(1024) % 6] = np.nan
    scores = scorer.score(rows)
    order = generator.permutation(1024)

    assert np.array_equal(scorer.score(rows[order]), scores[order])
    alone = [scorer.score(rows[n : n + 1])[0] for n in range(1024)]
    assert np.array_equal(alone, scores)
    if kind != "whitened":
        assert np.array_equal(scorer.contributions(rows[order]), scorer.contributions(rows)[order])


def count_blas_threads():
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_contributions_are_single_threaded(monkeypatch):
    scorer, rows, seen = DistanceScorer(sample((30, 4)), 3), sample((5, 4)), []
    compute = type(scorer._groups)._compute_distances

    def recording(*arguments):
        seen.append(count_blas_threads())
        return compute(*arguments)

    monkeypatch.setattr(type(scorer._groups), "_compute_distances", recording)
    with threadpool_limits(2, "blas"):
        scorer.contributions(rows)
        scorer.most_similar(rows, np.ones_like(rows), 2)
        assert count_blas_threads() == {2}
    assert seen == [{1}, {1}]


def test_other_blas_libraries_use_double_precision(monkeypatch):
    """Single precision is used only if its rounding does not depend on a row's position."""
    monkeypatch.setattr(_reference_groups, "is_position_independent", lambda *_: False)
    scorer, used = DistanceScorer(sample((30, 4)), 3), []
    record_precisions(scorer, used, monkeypatch)

    scorer.score(sample((5, 4)))

    assert used == [(np.float64, 5)]


def test_whitening_must_be_position_independent(monkeypatch):
    def is_independent(n_outputs, n_inputs, dtype):
        return (n_outputs, n_inputs) != (4, 4) and is_position_independent(
            n_outputs, n_inputs, dtype
        )

    monkeypatch.setattr(_reference_groups, "is_position_independent", is_independent)
    matrices = None, np.eye(4, dtype=np.float32)
    scorers, used = [DistanceScorer(sample((60, 4)) * 9, 3, matrix) for matrix in matrices], []
    record_precisions(scorers[0], used, monkeypatch)

    for scorer in scorers:
        scorer.score(np.full((5, 4), 1e4, dtype=np.float32))

    assert used == [(np.float32, 5), (np.float64, 5)]


@pytest.mark.parametrize(("n_distinct", "has_many"), [(100, False), (90, False), (89, True)])
def test_many_duplicates_are_noticed(n_distinct, has_many):
    rows = np.arange(100, dtype=np.float32)[:, None] % n_distinct

    assert DistanceScorer(rows, 3)._groups.has_many_duplicates == has_many


@pytest.mark.parametrize("n_rows", [1, 10**8])
@pytest.mark.parametrize("n_features", [1, 40, 10**7])
def test_blocks_have_a_limited_size(n_rows, n_features):
    size = _choose_block_rows(n_rows, n_features, 1000)

    assert size % TILE_ROWS == 0
    assert TILE_ROWS <= size <= max(_MAX_BLOCK_VALUES // n_features, TILE_ROWS)


def test_mean_of_groups_does_not_depend_on_shape():
    squares = RNG.random((37, 50))
    mean = _average_groups(squares)

    assert [_average_groups(squares[:, [n]])[0] for n in range(50)] == mean.tolist()
    assert np.allclose(mean, squares.mean(axis=0), rtol=1e-14)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_whitened_distances_far_from_zero_are_right(precision, monkeypatch):
    """Values are 1e8 plus some multiples of 8, the precision of float32 there."""
    generator, used = np.random.default_rng(0), []
    reference, rows = (
        np.float32(1e8) + 8 * (size * sample((count, 6), generator)).round()
        for count, size in ((300, 20), (100, 60))
    )
    whitening = np.eye(6, dtype=np.float32) + sample((6, 6), generator) / 10
    scorer = DistanceScorer(reference, n_groups=3, whitening=whitening)
    if precision == np.float64:
        monkeypatch.setattr(_reference_groups, "is_position_independent", lambda *_: False)
    record_precisions(scorer, used, monkeypatch)

    scores = scorer.score(rows)

    assert used[0] == (precision, 100)
    exact = [score_plainly(scorer, row)[0] for row in rows]
    np.testing.assert_allclose(scores, exact, rtol=1e-5)
    np.testing.assert_allclose(scorer.contributions(rows).sum(axis=1), exact, rtol=1e-9)


def test_missing_values_of_other_rows_are_filled():
    """Only a row that may equal a reference row keeps its missing values."""
    scorer = DistanceScorer(sample((20, 3)), n_groups=2, whitening=np.eye(3, dtype=np.float32))
    rows = scorer.rows[:3].copy()
    rows[:, 2] = np.nan
    rows[1, 0] += 1
    rows[2, :] = np.nan

    filled = scorer._groups.fill_missing_values(rows)

    assert np.isnan(filled[:, 2]).tolist() == [True, False, True]
    assert filled[1].tolist() == [*rows[1, :2], 0]


def test_columns_with_many_values_are_compared_first():
    values = np.arange(12)
    rows = np.column_stack([values // 6, values, values // 3]).astype(np.float32)

    groups = DistanceScorer(rows, n_groups=2)._groups

    assert groups._columns_by_distinct_values.tolist() == [1, 2, 0]


def test_overflow_raises_no_warning():
    scorer = DistanceScorer(sample((300, 3)), n_groups=3)

    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        scores = scorer.score(np.full((2000, 3), 3e38, dtype=np.float32))

    np.testing.assert_allclose(scores, 2.7e77, rtol=1e-6)


@pytest.mark.parametrize("n_features", [1, 7, 8, 40, 400])
@pytest.mark.parametrize("n_reference", [2, 15, 1000])
def test_score_does_not_depend_on_position(n_features, n_reference):
    scorer = DistanceScorer(sample((n_reference, n_features)), n_groups=5)
    row = sample((1, n_features)) * 2

    scores = scorer.score(np.repeat(row, 700, axis=0))

    assert len(np.unique(scores)) == 1
    rows = sample((700, n_features))
    rows[431] = row
    assert scorer.score(rows)[431] == scorer.score(row)[0] == scores[0]


def test_empty_input_has_no_scores():
    assert DistanceScorer(sample((30, 4)), 3).score(sample((0, 4))).shape == (0,)


def test_distinct_rows_are_found():
    rows = RNG.integers(0, 3, size=(5000, 4)).astype(np.float32)

    distinct, indices = _find_distinct_rows(rows)

    assert len(distinct) == 81
    assert np.array_equal(distinct[indices], rows)


def test_hash_collisions_are_detected(monkeypatch):
    """With equal factors, rows with permuted values have the same hash."""

    class Factors:
        def integers(self, *_, size, dtype):
            return np.zeros(size, dtype)

    monkeypatch.setattr(np.random, "default_rng", lambda _: Factors())
    rows = np.array([[1, 2], [2, 1], [1, 2]], dtype=np.float32)

    distinct, indices = _find_distinct_rows(rows)

    assert np.array_equal(distinct[indices], rows)


def fit_scorer(rows, losses, is_inlier=UNLABELLED, **changes):
    settings = {"keep": 0.5, "n_reference": 1000, "n_groups": 3, "seed": 0} | changes
    return fit_distance_scorer(rows, losses, is_inlier=is_inlier, **settings)[0]


def are_in(rows, scorer):
    texts = {row.tobytes() for row in scorer.rows}
    return np.array([row.tobytes() in texts for row in rows])


def test_distant_rows_are_removed_in_second_round():
    rows = sample((200, 2))
    rows[:20] *= 100  # far from all others
    losses = np.zeros(200)
    losses[:20] = np.linspace(-1, 1, 20)  # half of them have small losses

    scorer = fit_scorer(rows, losses, keep=0.8)

    assert len(scorer.rows) == 160
    assert not are_in(rows, scorer)[:20].any()
    assert scorer.n_groups == 3


def test_losses_decide_the_first_round():
    """Rows of a dense cluster are near each other; only their losses are large."""
    rows = sample((200, 2))
    rows[:60] = rows[:60] * 0.1 + 8
    losses = np.where(np.arange(200) < 60, 1.0, 0.0)

    scorer = fit_scorer(rows, losses, keep=0.6)

    assert not are_in(rows, scorer)[:60].any()
    assert are_in(rows[:60], fit_scorer(rows, -losses, keep=0.6)).any()


def test_ties_are_broken_at_random():
    rows = sample((200, 1))

    found = np.flatnonzero(are_in(rows, fit_scorer(rows, np.zeros(200), n_reference=50)))

    assert 60 < np.median(found) < 140


def test_number_of_reference_rows_is_limited():
    rows, losses = sample((200, 2)), RNG.random(200)

    small = fit_scorer(rows, losses, n_reference=20)
    assert len(small.rows) == 20
    assert np.array_equal(fit_scorer(rows, losses, n_reference=20).rows, small.rows)
    assert not np.array_equal(fit_scorer(rows, losses, n_reference=20, seed=1).rows, small.rows)
    # There are two rows even if keep is tiny.
    assert len(fit_scorer(rows, losses, keep=0.001).rows) == 2
    two = fit_scorer(rows[:2], losses[:2], UNLABELLED[:2])
    assert len(two.rows) == 2


@pytest.mark.parametrize(("n_rows", "expected"), [(2, 1), (20, 2), (29, 2), (30, 3), (200, 3)])
def test_groups_of_a_fit_have_five_rows(n_rows, expected):
    scorer = fit_scorer(sample((n_rows, 2)), np.zeros(n_rows), UNLABELLED[:n_rows])
    assert scorer.n_groups == scorer.n_groups_used == expected


def test_labelled_inliers_are_always_kept():
    rows = sample((200, 2))
    is_inlier = np.arange(200) < 150
    rows[:150] += 50

    scorer = fit_scorer(rows, np.where(is_inlier, 9.0, 0.0), is_inlier)

    assert are_in(rows, scorer)[:150].all()
    assert len(scorer.rows) == 150


def test_missing_values_are_weighted_out():
    scorer = DistanceScorer(sample((51, 4)), n_groups=3)
    rows = sample((70, 4))
    rows[5:40, 1] = np.nan
    rows[7, 3] = np.nan

    scores, contributions = scorer.score(rows), scorer.contributions(rows)

    for index in (0, 5, 7):
        seen = ~np.isnan(rows[index])
        squares = ((scorer.rows[:, seen].astype(np.float64) - rows[index, seen]) ** 2).sum(axis=1)
        groups = squares.reshape(-1, 3)
        expected = groups.min(axis=0).mean() * 4 / seen.sum()
        assert scores[index] == pytest.approx(expected, rel=1e-6)
        assert contributions[index].sum() == pytest.approx(expected, rel=1e-6)
        assert not contributions[index, ~seen].any()
    # Rows with missing values do not change the scores of others.
    assert np.array_equal(scorer.score(rows[~np.isnan(rows).any(axis=1)])[:5], scores[:5])
    assert np.array_equal(scorer.score(rows[5:6]), scores[5:6])
    assert np.isfinite(scorer.score(np.full((1, 4), np.nan, dtype=np.float32))).all()


def test_missing_reference_values_become_zero():
    rows = sample((20, 2))
    rows[:, 0] = np.nan

    scorer = fit_scorer(rows, np.zeros(20), UNLABELLED[:20])

    assert not scorer.rows[:, 0].any()


def test_rows_with_enough_copies_score_zero():
    """Rounding errors would mislead the threshold."""
    rows = np.repeat(sample((4, 12)) * 7, 30, axis=0)

    assert not DistanceScorer(rows, n_groups=3).score(rows).any()


def test_labelled_inliers_are_sampled_first():
    rows = sample((200, 2))
    is_inlier = np.arange(200) >= 190
    rows[190:] += 50

    scorer = fit_scorer(rows, np.zeros(200), is_inlier, n_reference=20)

    assert are_in(rows, scorer)[190:].all()
    assert len(scorer.rows) == 20


def test_incomplete_reference_row_excludes_itself():
    scorer = DistanceScorer(sample((30, 3)), n_groups=2)
    row = scorer.rows[4:5].copy()
    row[0, 1] = np.nan

    seen = [0, 2]
    squares = ((scorer.rows[:, seen].astype(np.float64) - row[0, seen]) ** 2).sum(axis=1)
    squares[4] = np.inf
    expected = np.mean([squares[0::2].min(), squares[1::2].min()]) * 3 / 2
    assert scorer.score(row)[0] == pytest.approx(expected, rel=1e-6)


def build_whitened(n_reference=40, width=6, n_groups=3):
    """Return a scorer with a random whitening matrix."""
    mixing = np.random.default_rng(9).normal(size=(width, width)).astype(np.float32)
    return DistanceScorer(sample((n_reference, width)), n_groups, mixing)


def whitened_squares(scorer, rows):
    """Return all squared distances, by plain arithmetic."""
    matrix = scorer.whitening.astype(np.float64)
    seen, query = scorer.rows @ matrix, np.nan_to_num(rows) @ matrix
    return ((query[:, None] - seen) ** 2).sum(axis=2)


def test_distances_are_whitened():
    scorer, rows = build_whitened(), sample((50, 6))

    squares = whitened_squares(scorer, rows)

    expected = np.mean([squares[:, group::3].min(axis=1) for group in range(3)], axis=0)
    np.testing.assert_allclose(scorer.score(rows), expected, rtol=1e-6)


def test_whitened_row_excludes_itself():
    scorer = build_whitened(n_groups=2)
    rows = scorer.rows[[4, 4]].copy()
    rows[1, 2] = np.nan

    squares = whitened_squares(scorer, rows)
    squares[:, 4] = np.inf

    expected = np.mean([squares[:, group::2].min(axis=1) for group in range(2)], axis=0)
    np.testing.assert_allclose(scorer.score(rows), expected, rtol=1e-6)


def test_whitened_scores_do_not_depend_on_others():
    scorer, rows = build_whitened(width=130), sample((700, 130))
    rows[5, 3] = np.nan
    rows[6] = scorer.rows[0]

    scores = scorer.score(rows)

    assert np.array_equal(scorer.score(rows[::-1])[::-1], scores)
    assert all(scorer.score(rows[n : n + 1])[0] == scores[n] for n in (0, 5, 6, 333, 699))


def test_whitened_contributions_add_up():
    scorer, rows = build_whitened(), sample((30, 6))
    rows[3, 2] = np.nan

    np.testing.assert_allclose(
        scorer.contributions(rows).sum(axis=1), scorer.score(rows), rtol=1e-6
    )


def test_most_similar_ignores_whitening():
    scorer, rows = build_whitened(), sample((20, 6))
    weights = np.ones_like(rows)

    plain = DistanceScorer(scorer.rows, scorer.n_groups).most_similar(rows, weights, 4)

    assert np.array_equal(scorer.most_similar(rows, weights, 4), plain)


def test_whitening_finds_unusual_combinations():
    """All columns are equal up to noise, except in row 0."""
    generator = np.random.default_rng(0)
    shared = 3 * generator.normal(size=(200, 1))
    rows = (shared + 0.1 * generator.normal(size=(200, 4))).astype(np.float32)
    rows[0] = [1.5, -1.5, 1.5, -1.5]
    rows[1] = 9.9  # an extreme value, the same in all columns

    plain, whitened = (
        fit_scorer(rows, np.zeros(200), keep=0.9, whiten=whiten) for whiten in (False, True)
    )

    assert plain.score(rows).argmax() == 1
    assert whitened.score(rows).argmax() == 0
    spreads = [
        np.linalg.eigvalsh(np.cov(seen.T)).max() for seen in (rows, rows @ whitened.whitening)
    ]
    assert spreads[0] > 30
    assert spreads[1] < 1.5


def test_constant_rows_can_be_whitened():
    scorer = fit_scorer(np.ones((200, 3), dtype=np.float32), np.zeros(200), whiten=True)

    assert np.isfinite(scorer.whitening).all()
    assert scorer.score(np.array([[1, 1, 2]], dtype=np.float32))[0] > 0


def test_pickling_preserves_scores():
    scorer, rows = build_whitened(), sample((9, 6))

    assert np.array_equal(pickle.loads(pickle.dumps(scorer)).score(rows), scorer.score(rows))


def test_few_rows_can_be_whitened():
    rows = sample((40, 90))

    spread = np.abs(rows @ compute_whitening(rows)).max()

    assert spread < 20


def test_whitening_does_not_depend_on_mean():
    rows = sample((200, 3))

    np.testing.assert_allclose(
        compute_whitening(rows), compute_whitening(rows + 50), rtol=1e-3, atol=1e-4
    )


def test_whitening_uses_kept_rows_only():
    rows = sample((200, 3))
    losses = np.zeros(200)
    losses[:50] = 1
    wild, incomplete = rows.copy(), rows.copy()
    wild[:50] *= 1000
    incomplete[60, 1] = np.nan

    plain, others, missing = (
        fit_scorer(some, losses, keep=0.75, whiten=True).whitening
        for some in (rows, wild, incomplete)
    )

    assert np.array_equal(plain, others)
    np.testing.assert_allclose(missing, plain, rtol=0.2, atol=0.1)


def test_missing_values_count_as_zero_when_whitened():
    scorer, rows = build_whitened(width=130), sample((60, 130))
    rows[:, 7] = np.nan
    rows[30:40] = scorer.rows[:10]
    rows[30:40, 7] = np.nan
    filled = np.nan_to_num(rows)

    scores = scorer.score(rows)

    expected = [score_plainly(scorer, row)[0] for row in filled]
    np.testing.assert_allclose(scores[:30], expected[:30], rtol=1e-4)
    # These rows equal a reference row in all other values, so this row is excluded.
    assert (scores[30:40] > np.array(expected[30:40]) * (1 + 1e-3)).any()
    for number in range(10):
        others = DistanceScorer(
            np.delete(scorer.rows, number, axis=0), n_groups=1, whitening=scorer.whitening
        )
        one = DistanceScorer(scorer.rows, n_groups=1, whitening=scorer.whitening)
        expected_one = score_plainly(others, filled[30 + number])[0]
        assert one.score(rows[30 + number : 31 + number])[0] == pytest.approx(expected_one, 1e-4)
