"""Privacy accounting: the epsilon of several releases, and the noise that a budget needs.

Each release is a Gaussian mechanism, most on a Poisson sample of the rows. Noise is calibrated with
Rényi divergences of integer orders, which are fast. The ledger also reports the bounds of Opacus.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Annotated

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from altbi.errors import ParameterError, import_extra

# Integer orders of the Rényi divergences, and all orders of the bound, which interpolates between
# integers. Opacus confirms every bound at one of these orders.
INTEGER_ORDERS = np.array([*range(2, 65), *range(68, 129, 4), 160, 192, 256, 512])
ORDERS = np.array(
    [*np.arange(1.125, 2, 0.125), *np.arange(2, 8, 0.25), *INTEGER_ORDERS[INTEGER_ORDERS >= 8]]
)
MAX_NOISE = 1e6


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sum over rows that is released with Gaussian noise."""

    what: str  # description of the sum
    # Standard deviation of the noise, as a multiple of the most that one row changes the sum.
    noise: Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
    # Share of the rows in the Poisson sample; 1 for all rows.
    rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    times: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1


def compute_rdp_epsilon(releases: Iterable[Release], delta: float) -> float:
    """Compute an upper bound, at least 0, of the total epsilon of releases by Rényi divergences."""
    moments = np.zeros(len(INTEGER_ORDERS) + 1)
    for release in releases:
        moments[1:] += release.times * _compute_moments(release.rate, release.noise)
    # (alpha - 1) times the divergence is convex in alpha, so linear interpolation is above it.
    divergence = np.interp(ORDERS, [1, *INTEGER_ORDERS], moments) / (ORDERS - 1)
    epsilon = divergence + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    return max(float(epsilon.min()), 0.0)


def _compute_moments(rate: float, noise: float) -> NDArray[np.float64]:
    """Compute (alpha - 1) times the Rényi divergence of one release, at all integer orders alpha.

    `rate` is the share of sampled rows; `noise` is relative to the most that one row changes.
    Formula: Mironov, Talwar, Zhang: Rényi differential privacy of the sampled Gaussian mechanism.
    2019.
    """
    orders = INTEGER_ORDERS
    if rate >= 1:
        return orders * (orders - 1) / (2 * noise**2)
    log_binomial, k = _compute_log_binomials()
    terms = log_binomial + (orders[:, None] - k) * math.log1p(-rate) + k * math.log(rate)
    return np.logaddexp.reduce(terms + k * (k - 1) / (2 * noise**2), axis=1)


@cache
def _compute_log_binomials() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log(alpha over k), with one row per order alpha and one column per k, and all k.

    It is minus infinity for k > alpha. The result is cached.
    """
    orders = INTEGER_ORDERS
    k = np.arange(orders[-1] + 1, dtype=np.float64)
    log_factorial = np.concatenate([[0], np.cumsum(np.log(k[1:]))])
    rest = orders[:, None] - np.arange(orders[-1] + 1)
    log_binomial = log_factorial[orders][:, None] - log_factorial - log_factorial[rest.clip(0)]
    return np.where(rest >= 0, log_binomial, -np.inf), k


def compute_gaussian_noise(epsilon: float, delta: float, share: float) -> float:
    """Compute the noise of one release of all rows that costs a share of a budget.

    The budget, `epsilon` at `delta`, is converted to rho of zero-concentrated differential privacy.
    The result, ``1 / sqrt(2 * share * rho)``, is a multiple of the most that one row changes.
    """
    root = math.sqrt(math.log(1 / delta))
    concentrated = (math.sqrt(math.log(1 / delta) + epsilon) - root) ** 2
    return 1 / math.sqrt(2 * share * concentrated)


def calibrate_noise(plan: Callable[[float], list[Release]], epsilon: float, delta: float) -> float:
    """Compute the smallest noise, up to 0.1 %, with which planned releases keep to a budget.

    `plan` returns the releases for a noise, a multiple of the most that one row changes. Results
    are at least 0.05. If a noise of 1e6 is not enough, a `ParameterError` is raised.
    """
    low, high = 0.05, 1.0
    while compute_rdp_epsilon(plan(high), delta) > epsilon:
        low, high = high, 2 * high
        if high > MAX_NOISE:
            raise ParameterError(
                f"epsilon={epsilon} and delta={delta}: no amount of noise keeps this training "
                "within the budget. Raise epsilon, or use a schedule with fewer steps."
            )
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        is_enough = compute_rdp_epsilon(plan(middle), delta) <= epsilon
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def compute_epsilons(releases: Sequence[Release], delta: float) -> tuple[float, float]:
    """Compute two bounds of the epsilon of all releases with Opacus: by RDP and by PRV.

    RDP uses Rényi divergences, PRV privacy random variables. Warnings of Opacus are suppressed.
    Without Opacus a `MissingExtraError` is raised.
    """
    accountant = import_extra("opacus.accountants", extra="privacy").RDPAccountant()
    accountant.history = [(release.noise, release.rate, release.times) for release in releases]
    # Opacus warns about log(0) for releases of all rows, and about its range of orders.
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore", UserWarning)
        rdp_epsilon = accountant.get_epsilon(delta=delta, alphas=ORDERS.tolist())
        return float(rdp_epsilon), _compute_prv_epsilon(releases, delta)


def _compute_prv_epsilon(releases: Sequence[Release], delta: float) -> float:
    """Compute an upper bound of epsilon, up to 0.01, by composing privacy random variables.

    It takes some seconds and needs Opacus, whose own accountant uses a larger grid and is slower.
    Gopi, Lee, Wutschitz: Numerical composition of differential privacy. NeurIPS 2021.
    """
    prv = import_extra("opacus.accountants.analysis.prv", extra="privacy")
    times = [release.times for release in releases]
    slack, error = delta / 1000, 0.01
    single_delta = slack / (8 * sum(times))
    single = max(compute_rdp_epsilon([replace(r, times=1)], single_delta) for r in releases)
    bound = max(compute_rdp_epsilon(releases, slack / 4), single, error) + 3
    mesh = error / math.sqrt(sum(times) * math.log(12 / slack) / 2)
    grid = prv.Domain.create_aligned(-bound, bound, mesh)
    losses = [prv.PoissonSubsampledGaussianPRV(r.rate, r.noise) for r in releases]
    bounded = [prv.TruncatedPrivacyRandomVariable(loss, grid.t_min, grid.t_max) for loss in losses]
    composed = prv.compose_heterogeneous([prv.discretize(loss, grid) for loss in bounded], times)
    return float(composed.compute_epsilon(delta, slack, error)[2])
