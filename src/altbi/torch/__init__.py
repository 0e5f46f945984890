"""GLOW, custom networks, and fits under a privacy budget; they need the extra "torch".

Names are imported when they are used. A model with a privacy budget can be loaded and scored
without PyTorch.
"""

from typing import TYPE_CHECKING, Any

from altbi._lazy import import_lazily
from altbi.errors import import_extra

if TYPE_CHECKING:
    from altbi.torch._backbones import CustomBackbone, Glow
    from altbi.torch._privacy_budget import PrivacyBudget

__all__ = ["CustomBackbone", "Glow", "PrivacyBudget"]

_import_name = import_lazily(
    __name__,
    {
        "CustomBackbone": "altbi.torch._backbones",
        "Glow": "altbi.torch._backbones",
        "PrivacyBudget": "altbi.torch._privacy_budget",
    },
)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name; raise a `MissingExtraError` if it needs PyTorch, which is missing."""
    if name in ("CustomBackbone", "Glow"):
        import_extra("torch", extra="torch")
    return _import_name(name)
