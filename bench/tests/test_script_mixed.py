"""Tests of the scripts that measure mixed tables, injected errors and wrong cells."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import injected_errors
import wrong_cells
from altbi_bench.mixed.cells import DirtyTable
from altbi_bench.mixed.duplicates import count_listed
from altbi_bench.mixed.errors import ERROR_PLANS, ErrorPlan, Injected
from altbi_bench.mixed.systems import OLD, OURS, ROW_SYSTEMS, RowSystem
from altbi_bench.runs.json_records import append_json_record, read_json_records
from bench_scripts import load_script

# The script has the name of a package.
mixed = load_script("mixed")


def run_script(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    script.main()


def build_mixed_record(system, table, auc, seed=0):
    return {"table": table, "system": system, "seed": seed, "auc": auc, "ap": auc / 2}


class TestMixed:
    @pytest.fixture
    def arguments(self, tmp_path, monkeypatch):
        """Return the arguments of a run on one table; jobs are not run."""
        folder = tmp_path / "mixed"
        folder.mkdir()
        pq.write_table(pa.table({"x": [1.0]}), folder / "a.parquet")
        monkeypatch.setattr(
            mixed,
            "run_mixed_jobs",
            lambda jobs, seconds: (job.record | {"auc": 0.75, "ap": 0.5} for job in jobs),
        )
        return ["--mixed", f"{folder}", "--records", f"{tmp_path / 'mixed.jsonl'}"]

    def test_runs_with_a_record_are_kept(self, arguments, monkeypatch, tmp_path):
        path = tmp_path / "mixed.jsonl"
        append_json_record(path, build_mixed_record(OURS, "a", 0.5))

        run_script(
            mixed, monkeypatch, *arguments, "--systems", f"{OURS}; frequency", "--seeds", "2"
        )

        found = {(r["system"], r["seed"]): r["auc"] for r in read_json_records(path)}
        assert found == {(OURS, 0): 0.5, ("frequency", 0): 0.75, (OURS, 1): 0.75}

    def test_again_replaces_records(self, arguments, monkeypatch, tmp_path):
        path = tmp_path / "mixed.jsonl"
        append_json_record(path, build_mixed_record("frequency", "a", 0.5))

        again = ["--systems", "frequency", "--again", "frequency"]
        run_script(mixed, monkeypatch, *arguments, *again)

        assert [each["auc"] for each in read_json_records(path)] == [0.75]

    def test_candidate_has_records_of_its_own(self, arguments, monkeypatch, tmp_path, capsys):
        path = tmp_path / "mixed.jsonl"
        append_json_record(path, build_mixed_record(OURS, "a", 0.5))

        candidate = ["--candidate", f"{tmp_path / 'c.jsonl'}", "--seeds", "1"]
        run_script(mixed, monkeypatch, *arguments, *candidate)

        assert len(read_json_records(path)) == len(read_json_records(tmp_path / "c.jsonl")) == 1
        assert "| candidate | 1 | 0.750 / 0.500 | +0.250 ± - |" in capsys.readouterr().out

    def test_seeds_are_averaged_and_differences_paired(self):
        values = mixed.collect_values(
            [
                build_mixed_record(OURS, "a", 0.5),
                build_mixed_record(OURS, "a", 0.75, seed=1),
                build_mixed_record(OURS, "b", 0.5),
                build_mixed_record("frequency", "a", 0.625),
                build_mixed_record("frequency", "c", 1.0),
                {"table": "d", "system": "frequency", "seed": 0, "error": "ValueError: no"},
            ]
        )

        _, ours, frequency = mixed.system_rows(values)
        _, *rows = mixed.table_rows(values)

        assert ours[:3] == [OURS, "2", "0.562 / 0.281"]
        assert frequency == ["frequency", "2", "0.812 / 0.406", "+0.000 ± -", "+0.000 ± -"]
        assert rows[1] == ["b", "0.500 / 0.250", "-"]

    def test_tables_of_raha_are_left_out(self):
        record = build_mixed_record(OURS, "dirty_beers_rare", 1.0)
        values = mixed.collect_values([record, build_mixed_record(OURS, "a", 0.5)])

        title, ours = mixed.system_rows(mixed.leave_out_raha(values), "others")

        assert title[0] == "others"
        assert ours[:3] == [OURS, "1", "0.500 / 0.250"]

    def test_missing_package_is_reported(self, monkeypatch, capsys):
        monkeypatch.setitem(ROW_SYSTEMS, "x", RowSystem(None, package="no_such_package"))

        assert mixed.select_systems([OURS, "x"]) == [OURS]
        assert capsys.readouterr().err == (
            "x is left out: the package no_such_package is not installed.\n"
        )

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--systems", "kNN"], "No system is called kNN."),
            (["--no-runs", "--again", "frequency"], "--no-runs keeps all records."),
            ([], "--old is missing"),
        ],
    )
    @pytest.mark.parametrize("script", [mixed, injected_errors])
    def test_wrong_arguments_end_the_script(
        self, script, monkeypatch, tmp_path, capsys, arguments, message
    ):
        with pytest.raises(SystemExit):
            run_script(script, monkeypatch, "--records", f"{tmp_path / 'x'}", *arguments)

        assert message in capsys.readouterr().err


class TestInjectedErrors:
    def test_errors_in_the_top_rows_are_counted(self):
        injected = Injected(pa.table({"x": [0] * 8}), {"zero": [0], "negative": [1, 2]})

        found = injected_errors.count_found(injected, np.array([9.0, 8, 1, 7, 6, 5, 0, 0]))

        assert found == {"zero": [1.0, 1.0], "negative": [1.0, 2.0]}

    def test_draws_with_a_record_are_not_run(self, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(injected_errors, "ERROR_PLANS", {"payments": ErrorPlan()})
        monkeypatch.setattr(injected_errors, "MAX_ROWS", 200)
        path = tmp_path / "x.jsonl"

        for _ in range(2):
            run_script(
                injected_errors,
                monkeypatch,
                *("--records", f"{path}", "--systems", "frequency", "--draws", "1"),
            )

        (record,) = read_json_records(path)
        assert record["sizes"] == {"missing value": 15, "duplicate row": 15}
        # A missing value is the only one of its column, and has the highest rarity.
        assert record["found"]["missing value"][1] >= 8
        assert "| frequency | 1 |" in capsys.readouterr().out

    def test_copies_in_the_list_are_counted(self):
        injected = Injected(pa.table({"x": [0] * 9}), {"zero": [0], "duplicate row": [1, 2, 3]})
        listed = pa.table(
            {
                "group": [1, 1, 2, 2, 3, 3, 4, 4],
                "kind": ["same row"] * 4 + ["identifier repeats"] * 4,
                "row": [1, 5, 2, 6, 3, 7, 7, 8],
            }
        )

        found = count_listed(injected, listed)

        assert found == {"copies": 3, "found": 2, "listed": 7, "not_injected": 2}

    def test_copies_in_the_list_count_as_found(self):
        records = [
            {"system": OURS, "table": "payments", "draw": 0}
            | {"found": {"zero": [1, 2], "duplicate row": [0, 0]}}
            | {"sizes": {"zero": 2, "duplicate row": 2}}
        ]
        lists = [{"table": "payments", "draw": 0, "copies": 2, "found": 2, "listed": 4}]
        lists[0] |= {"not_injected": 0}

        rows = list(injected_errors.list_rows(records, lists))

        assert rows[1:] == [
            ["payments", "2 of 2", "4", "0"],
            ["all kinds, in n / 2 n rows and the list", "75 / 100", "", ""],
        ]

    def test_shares_are_of_all_errors(self):
        records = [
            {
                "system": OLD,
                "table": table,
                "draw": 0,
                "found": {"zero": [n, 2 * n]},
                "sizes": {"zero": 10},
            }
            for table, n in zip(ERROR_PLANS, (1, 2, 3, 4), strict=True)
        ]

        header, zero, everything = injected_errors.grid_rows(records, None)

        assert header == ["all tables", OLD]
        assert zero == ["zero", "25 / 50"]
        assert everything == ["all kinds", "25 / 50"]
        assert list(injected_errors.draw_rows(records))[1] == [OLD, "1", "25.0 ± 0.0", "50.0 ± 0.0"]


class TestWrongCells:
    def test_reduced_beers_have_neither_ounces_nor_notation(self, tmp_path):
        for folder, columns in (("beers", ["ounces", "ibu"]), ("hospital", ["index", "name"])):
            (tmp_path / folder).mkdir()
            for file, values in (("dirty", ["12 oz", "N/A"]), ("clean", ["12", ""])):
                text = ",".join(columns) + "\n" + ",".join(values) + "\n"
                (tmp_path / folder / f"{file}.csv").write_text(text)

        found = {
            (name, draw): table for name, draw, table in wrong_cells.iterate_tables(tmp_path, 0)
        }

        assert found["beers, reduced", 0].names == ("ibu",)
        assert not found["beers, reduced", 0].wrong.any()
        assert found["beers", 0].wrong.all()

    def test_table_has_means_over_draws(self, monkeypatch, tmp_path, capsys):
        names, texts = ("a",), (("x", "y", "x", "x"),)
        tables = [("hospital", 0, DirtyTable(names, texts, np.array([[0], [1], [0], [0]], bool)))]
        monkeypatch.setattr(wrong_cells, "iterate_tables", lambda raha, n_draws: iter(tables))
        path = tmp_path / "x.jsonl"

        for _ in range(2):
            run_script(wrong_cells, monkeypatch, "--records", f"{path}", "--systems", "histograms")

        (record,) = read_json_records(path)
        assert (record["ap"], record["f1"], record["n_wrong"]) == (1.0, 1.0, 1)
        assert "| histograms | 1.000 / 1.000 |" in capsys.readouterr().out
