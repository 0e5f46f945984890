"""Detectors: fit, score, predict, explain."""

from os import PathLike

from altbi.detectors.altbi import ALTBI
from altbi.detectors.base import Detector
from altbi.detectors.generative import GenerativeDetector
from altbi.detectors.odim import ODIM
from altbi.storage import read_header

__all__ = ["ALTBI", "ODIM", "Detector", "GenerativeDetector", "load"]


def load(path: str | PathLike[str]) -> GenerativeDetector:
    """Read a detector from a file, whichever of ours it holds."""
    return (ODIM if read_header(path).get("detector") == "ODIM" else ALTBI).load(path)
