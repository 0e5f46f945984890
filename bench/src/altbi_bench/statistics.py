"""Statistical tests of systems over many data sets (Demšar, 2006).

Scores are mappings system -> data set -> value; higher is better. The reference is
J. Demšar, *Statistical Comparisons of Classifiers over Multiple Data Sets*, Journal of Machine
Learning Research 7, 2006. scipy and statsmodels are imported inside functions, so that
the command line starts fast.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi._parameters import is_count, is_number
from altbi.errors import ParameterError

__all__ = [
    "DECIMALS",
    "Effect",
    "Friedman",
    "Pair",
    "critical_difference",
    "find_cliques",
    "friedman",
    "mean_ranks",
    "paired_effect",
    "select_shared",
    "wilcoxon_holm",
]

Scores = Mapping[str, Mapping[str, float]]

# Values are rounded to this number of decimals, so that 0.3 - 0.2 ties with 0.2 - 0.1.
DECIMALS = 12
RESAMPLES = 4000
# Smallest number of data sets for an interval.
MIN_DATASETS = 5


@final
@dataclass(frozen=True, slots=True)
class Friedman:
    """Friedman's test that all systems are equal, and its F form by Iman and Davenport."""

    n_datasets: int
    n_systems: int
    statistic: float
    p_value: float
    f_statistic: float
    f_p_value: float


@final
@dataclass(frozen=True, slots=True)
class Pair:
    """Comparison of two systems on the data sets that both have.

    Differences are first minus second; wins are those of the first. `favours_first` is the sign of
    Wilcoxon's rank sum, which may differ from the count of wins.
    """

    first: str
    second: str
    n_datasets: int
    mean_difference: float
    median_difference: float
    wins: int
    ties: int
    losses: int
    p_value: float
    adjusted_p_value: float
    significant: bool
    favours_first: bool


@final
@dataclass(frozen=True, slots=True)
class Effect:
    """A mean difference over data sets, and its 95 % interval."""

    mean: float
    low: float
    high: float
    n_datasets: int

    @property
    def is_chance(self) -> bool:
        """Whether the interval contains 0, or there are too few data sets for one."""
        return self.n_datasets < MIN_DATASETS or self.low <= 0 <= self.high

    def __str__(self) -> str:
        return format(self, ".3f")

    def __format__(self, digits: str) -> str:
        """Format the mean, and its interval if there are at least five data sets."""
        mean, low, high = (
            format(v, f"+{digits or '.3f'}") for v in (self.mean, self.low, self.high)
        )
        return f"{mean} [{low}, {high}]" if self.n_datasets >= MIN_DATASETS else mean


def paired_effect(differences: Sequence[float] | NDArray[np.float64]) -> Effect:
    """Compute the mean difference over data sets, with a bootstrap interval.

    Examples
    --------
    >>> print(paired_effect([0.01, 0.01, 0.01, 0.01, 0.01]))
    +0.010 [+0.010, +0.010]
    """
    from scipy.stats import bootstrap

    found = np.asarray(differences, dtype=np.float64)
    if not len(found):
        raise ParameterError("There are no differences, but expected those of some data sets.")
    mean = float(found.mean())
    if len(found) == 1:  # scipy's bootstrap needs two
        return Effect(mean, mean, mean, 1)
    interval = bootstrap(
        (found,), np.mean, method="percentile", n_resamples=RESAMPLES, rng=np.random.default_rng(0)
    ).confidence_interval
    return Effect(mean, float(interval.low), float(interval.high), len(found))


def select_shared(scores: Scores) -> tuple[list[str], NDArray[np.float64]]:
    """Return the data sets for which every system has a finite value.

    Returns
    -------
    datasets : list of str
        In the order of the first system.
    values : ndarray of shape (n_datasets, n_systems)
        Systems in the order of `scores`.
    """
    _check_systems(scores)
    columns = list(scores.values())
    datasets = [
        name for name in columns[0] if all(math.isfinite(c.get(name, math.nan)) for c in columns)
    ]
    if len(datasets) < 2:
        raise ParameterError(
            f"The {len(scores)} systems share {len(datasets)} data sets, but expected at least 2. "
            "Leave out the systems that were run on few data sets, or run them on more."
        )
    values = np.array([[column[name] for column in columns] for name in datasets], dtype=np.float64)
    return datasets, values.round(DECIMALS)


def mean_ranks(scores: Scores) -> dict[str, float]:
    """Return the mean rank of each system over the data sets; 1 is the best.

    Systems that tie share the mean of their ranks.

    Examples
    --------
    >>> mean_ranks({"a": {"x": 0.9, "y": 0.8}, "b": {"x": 0.7, "y": 0.8}})
    {'a': 1.25, 'b': 1.75}
    """
    _, values = select_shared(scores)
    return dict(zip(scores, _ranks(values).mean(axis=0).tolist(), strict=True))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.stats import rankdata

    ranks: NDArray[np.float64] = rankdata(-values, axis=1)
    return ranks


def friedman(scores: Scores) -> Friedman:
    """Test whether three or more systems differ at all.

    As in Demšar's paper, the statistic is not corrected for ties, which is conservative.
    `scipy.stats.friedmanchisquare` corrects for ties, and has no F form.
    """
    from scipy.stats import chi2, f

    _, values = select_shared(scores)
    n, k = values.shape
    if k < 3:
        raise ParameterError(
            f"The Friedman test got {k} systems, but expected at least 3. "
            "Compare two systems with wilcoxon_holm."
        )
    spread = np.square(_ranks(values).sum(axis=0) - n * (k + 1) / 2).sum()
    # Kendall's W. Numerator and denominator are exact, so that full agreement is exactly 1.
    agreement = float(spread / (n**2 * (k * (k**2 - 1) / 12)))
    statistic = n * (k - 1) * agreement
    f_statistic = math.inf if agreement == 1 else (n - 1) * agreement / (1 - agreement)
    return Friedman(
        n_datasets=n,
        n_systems=k,
        statistic=statistic,
        p_value=float(chi2.sf(statistic, k - 1)),
        f_statistic=f_statistic,
        f_p_value=float(f.sf(f_statistic, k - 1, (k - 1) * (n - 1))),
    )


def critical_difference(n_systems: int, n_datasets: int, alpha: float = 0.05) -> float:
    """Return the critical difference of mean ranks (Nemenyi's test)."""
    from scipy.stats import studentized_range

    if not (is_count(n_systems, least=2) and is_count(n_datasets, least=2)):
        raise ParameterError(
            f"Got n_systems={n_systems!r} and n_datasets={n_datasets!r}, but expected whole "
            "numbers of at least 2."
        )
    _check_alpha(alpha)
    q = studentized_range.ppf(1 - alpha, n_systems, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_systems * (n_systems + 1) / (6 * n_datasets)))


def find_cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """Return the groups of systems that Nemenyi's test does not distinguish, best first.

    Ranks in a group differ by less than the critical difference. No group is a subset of another.
    A system that differs from all others is in no group.

    Examples
    --------
    >>> find_cliques({"a": 1.0, "b": 1.5, "c": 2.25, "d": 4.0}, difference=1.0)
    [('a', 'b'), ('b', 'c')]
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    groups: list[tuple[str, ...]] = []
    reached = 0
    for start, name in enumerate(names):
        stop = sum(ranks[other] - ranks[name] < difference for other in names)
        # A group with the same end as an earlier group is a subset of it.
        if stop > max(reached, start + 1):
            groups.append(tuple(names[start:stop]))
            reached = stop
    return groups


def wilcoxon_holm(scores: Scores, alpha: float = 0.05, *, against: str | None = None) -> list[Pair]:
    """Compare pairs of systems by Wilcoxon's signed-rank test, two-sided, with Holm's correction.

    Each pair is compared on the data sets that both have. Data sets on which two systems tie count
    half for each ("zsplit"), as in Demšar's paper. Without them, systems that mostly agree would
    seem more different than they are.

    Parameters
    ----------
    scores : mapping
        System -> data set -> value, higher is better.
    alpha : float, default=0.05
        Probability of at least one false positive among all pairs.
    against : str, optional
        Compare only this system with each other one; Holm's correction is over these pairs.

    Returns
    -------
    list of Pair
        In the order of `scores`.
    """
    from statsmodels.stats.multitest import multipletests

    _check_alpha(alpha)
    _check_systems(scores)
    names = list(scores)
    if against is not None and against not in names:
        raise ParameterError(f"against={against!r}, but expected one of {', '.join(names)}.")
    pairs = (
        list(combinations(names, 2))
        if against is None
        else [(against, other) for other in names if other != against]
    )
    differences = [_subtract(scores, first, second) for first, second in pairs]
    p_values = [_wilcoxon(each) for each in differences]
    adjusted = multipletests(p_values, method="holm")[1].tolist()
    return [
        Pair(
            first,
            second,
            n_datasets=len(values),
            mean_difference=float(values.mean()),
            median_difference=float(np.median(values)),
            wins=int((values > 0).sum()),
            ties=int((values == 0).sum()),
            losses=int((values < 0).sum()),
            p_value=p_value,
            adjusted_p_value=corrected,
            significant=corrected <= alpha,
            favours_first=_signed_rank_sum(values) > 0,
        )
        for (first, second), values, p_value, corrected in zip(
            pairs, differences, p_values, adjusted, strict=True
        )
    ]


def _subtract(scores: Scores, first: str, second: str) -> NDArray[np.float64]:
    """Return the differences of two systems on the data sets that both have."""
    _, values = select_shared({first: scores[first], second: scores[second]})
    differences: NDArray[np.float64] = (values[:, 0] - values[:, 1]).round(DECIMALS)
    return differences


def _signed_rank_sum(values: NDArray[np.float64]) -> float:
    from scipy.stats import rankdata

    return float((np.sign(values) * rankdata(np.abs(values))).sum())


def _wilcoxon(values: NDArray[np.float64]) -> float:
    from scipy.stats import wilcoxon

    return float(wilcoxon(values, zero_method="zsplit").pvalue)  # 1 where all tie


def _check_systems(scores: Scores) -> None:
    if len(scores) < 2:
        raise ParameterError(
            f"There are scores of {len(scores)} systems, but expected at least 2 to compare."
        )


def _check_alpha(alpha: float) -> None:
    if not (is_number(alpha) and 0 < alpha < 1):
        raise ParameterError(f"alpha={alpha!r}, but expected a number between 0 and 1.")
