"""Generative models: called on rows, a model gives one loss per row."""

from altbi.models.base import GenerativeModel, LossParts, Stacked
from altbi.models.iwae import IWAE, reference_sizes
from altbi.models.stacked_iwae import StackedIWAE

__all__ = ["IWAE", "GenerativeModel", "LossParts", "Stacked", "StackedIWAE", "reference_sizes"]
