"""All that a report shows, as plain values: tests read these, not the page."""

from dataclasses import dataclass
from typing import Literal

from altbi.networks import TrainingStep

__all__ = ["ColumnFact", "Metrics", "Privacy", "ReasonFact", "Summary", "TopRow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFact:
    """One cell of a row that stands out: what is there, what was expected, what others have.

    Attributes
    ----------
    column, value, expected : str
        The column, what stands in the cell, and what was expected there.
    z_score : float
        How far they are apart.
    nearest : tuple of str
        The column's cells in the nearest remembered rows, nearest first; none if the model scores
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
        Its cells in the id columns, `Summary.id_columns`.
    score : float
        Its score.
    label : bool or None
        Whether it is known to be an outlier, if that is known.
    reasons : tuple of ReasonFact
        The cells furthest from what was expected, furthest first.
    cells : tuple of str
        Its cells in `Summary.shown_columns`; missing is "".
    nearest : tuple of tuple of str
        The same cells of the nearest remembered rows, nearest first; none if the model scores by
        loss.
    """

    number: int
    ids: tuple[str, ...]
    score: float
    label: bool | None
    reasons: tuple[ReasonFact, ...]
    cells: tuple[str, ...]
    nearest: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFact:
    """One column: what the training sample showed, and how often it made a row stand out.

    Attributes
    ----------
    name, kind : str
        Its name, and "number", "boolean", "date" or "category".
    holds : str
        Its range or its levels, in words.
    missing : float
        Share of missing cells.
    named : int
        How many of the rows in `Summary.top` it is a clue of.
    share : float
        What it adds to the scores of these rows, as a share of what all columns add.
    """

    name: str
    kind: str
    holds: str
    missing: float
    named: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """How the scores compare with known labels, which were not used for training."""

    label: str
    outliers: int
    auc: float
    average_precision: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """What a fit under a privacy budget has released.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    epsilon_rdp, epsilon_prv : float
        What was spent, by two accountants.
    guarantee : bool
        Whether that is a guarantee.
    adjacency : str
        Which tables are neighbours.
    covered, not_covered : tuple of str
        What is promised, and what is not.
    releases : tuple of (str, float, float, float, int)
        What was released, with its noise, the least and the most share of the rows that it took,
        and how often.
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
    """All that a report shows.

    Attributes
    ----------
    table : str
        Where the table came from.
    score_by : {"distance", "loss"}
        Whether a score is the distance to the nearest remembered rows, or the model's loss.
    rows, sample : int
        Rows that were scored, and rows of the sample that was learned from.
    threshold : float
        Rows with a score above it are flagged.
    flagged : int
        How many rows that are.
    threshold_reason : str
        How the threshold was chosen, in one or two sentences.
    levels : tuple of (float, int)
        Possible thresholds, from the highest to the lowest, and how many rows lie above each. The
        model's own threshold is one of them. Exact, not estimated.
    bins : tuple of (float, float, int)
        From, to, and how many rows have scores from the one up to the other: neighbouring intervals
        over the whole range, most of them of one width; the last may be wider.
    columns : tuple of ColumnFact
        All columns, those that matter most first.
    shown_columns, id_columns : tuple of str
        The columns whose cells the top rows show.
    top : tuple of TopRow
        The rows with the highest scores, highest first; at most a few hundred.
    history : tuple of TrainingStep
        The training steps.
    metrics : Metrics or None
        If labels were given.
    privacy : Privacy or None
        If the model was fitted under a privacy budget.
    notes : tuple of str
        What was noticed about the data, one sentence each.
    command : str
        What made the report.
    versions : dict of str to str
        Of altbi and what it stands on.
    made : str
        When, as ISO 8601.
    """

    table: str
    score_by: Literal["distance", "loss"]
    rows: int
    sample: int
    threshold: float
    flagged: int
    threshold_reason: str
    levels: tuple[tuple[float, int], ...]
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
    made: str
