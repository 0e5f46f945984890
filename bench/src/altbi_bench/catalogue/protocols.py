"""Protocols: which rows a system is fitted on, and which rows it scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ParameterError
from altbi_bench.catalogue.datasets import Dataset, Labels, Rows

__all__ = ["PROTOCOLS", "Protocol", "Split", "find_protocol", "sample_table"]

Indices = NDArray[np.intp]

DTE_MIN_ROWS, DTE_MAX_ROWS = 1_000, 50_000
EMBEDDINGS_OUTLIER_SHARE = 0.05


@final
@dataclass(frozen=True, slots=True)
class Split:
    """Indices of rows; a row may occur several times.

    Parameters
    ----------
    train : ndarray
        Rows to fit on.
    test : ndarray
        Rows to score.
    scale : ndarray or None
        Rows whose means and standard deviations standardise both; None: those of the fit.
    """

    train: Indices
    test: Indices
    scale: Indices | None = None

    @property
    def scores_training_rows(self) -> bool:
        """Whether the rows to score are those of the fit."""
        return self.train is self.test


@final
@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to evaluate detectors.

    Parameters
    ----------
    split : callable
        Function of labels, data set and seed that returns the rows of the fit and of the test.
    setting : {"unsupervised", "semisupervised"}
        Whether the rows of the fit may contain outliers; the paper has tables for both.
    about : str
        Description in one sentence.
    published : tuple of str
        Which of the paper's numbers come from this protocol, as far as is known: "own systems" or
        "baselines", with a measure or a kind of data if only that can be compared.
    seeded : bool
        Whether the rows depend on the seed, too.
    """

    split: Callable[[Labels, Dataset, int], Split]
    setting: str
    about: str
    published: tuple[str, ...] = ()
    seeded: bool = True

    def is_source_of(self, own: bool, metric: str, kind: str) -> bool:
        """Return whether the paper's column of an own system, or of a baseline, comes from it."""
        group = "own systems" if own else "baselines"
        return bool({group, f"{group}, {metric}", f"{group}, {kind}"} & set(self.published))


def _all_rows(y: Labels, dataset: Dataset, seed: int) -> Split:
    everything = np.arange(len(y))
    return Split(everything, everything)


def _official(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Return all inliers and as many outliers as the authors' shares allow."""
    inliers, outliers = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    if dataset.official_outliers is None:
        keep = int(len(inliers) * EMBEDDINGS_OUTLIER_SHARE / (1 - EMBEDDINGS_OUTLIER_SHARE))
    else:  # a sample keeps the same share
        total = sum(each.n_outliers or 0 for each in dataset.files) or len(outliers)
        keep = round(dataset.official_outliers * len(outliers) / total)
    kept = np.random.default_rng(seed).choice(outliers, min(keep, len(outliers)), replace=False)
    rows = np.sort(np.concatenate([inliers, kept]))
    return Split(rows, rows)


def _dte(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Resample small files to 1,000 rows, cut large ones, and fit on a bootstrap of the rest.

    Random numbers are those of numpy's legacy generator, in the order of DTE's published code.
    """
    state = np.random.RandomState(seed)
    test = _dte_rows(len(y), state)
    state.choice(np.flatnonzero(y[test] == 1), 0, replace=False)  # advances the generator
    train = test[state.choice(len(test), len(test), replace=True)]
    return Split(train, test, scale=test)


def _dte_semi(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Fit on the first half of the inliers in the order of the file, resampled as in `dte`."""
    rows = _dte_rows(len(y), np.random.RandomState(seed))
    inliers, outliers = rows[y[rows] == 0], rows[y[rows] == 1]
    half = round(0.5 * len(inliers))
    return Split(train=inliers[:half], test=np.concatenate([inliers[half:], outliers]))


def _dte_rows(n: int, state: np.random.RandomState) -> Indices:
    if n < DTE_MIN_ROWS:
        return state.choice(n, DTE_MIN_ROWS, replace=True)
    if n > DTE_MAX_ROWS:
        return state.choice(n, DTE_MAX_ROWS, replace=False)
    return np.arange(n)


def _inliers_only(train_share: float, dropped_share: float) -> Callable[..., Split]:
    """Return a split that fits on a share of the inliers and drops a share of the outliers."""

    def split(y: Labels, dataset: Dataset, seed: int) -> Split:
        generator = np.random.default_rng(seed)
        inliers, outliers = (generator.permutation(np.flatnonzero(y == label)) for label in (0, 1))
        n_train, n_dropped = round(train_share * len(inliers)), round(dropped_share * len(outliers))
        test = np.concatenate([inliers[n_train:], outliers[n_dropped:]])
        return Split(np.sort(inliers[:n_train]), np.sort(test))

    return split


def _contaminated(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Fit on 70 % of the rows, outliers among them, and score the other 30 %."""
    generator = np.random.default_rng(seed)
    classes = [generator.permutation(np.flatnonzero(y == label)) for label in (0, 1)]
    cuts = [round(0.7 * len(rows)) for rows in classes]
    train = np.concatenate([rows[:cut] for rows, cut in zip(classes, cuts, strict=True)])
    test = np.concatenate([rows[cut:] for rows, cut in zip(classes, cuts, strict=True)])
    return Split(np.sort(train), np.sort(test))


PROTOCOLS = {
    "transductive": Protocol(
        _all_rows,
        "unsupervised",
        "fitted on all rows without labels, scores the same rows",
        # The authors dropped few outliers of tables, but kept only 5 % in images and texts.
        ("own systems, table",),
        seeded=False,
    ),
    "official": Protocol(
        _official,
        "unsupervised",
        "as transductive, after outliers were dropped by the authors' pollution rule",
        ("own systems",),
    ),
    "dte": Protocol(
        _dte,
        "unsupervised",
        "files resampled to 1,000 to 50,000 rows, fitted on a bootstrap of them, scores them",
        ("baselines",),
    ),
    "semi": Protocol(
        _inliers_only(0.7, 0.0),
        "semisupervised",
        "fitted on 70 % of the inliers, scores the other 30 % and all outliers",
        ("own systems, auc",),
    ),
    "semi-code": Protocol(
        _inliers_only(0.6, 0.6),
        "semisupervised",
        "the authors' split: fitted on 60 % of the inliers, scores 40 % of each class",
        ("own systems",),
    ),
    "semi-dte": Protocol(
        _dte_semi,
        "semisupervised",
        "fitted on the first half of the inliers in file order, scores the others",
        ("baselines",),
    ),
    "split": Protocol(
        _contaminated,
        "unsupervised",
        "fitted on 70 % of the rows with their outliers, scores the other 30 %",
    ),
}


def find_protocol(name: str) -> Protocol:
    """Return a protocol by name."""
    if name not in PROTOCOLS:
        raise ParameterError(
            f"No protocol is called {name!r}. Expected one of: {', '.join(PROTOCOLS)}."
        )
    return PROTOCOLS[name]


def sample_table(X: Rows, y: Labels, max_rows: int | None) -> tuple[Rows, Labels]:
    """Return a sample of a large table, the same for every system and seed.

    The share of outliers and the order of rows do not change.
    """
    if max_rows is None or len(y) <= max_rows:
        return X, y
    generator = np.random.default_rng(0)
    n_outliers = max(1, round(max_rows * int(y.sum()) / len(y)))
    sizes = {0: max_rows - n_outliers, 1: n_outliers}
    chosen = [
        generator.choice(np.flatnonzero(y == label), size, replace=False)
        for label, size in sizes.items()
    ]
    rows = np.sort(np.concatenate(chosen))
    return X[rows], y[rows]
