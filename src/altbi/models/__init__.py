"""Generative models: called on rows, a model gives one loss per row."""

from altbi.models.base import GenerativeModel, LossParts, Stacked, allocate
from altbi.models.glow import Glow
from altbi.models.iwae import IWAE, reference_sizes, sized_iwae
from altbi.models.own import Backbone, OwnModel, label_of
from altbi.models.snapshots import N_LANDMARKS, WORST_LOSS, Landmarks, Snapshots, landmarks_of
from altbi.models.stacked_iwae import StackedIWAE

__all__ = [
    "IWAE",
    "N_LANDMARKS",
    "WORST_LOSS",
    "Backbone",
    "GenerativeModel",
    "Glow",
    "Landmarks",
    "LossParts",
    "OwnModel",
    "Snapshots",
    "Stacked",
    "StackedIWAE",
    "allocate",
    "label_of",
    "landmarks_of",
    "reference_sizes",
    "sized_iwae",
]
