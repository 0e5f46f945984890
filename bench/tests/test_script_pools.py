"""Tests of the script that runs systems on pools of tables."""

import importlib.util
import sys
from pathlib import Path

import pytest

from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.runs.pools import OURS
from bench_pools import build_record, build_table

# The script has the name of modules of the package.
SCRIPT = Path(__file__).parents[1] / "scripts" / "pools.py"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return the script with records of its own; two tables are in the pools."""
    spec = importlib.util.spec_from_file_location("pools_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tables = [build_table("a"), build_table("b")]
    monkeypatch.setattr(module, "RECORDS", tmp_path / "pools.jsonl")
    monkeypatch.setattr(module, "list_tables", lambda oddbench: tables)
    monkeypatch.setattr(module, "run_pool_jobs", run_without_fits)
    return module


def run_without_fits(jobs, *, seconds):
    for job in jobs:
        yield job.record | {"auc": 0.75, "ap": 0.5, "seconds": 0.0}


def run_script(script, monkeypatch, *arguments):
    """Run the script, and return the keys of the records that it leaves."""
    monkeypatch.setattr(sys, "argv", ["pools.py", *arguments])
    script.main()
    return [(each["system"], each["table"]) for each in read_json_records(script.RECORDS)]


class TestPools:
    def test_jobs_with_a_record_are_not_run(self, script, monkeypatch):
        append_json_record(script.RECORDS, build_record("LOF", "a", 0.5))

        found = run_script(script, monkeypatch, "--systems", "LOF,PCA")

        assert found == [("LOF", "a"), ("PCA", "a"), ("LOF", "b"), ("PCA", "b")]
        assert read_json_records(script.RECORDS)[0]["auc"] == 0.5

    def test_again_replaces_the_records_of_a_system(self, script, monkeypatch):
        for system in (OURS, "LOF"):
            append_json_record(script.RECORDS, build_record(system, "a", 0.5))

        run_script(script, monkeypatch, "--systems", OURS, "--again", OURS, "--seeds", "1")

        found = {(r["system"], r["table"]): r["auc"] for r in read_json_records(script.RECORDS)}
        assert found == {("LOF", "a"): 0.5, (OURS, "a"): 0.75, (OURS, "b"): 0.75}

    def test_retry_runs_failed_jobs_again(self, script, monkeypatch):
        append_json_record(script.RECORDS, build_record("LOF", "a", None))
        append_json_record(script.RECORDS, build_record("LOF", "b", 0.5))

        run_script(script, monkeypatch, "--systems", "LOF")
        assert "error" in read_json_records(script.RECORDS)[0]

        run_script(script, monkeypatch, "--systems", "LOF", "--retry")
        assert [r["auc"] for r in read_json_records(script.RECORDS)] == [0.5, 0.75]

    def test_output_has_a_table_for_each_metric(self, script, monkeypatch, capsys):
        append_json_record(script.RECORDS, build_record(OURS, "a", 0.5))

        run_script(script, monkeypatch, "--no-runs", "--half", "confirm")

        output = capsys.readouterr().out
        assert f"| {OURS} | - | - | 0.500 (alone) |" in output
        assert f"| {OURS} | - | - | 0.250 (alone) |" in output
        assert "| LOF | 0 | 0 | 1 |  |" in output

    def test_page_has_the_printed_tables(self, script, monkeypatch, tmp_path, capsys):
        append_json_record(script.RECORDS, build_record(OURS, "a", 0.5))
        page = tmp_path / "page.md"
        page.write_text("\n".join(["before", script.MARKS[0], "x", script.MARKS[1], "after"]))

        for _ in range(2):  # the second time replaces the tables of the first
            run_script(script, monkeypatch, "--no-runs", "--page", f"{page}")

        output = capsys.readouterr().out
        head, rest = page.read_text().split("    python bench/scripts/pools.py --no-runs")
        assert head == f"before\n{script.MARKS[0]}\n\n"
        assert output.count(rest.split("\n\n", 1)[1].split(script.MARKS[1])[0].rstrip()) == 2
        assert rest.endswith(f"\n{script.MARKS[1]}\nafter")

    def test_candidate_runs_on_select_tables_only(self, script, monkeypatch, tmp_path, capsys):
        tables = [build_table("a"), build_table("b", half="select")]
        monkeypatch.setattr(script, "list_tables", lambda oddbench: tables)
        for name, half in (("a", "confirm"), ("b", "select")):
            append_json_record(script.RECORDS, build_record(OURS, name, 0.5, half=half))

        found = run_script(script, monkeypatch, "--candidate", f"{tmp_path / 'c.jsonl'}")

        assert found == [(OURS, "a"), (OURS, "b")]
        records = read_json_records(tmp_path / "c.jsonl")
        assert [(each["table"], each["seed"]) for each in records] == [("b", n) for n in range(3)]
        assert "| candidate | - | - | 0.750 (+0.250 ± -) |" in capsys.readouterr().out

    def test_list_has_sizes_and_outliers(self, script, monkeypatch, capsys):
        run_script(script, monkeypatch, "--list")

        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert found[1] == ["oddbench", "confirm", "a", "60", "3", "5"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--systems", "kNN"], "No system is called kNN."),
            (["--no-runs", "--again", "LOF"], "--no-runs keeps all records."),
            ([], "--old is missing"),
        ],
    )
    def test_wrong_arguments_keep_the_records(
        self, script, monkeypatch, capsys, arguments, message
    ):
        append_json_record(script.RECORDS, build_record("LOF", "a", None))

        with pytest.raises(SystemExit):
            run_script(script, monkeypatch, *arguments)

        assert message in capsys.readouterr().err
        assert len(read_json_records(script.RECORDS)) == 1
