"""The commands that need no table: what a model file holds, and the demonstration."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from altbi.cli.meter import terminal_meter

__all__ = ["demo", "inspect"]


def inspect(args: argparse.Namespace) -> None:
    """Say what a model file says of itself."""
    from altbi.inspection import read_facts, render

    facts = read_facts(args.file)
    sys.stdout.write(_json(asdict(facts)) if args.json else render(facts))


def demo(args: argparse.Namespace) -> None:
    """Search the embedded table."""
    from altbi.cli.words import told_demo, totals
    from altbi.demo import run
    from altbi.jobs import unwatched

    found = run(Path(args.output), args.seed, terminal_meter(quiet=args.json) or unwatched)
    counts = {
        "malignant": found.malignant,
        "in_top_ten": found.in_top_ten,
        "in_top_twenty": found.in_top_twenty,
    }
    facts = totals(found.summary, found.files) | counts
    sys.stdout.write(_json(facts) if args.json else told_demo(found))


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"
