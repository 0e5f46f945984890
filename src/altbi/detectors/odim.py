"""ODIM: training stops where inliers and outliers are furthest apart."""

from collections.abc import Iterator
from typing import Any, Literal, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.detectors.generative import GenerativeDetector, Ranges, stacked_states
from altbi.detectors.roles import Roles
from altbi.detectors.rules import odim_rules
from altbi.models import IWAE, GenerativeModel, sized_iwae
from altbi.parameters import check_parameters
from altbi.peak import Check, Spread, search_peak
from altbi.threshold import Contamination
from altbi.train import Progress

__all__ = ["ODIM"]


@final
class ODIM(GenerativeDetector):
    """Outlier detection by stopping the training of an autoencoder at the right moment.

    An importance weighted autoencoder learns inliers first. While it trains, the losses of a batch
    are looked at again and again: a mixture of two Gaussians is fitted to them, and where its two
    parts are furthest apart, the model is kept. Several models are trained like that; a row's score
    is the mean of its losses under them.

    Parameters
    ----------
    n_models : int, default=10
        Models whose losses are averaged.
    batch_size : int, default=64
        Rows in a batch.
    check_every : int, default=10
        Updates between two looks at the losses; in a table with fewer batches, one pass over it.
    patience : int, default=100
        Updates without a better look after which training ends.
    max_updates : int, default=10000
        Updates after which training ends in any case, at the next check.
    spread : {"deviation", "variance"}, default='deviation'
        What enters the Wasserstein distance between the two Gaussians beside their means:
        deviations, as the distance is defined, or variances, as in the authors' code.
    draws : int, default=50
        K, the draws of the importance weighted bound.
    hidden : tuple of int or "auto", default='auto'
        Widths of the encoder's hidden layers; "auto" chooses by the number of features.
    latent : int or "auto", default='auto'
        Size of the latent space; "auto" chooses by the number of features.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    weight_decay : float, default=5e-07
        Weight decay of Adam.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=200000
        Rows in the training sample, drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of sample, weights and batches. None takes a new one for each fit. The global random
        state is neither used nor changed.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    checks_ : list of list of Check
        For each model all looks at its losses; not in model files.
    history_ : list of Progress
        Loss at each check, of all models one after the other.
    snapshots_ : dict of str to ndarray
        Weights of the models, each with the models as its first axis.

    All other attributes are those of `altbi.ALTBI`.

    References
    ----------
    Kim, Hwang, Lee, Kim, Kim: ODIM: Outlier detection via likelihood of under-fitted generative
    models. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = ODIM(n_models=2, draws=5).fit(X)
    >>> int(detector.anomaly_score(X).argmax())
    17
    """

    checks_: list[list[Check]]

    def __init__(
        self,
        *,
        n_models: int = 10,
        batch_size: int = 64,
        check_every: int = 10,
        patience: int = 100,
        max_updates: int = 10_000,
        spread: Spread = "deviation",
        draws: int = 50,
        hidden: tuple[int, ...] | Literal["auto"] = "auto",
        latent: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-7,
        contamination: Contamination = "auto",
        max_rows: int = 200_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_models = n_models
        self.batch_size = batch_size
        self.check_every = check_every
        self.patience = patience
        self.max_updates = max_updates
        self.spread = spread
        self.draws = draws
        self.hidden = hidden
        self.latent = latent
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    @classmethod
    def reference(cls, **changes: Any) -> Self:  # noqa: ANN401 - the constructor's arguments
        """Do what the authors' code does: as the plain constructor, with spread = "variance".

        Their code would go on for 1,000 passes over the rows, not for 10,000 updates; and it also
        looks at the short batch that is left over at the end of a pass, which is always best if
        its turn comes.
        """
        return cls(**{"spread": "variance"} | changes)

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401 - any table
        """Learn from a table in which nobody has labelled the bad rows; `y` is not used."""
        for _ in self.fitting(X):
            pass
        return self

    def fitting(self, X: Any) -> Iterator[Progress]:  # noqa: ANN401
        """Fit step by step: yields at each check; fitted when there are no more."""
        yield from self._learning(X)

    def _train(
        self, rows: NDArray[np.float32], roles: Roles | None, seed: int
    ) -> Iterator[Progress]:
        """Search the peak of each model."""
        self.history_, self.checks_, snapshots = [], [], []
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.n_models):
            model = self._fresh_model(rows.shape[1], generator)
            self.checks_.append([])
            for check in self._search(model, torch.from_numpy(rows), generator):
                if check.is_best:
                    best = {name: state.clone() for name, state in model.state_dict().items()}
                self.checks_[-1].append(check)
                step = Progress(len(self.history_), check.batch_size, 1.0, check.loss)
                self.history_.append(step)
                yield step
            snapshots.append(best)
        self.snapshots_ = stacked_states(snapshots)

    def _search(
        self, model: GenerativeModel, rows: Tensor, generator: torch.Generator
    ) -> Iterator[Check]:
        return search_peak(
            model,
            rows,
            batch_size=self.batch_size,
            check_every=self.check_every,
            patience=self.patience,
            max_updates=self.max_updates,
            spread=self.spread,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            generator=generator,
        )

    def _snapshot_count(self) -> int:
        return self.n_models

    @property
    def planned_steps(self) -> None:
        """Not known beforehand: the losses decide."""
        return None

    def _is_whole(self, history: list[Progress]) -> bool:
        return len(history) >= self.n_models

    def _ranges(self, losses: NDArray[np.float32]) -> Ranges:
        return np.zeros(len(losses)), np.ones(len(losses))

    def _blank_model(self, n_units: int) -> IWAE:
        with torch.device("meta"):
            model = sized_iwae(n_units, self.hidden, self.latent, self.draws, bounded=True)
            return model.float()

    def _check_parameters(self) -> None:
        check_parameters(self, odim_rules(self))
