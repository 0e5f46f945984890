"""Files of records that are plain JSON values, one in each line."""

import json
from pathlib import Path
from typing import Any

__all__ = ["append_json_line", "read_json_lines"]


def read_json_lines(path: Path) -> list[Any]:
    """Read all complete records of a file; a missing file has none."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def append_json_line(path: Path, record: Any) -> None:  # noqa: ANN401
    """Add one record to a file, in place of an incomplete last line."""
    with path.open("ab+") as file:
        file.seek(0)
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
        file.write(json.dumps(record).encode() + b"\n")
