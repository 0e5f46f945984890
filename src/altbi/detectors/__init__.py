"""Detectors: estimators with the interface of scikit-learn that fit and hold a `FittedModel`."""

from altbi.detectors._altbi import ALTBI
from altbi.detectors._base import Detector
from altbi.detectors._odim import ODIM
from altbi.detectors._outlier_detector import OutlierDetector

__all__ = ["ALTBI", "ODIM", "Detector", "OutlierDetector"]
