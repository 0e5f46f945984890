"""Print how large the product is: lines, modules, parameters, public names, long functions.

    python tools/measure_structure.py               # this checkout
    python tools/measure_structure.py --source DIR  # the sources of another version

Modules that `altbi detect x.csv` passes through are those in which a function of ours is called.
"""

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Packages that version 0.1 had inside the product, and that are research.
RESEARCH = ("bench/", "baselines/", "cli/bench")
LONG = 40
TRACE = """
import json, os, sys, tempfile, threading
from pathlib import Path
package, modules = Path(sys.argv[1], "altbi").resolve(), set()
def profile(frame, event, arg):
    code = frame.f_code
    is_function = code.co_flags & 1  # bodies of modules and classes are not
    if event == "call" and is_function and str(package) in code.co_filename:
        modules.add(os.path.relpath(code.co_filename, package))
folder = tempfile.TemporaryDirectory()
table = Path(folder.name, "x.csv")
rows = [f"{i},{i * 37 % 101},{'ab'[i % 2]}" for i in range(300)]
table.write_text("\\n".join(["id,amount,kind", *rows]))
from altbi.cli import main
threading.setprofile(profile); sys.setprofile(profile)
main(["detect", str(table), "--id", "id", "--quiet"])
sys.setprofile(None); threading.setprofile(None)
print(json.dumps(sorted(modules)))
"""


def product_files(source: Path) -> list[Path]:
    """Return the modules of the product."""
    package = source / "altbi"
    files = sorted(package.rglob("*.py"))
    return [f for f in files if not f.relative_to(package).as_posix().startswith(RESEARCH)]


def long_functions(files: list[Path]) -> list[str]:
    """Return the functions of more than 40 lines."""
    found = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > LONG:
                    found.append(f"{file.name}:{node.name} ({size})")
    return found


def detect_modules(source: Path) -> list[str]:
    """Return the modules in which `altbi detect x.csv` calls a function."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", TRACE, str(source)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(result.stdout.splitlines()[-1])
    return modules


def count_parameters(source: Path) -> dict[str, int]:
    """Return the number of parameters of each public class."""
    code = (
        "import altbi, inspect, json; print(json.dumps({n: len(inspect.signature(getattr(altbi, n))"
        ".parameters) for n in altbi.__all__ if inspect.isclass(getattr(altbi, n))"
        " and not issubclass(getattr(altbi, n), Exception)}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(source)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    counts: dict[str, int] = json.loads(result.stdout)
    return counts


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--verbose", action="store_true", help="list modules and functions")
    args = parser.parse_args()
    files = product_files(args.source)
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    passed, long = detect_modules(args.source), long_functions(files)
    counts = count_parameters(args.source)
    sys.stdout.write(
        f"lines of the product            {lines:,}\n"
        f"modules                         {len(files)}\n"
        f"modules that detect calls       {len(passed)}\n"
        f"functions over {LONG} lines         {len(long)}\n"
        f"public names of altbi           {len(counts)} classes\n"
        f"parameters                      {counts}\n"
    )
    if args.verbose:
        sys.stdout.write("\n".join(["", *passed, "", *long, ""]))


if __name__ == "__main__":
    main()
