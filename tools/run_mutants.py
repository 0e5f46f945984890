"""Count which of the 40 mutants in mutants.json the tests kill.

    python tools/run_mutants.py               # all
    python tools/run_mutants.py --ids 5,17

A mutant is a small change that breaks the product. Each is applied to a copy of the committed
files, and the tests that are listed with it run there. They have to fail.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS_FAILED = 1


def copy_checkout(folder: Path) -> Path:
    """Copy the committed files into a folder, beside a link to the shared data."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"], capture_output=True, check=True
    ).stdout
    copy = folder / "checkout"
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(copy, filter="data")
    (folder / "shared").symlink_to(ROOT.parent / "shared")
    return copy


def apply_mutant(mutant: dict[str, Any], copy: Path) -> str:
    """Change the copy as the mutant says; return the original text of the file."""
    file = copy / mutant["file"]
    text = file.read_text("utf-8")
    count = text.count(mutant["old"])
    if count != 1:
        message = f"Mutant {mutant['id']}: its text occurs {count} times in {mutant['file']}."
        raise SystemExit(message)
    file.write_text(text.replace(mutant["old"], mutant["new"]), "utf-8")
    return text


def run_tests(tests: list[str], copy: Path) -> int:
    """Run test files against the copy, and return pytest's exit code."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *tests], cwd=copy, env=environment, capture_output=True, check=False
    ).returncode


def is_killed(mutant: dict[str, Any], copy: Path) -> bool:
    """Return whether the tests of a mutant fail with it."""
    original = apply_mutant(mutant, copy)
    try:
        code = run_tests(mutant["tests"], copy)
    finally:
        (copy / mutant["file"]).write_text(original, "utf-8")
    if code not in (0, TESTS_FAILED):
        message = f"Mutant {mutant['id']}: pytest ended with exit code {code}."
        raise SystemExit(message)
    return code == TESTS_FAILED


def main() -> int:
    """Run the mutants; exit with 1 if one survives, or if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", help="numbers of mutants, separated by commas; default: all")
    args = parser.parse_args()
    mutants = json.loads((ROOT / "tools" / "mutants.json").read_text("utf-8"))
    if args.ids:
        wanted = {int(number) for number in args.ids.split(",")}
        mutants = [mutant for mutant in mutants if mutant["id"] in wanted]
    with tempfile.TemporaryDirectory(prefix="altbi-mutants-") as folder:
        copy = copy_checkout(Path(folder))
        if run_tests(sorted({test for mutant in mutants for test in mutant["tests"]}), copy):
            raise SystemExit("The tests fail without a mutant.")
        n_killed = 0
        for mutant in mutants:
            killed = is_killed(mutant, copy)
            n_killed += killed
            word = "killed" if killed else "survives"
            sys.stdout.write(f"{mutant['id']:3} {word:9} {mutant['file']}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{n_killed} of {len(mutants)} killed\n")
    return 0 if n_killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
