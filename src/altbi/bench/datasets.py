"""The tables of ADBench at hand, by the paper's names, and how to read them."""

import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError

__all__ = ["DATASETS", "Dataset", "Labels", "Rows", "adbench_folder", "load", "locate", "select"]

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

VARIABLE = "ALTBI_ADBENCH"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One file of ADBench and what it must hold.

    Parameters
    ----------
    name : str
        The paper's name.
    file : str
        Path inside the ADBench folder.
    n_rows, n_features, n_outliers : int
        Sizes of the paper's Table B.1; every file in the catalogue has exactly these.
    comparable : bool, default=True
        Whether the paper's ALTBI-I row is about this file.
    """

    name: str
    file: str
    n_rows: int
    n_features: int
    n_outliers: int
    comparable: bool = True

    @property
    def n_cells(self) -> int:
        """Size of the table, for running small ones first."""
        return self.n_rows * self.n_features


# In the order of the paper's Table B.2; its census and speech are not at hand.
DATASETS = (
    Dataset("aloi", "Classical/1_ALOI.npz", 49_534, 27, 1508),
    Dataset("annthyroid", "Classical/2_annthyroid.npz", 7200, 6, 534),
    Dataset("backdoor", "Classical/3_backdoor.npz", 95_329, 196, 2329),
    Dataset("breastw", "Classical/4_breastw.npz", 683, 9, 239),
    Dataset("campaign", "Classical/5_campaign.npz", 41_188, 62, 4640),
    Dataset("cardio", "Classical/6_cardio.npz", 1831, 21, 176),
    Dataset("cardiotocography", "Classical/7_Cardiotocography.npz", 2114, 21, 466),
    Dataset("celeba", "Classical/8_celeba.npz", 202_599, 39, 4547),
    Dataset("cover", "Classical/10_cover.npz", 286_048, 10, 2747),
    Dataset("donors", "Classical/11_donors.npz", 619_326, 10, 36_710),
    Dataset("fault", "Classical/12_fault.npz", 1941, 27, 673),
    Dataset("fraud", "Classical/13_fraud.npz", 284_807, 29, 492),
    Dataset("glass", "Classical/14_glass.npz", 214, 7, 9),
    Dataset("hepatitis", "Classical/15_Hepatitis.npz", 80, 19, 13),
    Dataset("http", "Classical/16_http.npz", 567_498, 3, 2211),
    Dataset("internetads", "Classical/17_InternetAds.npz", 1966, 1555, 368),
    Dataset("ionosphere", "Classical/18_Ionosphere.npz", 351, 32, 126),
    Dataset("landsat", "Classical/19_landsat.npz", 6435, 36, 1333),
    Dataset("letter", "Classical/20_letter.npz", 1600, 32, 100),
    Dataset("lymphography", "Classical/21_Lymphography.npz", 148, 18, 6),
    Dataset("magic.gamma", "Classical/22_magic.gamma.npz", 19_020, 10, 6688),
    Dataset("mammography", "Classical/23_mammography.npz", 11_183, 6, 260),
    Dataset("musk", "Classical/25_musk.npz", 3062, 166, 97),
    Dataset("optdigits", "Classical/26_optdigits.npz", 5216, 64, 150),
    Dataset("pageblocks", "Classical/27_PageBlocks.npz", 5393, 10, 510),
    Dataset("pendigits", "Classical/28_pendigits.npz", 6870, 16, 156),
    Dataset("pima", "Classical/29_Pima.npz", 768, 8, 268),
    Dataset("satellite", "Classical/30_satellite.npz", 6435, 36, 2036),
    Dataset("satimage-2", "Classical/31_satimage-2.npz", 5803, 36, 71),
    Dataset("shuttle", "Classical/32_shuttle.npz", 49_097, 9, 3511),
    Dataset("skin", "Classical/33_skin.npz", 245_057, 3, 50_859),
    Dataset("smtp", "Classical/34_smtp.npz", 95_156, 3, 30),
    Dataset("spambase", "Classical/35_SpamBase.npz", 4207, 57, 1679),
    Dataset("stamps", "Classical/37_Stamps.npz", 340, 9, 31),
    Dataset("thyroid", "Classical/38_thyroid.npz", 3772, 6, 93),
    Dataset("vertebral", "Classical/39_vertebral.npz", 240, 6, 30),
    Dataset("vowels", "Classical/40_vowels.npz", 1456, 12, 50),
    Dataset("waveform", "Classical/41_Waveform.npz", 3443, 21, 100),
    Dataset("wbc", "Classical/42_WBC.npz", 223, 9, 10),
    Dataset("wdbc", "Classical/43_WDBC.npz", 367, 30, 10),
    Dataset("wilt", "Classical/44_Wilt.npz", 4819, 5, 257),
    Dataset("wine", "Classical/45_wine.npz", 129, 13, 10),
    Dataset("wpbc", "Classical/46_WPBC.npz", 198, 33, 47),
    Dataset("yeast", "Classical/47_yeast.npz", 1484, 8, 507),
    # The paper's ALTBI-I row is about raw MNIST pixels, one digit against the others.
    Dataset("mnist", "Classical/24_mnist.npz", 7603, 100, 700, comparable=False),
)


def select(names: Sequence[str] | None = None) -> list[Dataset]:
    """Take data sets by name, in the paper's order; all of them without names."""
    known = {dataset.name for dataset in DATASETS}
    if unknown := [name for name in names or () if name not in known]:
        raise ParameterError(
            f"No data set is called {', '.join(map(repr, unknown))}. "
            f"Expected names among: {', '.join(sorted(known))}."
        )
    return [dataset for dataset in DATASETS if names is None or dataset.name in names]


def adbench_folder() -> Path | None:
    """Folder of ADBench: what ALTBI_ADBENCH says, else the shared one beside the checkout."""
    if stated := os.environ.get(VARIABLE):
        return Path(stated)
    beside = Path("../shared/adbench")
    return beside if beside.is_dir() else None


def locate(dataset: Dataset) -> Path:
    """Path of a data set's file, which exists."""
    folder = adbench_folder()
    if folder is None:
        raise TableError(
            f"{dataset.name}: no ADBench folder is known. "
            f"Set {VARIABLE} to the folder that holds {dataset.file}."
        )
    path = folder / dataset.file
    if not path.is_file():
        raise TableError(
            f"{path}: no such file, but {dataset.name} needs it. "
            f"Get it from ADBench, or set {VARIABLE} to the folder that holds {dataset.file}."
        )
    return path


def load(dataset: Dataset) -> tuple[Rows, Labels]:
    """Read the rows and labels (1 = outlier) of a data set, and check that they are the paper's."""
    path = locate(dataset)
    try:
        with np.load(path, allow_pickle=False) as archive:
            X, y = archive["X"], archive["y"]
        rows, labels = X.astype(np.float64), y.astype(np.int64)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as cause:
        raise TableError(
            f"{path}: not an ADBench file with plain arrays X and y ({cause}). Get it again."
        ) from cause
    _check(dataset, path, rows, labels)
    return rows, labels


def _check(dataset: Dataset, path: Path, rows: Rows, labels: Labels) -> None:
    """Refuse a file that is not the one the paper describes."""
    expected = (dataset.n_rows, dataset.n_features)
    outliers = int((labels == 1).sum())
    plain = labels.shape == (len(labels),) and bool(np.isin(labels, (0, 1)).all())
    if rows.shape != expected or labels.shape != expected[:1] or not plain:
        found = f"X of shape {rows.shape} and y of shape {labels.shape}"
    elif outliers != dataset.n_outliers:
        found = f"{outliers} outliers"
    else:
        return
    raise TableError(
        f"{path}: {found}, but {dataset.name} has {expected[0]} rows, {expected[1]} features, "
        f"labels 0 and 1, and {dataset.n_outliers} outliers. Get ADBench's own file."
    )
