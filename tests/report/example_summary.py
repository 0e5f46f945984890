"""Small summaries for the tests of the report."""

from dataclasses import replace
from itertools import pairwise

from altbi.networks import TrainingStep
from altbi.report import ColumnFact, Metrics, ReasonFact, Summary, TopRow

ROWS = 400
THRESHOLD = 3.0
RANKS = (1, 2, 3)


def create_summary(*, rows=ROWS, top=40, columns=("age", "income", "city"), **changes):
    """Return a summary of rows with scores 10, 10/2, 10/3, ..., so that all counts are known."""
    scores = [10 / (index + 1) for index in range(rows)]
    above = [(scores[0], 0), (THRESHOLD, count_flagged(scores, THRESHOLD))]
    above += [(score, index) for index, score in enumerate(scores) if index]
    summary = Summary(
        table="people.csv",
        score_by="distance",
        rows=rows,
        sample=rows,
        threshold=THRESHOLD,
        flagged=count_flagged(scores, THRESHOLD),
        threshold_reason="The scores fall steeply and level off here.",
        thresholds=tuple(sorted(set(above), reverse=True)),
        bins=create_bins(scores),
        columns=tuple(create_column(name, index) for index, name in enumerate(columns)),
        shown_columns=tuple(columns),
        id_columns=("name",),
        top=tuple(create_row(index, scores[index], columns) for index in range(min(top, rows))),
        history=tuple(create_step(index) for index in range(60)),
        metrics=Metrics(label="fraud", outliers=2, auc=0.9712, average_precision=0.5),
        privacy=None,
        notes=("Column 'code' is constant; it was left out.",),
        command="altbi detect people.csv --id name",
        versions={"altbi": "0.1.0", "torch": "2.13.0"},
        created="2026-01-02T03:04:05Z",
    )
    return replace(summary, **changes)


def count_flagged(scores, threshold):
    return sum(score > threshold for score in scores)


def create_bins(scores, count=20):
    width = (max(scores) - min(scores)) / count or 1.0
    edges = [min(scores) + width * index for index in range(count + 1)]
    found = [
        (low, high, sum(low <= score < high for score in scores)) for low, high in pairwise(edges)
    ]
    low, high, inside = found[-1]
    return (*found[:-1], (low, high, inside + (max(scores) >= high)))


def create_column(name, index, **changes):
    fact = ColumnFact(
        name=name,
        kind="number",
        content="0 to 9",
        missing=0.0,
        n_reasons=3,
        share=0.5 / (index + 1),
    )
    return replace(fact, **changes)


def create_row(index, score, columns, **changes):
    names = [columns[(index + offset) % len(columns)] for offset in range(min(2, len(columns)))]
    row = TopRow(
        number=1000 + index,
        ids=(f"person {index}",),
        score=score,
        label=index < 2,
        reasons=tuple(create_reason(name, index) for name in names),
        values=tuple(f"value {index}.{number}" for number in range(len(columns))),
        nearest=tuple(
            tuple(f"normal {rank}.{number}" for number in range(len(columns))) for rank in RANKS
        ),
    )
    return replace(row, **changes)


def create_reason(name, index, **changes):
    fact = ReasonFact(
        column=name,
        value=f"{index}.5",
        expected="1.25",
        z_score=12.0 / (index + 1),
        nearest=tuple(f"{rank}.75" for rank in RANKS),
    )
    return replace(fact, **changes)


def score_by_loss(summary):
    """Return the summary of a model that scores by loss, without reference rows."""
    top = tuple(
        replace(
            row, nearest=(), reasons=tuple(replace(reason, nearest=()) for reason in row.reasons)
        )
        for row in summary.top
    )
    return replace(summary, score_by="loss", top=top)


def create_step(index):
    size = 64 + 4 * index
    return TrainingStep(
        step=index, batch_size=size, kept=1.0 if index < 10 else 0.92, loss=9.0 - index / 9
    )
