"""Files of records that are plain JSON values, one per line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["append_json_record", "append_json_records", "read_json_records", "replace_json_records"]


def read_json_records(path: Path) -> list[Any]:
    """Read all complete records of a file; a missing file has no records."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(each) for each in text[: text.rfind("\n") + 1].splitlines()]


def append_json_record(path: Path, record: Any) -> None:  # noqa: ANN401
    """Add one record to a file; an incomplete last line is removed."""
    append_json_records(path, [record])


def append_json_records(path: Path, records: Iterable[Any]) -> None:
    """Add records to a file in one write; an incomplete last line is removed."""
    with path.open("ab+") as file:
        file.seek(0)
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
        file.write("".join(json.dumps(each) + "\n" for each in records).encode())


def replace_json_records(path: Path, records: Iterable[Any]) -> None:
    """Write a file with these records only; an interrupted write leaves the old file."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    temporary.replace(path)
