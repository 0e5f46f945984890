"""Accounting: against closed forms, against Opacus, and against a third party."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from opacus.accountants import PRVAccountant, RDPAccountant
from scipy.stats import norm

from altbi.errors import ModelFileError, ParameterError
from altbi.model._privacy_accounting import Release, compute_epsilons, calibrate_noise, compute_rdp_epsilon, compute_gaussian_noise
from altbi.model._privacy_ledger import Ledger

DELTA = 1e-5
# A batch that grows: the rate changes from step to step.
GROWING = [Release("gradients", 1.1, rate, 5) for rate in (0.02, 0.05, 0.11, 0.3)]
WITH_ALL_ROWS = [Release("rows", 8.0), *GROWING, Release("threshold", 9.0, times=3)]


def gaussian_delta(epsilon, mu):
    """Balle and Wang: the exact delta of a Gaussian whose means lie mu deviations apart."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_all_rows_have_the_divergence_of_a_gaussian():
    noise, times = 1.7, 3
    orders = np.arange(1.05, 200, 0.001)
    # alpha / (2 sigma^2) for each release, and the conversion of Canonne, Kamath and Steinke.
    divergence = times * orders / (2 * noise**2)
    exact = divergence + np.log1p(-1 / orders) - (np.log(DELTA * orders)) / (orders - 1)
    told = compute_rdp_epsilon([Release("all", noise, times=times)], DELTA)
    assert exact.min() <= told <= 1.01 * exact.min()


def test_random_variables_meet_the_exact_gaussian():
    noise, times = 1.7, 3
    epsilon = compute_epsilons([Release("all", noise, times=times)], DELTA)[1]
    mu = math.sqrt(times) / noise
    assert gaussian_delta(epsilon, mu) <= DELTA
    assert gaussian_delta(epsilon - 0.05, mu) > DELTA


@pytest.mark.parametrize("releases", [GROWING, WITH_ALL_ROWS], ids=["growing", "with all rows"])
def test_a_third_party_agrees_on_rates_that_change(releases):
    composed = None
    for release in releases:
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            release.noise, sampling_prob=release.rate, value_discretization_interval=1e-3
        ).self_compose(release.times)
        composed = loss if composed is None else composed.compose(loss)
    theirs = composed.get_epsilon_for_delta(DELTA)
    renyi, random_variables = compute_epsilons(releases, DELTA)
    assert random_variables == pytest.approx(theirs, abs=0.03)
    assert theirs < renyi < 1.25 * theirs


def test_plans_are_made_with_opacus_bound():
    accountant = RDPAccountant()
    accountant.history = [(each.noise, each.rate, each.times) for each in WITH_ALL_ROWS]
    theirs = accountant.get_epsilon(delta=DELTA)
    # Chords between whole orders lie above the curve, but not far.
    assert theirs <= compute_rdp_epsilon(WITH_ALL_ROWS, DELTA) <= 1.01 * theirs
    assert compute_epsilons(WITH_ALL_ROWS, DELTA)[0] == pytest.approx(theirs, rel=0.01)


def test_random_variables_are_composed_as_opacus_does():
    accountant = PRVAccountant()
    accountant.history = [(each.noise, each.rate, each.times) for each in GROWING]
    assert compute_epsilons(GROWING, DELTA)[1] == pytest.approx(accountant.get_epsilon(DELTA), abs=0.02)


def test_more_releases_and_less_noise_cost_more():
    base = compute_rdp_epsilon(GROWING, DELTA)
    assert compute_rdp_epsilon([*GROWING, Release("again", 5.0)], DELTA) > base
    assert compute_rdp_epsilon([Release("g", 1.0, r.rate, r.times) for r in GROWING], DELTA) > base
    assert compute_rdp_epsilon(GROWING, DELTA / 10) > base


@pytest.mark.parametrize("epsilon", [0.3, 3, 10])
def test_noise_is_found_for_the_whole_plan(epsilon):
    def plan(noise):
        return [Release("g", noise, rate, 10) for rate in (0.05, 0.2, 1.0)]

    noise = calibrate_noise(plan, epsilon, DELTA)
    assert compute_rdp_epsilon(plan(noise), DELTA) <= epsilon < compute_rdp_epsilon(plan(0.99 * noise), DELTA)


def test_a_share_of_the_budget_is_about_that_share():
    noise = compute_gaussian_noise(3.0, DELTA, share=1.0)
    assert 2.4 < compute_rdp_epsilon([Release("all of it", noise)], DELTA) <= 3.0
    parts = [Release("a tenth", compute_gaussian_noise(3.0, DELTA, share=0.1), times=10)]
    assert compute_rdp_epsilon(parts, DELTA) == pytest.approx(compute_rdp_epsilon([Release("one", noise)], DELTA))


def test_a_budget_that_nothing_keeps_is_refused():
    with pytest.raises(ParameterError, match="no amount of noise"):
        calibrate_noise(lambda noise: [Release("first", 1.0), Release("g", noise)], 0.01, DELTA)


def ledger(**changes):
    plain = {"epsilon": 3.0, "delta": DELTA, "truncation": "tracked", "clip": 1.0}
    return Ledger(**plain | {"releases": tuple(GROWING)} | changes)


def test_a_ledger_comes_back_from_json():
    written = ledger(categories_delta=1e-6)
    read = Ledger.from_json(written.to_json())
    assert read == written
    assert (read.epsilon_rdp, read.epsilon_prv) == (written.epsilon_rdp, written.epsilon_prv)


def test_the_part_of_delta_for_names_is_not_spent_twice():
    assert ledger(categories_delta=9e-6).epsilon_prv > ledger().epsilon_prv


def test_a_ledger_without_guarantee_says_so_first():
    state = ledger(guarantee=False).to_json()
    assert state["covered"] == []
    assert state["not_covered"][0].startswith("epsilon is no guarantee here")


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_rdp": 0.5},
        {"epsilon_rdp": None},
        {"delta": 2.0},
        {"categories_delta": 1.0},
        {"guarantee": 1},
        {"releases": [{"what": "x", "noise": 100.0, "rate": 1.0, "times": 1}]},
        {"releases": [{"what": "x", "noise": -1.0, "rate": 1.0, "times": 1}]},
        {"releases": [{"what": "x", "noise": 1.0, "rate": 1.5, "times": 1}]},
        {"releases": [{"what": "x", "noise": 1.0, "rate": 1.0, "times": 0}]},
        {"releases": [{"what": "x"}]},
        {"releases": "all"},
        {"truncation": None},
    ],
    ids=repr,
)
def test_a_ledger_that_does_not_add_up_is_refused(change):
    with pytest.raises(ModelFileError, match="privacy ledger"):
        Ledger.from_json(ledger().to_json() | change)


def test_no_ledger_at_all_is_refused():
    with pytest.raises(ModelFileError, match="privacy ledger"):
        Ledger.from_json([])
