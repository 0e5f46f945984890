"""What releases cost together, and how much noise a budget asks for.

Every release here is a Gaussian, most on a Poisson sample of the rows. Plans are made with Rényi
divergences of whole orders, which are quick; what a ledger says at the end comes from Opacus.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ParameterError, import_extra

__all__ = ["Release", "calibrate_noise", "compute_epsilons", "epsilon_of", "gaussian_noise"]

# Orders at which divergences are computed, and those at which a bound is looked for: between whole
# orders it is a straight line. What a plan keeps to at one of these, Opacus confirms.
_WHOLE = np.array([*range(2, 65), *range(68, 129, 4), 160, 192, 256, 512])
_ORDERS = np.array([*np.arange(1.125, 2, 0.125), *np.arange(2, 8, 0.25), *_WHOLE[_WHOLE >= 8]])
_MOST_NOISE = 1e6


@dataclass(frozen=True, slots=True)
class Release:
    """Gaussian noise on a sum over rows, released some times.

    Attributes
    ----------
    what : str
        What is released, in words.
    noise : float
        Standard deviation of the noise, as a multiple of the most that one row changes the sum.
    rate : float in (0, 1]
        Share of the rows in the Poisson sample; 1 takes all rows.
    times : int
        How often it is released.
    """

    what: str
    noise: float
    rate: float = 1.0
    times: int = 1


def epsilon_of(releases: Iterable[Release], delta: float) -> float:
    """Bound epsilon of all releases together, by Rényi divergences."""
    moments = np.zeros(len(_WHOLE) + 1)
    for release in releases:
        moments[1:] += release.times * _moments(release.rate, release.noise)
    # (alpha - 1) times the divergence is convex in alpha: chords lie above it.
    divergence = np.interp(_ORDERS, [1, *_WHOLE], moments) / (_ORDERS - 1)
    epsilon = divergence + np.log1p(-1 / _ORDERS) - np.log(delta * _ORDERS) / (_ORDERS - 1)
    return max(float(epsilon.min()), 0.0)


def _moments(rate: float, noise: float) -> NDArray[np.float64]:
    """Give (alpha - 1) times the divergence of one sampled Gaussian, at whole orders.

    Mironov, Talwar, Zhang: Rényi differential privacy of the sampled Gaussian mechanism. 2019.
    """
    if rate >= 1:
        return _WHOLE * (_WHOLE - 1) / (2 * noise**2)
    log_binomial, k = _binomials()
    # Beyond the last of its terms a row holds minus infinity.
    terms = log_binomial + (_WHOLE[:, None] - k) * math.log1p(-rate) + k * math.log(rate)
    return np.logaddexp.reduce(terms + k * (k - 1) / (2 * noise**2), axis=1)


@cache
def _binomials() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    k = np.arange(_WHOLE[-1] + 1, dtype=np.float64)
    log_factorial = np.concatenate([[0], np.cumsum(np.log(k[1:]))])
    rest = _WHOLE[:, None] - np.arange(_WHOLE[-1] + 1)
    log_binomial = log_factorial[_WHOLE][:, None] - log_factorial - log_factorial[rest.clip(0)]
    return np.where(rest >= 0, log_binomial, -np.inf), k


def gaussian_noise(epsilon: float, delta: float, share: float) -> float:
    """Say how much noise a release of all rows needs that may take a small share of the budget."""
    root = math.sqrt(math.log(1 / delta))
    concentrated = (math.sqrt(math.log(1 / delta) + epsilon) - root) ** 2
    return 1 / math.sqrt(2 * share * concentrated)


def calibrate_noise(plan: Callable[[float], list[Release]], epsilon: float, delta: float) -> float:
    """Find the least noise with which a plan keeps to the budget, up to a thousandth of it."""
    low, high = 0.05, 1.0
    while epsilon_of(plan(high), delta) > epsilon:
        low, high = high, 2 * high
        if high > _MOST_NOISE:
            raise ParameterError(
                f"epsilon={epsilon} and delta={delta}: no amount of noise keeps this training "
                "within that budget. Raise epsilon, or take fewer steps."
            )
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon_of(plan(middle), delta) <= epsilon else (middle, high)
    return high


def compute_epsilons(releases: Sequence[Release], delta: float) -> tuple[float, float]:
    """Give epsilon of all releases together by Opacus: from Rényi divergences, and by PRV."""
    renyi = import_extra("opacus.accountants", extra="privacy").RDPAccountant()
    renyi.history = [(release.noise, release.rate, release.times) for release in releases]
    # Opacus warns of logarithms of 0 where a release takes all rows, and of its range of orders.
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore", UserWarning)
        return float(renyi.get_epsilon(delta=delta, alphas=_ORDERS.tolist())), _prv(releases, delta)


def _prv(releases: Sequence[Release], delta: float) -> float:
    """Compose the privacy random variables themselves; an upper bound, up to a hundredth.

    What Opacus' accountant does, but for the range of the grid: that of ours takes no minute.

    Gopi, Lee, Wutschitz: Numerical composition of differential privacy. NeurIPS 2021.
    """
    prv = import_extra("opacus.accountants.analysis.prv", extra="privacy")
    times = [release.times for release in releases]
    slack, error = delta / 1000, 0.01
    alone = max(epsilon_of([replace(r, times=1)], slack / (8 * sum(times))) for r in releases)
    width = max(epsilon_of(releases, slack / 4), alone, error) + 3
    mesh = error / math.sqrt(sum(times) * math.log(12 / slack) / 2)
    grid = prv.Domain.create_aligned(-width, width, mesh)
    losses = [prv.PoissonSubsampledGaussianPRV(r.rate, r.noise) for r in releases]
    held = [prv.TruncatedPrivacyRandomVariable(loss, grid.t_min, grid.t_max) for loss in losses]
    composed = prv.compose_heterogeneous([prv.discretize(loss, grid) for loss in held], times)
    return float(composed.compute_epsilon(delta, slack, error)[2])
