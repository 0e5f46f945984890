"""Generative models: called on rows, a model gives one loss per row."""

from altbi.models.base import GenerativeModel
from altbi.models.iwae import IWAE

__all__ = ["IWAE", "GenerativeModel"]
