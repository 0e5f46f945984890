"""Time that texts take which are made to be slow: it grows with their length, not its square."""

import subprocess
import sys
import textwrap

import pytest

LETTERS = 100_000
LIMIT = 60  # seconds; where all letters are tried from all letters, it takes many minutes


def run(code: str) -> str:
    """Run code in a process of its own, which can be ended, and return what it prints."""
    text = f"n = {LETTERS}\n{textwrap.dedent(code)}"
    command = [sys.executable, "-c", text]
    return subprocess.run(command, check=True, timeout=LIMIT, capture_output=True, text=True).stdout


@pytest.mark.parametrize("unit", ["1", " ", "1,", "1 ", "1.", "-", "(", "'", "+1", "\u2013"])
def test_long_texts_are_no_numbers_or_dates(unit):
    found = run(
        f"""
        from altbi.io._type_notes import INFERRED_FORMATS, _has_format
        from altbi.io._csv_header import DATE, NUMBER, _MISSING
        unit = {unit!r}
        for start in ("", "1", "-"):
            text = start + unit * (n // len(unit)) + "x"
            print(sum(_has_format(text, each) for each in INFERRED_FORMATS))
            print(sum(bool(each.fullmatch(text)) for each in (DATE, NUMBER, _MISSING)))
        """
    )
    assert found.split() == ["0"] * 6


@pytest.mark.parametrize("unit", ['"', '"\\\\', "\\\\", ",", " ", '",', "[", "-n"])
def test_long_lines_of_bad_json_are_refused(tmp_path, unit):
    path = tmp_path / "t.json"
    found = run(
        f"""
        import altbi
        with open({str(path)!r}, "w") as file:
            file.write('{{"a": "' + {unit!r} * n)
        try:
            altbi.detect({str(path)!r})
        except altbi.AltbiError as error:
            print(error)
        """
    )
    assert 0 < len(found) < 1000


def test_long_digits_in_a_table_are_texts(tmp_path):
    path = tmp_path / "t.csv"
    found = run(
        f"""
        import altbi
        long = "1" * n + "x"
        lines = [f"{{i % 7}},{{i}}.5" for i in range(40)]
        with open({str(path)!r}, "w") as file:
            file.write("\\n".join(["a,b", *lines, long + ",1", *lines]))
        print(len(altbi.detect({str(path)!r}).scores()))
        """
    )
    assert found.split() == ["81"]
