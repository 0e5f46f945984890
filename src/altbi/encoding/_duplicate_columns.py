"""Columns of the training sample that are copies of other columns."""

import math

import numpy as np

from altbi.encoding._column_profile import ColumnProfile, Values

# Nats of chance that two columns group the rows in the same way. It is about 5 differing rows in
# 1,000, so that two rare flags that agree in one row are not duplicates.
_MIN_DUPLICATE_NATS = 30.0
_MAX_COMPARED = 8  # columns of numbers that group the rows alike and are compared


def find_original(
    profile: ColumnProfile,
    column: int,
    earlier: dict[tuple[str, bytes], list[tuple[int, ColumnProfile]]],
) -> int | None:
    """Return the index of the first earlier column with the same contents, or None.

    A column without one is added to `earlier`, which has columns by kind and digest.
    """
    if _compute_nats(profile) < _MIN_DUPLICATE_NATS:
        return None
    family = "number" if profile.kind == "boolean" else profile.kind
    candidates = earlier.setdefault((family, profile.digest), [])
    for index, candidate in candidates:
        if _is_copy(profile, candidate):
            return index
    if len(candidates) < _MAX_COMPARED:
        candidates.append((column, profile))
    return None


def _compute_nats(profile: ColumnProfile) -> float:
    """Return how surely columns do not group the rows alike by chance: n log n - sum(c log c)."""
    missing = profile.n_rows - profile.n_present
    counts = np.append(profile.counts, missing) if missing else profile.counts
    return float(profile.n_rows * math.log(profile.n_rows) - counts @ np.log(counts))


def _is_copy(profile: ColumnProfile, other: ColumnProfile) -> bool:
    """Return whether columns that group the rows alike hold the same, written in another way."""
    if profile.kind == "category":
        # All columns of unique texts group the rows alike, also if a few rows are copies.
        is_unique = 2 * profile.n_single > profile.n_present
        return not is_unique or bool(profile.values.equals(other.values))
    return _is_linear_copy(profile.numbers, other.numbers)


def _is_linear_copy(values: Values, others: Values) -> bool:
    """Return whether numbers are a linear function of others, to rounding.

    A wider tolerance would join start and end times, whose differences are small.
    """
    if np.array_equal(values, others):
        return True
    first, last = int(others.argmin()), int(others.argmax())
    with np.errstate(over="ignore", invalid="ignore"):
        factor = (values[last] - values[first]) / (others[last] - others[first])
        scaled = factor * others
        errors = np.abs(values - values[first] - (scaled - scaled[first]))
        is_single = any((some.astype(np.float32) == some).all() for some in (values, others))
        precision = 2 * float(np.finfo(np.float32).eps) if is_single else 1e-12
        allowed = precision * np.maximum(np.abs(values), np.abs(scaled))
        return bool((errors <= allowed).all())


def describe_duplicate(profile: ColumnProfile, name: str) -> str:
    """Return why a column is a duplicate of the named one."""
    how = "renames the values" if profile.kind == "category" else "is a linear function"
    return f"In all {profile.n_rows:,} rows, it equals or {how} of column {name}."
