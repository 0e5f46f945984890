"""The scorer by the rarity of values."""

import numpy as np

from altbi.scorers import fit_rarity_scorer


def column(*values):
    return np.array(values, dtype=np.float32)[:, None]


def test_rare_values_score_higher_than_frequent_ones():
    rows = column(*[0.0] * 60, *[1.0] * 30, *[2.0] * 10)
    zero, one, two = fit_rarity_scorer(rows).score(column(0, 1, 2))
    assert zero == 0
    assert one == np.log(61 / 31)
    assert two == np.log(61 / 11)


def test_values_beyond_the_training_rows_are_rarest():
    rows = np.random.default_rng(0).normal(size=(500, 1)).astype(np.float32)
    scorer = fit_rarity_scorer(rows)
    low, usual, high = scorer.score(column(-9, 0, 9))
    assert low > usual
    assert high > usual
    assert scorer.score(column(9)) == scorer.score(column(90))


def test_frequent_smallest_value_has_a_bin_of_its_own():
    rows = column(*[0.0] * 900, *np.linspace(0.01, 10, 100))
    usual, next_to_it, below = fit_rarity_scorer(rows).score(column(0, 0.02, -1))
    assert usual == 0
    assert next_to_it > 2
    assert below > next_to_it


def test_gap_between_two_groups_is_rare():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(300, 1)), rng.normal(size=(300, 1)) + 20])
    scorer = fit_rarity_scorer(rows.astype(np.float32))
    middle, usual = scorer.score(column(10, 0))
    assert middle > usual + 3


def test_missing_values_have_the_median_rarity():
    rows = np.random.default_rng(0).normal(size=(501, 1)).astype(np.float32)
    scorer = fit_rarity_scorer(rows)
    assert np.isclose(scorer.score(column(np.nan))[0], np.median(scorer.score(rows)))
    empty = fit_rarity_scorer(column(np.nan, np.nan))
    assert np.array_equal(empty.score(column(np.nan, 1)) == 0, [True, True])


def test_contributions_are_the_rarities_of_values():
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    scorer = fit_rarity_scorer(rows)
    contributions = scorer.contributions(rows)
    np.testing.assert_allclose(contributions.sum(axis=1), scorer.score(rows))
    changed = rows.copy()
    changed[:, 1] = 50
    assert np.array_equal(scorer.contributions(changed)[:, 0], contributions[:, 0])
    assert (scorer.contributions(changed)[:, 1] >= contributions[:, 1]).all()


def test_frequent_largest_value_has_a_bin_of_its_own():
    rows = column(*[1.0] * 900, *np.linspace(-9, 0.99, 100))
    usual, next_to_it, above = fit_rarity_scorer(rows).score(column(1, 0.98, 2))
    assert usual == 0
    assert next_to_it > 2
    assert above > next_to_it


def test_values_on_both_sides_of_a_constant_are_equally_rare():
    below, equal, above = fit_rarity_scorer(column(*[5.0] * 501)).score(column(4.5, 5, 5.5))
    assert equal == 0
    assert below == above == np.log(502)


def test_quantile_between_values_is_as_usual_as_those_beyond():
    rows = np.arange(101, dtype=np.float32)[:, None]  # the quantiles are 1 and 99
    scores = fit_rarity_scorer(rows).score(column(1, 0, 99, 100))
    assert scores[0] < scores[1] < 2
    assert scores[2] < scores[3] < 2


def test_cells_beyond_the_limits_do_not_tie():
    rows = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    scorer = fit_rarity_scorer(rows)
    cells = np.array([[5, np.nan], [9, 0], [-9, 0], [900, 0]], dtype=np.float32)

    found = scorer.score_cells(cells)

    assert found[0, 1] == 0  # other scorers count missing values
    assert 0 < found[0, 0] < found[1, 0] < found[3, 0]
    assert found[2, 0] > 4
    usual = np.abs(rows) < 1
    assert (scorer.score_cells(rows)[usual] == scorer.contributions(rows)[usual]).all()
