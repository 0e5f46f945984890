"""Deep baselines of the paper, and some of its related work.

They fit, score and predict like `altbi.ALTBI`. They have no explanations and no model files.
"""

from altbi_bench.baselines.base import Baseline
from altbi_bench.baselines.dagmm import DAGMM
from altbi_bench.baselines.ddpm import DDPM
from altbi_bench.baselines.deep_sad import DeepSAD
from altbi_bench.baselines.deep_svdd import DeepSVDD
from altbi_bench.baselines.drocc import DROCC
from altbi_bench.baselines.dsebm import DSEBM
from altbi_bench.baselines.dte import DTEC, DTEIG
from altbi_bench.baselines.goad import GOAD
from altbi_bench.baselines.icl import ICL
from altbi_bench.baselines.planar_flow import PlanarFlow
from altbi_bench.baselines.rda import RDA

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
