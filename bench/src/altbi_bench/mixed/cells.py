"""Tables with known wrong cells, and systems that score each cell."""

import csv
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi_bench.mixed.codes import compute_rarities, compute_robust_z_scores
from altbi_bench.mixed.errors import edit_text
from altbi_bench.mixed.ranking import compute_top_weights
from altbi_bench.mixed.systems import fit_outlier_tree

__all__ = ["CELL_SYSTEMS", "CellSystem", "DirtyTable", "measure_cells", "score_cells"]

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Digits of a record.
DIGITS = 5


@final
@dataclass(frozen=True, slots=True)
class DirtyTable:
    """The texts of a table with wrong cells.

    Parameters
    ----------
    names : tuple of str
        Names of the columns.
    texts : tuple of tuples of str
        The texts of each column; "" is missing.
    wrong : ndarray of bool of shape (n_rows, n_columns)
        Which cells differ from the clean table.
    """

    names: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    wrong: Mask

    @classmethod
    def read(cls, dirty: Path, clean: Path) -> Self:
        """Read a dirty file and its clean one, whose columns have the same order."""
        names, texts = _read_texts(clean)
        _, dirty_texts = _read_texts(dirty)
        wrong = np.array(dirty_texts) != np.array(texts)
        return cls(names, dirty_texts, wrong.T)

    @property
    def frame(self) -> pa.Table:
        """The table; columns that hold only numbers are numeric."""
        return pa.table(
            {name: _parse(texts) for name, texts in zip(self.names, self.texts, strict=True)}
        )

    def drop(self, name: str) -> "DirtyTable":
        """Return the table without a column."""
        kept = [index for index, each in enumerate(self.names) if each != name]
        return DirtyTable(
            tuple(self.names[index] for index in kept),
            tuple(self.texts[index] for index in kept),
            self.wrong[:, kept],
        )

    def remove_text(self, name: str, text: str) -> "DirtyTable":
        """Return the table where a text of a column is missing, and no longer wrong."""
        index = self.names.index(name)
        is_text = np.array([each == text for each in self.texts[index]])
        wrong = self.wrong.copy()
        wrong[is_text, index] = False
        texts = tuple("" if each == text else each for each in self.texts[index])
        return replace(
            self, texts=(*self.texts[:index], texts, *self.texts[index + 1 :]), wrong=wrong
        )

    def write_typos(self, columns: Sequence[int], n: int, seed: int) -> "DirtyTable":
        """Return the table with typos in `n` cells of some columns; no other cell is wrong."""
        chance = random.Random(seed)
        lists = [list(texts) for texts in self.texts]
        wrong = np.zeros_like(self.wrong)
        while wrong.sum() < n:
            row, column = chance.randrange(len(wrong)), chance.choice(columns)
            text = lists[column][row]
            edited = edit_text(text, chance) if text else text
            if not wrong[row, column] and edited not in ("", text):
                lists[column][row], wrong[row, column] = edited, True
        return replace(self, texts=tuple(map(tuple, lists)), wrong=wrong)


def _read_texts(path: Path) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return tuple(header), tuple(zip(*rows, strict=True))


def _parse(texts: Iterable[str]) -> pa.Array:
    values = [text or None for text in texts]
    try:
        return pa.array([None if each is None else float(each) for each in values], pa.float64())
    except ValueError:
        return pa.array(values, pa.large_string())


def _score_contributions(frame: pa.Table) -> Scores:
    """Return the contributions of columns to the score of OutlierDetector; 0 if not used."""
    from altbi import OutlierDetector

    explanation = OutlierDetector(random_state=0).fit(frame).explain(frame)
    scores = np.zeros((len(frame), frame.num_columns))
    for name, found in zip(explanation.columns, explanation.contributions.T, strict=True):
        scores[:, frame.column_names.index(name)] = found
    return scores


def _score_model_cells(frame: pa.Table) -> Scores:
    """Return the rarities of cells by OutlierDetector; 0 in columns that are not used."""
    from altbi import OutlierDetector

    model = OutlierDetector(random_state=0).fit(frame).model_
    scores = np.zeros((len(frame), frame.num_columns))
    for name, found in zip(model.encoder.names, model.cell_scores(frame).T, strict=True):
        scores[:, frame.column_names.index(name)] = found
    return scores


def _score_z_scores(frame: pa.Table) -> Scores:
    return np.asarray(compute_robust_z_scores(frame))


def _score_rarities(frame: pa.Table) -> Scores:
    return np.asarray(compute_rarities(frame))


def _score_z_scores_and_rarities(frame: pa.Table) -> Scores:
    """Return robust z-scores of numbers and rarities of texts."""
    is_number = [pa.types.is_floating(column.type) for column in frame.columns]
    return np.where(is_number, compute_robust_z_scores(frame), compute_rarities(frame))


def _score_outlier_tree(frame: pa.Table) -> Scores:
    """Return the score of the one cell that outliertree reports in a row; 0 for all others."""
    scores = np.zeros((len(frame), frame.num_columns))
    for row, (name, score) in enumerate(fit_outlier_tree(frame)):
        if name:
            scores[row, frame.column_names.index(name)] = score
    return scores


@final
@dataclass(frozen=True, slots=True)
class CellSystem:
    """A system that scores cells.

    Parameters
    ----------
    score : callable
        Function of a table that returns scores ``(n_rows, n_columns)``; high means wrong.
    package : str
        Optional package that it needs, or "".
    """

    score: Callable[[pa.Table], Scores]
    package: str = ""


CELL_SYSTEMS: dict[str, CellSystem] = {
    "OutlierDetector, contributions": CellSystem(_score_contributions),
    "OutlierDetector, cell_scores": CellSystem(_score_model_cells),
    "robust z-scores": CellSystem(_score_z_scores),
    "histograms": CellSystem(_score_rarities),
    "robust z-scores, histograms of texts": CellSystem(_score_z_scores_and_rarities),
    "outliertree": CellSystem(_score_outlier_tree, package="outliertree"),
}


def score_cells(name: str, frame: pa.Table) -> Scores:
    """Return the scores of all cells by a system.

    Raises
    ------
    ValueError
        If the shape is not that of the table, or a score is not finite.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = CELL_SYSTEMS[name].score(frame)
    if scores.shape != frame.shape or not np.isfinite(scores).all():
        raise ValueError(f"{name}: the shape is {scores.shape}, or a score is not finite")
    return scores


def measure_cells(wrong: Mask, scores: Scores) -> dict[str, float]:
    """Return "ap" (average precision) and "f1" at the true number of wrong cells."""
    from sklearn.metrics import average_precision_score

    labels, flat = wrong.ravel(), scores.ravel()
    found = compute_top_weights(flat, int(labels.sum()))[labels].sum() / labels.sum()
    ap = average_precision_score(labels, flat)
    return {"ap": round(float(ap), DIGITS), "f1": round(float(found), DIGITS)}
