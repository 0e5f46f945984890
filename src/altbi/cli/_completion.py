"""Completion in the user's shell."""

import argparse
import sys

import shtab

from altbi.cli._parser import build_parser

__all__ = ["completion"]


def completion(args: argparse.Namespace) -> None:
    """Print the script that makes a shell complete the commands, their options and file names."""
    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")
