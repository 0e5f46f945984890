"""ODIM's training: stop where the losses of inliers and outliers differ most."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from altbi.networks._interfaces import GenerativeModel
from altbi.networks._training import Adam, check_loss, iter_batches

Spread = Literal["deviation", "variance"]


@dataclass(frozen=True, slots=True)
class PeakCheck:
    """One evaluation of the losses during training.

    Attributes
    ----------
    update : int
        Number of updates so far.
    batch_size : int
        Rows of the evaluated batch.
    distance : float
        Bimodality of the losses of that batch.
    loss : float
        Loss of the last update.
    is_best : bool
        Whether the bimodality is the largest so far.
    """

    update: int
    batch_size: int
    distance: float
    loss: float
    is_best: bool


def compute_bimodality(losses: Tensor, spread: Spread) -> float:
    """Compute the squared Wasserstein distance of the two components of a Gaussian mixture.

    The mixture is fitted to the losses, scaled to [0, 1]. The distance is
    ``(m1 - m2)**2 + (s1 - s2)**2`` with means m and standard deviations s. With
    ``spread="variance"``, as in the authors' code, s are variances. If all losses are equal, or if
    one is NaN, the result is 0. Convergence warnings of the mixture are suppressed.

    Examples
    --------
    >>> round(compute_bimodality(torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0]), "deviation"), 3)
    1.0
    """
    # Imported here because only ODIM needs it and the import is slow.
    from sklearn import config_context
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    low, high = losses.min(), losses.max()
    if not high > low:
        return 0.0
    scaled = ((losses - low) / (high - low)).double().numpy()[:, None]
    mixture = GaussianMixture(2, random_state=0)
    with warnings.catch_warnings(), config_context(array_api_dispatch=False):
        # A mixture that has not converged is good enough to compare checks.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(scaled)
    mean1, mean2 = mixture.means_[:, 0]
    variances = mixture.covariances_[:, 0, 0]
    spread1, spread2 = variances if spread == "variance" else variances**0.5
    return float((mean1 - mean2) ** 2 + (spread1 - spread2) ** 2)


def search_peak(
    model: GenerativeModel,
    rows: Tensor,
    *,
    batch_size: int,
    check_every: int,
    patience: int,
    max_updates: int,
    spread: Spread,
    learning_rate: float,
    weight_decay: float,
    generator: torch.Generator,
) -> Iterator[PeakCheck]:
    """Train a network in place until the bimodality of its losses has passed its maximum.

    Yield each check while the network has the weights of that check. Losses are checked every
    `check_every` updates, and at least once in each epoch. End after about `patience` updates
    without a larger bimodality, or after `max_updates`. Raise a `TrainingError` if the loss is not
    finite.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    # An epoch over few rows has fewer batches than `check_every`.
    every = min(check_every, max(len(rows) // batch_size, 1))
    best, waited, update = -math.inf, 0, 0
    while waited < math.ceil(patience / every) and update < max_updates:
        for number, batch in enumerate(_iter_epoch(len(rows), batch_size, generator), 1):
            loss = _update_on_batch(model, optimizer, rows[batch])
            update += 1
            # The last, smaller batch is skipped: few losses always look bimodal.
            if number % every or len(batch) < min(batch_size, len(rows)):
                continue
            distance = compute_bimodality(_evaluate_losses(model, rows[batch]), spread)
            waited = 0 if distance > best else waited + 1
            best = max(best, distance)
            value = check_loss(loss, update, learning_rate)
            yield PeakCheck(update, len(batch), distance, value, is_best=waited == 0)
            if waited >= math.ceil(patience / every) or update >= max_updates:
                return


def _iter_epoch(n_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Return an iterator over shuffled batches of row indices for one epoch.

    The last batch may be smaller; it is left out if it would have a single row.
    """
    count = n_rows // batch_size + (n_rows % batch_size > 1)
    return iter_batches(n_rows, batch_size, count, generator)


def _update_on_batch(model: GenerativeModel, optimizer: Adam, rows: Tensor) -> Tensor:
    """Set training mode, update the network on a batch, and return the mean loss."""
    model.train()
    loss = model(rows).mean()
    optimizer.minimize(loss)
    return loss


@torch.no_grad()
def _evaluate_losses(model: GenerativeModel, rows: Tensor) -> Tensor:
    """Set evaluation mode, resample the noise for scoring, and return the losses ``(n_rows,)``."""
    model.eval()
    model.resample_noise()
    return model(rows)
