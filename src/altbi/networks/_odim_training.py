"""ODIM's training: stop where the losses of inliers and outliers differ most."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.networks._generative_model import Backbone, GenerativeModel, copy_state, stack_states
from altbi.networks._schedule import TrainingStep
from altbi.networks._training import Adam, Steps, check_loss, iter_batches

Spread = Literal["deviation", "variance"]


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
        """None, because the losses decide when training ends."""
        return

    def run(
        self,
        model: GenerativeModel,
        untrained: GenerativeModel,
        rows: NDArray[np.float32],
        labels: NDArray[np.int8] | None,
        seed: int,
    ) -> Steps:
        """Train `n_models` networks one after the other, and return the best state of each.

        Yield at each check, with check numbers that continue over all networks. Each network is
        initialized again in `model` and trained on the CPU. `untrained` and `labels` are not used.
        """
        generator = torch.Generator().manual_seed(seed)
        snapshots, n_checks = [], 0
        for _ in range(self.n_models):
            model.initialize(generator)
            for check in search_peak(
                model,
                torch.from_numpy(rows),
                batch_size=self.batch_size,
                check_every=self.check_every,
                patience=self.patience,
                max_updates=self.max_updates,
                spread=self.spread,
                learning_rate=self.backbone.resolve_learning_rate(),
                weight_decay=self.backbone.weight_decay,
                generator=generator,
            ):
                if check.is_best:
                    best = copy_state(model)
                yield TrainingStep(n_checks, check.batch_size, 1.0, check.loss)
                n_checks += 1
            snapshots.append(best)
        return stack_states(snapshots)

    def count_snapshots(self, history: Sequence[TrainingStep]) -> int:
        """Return the number of networks; each has one snapshot."""
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


def compute_bimodality(losses: Tensor, spread: Spread) -> float:
    """Compute the squared Wasserstein distance of the two components of a Gaussian mixture.

    The mixture is fitted to the losses, scaled to [0, 1]. The distance is
    ``(m1 - m2)**2 + (s1 - s2)**2`` with means m and standard deviations s. With
    ``spread="variance"``, as in the authors' code, s are variances. If all losses are equal, or if
    one is NaN, the result is 0. Convergence warnings of the mixture are suppressed.
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
