"""The detector that the arguments ask for."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from altbi.errors import ParameterError
from altbi.model import FitSettings, build_settings

__all__ = ["read_settings"]

BUDGET_OPTIONS = ("delta", "truncation", "noise", "clip")
BOUNDS = "two numbers, the smaller one first, a JSON file, or estimate"
BOUNDS_FILE = (
    'Expected {"age": [0, 120], "colour": ["red", "blue"]}: bounds or categories by column.'
)


def read_settings(args: argparse.Namespace) -> FitSettings:
    """Return the settings of the detector that the arguments ask for."""
    private = args.epsilon is not None
    method = args.method or ("altbi" if private else "recommended")
    _check_options(args, method)
    parameters: dict[str, Any] = {
        "contamination": args.contamination,
        "max_rows": args.max_rows,
        "random_state": args.seed,
    }
    if args.threshold is not None:
        parameters["threshold"] = args.threshold
    if method == "recommended":
        return build_settings("OutlierDetector", parameters)
    if method == "odim":
        return build_settings("ODIM", parameters)
    return build_settings("ALTBI", parameters | _altbi_parameters(args, method))


def _altbi_parameters(args: argparse.Namespace, method: str) -> dict[str, Any]:
    """Return the parameters by which a variant of ALTBI differs from the plain constructor."""
    if method == "altbi-paper":
        from altbi.networks import IWAE, Schedule

        return {
            "schedule": Schedule(T1=60, updates=1, first_truncated=1),
            "backbone": IWAE(hidden=(100, 50), latent=10, network="paper", weight_decay=0.0),
            "average": "plain",
        }
    if method == "altbi-glow":
        from altbi.torch import Glow

        return {"backbone": Glow()}
    return {} if args.epsilon is None else {"privacy": _read_budget(args)}


def _read_budget(args: argparse.Namespace) -> Any:  # noqa: ANN401 - imported where it is used
    from altbi.torch import PrivacyBudget

    options = {name: getattr(args, name) for name in BUDGET_OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    return PrivacyBudget(args.epsilon, bounds=_read_bounds(args), **given)


def _check_options(args: argparse.Namespace, method: str) -> None:
    """Report options that do not go together as wrong usage."""
    given = [name for name in ("bounds", *BUDGET_OPTIONS) if getattr(args, name) is not None]
    if given and args.epsilon is None:
        args.wrong(f"--{given[0]} belongs to a privacy budget: pass --epsilon too")
    if args.epsilon is not None and method != "altbi":
        args.wrong(f"--epsilon is for --method altbi, not for {method}")
    if args.threshold is not None and method == "odim":
        args.wrong("--threshold is not for odim")


def _read_bounds(args: argparse.Namespace) -> Any:  # noqa: ANN401 - a pair, a dict or a word
    words = args.bounds
    if words is None:
        args.wrong(f"--epsilon needs --bounds: {BOUNDS}")
    if words == ["estimate"]:
        return "estimate"
    if len(words) == 1 and Path(words[0]).exists():
        return _read_bounds_file(words[0])
    numbers = [_parse_number(word) for word in words]
    # NaN, for a word that is not a number, is not smaller than anything.
    if len(words) != 2 or not numbers[0] < numbers[1]:
        args.wrong(f"--bounds {' '.join(words)}: expected {BOUNDS}. Put the table before it")
    return tuple(numbers)


def _parse_number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _read_bounds_file(path: str) -> dict[str, Any]:
    """Read bounds by column; the table checks their meaning."""
    try:
        bounds = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path}: not valid JSON ({error}). {BOUNDS_FILE}") from None
    if not isinstance(bounds, dict):
        raise ParameterError(f"{path}: a {type(bounds).__name__}. {BOUNDS_FILE}")
    return bounds
