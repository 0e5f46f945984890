"""Detectors: fit, score, predict, explain."""

from altbi.detectors.altbi import ALTBI
from altbi.detectors.base import Detector

__all__ = ["ALTBI", "Detector"]
