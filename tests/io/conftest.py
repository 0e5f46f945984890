"""Fixtures of the tests that read files."""

import pytest
from table_bytes import read

from altbi.errors import TableError
from altbi.io import open_table


@pytest.fixture
def open_bytes(tmp_path):
    """Return a function that writes bytes to a file without an ending, and opens it."""

    def open_file(data, **options):
        path = tmp_path / "some.file"
        path.write_bytes(data)
        return open_table(path, **options)

    return open_file


@pytest.fixture
def error_of(open_bytes, tmp_path):
    """Return a function that returns the error message of opening or reading bytes."""

    def message(data, **options):
        with pytest.raises(TableError) as caught:
            read(open_bytes(data, **options))
        text = str(caught.value)
        assert text.startswith(str(tmp_path / "some.file"))
        assert "\n" not in text
        return text

    return message
