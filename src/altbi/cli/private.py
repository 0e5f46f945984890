"""The options of a privacy budget, and of a threshold that is given."""

import argparse
import json
from pathlib import Path
from typing import Any

from altbi.errors import ParameterError

__all__ = ["private_changes"]


def private_changes(args: argparse.Namespace) -> dict[str, Any]:
    """Give the detector's parameters that the options change."""
    changes: dict[str, Any] = {}
    if args.threshold is not None:
        changes["threshold"] = args.threshold
    if args.epsilon is not None:
        changes |= {"epsilon": args.epsilon, "delta": args.delta, "clip": args.clip}
        changes |= {"truncation": args.truncation, "bounds": _bounds(args)}
        changes |= {} if args.noise is None else {"noise": args.noise}
    elif args.bounds is not None or args.noise is not None:
        args.wrong("--bounds and --noise belong to a privacy budget: give --epsilon too")
    if changes and args.method == "odim":
        args.wrong("--threshold and --epsilon are for altbi, not for odim")
    return changes


def _bounds(args: argparse.Namespace) -> Any:  # noqa: ANN401 - a pair, a dict or a word
    words = args.bounds
    if words is None or words == ["estimate"]:
        return words and "estimate"
    if len(words) == 1:
        return _from_file(words[0])
    try:
        low, high = map(float, words)
    except ValueError:
        args.wrong("--bounds expects two numbers, a JSON file, or estimate")
    return low, high


def _from_file(path: str) -> dict[str, Any]:
    """Read bounds by column; what they mean is checked with the table."""
    try:
        bounds = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as cause:
        raise ParameterError(f"{path}: no JSON ({cause}). {_EXPECTED}") from None
    if not isinstance(bounds, dict):
        raise ParameterError(f"{path}: a {type(bounds).__name__}. {_EXPECTED}")
    return bounds


_EXPECTED = 'Expected {"age": [0, 120], "colour": ["red", "blue"]}: bounds or levels by column.'
