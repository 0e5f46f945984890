"""GLOW, custom networks, and fits under a privacy budget."""

from altbi.torch._backbones import CustomBackbone, Glow
from altbi.torch._privacy_budget import PrivacyBudget

__all__ = ["CustomBackbone", "Glow", "PrivacyBudget"]
