"""ODIM, the method that ALTBI builds on."""

from typing import final

from altbi.detectors._base import Detector
from altbi.model._settings import RandomState
from altbi.model._threshold import Contamination
from altbi.networks import IWAE, Spread


@final
class ODIM(Detector):
    """Detect outliers by stopping the training of an autoencoder at the right moment.

    An importance weighted autoencoder learns inliers first. At regular checks during training, a
    mixture of two Gaussians is fitted to the losses of a batch. The network is kept from the check
    at which the two Gaussians are furthest from each other. Several networks are trained like that.
    The score of a row is its mean loss.

    Parameters
    ----------
    n_models : int, default=10
        Number of networks.
    batch_size : int, default=64
        Rows of a batch.
    check_every : int, default=10
        Updates between two checks, or one pass over the table if that has fewer batches.
    patience : int, default=100
        Updates without a better check after which training ends.
    max_updates : int, default=10000
        Updates after which training ends at the next check.
    spread : {"deviation", "variance"}, default='deviation'
        Second term of the distance between the two Gaussians: the difference of their standard
        deviations, as the Wasserstein distance is defined, or of their variances, as in the
        authors' code.
    backbone : IWAE or None, default=None
        The network. None is ``IWAE(n_samples=50)``.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold. "auto" estimates it from the scores.
    max_rows : int, default=200000
        Largest number of rows in the training sample, which is drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of the fit. None draws a new one for each fit.

    Attributes
    ----------
    model_ : FittedModel
        The fitted model.
    offset_ : float
        Threshold for `score_samples`: rows below it are outliers.
    encoder_ : TableEncoder
        Converts columns to numbers.
    history_ : tuple of TrainingStep
        Loss at each check, of all networks one after the other.
    n_features_in_ : int
        Number of columns of the training table.
    feature_names_in_ : ndarray of str
        Names of these columns, if the table had names.

    References
    ----------
    Kim, Hwang, Lee, Kim, Kim: ODIM: Outlier detection via likelihood of under-fitted generative
    models. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from altbi import IWAE, ODIM
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = ODIM(n_models=2, backbone=IWAE(n_samples=5)).fit(X)
    >>> int(detector.outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        n_models: int = 10,
        batch_size: int = 64,
        check_every: int = 10,
        patience: int = 100,
        max_updates: int = 10_000,
        spread: Spread = "deviation",
        backbone: IWAE | None = None,
        contamination: Contamination = "auto",
        max_rows: int = 200_000,
        random_state: RandomState = 0,
    ) -> None:
        self.n_models = n_models
        self.batch_size = batch_size
        self.check_every = check_every
        self.patience = patience
        self.max_updates = max_updates
        self.spread = spread
        self.backbone = backbone
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state
