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
    "DataFile",
    "Dataset",
    "Labels",
    "Rows",
    "adbench_folder",
    "catalogue",
    "find_file",
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
# Embeddings of the paper's own systems, and of its 22 baselines, which are from DTE's tables.
OWN_EMBEDDINGS = ("", "ViT", "RoBERTa")
DTE_EMBEDDINGS = ("", "ResNet18", "BERT")
OWN_COLUMNS = ("ODIM", "ALTBI-G", "ALTBI-I", "ALTBI")
# For these, the paper's own systems used raw pixels, one class against the others.
RAW_PIXELS = ("mnist", "FashionMNIST")
SMALL_ROWS = 8_000
SMOKE = ("breastw", "glass", "hepatitis", "lymphography", "vertebral", "wine")


@final
@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of ADBench and its expected content; None: not known.

    Parameters
    ----------
    path : str
        Path inside the ADBench folder.
    n_rows, n_features, n_outliers : int or None
        Sizes; for data sets of one file, those of the paper's Table B.1.
    sha256 : str or None
        Digest of ADBench's own file.
    rows_in_paper : int or None
        Number of rows of its data set in Table B.1; single files have a few more or fewer.
    """

    path: str
    n_rows: int | None
    n_features: int
    n_outliers: int | None
    sha256: str | None = None
    rows_in_paper: int | None = None

    @property
    def name(self) -> str:
        """The file name without folder and extension."""
        return Path(self.path).stem


@final
@dataclass(frozen=True, slots=True)
class Dataset:
    """One data set of the paper; images and texts have one for each embedding.

    Parameters
    ----------
    name : str
        The paper's name.
    embedding : str
        Name of the network that computed the columns; empty for a table.
    kind : {"table", "image", "text"}
        Kind of the rows.
    domain : str
        Field of the data, as in the paper's Table B.1.
    files : tuple of DataFile
        The files; the paper's tables have their mean.
    official_outliers : int or None
        Number of outliers that the authors' evaluation keeps; None: 5 % of the rows.
    """

    name: str
    embedding: str
    kind: str
    domain: str
    files: tuple[DataFile, ...]
    official_outliers: int | None = None

    @property
    def label(self) -> str:
        """The name with the embedding, which is unique."""
        return f"{self.name} ({self.embedding})" if self.embedding else self.name

    @property
    def n_cells(self) -> int:
        """Number of values in all files, so that small data sets run first."""
        return sum((data_file.n_rows or 0) * data_file.n_features for data_file in self.files)

    def is_column_of(self, column: str) -> bool:
        """Return whether the paper's column of a system is about these files."""
        if column in OWN_COLUMNS:
            return self.embedding in OWN_EMBEDDINGS and self.name not in RAW_PIXELS
        return self.embedding in DTE_EMBEDDINGS


@cache
def catalogue() -> tuple[Dataset, ...]:
    """Return all 57 data sets in the paper's order, once per embedding; they have 195 files."""
    facts = {row["dataset"]: row for row in _read_csv("datasets")}
    return tuple(
        Dataset(
            name,
            embedding,
            kind=facts[name]["kind"],
            domain=facts[name]["domain"],
            files=tuple(_build_file(row, int(facts[name]["n_rows"])) for row in group),
            official_outliers=_parse_count(facts[name]["official_outliers"]),
        )
        for (name, embedding), group in groupby(
            _read_csv("files"), key=lambda row: (row["dataset"], row["embedding"])
        )
    )


def _read_csv(table: str) -> Iterator[dict[str, str]]:
    source = resources.files("altbi_bench") / "paper" / f"{table}.csv"
    with source.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _build_file(row: dict[str, str], rows_in_paper: int) -> DataFile:
    return DataFile(
        row["file"],
        n_rows=_parse_count(row["n_rows"]),
        n_features=int(row["n_features"]),
        n_outliers=_parse_count(row["n_outliers"]),
        sha256=row["sha256"] or None,
        rows_in_paper=rows_in_paper,
    )


def _parse_count(text: str) -> int | None:
    return int(text) if text else None


SUITES: dict[str, Callable[[Dataset], bool]] = {
    "smoke": lambda dataset: dataset.name in SMOKE,
    "small": lambda dataset: (
        dataset.kind == "table" and (dataset.files[0].n_rows or 0) <= SMALL_ROWS
    ),
    "tables": lambda dataset: dataset.kind == "table",
    "embeddings": lambda dataset: dataset.kind != "table",
    "all": lambda dataset: True,
}


def select(names: Sequence[str] | None = None, suite: str = "tables") -> list[Dataset]:
    """Return data sets by name, in the paper's order; without names those of a suite.

    The name of a file selects its data set with this file only.

    >>> [dataset.label for dataset in select(["wine", "20news"])]
    ['wine', '20news (BERT)', '20news (RoBERTa)']
    >>> (dataset,) = select(["CV_by_ViT/MVTec-AD_pill.npz"])
    >>> dataset.label, len(dataset.files)
    ('MVTec-AD (ViT)', 1)
    """
    if names is None:
        if suite not in SUITES:
            raise ParameterError(f"No suite is called {suite!r}. Expected: {', '.join(SUITES)}.")
        return [each for each in catalogue() if SUITES[suite](each)]
    known = {name for each in catalogue() for name in (each.name, each.label)}
    files = {data_file.path for each in catalogue() for data_file in each.files}
    if unknown := [name for name in names if name not in known | files]:
        where = "`altbi-bench datasets` lists all, with --files their files"
        raise unknown_name_error("data set", unknown, known | files, where)
    return [found for each in catalogue() if (found := _select_files(each, names)).files]


def _select_files(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """Return the data set with the named files; with all if the data set itself is named."""
    if dataset.name in names or dataset.label in names:
        return dataset
    return replace(
        dataset, files=tuple(data_file for data_file in dataset.files if data_file.path in names)
    )


def n_files(dataset: Dataset) -> int:
    """Return the number of all files of a data set."""
    return next(len(each.files) for each in catalogue() if each.label == dataset.label)


def is_chosen_on(stem: str) -> bool:
    """Return whether settings may be chosen on a table; the other tables are for confirmation.

    >>> is_chosen_on("29_Pima"), is_chosen_on("45_wine")
    (True, False)
    """
    return int(hashlib.sha256(stem.encode()).hexdigest()[-1], 16) % 2 == 0


def find_file(file: str) -> tuple[Dataset, DataFile]:
    """Return the data set and the description of a file, by its path."""
    for dataset in catalogue():
        for data_file in dataset.files:
            if data_file.path == file:
                return dataset, data_file
    raise ParameterError(
        f"{file!r} is not a file of ADBench. `altbi-bench datasets --files` lists all."
    )


def adbench_folder() -> Path | None:
    """Return the folder of ADBench: ALTBI_ADBENCH, or the shared folder next to the checkout."""
    if folder := os.environ.get(VARIABLE):
        return Path(folder)
    shared = Path("../shared/adbench")
    return shared if shared.is_dir() else None


def is_available(data: Dataset | DataFile) -> bool:
    """Return whether a file exists, or any file of a data set."""
    folder = adbench_folder()
    files = data.files if isinstance(data, Dataset) else (data,)
    return folder is not None and any((folder / each.path).is_file() for each in files)


def no_files_error() -> TableError:
    """Return an error that no requested file is available."""
    return TableError(
        f"None of the requested files is available in {adbench_folder() or 'any folder'}. Set "
        f"{VARIABLE} to the folder that has them; `altbi-bench datasets --files` lists them."
    )


def locate(data_file: DataFile) -> Path:
    """Return the path of a file, or raise an error if it does not exist."""
    folder = adbench_folder()
    if folder is None:
        raise TableError(
            f"{data_file.name}: no ADBench folder is known. "
            f"Set {VARIABLE} to the folder that holds {data_file.path}."
        )
    path = folder / data_file.path
    if not path.is_file():
        raise TableError(
            f"{path}: no such file, but the benchmark needs it. "
            f"Get it from {SOURCE}, or set {VARIABLE} to the folder that holds {data_file.path}."
        )
    return path


def load(data_file: DataFile) -> tuple[Rows, Labels]:
    """Read the rows and labels (1 = outlier) of a file, and check that they are ADBench's."""
    path = locate(data_file)
    try:
        rows, labels = _read_arrays(path)
    except Exception as cause:  # a broken or foreign archive may raise anything
        raise TableError(
            f"{path}: not an ADBench file with plain arrays X and y ({cause}). Get it again."
        ) from cause
    if found := _find_mismatch(data_file, path, rows, labels):
        raise TableError(
            f"{path}: {found}, but {data_file.name} has {_describe_expected(data_file)}. "
            "Get ADBench's own file."
        )
    return rows, labels.astype(np.int64)


def _read_arrays(path: Path) -> tuple[Rows, Rows]:
    with path.open("rb") as file:
        # numpy would treat it as a pickle, and suggest an unsafe option.
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an npz archive")
    with np.load(path, allow_pickle=False) as archive:
        # Not cast to integers, which would turn fractions into labels.
        rows, labels = (archive[name].astype(np.float64, casting="same_kind") for name in "Xy")
    return rows, labels


def load_table(name: str) -> tuple[Rows, Labels]:
    """Read a data set that is one file, by the paper's name."""
    files = [each for dataset in select([name]) for each in dataset.files]
    if len(files) > 1:
        raise ParameterError(f"{name} has {len(files)} files, but expected a data set of one file.")
    return load(files[0])


def _describe_expected(data_file: DataFile) -> str:
    rows = "some" if data_file.n_rows is None else data_file.n_rows
    outliers = "some" if data_file.n_outliers is None else data_file.n_outliers
    digest = f", sha256 {data_file.sha256[:12]}…" if data_file.sha256 else ""
    return (
        f"{rows} rows, {data_file.n_features} features, labels 0 and 1, {outliers} outliers{digest}"
    )


def _find_mismatch(data_file: DataFile, path: Path, rows: Rows, labels: Rows) -> str | None:
    """Return how a file differs from its description, or None."""
    shape = (labels.size if data_file.n_rows is None else data_file.n_rows, data_file.n_features)
    if rows.shape != shape or labels.shape != shape[:1]:
        return f"X of shape {rows.shape} and y of shape {labels.shape}"
    if not np.isin(labels, (0, 1)).all():
        return "other labels"
    outliers = int(labels.sum())
    if outliers != (outliers if data_file.n_outliers is None else data_file.n_outliers):
        return f"{outliers} outliers"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if data_file.sha256 is not None and digest != data_file.sha256:
        return f"sha256 {digest[:12]}…"
    return None
