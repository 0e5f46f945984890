"""The commands that need no table: what a model file holds, and the demonstration."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from altbi.cli._progress import terminal_progress

__all__ = ["demo", "inspect"]


def inspect(args: argparse.Namespace) -> None:
    """Say what a model file says of itself."""
    from altbi.model._inspection import read_description, render

    facts = read_description(args.file)
    sys.stdout.write(_json(msgspec.to_builtins(facts)) if args.json else render(facts))


def demo(args: argparse.Namespace) -> None:
    """Search the embedded table."""
    from altbi._demo import run
    from altbi.cli._output import format_demo, summary_to_json
    from altbi.io import no_progress

    found = run(Path(args.output), args.seed, terminal_progress(quiet=args.json) or no_progress)
    counts = {
        "malignant": found.malignant,
        "in_top_ten": found.in_top_ten,
        "in_top_twenty": found.in_top_twenty,
    }
    facts = summary_to_json(found.summary, found.files) | counts
    sys.stdout.write(_json(facts) if args.json else format_demo(found))


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"
