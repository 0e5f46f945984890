"""The options of a privacy budget, and of a threshold that is given."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from altbi.errors import ParameterError

__all__ = ["private_changes"]


def private_changes(args: argparse.Namespace) -> dict[str, Any]:
    """Give the detector's parameters that the options change."""
    changes: dict[str, Any] = {}
    if args.threshold is not None:
        changes["threshold"] = args.threshold
    given = {name: getattr(args, name) for name in _BUDGET if getattr(args, name) is not None}
    if args.epsilon is not None:
        changes |= given | {"epsilon": args.epsilon, "bounds": _bounds(args)}
    elif given or args.bounds is not None:
        options = ", ".join(f"--{name}" for name in ("bounds", *_BUDGET))
        args.wrong(f"{options} belong to a privacy budget: give --epsilon too")
    if changes and args.method == "odim":
        args.wrong("--threshold and --epsilon are for altbi, not for odim")
    if args.epsilon is not None and args.method == "altbi-glow":
        args.wrong("--epsilon is for altbi, not for altbi-glow")
    return changes


def _bounds(args: argparse.Namespace) -> Any:  # noqa: ANN401 - a pair, a dict or a word
    words = args.bounds
    if words is None:
        args.wrong(f"--epsilon wants --bounds: {_WAYS}; they cannot be read from the table")
    if words == ["estimate"]:
        return "estimate"
    if len(words) == 1 and Path(words[0]).exists():
        return _from_file(words[0])
    numbers = [_number(word) for word in words]
    # A word that is no number is not smaller than anything.
    if len(words) != 2 or not numbers[0] < numbers[1]:
        args.wrong(f"--bounds {' '.join(words)}: expected {_WAYS}. Put the table before it")
    return tuple(numbers)


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _from_file(path: str) -> dict[str, Any]:
    """Read bounds by column; what they mean is checked with the table."""
    try:
        bounds = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as cause:
        raise ParameterError(f"{path}: no JSON ({cause}). {_EXPECTED}") from None
    if not isinstance(bounds, dict):
        raise ParameterError(f"{path}: a {type(bounds).__name__}. {_EXPECTED}")
    return bounds


_BUDGET = ("delta", "truncation", "noise", "clip")
_WAYS = "two numbers, the smaller one first, a JSON file that is there, or estimate"
_EXPECTED = 'Expected {"age": [0, 120], "colour": ["red", "blue"]}: bounds or levels by column.'
