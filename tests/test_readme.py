"""The examples in README and docs run as they stand."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

README = Path(__file__).parent.parent / "README.md"
COMMANDS = README.parent / "docs" / "commands.md"
PRIVACY = README.parent / "docs" / "privacy.md"
OWN_MODEL = README.parent / "docs" / "your-own-model.md"


def payments():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "date": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 300), "D"),
            "amount": np.exp(rng.normal(4, 0.5, 300)).round(2),
            "country": rng.choice(["NL", "DE", None], 300, p=[0.7, 0.2, 0.1]),
            "paid": rng.random(300) < 0.9,
        }
    )
    table.loc[42, "amount"] = 95_000.0
    return table


def run_examples(page):
    """Run the Python examples of a page one after the other, and give their names."""
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    names = {}
    for example in examples:
        exec(compile(example, page.name, "exec"), names)
    return names


def test_the_example_runs_and_finds_the_planted_row(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    payments().assign(invoice=range(300)).to_csv("payments.csv", index=False)

    found = run_examples(README)

    said = capsys.readouterr().out
    assert found["scores"].argmax() == 42
    assert 42 in found["flagged"].index
    assert "'country' has" in said
    assert "0 amount 95000.0 expected" in said
    assert (tmp_path / "payments.altbi").exists()
    assert found["private"].ledger_.epsilon_prv <= 3


def test_the_example_on_files_finds_the_planted_row(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    payments().assign(invoice=range(300)).to_csv("payments.csv", index=False)

    summary = run_examples(COMMANDS)["summary"]

    assert (summary.top[0].number, summary.top[0].ids) == (42, ("42",))
    assert capsys.readouterr().out == f"{summary.flagged} amount\n"
    assert (tmp_path / "found" / "report.html").exists()


def test_the_examples_of_own_models_find_the_planted_row(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    found = run_examples(OWN_MODEL)

    said = capsys.readouterr().out
    assert found["scores"].argmax() == found["flow_scores"].argmax() == 42
    assert said.startswith("42\n")
    assert "x0 1.5 expected" in said
    assert "x1 1.5 expected" in said
    assert (tmp_path / "table.altbi").exists()


def test_the_example_of_a_private_fit_keeps_to_its_budget(capsys):
    found = run_examples(PRIVACY)

    spent, guarantee = capsys.readouterr().out.split()
    assert 2 < float(spent) <= 3
    assert guarantee == "True"
    assert len(found["scores"]) == 500
