"""The plan of a training run: batch sizes, kept share, snapshots. Pure, no torch."""

import math
from dataclasses import dataclass

from altbi.parameters import check_parameters, is_count, is_number

__all__ = ["Schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The plan of one run of Algorithm 1, fixed before its first update.

    A run has ``T0`` warm-up steps, on batches of ``n0`` rows and with every loss counted, and then
    ``T2`` steps ``t = 1 … T2`` on batches of ``n0 * gamma ** (t - 1)`` rows, of which only the
    share ``rho`` with the smallest losses counts. The model after each step ``t > T1`` is a
    snapshot.

    Parameters
    ----------
    n0 : int, default=128
        Rows in a batch of the warm-up.
    gamma : float, default=1.03
        Growth of the batch from one step to the next.
    rho : float, default=0.92
        Share of a batch that counts; the largest losses are left out.
    T0 : int, default=10
        Warm-up steps.
    T1 : int, default=60
        Last step without a snapshot.
    T2 : int, default=80
        Last step.
    updates : int, default=1
        Updates of the model in each step; the batches of one step do not share rows
        until all rows were used.
    first_truncated : int, default=1
        The step ``t`` from which losses are left out.
    max_batch : int or None, default=None
        Rows beyond which the batch does not grow; None sets no limit.

    Examples
    --------
    >>> plan = Schedule()
    >>> plan.steps, plan.batch_size_at(0, n_rows=5000), plan.batch_size_at(89, n_rows=5000)
    (90, 128, 1322)
    >>> sum(plan.is_snapshot(step) for step in range(plan.steps))
    20
    """

    n0: int = 128
    gamma: float = 1.03
    rho: float = 0.92
    T0: int = 10
    T1: int = 60
    T2: int = 80
    updates: int = 1
    first_truncated: int = 1
    max_batch: int | None = None

    def __post_init__(self) -> None:
        least_batch = self.n0 if is_count(self.n0) else 2
        check_parameters(
            self,
            {
                "n0": (is_count(self.n0, 2), "a whole number of at least 2 rows"),
                "gamma": (is_number(self.gamma, 1), "a growth of at least 1"),
                "rho": (is_number(self.rho, 0, 1) and self.rho > 0, "a share in (0, 1]"),
                "T0": (is_count(self.T0, 0), "a whole number of steps, 0 or more"),
                "T1": (is_count(self.T1, 0), "a whole number of steps, 0 or more"),
                "T2": (
                    is_count(self.T2) and (not is_count(self.T1, 0) or self.T2 > self.T1),
                    f"a whole number above T1={self.T1}, so that there is a snapshot",
                ),
                "updates": (is_count(self.updates), "a whole number of at least 1"),
                "first_truncated": (is_count(self.first_truncated), "a step, 1 or later"),
                "max_batch": (
                    self.max_batch is None or is_count(self.max_batch, least_batch),
                    f"a whole number of at least n0={self.n0} rows, or None",
                ),
            },
        )

    @property
    def steps(self) -> int:
        """Steps of the whole run, warm-up included."""
        return self.T0 + self.T2

    def batch_size_at(self, step: int, n_rows: int) -> int:
        """Rows in a batch of step 0, 1, …; never more than the table has."""
        growing = max(step - self.T0, 0)
        most = n_rows if self.max_batch is None else min(self.max_batch, n_rows)
        # The logarithm first: a long run with a large gamma must not overflow.
        if growing * math.log(self.gamma) > math.log(max(most, 1)):
            return most
        return min(int(self.n0 * self.gamma**growing), most)

    def kept_share_at(self, step: int) -> float:
        """Share of a batch whose losses count."""
        return self.rho if self._t(step) >= self.first_truncated else 1.0

    def is_snapshot(self, step: int) -> bool:
        """Tell whether the model after this step takes part in the score."""
        return self._t(step) > self.T1

    def _t(self, step: int) -> int:
        """Count as the paper does: 1 is the first step after the warm-up."""
        return step - self.T0 + 1
