"""Detectors: fit, score, predict, explain."""

from altbi.detectors.altbi import ALTBI
from altbi.detectors.base import Detector
from altbi.detectors.generative import GenerativeDetector
from altbi.detectors.odim import ODIM

__all__ = ["ALTBI", "ODIM", "Detector", "GenerativeDetector"]
