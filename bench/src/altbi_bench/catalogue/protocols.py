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

DTE_FEWEST, DTE_MOST = 1_000, 50_000
EMBEDDINGS_POLLUTION = 0.05


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
        Rows whose means and deviations standardise both; None: those of the fit.
    """

    train: Indices
    test: Indices
    scale: Indices | None = None

    @property
    def scores_its_own(self) -> bool:
        """Whether the rows to score are those of the fit."""
        return self.train is self.test


@final
@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to evaluate detectors.

    Parameters
    ----------
    split : callable
        From labels, the data set and a seed to the rows of the fit and of the test.
    setting : {"unsupervised", "semisupervised"}
        Whether the rows of the fit may hold outliers; the paper has a table for each.
    about : str
        What is done, in a sentence.
    published : tuple of str
        What the paper's numbers were made by this protocol, as far as is known: "own systems",
        "baselines"; with a measure or a kind of data where only that can be compared.
    seeded : bool
        Whether the seed moves the rows too, not only the system.
    """

    split: Callable[[Labels, Dataset, int], Split]
    setting: str
    about: str
    published: tuple[str, ...] = ()
    seeded: bool = True

    def is_that_of(self, own: bool, metric: str, kind: str) -> bool:
        """Whether the paper's column of one of its own systems, or of a baseline, came from it."""
        who = "own systems" if own else "baselines"
        return bool({who, f"{who}, {metric}", f"{who}, {kind}"} & set(self.published))


def _all_rows(y: Labels, dataset: Dataset, seed: int) -> Split:
    everything = np.arange(len(y))
    return Split(everything, everything)


def _official(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Return all inliers and as many outliers as the authors' shares allow."""
    inliers, outliers = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    if dataset.official_outliers is None:
        keep = int(len(inliers) * EMBEDDINGS_POLLUTION / (1 - EMBEDDINGS_POLLUTION))
    else:  # of a sample the same share
        total = sum(part.n_outliers or 0 for part in dataset.parts) or len(outliers)
        keep = round(dataset.official_outliers * len(outliers) / total)
    kept = np.random.default_rng(seed).choice(outliers, min(keep, len(outliers)), replace=False)
    rows = np.sort(np.concatenate([inliers, kept]))
    return Split(rows, rows)


def _dte(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Resample small files to 1,000 rows, cut large ones, and fit on a bootstrap of the rest.

    The draws replay numpy's old generator in the order of DTE's published code.
    """
    state = np.random.RandomState(seed)
    test = _dte_rows(len(y), state)
    state.choice(np.flatnonzero(y[test] == 1), 0, replace=False)  # moves the generator
    train = test[state.choice(len(test), len(test), replace=True)]
    return Split(train, test, scale=test)


def _dte_semi(y: Labels, dataset: Dataset, seed: int) -> Split:
    """Fit on the first half of the inliers in the order of the file, resampled as in `dte`."""
    rows = _dte_rows(len(y), np.random.RandomState(seed))
    inliers, outliers = rows[y[rows] == 0], rows[y[rows] == 1]
    half = round(0.5 * len(inliers))
    return Split(train=inliers[:half], test=np.concatenate([inliers[half:], outliers]))


def _dte_rows(n: int, state: np.random.RandomState) -> Indices:
    if n < DTE_FEWEST:
        return state.choice(n, DTE_FEWEST, replace=True)
    if n > DTE_MOST:
        return state.choice(n, DTE_MOST, replace=False)
    return np.arange(n)


def _inliers_only(train_share: float, aside_share: float) -> Callable[..., Split]:
    """Return a split that fits on a share of the inliers and drops a share of the outliers."""

    def split(y: Labels, dataset: Dataset, seed: int) -> Split:
        generator = np.random.default_rng(seed)
        inliers, outliers = (generator.permutation(np.flatnonzero(y == label)) for label in (0, 1))
        n_train, n_aside = round(train_share * len(inliers)), round(aside_share * len(outliers))
        test = np.concatenate([inliers[n_train:], outliers[n_aside:]])
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
        # Of tables the authors dropped hardly any outlier; images and texts they cut to 5 %.
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


def sample_table(X: Rows, y: Labels, most_rows: int | None) -> tuple[Rows, Labels]:
    """Return a sample of a large table, the same for every system and seed.

    The share of outliers stays; order stays too.
    """
    if most_rows is None or len(y) <= most_rows:
        return X, y
    generator = np.random.default_rng(0)
    n_outliers = max(1, round(most_rows * int(y.sum()) / len(y)))
    sizes = {0: most_rows - n_outliers, 1: n_outliers}
    taken = [
        generator.choice(np.flatnonzero(y == label), size, replace=False)
        for label, size in sizes.items()
    ]
    rows = np.sort(np.concatenate(taken))
    return X[rows], y[rows]
