"""Run the commands and the Python examples of the README and the user pages."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from altbi.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^(?: {4}|\$ )(altbi [a-z][^\n#]*)", re.MULTILINE)
INLINE = re.compile(r"`(altbi [a-z][^`]*)`")
# Their clusters are not part of the tests.
OTHER_ENGINES = re.compile(r"\b(spark|ray)\b")
BOUNDS = {
    "date": ["2026-01-01", "2026-12-31"],
    "amount": [0, 100_000],
    "country": ["NL", "DE"],
    "paid": [False, True],
}


def find_pages():
    """Return the pages with Python examples."""
    pages = [README, *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in pages if PYTHON.search(page.read_text(encoding="utf-8"))]


def find_commands():
    """Return the commands that the README shows, in code blocks and in sentences."""
    text = README.read_text(encoding="utf-8")
    found = [command.strip() for command in (*COMMAND.findall(text), *INLINE.findall(text))]
    # A sentence may name a command without its arguments.
    return [each for each in dict.fromkeys(found) if len(each.split()) > 2 or each == "altbi demo"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with the files that the examples name."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "date": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 300), "D"),
            "amount": np.exp(rng.normal(4, 0.5, 300)).round(2),
            "country": rng.choice(["NL", "DE", None], 300, p=[0.7, 0.2, 0.1]),
            "paid": rng.random(300) < 0.9,
            "invoice": range(300),
        }
    )
    table.loc[42, "amount"] = 95_000.0
    folder = tmp_path_factory.mktemp("readme")
    table.to_csv(folder / "payments.csv", index=False)
    table.to_csv(folder / "new.csv", index=False)
    table.to_parquet(folder / "payments.parquet")
    (folder / "bounds.json").write_text(json.dumps(BOUNDS))
    return folder


def test_readme_commands_run(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    commands = find_commands()
    assert any(command.startswith("altbi detect payments.csv") for command in commands)

    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command

    scores = pd.read_csv(home / "payments-altbi" / "scores.csv")
    assert scores["score"].idxmax() == 42
    assert "written:" in capsys.readouterr().out


@pytest.mark.parametrize("page", find_pages(), ids=lambda page: page.name)
def test_python_examples_run(page, home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    names = {}

    for example in PYTHON.findall(page.read_text(encoding="utf-8")):
        if not OTHER_ENGINES.search(example):
            exec(compile(example, page.name, "exec"), names)

    if page == README:
        assert names["scores"].argmax() == 42
        assert " expected " in capsys.readouterr().out
        position = list(names["flagged"].index).index(42)
        assert names["explanation"].reasons(position)[0].column == "amount"
