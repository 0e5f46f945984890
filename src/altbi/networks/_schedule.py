"""The schedule of ALTBI's training, which is Algorithm 1 of the paper."""

import math
from typing import Literal, Self

import msgspec

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number, is_share


class Schedule(ParameterObject):
    """Batch sizes, truncation and snapshots of one training run of ALTBI.

    A run has ``T0`` warm-up steps on batches of ``n0`` rows in which every loss counts. The steps
    ``t = 1, ..., T2`` follow, on batches of ``n0 * gamma ** (t - 1)`` rows. In these steps, only
    the share ``rho`` of smallest losses counts. The network after each step ``t > T1`` is a
    snapshot. The defaults are those of the authors' code.

    Parameters
    ----------
    n0 : int, default=128
        Rows of a batch in the warm-up.
    gamma : float, default=1.03
        Factor by which the batch grows from one step to the next.
    rho : float, default=0.92
        Share of a batch whose losses count. The largest losses are left out.
    T0 : int, default=10
        Number of warm-up steps.
    T1 : int, default=61
        Last step without a snapshot, counted after the warm-up.
    T2 : int, default=80
        Last step, counted after the warm-up.
    updates : int or "auto", default='auto'
        Updates of the network in each step. "auto" is 5 where the loss is the score, 2 where the
        loss only selects reference rows, and 1 under a privacy budget. The batches of one step do
        not share rows until all rows were used.
    first_truncated : int, default=2
        First step ``t`` in which the largest losses are left out.
    max_batch : int or None, default=None
        Largest batch. None sets no limit.

    Examples
    --------
    >>> from altbi import Schedule
    >>> schedule = Schedule(T0=10, T2=80)
    >>> schedule.n_steps, schedule.batch_size_at(0, n_rows=5000)
    (90, 128)
    >>> schedule.batch_size_at(89, n_rows=5000)
    1322
    >>> sum(schedule.is_snapshot(step) for step in range(schedule.n_steps))
    19
    """

    def __init__(
        self,
        *,
        n0: int = 128,
        gamma: float = 1.03,
        rho: float = 0.92,
        T0: int = 10,
        T1: int = 61,
        T2: int = 80,
        updates: int | Literal["auto"] = "auto",
        first_truncated: int = 2,
        max_batch: int | None = None,
    ) -> None:
        self.n0 = n0
        self.gamma = gamma
        self.rho = rho
        self.T0 = T0
        self.T1 = T1
        self.T2 = T2
        self.updates = updates
        self.first_truncated = first_truncated
        self.max_batch = max_batch

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        min_batch = self.n0 if is_count(self.n0) else 2
        exceeds_T1 = not is_count(self.T1, 0) or self.T1 < self.T2
        rules = {
            "n0": (is_count(self.n0, 2), "a whole number of at least 2 rows"),
            "gamma": (is_number(self.gamma, 1), "a number of at least 1"),
            "rho": (is_share(self.rho), "a share in (0, 1]"),
            "T0": (is_count(self.T0, 0), "a whole number of at least 0 steps"),
            "T1": (is_count(self.T1, 0), "a whole number of at least 0 steps"),
            "T2": (
                is_count(self.T2) and exceeds_T1,
                f"a whole number above T1={self.T1}, so that there is a snapshot",
            ),
            "updates": (
                self.updates == "auto" or is_count(self.updates),
                "'auto' or a whole number of at least 1",
            ),
            "first_truncated": (is_count(self.first_truncated), "a whole number of at least 1"),
            "max_batch": (
                self.max_batch is None or is_count(self.max_batch, min_batch),
                f"a whole number of at least n0={self.n0} rows, or None",
            ),
        }
        check_parameters("Schedule", self.get_params(), rules)

    def resolve_updates(self, auto: int) -> Self:
        """Return a copy whose `updates` is the given number if it was "auto".

        Other values of `updates` do not change.

        Parameters
        ----------
        auto : int
            Updates in each step that "auto" stands for.

        Returns
        -------
        Schedule
            The copy.
        """
        return self._copy_with(updates=auto) if self.updates == "auto" else self._copy_with()

    @property
    def n_steps(self) -> int:
        """Number of steps, including the warm-up."""
        return self.T0 + self.T2

    @property
    def n_snapshots(self) -> int:
        """Number of snapshots of a run: one after each step from ``T1 + 1`` to ``T2``."""
        return self.T2 - self.T1

    @property
    def n_updates(self) -> int:
        """Number of updates in each step; 1 if `updates` is still "auto"."""
        return 1 if self.updates == "auto" else self.updates

    def batch_size_at(self, step: int, n_rows: int) -> int:
        """Return the batch size of a step, at most `n_rows` and `max_batch`.

        Parameters
        ----------
        step : int
            Step, counted from 0 with the warm-up.
        n_rows : int
            Rows of the table.

        Returns
        -------
        int
            Rows of a batch.
        """
        exponent = max(step - self.T0, 0)
        limit = n_rows if self.max_batch is None else min(self.max_batch, n_rows)
        # Logarithms are compared first, because gamma**exponent may overflow.
        if exponent * math.log(self.gamma) > math.log(max(limit, 1)):
            return limit
        return min(int(self.n0 * self.gamma**exponent), limit)

    def kept_share_at(self, step: int) -> float:
        """Return the share of a batch whose losses count in a step.

        Parameters
        ----------
        step : int
            Step, counted from 0 with the warm-up.

        Returns
        -------
        float
            1 before the truncation starts, then `rho`.
        """
        return self.rho if self._count_after_warm_up(step) >= self.first_truncated else 1.0

    def is_snapshot(self, step: int) -> bool:
        """Return whether the network after this step is a snapshot.

        Parameters
        ----------
        step : int
            Step, counted from 0 with the warm-up.

        Returns
        -------
        bool
            Whether the step comes after `T1`.
        """
        return self._count_after_warm_up(step) > self.T1

    def _count_after_warm_up(self, step: int) -> int:
        """Return a step as the paper counts it: 1 is the first after the warm-up, 0 the one before.

        `step` is counted from 0, including the warm-up.
        """
        return step - self.T0 + 1


class TrainingStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a training run."""

    step: int  # counted from 0
    batch_size: int  # rows of a batch
    kept: float  # share of the batch whose losses counted
    loss: float | None  # mean loss of the last batch; None under a privacy budget: not released
