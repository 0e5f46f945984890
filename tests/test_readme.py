"""The README's example runs as it stands."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

README = Path(__file__).parent.parent / "README.md"


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


def test_the_example_runs_and_finds_the_planted_row(tmp_path, monkeypatch, capsys):
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    payments().to_csv("payments.csv", index=False)

    found = {}
    exec(compile(example, README.name, "exec"), found)

    said = capsys.readouterr().out
    assert found["scores"].argmax() == 42
    assert 42 in found["flagged"].index
    assert "'country' has" in said
    assert "0 amount 95000.0 expected" in said
    assert (tmp_path / "payments.altbi").exists()
