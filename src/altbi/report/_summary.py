"""The content of a report as plain values. Tests check these values instead of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # it loads torch
    from altbi.networks import TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFact:
    """One value that contributes to a row's score.

    Attributes
    ----------
    column, value, expected : str
        The column, the row's value and the expected value.
    z_score : float
        Distance between the two, in robust z-scores; see `altbi.explain.Reason`.
    nearest : tuple of str
        The column's values in the most similar reference rows, most similar first. Empty for scores
        by loss.
    """

    column: str
    value: str
    expected: str
    z_score: float
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """One of the rows with the highest scores.

    Attributes
    ----------
    number : int
        The row's number in the table, counted from 0.
    ids : tuple of str
        Its values in the id columns, `Summary.id_columns`.
    score : float
        Its score.
    label : bool or None
        Whether it is labelled as an outlier; None without a label.
    reasons : tuple of ReasonFact
        The values with the largest contributions, largest first.
    values : tuple of str
        Its values in `Summary.shown_columns`; "" means missing.
    nearest : tuple of tuple of str
        The same columns of the most similar reference rows, most similar first. Empty for scores
        by loss.
    """

    number: int
    ids: tuple[str, ...]
    score: float
    label: bool | None
    reasons: tuple[ReasonFact, ...]
    values: tuple[str, ...]
    nearest: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFact:
    """One column: its content in the training sample, and its share of the highest scores.

    Attributes
    ----------
    name, kind : str
        Its name, and "number", "boolean", "date" or "category".
    content : str
        Its range or its categories.
    missing : float
        Share of missing values.
    n_reasons : int
        Number of rows in `Summary.top` that have it among their reasons.
    share : float
        Its contribution to the scores of these rows, as a share of all columns' contributions.
    """

    name: str
    kind: str
    content: str
    missing: float
    n_reasons: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Comparison of the scores with known labels, which were not used for training.

    Attributes
    ----------
    label : str
        The label column.
    outliers : int
        Number of rows labelled as outliers.
    auc, average_precision : float
        Area under the ROC curve, and average precision, of the rows with a label.
    """

    label: str
    outliers: int
    auc: float
    average_precision: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """The privacy ledger of a fit under a budget.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    epsilon_rdp, epsilon_prv : float
        The budget that was spent, by two accountants.
    guarantee : bool
        Whether these figures are a guarantee.
    adjacency : str
        Which tables count as neighbours.
    covered, not_covered : tuple of str
        What the guarantee covers, and what it does not cover.
    releases : tuple of (str, float, float, float, int)
        Each release with its noise, the smallest and the largest share of rows it used, and how
        often it was made.
    """

    epsilon: float
    delta: float
    epsilon_rdp: float
    epsilon_prv: float
    guarantee: bool
    adjacency: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    releases: tuple[tuple[str, float, float, float, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The content of a report.

    Attributes
    ----------
    table : str
        Name of the table.
    score_by : {"distance", "loss"}
        Whether a score is the distance to the nearest reference rows, or the model's loss.
    rows, sample : int
        Number of scored rows, and of rows in the training sample.
    threshold : float
        Rows with a score above it are flagged.
    flagged : int
        Number of flagged rows.
    threshold_reason : str
        How the threshold was chosen.
    thresholds : tuple of (float, int)
        Possible thresholds, highest first, and the exact number of rows above each. The model's own
        threshold is one of them.
    bins : tuple of (float, float, int)
        Histogram of the scores: start, end and number of rows. The intervals are adjacent and have
        the same width; only the last may be wider.
    columns : tuple of ColumnFact
        All columns, by decreasing share of the highest scores.
    shown_columns, id_columns : tuple of str
        The columns whose values the top rows show.
    top : tuple of TopRow
        The rows with the highest scores, highest first; at most a few hundred.
    history : tuple of TrainingStep
        The training steps.
    metrics : Metrics or None
        Comparison with labels, if labels were given.
    privacy : Privacy or None
        The privacy ledger, if the model was fitted under a privacy budget.
    notes : tuple of str
        Warnings about the data, one sentence each.
    command : str
        The command that created the report.
    versions : dict of str to str
        Versions of altbi and its libraries.
    created : str
        Time of creation in ISO 8601.
    """

    table: str
    score_by: Literal["distance", "loss"]
    rows: int
    sample: int
    threshold: float
    flagged: int
    threshold_reason: str
    thresholds: tuple[tuple[float, int], ...]
    bins: tuple[tuple[float, float, int], ...]
    columns: tuple[ColumnFact, ...]
    shown_columns: tuple[str, ...]
    id_columns: tuple[str, ...]
    top: tuple[TopRow, ...]
    history: tuple[TrainingStep, ...]
    metrics: Metrics | None
    privacy: Privacy | None
    notes: tuple[str, ...]
    command: str
    versions: dict[str, str]
    created: str
