"""The constants of Propositions 1 and 2, as printed and as they have to be.

Losses lie in [0, 1], the threshold is the inlier risk, and batches grow. docs/benchmark/theory.md
says
what is wrong with the printed ones, and what is left.
"""

import math
from dataclasses import dataclass
from typing import final

__all__ = ["Conditions", "least_kept_inliers", "most_kept_outliers", "rates_of_learning"]


def least_kept_inliers(c: float) -> float:
    """Return the share of inliers whose loss is at most the inlier risk, under Assumption 3.

    Markov's inequality for the root of the loss gives ``1 - sqrt(1 - c)``, not `c`.

    Examples
    --------
    >>> least_kept_inliers(0.75)
    0.5
    """
    return 1 - math.sqrt(1 - c)


def most_kept_outliers(risk: float, gap: float) -> float:
    """Bound the share of outliers whose loss is at most the inlier risk, under Assumption 1.

    Markov's inequality for one minus the loss: their risk exceeds that of inliers by the gap.

    Examples
    --------
    >>> round(most_kept_outliers(risk=0.2, gap=0.4), 3)
    0.5
    """
    return max(1 - gap / (1 - risk), 0.0)


def rates_of_learning(
    conditions: "Conditions", slope: float, sharpness: float
) -> tuple[float, float]:
    """Return the bounds of the printed interval of learning rates of Proposition 2.

    Where the lower end exceeds the upper one, there is no such rate. `slope` bounds gradients (G),
    `sharpness` is the constant mu of the Polyak-Lojasiewicz condition; where a risk of a2 occurs,
    it is at most ``slope**2 / (2 * a2)``.
    """
    low = (1 - 1 / (2 * conditions.gamma)) / sharpness
    noise = 1 / (conditions.delta * conditions.n0) + conditions.printed_c4
    high = conditions.a2 * conditions.printed_c3 / (4 * conditions.gamma * slope**2 * noise)
    return low, high


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The assumptions of Proposition 1, and its bounds.

    Parameters
    ----------
    a1, a2 : float
        Range of the inlier risk in which there is a gap.
    a3 : float
        The gap: the outlier risk exceeds the inlier risk by at least that.
    c : float
        Constant of Assumption 3: ``mean(sqrt(loss)) ** 2 <= (1 - c) * risk`` of inliers.
    alpha : float
        Share of outliers.
    delta : float
        Probability with which one of the four inequalities may fail.
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
        """Steps for which the premise can hold: it wants a risk in [a1, a2 / gamma^(t-1)]."""
        return math.floor(math.log(self.a2 / self.a1) / math.log(self.gamma))

    @property
    def printed_c2(self) -> float:
        """One constant for both deviations of counts; above 1 the bound on inliers is void."""
        return max(self._deviation(1 - self.alpha), self._deviation(self.alpha))

    @property
    def printed_c3(self) -> float:
        """Share of the batch that is kept and inliers, as printed: at least that, it is said.

        0 where one of its factors is negative: the steps of the proof then say nothing.
        """
        c1 = math.sqrt(math.log(2 / self.delta) / (2 * self.c**2 * (1 - self.alpha) * self.n0))
        return self.c * (1 - self.alpha) * max(1 - c1, 0) * max(1 - self.printed_c2, 0)

    @property
    def printed_c4(self) -> float:
        """Kept outliers as a multiple of the first batch, as printed: at most that."""
        a4 = 2 / (self.a1 * self.a3)
        counted = 4 * self.alpha * (1 + self.printed_c2) * self.a2 * a4
        return counted + math.log(1 / self.delta) / 3

    def outliers(self, step: int) -> float:
        """Bound the outliers in a batch, kept or not."""
        size = self.batch(step)
        return self.alpha * size + math.sqrt(size * math.log(2 / self.delta) / 2)

    def kept_inliers(self, step: int) -> float:
        """Bound the inliers that are kept from below, mended; 0 where nothing can be said."""
        size = self.batch(step)
        inliers = (1 - self.alpha) * size - math.sqrt(size * math.log(2 / self.delta) / 2)
        if inliers <= 0:
            return 0.0
        deviation = math.sqrt(inliers * math.log(2 / self.delta) / 2)
        return max(least_kept_inliers(self.c) * inliers - deviation, 0.0)

    def kept_outliers(self, step: int) -> float:
        """Bound the outliers that are kept from above, mended: a share of all, not a constant."""
        outliers = self.outliers(step)
        kept = most_kept_outliers(self.a1, self.a3) * outliers
        return min(kept + math.sqrt(outliers * math.log(1 / self.delta) / 2), outliers)

    def _deviation(self, share: float) -> float:
        return math.sqrt(math.log(2 / self.delta) / (2 * share**2 * self.n0))
