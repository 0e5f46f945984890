"""The data sets of ADBench by the paper's names, and their files."""

import csv
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError
from altbi_bench.catalogue.suggestions import unknown_name_error

__all__ = [
    "SUITES",
    "Dataset",
    "Labels",
    "Part",
    "Rows",
    "adbench_folder",
    "catalogue",
    "find_part",
    "is_available",
    "is_chosen_on",
    "load",
    "load_table",
    "locate",
    "n_files",
    "no_files_error",
    "select",
]

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

VARIABLE = "ALTBI_ADBENCH"
SOURCE = "https://github.com/Minqi824/ADBench"
# What the paper's own systems ran on, and what its 22 baselines ran on, taken from DTE's tables.
OWN_EMBEDDINGS = ("", "ViT", "RoBERTa")
DTE_EMBEDDINGS = ("", "ResNet18", "BERT")
OWN_COLUMNS = ("ODIM", "ALTBI-G", "ALTBI-I", "ALTBI")
# Of these the paper's own systems saw raw pixels, one class against the others.
RAW_PIXELS = ("mnist", "FashionMNIST")
SMALL_ROWS = 8_000
SMOKE = ("breastw", "glass", "hepatitis", "lymphography", "vertebral", "wine")


@final
@dataclass(frozen=True, slots=True)
class Part:
    """One file of ADBench and its expected content; None if that is not known.

    Parameters
    ----------
    file : str
        Path inside the ADBench folder.
    n_rows, n_features, n_outliers : int or None
        Sizes: those of the paper's Table B.1 where a data set is one file.
    sha256 : str or None
        Digest of ADBench's own file.
    rows_in_paper : int or None
        What Table B.1 gives for its data set, for all files: some have a few more or less.
    """

    file: str
    n_rows: int | None
    n_features: int
    n_outliers: int | None
    sha256: str | None = None
    rows_in_paper: int | None = None

    @property
    def name(self) -> str:
        """Name of the file without folder and extension."""
        return Path(self.file).stem


@final
@dataclass(frozen=True, slots=True)
class Dataset:
    """One data set of the paper; images and texts once for each network that embedded them.

    Parameters
    ----------
    name : str
        The paper's name.
    embedding : str
        The network whose outputs the columns are; empty for a table.
    kind : {"table", "image", "text"}
        What the rows are.
    domain : str
        Field of the data, as in the paper's Table B.1.
    parts : tuple of Part
        The files; a cell of the paper's tables is the mean over them.
    official_outliers : int or None
        How many outliers the authors' evaluation keeps; None: a twentieth of the rows.
    """

    name: str
    embedding: str
    kind: str
    domain: str
    parts: tuple[Part, ...]
    official_outliers: int | None = None

    @property
    def label(self) -> str:
        """Name with the embedding, which makes it unique."""
        return f"{self.name} ({self.embedding})" if self.embedding else self.name

    @property
    def n_cells(self) -> int:
        """Size of all parts, for running small ones first."""
        return sum((part.n_rows or 0) * part.n_features for part in self.parts)

    def is_column_of(self, column: str) -> bool:
        """Whether the paper's column of a system is about these very files."""
        if column in OWN_COLUMNS:
            return self.embedding in OWN_EMBEDDINGS and self.name not in RAW_PIXELS
        return self.embedding in DTE_EMBEDDINGS


@cache
def catalogue() -> tuple[Dataset, ...]:
    """Return all 57 data sets in the paper's order, those with two embeddings twice: 195 files."""
    facts = {row["dataset"]: row for row in _rows("datasets")}
    return tuple(
        Dataset(
            name,
            embedding,
            kind=facts[name]["kind"],
            domain=facts[name]["domain"],
            parts=tuple(_part(row, int(facts[name]["n_rows"])) for row in group),
            official_outliers=_whole(facts[name]["official_outliers"]),
        )
        for (name, embedding), group in groupby(
            _rows("files"), key=lambda row: (row["dataset"], row["embedding"])
        )
    )


def _rows(table: str) -> Iterator[dict[str, str]]:
    source = resources.files("altbi_bench") / "paper" / f"{table}.csv"
    with source.open(encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def _part(row: dict[str, str], of_dataset: int) -> Part:
    return Part(
        row["file"],
        n_rows=_whole(row["n_rows"]),
        n_features=int(row["n_features"]),
        n_outliers=_whole(row["n_outliers"]),
        sha256=row["sha256"] or None,
        rows_in_paper=of_dataset,
    )


def _whole(text: str) -> int | None:
    return int(text) if text else None


SUITES: dict[str, Callable[[Dataset], bool]] = {
    "smoke": lambda dataset: dataset.name in SMOKE,
    "small": lambda dataset: (
        dataset.kind == "table" and (dataset.parts[0].n_rows or 0) <= SMALL_ROWS
    ),
    "tables": lambda dataset: dataset.kind == "table",
    "embeddings": lambda dataset: dataset.kind != "table",
    "all": lambda dataset: True,
}


def select(names: Sequence[str] | None = None, suite: str = "tables") -> list[Dataset]:
    """Return data sets by name, in the paper's order; without names those of a suite.

    The name of a file stands for its data set without the other files.

    >>> [dataset.label for dataset in select(["wine", "20news"])]
    ['wine', '20news (BERT)', '20news (RoBERTa)']
    >>> (dataset,) = select(["CV_by_ViT/MVTec-AD_pill.npz"])
    >>> dataset.label, len(dataset.parts)
    ('MVTec-AD (ViT)', 1)
    """
    if names is None:
        if suite not in SUITES:
            raise ParameterError(f"No suite is called {suite!r}. Expected: {', '.join(SUITES)}.")
        return [each for each in catalogue() if SUITES[suite](each)]
    known = {word for each in catalogue() for word in (each.name, each.label)}
    files = {part.file for each in catalogue() for part in each.parts}
    if unknown := [name for name in names if name not in known | files]:
        where = "`altbi-bench datasets` lists all, with --files their files"
        raise unknown_name_error("data set", unknown, known | files, where)
    return [found for each in catalogue() if (found := _named(each, names)).parts]


def _named(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """Return the data set with the files that were named, alone or with the data set."""
    if dataset.name in names or dataset.label in names:
        return dataset
    return replace(dataset, parts=tuple(part for part in dataset.parts if part.file in names))


def n_files(dataset: Dataset) -> int:
    """Return the number of all files of a data set."""
    return next(len(each.parts) for each in catalogue() if each.label == dataset.label)


def is_chosen_on(stem: str) -> bool:
    """Return whether settings may be chosen on a table; the other tables are for confirmation.

    >>> is_chosen_on("29_Pima"), is_chosen_on("45_wine")
    (True, False)
    """
    return int(hashlib.sha256(stem.encode()).hexdigest()[-1], 16) % 2 == 0


def find_part(file: str) -> tuple[Dataset, Part]:
    """Find the data set and the part of a file's name."""
    for dataset in catalogue():
        for part in dataset.parts:
            if part.file == file:
                return dataset, part
    raise ParameterError(
        f"{file!r} is no file of ADBench. `altbi-bench datasets --files` lists all."
    )


def adbench_folder() -> Path | None:
    """Return the folder of ADBench: ALTBI_ADBENCH, or the shared folder next to the checkout."""
    if stated := os.environ.get(VARIABLE):
        return Path(stated)
    beside = Path("../shared/adbench")
    return beside if beside.is_dir() else None


def is_available(what: Dataset | Part) -> bool:
    """Return whether a file exists, or any file of a data set."""
    folder = adbench_folder()
    parts = what.parts if isinstance(what, Dataset) else (what,)
    return folder is not None and any((folder / part.file).is_file() for part in parts)


def no_files_error() -> TableError:
    """Return an error that no requested file is available."""
    return TableError(
        f"None of the files asked for is at hand in {adbench_folder() or 'any folder'}. Set "
        f"{VARIABLE} to the folder that has them; `altbi-bench datasets --files` names them."
    )


def locate(part: Part) -> Path:
    """Return the path of a file, or raise an error if it does not exist."""
    folder = adbench_folder()
    if folder is None:
        raise TableError(
            f"{part.name}: no ADBench folder is known. "
            f"Set {VARIABLE} to the folder that holds {part.file}."
        )
    path = folder / part.file
    if not path.is_file():
        raise TableError(
            f"{path}: no such file, but the benchmark needs it. "
            f"Get it from {SOURCE}, or set {VARIABLE} to the folder that holds {part.file}."
        )
    return path


def load(part: Part) -> tuple[Rows, Labels]:
    """Read the rows and labels (1 = outlier) of a file, and check that they are ADBench's."""
    path = locate(part)
    try:
        rows, labels = _arrays(path)
    except Exception as cause:  # a broken or foreign archive may raise anything
        raise TableError(
            f"{path}: not an ADBench file with plain arrays X and y ({cause}). Get it again."
        ) from cause
    if found := _other_than(part, path, rows, labels):
        raise TableError(
            f"{path}: {found}, but {part.name} has {_expected(part)}. Get ADBench's own file."
        )
    return rows, labels.astype(np.int64)


def _arrays(path: Path) -> tuple[Rows, Rows]:
    with path.open("rb") as file:
        # numpy would take it for a pickle, and advise to load it unsafely.
        if not zipfile.is_zipfile(file):
            raise ValueError("it is no npz archive")
    with np.load(path, allow_pickle=False) as archive:
        # Strict, for a cast to whole numbers would make labels of fractions.
        rows, labels = (archive[name].astype(np.float64, casting="same_kind") for name in "Xy")
    return rows, labels


def load_table(name: str) -> tuple[Rows, Labels]:
    """Read a data set that is one file, by the paper's name."""
    parts = [part for dataset in select([name]) for part in dataset.parts]
    if len(parts) > 1:
        raise ParameterError(f"{name} is {len(parts)} files, but expected a data set that is one.")
    return load(parts[0])


def _expected(part: Part) -> str:
    rows = "some" if part.n_rows is None else part.n_rows
    outliers = "some" if part.n_outliers is None else part.n_outliers
    digest = f", sha256 {part.sha256[:12]}…" if part.sha256 else ""
    return f"{rows} rows, {part.n_features} features, labels 0 and 1, {outliers} outliers{digest}"


def _other_than(part: Part, path: Path, rows: Rows, labels: Rows) -> str | None:
    """Return how a file differs from its description, or None."""
    shape = (labels.size if part.n_rows is None else part.n_rows, part.n_features)
    if rows.shape != shape or labels.shape != shape[:1]:
        return f"X of shape {rows.shape} and y of shape {labels.shape}"
    if not np.isin(labels, (0, 1)).all():
        return "other labels"
    outliers = int(labels.sum())
    if outliers != (outliers if part.n_outliers is None else part.n_outliers):
        return f"{outliers} outliers"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if part.sha256 is not None and digest != part.sha256:
        return f"sha256 {digest[:12]}…"
    return None
