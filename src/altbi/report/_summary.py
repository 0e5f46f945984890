"""The content of a report as plain values. Tests check these values instead of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # it loads torch
    from altbi.networks import TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFact:
    """One value that contributes to a row's score."""

    column: str
    value: str
    expected: str
    z_score: float  # distance between the two, in robust z-scores; see `altbi.explain.Reason`
    # Values in the most similar reference rows, most similar first. Empty for scores by loss.
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """One of the rows with the highest scores."""

    number: int  # in the table, counted from 0
    ids: tuple[str, ...]  # values in `Summary.id_columns`
    score: float
    label: bool | None  # whether it is labelled as an outlier; None without a label
    reasons: tuple[ReasonFact, ...]  # the values furthest from the expected ones, furthest first
    values: tuple[str, ...]  # values in `Summary.shown_columns`; "" means missing
    # The same columns of the most similar reference rows. Empty for scores by loss.
    nearest: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFact:
    """One column: its content in the training sample, and its share of the highest scores."""

    name: str
    kind: str  # "number", "boolean", "date" or "category"
    content: str  # range or categories
    missing: float  # share of missing values
    n_reasons: int  # number of rows in `Summary.top` that have it among their reasons
    share: float  # of all columns' contributions to the scores of these rows
    role: str = ""  # how it is used, and why; "" if roles are not inferred
    reason: str = ""
    is_stated: bool = False  # whether the user stated the role
    is_usual: bool = True  # whether it is used as others of its kind, without a remark


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Comparison of the scores with known labels, which were not used for training."""

    label: str  # the label column
    outliers: int  # number of rows labelled as outliers
    auc: float  # area under the ROC curve, of the rows with a label
    average_precision: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """The privacy ledger of a fit under a budget."""

    epsilon: float  # the budget
    delta: float
    epsilon_rdp: float  # the budget that was spent, by two accountants
    epsilon_prv: float
    guarantee: bool  # whether these figures are a guarantee
    adjacency: str  # which tables count as neighbours
    covered: tuple[str, ...]  # what the guarantee covers
    not_covered: tuple[str, ...]
    # Each release: name, noise, smallest and largest share of rows used, how often it was made.
    releases: tuple[tuple[str, float, float, float, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The content of a report."""

    table: str  # name of the table
    score_by: Literal["distance", "loss"]  # reference rows, or loss of the model
    rows: int  # number of scored rows
    sample: int  # number of rows in the training sample
    threshold: float  # rows with a score above it are flagged
    flagged: int  # number of flagged rows
    threshold_reason: str  # how the threshold was chosen
    # Possible thresholds, highest first, and the exact number of rows above each. The model's own
    # threshold is one of them.
    thresholds: tuple[tuple[float, int], ...]
    # Histogram of the scores: start, end and number of rows. The intervals are adjacent and have
    # the same width; only the last may be wider.
    bins: tuple[tuple[float, float, int], ...]
    columns: tuple[ColumnFact, ...]  # all columns, by decreasing share of the highest scores
    shown_columns: tuple[str, ...]  # the feature columns whose values the top rows show
    id_columns: tuple[str, ...]
    top: tuple[TopRow, ...]  # rows with the highest scores, highest first; at most a few hundred
    history: tuple[TrainingStep, ...]
    metrics: Metrics | None  # comparison with labels, if labels were given
    privacy: Privacy | None  # if the model was fitted under a privacy budget
    notes: tuple[str, ...]  # warnings about the data, one sentence each
    command: str  # the command that created the report
    versions: dict[str, str]  # of altbi and its libraries
    created: str  # time of creation in ISO 8601
