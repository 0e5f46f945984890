"""The main job on a table that comes with scikit-learn: which rows stand out, and why."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from altbi.detectors import ALTBI

__all__ = ["Clue", "Demo", "Finding", "render", "run"]

MALIGNANT_ROWS = 10
TOP_ROWS = 10
CLUES = 3
WIDTH = 100

Labels = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Clue:
    """One column of a row that stands out: what is there, and what the model expected."""

    column: str
    value: float
    expected: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One of the rows with the highest scores, and the columns that add most to its score."""

    row: int
    score: float
    flagged: bool
    malignant: bool
    clues: tuple[Clue, ...]


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demonstration found; plain values, from which `render` makes its text.

    Attributes
    ----------
    rows, columns : int
        Size of the table.
    malignant : int
        Malignant rows in the table.
    flagged, flagged_malignant : int
        Rows above the threshold, and the malignant ones among them.
    in_top_ten, in_top_twenty : int
        Malignant rows among the ten and twenty highest scores.
    top : tuple of Finding
        The ten highest scores, highest first.
    """

    rows: int
    columns: int
    malignant: int
    flagged: int
    flagged_malignant: int
    in_top_ten: int
    in_top_twenty: int
    top: tuple[Finding, ...]


def run(seed: int = 0) -> Demo:
    """Search the biopsy table; the seed sets the malignant rows, their places and the training."""
    table, malignant = biopsies(seed)

    detector = ALTBI(random_state=seed).fit(table)
    scores = detector.anomaly_score(table)
    flagged = detector.predict(table) == -1

    order = np.argsort(-scores, kind="stable")
    return Demo(
        rows=table.num_rows,
        columns=table.num_columns,
        malignant=int(malignant.sum()),
        flagged=int(flagged.sum()),
        flagged_malignant=int(malignant[flagged].sum()),
        in_top_ten=int(malignant[order[:10]].sum()),
        in_top_twenty=int(malignant[order[:20]].sum()),
        top=tuple(_findings(detector, table, order[:TOP_ROWS], flagged, malignant)),
    )


def biopsies(seed: int) -> tuple[pa.Table, Labels]:
    """Mix ten malignant rows among all benign ones; the labels are for the check at the end."""
    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    benign = np.flatnonzero(data.target == 1)
    malignant = rng.choice(np.flatnonzero(data.target == 0), MALIGNANT_ROWS, replace=False)
    rows = rng.permutation(np.concatenate([benign, malignant]))
    columns = zip(data.feature_names, data.data[rows].T, strict=True)
    return pa.table({str(name): cells for name, cells in columns}), data.target[rows] == 0


def _findings(
    detector: ALTBI, table: pa.Table, rows: NDArray[np.intp], flagged: Labels, malignant: Labels
) -> Iterator[Finding]:
    explanation = detector.explain(table.take(rows))
    for place, row in enumerate(rows.tolist()):
        yield Finding(
            row=row,
            score=float(explanation.score[place]),
            flagged=bool(flagged[row]),
            malignant=bool(malignant[row]),
            clues=tuple(
                Clue(reason.column, cast(float, reason.value), cast(float, reason.expected))
                for reason in explanation.reasons(place, CLUES)
            ),
        )


def render(demo: Demo) -> str:
    """Tell the findings in words and a short table, at most 100 columns wide."""
    by_chance = TOP_ROWS * demo.malignant / demo.rows
    paragraphs = [
        f"A table of {demo.rows} breast biopsies with {demo.columns} measurements each: "
        f"{demo.rows - demo.malignant} are benign, {demo.malignant} malignant ones are mixed in. "
        "ALTBI learned from the measurements alone. The diagnoses were not used for training; they "
        "only serve to check the result below.",
        f"Of the ten rows that stand out most, {demo.in_top_ten} are malignant (by chance: "
        f"{by_chance:.1f}); of the first twenty, {demo.in_top_twenty}. The threshold, set without "
        f"diagnoses too, flags {demo.flagged} rows, {demo.flagged_malignant} of the "
        f"{demo.malignant} malignant ones among them. A benign row can be unusual as well: "
        "to stand out is a reason to look, not a diagnosis.",
    ]
    lines = [line for text in paragraphs for line in [*textwrap.wrap(text, WIDTH), ""]]
    return "\n".join([*lines, *_top_lines(demo), ""])


def _top_lines(demo: Demo) -> Iterator[str]:
    yield f"{'row':>9}{'score':>8}  {'diagnosis':10} {'why':24}{'value':>11}{'expected':>11}"
    for place, finding in enumerate(demo.top, start=1):
        diagnosis = "malignant" if finding.malignant else "benign"
        start = f"{place:>3}.{finding.row:>5}  {finding.score:>6.3f}  {diagnosis:10} "
        for clue in finding.clues:
            yield f"{start}{clue.column:24}{clue.value:>11.4g}{clue.expected:>11.4g}"
            start = " " * len(start)
