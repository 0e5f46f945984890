"""Constants of the paper's Propositions 1 and 2, as printed and corrected.

Losses are in [0, 1], the threshold is the inlier risk, and batches grow. docs/benchmark/theory.md
lists the errors of the printed constants, and what remains true.
"""

import math
from dataclasses import dataclass
from typing import final

__all__ = ["Conditions", "learning_rate_bounds", "max_kept_outlier_share", "min_kept_inlier_share"]


def min_kept_inlier_share(c: float) -> float:
    """Bound the share of inliers with a loss of at most the inlier risk, under Assumption 3.

    Markov's inequality for the root of the loss gives ``1 - sqrt(1 - c)``, not ``c``.

    Examples
    --------
    >>> min_kept_inlier_share(0.75)
    0.5
    """
    return 1 - math.sqrt(1 - c)


def max_kept_outlier_share(risk: float, difference: float) -> float:
    """Bound the share of outliers with a loss of at most the inlier risk, under Assumption 1.

    Markov's inequality for ``1 - loss``. `difference` is the outlier risk minus the inlier risk.

    Examples
    --------
    >>> round(max_kept_outlier_share(risk=0.2, difference=0.4), 3)
    0.5
    """
    return max(1 - difference / (1 - risk), 0.0)


def learning_rate_bounds(
    conditions: "Conditions", gradient_bound: float, mu: float
) -> tuple[float, float]:
    """Return the bounds of the printed interval of learning rates of Proposition 2.

    If the lower bound exceeds the upper bound, the interval is empty. `gradient_bound` is the
    paper's G, `mu` is the constant of the Polyak-Lojasiewicz condition. Where a risk of a2 occurs,
    ``mu <= gradient_bound**2 / (2 * a2)``.
    """
    low = (1 - 1 / (2 * conditions.gamma)) / mu
    noise = 1 / (conditions.delta * conditions.n0) + conditions.printed_c4
    high = (
        conditions.a2 * conditions.printed_c3 / (4 * conditions.gamma * gradient_bound**2 * noise)
    )
    return low, high


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The assumptions of Proposition 1, and its bounds.

    Parameters
    ----------
    a1, a2 : float
        Range of the inlier risk in which outliers have larger losses.
    a3 : float
        Smallest difference of outlier risk and inlier risk in this range.
    c : float
        Constant of Assumption 3: ``mean(sqrt(loss)) ** 2 <= (1 - c) * risk`` of inliers.
    alpha : float
        Share of outliers.
    delta : float
        Probability that one of the four inequalities fails.
    n0 : int
        Rows in the first batch.
    gamma : float
        Growth of the batch.

    Examples
    --------
    >>> found = Conditions(a1=0.1, a2=0.4, a3=0.3, c=0.3, alpha=0.1, delta=0.05)
    >>> found.longest_run
    46
    >>> round(found.batch(1)), round(found.batch(47))
    (128, 499)
    """

    a1: float
    a2: float
    a3: float
    c: float
    alpha: float
    delta: float
    n0: int = 128
    gamma: float = 1.03

    def batch(self, step: int) -> float:
        """Return the size of the batch in a step, counted from 1."""
        return self.n0 * self.gamma ** (step - 1)

    @property
    def longest_run(self) -> int:
        """Number of steps for which the premise can hold: a risk in [a1, a2 / gamma^(t-1)]."""
        return math.floor(math.log(self.a2 / self.a1) / math.log(self.gamma))

    @property
    def printed_c2(self) -> float:
        """One constant for both deviations of counts; above 1 the bound on inliers is empty."""
        return max(self._deviation(1 - self.alpha), self._deviation(self.alpha))

    @property
    def printed_c3(self) -> float:
        """Printed lower bound of the share of kept inliers in the batch.

        0 if one of its factors is negative, because the proof does not apply then.
        """
        c1 = math.sqrt(math.log(2 / self.delta) / (2 * self.c**2 * (1 - self.alpha) * self.n0))
        return self.c * (1 - self.alpha) * max(1 - c1, 0) * max(1 - self.printed_c2, 0)

    @property
    def printed_c4(self) -> float:
        """Printed upper bound of kept outliers, as a multiple of the first batch."""
        a4 = 2 / (self.a1 * self.a3)
        counted = 4 * self.alpha * (1 + self.printed_c2) * self.a2 * a4
        return counted + math.log(1 / self.delta) / 3

    def outliers(self, step: int) -> float:
        """Return an upper bound of the outliers in a batch, kept or not."""
        size = self.batch(step)
        return self.alpha * size + math.sqrt(size * math.log(2 / self.delta) / 2)

    def kept_inliers(self, step: int) -> float:
        """Return the corrected lower bound of kept inliers; 0 if it is empty."""
        size = self.batch(step)
        inliers = (1 - self.alpha) * size - math.sqrt(size * math.log(2 / self.delta) / 2)
        if inliers <= 0:
            return 0.0
        deviation = math.sqrt(inliers * math.log(2 / self.delta) / 2)
        return max(min_kept_inlier_share(self.c) * inliers - deviation, 0.0)

    def kept_outliers(self, step: int) -> float:
        """Return the corrected upper bound of kept outliers: a share of all outliers."""
        outliers = self.outliers(step)
        kept = max_kept_outlier_share(self.a1, self.a3) * outliers
        return min(kept + math.sqrt(outliers * math.log(1 / self.delta) / 2), outliers)

    def _deviation(self, share: float) -> float:
        return math.sqrt(math.log(2 / self.delta) / (2 * share**2 * self.n0))
