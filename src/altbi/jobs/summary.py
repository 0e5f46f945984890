"""From what the passes found to what a report shows."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.detectors import GenerativeDetector
from altbi.detectors.private import CONTAMINATION
from altbi.encode import Column
from altbi.explain import Explanation
from altbi.jobs.choice import Chosen, is_outlier
from altbi.jobs.findings import CLUES, Findings, expected_text, id_text, nearest_texts
from altbi.jobs.passes import Scan
from altbi.jobs.tally import ScoreCounts
from altbi.report import (
    Clue,
    ColumnFact,
    Metrics,
    Privacy,
    Step,
    Summary,
    TopRow,
    cell_text,
    holds_text,
)
from altbi.version import __version__

__all__ = ["summarise", "why_threshold"]

SHOWN_COLUMNS = 30
_BINS = 60
_LEVELS_BELOW_TOP = 200
_PARTS = ("numpy", "pyarrow", "scikit-learn", "torch")


def summarise(
    table: str,
    chosen: Chosen,
    detector: GenerativeDetector,
    found: Scan,
    findings: Findings,
    *,
    metrics: Metrics | None,
    notes: Sequence[str],
    command: str,
) -> Summary:
    """Gather what a report shows."""
    names = detector.encoder_.names
    shown = _shown(names, findings.explanation)
    threshold = -detector.offset_
    return Summary(
        table=table,
        score_by="loss" if findings.explanation.neighbours is None else "distance",
        rows=found.rows,
        sample=detector.n_sample_,
        threshold=threshold,
        flagged=found.flagged,
        why_threshold=why_threshold(detector),
        levels=_levels(found, findings.explanation.score, threshold),
        bins=_bins(found.counts),
        columns=_column_facts(detector.encoder_.columns, findings.explanation),
        shown_columns=tuple(names[place] for place in shown),
        id_columns=chosen.ids,
        top=tuple(_top_rows(chosen, findings, shown)),
        history=tuple(Step(**asdict(progress)) for progress in detector.history_),
        metrics=metrics,
        privacy=_privacy(detector),
        notes=tuple(notes),
        command=command,
        versions=_versions(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _privacy(detector: GenerativeDetector) -> Privacy | None:
    if detector.ledger_ is None:
        return None
    state = detector.ledger_.to_json()
    told = {field.name: state[field.name] for field in fields(Privacy)}
    releases = tuple(detector.ledger_.lines())
    covered, not_covered = tuple(state["covered"]), tuple(state["not_covered"])
    return Privacy(**told | {"releases": releases, "covered": covered, "not_covered": not_covered})


def why_threshold(detector: GenerativeDetector) -> str:
    """Say where the threshold comes from."""
    if getattr(detector, "threshold", None) is not None:
        return "The threshold was given."
    if detector.ledger_ is not None:
        share = CONTAMINATION if detector.contamination == "auto" else detector.contamination
        return (
            f"The threshold is a score that about {share:.0%} of the rows that were learned from "
            "exceed; noise was added to it, so that it gives no row away."
        )
    if detector.contamination == "auto":
        return (
            "No share of outliers was given. The threshold stands where the scores of the rows "
            "that were learned from part into two groups, or, if they do not, where their sorted "
            "curve bends. It is a rough guess: look as far down the list as you have time for."
        )
    return (
        f"A share of {float(detector.contamination):.2%} was given, and the threshold is the score "
        f"above which that share of the {detector.n_sample_:,} rows that were learned from lies."
    )


def _levels(
    found: Scan, top: NDArray[np.float64], threshold: float
) -> tuple[tuple[float, int], ...]:
    """Give thresholds with exact counts: all among the top rows, some below them, the model's."""
    values, above = np.unique(-top, return_index=True)
    levels = dict(zip((-values).tolist(), above.tolist(), strict=True))
    least = found.counts.least()
    edges = np.nextafter(found.counts.edges, -np.inf)  # "above" that is "at least" the edge
    targets = np.geomspace(len(top), found.rows, _LEVELS_BELOW_TOP)
    places = np.unique(np.searchsorted(-least, -targets, side="left"))
    for place in places[places < len(edges)].tolist():
        if edges[place] < top[-1]:
            levels[float(edges[place])] = int(least[place])
    levels[threshold] = found.flagged
    return tuple(sorted(levels.items(), reverse=True))


def _bins(counts: ScoreCounts) -> tuple[tuple[float, float, int], ...]:
    """Give bins of one width, and a wide last one where a few scores lie far above the others."""
    edges = counts.edges
    low, highest = float(edges[0]), float(np.nextafter(edges[-1] * (1 + 2**-16), np.inf))
    most = float(edges[np.searchsorted(np.cumsum(counts.counts), 0.995 * counts.counts.sum())])
    high = highest if highest - low <= 3 * (most - low) else most
    if not low < high:
        return ((low, highest, int(counts.counts.sum())),)
    limits = np.append(np.linspace(low, high, _BINS + 1), [highest] if high < highest else [])
    inner = np.searchsorted(edges, limits[1:-1])
    rows = np.add.reduceat(np.append(counts.counts, 0), np.append(0, inner))
    rows[:-1][np.diff(np.append(0, inner)) == 0] = 0  # reduceat gives an empty bin its neighbour
    return tuple(zip(limits[:-1].tolist(), limits[1:].tolist(), rows.tolist(), strict=True))


def _shown(names: tuple[str, ...], explanation: Explanation) -> list[int]:
    """Pick the columns whose cells are shown: all, or those that matter most, in their order."""
    weights = np.maximum(explanation.parts, 0).sum(axis=0)
    return sorted(np.argsort(-weights, kind="stable")[:SHOWN_COLUMNS].tolist())


def _column_facts(columns: tuple[Column, ...], explanation: Explanation) -> tuple[ColumnFact, ...]:
    adds = np.maximum(explanation.parts, 0).sum(axis=0)
    shares = adds / (adds.sum() or 1)
    named = dict.fromkeys(explanation.columns, 0)
    for row in range(len(explanation)):
        for reason in explanation.reasons(row, CLUES):
            named[reason.column] += 1
    facts = [
        ColumnFact(
            name=column.name,
            kind=column.kind,
            holds=holds_text(column),
            missing=column.missing / (column.present + column.missing),
            named=named[column.name],
            share=float(share),
        )
        for column, share in zip(columns, shares, strict=True)
    ]
    return tuple(sorted(facts, key=lambda fact: (-fact.share, -fact.named)))


def _top_rows(chosen: Chosen, findings: Findings, shown: list[int]) -> Iterator[TopRow]:
    """Put the rows into words."""
    cells = [
        _texts(findings.cells[chosen.features[place]], findings.explanation.values[place])
        for place in shown
    ]
    ids = [[id_text(cell) for cell in findings.cells[name].to_pylist()] for name in chosen.ids]
    labels = np.full(len(findings.rows), np.nan)
    if chosen.label is not None:
        labels = is_outlier(chosen.label, findings.cells[chosen.label.column])
    for place, number in enumerate(findings.rows.tolist()):
        yield TopRow(
            number=number,
            ids=tuple(column[place] for column in ids),
            score=float(findings.explanation.score[place]),
            label=None if np.isnan(labels[place]) else bool(labels[place]),
            clues=tuple(_clues(findings.explanation, place)),
            cells=tuple(column[place] for column in cells),
            nearest=tuple(_nearest(findings.explanation, place, shown)),
        )


def _clues(explanation: Explanation, place: int) -> Iterator[Clue]:
    for reason in explanation.reasons(place, CLUES):
        column = explanation.columns.index(reason.column)
        yield Clue(
            column=reason.column,
            value=cell_text(reason.value),
            expected=expected_text(reason.expected, reason.value, digits=4),
            deviations=reason.deviations,
            nearest=nearest_texts(explanation, place, column),
        )


def _nearest(explanation: Explanation, place: int, shown: list[int]) -> Iterator[tuple[str, ...]]:
    """Give the shown cells of each remembered row that is near a row."""
    return zip(*(nearest_texts(explanation, place, column) for column in shown), strict=True)


def _texts(cells: pa.ChunkedArray, values: pa.Array) -> list[str]:
    """Give cells as they are written, but for those that stand for a missing value."""
    pairs = zip(cells.to_pylist(), values.to_pylist(), strict=True)
    return ["" if value is None else cell_text(cell) for cell, value in pairs]


def _versions() -> dict[str, str]:
    return {
        "altbi": __version__,
        "Python": platform.python_version(),
        **{part: version(part) for part in _PARTS},
    }
