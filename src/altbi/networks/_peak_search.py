"""Training until inliers and outliers are furthest apart: the search of ODIM."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from altbi.networks._interfaces import GenerativeModel
from altbi.networks._training import Adam, batches, finite_loss

__all__ = ["PeakCheck", "Spread", "bimodality", "search_peak"]

Spread = Literal["deviation", "variance"]


@dataclass(frozen=True, slots=True)
class PeakCheck:
    """One look at the losses during the training of one model.

    Attributes
    ----------
    update : int
        Updates of the model so far.
    batch_size : int
        Rows of the batch that was looked at.
    distance : float
        How far the two groups of losses are apart.
    loss : float
        Loss of the last update.
    is_best : bool
        Whether they were never further apart.
    """

    update: int
    batch_size: int
    distance: float
    loss: float
    is_best: bool


def bimodality(losses: Tensor, spread: Spread) -> float:
    """Squared Wasserstein distance between two Gaussians that a mixture finds among the losses.

    Losses are first scaled to [0, 1]. The distance is ``(m1 - m2)^2 + (s1 - s2)^2`` with deviations
    s; the authors' code has variances in their place.

    Examples
    --------
    >>> round(bimodality(torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0]), "deviation"), 3)
    1.0
    """
    # Imported here: nobody else should wait for it.
    from sklearn import config_context
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    low, high = losses.min(), losses.max()
    if not high > low:
        return 0.0
    scaled = ((losses - low) / (high - low)).double().numpy()[:, None]
    mixture = GaussianMixture(2, random_state=0)
    with warnings.catch_warnings(), config_context(array_api_dispatch=False):
        # Two values only, or a search cut short: the distance is as good as any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(scaled)
    first, second = mixture.means_[:, 0]
    variances = mixture.covariances_[:, 0, 0]
    wide, narrow = variances if spread == "variance" else variances**0.5
    return float((first - second) ** 2 + (wide - narrow) ** 2)


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
    """Train the model in place, pass after pass over the rows, until the peak is behind.

    Yields each check, with the model as it was looked at; ends when `patience` updates brought no
    better one.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    # A pass over few rows has fewer batches than there are between two checks.
    every = min(check_every, max(len(rows) // batch_size, 1))
    best, waited, update = -math.inf, 0, 0
    while waited < math.ceil(patience / every) and update < max_updates:
        for number, batch in enumerate(_one_pass(len(rows), batch_size, generator), 1):
            loss = _step(model, optimizer, rows[batch])
            update += 1
            # Few rows are always far apart: a short batch, left over, would win every comparison.
            if number % every or len(batch) < min(batch_size, len(rows)):
                continue
            distance = bimodality(_evaluated(model, rows[batch]), spread)
            waited = 0 if distance > best else waited + 1
            best = max(best, distance)
            value = finite_loss(loss, update, learning_rate)
            yield PeakCheck(update, len(batch), distance, value, is_best=waited == 0)
            if waited >= math.ceil(patience / every) or update >= max_updates:
                return


def _one_pass(n_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """All rows in shuffled batches, but for a single row left over."""
    count = n_rows // batch_size + (n_rows % batch_size > 1)
    return batches(n_rows, batch_size, count, generator)


def _step(model: GenerativeModel, optimizer: Adam, rows: Tensor) -> Tensor:
    model.train()
    loss = model(rows).mean()
    optimizer.lower(loss)
    return loss


@torch.no_grad()
def _evaluated(model: GenerativeModel, rows: Tensor) -> Tensor:
    """Losses as they would be scored, with new draws."""
    model.eval()
    model.redraw()
    return model(rows)
