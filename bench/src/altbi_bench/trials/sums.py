"""The weighted sums of scores that were tried, by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHOSEN", "DETECTOR", "GATE", "SUMS", "Sum", "Term", "add_terms"]

Scores = NDArray[np.float64]
Scale = Literal["log1p", "log", "robust", "plain"]

# Encoded features from which most terms count only in sums "for all tables".
GATE = 100
# In "log", a score of 0 counts as this share of the median.
LEAST_SHARE = 1e-3
EVERYWHERE = ", for all tables"


def _log1p(scores: Scores, least: float = 1.0) -> Scores:
    """Return ``log(least + x / median)``; the median is that of scores above 0."""
    positive = scores[scores > 1e-9]
    return np.log(least + scores / (float(np.median(positive)) if len(positive) else 1.0))


def _divide_by_std(scores: Scores) -> Scores:
    spread = float(scores.std())
    return scores / (spread if spread > 1e-9 else 1.0)


def _divide_by_iqr(scores: Scores) -> Scores:
    """Divide scores by their IQR / 1.349, or by their standard deviation if that is 0."""
    spread = float(np.subtract(*np.quantile(scores, [0.75, 0.25]))) / 1.349
    return scores / spread if spread > 1e-9 else _divide_by_std(scores)


SCALES: dict[Scale, Callable[[Scores], Scores]] = {
    "log1p": lambda scores: _divide_by_std(_log1p(scores)),
    "log": lambda scores: _divide_by_std(_log1p(scores, LEAST_SHARE)),
    "robust": lambda scores: _divide_by_iqr(_log1p(scores)),
    "plain": _divide_by_std,
}


@final
@dataclass(frozen=True, slots=True)
class Term:
    """A score in a sum, with its weight and scale."""

    score: str  # a name of `altbi_bench.trials.scores.SCORES`
    weight: float
    scale: Scale
    is_gated: bool = True  # whether tables with `GATE` features or more leave it out


@final
@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of scores, and the score or sum that it is compared with."""

    terms: tuple[Term, ...]
    base: str

    def scaled(self, scale: Scale) -> tuple[Term, ...]:
        """Return the terms with another scale."""
        return tuple(replace(term, scale=scale) for term in self.terms)


def add_terms(terms: tuple[Term, ...], scores: Callable[[str], Scores], n_features: int) -> Scores:
    """Return the sum of terms in a table with this number of encoded features."""
    used = [term for term in terms if n_features < GATE or not term.is_gated]
    return np.asarray(
        sum(term.weight * SCALES[term.scale](scores(term.score)) for term in used), dtype=np.float64
    )


DISTANCE = Term("distance", 1.0, "log1p", is_gated=False)
COVARIANCE = Term("covariance", 1.0, "log1p")
RARITY = Term("rarity", 0.5, "plain")
PAIR, CHOSEN = "distance + 1 covariance", "distance + 1 covariance + 0.5 rarity"
# The score of the package: the chosen sum with more groups and other weights.
DETECTOR = "detector"


def _list_pairs() -> Iterator[tuple[str, Sum]]:
    for weight in (0.25, 0.5, 1.0, 2.0):
        own = replace(COVARIANCE, weight=weight)
        pair = Sum((DISTANCE, own), "distance")
        name = f"distance + {weight:g} covariance"
        yield name, pair
        yield name + EVERYWHERE, Sum((DISTANCE, replace(own, is_gated=False)), name)
        for scale in ("log", "robust"):
            yield f"{name}, {scale}", Sum(pair.scaled(scale), name)
    for kind in ("ridge 1e-06", "ridge 0.0001", "ridge 0.001", "ridge 0.01", "ridge 0.1"):
        yield _replace_covariance(kind)
    for kind in ("Ledoit-Wolf", "all rows kept", "all rows", "C-steps", "diagonal"):
        yield _replace_covariance(kind)


def _replace_covariance(kind: str) -> tuple[str, Sum]:
    term = replace(COVARIANCE, score=f"covariance, {kind}")
    return f"distance + 1 covariance, {kind}", Sum((DISTANCE, term), PAIR)


def _list_third_terms() -> Iterator[tuple[str, Sum]]:
    pair = (DISTANCE, COVARIANCE)
    for score in ("rarity", "tails", "tails, reference rows", "ECOD", "isolation forest"):
        for weight in (0.25, 0.5, 1.0):
            term, name = Term(score, weight, "plain"), f"{PAIR} + {weight:g} {score}"
            yield name, Sum((*pair, term), PAIR)
            if score in ("rarity", "tails"):
                term = replace(term, is_gated=False)
                yield name + EVERYWHERE, Sum((*pair, term), PAIR)
    yield (
        f"{PAIR} + 0.5 isolation forest, reference rows",
        Sum((*pair, Term("isolation forest, reference rows", 0.5, "plain")), PAIR),
    )
    for score in (
        "distance, logs",
        "distance, ranks",
        "distance, keep 1",
        "covariance, C-steps",
        "33rd reference row",
        "IWAE's loss",
    ):
        scale: Scale = "plain" if score == "IWAE's loss" else "log1p"
        for weight in (0.25, 0.5):
            term = Term(score, weight, scale)
            yield f"{PAIR} + {weight:g} {score}", Sum((*pair, term), PAIR)


def _list_fourth_terms() -> Iterator[tuple[str, Sum]]:
    chosen = (DISTANCE, COVARIANCE, RARITY)
    for score, weight, scale in (
        ("tails", 0.25, "plain"),
        ("tails, reference rows", 0.25, "plain"),
        ("isolation forest", 0.5, "plain"),
        ("distance, logs", 0.25, "log1p"),
        ("distance, ranks", 0.25, "log1p"),
        ("covariance, C-steps", 0.5, "log1p"),
    ):
        term = Term(score, weight, scale)  # type: ignore[arg-type]
        yield f"{CHOSEN} + {weight:g} {score}", Sum((*chosen, term), CHOSEN)


def _list_rarities() -> Iterator[tuple[str, Sum]]:
    for kind in (
        "bins: 5",
        "bins: 10",
        "bins: 50",
        "outer share 0",
        "outer share 0.002",
        "outer share 0.03",
        "left-closed",
        "right-closed",
        "mass points",
        "reference rows",
    ):
        term = replace(RARITY, score=f"rarity, {kind}")
        yield f"{CHOSEN}, {kind}", Sum((DISTANCE, COVARIANCE, term), CHOSEN)


def _list_weights() -> Iterator[tuple[str, Sum]]:
    """Yield sums with other weights of the chosen terms, and without each of them."""
    yield "distance + 0.5 rarity", Sum((DISTANCE, RARITY), CHOSEN)
    for weights in (
        (1.0, 1.0, 1.0),
        (1.0, 0.5, 0.5),
        (1.0, 2.0, 0.5),
        (0.5, 1.0, 0.5),
        (1.0, 0.5, 0.25),
        (1.0, 0.75, 0.75),
    ):
        terms = tuple(
            replace(term, weight=weight)
            for term, weight in zip((DISTANCE, COVARIANCE, RARITY), weights, strict=True)
        )
        yield "weights " + ", ".join(f"{weight:g}" for weight in weights), Sum(terms, CHOSEN)
    # Wide tables have no other term than the distance.
    small = (replace(DISTANCE, weight=1e-9), COVARIANCE, RARITY)
    yield "covariance + 0.5 rarity", Sum(small, CHOSEN)


SUMS: Mapping[str, Sum] = dict(
    [
        *_list_pairs(),
        *_list_third_terms(),
        *_list_fourth_terms(),
        *_list_rarities(),
        *_list_weights(),
    ]
)
