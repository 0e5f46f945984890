"""Set-up of all tests: those of the product, in tests/, and of the benchmark, in bench/tests/."""

import os
import signal

import pytest
from hypothesis import settings

# scikit-learn skips one of its checks without it; scipy reads it when it is first imported.
os.environ["SCIPY_ARRAY_API"] = "1"

# A shell that starts the tests in the background ignores Ctrl-C, and child processes would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test is timed: a busy machine is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def adbench():
    """Return the ADBench folder; skips only where nobody has promised one."""
    from altbi_bench.catalogue.datasets import adbench_folder

    folder = adbench_folder()
    if folder is None:
        pytest.skip("ALTBI_ADBENCH is not set and ../shared/adbench does not exist")
    if not folder.is_dir():
        pytest.fail(f"ALTBI_ADBENCH={os.environ['ALTBI_ADBENCH']} is not a folder")
    return folder


@pytest.fixture
def open_bytes(tmp_path):
    """Return a function that writes bytes to a file without an ending, and opens it."""
    from altbi.io import open_table

    def open_file(data, **options):
        path = tmp_path / "some.file"
        path.write_bytes(data)
        return open_table(path, **options)

    return open_file


@pytest.fixture
def error_of(open_bytes, tmp_path):
    """Return a function that returns the error message of opening or reading bytes."""
    from table_bytes import read

    from altbi.errors import TableError

    def message(data, **options):
        with pytest.raises(TableError) as caught:
            read(open_bytes(data, **options))
        text = str(caught.value)
        assert text.startswith(str(tmp_path / "some.file"))
        assert "\n" not in text
        return text

    return message
