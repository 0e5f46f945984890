import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import altbi
import altbi_bench
from altbi.distributed import Dask
from altbi_bench.catalogue.datasets import catalogue
from altbi_bench.catalogue.systems import IMAGE_ONLY, SYSTEMS
from altbi_bench.cli import main
from altbi_bench.runs import measurement, runner
from altbi_bench.runs.code_digest import code_digest
from altbi_bench.runs.records import append, keep_latest, lock_records, read_runs
from bench_jobs import ON_WINE, SECONDS, build_run

# Restore the handler of Ctrl-C, which background processes ignore.
CODE = """import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)
from altbi_bench.cli import main; sys.exit(main())"""
COMMAND = [sys.executable, "-c", CODE]
PATIENCE = 300  # seconds until a process counts as hanging
INTERRUPTED, TERMINATED = 130, 143
RECORDS_KEPT = "Records of finished jobs are kept; the same command runs the others."


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """Return an empty working folder, with an ADBench folder that has an empty file for wine."""
    folder = tmp_path / "adbench"
    (folder / ON_WINE.file).parent.mkdir(parents=True)
    (folder / ON_WINE.file).touch()
    monkeypatch.setenv("ALTBI_ADBENCH", str(folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job_errors(monkeypatch):
    """Run jobs in this process, and return the errors by system that tests may set."""
    errors = {}

    def results(jobs, **limits):
        assert limits["processes"] >= 1
        return (build_run(job, error=errors.get(job.system), auc=0.25) for job in jobs)

    monkeypatch.setattr(runner, "run_jobs", results)
    return errors


def run(*words):
    return main(["run", *words])


def read_lines(capsys):
    """Return the lines of the output and of the errors."""
    return tuple(text.splitlines() for text in capsys.readouterr())


def read_error(capsys):
    """Return the error, and check that it is one line without output."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("altbi-bench: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    return err


class TestDatasets:
    def test_data_sets_are_listed_with_available_files(self, workspace, capsys):
        assert main(["datasets"]) == 0

        out, err = read_lines(capsys)
        rows = {line.split("  ")[0]: line.split() for line in out[1:-3]}
        assert list(rows) == [dataset.label for dataset in catalogue()]
        assert rows["wine"] == ["wine", "table", "1", "of", "1", "129", "13", "10"]
        assert rows["cardio"][2:5] == ["0", "of", "1"]
        assert out[-2].startswith(f"1 of 195 files are available in {workspace / 'adbench'}. ")
        assert "ALTBI_ADBENCH" in out[-1]
        assert err == []

    def test_all_file_names_are_listed(self, workspace, capsys):
        assert main(["datasets", "--files"]) == 0

        out, _ = read_lines(capsys)
        parts = [part for dataset in catalogue() for part in dataset.files]
        assert [line.split()[0] for line in out[1:-3]] == [part.path for part in parts]

    def test_json_has_every_file(self, workspace, capsys):
        assert main(["datasets", "--json"]) == 0

        facts = json.loads(capsys.readouterr().out)
        assert len(facts) == 195
        (wine,) = [fact for fact in facts if fact["available"]]
        assert wine.pop("sha256").isalnum()
        assert wine == {
            "dataset": "wine",
            "kind": "table",
            "domain": "Chemistry",
            "file": ON_WINE.file,
            "rows": 129,
            "features": 13,
            "outliers": 10,
            "available": True,
        }

    def test_no_file_is_available_without_a_folder(self, workspace, capsys, monkeypatch):
        monkeypatch.delenv("ALTBI_ADBENCH")

        assert main(["datasets"]) == 0

        assert "\n0 of 195 files are available. The others" in capsys.readouterr().out

    def test_check_reports_damaged_files(self, adbench, tmp_path, monkeypatch, capsys):
        content = (adbench / ON_WINE.file).read_bytes()
        file = tmp_path / ON_WINE.file
        file.parent.mkdir()
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        for stored, code, good in ((content[:-9], 1, 0), (content, 0, 1)):
            file.write_bytes(stored)

            assert main(["datasets", "--check"]) == code

            out, err = read_lines(capsys)
            assert out == [f"{good} of 1 available files are as described."]
            assert [str(file) in line for line in err] == [True] * code

    def test_check_without_files_fails(self, workspace, capsys, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(workspace / "nowhere"))

        assert main(["datasets", "--check"]) == 1

        assert f"is available in {workspace / 'nowhere'}. Set ALTBI_ADBENCH" in read_error(capsys)

    @pytest.mark.parametrize("other", ["--files", "--json"])
    def test_check_excludes_listing_options(self, workspace, capsys, other):
        with pytest.raises(SystemExit) as end:
            main(["datasets", "--check", other])

        assert end.value.code == 2
        assert "leave out --files and --json" in capsys.readouterr().err


class TestSystems:
    def test_systems_are_listed_with_source_and_parameters(self, capsys):
        assert main(["systems"]) == 0

        out, _ = read_lines(capsys)
        assert len(out) == 1 + len(SYSTEMS) + len(IMAGE_ONLY)
        assert out[-1].split()[:3] == ["CSI", "not", "run"]
        (knn,) = [line for line in out if line.startswith("kNN ")]
        assert "  pyod.models.knn:KNN  " in knn
        assert "  n_neighbors=32  " in knn

    def test_json_has_recipes_of_both_settings(self, capsys):
        assert main(["systems", "--json"]) == 0

        facts = {fact["system"]: fact for fact in json.loads(capsys.readouterr().out)}
        assert list(facts) == list(SYSTEMS)
        assert facts["kNN"]["parameters"] == {"n_neighbors": 32}
        assert facts["kNN"]["on inliers alone"]["parameters"] == {"n_neighbors": 5}
        assert facts["ALTBI-I (paper)"]["scaling"] == "its own"
        assert facts["ALTBI"]["note"].startswith("distance to reference rows")
        assert facts["ALTBI-G (light)"]["parameters"]["backbone"]["class"] == "altbi.torch:Glow"

    def test_missing_packages_are_reported(self, capsys, monkeypatch):
        def raise_not_found(package):
            raise PackageNotFoundError(package)

        monkeypatch.setattr(measurement, "version", raise_not_found)

        assert main(["systems"]) == 0

        assert capsys.readouterr().out.count("  not installed  ") == len(SYSTEMS)


class TestRun:
    def test_recorded_jobs_are_not_repeated(self, workspace, job_errors, capsys):
        words = ["--datasets", "wine", "--systems", "HBOS,IForest"]

        assert [run(*words), run(*words, "--seeds", "4"), run(*words)] == [0, 0, 0]

        path = "bench/results/transductive.jsonl"
        assert read_lines(capsys)[0] == [
            f"4 jobs done, 0 existed, 0 failed: {path}",
            f"1 job done, 4 existed, 0 failed: {path}",
            f"0 jobs done, 4 existed, 0 failed: {path}",
        ]
        jobs = [(each.system, each.seed) for each in read_runs(workspace / path)]
        assert jobs == [("HBOS", 0), *(("IForest", seed) for seed in range(4))]

    def test_options_are_passed_to_jobs_and_processes(self, workspace, monkeypatch):
        given = {}

        def results(jobs, **limits):
            given.update(limits)
            return map(build_run, jobs)

        monkeypatch.setattr(runner, "run_jobs", results)

        words = "--datasets wine --systems kNN --protocol semi --rows 50 --seeds 6,2"
        assert run(*words.split(), *["--processes", "2", "--threads", "3", "--limit", "9"]) == 0

        assert given == {"processes": 2, "threads": 3, "seconds": 9}
        wanted = replace(ON_WINE, system="kNN", protocol="semi", rows=50)
        assert [each.job for each in read_runs(workspace / "bench/results/semi.jsonl")] == [
            replace(wanted, seed=6), replace(wanted, seed=2)
        ]  # fmt: skip

    def test_engine_runs_jobs_and_records_are_local(self, workspace, monkeypatch, capsys):
        given = []

        def results_by(engine, jobs, **limits):
            given.append((type(engine), engine.scheduler, limits))
            return map(build_run, jobs)

        monkeypatch.setattr(runner, "run_jobs_on_engine", results_by)
        words = ["--datasets", "wine", "--systems", "HBOS", "--limit", "9", "--engine", "dask"]

        assert run(*words, "--scheduler", "tcp://10.0.0.1:8786") == 0
        assert run(*words, "--scheduler", "tcp://10.0.0.1:8786") == 0

        limits = {"threads": 1, "seconds": 9}
        assert given[0] == (Dask, "tcp://10.0.0.1:8786", limits)
        assert len(read_runs(workspace / "bench/results/transductive.jsonl")) == 1
        with pytest.raises(SystemExit):
            run(*words, "--processes", "2")
        assert "replaces --processes" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("protocol", "words", "rows"),
        [
            ("transductive", [], 20_000),
            ("dte", [], None),
            ("semi-dte", [], None),
            ("semi", ["--rows", "all"], None),
        ],
    )
    def test_large_files_are_sampled_by_default(self, workspace, job_errors, protocol, words, rows):
        (donors,) = [dataset for dataset in catalogue() if dataset.name == "donors"]
        (workspace / "adbench" / donors.files[0].path).touch()

        run("--datasets", "donors", "--systems", "HBOS", "--protocol", protocol, *words)

        assert {each.rows for each in read_runs(workspace / f"bench/results/{protocol}.jsonl")} == {
            rows
        }

    def test_failures_are_reported_and_repeated_with_retry(self, workspace, job_errors, capsys):
        job_errors["HBOS"] = "bad\nday \x1b[2J"
        words = ["--datasets", "wine", "--systems", "HBOS,ECOD"]

        assert run(*words) == 1
        out, err = read_lines(capsys)
        assert out == ["2 jobs done, 0 existed, 1 failed: bench/results/transductive.jsonl"]
        assert err == ["45_wine, HBOS, seed 0, transductive: bad day \\x1b[2J"]

        job_errors.clear()
        assert run(*words) == 1
        out, _ = read_lines(capsys)
        assert out[0].startswith("0 jobs done, 2 existed, 1 failed")
        assert out[1:] == ["1 of them failed earlier; --retry runs them again."]
        assert run(*words, "--retry") == 0
        assert read_lines(capsys)[0][0].startswith("1 job done, 1 existed, 0 failed")

    def test_outdated_failure_is_ignored(self, workspace, job_errors, capsys):
        append(workspace / "some.jsonl", build_run(ON_WINE))
        append(
            workspace / "some.jsonl",
            replace(build_run(ON_WINE, error="no"), parameters={"n_bins": 3}),
        )

        assert run("--records", "some.jsonl", "--datasets", "wine", "--systems", "HBOS") == 0
        assert read_lines(capsys)[0] == ["0 jobs done, 1 existed, 0 failed: some.jsonl"]

    def test_suite_uses_available_files(self, workspace, job_errors):
        assert run("--suite", "small", "--systems", "HBOS") == 0

        assert [each.job for each in read_runs(workspace / "bench/results/transductive.jsonl")] == [
            ON_WINE
        ]

    def test_smoke_records_are_separate_and_not_tabulated(self, workspace, job_errors, capsys):
        assert run("--suite", "smoke", "--systems", "HBOS") == 0

        found = read_runs(workspace / "bench/results/smoke.jsonl")
        assert [each.job for each in found] == [replace(ON_WINE, smoke=True)]
        capsys.readouterr()
        for command in ("tables", "records"):
            assert main([command, "--records", "bench/results/smoke.jsonl"]) == 1
            assert "bench/results/smoke.jsonl: all records are of smoke runs" in read_error(capsys)

    def test_smoke_record_does_not_replace_a_run(self, workspace, job_errors):
        words = ["--systems", "HBOS", "--records", "one.jsonl"]

        run("--suite", "smoke", *words)
        run("--suite", "small", *words)

        assert [each.smoke for each in read_runs(workspace / "one.jsonl")] == [True, False]

    def test_locked_records_are_an_error(self, workspace, job_errors, capsys):
        with lock_records(workspace / "one.jsonl"):
            assert run("--datasets", "wine", "--records", "one.jsonl") == 1

        assert "one.jsonl: another benchmark is writing to this file." in read_error(capsys)

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--datasets", "vine"], "'vine'"),
            (["--datasets", ""], "''"),
            (["--datasets", "wine,\x1b[2J\n"], "x1b[2J"),
            (["--datasets", "../../etc/passwd"], "passwd"),
            (["--systems", "HBOS,IForrest"], "'IForrest'"),
            (["--systems", "hbos"], "'hbos'"),
            (["--datasets", "cardio"], "altbi-bench datasets"),
            (["--seeds", f"{2**32},"], "seeds="),
            (["--records", "."], "directory"),
            (["--records", "adbench/" + ON_WINE.file + "/lines"], "45_wine.npz"),
            (["--records", "broken"], "broken, line 1: not a record"),
        ],
        ids=str,
    )
    def test_invalid_values_are_one_line_errors(
        self, workspace, job_errors, capsys, words, sentence
    ):
        (workspace / "broken").write_bytes(b"\xff\x1b[2J\n")

        assert run("--datasets", "wine", *words) == 1

        assert sentence in read_error(capsys)
        assert not (workspace / "bench").exists()

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--protocol", "supervised"], "--protocol"),
            (["--suite", "huge"], "--suite"),
            (["--seeds", "0"], "--seeds"),
            (["--seeds", "-1"], "--seeds"),
            (["--seeds", "1,x"], "--seeds"),
            (["--seeds", ","], "--seeds"),
            (["--seeds", "\u0663"], "--seeds"),
            (["--seeds", "1000000000000"], "--seeds"),
            (["--rows", "some"], "--rows"),
            (["--rows", "0"], "--rows"),
            (["--rows", "9"], "--rows"),
            (["--processes", "0"], "--processes"),
            (["--threads", "1.5"], "--threads"),
            (["--limit", "0"], "--limit"),
            (["--limit", "9" * 400], "--limit"),
            (["--dataset", "wine"], "--dataset"),
        ],
        ids=str,
    )
    def test_wrong_usage_exits_with_2_and_reason(self, workspace, capsys, words, sentence):
        with pytest.raises(SystemExit) as end:
            run(*words)

        assert end.value.code == 2
        out, err = read_lines(capsys)
        assert out == []
        assert err[-1].startswith("altbi-bench")
        assert sentence in err[-1]
        assert not (workspace / "bench").exists()


class TestRecords:
    def test_records_show_the_command_that_repeats_them(self, workspace, job_errors, capsys):
        words = ["--protocol", "semi", "--datasets", "wine", "--systems", "IForest,HBOS"]
        run(*words, "--rows", "50", "--seeds", "1,4")
        before = read_runs(workspace / "bench/results/semi.jsonl")
        capsys.readouterr()

        words = [*words[:-1], "IForest", "--rows", "50", "--seeds", "4,"]
        assert main(["records", *words]) == 0

        where, facts, command = read_lines(capsys)[0]
        title = "45_wine, IForest, seed 4, semi, 50 rows"
        assert where == f"bench/results/semi.jsonl, line 4: {title}"
        expected = {
            "auc": 0.25,
            "average_precision": 0.125,
            **SECONDS,
            "source": "pyod.models.iforest:IForest",
        }
        assert json.loads(facts) == expected
        name, *again = shlex.split(command)
        assert (name, main(again)) == ("altbi-bench", 0)
        assert read_runs(workspace / "again.jsonl") == [before[3]]

    def test_command_of_a_record_selects_its_file(self, workspace, job_errors, capsys):
        files = [f"CV_by_ViT/MVTec-AD_{name}.npz" for name in ("bottle", "pill")]
        for file in files:
            (workspace / "adbench" / file).parent.mkdir(exist_ok=True)
            (workspace / "adbench" / file).touch()
        words = ["--datasets", "MVTec-AD", "--systems", "HBOS"]
        run(*words)
        capsys.readouterr()

        main(["records", *words])

        commands = [shlex.split(line) for line in read_lines(capsys)[0][2::3]]
        assert len(commands) == 2
        assert main(commands[1][1:]) == 0
        assert [each.file for each in read_runs(workspace / "again.jsonl")] == files[1:]

    def test_outdated_recipe_is_marked(self, workspace, capsys):
        append(workspace / "some.jsonl", replace(build_run(ON_WINE), parameters={"n_bins": 3}))
        append(workspace / "some.jsonl", build_run(ON_WINE))
        words = ["--records", "some.jsonl", "--datasets", "wine", "--systems", "HBOS"]

        assert main(["records", *words]) == 0

        out, _ = read_lines(capsys)
        assert ["outdated" in line for line in out[::3]] == [True, False]

    def test_record_of_other_code_is_marked(self, workspace, capsys):
        ours = replace(ON_WINE, system="ALTBI")
        source = SYSTEMS["ALTBI"].recipe.source
        for versions in ({}, {"altbi code": "other"}, {"altbi code": code_digest()}):
            append(
                workspace / "some.jsonl", replace(build_run(ours), source=source, versions=versions)
            )
        words = ["--records", "some.jsonl", "--datasets", "wine", "--systems", "ALTBI"]

        assert main(["records", *words]) == 0

        titles, now = read_lines(capsys)[0][::3], f", by now it is {code_digest()})"
        assert titles[0].endswith(f"(altbi's code was not recorded{now}")
        assert titles[1].endswith(f"(altbi's code was other{now}")
        assert titles[2].endswith("transductive")

    def test_records_of_the_earlier_layout_name_its_commit(self, workspace, capsys):
        ours = replace(ON_WINE, system="ALTBI")
        for digest in ("84ebab59c087", "d1d6faac8953"):
            append(
                workspace / "some.jsonl", replace(build_run(ours), versions={"altbi code": digest})
            )

        main(["records", "--records", "some.jsonl", "--systems", "ALTBI"])

        titles = read_lines(capsys)[0][::3]
        assert titles[0].endswith("(altbi's code was 84ebab59c087, commit 5d86b5a)")
        assert titles[1].endswith("(altbi's code was d1d6faac8953, never committed)")

    def test_records_of_baselines_stay_current_after_the_move(self, workspace, capsys):
        before = replace(
            build_run(replace(ON_WINE, system="DAGMM")), source="altbi.baselines:DAGMM"
        )
        append(workspace / "some.jsonl", before)
        append(workspace / "some.jsonl", replace(before, source="altbi.baselines:DDPM"))

        main(["records", "--records", "some.jsonl", "--systems", "DAGMM"])

        titles = read_lines(capsys)[0][::3]
        assert ["outdated" in title for title in titles] == [False, True]

    def test_control_characters_in_records_are_escaped(self, workspace, capsys):
        versions = {"altbi code": "\x1b[2J"}
        ours = replace(ON_WINE, system="ALTBI")
        source = SYSTEMS["ALTBI"].recipe.source
        append(workspace / "some.jsonl", replace(build_run(ours), source=source, versions=versions))

        main(["records", "--records", "some.jsonl", "--systems", "ALTBI"])

        assert r"altbi's code was \x1b[2J" in capsys.readouterr().out

    def test_repeated_job_shows_both_records(self, workspace, capsys):
        append(workspace / "some.jsonl", build_run(ON_WINE, error="no"))
        append(workspace / "some.jsonl", build_run(ON_WINE))
        words = ["--records", "some.jsonl", "--datasets", "wine", "--systems", "HBOS"]

        assert main(["records", *words]) == 0

        out, _ = read_lines(capsys)
        assert [line.partition(":")[0] for line in out[::3]] == [
            "some.jsonl, line 1", "some.jsonl, line 2"
        ]  # fmt: skip
        assert json.loads(out[1]) == {"source": "pyod.models.hbos:HBOS", "error": "no"}

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (
                ["--datasets", "cardio"],
                "no record matches the request (protocols of the file: trans",
            ),
            (["--records", "none.jsonl"], "none.jsonl: no such file of records"),
            (["--datasets", "vine"], "'vine'"),
            (["--systems", "vine"], "'vine'"),
            (["--records", "."], "directory"),
        ],
        ids=str,
    )
    def test_no_matching_record_is_an_error(self, workspace, capsys, words, sentence):
        append(workspace / "some.jsonl", build_run(ON_WINE))

        assert main(["records", "--records", "some.jsonl", *words]) == 1

        assert sentence in read_error(capsys)


@pytest.mark.parametrize(
    "words",
    [
        "--datasets wine", "--suite small", "--systems HBOS", "--seeds 2", "--rows all",
        "--protocol dte", "--markdown",
    ],
)  # fmt: skip
def test_options_ignored_by_the_page_are_errors(workspace, capsys, words):
    with pytest.raises(SystemExit) as end:
        main(["tables", "--page", "page.md", *words.split()])

    assert end.value.code == 2
    assert f"leave out {words.split()[0]}" in capsys.readouterr().err
    assert not (workspace / "page.md").exists()


def test_unwritable_page_is_reported_by_its_name(workspace, capsys, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "docs/.results.md.x.part")

    append(workspace / "transductive.jsonl", build_run(ON_WINE))
    monkeypatch.setattr("altbi.io._atomic_files._create_locked", refuse)

    assert main(["tables", "--page", "results.md", "--records", "."]) == 1

    error = read_error(capsys)
    assert str(workspace / "results.md") in error
    assert ".part" not in error


def test_quick_runs_four_systems_and_prints_tables(workspace, job_errors, capsys):
    assert main(["quick", "--datasets", "wine", "--seeds", "2", "--markdown"]) == 0

    out, _ = read_lines(capsys)
    assert out[0] == "7 jobs done, 0 existed, 0 failed: bench/results/transductive.jsonl"
    (head,) = [line for line in out if line.startswith("| data set | ALTBI")][:1]
    assert head.split(" | ")[1:5] == ["ALTBI", "ALTBI-I (reference)", "IForest", "kNN"]
    assert any(line.startswith("| wine | 0.250 ± 0.000 |") for line in out)


def test_quick_reports_failures_by_exit_code(workspace, job_errors, capsys):
    job_errors["kNN"] = "bad day"

    assert main(["quick", "--datasets", "wine"]) == 1

    out, err = read_lines(capsys)
    assert err == ["45_wine, kNN, seed 0, transductive: bad day"]
    assert "- 45_wine, kNN, seed 0, transductive: bad day" in out


class TestProcesses:
    """The command in its own process, with real systems and tables."""

    @pytest.fixture
    def start(self, adbench, tmp_path):
        """Start a command in a folder and a group of its own; only wine is available."""
        folder = tmp_path / "adbench"
        (folder / ON_WINE.file).parent.mkdir(parents=True)
        (folder / ON_WINE.file).symlink_to((adbench / ON_WINE.file).resolve())
        environment = os.environ | {
            "ALTBI_ADBENCH": str(folder),
            # Import the packages under test.
            "PYTHONPATH": os.pathsep.join(
                str(Path(each.__file__).parents[1].resolve()) for each in (altbi, altbi_bench)
            ),
        }
        started = []

        def start(*words):
            process = subprocess.Popen(
                [*COMMAND, *words],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            started.append(process)
            return process

        yield start
        for process in started:
            process.kill()
            process.communicate()

    def wait_until_ended(self, process):
        """Wait until the process and its children, which hold its output open, have ended."""
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def wait_for_lines(self, path, process, count):
        end = time.monotonic() + PATIENCE
        while not path.exists() or path.read_bytes().count(b"\n") < count:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "no line is written"
            time.sleep(0.02)

    @pytest.mark.slow
    def test_every_system_runs_on_a_smoke_table(self, start, tmp_path, monkeypatch, capsys):
        words = ["run", "--suite", "smoke", "--seeds", "1"]

        code, out, err = self.wait_until_ended(start(*words))

        n_jobs = len(SYSTEMS)
        path = "bench/results/smoke.jsonl"
        assert (out, err) == (f"{n_jobs} jobs done, 0 existed, 0 failed: {path}\n", "")
        assert code == 0
        found = read_runs(tmp_path / path)
        assert len(keep_latest(found)) == len(found) == n_jobs
        assert len({(each.file, each.system) for each in found}) == n_jobs
        assert {(each.smoke, each.error, each.seed) for each in found} == {(True, None, 0)}
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path / "adbench"))
        monkeypatch.chdir(tmp_path)
        assert main([*words]) == 0
        assert capsys.readouterr().out.startswith(f"0 jobs done, {n_jobs} existed, 0 failed")
        assert main(["tables", "--records", path]) == 1
        assert "all records are of smoke runs, which are left out" in read_error(capsys)

    @pytest.mark.slow
    def test_killed_run_continues_with_missing_jobs(self, start, tmp_path):
        words = ["run", "--suite", "smoke", "--systems", "IForest", "--seeds", "20"]
        words += ["--processes", "2"]
        path, n_jobs = tmp_path / "bench/results/smoke.jsonl", 20
        first = start(*words)
        self.wait_for_lines(path, first, 2)

        first.kill()
        code, *_ = self.wait_until_ended(first)
        before = path.read_bytes()
        assert code == -signal.SIGKILL
        assert 2 <= before.count(b"\n") < n_jobs
        code, out, err = self.wait_until_ended(start(*words))

        n_before = before.count(b"\n")
        assert (code, err) == (0, "")
        assert out.startswith(f"{n_jobs - n_before} jobs done, {n_before} existed, 0 failed")
        assert path.read_bytes().startswith(before[: before.rindex(b"\n") + 1])
        found = read_runs(path)
        assert len(keep_latest(found)) == len(found) == n_jobs
        assert all(each.error is None for each in found)

    @pytest.mark.slow
    def test_interrupt_leaves_complete_records_and_no_process(self, start, tmp_path):
        words = ["run", "--suite", "smoke", "--systems", "IForest", "--seeds", "999"]
        path = tmp_path / "bench/results/smoke.jsonl"
        process = start(*words, "--processes", "2")
        self.wait_for_lines(path, process, 2)

        os.killpg(process.pid, signal.SIGINT)

        message = f"altbi-bench: interrupted. {RECORDS_KEPT}\n"
        assert self.wait_until_ended(process) == (INTERRUPTED, "", message)
        assert path.read_bytes().endswith(b"\n")
        assert len(read_runs(path)) >= 2

    @pytest.mark.slow
    def test_termination_at_the_start_is_reported(self, start, tmp_path):
        process = start("run", "--suite", "smoke", "--systems", "IForest", "--processes", "2")
        self.wait_for_lines(tmp_path / "bench/results/smoke.jsonl", process, 0)

        os.killpg(process.pid, signal.SIGTERM)

        message = f"altbi-bench: terminated. {RECORDS_KEPT}\n"
        assert self.wait_until_ended(process) == (TERMINATED, "", message)
