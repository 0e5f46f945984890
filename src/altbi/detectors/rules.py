"""The rules for ALTBI's own parameters; those of the schedule are the schedule's."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from altbi.parameters import check_parameters, is_count, is_number
from altbi.threshold import is_contamination

if TYPE_CHECKING:
    from altbi.detectors.altbi import ALTBI

__all__ = ["check_rules"]

# Far more than a network needs; a hostile model file must not keep anyone busy.
_MAX_LAYERS = 100


def check_rules(detector: ALTBI) -> None:
    """Refuse the first parameter that makes no sense, by name."""
    check_parameters(
        detector,
        {
            "draws": (is_count(detector.draws), "a whole number of at least 1"),
            "hidden": (_are_widths(detector.hidden), "'auto' or a tuple of widths"),
            "latent": (_is_size(detector.latent), "'auto' or a whole number of at least 1"),
            "network": (detector.network in ("reference", "paper"), "'reference' or 'paper'"),
            "average": (detector.average in ("scaled", "plain"), "'scaled' or 'plain'"),
            "learning_rate": (
                is_number(detector.learning_rate, 0) and detector.learning_rate > 0,
                "a number above 0",
            ),
            "weight_decay": (is_number(detector.weight_decay, 0), "a number of at least 0"),
            "contamination": (
                is_contamination(detector.contamination),
                "a share in (0, 0.5] or 'auto'",
            ),
            "max_rows": (is_count(detector.max_rows, 2), "a whole number of at least 2 rows"),
            "random_state": (
                _is_seed(detector.random_state),
                "a whole number from 0 to 2**63 - 1, a RandomState or None",
            ),
        },
    )


def _is_size(value: object) -> bool:
    return is_count(value) or (isinstance(value, str) and value == "auto")


def _is_seed(value: object) -> bool:
    if is_count(value, 0):
        return int(cast(int, value)) < 2**63
    return value is None or isinstance(value, np.random.RandomState)


def _are_widths(value: object) -> bool:
    if isinstance(value, tuple | list):
        return 0 < len(value) <= _MAX_LAYERS and all(map(is_count, value))
    return isinstance(value, str) and value == "auto"
