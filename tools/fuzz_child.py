"""The process of `fuzz.py` that reads hostile files: one after the other, within limits.

It prints a line of JSON before and after each file. So its parent knows which file ended the
process, or takes too long.
"""

import contextlib
import io
import json
import os
import re
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from fuzz_models import PAYLOAD, build_rows, is_torch_installed, mutate_model, read_base_models
from fuzz_tables import CANARY, HostileFile, build_base_tables, mutate_table

KINDS = ("models", "tables")
GOOD = ("read and scored", "refused")
MESSAGE_LETTERS = 300
# Names of code: of imports, and of the report's template, which Jinja compiles.
IMPORTS, TEMPLATE, RENDERER = "<frozen importlib._bootstrap>", "<template>", "jinja2/environment.py"
# Events of the interpreter that show that a file made it run other code, or reach other machines.
FORBIDDEN = frozenset(
    {
        "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system",
        "pickle.find_class", "pty.spawn", "socket.bind", "socket.connect", "socket.getaddrinfo",
        "socket.gethostbyname", "socket.sendto", "subprocess.Popen", "webbrowser.open",
    }
)  # fmt: skip


class CodeRun:
    """Records code that a file makes the interpreter run, while `is_active`.

    Code that the import of an installed module runs is expected.
    """

    def __init__(self) -> None:
        self.is_active = False
        self.found: list[str] = []
        self._installed = tuple(
            {sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1]), "<frozen"}
        )
        sys.addaudithook(self._record)

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Append forbidden events to `found`; called by the interpreter for all events."""
        if not self.is_active:
            return
        if event == "subprocess.Popen" and _is_workbook_reader(arguments):
            return
        if event in FORBIDDEN:
            self.found.append(f"{event} {arguments!r}"[:MESSAGE_LETTERS])
        elif event == "exec" and not self._is_expected(arguments[0], sys._getframe(1)):
            self.found.append(f"exec of {getattr(arguments[0], 'co_filename', '?')}")
        elif event == "ctypes.dlopen" and not str(arguments[0]).startswith(self._installed):
            self.found.append(f"ctypes.dlopen {arguments[0]}")

    def _is_expected(self, code: CodeType, frame: FrameType | None) -> bool:
        """Return whether code is of an installed module, of its import, or of our page template."""
        if code.co_filename.startswith(self._installed):
            return True
        while frame is not None and code.co_filename.startswith("<"):
            caller = frame.f_code.co_filename
            if caller == IMPORTS or (code.co_filename == TEMPLATE and caller.endswith(RENDERER)):
                return True
            frame = frame.f_back
        return False


def _is_workbook_reader(arguments: tuple[Any, ...]) -> bool:
    """Return whether a started process is ours that reads workbooks, with our code alone.

    What it does is not watched.
    """
    from altbi.io._excel import CHILD

    return list(arguments[1][:4]) == [sys.executable, "-P", "-c", CHILD]


def detect_outliers(path: Path) -> Any:  # noqa: ANN401
    """Detect the outliers of a table: open, scan, fit, score, explain, and write all files."""
    from altbi import IWAE, OutlierDetector, Schedule, detect

    schedule = Schedule(n0=16, T0=1, T1=1, T2=2, updates=1)
    detector = OutlierDetector(schedule=schedule, backbone=IWAE(hidden=(4,), latent=2))
    detection = detect(path, detector=detector, top=3)
    return detection.scores()["score"].to_numpy()


def score_with_model(path: Path) -> Any:  # noqa: ANN401
    """Inspect, load and save a model, and score and explain the rows of `build_rows`."""
    from altbi import load
    from altbi.cli import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(["inspect", str(path)])
    model = load(path)
    model.to_bytes()
    rows = build_rows()
    model.explain(rows.slice(0, 3))
    return model.score(rows)


class Runner:
    """Runs the steps for one kind of file in this process, and classifies what happens."""

    def __init__(self, kind: str, bases: Path) -> None:
        if kind == "models":
            models = read_base_models(bases)
            self.run: Callable[[Path], Any] = score_with_model
            self.mutate: Callable[[Any], HostileFile] = lambda rng: mutate_model(models, rng)
            self.valid = [(f"{name}.altbi", content) for name, content, _ in models]
        else:
            tables = build_base_tables()
            self.run = detect_outliers
            self.mutate = lambda rng: mutate_table(tables, rng)
            self.valid = [(f"valid.{ending}", content) for ending, content in tables]
        self.code_run = CodeRun()
        self.background: list[str] = []  # errors of threads and of objects that are deleted
        threading.excepthook = lambda event: self.background.append(repr(event.exc_value))
        sys.unraisablehook = lambda event: self.background.append(repr(event.exc_value))

    def warm_up(self) -> None:
        """Run valid files, so that all modules are imported; they must not fail."""
        for name, content in self.valid:
            path = Path(name)
            path.write_bytes(content)
            self.run(path)
            path.unlink()

    def classify(self, path: Path) -> tuple[str, str]:
        """Read a file, and return the result and its reason."""
        self.code_run.found, self.background = [], []
        self.code_run.is_active = True
        result, reason = self._read(path)
        self.code_run.is_active = False
        if self.code_run.found or Path(CANARY).exists():
            Path(CANARY).unlink(missing_ok=True)
            return "code run", "; ".join(self.code_run.found) or CANARY
        if self.background:
            return "foreign exception", "; ".join(self.background)
        return result, reason

    def _read(self, path: Path) -> tuple[str, str]:
        """Return the result of reading a file without regard to code run, and its reason."""
        from altbi import AltbiError

        try:
            scores = self.run(path)
        except (AltbiError, OSError, MemoryError) as error:
            return "refused", f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001 - to find such errors is the purpose
            return "foreign exception", f"{type(error).__name__}: {error}"
        if not np.isfinite(scores).all():
            return "score not finite", f"{np.sum(~np.isfinite(scores))} of {len(scores)}"
        return "read and scored", ""


def limit_memory(gibibytes: float) -> None:
    """Limit the address space of this process to what it has now, and so much more."""
    size = re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
    now = int(size[1]) * 1024 if size else 0
    limit = now + int(gibibytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def report(**values: object) -> None:
    """Print a line of JSON at once."""
    os.write(REPORTS, json.dumps(values).encode() + b"\n")


def run_files(runner: Runner, kind: str, seed: int, indices: Iterator[int]) -> None:
    """Make, write and read the files with these numbers, and report each."""
    for index in indices:
        mutations, name, content = runner.mutate(
            np.random.default_rng((seed, KINDS.index(kind), index))
        )
        path = Path(name)
        path.write_bytes(content)
        report(index=index, mutations=mutations, name=name)
        start = time.perf_counter()
        result, reason = runner.classify(path)
        seconds = time.perf_counter() - start
        if result not in GOOD:
            path.replace(Path("..", "bad", name))
        path.unlink(missing_ok=True)
        report(result=result, reason=reason[:MESSAGE_LETTERS], seconds=round(seconds, 2))


def main() -> None:
    """Run the files that the arguments select: kind, seed, first, last, bases and memory."""
    kind, seed, first, last, bases, gibibytes = sys.argv[1:]
    warnings.simplefilter("ignore")
    Path(f"{PAYLOAD}.py").write_text(f"open({CANARY!r}, 'w').close()\n", encoding="utf-8")
    sys.path.insert(0, str(Path.cwd()))
    if kind == "models" and is_torch_installed():
        import altbi.torch  # noqa: F401 - a model file may name its classes
    runner = Runner(kind, Path(bases))
    runner.warm_up()
    limit_memory(float(gibibytes))
    report(ready=True)
    run_files(runner, kind, int(seed), iter(range(int(first), int(last))))


if __name__ == "__main__":
    # Reports have a descriptor of their own: what libraries print must not mix with them.
    REPORTS = os.dup(1)
    os.dup2(2, 1)
    main()
