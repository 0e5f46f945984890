"""The paper's deep baselines, each a detector of its own."""

from altbi.baselines.base import Baseline
from altbi.baselines.deep_svdd import DeepSVDD

__all__ = ["Baseline", "DeepSVDD"]
