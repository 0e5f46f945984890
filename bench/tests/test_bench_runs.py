import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from altbi.errors import ParameterError, TableError
from altbi_bench.catalogue.datasets import DataFile, Dataset, select
from altbi_bench.catalogue.systems import Recipe, System, find_systems
from altbi_bench.runs import runner
from altbi_bench.runs.measurement import measure
from altbi_bench.runs.records import Job, append, find_missing, keep_latest, lock_records, read_runs
from altbi_bench.runs.runner import Limits, Question, plan_jobs, run_all
from altbi_bench.runs.workers import run_jobs
from bench_jobs import (
    ON_WINE,
    ExitsWhenUnpickled,
    build_jobs,
    build_run,
    measure_broken_system,
    run_command_in_name,
)

PATIENCE = 120  # seconds until a process counts as hanging


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


def ignore_progress(runs, total):
    return runs


class TestRecords:
    def test_records_are_read_as_written(self, tmp_path):
        first, second = build_jobs("A", "B")
        runs = [
            build_run(
                first, auc=0.1 + 0.2, parameters={"n": [1, None]}, warnings=["\x1b größer\n"]
            ),
            build_run(replace(second, rows=20, smoke=True, protocol="dte"), error="no"),
        ]

        for each in runs:
            append(tmp_path / "lines", each)

        assert read_runs(tmp_path / "lines") == runs
        assert [each.job for each in runs] == [each.job for each in read_runs(tmp_path / "lines")]
        assert (tmp_path / "lines").read_bytes().count(b"\n") == 2

    def test_missing_file_has_no_records(self, tmp_path):
        assert read_runs(tmp_path / "none") == []

    def test_later_record_replaces_an_earlier_one(self):
        (job,) = build_jobs("A")

        assert keep_latest([build_run(job, error="no"), build_run(job, auc=0.7)])[job].auc == 0.7

    @pytest.mark.parametrize("cut", [2, 20, 300, 400])
    def test_incomplete_last_record_is_ignored_and_removed(self, tmp_path, cut):
        path = tmp_path / "lines"
        for job in build_jobs("A", "B"):
            append(path, build_run(job))
        complete = path.read_bytes()
        path.write_bytes(complete[:-cut])

        assert [each.file for each in read_runs(path)] == ["A"]
        assert path.read_bytes() == complete[:-cut]
        with lock_records(path):
            assert path.read_bytes() == complete[: complete.index(b"\n") + 1]

    def test_missing_last_newline_is_added(self, tmp_path):
        path = tmp_path / "lines"
        for job in build_jobs("A", "B"):
            append(path, build_run(job))
        complete = path.read_bytes()
        path.write_bytes(complete[:-1])

        assert [each.file for each in read_runs(path)] == ["A", "B"]
        with lock_records(path):
            assert path.read_bytes() == complete

    @pytest.mark.parametrize(
        "content",
        [
            b'{"precious": 1}',
            b'{"precious": 1',
            b'notes\n{"file": "ha',
            b'{"precious": 1}\n{"file": "ha',
            b"[1]",
            b"text",
        ],
    )
    def test_other_files_are_not_modified(self, tmp_path, content):
        (tmp_path / "lines").write_bytes(content)

        with pytest.raises(TableError, match="not a record of the benchmark"):
            lock_records(tmp_path / "lines").__enter__()

        assert (tmp_path / "lines").read_bytes() == content

    def test_devices_and_pipes_raise(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")

        for path in (Path("/dev/zero"), tmp_path / "pipe"):
            with pytest.raises(TableError, match="a device or a pipe, but expected a file"):
                lock_records(path).__enter__()
        with pytest.raises(TableError, match="/dev/zero: a device"):
            read_runs(Path("/dev/zero"))

    def test_every_record_is_flushed_to_disk(self, tmp_path, monkeypatch):
        sizes = []
        monkeypatch.setattr(
            "altbi_bench.runs.records.os.fsync", lambda _: sizes.append(path.stat().st_size)
        )
        path = tmp_path / "lines"

        for job in build_jobs("A", "B"):
            append(path, build_run(job))

        assert len(sizes) == 2
        assert sizes[-1] == path.stat().st_size

    def test_lock_creates_folders_and_keeps_records(self, tmp_path):
        path = tmp_path / "new" / "folder" / "lines"
        with lock_records(path):
            append(path, build_run(*build_jobs("A")))
        before = path.read_bytes()

        with lock_records(path):
            pass

        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"{",
            b"[]",
            b"{}",
            b"7",
            b'{"file": "wine"}',
            b"\xff",
            b"[" * 100_000,
            b'{"file": ' + b"9" * 5000 + b"}",
        ],
        ids=lambda line: line[:12].decode(errors="replace"),
    )
    def test_invalid_line_raises_with_its_number(self, tmp_path, line):
        append(tmp_path / "lines", build_run(*build_jobs("A")))
        with (tmp_path / "lines").open("ab") as lines:
            lines.write(line + b"\n")

        with pytest.raises(TableError, match="lines, line 2: not a record of the benchmark"):
            read_runs(tmp_path / "lines")

    @pytest.mark.parametrize(("line", "why"), [(b"{", "not JSON"), (b"[1]", "must be a mapping")])
    def test_error_has_the_reason_and_a_remedy(self, tmp_path, line, why):
        append(tmp_path / "lines", build_run(*build_jobs("A")))
        ours = (tmp_path / "lines").read_bytes()
        for before, do in ((b"", "Pass another file"), (ours, "Remove the line, or pass another")):
            (tmp_path / "lines").write_bytes(before + line + b"\n")

            with pytest.raises(TableError, match=f"{why}.*\\. {do}"):
                read_runs(tmp_path / "lines")

    @pytest.mark.parametrize(
        "change",
        [
            {"auc": None},
            {"auc": float("nan")},
            {"auc": 1.5},
            {"error": "no"},
            {"error": "no", "auc": None},
            {"average_precision": "0.5"},
            {"precision_at_n": "high"},
            {"precision_at_n": -0.1},
            {"fit_seconds": "long"},
            {"score_seconds": float("inf")},
            {"peak_mib": []},
            {"fit_seconds": -5.0},
            {"fit_seconds": None},
            {"score_seconds": None},
            {"n_outliers": "six"},
            {"n_train": -1},
            {"n_test": 7.0},
            {"n_features": []},
            {"threads": True},
            {"seed": "0"},
            {"seed": True},
            {"rows": 20.5},
            {"smoke": 0},
            {"file": ["wine"]},
            {"system": None},
            {"protocol": {}},
            {"source": 7},
            {"versions": []},
            {"versions": {"processor": ["x"]}},
            {"warnings": "none"},
            {"warnings": [1]},
            {"parameters": "none"},
            {"parameters": {"n": [[[[[1]]]]]}},
            {"parameters": {"n": {"a": [{"b": [1]}]}}},
            {"error": 5},
            {"unknown": 1},
        ],
        ids=str,
    )
    def test_invalid_field_raises_with_the_line(self, tmp_path, change):
        fields = asdict(build_run(*build_jobs("A"))) | change
        (tmp_path / "lines").write_text(json.dumps(fields) + "\n")

        with pytest.raises(TableError, match="lines, line 1: not a record of the benchmark"):
            read_runs(tmp_path / "lines")

    def test_failed_write_raises_and_keeps_earlier_records(self, tmp_path):
        first, second = build_jobs("A", "B")
        append(tmp_path / "lines", build_run(first))
        before = (tmp_path / "lines").stat().st_size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)

        resource.setrlimit(resource.RLIMIT_FSIZE, (before + 40, limits[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: .*lines"):
                append(tmp_path / "lines", build_run(second))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (tmp_path / "lines").stat().st_size == before + 40

        with lock_records(tmp_path / "lines"):
            append(tmp_path / "lines", build_run(second))
        assert [each.file for each in read_runs(tmp_path / "lines")] == ["A", "B"]

    def test_nan_is_not_written(self, tmp_path):
        with pytest.raises(ValueError, match="JSON"):
            append(tmp_path / "lines", build_run(*build_jobs("A"), auc=float("nan")))

        assert read_runs(tmp_path / "lines") == []

    def test_locked_file_raises_until_released(self, tmp_path):
        path = tmp_path / "lines"
        with lock_records(path):
            append(path, build_run(*build_jobs("A")))
            path.write_bytes(path.read_bytes() + b'{"fi')
            before = path.read_bytes()

            with pytest.raises(TableError, match=r"lines: another benchmark .* --records"):
                lock_records(path).__enter__()
            assert path.read_bytes() == before

        with lock_records(path):
            assert [each.file for each in read_runs(path)] == ["A"]

    def test_missing_jobs_keep_their_order(self):
        done, failed, fixed_later, missing = build_jobs("A", "B", "C", "D")
        runs = [
            build_run(done),
            build_run(failed, error="no"),
            build_run(fixed_later, error="no"),
            build_run(fixed_later),
        ]
        asked = [missing, done, failed, fixed_later]

        assert find_missing(asked, runs) == [missing]
        assert find_missing(asked, runs, retry=True) == [missing, failed]

    @pytest.mark.parametrize(
        "change",
        [
            {"file": "other"},
            {"system": "B"},
            {"seed": 1},
            {"protocol": "dte"},
            {"rows": 20},
            {"smoke": True},
        ],
        ids=str,
    )
    def test_record_matches_only_its_own_job(self, change):
        (job,) = build_jobs("A")
        other = replace(job, **change)

        assert find_missing([job, other], [build_run(job)]) == [other]
        assert other.title != job.title or "smoke" in change


class TestProcesses:
    def run(self, asked, *, processes=1, seconds=PATIENCE, measure=run_command_in_name):
        return list(run_jobs(asked, processes=processes, seconds=seconds, threads=3, work=measure))

    @pytest.mark.slow
    def test_lost_jobs_fail_and_others_continue(self, tmp_path):
        asked = build_jobs("A", "leave", "B", "be killed", "raise", f"{tmp_path}/hang", "C")

        runs = self.run(asked, seconds=8)

        assert [each.job for each in runs] == asked
        assert [each.error for each in runs] == [
            None,
            "its process ended with exit code 3",
            None,
            "its process ended with exit code -9",
            "RuntimeError: bad day",
            "over the limit of 8 seconds",
            None,
        ]
        assert [each.auc for each in runs] == [0.0, None, 0.02, None, None, None, 0.06]
        first, second, third = (each for each in runs if each.error is None)
        assert {each.threads for each in (first, second, third)} == {3}
        processes = [each.parameters["process"] for each in (first, second, third)]
        assert len({*processes, os.getpid()}) == 4
        assert all(each.parameters["ignores_interrupts"] for each in (first, second, third))

    @pytest.mark.slow
    def test_several_processes_give_the_same_records(self):
        asked = build_jobs("A", "leave", "B", "C", "raise")

        runs = sorted(self.run(asked, processes=2), key=lambda run: run.seed)

        assert [each.job for each in runs] == asked
        assert [each.auc for each in runs] == [0.0, None, 0.02, 0.03, None]

    def test_process_that_dies_before_its_job_fails(self):
        asked = build_jobs("A", "B")

        runs = self.run(asked, measure=ExitsWhenUnpickled())

        assert [each.job for each in runs] == asked
        assert all(each.error and each.auc is None for each in runs)

    def test_failing_system_is_a_record_with_reason(self, adbench):
        found = measure_broken_system(ON_WINE, threads=1)

        assert found.error.startswith("TypeError: ")
        assert "no_such" in found.error
        assert found.job == ON_WINE

    def test_missing_file_is_a_record_with_reason(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        (found,) = self.run([ON_WINE], measure=measure)

        assert found.error.startswith(f"TableError: {tmp_path}/Classical/45_wine.npz: no such file")

    def test_no_job_needs_no_process(self, monkeypatch):
        monkeypatch.setattr("altbi_bench.runs.workers.ProcessPool", None)

        assert self.run([], processes=2) == []

    def test_closed_iterator_ends_all_processes(self):
        runs = run_jobs(
            build_jobs("A", "B"), processes=1, seconds=1e12, threads=1, work=run_command_in_name
        )
        process = next(runs).parameters["process"]

        runs.close()

        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)

    @pytest.mark.slow
    def test_killed_parent_leaves_no_process(self, tmp_path):
        code = (
            "import sys\n"
            "from bench_jobs import build_jobs, run_command_in_name\n"
            "from altbi_bench.runs.workers import run_jobs\n"
            "asked = build_jobs(*sys.argv[1:])\n"
            "list(run_jobs(asked, processes=2, seconds=600, threads=1, work=run_command_in_name))\n"
        )
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        hanging = [tmp_path / "first hang", tmp_path / "second hang"]
        with subprocess.Popen(
            [sys.executable, "-c", code, *hanging], stdout=subprocess.PIPE, env=environment
        ) as parent:
            wait_until(lambda: all(path.exists() for path in hanging))
            parent.kill()
            # Children hold the pipe open, so this returns when the last one has ended.
            out, _ = parent.communicate(timeout=PATIENCE)

        assert (parent.returncode, out) == (-signal.SIGKILL, b"")


class TestPlan:
    @pytest.fixture
    def parts(self, tmp_path, monkeypatch):
        """Return three files, of which the second is not available."""
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        parts = (
            DataFile("large", 100, 9, 3),
            DataFile("away", 1, 1, 1),
            DataFile("small", 100, 2, 3),
        )
        for part in parts[::2]:
            (tmp_path / part.path).touch()
        return parts

    def system(self, name, **more):
        return System(name, name, Recipe("altbi:ALTBI"), **more)

    def test_small_available_files_come_first(self, parts):
        one = Dataset("one", "", "table", "", parts[:1])
        two = Dataset("two", "", "image", "", parts[1:])
        systems = [self.system("A"), self.system("B")]

        planned = plan_jobs([one, two], systems, Question(seeds=(4, 2)))

        assert planned == [
            Job(file=file, system=system, seed=seed)
            for file in ("small", "large")
            for system in ("A", "B")
            for seed in (4, 2)
        ]

    @pytest.mark.parametrize(
        ("protocol", "seeded", "seeds"),
        [
            ("transductive", True, [0, 1, 2]),
            ("transductive", False, [0]),
            ("semi", False, [0, 1, 2]),
            ("dte", False, [7, 8]),
            ("semi-dte", False, [0, 1, 2, 3, 6]),
        ],
    )
    def test_default_seeds_depend_on_protocol_and_system(self, parts, protocol, seeded, seeds):
        system = self.system("A", seeded=seeded, dte_seeds=(7, 8))

        assert [job.seed for job in Question(protocol).list_jobs(parts[0], system)] == seeds

    def test_stated_seeds_are_unique(self, parts):
        question = Question("dte", seeds=(5, 3, 5))

        assert [job.seed for job in question.list_jobs(parts[0], self.system("A"))] == [5, 3]
        unseeded = Question(seeds=(5, 3)).list_jobs(parts[0], self.system("A", seeded=False))
        assert [job.seed for job in unseeded] == [5]

    def test_rows_are_set_only_for_larger_files(self):
        question, system = Question(rows=100), self.system("A", seeded=False)
        parts = [
            DataFile("f", n_rows, 2, None, rows_in_paper=101) for n_rows in (99, 100, 101, None)
        ]
        parts += [DataFile("f", None, 2, None, rows_in_paper=most) for most in (100, None)]

        rows = [question.list_jobs(part, system)[0].rows for part in parts]

        assert rows == [None, None, 100, 100, None, 100]
        assert Question().list_jobs(parts[2], system)[0].rows is None

    def test_job_has_all_fields_of_the_question(self, parts):
        question = Question("split", rows=50, seeds=(6,), smoke=True)

        assert question.list_jobs(parts[0], self.system("A")) == [
            Job(file="large", system="A", seed=6, protocol="split", rows=50, smoke=True)
        ]

    @pytest.mark.parametrize(
        ("question", "message"),
        [
            (Question(rows=9), "rows=9"),
            (Question(rows=-1), "rows=-1"),
            (Question(rows=20.5), "rows=20.5"),
            (Question(seeds=()), r"seeds=\(\)"),
            (Question(seeds=(0, -1)), r"seeds=\(0, -1\)"),
            (Question(seeds=(0.5,)), r"seeds=\(0.5,\)"),
            (Question(seeds=(np.int64(1),)), "seeds="),
            (Question(seeds=(2**32,)), "seeds="),
            (Question("transduction"), "'transduction'"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("seeded", [True, False])
    def test_invalid_question_raises(self, parts, question, message, seeded):
        with pytest.raises(ParameterError, match=message):
            question.list_jobs(parts[0], self.system("A", seeded=seeded))

    def test_every_system_has_jobs_on_every_table(self, adbench):
        planned = plan_jobs(select(suite="smoke"), find_systems(), Question(seeds=(0,), smoke=True))

        assert len(planned) == len(set(planned)) == 6 * len(find_systems())
        assert {job.rows for job in planned} == {None}


class TestRunAll:
    @pytest.fixture
    def asked(self, monkeypatch):
        """Run jobs in this process, and return the calls of run_jobs."""
        asked = []

        def run_immediately(jobs, **limits):
            asked.append((list(jobs), limits))
            return (build_run(job, error="no" if job.file == "bad" else None) for job in jobs)

        monkeypatch.setattr(runner, "run_jobs", run_immediately)
        return asked

    def test_every_job_runs_once_and_is_recorded(self, tmp_path, asked):
        planned, totals = build_jobs("A", "bad", "B"), []

        def on_progress(runs, total):
            totals.append(total)
            return runs

        first = run_all(tmp_path / "lines", planned[:2], Limits(2, 3, 4.0), on_progress)
        second = run_all(tmp_path / "lines", planned, Limits(), on_progress)
        third = run_all(tmp_path / "lines", planned, Limits(), on_progress, retry=True)

        assert [left for left, _ in asked] == [planned[:2], planned[2:], planned[1:2]]
        assert totals == [2, 1, 1]
        assert asked[0][1] == {"processes": 2, "threads": 3, "seconds": 4.0}
        assert read_runs(tmp_path / "lines") == [*first, *second, *third]

    def test_job_of_an_incomplete_record_runs_again(self, tmp_path, asked):
        planned = build_jobs("A", "B")
        run_all(tmp_path / "lines", planned, Limits(), ignore_progress)
        complete = (tmp_path / "lines").read_bytes()
        (tmp_path / "lines").write_bytes(complete[:-9])

        run_all(tmp_path / "lines", planned, Limits(), ignore_progress)

        assert asked[1][0] == planned[1:]
        assert (tmp_path / "lines").read_bytes() == complete

    def test_record_is_written_before_the_next_job(self, tmp_path, asked):
        seen = []

        def on_progress(runs, total):
            for run in runs:
                yield run
                seen.append(len(read_runs(tmp_path / "lines")))

        run_all(tmp_path / "lines", build_jobs(*"ABC"), Limits(), on_progress)

        assert seen == [1, 2, 3]

    def test_job_with_outdated_parameters_runs_again(self, tmp_path, asked):
        (planned,) = build_jobs("A")
        append(tmp_path / "lines", replace(build_run(planned), parameters={"size": 99}))

        run_all(tmp_path / "lines", [planned], Limits(), ignore_progress)

        assert [left for left, _ in asked] == [[planned]]

    @pytest.mark.parametrize(
        ("text", "location"),
        [
            ("notes\n", "lines, line 1: "),
            ("my,notes\nlast row", "lines, line 1: "),
            ("one precious line", "lines: the last line is "),
        ],
    )
    def test_invalid_file_stops_before_the_first_job(self, tmp_path, asked, text, location):
        (tmp_path / "lines").write_text(text)

        with pytest.raises(TableError, match=f"{location}not a record of the benchmark"):
            run_all(tmp_path / "lines", build_jobs("A"), Limits(), ignore_progress)

        assert asked == []
        assert (tmp_path / "lines").read_text() == text

    def test_no_jobs_raise_and_create_no_file(self, tmp_path, asked):
        with pytest.raises(TableError, match="altbi-bench datasets"):
            run_all(tmp_path / "lines", [], Limits(), ignore_progress)

        assert not (tmp_path / "lines").exists()
