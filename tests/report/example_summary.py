"""Summaries for tests of the report: small, made up, and the same on every call."""

from dataclasses import replace
from itertools import pairwise

from altbi.report import ReasonFact, ColumnFact, Metrics, Step, Summary, TopRow

ROWS = 400
THRESHOLD = 3.0
RANKS = (1, 2, 3)


def example(*, rows=ROWS, top=40, columns=("age", "income", "city"), **changes):
    """A summary of `rows` rows whose scores are 10, 10/2, 10/3, …, so that all counts are known."""
    scores = [10 / (place + 1) for place in range(rows)]
    above = [(scores[0], 0), (THRESHOLD, flagged(scores, THRESHOLD))]
    above += [(score, place) for place, score in enumerate(scores) if place]
    summary = Summary(
        table="people.csv",
        score_by="distance",
        rows=rows,
        sample=rows,
        threshold=THRESHOLD,
        flagged=flagged(scores, THRESHOLD),
        describe_threshold="The scores fall steeply and level off here.",
        levels=tuple(sorted(set(above), reverse=True)),
        bins=bins(scores),
        columns=tuple(column(name, place) for place, name in enumerate(columns)),
        shown_columns=tuple(columns),
        id_columns=("name",),
        top=tuple(top_row(place, scores[place], columns) for place in range(min(top, rows))),
        history=tuple(step(place) for place in range(60)),
        metrics=Metrics(label="fraud", outliers=2, auc=0.9712, average_precision=0.5),
        privacy=None,
        notes=("Column 'code' is constant; it was left out.",),
        command="altbi detect people.csv --id name",
        versions={"altbi": "0.1.0", "torch": "2.13.0"},
        made="2026-01-02T03:04:05Z",
    )
    return replace(summary, **changes)


def flagged(scores, threshold):
    return sum(score > threshold for score in scores)


def bins(scores, count=20):
    width = (max(scores) - min(scores)) / count or 1.0
    edges = [min(scores) + width * place for place in range(count + 1)]
    found = [
        (low, high, sum(low <= score < high for score in scores)) for low, high in pairwise(edges)
    ]
    low, high, inside = found[-1]
    return (*found[:-1], (low, high, inside + (max(scores) >= high)))


def column(name, place, **changes):
    fact = ColumnFact(
        name=name, kind="number", holds="0 to 9", missing=0.0, named=3, share=0.5 / (place + 1)
    )
    return replace(fact, **changes)


def top_row(place, score, columns, **changes):
    suspects = [columns[(place + offset) % len(columns)] for offset in range(min(2, len(columns)))]
    row = TopRow(
        number=1000 + place,
        ids=(f"person {place}",),
        score=score,
        label=place < 2,
        reasons=tuple(clue(name, place) for name in suspects),
        cells=tuple(f"cell {place}.{number}" for number in range(len(columns))),
        nearest=tuple(
            tuple(f"normal {rank}.{number}" for number in range(len(columns))) for rank in RANKS
        ),
    )
    return replace(row, **changes)


def clue(name, place, **changes):
    made = ReasonFact(
        column=name,
        value=f"{place}.5",
        expected="1.25",
        z_scores=12.0 / (place + 1),
        nearest=tuple(f"{rank}.75" for rank in RANKS),
    )
    return replace(made, **changes)


def by_loss(summary):
    """The same facts of a model that scores by loss, and remembers no rows."""
    top = tuple(
        replace(row, nearest=(), reasons=tuple(replace(clue, nearest=()) for clue in row.reasons))
        for row in summary.top
    )
    return replace(summary, score_by="loss", top=top)


def step(place):
    size = 64 + 4 * place
    return Step(step=place, batch_size=size, kept=1.0 if place < 10 else 0.92, loss=9.0 - place / 9)
