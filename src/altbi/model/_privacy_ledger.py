"""The ledger: all that a private fit has released, and what it costs together."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from altbi.errors import ModelFileError
from altbi.model._privacy_accounting import Release, compute_epsilons, epsilon_of

__all__ = ["Ledger"]

ADJACENCY = "two tables are neighbours if one is the other with one row added or removed"
COVERED = (
    "the model file: weights, bounds, categories, threshold, number of rows",
    "scores and explanations of rows that were not in the training table",
)
NOT_COVERED = (
    "scores of the training rows themselves, and what they show of these rows",
    "names and kinds of the columns, and bounds and categories that were declared",
    "the choice of the settings, if several were tried on the table",
)
_GUARANTEED = ("tracked", "trimmed", "none")
NO_GUARANTEE = (
    "epsilon is no guarantee here: the threshold comes from the previous batch without noise, so "
    "one row can change the sum of gradients by more than the noise covers"
)
# How far the same bound, computed on another machine, may differ.
_TOLERANCE = 1e-3
# PRV bounds are computed up to this; noise and times beyond these limits are nobody's plan.
_PRV_ERROR = 0.02
_NOISES = (1e-3, 1e9)
_MOST_TIMES = 10**9


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What a fit under a privacy budget has released.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    categories_delta : float
        The part of delta that goes to the names of categories.
    truncation : str
        The rule by which losses were left out.
    clip : float
        The norm that a row's gradient was held to.
    guarantee : bool
        Whether the noise covers what one row can change.
    releases : tuple of Release
        All that was released, each with its noise.
    told : tuple of float, optional
        What the accountants said, if a file holds it.

    Examples
    --------
    >>> ledger = Ledger(
    ...     epsilon=1.0,
    ...     delta=1e-5,
    ...     truncation="trimmed",
    ...     clip=1.0,
    ...     releases=(Release("number of rows", noise=10.0),),
    ... )
    >>> bool(ledger.epsilon_prv <= ledger.epsilon_rdp <= 1.0)
    True
    """

    epsilon: float
    delta: float
    categories_delta: float = 0.0
    truncation: str
    clip: float
    guarantee: bool = True
    releases: tuple[Release, ...]
    told: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    @property
    def epsilon_rdp(self) -> float:
        """What all releases cost, from Rényi divergences; the budget is kept by this one."""
        return self._accounts[0]

    @property
    def epsilon_prv(self) -> float:
        """What all releases cost, by privacy random variables; takes some seconds."""
        return self._accounts[1]

    def lines(self) -> list[tuple[str, float, float, float, int]]:
        """Tell the releases in few lines: what, noise, least and most share of the rows, times."""
        groups: dict[tuple[str, float], list[Release]] = {}
        for release in self.releases:
            groups.setdefault((release.what, release.noise), []).append(release)
        return [
            (
                *key,
                min(r.rate for r in group),
                max(r.rate for r in group),
                sum(r.times for r in group),
            )
            for key, group in groups.items()
        ]

    @cached_property
    def _accounts(self) -> tuple[float, float]:
        if self.told is not None:
            return self.told
        delta = self.delta - self.categories_delta
        return epsilon_of(self.releases, delta), max(compute_epsilons(self.releases, delta)[1], 0.0)

    def find_problems(self, n_rows: int) -> Iterator[str]:
        """Say what whoever relies on the promise should know at once."""
        if self.delta >= 1 / n_rows:
            yield (
                f"delta={self.delta:g} is not below one in about {n_rows} rows: it would allow to "
                "publish one of them. Choose a smaller delta."
            )
        if not self.guarantee:
            yield f"{NO_GUARANTEE[0].upper()}{NO_GUARANTEE[1:]}."

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain JSON, with words for those who read it."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "categories_delta": self.categories_delta,
            "epsilon_rdp": self.epsilon_rdp,
            "epsilon_prv": self.epsilon_prv,
            "guarantee": self.guarantee,
            "truncation": self.truncation,
            "clip": self.clip,
            "adjacency": ADJACENCY,
            "covered": list(COVERED) if self.guarantee else [],
            "not_covered": list(NOT_COVERED) if self.guarantee else [NO_GUARANTEE, *NOT_COVERED],
            "releases": [asdict(release) for release in self.releases],
        }

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Read a ledger that nobody has checked; one that does not add up is refused."""
        try:
            ledger = cls._read(state)
        except (KeyError, TypeError, AttributeError) as cause:
            raise ModelFileError(f"Its privacy ledger makes no sense ({cause!r}).") from None
        told = ledger.told or (math.inf, math.inf)
        bound = epsilon_of(ledger.releases, ledger.delta - ledger.categories_delta)
        if not 0 <= told[1] <= told[0] + _PRV_ERROR:
            raise ModelFileError(
                f"Its privacy ledger says epsilon_prv={told[1]:.4g}, but expected from 0 to "
                f"epsilon_rdp={told[0]:.4g}."
            )
        if not math.isclose(bound, told[0], rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            raise ModelFileError(
                f"Its privacy ledger says epsilon_rdp={told[0]:.4g}, but its releases add up to "
                f"{bound:.4g}."
            )
        return ledger

    @classmethod
    def _read(cls, state: Any) -> Self:  # noqa: ANN401 - unchecked JSON
        numbers = ("epsilon", "delta", "categories_delta", "clip", "epsilon_rdp", "epsilon_prv")
        releases = tuple(Release(**release) for release in state["releases"])
        amounts = [state[name] for name in numbers] + [
            amount for release in releases for amount in (release.noise, release.rate)
        ]
        words = [state["truncation"], *(release.what for release in releases)]
        plain = (
            all(type(amount) is float and math.isfinite(amount) for amount in amounts)
            and all(isinstance(word, str) for word in words)
            and all(type(release.times) is int for release in releases)
            and all(0 < release.times <= _MOST_TIMES for release in releases)
            and all(_NOISES[0] <= release.noise <= _NOISES[1] for release in releases)
            and all(0 < release.rate <= 1 for release in releases)
            and bool(releases)
            and min(state["epsilon"], state["clip"]) > 0
            and not (state["guarantee"] and state["truncation"] not in _GUARANTEED)
            and isinstance(state["guarantee"], bool)
            and 0 <= state["categories_delta"] < state["delta"] < 1
        )
        if not plain:
            raise TypeError("a value of a wrong kind")
        return cls(
            epsilon=state["epsilon"],
            delta=state["delta"],
            categories_delta=state["categories_delta"],
            truncation=state["truncation"],
            clip=state["clip"],
            guarantee=state["guarantee"],
            releases=releases,
            told=(state["epsilon_rdp"], state["epsilon_prv"]),
        )
