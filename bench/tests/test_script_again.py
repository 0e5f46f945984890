"""Tests of the script that compares repeated runs with earlier ones."""

import sys
from dataclasses import replace

import pytest

import again
from altbi_bench.runs.records import append
from bench_jobs import ON_WINE, build_run


class TestAgain:
    """AUCs of HBOS with four seeds on one table. The first run of seed 3 failed."""

    BEFORE, AGAIN = (0.5, 0.6, 0.7, None), (0.5, 0.605, 0.65, 0.9)

    @pytest.fixture(autouse=True)
    def write_records(self, tmp_path, monkeypatch):
        monkeypatch.setattr(again, "SYSTEMS", ("HBOS", "IForest"))
        for name in ("BEFORE", "AGAIN"):
            monkeypatch.setattr(again, name, tmp_path / name)
            for seed, auc in enumerate(getattr(self, name)):
                job = replace(ON_WINE, seed=seed)
                done = build_run(job, error="no") if auc is None else build_run(job, auc)
                append(tmp_path / name, replace(done, versions={"processor": "Quick One"}))

    def test_row_counts_and_measures_differences(self):
        row = again.format_row("HBOS", again.find_pairs()["HBOS"])

        assert row == ["HBOS", "3", "1", "2", "0.6000", "0.5850", "-0.050 (45_wine, seed 2)"]

    def test_only_repeated_jobs_are_compared(self, tmp_path):
        append(tmp_path / "AGAIN", build_run(replace(ON_WINE, seed=7), 0.9))

        assert list(again.find_pairs()) == ["HBOS"]
        assert [run.seed for _, run in again.find_pairs()["HBOS"]] == [0, 1, 2]

    def test_output_names_the_processor(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["again.py", "--no-runs"])

        again.main()

        output = capsys.readouterr().out
        assert output.startswith("Again on: Quick One\n")
        assert "\n| HBOS | 3 |" in output
        assert "IForest" not in output

    def test_failed_command_sets_the_exit_code(self, monkeypatch, capsys):
        monkeypatch.setattr(again, "run_command", lambda words: 1)
        monkeypatch.setattr(sys, "argv", ["again.py"])

        with pytest.raises(SystemExit) as end:
            again.main()

        assert end.value.code == 1
        assert capsys.readouterr().out == ""
