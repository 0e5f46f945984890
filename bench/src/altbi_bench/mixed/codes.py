"""Numbers for tables with texts and dates: frequency codes, one-hot features and rarities.

Dates are seconds since 1970, booleans 0 and 1. A missing text is a category of its own.
"""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "N_CATEGORIES",
    "compute_rarities",
    "compute_robust_z_scores",
    "encode_frequencies",
    "encode_one_hot",
    "fill_median",
    "index_texts",
    "is_text",
    "to_numbers",
]

Column: TypeAlias = "pa.ChunkedArray | pa.Array"
Rows = NDArray[np.float64]
Codes = NDArray[np.int64]

# For rarities, numeric columns with at most this many distinct values are categories. Others have
# this many bins of equal width between two outer quantiles, and a bin on either side.
N_BINS = 20
OUTER_SHARE = 0.01
# Largest number of one-hot features of a column; rarer categories have no feature.
N_CATEGORIES = 100
# Interquartile range of the normal distribution with variance 1.
NORMAL_IQR = 1.349


def is_text(column: Column) -> bool:
    """Return whether a column holds texts."""
    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def to_numbers(column: Column) -> Rows:
    """Return a column without texts as numbers; missing values are NaN.

    >>> to_numbers(pa.array([True, None]))
    array([ 1., nan])
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    is_date = pa.types.is_timestamp(values.type)
    if is_date:
        values = pc.cast(pc.cast(values, pa.timestamp("us")), pa.int64())
    floats = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return floats / 1e6 if is_date else floats


def fill_median(values: Rows) -> Rows:
    """Return numbers with the median in the place of NaN; 0 if there are no others."""
    known = values[~np.isnan(values)]
    return np.where(np.isnan(values), np.median(known) if len(known) else 0.0, values)


def index_texts(column: Column) -> Codes:
    """Return the index of each text among the distinct ones; missing is one of them.

    >>> index_texts(pa.array(["b", "a", None, "b"]))
    array([0, 1, 2, 0])
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    indices = values.dictionary_encode(null_encoding="encode").indices
    return indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _count(codes: Codes) -> Rows:
    """Return for each row how often its index occurs."""
    return np.bincount(codes)[codes].astype(np.float64)


def encode_frequencies(frame: pa.Table) -> Rows:
    """Return one feature for each column: numbers, or how often a text occurs.

    Missing numbers are the median, and missing texts have the number of missing ones.

    >>> encode_frequencies(pa.table({"x": ["a", "b", "a", None]})).T
    array([[2., 1., 2., 1.]])
    """
    return np.column_stack(
        [
            _count(index_texts(column)) if is_text(column) else fill_median(to_numbers(column))
            for column in frame.columns
        ]
    )


def encode_one_hot(frame: pa.Table) -> Rows:
    """Return numbers, with missing ones as the median, and one-hot features of texts.

    The most frequent categories have a feature, `N_CATEGORIES` of each column at most. All features
    are standardised.
    """
    features = np.concatenate([_expand(column) for column in frame.columns], axis=1)
    spread = features.std(axis=0)
    return (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _expand(column: Column) -> Rows:
    if not is_text(column):
        return fill_median(to_numbers(column))[:, None]
    codes = index_texts(column)
    most = np.argsort(-np.bincount(codes), kind="stable")[:N_CATEGORIES]
    return (codes[:, None] == most).astype(np.float64)


def compute_rarities(frame: pa.Table) -> Rows:
    """Return the rarity of each value: -log of the share of its category or bin.

    >>> compute_rarities(pa.table({"x": ["a", "a", "b", "a"]})).T.round(2)
    array([[0.29, 0.29, 1.39, 0.29]])
    """
    return np.column_stack([-np.log(_count(_bin(column)) / len(frame)) for column in frame.columns])


def _bin(column: Column) -> Codes:
    """Return the category or bin of each value; missing numbers share a bin."""
    if is_text(column):
        return index_texts(column)
    values = to_numbers(column)
    distinct, codes = np.unique(values, return_inverse=True)
    if len(distinct) <= N_BINS:
        return codes.astype(np.int64)
    low, high = np.nanquantile(values, [OUTER_SHARE, 1 - OUTER_SHARE])
    bins = np.searchsorted(np.linspace(low, high, N_BINS + 1), values)
    return np.where(np.isnan(values), N_BINS + 2, bins).astype(np.int64)


def compute_robust_z_scores(frame: pa.Table) -> Rows:
    """Return absolute robust z-scores of numbers; texts and missing values have 0.

    Where the interquartile range is 0, the standard deviation takes its place.
    """
    return np.column_stack(
        [
            np.zeros(len(frame)) if is_text(column) else _standardize(to_numbers(column))
            for column in frame.columns
        ]
    )


def _standardize(values: Rows) -> Rows:
    filled = fill_median(values)
    low, middle, high = np.quantile(filled, [0.25, 0.5, 0.75])
    spread = (high - low) / NORMAL_IQR or filled.std() or 1.0
    return np.abs(filled - middle) / spread
