"""Rules for parameters, and the one sentence that says which rule was broken."""

import math
from collections.abc import Mapping
from numbers import Integral, Real

from altbi.errors import ParameterError

__all__ = ["check_parameters", "is_count", "is_number"]


def is_count(value: object, least: int = 1) -> bool:
    """Tell whether a value is a whole number, and large enough."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object, least: float = -math.inf, most: float = math.inf) -> bool:
    """Tell whether a value is a finite number within the bounds."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    number = float(value)
    return math.isfinite(number) and least <= number <= most


def check_parameters(owner: object, rules: Mapping[str, tuple[bool, str]]) -> None:
    """Refuse the first parameter whose rule does not hold; a rule has a verdict and a wording."""
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ParameterError(
                f"{type(owner).__name__}: {name}={getattr(owner, name)!r}, but expected {expected}."
            )
