"""Tests of the constants of the propositions: printed, with counterexamples, and corrected."""

import math

import numpy as np
import pytest

import theory
from altbi_bench.theory import (
    Conditions,
    learning_rate_bounds,
    max_kept_outlier_share,
    min_kept_inlier_share,
)

USUAL = Conditions(a1=0.1, a2=0.4, a3=0.3, c=0.3, alpha=0.1, delta=0.05)


def compute_c(losses, weights):
    """Return the largest constant that satisfies Assumption 3 for a distribution of losses."""
    return 1 - (weights @ np.sqrt(losses)) ** 2 / (weights @ losses)


class TestKeptShares:
    # Few losses are zero, most slightly above the risk, and some far above it.
    LOSSES = np.array([0.0, 0.1, 0.9])
    WEIGHTS = np.array([0.2, 0.79, 0.01])

    def test_printed_share_of_kept_inliers_can_fail(self):
        risk = self.WEIGHTS @ self.LOSSES
        kept = self.WEIGHTS[risk >= self.LOSSES].sum()

        assert kept < compute_c(self.LOSSES, self.WEIGHTS)
        assert kept >= min_kept_inlier_share(compute_c(self.LOSSES, self.WEIGHTS))

    def test_corrected_share_of_kept_inliers_holds(self):
        rng = np.random.default_rng(0)
        for _ in range(500):
            losses, weights = rng.beta(*rng.uniform(0.1, 3, 2), 8), rng.dirichlet(np.full(8, 0.5))
            risk = weights @ losses
            assert (
                weights[losses <= risk].sum()
                >= min_kept_inlier_share(compute_c(losses, weights)) - 1e-9
            )

    def test_share_of_kept_outliers_holds_and_is_tight(self):
        rng = np.random.default_rng(0)
        n_checked = 0
        for _ in range(500):
            losses, weights = rng.beta(*rng.uniform(0.1, 3, 2), 8), rng.dirichlet(np.full(8, 0.5))
            risk = rng.uniform(0, 0.9)
            excess = weights @ losses - risk
            if excess > 0:
                assert weights[losses <= risk].sum() <= max_kept_outlier_share(risk, excess) + 1e-9
                n_checked += 1
        assert n_checked > 100

        # Half of the losses equal the risk and the others 1, so the bound is tight.
        assert max_kept_outlier_share(0.2, 0.5 * 0.2 + 0.5 * 1 - 0.2) == pytest.approx(0.5)


class TestPrinted:
    def test_printed_lemma_exceeds_one(self):
        for risk in np.linspace(USUAL.a1, USUAL.a2, 5):
            assert 2 / (USUAL.a1 * USUAL.a3) * risk > 1

    def test_printed_bound_exceeds_the_number_of_outliers(self):
        # In every step in which the premise can hold.
        last = USUAL.longest_run + 1

        assert USUAL.outliers(last) < USUAL.printed_c4 * USUAL.n0

    def test_printed_bound_is_trivial_for_paper_batch(self):
        assert USUAL.printed_c2 > 1
        assert USUAL.printed_c3 == 0

    def test_first_printed_constant_lacks_a_factor(self):
        # The first step of the proof needs a larger constant than the printed one.
        large = Conditions(a1=0.1, a2=0.4, a3=0.3, c=0.3, alpha=0.3, delta=0.05, n0=2000)
        rows = (1 - large.alpha) * large.n0
        c1 = math.sqrt(math.log(2 / large.delta) / (2 * large.c**2 * rows))
        needed = math.sqrt(
            math.log(2 / large.delta) / (2 * large.c**2 * rows * (1 - large.printed_c2))
        )

        assert 0 < large.printed_c2 < 1
        assert needed > c1

    @pytest.mark.parametrize("n0", [128, 10_000, 10_000_000])
    def test_no_learning_rate_satisfies_proposition_2(self, n0):
        conditions = Conditions(a1=0.1, a2=0.4, a3=0.3, c=0.3, alpha=0.1, delta=0.05, n0=n0)
        gradient_bound = 2.0
        sharpest = gradient_bound**2 / (2 * conditions.a2)

        low, high = learning_rate_bounds(conditions, gradient_bound, sharpest)

        assert low > high


class TestCorrected:
    def test_counts_of_random_batches_satisfy_the_bounds(self):
        # Losses are 0 or 0.4 for inliers (risk 0.2), and 0.2 or 1 for outliers (risk 0.6).
        conditions = Conditions(a1=0.2, a2=0.2, a3=0.4, c=0.5, alpha=0.3, delta=0.05, n0=2000)
        rng = np.random.default_rng(0)
        within = []
        for _ in range(400):
            is_outlier = rng.random(conditions.n0) < conditions.alpha
            coin = rng.random(conditions.n0) < 0.5
            losses = np.where(is_outlier, np.where(coin, 0.2, 1.0), np.where(coin, 0.0, 0.4))
            kept = losses <= 0.2
            within.append(
                (kept & ~is_outlier).sum() >= conditions.kept_inliers(1)
                and (kept & is_outlier).sum() <= conditions.kept_outliers(1)
            )

        assert conditions.kept_inliers(1) > 300
        assert conditions.kept_outliers(1) < conditions.outliers(1)
        assert np.mean(within) >= 1 - 4 * conditions.delta

    def test_bound_of_kept_outliers_grows_with_batch(self):
        assert USUAL.kept_outliers(60) / USUAL.kept_outliers(1) > 2

    def test_bounds_are_trivial_for_small_batches(self):
        tiny = Conditions(a1=0.1, a2=0.4, a3=0.3, c=0.3, alpha=0.9, delta=0.05, n0=10)

        assert tiny.kept_inliers(1) == 0
        assert tiny.kept_outliers(1) <= tiny.outliers(1)

    def test_longest_run_ends_with_the_premise(self):
        run = USUAL.longest_run

        assert USUAL.a2 * USUAL.gamma**-run >= USUAL.a1
        assert USUAL.a2 * USUAL.gamma ** -(run + 1) < USUAL.a1


class TestExperiment:
    CENTRE = np.array([0.7, -0.4])

    def test_risk_is_the_mean_loss(self):
        rows = np.random.default_rng(0).normal(size=(200_000, 2)) + theory.OUTLIER_MEAN

        found = theory.risk(self.CENTRE, theory.OUTLIER_MEAN)

        assert found == pytest.approx(theory.compute_losses(self.CENTRE, rows).mean(), abs=0.002)

    def test_gradient_equals_finite_differences(self):
        rows = np.random.default_rng(0).normal(size=(50, 2))
        steps = 1e-6 * np.eye(2)

        differences = [
            (
                theory.compute_losses(self.CENTRE + step, rows).mean()
                - theory.compute_losses(self.CENTRE - step, rows).mean()
            )
            / 2e-6
            for step in steps
        ]

        assert theory.gradient(self.CENTRE, rows) == pytest.approx(differences, rel=1e-5)

    def test_truncated_training_keeps_few_outliers(self):
        everything = theory.train(lambda losses, risk: 1.0, np.random.default_rng(0))
        by_risk = theory.train(lambda losses, risk: risk, np.random.default_rng(0))

        assert by_risk[-1].inlier_risk < 0.5 * by_risk[0].inlier_risk
        assert all(s.kept_inliers + s.kept_outliers == s.n_rows for s in everything)
        assert by_risk[-1].kept_outliers < 0.1 * everything[-1].kept_outliers
        assert by_risk[0].n_rows == 128
        assert by_risk[-1].n_rows == 1322

    def test_corrected_bounds_hold_in_all_steps(self):
        runs = [
            theory.train(lambda losses, risk: risk, np.random.default_rng(seed))
            for seed in range(10)
        ]
        conditions = theory.find_conditions(runs)

        for run in runs:
            for number, step in enumerate(run, 1):
                assert step.kept_inliers >= conditions.kept_inliers(number)
                assert step.kept_outliers <= conditions.kept_outliers(number)
