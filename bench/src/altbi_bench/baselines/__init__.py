"""The paper's deep baselines, and some of its related work: to compare with.

They fit, score and predict like `altbi.ALTBI`; they have no explanations and no model files.
"""

from altbi.baselines.base import Baseline
from altbi.baselines.dagmm import DAGMM
from altbi.baselines.ddpm import DDPM
from altbi.baselines.deep_sad import DeepSAD
from altbi.baselines.deep_svdd import DeepSVDD
from altbi.baselines.drocc import DROCC
from altbi.baselines.dsebm import DSEBM
from altbi.baselines.dte import DTEC, DTEIG
from altbi.baselines.goad import GOAD
from altbi.baselines.icl import ICL
from altbi.baselines.planar_flow import PlanarFlow
from altbi.baselines.rda import RDA

__all__ = [
    "DAGMM",
    "DDPM",
    "DROCC",
    "DSEBM",
    "DTEC",
    "DTEIG",
    "GOAD",
    "ICL",
    "RDA",
    "Baseline",
    "DeepSAD",
    "DeepSVDD",
    "PlanarFlow",
]
