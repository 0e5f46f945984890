"""The benchmarks of speed and memory at tiny sizes: what they count, not how fast anything is."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import hundred_million
import measuring
import peers
import share
import small
from altbi import ALTBI
from altbi_bench.runs.json_lines import append_json_line, read_json_lines

FOLDER = Path(__file__).parents[1] / "benchmarks"
OURS = {1000: 1.0, 100_000: 1.0}


def run(script, *arguments):
    """Run a script to its end; gives the cells of its tables, row by row."""
    command = [sys.executable, str(FOLDER / f"{script}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line[:1] == "|"]
    return [row for row in rows if not row[0].startswith("---")]


@pytest.fixture(name="X")
def rows_of_twelve_columns():
    return np.random.default_rng(0).normal(size=(300, 12))


def test_the_rows_of_the_benchmarks_all_differ_and_come_again_with_their_seed():
    (rows,) = measuring.clusters(5000, seed=3)

    assert len(np.unique(rows, axis=0)) == 5000
    assert np.array_equal(rows, next(measuring.clusters(5000, seed=3)))
    assert not np.isin(rows, next(measuring.clusters(5000, seed=4))).any()


def test_multiply_adds_by_loss_are_those_that_torch_counts(X):
    detector = ALTBI(**share.DETECTORS["loss"]).fit(X)
    rows = torch.rand(12, 7)

    with FlopCounterMode(display=False) as counter:
        detector.ensemble_.stacked.losses(rows)

    counted = sum(product.multiply_adds for product in share.products(detector))
    assert counter.get_total_flops() == 2 * 7 * counted


def test_multiply_adds_by_distance_are_columns_times_remembered_rows(X):
    detector = ALTBI(**share.DETECTORS["distance"], n_reference=50).fit(X)

    assert [product.multiply_adds for product in share.products(detector)] == [50 * 12]


def test_plain_products_multiply_what_they_say():
    product = share.Product(3, 5, 7, times=2)

    result = product.work(block=4)()

    assert result.shape == (3, 5, 4 * 2)
    assert (result == 7).all()


def test_shares_have_a_row_for_each_kind_of_score_and_width():
    sizes = ("--seconds", 0.01, "--rounds", 1, "--fitted", 300, "--threads", 1)

    head, *rows = run("share", "--widths", "3,5", *sizes)

    assert [row[:2] for row in rows] == [[by, d] for by in ("distance", "loss") for d in ("3", "5")]
    place = head.index("of the best product")
    for row in rows:
        used, best = float(row[4]), float(row[5])
        assert float(row[place].rstrip(" %")) == pytest.approx(100 * used / best, abs=5)


def test_lines_cross_where_their_logarithms_do():
    assert peers.crossings({1000: 0.1, 100_000: 10.0}, OURS) == [10_000]
    assert peers.crossings({1000: 0.1, 100_000: 0.9}, OURS) == []
    assert peers.crossings({1000: 2.0}, OURS) == []


def test_an_exponent_is_that_of_the_power():
    assert peers.exponent({n: 3 * n**1.5 for n in (10, 100, 1000)}) == pytest.approx(1.5)


def test_peers_run_once_and_the_table_has_their_ratio(tmp_path):
    lines = tmp_path / "peers.jsonl"
    lines.write_text('{"system": "ECOD", "rows": 200, "fi')  # a run that was cut off
    arguments = ("--rows", "200", "--systems", "ECOD,IsolationForest", "--lines", lines)

    run("peers", *arguments)
    first = lines.read_text()
    run("peers", *arguments)

    assert lines.read_text() == first
    told = {(line["system"], line["rows"]): line for line in map(json.loads, first.splitlines())}
    assert set(told) == {("ECOD", 200), ("IsolationForest", 200)}
    assert all(line["fit"] > 0 and line["peak"] > 0 for line in told.values())
    ours = dict(told["ECOD", 200], system=peers.OURS, fit=2.0, score=0.0)
    append_json_line(lines, ours)
    table = run("peers", "--no-runs", "--lines", lines)
    seconds = told["IsolationForest", 200]["fit"] + told["IsolationForest", 200]["score"]
    ratios = next(i for i, row in enumerate(table) if row[0] == "seconds / ours")
    ratio = next(row[1] for row in table[ratios:] if row[0] == "IsolationForest")
    assert float(ratio) == pytest.approx(seconds / 2, rel=0.06)


@pytest.mark.parametrize(
    ("limit", "error"), [("--seconds=0.1", "more than 0.1 s"), ("--gibibytes=0.01", "GiB")]
)
def test_a_system_beyond_a_limit_is_not_asked_for_more_rows(tmp_path, limit, error):
    lines = tmp_path / "peers.jsonl"

    run("peers", "--rows", "300,600", "--systems", "ALTBI()", "--lines", lines, limit)

    (line,) = read_json_lines(lines)
    assert line["rows"] == 300
    assert error in line["error"]


def test_a_folder_grows_is_scored_and_removed(tmp_path):
    lines, folder = tmp_path / "lines.jsonl", tmp_path / "folder"
    folder.mkdir()

    head, *rows = run("hundred_million", "--rows", "1e3,3e3", "--lines", lines, "--folder", folder)

    assert [row[:2] for row in rows] == [
        ["altbi fit", "1,000"], ["altbi score", "1,000"], ["altbi score", "3,000"]
    ]  # fmt: skip
    assert all(line["peak"] > 50 * 2**20 for line in read_json_lines(lines))
    assert head[-1] == "peak MiB"
    assert list(folder.iterdir()) == []


def test_a_folder_that_would_not_fit_is_refused(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1e9})
    monkeypatch.setattr(hundred_million.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(hundred_million, "run", lambda *command: pytest.fail(str(command)))

    with pytest.raises(SystemExit, match=r"need 6\.4 GB more, but only 1\.0 GB are free"):
        hundred_million.grow(tmp_path, 10**8, 10**6)

    assert list(tmp_path.iterdir()) == []


def test_small_jobs_leave_a_model_and_are_compared_with_one_of_them(tmp_path):
    model = tmp_path / "small.altbi"
    heavy = {f'python -c "{code}"' for code in small.IMPORTS}

    inside = small.fits(model, repeats=1)
    works = small.processes(model)
    outside = small.medians({name: works[name] for name in works.keys() - heavy}, repeats=1)

    assert ALTBI.load(model).n_rows_in_ == small.ROWS
    assert min(inside.values()) > 0
    assert (tmp_path / "found" / "scores.csv").exists()
    assert heavy < works.keys()
    assert (
        small.grid("", {"base": 0.5, "other": 2.0} | outside, "base").splitlines()[3]
        == "| other | 2 | 4 |"
    )
