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
from bench_jobs import ON_WINE, LeavesAtOnce, broken, jobs, result, work

PATIENCE = 120  # seconds until a process that should end or speak counts as stuck


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.02)


def no_progress(runs, total):
    return runs


class TestLines:
    def test_lines_come_back_as_they_were(self, tmp_path):
        first, second = jobs("A", "B")
        runs = [
            result(first, auc=0.1 + 0.2, parameters={"n": [1, None]}, warnings=["\x1b größer\n"]),
            result(replace(second, rows=20, smoke=True, protocol="dte"), error="no"),
        ]

        for each in runs:
            append(tmp_path / "lines", each)

        assert read_runs(tmp_path / "lines") == runs
        assert [each.job for each in runs] == [each.job for each in read_runs(tmp_path / "lines")]
        assert (tmp_path / "lines").read_bytes().count(b"\n") == 2

    def test_a_file_that_is_not_there_has_no_lines(self, tmp_path):
        assert read_runs(tmp_path / "none") == []

    def test_a_later_line_replaces_an_earlier_one(self):
        (job,) = jobs("A")

        assert keep_latest([result(job, error="no"), result(job, auc=0.7)])[job].auc == 0.7

    @pytest.mark.parametrize("cut", [2, 20, 300, 400])
    def test_a_half_written_last_line_is_left_out_and_then_cut_off(self, tmp_path, cut):
        path = tmp_path / "lines"
        for job in jobs("A", "B"):
            append(path, result(job))
        whole = path.read_bytes()
        path.write_bytes(whole[:-cut])

        assert [each.file for each in read_runs(path)] == ["A"]
        assert path.read_bytes() == whole[:-cut]
        with lock_records(path):
            assert path.read_bytes() == whole[: whole.index(b"\n") + 1]

    def test_a_last_line_that_lacks_its_end_alone_is_given_it(self, tmp_path):
        path = tmp_path / "lines"
        for job in jobs("A", "B"):
            append(path, result(job))
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])

        assert [each.file for each in read_runs(path)] == ["A", "B"]
        with lock_records(path):
            assert path.read_bytes() == whole

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
    def test_a_file_of_something_else_stays_as_it_is(self, tmp_path, content):
        (tmp_path / "lines").write_bytes(content)

        with pytest.raises(TableError, match="not a record of the benchmark"):
            lock_records(tmp_path / "lines").__enter__()

        assert (tmp_path / "lines").read_bytes() == content

    def test_a_device_or_a_pipe_is_refused_not_read_for_ever(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")

        for path in (Path("/dev/zero"), tmp_path / "pipe"):
            with pytest.raises(TableError, match="a device or a pipe, but expected a file"):
                lock_records(path).__enter__()
        with pytest.raises(TableError, match="/dev/zero: a device"):
            read_runs(Path("/dev/zero"))

    def test_every_line_is_on_the_disk_before_the_next_job(self, tmp_path, monkeypatch):
        sizes = []
        monkeypatch.setattr(
            "altbi_bench.runs.records.os.fsync", lambda _: sizes.append(path.stat().st_size)
        )
        path = tmp_path / "lines"

        for job in jobs("A", "B"):
            append(path, result(job))

        assert len(sizes) == 2
        assert sizes[-1] == path.stat().st_size

    def test_whole_lines_are_left_alone_and_folders_made(self, tmp_path):
        path = tmp_path / "new" / "folder" / "lines"
        with lock_records(path):
            append(path, result(*jobs("A")))
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
    def test_a_line_that_is_no_run_is_named_by_file_and_number(self, tmp_path, line):
        append(tmp_path / "lines", result(*jobs("A")))
        with (tmp_path / "lines").open("ab") as lines:
            lines.write(line + b"\n")

        with pytest.raises(TableError, match="lines, line 2: not a record of the benchmark"):
            read_runs(tmp_path / "lines")

    @pytest.mark.parametrize(("line", "why"), [(b"{", "not JSON"), (b"[1]", "must be a mapping")])
    def test_it_says_why_and_what_to_do(self, tmp_path, line, why):
        append(tmp_path / "lines", result(*jobs("A")))
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
    def test_a_run_of_which_no_table_could_be_made_is_named_too(self, tmp_path, change):
        fields = asdict(result(*jobs("A"))) | change
        (tmp_path / "lines").write_text(json.dumps(fields) + "\n")

        with pytest.raises(TableError, match="lines, line 1: not a record of the benchmark"):
            read_runs(tmp_path / "lines")

    def test_what_cannot_be_written_to_its_end_is_an_error_and_spoils_nothing(self, tmp_path):
        first, second = jobs("A", "B")
        append(tmp_path / "lines", result(first))
        before = (tmp_path / "lines").stat().st_size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)

        resource.setrlimit(resource.RLIMIT_FSIZE, (before + 40, limits[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: .*lines"):
                append(tmp_path / "lines", result(second))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (tmp_path / "lines").stat().st_size == before + 40

        with lock_records(tmp_path / "lines"):
            append(tmp_path / "lines", result(second))
        assert [each.file for each in read_runs(tmp_path / "lines")] == ["A", "B"]

    def test_a_number_that_is_none_is_not_written(self, tmp_path):
        with pytest.raises(ValueError, match="JSON"):
            append(tmp_path / "lines", result(*jobs("A"), auc=float("nan")))

        assert read_runs(tmp_path / "lines") == []

    def test_a_second_benchmark_on_one_file_is_refused_until_the_first_ends(self, tmp_path):
        path = tmp_path / "lines"
        with lock_records(path):
            append(path, result(*jobs("A")))
            path.write_bytes(path.read_bytes() + b'{"fi')
            before = path.read_bytes()

            with pytest.raises(TableError, match=r"lines: another benchmark .* --records"):
                lock_records(path).__enter__()
            assert path.read_bytes() == before

        with lock_records(path):
            assert [each.file for each in read_runs(path)] == ["A"]

    def test_jobs_without_a_line_are_left_in_their_order(self):
        done, failed, mended_later, missing = jobs("A", "B", "C", "D")
        runs = [
            result(done),
            result(failed, error="no"),
            result(mended_later, error="no"),
            result(mended_later),
        ]
        asked = [missing, done, failed, mended_later]

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
    def test_a_line_stands_for_its_own_job_alone(self, change):
        (job,) = jobs("A")
        other = replace(job, **change)

        assert find_missing([job, other], [result(job)]) == [other]
        assert other.title != job.title or "smoke" in change


class TestProcesses:
    def run(self, asked, *, processes=1, seconds=PATIENCE, work=work):
        return list(run_jobs(asked, processes=processes, seconds=seconds, threads=3, work=work))

    def test_lost_jobs_fail_and_others_continue(self, tmp_path):
        asked = jobs("A", "leave", "B", "be killed", "raise", f"{tmp_path}/hang", "C")

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

    def test_several_processes_give_the_same_records(self):
        asked = jobs("A", "leave", "B", "C", "raise")

        runs = sorted(self.run(asked, processes=2), key=lambda run: run.seed)

        assert [each.job for each in runs] == asked
        assert [each.auc for each in runs] == [0.0, None, 0.02, 0.03, None]

    def test_process_that_dies_before_its_job_fails(self):
        runs = self.run(jobs("A", "B"), work=LeavesAtOnce())

        assert [bool(each.error) for each in runs] == [True, True]

    def test_failing_system_is_a_record_with_reason(self, adbench):
        found = broken(ON_WINE, threads=1)

        assert found.error.startswith("TypeError: ")
        assert "no_such" in found.error
        assert found.job == ON_WINE

    def test_missing_file_is_a_record_with_reason(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        (found,) = self.run([ON_WINE], work=measure)

        assert found.error.startswith(f"TableError: {tmp_path}/Classical/45_wine.npz: no such file")

    def test_no_job_needs_no_process(self, monkeypatch):
        monkeypatch.setattr("altbi_bench.runs.workers.ProcessPool", None)

        assert self.run([], processes=2) == []

    def test_closed_iterator_ends_all_processes(self):
        runs = run_jobs(jobs("A", "B"), processes=1, seconds=1e12, threads=1, work=work)
        process = next(runs).parameters["process"]

        runs.close()

        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)

    def test_no_process_is_left_when_the_parent_is_killed(self, tmp_path):
        code = (
            "import sys\n"
            "from bench_jobs import jobs, work\n"
            "from altbi_bench.runs.workers import run_jobs\n"
            "asked = jobs(*sys.argv[1:])\n"
            "list(run_jobs(asked, processes=2, seconds=600, threads=1, work=work))\n"
        )
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        hanging = [tmp_path / "first hang", tmp_path / "second hang"]
        with subprocess.Popen(
            [sys.executable, "-c", code, *hanging], stdout=subprocess.PIPE, env=environment
        ) as parent:
            wait_until(lambda: all(path.exists() for path in hanging))
            parent.kill()
            # The children have the other end of the pipe: it closes when the last one has ended.
            out, _ = parent.communicate(timeout=PATIENCE)

        assert (parent.returncode, out) == (-signal.SIGKILL, b"")


class TestPlan:
    @pytest.fixture
    def parts(self, tmp_path, monkeypatch):
        """Three files, the second not at hand."""
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

    def test_small_files_come_first_and_those_not_at_hand_never(self, parts):
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
    def test_seeds_are_those_that_matter(self, parts, protocol, seeded, seeds):
        system = self.system("A", seeded=seeded, dte_seeds=(7, 8))

        assert [job.seed for job in Question(protocol).list_jobs(parts[0], system)] == seeds

    def test_stated_seeds_count_once_each_and_first_alone_where_none_matters(self, parts):
        question = Question("dte", seeds=(5, 3, 5))

        assert [job.seed for job in question.list_jobs(parts[0], self.system("A"))] == [5, 3]
        unseeded = Question(seeds=(5, 3)).list_jobs(parts[0], self.system("A", seeded=False))
        assert [job.seed for job in unseeded] == [5]

    def test_a_sample_is_stated_only_where_the_file_is_larger(self):
        question, system = Question(rows=100), self.system("A", seeded=False)
        parts = [
            DataFile("f", n_rows, 2, None, rows_in_paper=101) for n_rows in (99, 100, 101, None)
        ]
        parts += [DataFile("f", None, 2, None, rows_in_paper=most) for most in (100, None)]

        rows = [question.list_jobs(part, system)[0].rows for part in parts]

        assert rows == [None, None, 100, 100, None, 100]
        assert Question().list_jobs(parts[2], system)[0].rows is None

    def test_a_job_says_all_that_was_asked(self, parts):
        question = Question("split", rows=50, seeds=(6,), smoke=True)

        assert question.list_jobs(parts[0], self.system("A")) == [
            Job(file="large", system="A", seed=6, protocol="split", rows=50, smoke=True)
        ]

    @pytest.mark.parametrize(
        ("question", "said"),
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
    def test_a_question_that_makes_no_sense_is_refused(self, parts, question, said, seeded):
        with pytest.raises(ParameterError, match=said):
            question.list_jobs(parts[0], self.system("A", seeded=seeded))

    def test_every_system_at_hand_has_jobs_on_every_table_at_hand(self, adbench):
        planned = plan_jobs(select(suite="smoke"), find_systems(), Question(seeds=(0,), smoke=True))

        assert len(planned) == len(set(planned)) == 6 * len(find_systems())
        assert {job.rows for job in planned} == {None}


class TestRunAll:
    @pytest.fixture
    def asked(self, monkeypatch):
        """Jobs are done here and at once; gives what was asked of the processes."""
        asked = []

        def at_once(jobs, **limits):
            asked.append((list(jobs), limits))
            return (result(job, error="no" if job.file == "bad" else None) for job in jobs)

        monkeypatch.setattr(runner, "run_jobs", at_once)
        return asked

    def test_every_job_is_a_line_and_runs_once(self, tmp_path, asked):
        planned, watched = jobs("A", "bad", "B"), []

        def on_progress(runs, total):
            watched.append(total)
            return runs

        first = run_all(tmp_path / "lines", planned[:2], Limits(2, 3, 4.0), on_progress)
        second = run_all(tmp_path / "lines", planned, Limits(), on_progress)
        third = run_all(tmp_path / "lines", planned, Limits(), on_progress, retry=True)

        assert [left for left, _ in asked] == [planned[:2], planned[2:], planned[1:2]]
        assert watched == [2, 1, 1]
        assert asked[0][1] == {"processes": 2, "threads": 3, "seconds": 4.0}
        assert read_runs(tmp_path / "lines") == [*first, *second, *third]

    def test_the_job_of_a_half_written_line_runs_again(self, tmp_path, asked):
        planned = jobs("A", "B")
        run_all(tmp_path / "lines", planned, Limits(), no_progress)
        whole = (tmp_path / "lines").read_bytes()
        (tmp_path / "lines").write_bytes(whole[:-9])

        run_all(tmp_path / "lines", planned, Limits(), no_progress)

        assert asked[1][0] == planned[1:]
        assert (tmp_path / "lines").read_bytes() == whole

    def test_a_run_is_in_the_file_before_the_next_begins(self, tmp_path, asked):
        seen = []

        def on_progress(runs, total):
            for run in runs:
                yield run
                seen.append(len(read_runs(tmp_path / "lines")))

        run_all(tmp_path / "lines", jobs(*"ABC"), Limits(), on_progress)

        assert seen == [1, 2, 3]

    def test_a_job_runs_again_whose_system_is_built_otherwise_by_now(self, tmp_path, asked):
        (planned,) = jobs("A")
        append(tmp_path / "lines", replace(result(planned), parameters={"size": 99}))

        run_all(tmp_path / "lines", [planned], Limits(), no_progress)

        assert [left for left, _ in asked] == [[planned]]

    @pytest.mark.parametrize("text", ["my,notes\nlast row", "one precious line"])
    def test_a_file_of_something_else_is_left_as_it_is(self, tmp_path, asked, text):
        (tmp_path / "lines").write_text(text)

        with pytest.raises(TableError, match="not a record of the benchmark"):
            run_all(tmp_path / "lines", jobs("A"), Limits(), no_progress)

        assert asked == []
        assert (tmp_path / "lines").read_text() == text

    def test_an_unreadable_file_stops_all_before_the_first_job(self, tmp_path, asked):
        (tmp_path / "lines").write_text("notes\n")

        with pytest.raises(TableError, match="lines, line 1"):
            run_all(tmp_path / "lines", jobs("A"), Limits(), no_progress)

        assert asked == []
        assert (tmp_path / "lines").read_text() == "notes\n"

    def test_no_file_at_hand_is_said_and_leaves_no_trace(self, tmp_path, asked):
        with pytest.raises(TableError, match="altbi-bench datasets"):
            run_all(tmp_path / "lines", [], Limits(), no_progress)

        assert not (tmp_path / "lines").exists()
