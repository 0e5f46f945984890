"""Systems that score the rows of a table with texts, dates and missing values."""

import importlib
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi_bench.mixed.codes import (
    compute_rarities,
    encode_frequencies,
    encode_one_hot,
    is_text,
    to_numbers,
)
from altbi_bench.mixed.old_process import OldProcess

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FOREST",
    "OLD",
    "OURS",
    "ROW_SYSTEMS",
    "RowSystem",
    "find_missing_packages",
    "fit_outlier_tree",
    "score_rows",
    "to_pandas",
]

Scores = NDArray[np.float64]

OURS, OLD = "OutlierDetector", "ALTBI() of 0.1"
FOREST = "IForest, frequency codes"
N_NEIGHBOURS = 32
# Smallest score of outliertree whose logarithm is taken.
LEAST = 1e-300


@final
@dataclass(frozen=True, slots=True)
class RowSystem:
    """A system that scores rows.

    Parameters
    ----------
    score : callable or None
        Function of a table and a seed; high means outlier. None: a version in another folder.
    seeded : bool
        Whether the scores depend on the seed.
    package : str
        Optional package that it needs, or "".
    """

    score: Callable[[pa.Table, int], Scores] | None
    seeded: bool = False
    package: str = ""


def _score_ours(frame: pa.Table, seed: int) -> Scores:
    from altbi import OutlierDetector

    return OutlierDetector(random_state=seed).fit(frame).outlier_score(frame)


def _score_forest(frame: pa.Table, seed: int) -> Scores:
    from sklearn.ensemble import IsolationForest

    codes = encode_frequencies(frame)
    scores: Scores = -IsolationForest(random_state=seed).fit(codes).score_samples(codes)
    return scores


def _build_pyod(name: str) -> RowSystem:
    """Return a detector of PyOD on frequency codes."""

    def score(frame: pa.Table, seed: int) -> Scores:
        module = importlib.import_module(f"pyod.models.{name.lower()}")
        detector = getattr(module, name)().fit(encode_frequencies(frame))
        return np.asarray(detector.decision_scores_, dtype=np.float64)

    return RowSystem(score)


def _score_neighbours(frame: pa.Table, seed: int) -> Scores:
    """Return the distance to the 32nd nearest other row."""
    from sklearn.neighbors import NearestNeighbors

    rows = encode_one_hot(frame)
    count = min(N_NEIGHBOURS, len(rows) - 1)
    found: Scores = NearestNeighbors(n_neighbors=count).fit(rows).kneighbors()[0]
    return found[:, -1]


def _score_isotree(frame: pa.Table, seed: int) -> Scores:
    forest = importlib.import_module("isotree").IsolationForest(random_seed=seed, nthreads=1)
    data = to_pandas(frame, "category")
    return np.asarray(forest.fit(data).predict(data), dtype=np.float64)


def _score_outlier_tree(frame: pa.Table, seed: int) -> Scores:
    """Return the score of the value that outliertree reports; 0 for rows without a report."""
    return np.array([score for _, score in fit_outlier_tree(frame)])


def fit_outlier_tree(frame: pa.Table) -> list[tuple[str, float]]:
    """Return for each row the column that outliertree reports and its score; ("", 0.0) if none.

    Its own score is a bound of the probability of a value as far from the others. -log of it is
    returned, so that high means outlier.
    """
    tree = importlib.import_module("outliertree").OutlierTree(nthreads=1)
    data = to_pandas(frame, "object")  # version 1.10.0 ignores columns of other texts
    report = tree.fit(data, outliers_print=0, return_outliers=True)
    pairs = zip(report["suspicious_value"], report["outlier_score"], strict=True)
    return [
        ("", 0.0) if math.isnan(score) else (cell["column"], -math.log(max(score, LEAST)))
        for cell, score in pairs
    ]


def _score_frequency(frame: pa.Table, seed: int) -> Scores:
    return np.asarray(compute_rarities(frame).sum(axis=1), dtype=np.float64)


def to_pandas(frame: pa.Table, text_type: str) -> "pd.DataFrame":
    """Return a data frame of floats, and of texts with a pandas data type."""
    import pandas as pd

    def convert(column: pa.ChunkedArray) -> "pd.Series":
        if not is_text(column):
            return pd.Series(to_numbers(column))
        return pd.Series(column.to_pylist(), dtype=object).astype(text_type)

    names_and_columns = zip(frame.column_names, frame.columns, strict=True)
    return pd.DataFrame({name: convert(column) for name, column in names_and_columns})


ROW_SYSTEMS: dict[str, RowSystem] = {
    OURS: RowSystem(_score_ours, seeded=True),
    OLD: RowSystem(None, seeded=True),
    FOREST: RowSystem(_score_forest, seeded=True),
    **{f"{name}, frequency codes": _build_pyod(name) for name in ("ECOD", "COPOD", "HBOS")},
    "kNN 32, one-hot": RowSystem(_score_neighbours),
    "isotree": RowSystem(_score_isotree, seeded=True, package="isotree"),
    "outliertree": RowSystem(_score_outlier_tree, package="outliertree"),
    "frequency": RowSystem(_score_frequency),
}


def find_missing_packages(names: Iterable[str]) -> dict[str, str]:
    """Return the systems whose optional package is not installed, with that package."""
    packages = {name: ROW_SYSTEMS[name].package for name in names}
    return {
        name: package
        for name, package in packages.items()
        if package and importlib.util.find_spec(package) is None
    }


def score_rows(name: str, frame: pa.Table, seed: int, old: Path | None) -> Scores:
    """Fit and score a table without labels; `old` is the folder with the sources of version 0.1.

    Raises
    ------
    ValueError
        If a score is not finite, or if the folder is needed and missing.
    """
    score = ROW_SYSTEMS[name].score
    np.random.seed(seed)  # noqa: NPY002 - some detectors use the global state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if score is not None:
            scores = score(frame, seed)
        elif old is not None:
            scores = _start_old(old).score(frame, seed)
        else:
            raise ValueError(f"{name}: the sources of version 0.1 are missing. Pass --old FOLDER.")
    if not np.isfinite(scores).all():
        raise ValueError(f"{name}: a score is not finite")
    return scores


@cache
def _start_old(source: Path) -> OldProcess:
    return OldProcess(source)
