import io
import os
import pty
import re
import select
import subprocess
import sys

import pytest

from altbi.cli import _progress

pytestmark = pytest.mark.slow

ALTBI = [sys.executable, "-c", "import sys; from altbi.cli import main; sys.exit(main())"]
LISTING = (
    "import sys; from altbi.cli import main; main(sys.argv[1:]); "
    "sys.stderr.write(str(sorted(name for name in sys.modules if name == 'rich')))"
)


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{i % 7}\n" for i in range(60)))
    return str(tmp_path / "t.csv")


def run_on_terminal(*command):
    """Run a command whose standard error is a terminal; return what it writes there."""
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    written = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            written += os.read(leader, 1 << 16)
        except OSError:  # the process has ended
            break
    os.close(leader)
    child.communicate()
    assert child.returncode == 0
    return written.decode()


def test_terminal_shows_progress_and_clears_it(table, tmp_path):
    text = run_on_terminal(*ALTBI, "fit", table, "-o", str(tmp_path / "m"))

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "reading" in plain
    assert re.search(r"training .*of 90 steps", plain)
    assert text.endswith("\x1b[1A\x1b[2K")
    assert "\x1b[?25h" in text  # the cursor is visible again


def test_quiet_hides_progress(table, tmp_path):
    assert run_on_terminal(*ALTBI, "fit", table, "-o", str(tmp_path / "m"), "--quiet") == ""


def test_pipes_do_not_import_rich(table, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LISTING, "detect", table, "--no-report", "-o", str(tmp_path / "o")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == "[]"
    assert "written:" in done.stdout
    assert "\x1b" not in done.stdout


def test_items_are_passed_on_and_counted(monkeypatch):
    from rich.console import Console
    from rich.progress import Progress

    screen = io.StringIO()
    created = []

    def create(unit):
        created.append(Progress(console=Console(file=screen, force_terminal=True)))
        return created[-1]

    monkeypatch.setattr(_progress, "_create_progress", create)

    items = list(_progress.show_progress("scoring", [[1, 2], [3]], 4, len))

    assert items == [[1, 2], [3]]
    (task,) = created[0].tasks
    assert (task.description, task.completed, task.total) == ("scoring", 3, 4)


@pytest.mark.parametrize(("quiet", "shown"), [(False, True), (True, False)])
def test_callback_needs_a_terminal(monkeypatch, quiet, shown):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert _progress.terminal_progress(quiet=quiet) is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert (_progress.terminal_progress(quiet=quiet) is not None) == shown
