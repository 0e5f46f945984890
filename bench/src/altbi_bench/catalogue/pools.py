"""Pools of tables to choose and confirm a detector on, from four sources.

=========== ======== ============== ============ ================ ==================================
pool        tables   rows           columns      outlier share    from
=========== ======== ============== ============ ================ ==================================
adbench     45       80 to 5,000    3 to 1,555   0.0002 to 0.40   ``Classical`` of ADBench
embeddings  38       102 to 5,000   512 to 1,000 0.05 to 0.33     ``CV_by_*``, ``NLP_by_*``: ADBench
oddbench    279      1,000 to 2,000 3 to 91      0.004 to 0.26    a sample of OddBench's 790 tables
ovrbench    295      1,000 to 2,000 2 to 81      0.0045 to 0.21   a sample of OvRBench's tables
=========== ======== ============== ============ ================ ==================================

Sizes are those of the tables at hand, after at most `MAX_ROWS` rows of each are sampled. The files
of OddBench and OvRBench are arrays ``X`` and ``y`` of numbers. docs/benchmark/pools.md says where
the rest of both is and how the halves are used.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from altbi.errors import TableError
from altbi_bench.catalogue.datasets import (
    DataFile,
    Labels,
    Rows,
    catalogue,
    is_available,
    is_chosen_on,
    load,
)

__all__ = [
    "CONFIRM",
    "HALVES",
    "MAX_ROWS",
    "POOLS",
    "SELECT",
    "PoolTable",
    "find_half",
    "is_in_half",
    "list_tables",
    "load_pool_table",
    "select_by_hash",
]

POOLS = ("adbench", "embeddings", "oddbench", "ovrbench")
SELECT, CONFIRM = "select", "confirm"
HALVES = (SELECT, CONFIRM)
# Folders of the pools that are not from ADBench.
FOLDERS = {"oddbench": "oddbench-A", "ovrbench": "ovrbench-A"}
MAX_ROWS = 5_000


@final
@dataclass(frozen=True, slots=True)
class PoolTable:
    """One table of a pool.

    Parameters
    ----------
    pool : {"adbench", "embeddings", "oddbench", "ovrbench"}
        The pool.
    name : str
        Name of the file without extension; in "embeddings", with its folder.
    half : {"select", "confirm"}
        Whether settings may be chosen on the table.
    read : callable
        Function that returns all rows and labels.
    """

    pool: str
    name: str
    half: str
    read: Callable[[], tuple[Rows, Labels]]


def find_half(name: str) -> str:
    """Return the half of a table of OddBench or OvRBench, by a hash of its name.

    >>> find_half("AdultDemographics"), find_half("ArtCollections")
    ('confirm', 'select')
    """
    digest = hashlib.sha256(f"confirm {name}".encode()).hexdigest()
    return CONFIRM if int(digest, 16) % 2 == 0 else SELECT


def list_tables(oddbench: Path) -> list[PoolTable]:
    """Return the available tables of all pools; `oddbench` is the folder of the last two.

    Raises
    ------
    TableError
        If the folder does not have the tables of OddBench and OvRBench.
    """
    return [*_list_adbench(), *_list_folders(oddbench)]


def _list_adbench() -> Iterator[PoolTable]:
    for dataset in catalogue():
        for data_file in filter(is_available, dataset.files):
            read = partial(load, data_file)
            if dataset.kind == "table":
                half = SELECT if is_chosen_on(data_file.name) else CONFIRM
                yield PoolTable("adbench", data_file.name, half, read)
            else:
                yield PoolTable("embeddings", _name_embedding(data_file), SELECT, read)


def _name_embedding(data_file: DataFile) -> str:
    """Return the path without extension: files of several folders have the same name."""
    return data_file.path.removesuffix(".npz")


def _list_folders(oddbench: Path) -> Iterator[PoolTable]:
    for pool, folder in FOLDERS.items():
        files = sorted((oddbench / folder).glob("*.npz"))
        if not files:
            raise TableError(f"{oddbench / folder}: no npz files. Pass --oddbench FOLDER.")
        for file in files:
            yield PoolTable(pool, file.stem, find_half(file.stem), partial(_read_arrays, file))


def _read_arrays(file: Path) -> tuple[Rows, Labels]:
    with np.load(file, allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.int64)


def load_pool_table(table: PoolTable) -> tuple[Rows, Labels]:
    """Return the rows and labels of a table: a fixed random sample of at most `MAX_ROWS` rows."""
    X, y = table.read()
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:MAX_ROWS])
    return X[rows], y[rows]


def is_in_half(pool: str, own_half: str, half: str) -> bool:
    """Return whether a table of a pool counts for a half, by the half that it is in itself.

    Embeddings count for both halves, and all tables of ADBench for "confirm": results there show
    whether a new detector is worse where earlier ones were chosen.

    >>> is_in_half("adbench", "select", "confirm"), is_in_half("oddbench", "select", "confirm")
    (True, False)
    """
    return pool == "embeddings" or (pool, half) == ("adbench", CONFIRM) or own_half == half


def select_by_hash(tables: list[PoolTable], n: int) -> list[PoolTable]:
    """Return `n` tables, selected by a hash of pool and name: always the same ones."""
    return sorted(
        tables, key=lambda each: hashlib.sha256(f"draw {each.pool}/{each.name}".encode()).digest()
    )[:n]
