"""ODIM's training: stop where the losses of inliers and outliers differ most."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from altbi._threads import single_blas_thread
from altbi.networks._backbone import Backbone, Losses, Rows, TrainedNetwork
from altbi.networks._schedule import TrainingStep
from altbi.networks._snapshots import stack_states
from altbi.networks._training import Labels, Steps, average_smallest, check_loss, iter_batches

Spread = Literal["deviation", "variance"]

# The rule for the mixture of two Gaussians is that of scikit-learn's GaussianMixture.
_MAX_EM_STEPS = 100
_EM_TOLERANCE = 1e-3
_MIN_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class OdimTraining:
    """ODIM's training: several networks, each kept where its losses are most bimodal.

    The attributes are the parameters of `altbi.ODIM`.
    """

    backbone: Backbone
    n_models: int
    batch_size: int
    check_every: int
    patience: int
    max_updates: int
    spread: Spread

    @property
    def planned_steps(self) -> None:
        """None: the number of steps is not known, because the losses decide when training ends."""
        return

    def run(self, rows: Rows, labels: Labels | None, seed: int, *, sized_for: int | None) -> Steps:
        """Train `n_models` networks one after the other, and return the best state of each.

        Yield at each check of the losses, with check numbers that continue over all networks. The
        result has the networks as first axis of each array. Labels are not used.
        """
        generator = np.random.default_rng(seed)
        snapshots, n_checks = [], 0
        for _ in range(self.n_models):
            network = self.backbone.start_training(rows.shape[1], generator, sized_for=sized_for)
            for check in train_until_peak(
                network,
                rows,
                batch_size=self.batch_size,
                check_every=self.check_every,
                patience=self.patience,
                max_updates=self.max_updates,
                spread=self.spread,
                generator=generator,
            ):
                if check.is_best:
                    best = network.copy_state()
                yield TrainingStep(n_checks, check.batch_size, 1.0, check.loss)
                n_checks += 1
            snapshots.append(best)
        return stack_states(snapshots)

    def count_snapshots(self, history: Sequence[TrainingStep]) -> int:
        """Return the number of networks; each has one snapshot, whatever the history."""
        return self.n_models

    def is_complete(self, history: Sequence[TrainingStep]) -> bool:
        """Return whether there is at least one check for each network."""
        return len(history) >= self.n_models


@dataclass(frozen=True, slots=True)
class PeakCheck:
    """One evaluation of the losses during training."""

    update: int  # number of updates so far
    batch_size: int  # rows of the evaluated batch
    distance: float  # bimodality of the losses of that batch
    loss: float  # of the last update
    is_best: bool  # whether the bimodality is the largest so far


def compute_bimodality(losses: Losses, spread: Spread) -> float:
    """Compute the squared Wasserstein distance of the two components of a Gaussian mixture.

    The mixture is fitted to the losses, scaled to [0, 1]. The distance is
    ``(m1 - m2)**2 + (s1 - s2)**2`` with means m and standard deviations s. With
    ``spread="variance"``, as in the authors' code, s are variances. If all losses are equal, or if
    one is NaN, the result is 0.
    """
    low, high = float(losses.min()), float(losses.max())
    if not high > low:
        return 0.0
    means, variances = fit_two_gaussians((losses.astype(np.float64) - low) / (high - low))
    spreads = variances if spread == "variance" else np.sqrt(variances)
    return float((means[0] - means[1]) ** 2 + (spreads[0] - spreads[1]) ** 2)


def fit_two_gaussians(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a mixture of two Gaussians to values by EM; return its means and variances ``(2,)``.

    It starts from the two clusters with the smallest sum of squares, and ends after 100 steps or
    when the mean log-likelihood changes by less than 0.001. It is written out because importing
    scikit-learn's mixture takes longer than the training of a small table.
    """
    ordered = np.sort(values)
    is_high = values > ordered[_find_best_split(ordered) - 1]
    mixture = _estimate_mixture(np.stack([~is_high, is_high]).astype(np.float64), values)
    before = -math.inf
    for _ in range(_MAX_EM_STEPS):
        sizes, means, variances = mixture
        log_shares = (
            np.log(sizes / len(values))
            - np.log(2 * np.pi * variances) / 2
            - (values - means) ** 2 / (2 * variances)
        )
        log_densities = np.logaddexp(*log_shares)
        mixture = _estimate_mixture(np.exp(log_shares - log_densities), values)
        mean = float(log_densities.mean())
        if abs(mean - before) < _EM_TOLERANCE:
            break
        before = mean
    return mixture[1].ravel(), mixture[2].ravel()


def _estimate_mixture(
    shares: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return sizes, means and variances ``(2, 1)`` of two Gaussians, given each value's shares.

    `shares` ``(2, n_values)`` are the probabilities with which each value belongs to each of them.
    """
    sizes = shares.sum(axis=1, keepdims=True) + 10 * np.finfo(np.float64).eps
    means = (shares * values).sum(axis=1, keepdims=True) / sizes
    squares = (shares * (values - means) ** 2).sum(axis=1, keepdims=True)
    return sizes, means, squares / sizes + _MIN_VARIANCE


def _find_best_split(ordered: NDArray[np.float64]) -> int:
    """Return how many of the ascending values form the lower one of the two best clusters.

    The best two clusters have the smallest sum of squared distances from their means.
    """
    sizes = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)[:-1]
    total = ordered.sum()
    # The sum of squares within clusters is smallest where the sum between them is largest.
    between = sums**2 / sizes + (total - sums) ** 2 / (len(ordered) - sizes)
    return int(sizes[between.argmax()])


def train_until_peak(
    network: TrainedNetwork,
    rows: Rows,
    *,
    batch_size: int,
    check_every: int,
    patience: int,
    max_updates: int,
    spread: Spread,
    generator: np.random.Generator,
) -> Iterator[PeakCheck]:
    """Train a network in place until the bimodality of its losses has passed its maximum.

    Yield each check while the network has the weights of that check. Losses are checked every
    `check_every` updates, and at least once in each epoch. End after about `patience` updates
    without a larger bimodality, or after `max_updates`. Raise a `TrainingError` if the loss is not
    finite.
    """
    # An epoch over few rows has fewer batches than `check_every`.
    every = min(check_every, max(len(rows) // batch_size, 1))
    best, waited, update = -math.inf, 0, 0
    while waited < math.ceil(patience / every) and update < max_updates:
        for number, batch in enumerate(_iter_epoch(len(rows), batch_size, generator), 1):
            with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                loss = network.update(rows[batch], lambda losses: average_smallest(losses, 1.0))
            update += 1
            # The last, smaller batch is skipped: few losses always look bimodal.
            if number % every or len(batch) < min(batch_size, len(rows)):
                continue
            with single_blas_thread():
                network.resample_noise()
                distance = compute_bimodality(network.evaluate_losses(rows[batch]), spread)
            waited = 0 if distance > best else waited + 1
            best = max(best, distance)
            value = check_loss(loss, update)
            yield PeakCheck(update, len(batch), distance, value, is_best=waited == 0)
            if waited >= math.ceil(patience / every) or update >= max_updates:
                return


def _iter_epoch(
    n_rows: int, batch_size: int, generator: np.random.Generator
) -> Iterator[NDArray[np.intp]]:
    """Return an iterator over shuffled batches of row indices for one epoch.

    The last batch may be smaller; it is left out if it would have a single row.
    """
    count = n_rows // batch_size + (n_rows % batch_size > 1)
    return iter_batches(n_rows, batch_size, count, generator)
