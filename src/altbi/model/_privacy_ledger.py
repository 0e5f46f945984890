"""The privacy ledger: all releases of a fit under a privacy budget, and their total cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, Self

import msgspec

from altbi.errors import ModelFileError, quote
from altbi.model._privacy_accounting import Release, compute_epsilons, compute_rdp_epsilon

ADJACENCY = "two tables are neighbours if they differ in one added or removed row"
COVERED = (
    "the model file: weights, bounds, categories, threshold, number of rows",
    "scores and explanations of rows that were not in the training table",
)
NOT_COVERED = (
    "scores of the training rows, and what these scores reveal about them",
    "names and kinds of the columns, and declared bounds and categories",
    "the choice of the parameters, if several were tried on the table",
)
NO_GUARANTEE = (
    "epsilon is not a guarantee for this model: under its truncation rule, one row can change the "
    "sum of gradients by more than the noise covers"
)
GUARANTEED_TRUNCATIONS = ("tracked", "trimmed", "none")
# Largest difference of an RDP bound between machines, and the error of a PRV bound.
RDP_TOLERANCE = 1e-3
PRV_TOLERANCE = 0.02

# The cost of each release is computed again at load. A fit has at most some hundred: all training
# steps with the same sampling rate are one release.
MAX_RELEASES = 2_000

ReleaseSummary = tuple[str, float, float, float, int]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class LedgerState(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A privacy ledger in a model file; the texts are for people who read the file."""

    epsilon: Positive
    delta: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    categories_delta: NotNegative
    epsilon_rdp: NotNegative
    epsilon_prv: NotNegative
    guarantee: bool
    truncation: str
    clip: Positive
    adjacency: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    releases: Annotated[tuple[Release, ...], msgspec.Meta(min_length=1, max_length=MAX_RELEASES)]


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """All releases of a fit under a privacy budget.

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
    categories_delta: float = 0.0  # share of delta that is spent on the names of categories
    truncation: str  # name of the rule that left out the largest losses
    clip: float  # norm to which the gradient of each row was clipped
    guarantee: bool = True  # whether the noise covers what one row can change
    releases: tuple[Release, ...]
    # Bounds by RDP and PRV, if the ledger was read from a file.
    stored_epsilons: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    @property
    def epsilon_rdp(self) -> float:
        """Epsilon of all releases by Rényi divergences; training keeps it within the budget.

        Unless the ledger was read from a file, the first access to either bound computes both. This
        takes some seconds and needs Opacus.
        """
        return self._epsilons[0]

    @property
    def epsilon_prv(self) -> float:
        """Epsilon of all releases by privacy random variables (PRV), usually the smaller bound.

        See `epsilon_rdp` for the time that it takes.
        """
        return self._epsilons[1]

    @cached_property
    def _epsilons(self) -> tuple[float, float]:
        """Both bounds of epsilon, RDP and PRV: read from the file, or computed at first access.

        Both are bounds at delta without the share that is spent on the names of categories.
        """
        if self.stored_epsilons is not None:
            return self.stored_epsilons
        delta = self.delta - self.categories_delta
        epsilon_prv = compute_epsilons(self.releases, delta)[1]
        return compute_rdp_epsilon(self.releases, delta), max(epsilon_prv, 0.0)

    @property
    def adjacency(self) -> str:
        """Definition of neighbouring tables, as one sentence."""
        return ADJACENCY

    @property
    def covered(self) -> tuple[str, ...]:
        """Descriptions of the outputs to which the guarantee applies; none without a guarantee."""
        return COVERED if self.guarantee else ()

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Descriptions of the outputs to which the guarantee does not apply.

        If the ledger has no guarantee, the first one is the reason.
        """
        return NOT_COVERED if self.guarantee else (NO_GUARANTEE, *NOT_COVERED)

    def summarize_releases(self) -> list[ReleaseSummary]:
        """Return the `summarize_releases` of all releases."""
        return summarize_releases(self.releases)

    def check(self, n_rows: int) -> Iterator[str]:
        """Yield a warning if delta is at least 1 / `n_rows`, and one if there is no guarantee."""
        if self.delta >= 1 / n_rows:
            yield (
                f"delta={self.delta:g} is not below 1 / {n_rows}, one divided by the approximate "
                "number of rows: it would allow publishing a row. Choose a smaller delta."
            )
        if not self.guarantee:
            yield f"{NO_GUARANTEE[0].upper()}{NO_GUARANTEE[1:]}."

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as a dict of values that JSON can hold, with texts for people.

        Bounds of epsilon that are not known yet are computed, which needs Opacus.
        """
        return msgspec.to_builtins(_convert_to_state(self))

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Create a ledger from the result of `to_json`.

        Values that are invalid or contradict each other raise a `ModelFileError`. The bound by RDP
        is computed again for this; the bound by PRV is only compared with it.
        """
        checked = _convert_to_state(state)
        _validate_state(checked)
        names = [field.name for field in fields(cls) if field.name != "stored_epsilons"]
        values = {name: getattr(checked, name) for name in names}
        return cls(**values, stored_epsilons=(checked.epsilon_rdp, checked.epsilon_prv))


def summarize_releases(releases: Sequence[Release]) -> list[ReleaseSummary]:
    """Return one tuple for all releases with the same description and noise.

    It holds description, noise, lowest and highest share of the rows, and number of releases.
    """
    groups: dict[tuple[str, float], list[Release]] = {}
    for release in releases:
        groups.setdefault((release.what, release.noise), []).append(release)
    return [
        (
            *key,
            min(release.rate for release in group),
            max(release.rate for release in group),
            sum(release.times for release in group),
        )
        for key, group in groups.items()
    ]


def _convert_to_state(source: object) -> LedgerState:
    """Convert a `Ledger`, or a dict from a model file, to a state.

    Values of a wrong type raise a `ModelFileError`.
    """
    try:
        return msgspec.convert(source, LedgerState, from_attributes=isinstance(source, Ledger))
    except msgspec.ValidationError as error:
        raise ModelFileError(f"privacy ledger: {error}") from None


def _validate_state(state: LedgerState) -> None:
    """Raise a `ModelFileError` if fields of a decoded ledger contradict each other.

    The bound by RDP is computed again from the releases.
    """
    if not state.categories_delta < state.delta:
        raise ModelFileError("privacy ledger: expected categories_delta < delta")
    if state.guarantee and state.truncation not in GUARANTEED_TRUNCATIONS:
        raise ModelFileError(
            f"privacy ledger: truncation={quote(state.truncation)}, but a guarantee needs one of "
            f"{', '.join(GUARANTEED_TRUNCATIONS)}"
        )
    if not state.epsilon_prv <= state.epsilon_rdp + PRV_TOLERANCE:
        raise ModelFileError(
            f"privacy ledger: epsilon_prv={state.epsilon_prv:.4g}, but expected at most "
            f"epsilon_rdp={state.epsilon_rdp:.4g}"
        )
    bound = compute_rdp_epsilon(state.releases, state.delta - state.categories_delta)
    if not math.isclose(bound, state.epsilon_rdp, rel_tol=RDP_TOLERANCE, abs_tol=RDP_TOLERANCE):
        raise ModelFileError(
            f"privacy ledger: epsilon_rdp={state.epsilon_rdp:.4g}, but its releases cost "
            f"{bound:.4g}"
        )
