"""The script that compares runs done again with those of before."""

import sys
from dataclasses import replace

import pytest

import again
from altbi_bench.runs.records import append
from bench_jobs import ON_WINE, result


class TestAgain:
    """The AUCs of HBOS with four seeds on one table, before and again; seed 3 broke before."""

    BEFORE, AGAIN = (0.5, 0.6, 0.7, None), (0.5, 0.605, 0.65, 0.9)

    @pytest.fixture(autouse=True)
    def lines(self, tmp_path, monkeypatch):
        monkeypatch.setattr(again, "SYSTEMS", ("HBOS", "IForest"))
        for name in ("BEFORE", "AGAIN"):
            monkeypatch.setattr(again, name, tmp_path / name)
            for seed, auc in enumerate(getattr(self, name)):
                job = replace(ON_WINE, seed=seed)
                done = result(job, error="no") if auc is None else result(job, auc)
                append(tmp_path / name, replace(done, versions={"processor": "Quick One"}))

    def test_the_row_says_how_often_and_how_far_runs_differ(self):
        row = again.format_row("HBOS", again.find_pairs()["HBOS"])

        assert row == ["HBOS", "3", "1", "2", "0.6000", "0.5850", "-0.050 (45_wine, seed 2)"]

    def test_other_systems_and_new_jobs_do_not_count(self, tmp_path):
        append(tmp_path / "AGAIN", result(replace(ON_WINE, seed=7), 0.9))

        assert list(again.find_pairs()) == ["HBOS"]
        assert [run.seed for _, run in again.find_pairs()["HBOS"]] == [0, 1, 2]

    def test_the_processor_is_named_above_the_table(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["again.py", "--no-runs"])

        again.main()

        said = capsys.readouterr().out
        assert said.startswith("Again on: Quick One\n")
        assert "\n| HBOS | 3 |" in said
        assert "IForest" not in said

    def test_runs_that_failed_end_it_with_their_code(self, monkeypatch, capsys):
        monkeypatch.setattr(again, "run_command", lambda words: 1)
        monkeypatch.setattr(sys, "argv", ["again.py"])

        with pytest.raises(SystemExit) as end:
            again.main()

        assert end.value.code == 1
        assert capsys.readouterr().out == ""
