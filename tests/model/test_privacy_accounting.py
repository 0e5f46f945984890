import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from opacus.accountants import PRVAccountant, RDPAccountant
from scipy.stats import norm

from altbi.errors import ParameterError
from altbi.model._privacy_accounting import (
    Release,
    calibrate_noise,
    compute_epsilons,
    compute_gaussian_noise,
    compute_rdp_epsilon,
)

DELTA = 1e-5
# Batches grow during training, so the rate changes from step to step.
GROWING = [Release("gradients", 1.1, rate, 5) for rate in (0.02, 0.05, 0.11, 0.3)]
WITH_ALL_ROWS = [Release("rows", 8.0), *GROWING, Release("threshold", 9.0, times=3)]


def gaussian_delta(epsilon, mu):
    """Return the exact delta of a Gaussian mechanism (Balle and Wang, 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_rdp_bound_matches_closed_form_of_gaussian():
    noise, times = 1.7, 3
    orders = np.arange(1.05, 200, 0.001)
    # alpha / (2 sigma^2) for each release, and the conversion of Canonne, Kamath and Steinke.
    divergence = times * orders / (2 * noise**2)
    exact = divergence + np.log1p(-1 / orders) - (np.log(DELTA * orders)) / (orders - 1)
    bound = compute_rdp_epsilon([Release("all", noise, times=times)], DELTA)
    assert exact.min() <= bound <= 1.01 * exact.min()


def test_prv_bound_matches_exact_gaussian():
    noise, times = 1.7, 3
    epsilon = compute_epsilons([Release("all", noise, times=times)], DELTA)[1]
    mu = math.sqrt(times) / noise
    assert gaussian_delta(epsilon, mu) <= DELTA
    assert gaussian_delta(epsilon - 0.05, mu) > DELTA


@pytest.mark.slow
@pytest.mark.parametrize("releases", [GROWING, WITH_ALL_ROWS], ids=["growing", "with all rows"])
def test_bounds_agree_with_dp_accounting(releases):
    composed = None
    for release in releases:
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            release.noise, sampling_prob=release.rate, value_discretization_interval=1e-3
        ).self_compose(release.times)
        composed = loss if composed is None else composed.compose(loss)
    expected = composed.get_epsilon_for_delta(DELTA)
    rdp, prv = compute_epsilons(releases, DELTA)
    assert prv == pytest.approx(expected, abs=0.03)
    assert expected < rdp < 1.25 * expected


@pytest.mark.slow
def test_rdp_bound_agrees_with_opacus():
    accountant = RDPAccountant()
    accountant.history = [(each.noise, each.rate, each.times) for each in WITH_ALL_ROWS]
    expected = accountant.get_epsilon(delta=DELTA)
    # Interpolation between integer orders is above the curve, but close.
    assert expected <= compute_rdp_epsilon(WITH_ALL_ROWS, DELTA) <= 1.01 * expected
    assert compute_epsilons(WITH_ALL_ROWS, DELTA)[0] == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_prv_bound_agrees_with_opacus():
    accountant = PRVAccountant()
    accountant.history = [(each.noise, each.rate, each.times) for each in GROWING]
    expected = accountant.get_epsilon(DELTA)
    assert compute_epsilons(GROWING, DELTA)[1] == pytest.approx(expected, abs=0.02)


def test_more_releases_and_less_noise_cost_more():
    base = compute_rdp_epsilon(GROWING, DELTA)
    assert compute_rdp_epsilon([*GROWING, Release("again", 5.0)], DELTA) > base
    less_noise = [Release("g", 1.0, r.rate, r.times) for r in GROWING]
    assert compute_rdp_epsilon(less_noise, DELTA) > base
    assert compute_rdp_epsilon(GROWING, DELTA / 10) > base


@pytest.mark.parametrize("epsilon", [0.3, 3, 10])
def test_calibrated_noise_is_smallest_within_budget(epsilon):
    def plan(noise):
        return [Release("g", noise, rate, 10) for rate in (0.05, 0.2, 1.0)]

    noise = calibrate_noise(plan, epsilon, DELTA)
    assert compute_rdp_epsilon(plan(noise), DELTA) <= epsilon
    assert compute_rdp_epsilon(plan(0.99 * noise), DELTA) > epsilon


def test_share_of_budget_costs_that_share():
    noise = compute_gaussian_noise(3.0, DELTA, share=1.0)
    total = compute_rdp_epsilon([Release("all of it", noise)], DELTA)
    assert 2.4 < total <= 3.0
    tenth = compute_gaussian_noise(3.0, DELTA, share=0.1)
    assert compute_rdp_epsilon([Release("tenth", tenth, times=10)], DELTA) == pytest.approx(total)


def test_impossible_budget_raises_error():
    with pytest.raises(ParameterError, match="no amount of noise"):
        calibrate_noise(lambda noise: [Release("first", 1.0), Release("g", noise)], 0.01, DELTA)
