"""Tests of the benchmarks of speed and memory at small sizes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.utils.flop_counter import FlopCounterMode
from torch_reference import TorchNetwork

import altbi
import hundred_million
import measuring
import mixed_columns
import peers
import reading
import share
import small
from altbi import IWAE
from altbi_bench.runs.json_records import append_json_record, read_json_records

FOLDER = Path(__file__).parents[1] / "benchmarks"
OURS = {1000: 1.0, 100_000: 1.0}


def run_script(script, *arguments):
    """Run a script, and return the rows of its tables."""
    command = [sys.executable, str(FOLDER / f"{script}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line[:1] == "|"]
    return [row for row in rows if not row[0].startswith("---")]


@pytest.fixture(name="X", scope="module")
def sample_rows():
    return np.random.default_rng(0).normal(size=(300, 12))


def test_generated_rows_differ_and_repeat_by_seed():
    (rows,) = measuring.generate_rows(5000, seed=3)

    assert len(np.unique(rows, axis=0)) == 5000
    assert np.array_equal(rows, next(measuring.generate_rows(5000, seed=3)))
    assert not np.isin(rows, next(measuring.generate_rows(5000, seed=4))).any()


def test_multiply_adds_by_loss_match_torch(X):
    detector = clone(share.DETECTORS["loss"]).fit(X)
    sizes = IWAE().choose_sizes(12)
    network = TorchNetwork(12, sizes.hidden, sizes.latent, sizes.n_samples, bounded=True).eval()
    rows = torch.rand(7, 12, dtype=torch.double)

    with FlopCounterMode(display=False) as counter:
        network(rows, network.scoring_noise[None])

    counted = sum(product.multiply_adds for product in share.list_products(detector))
    n_snapshots = detector.model_.scorer.stacked.n_snapshots
    assert n_snapshots * counter.get_total_flops() == 2 * 7 * counted


def test_multiply_adds_by_distance_count_reference_rows(X):
    detector = clone(share.DETECTORS["distance"]).set_params(n_reference=50).fit(X)

    assert [product.multiply_adds for product in share.list_products(detector)] == [
        12 * 12,
        50 * 12,
    ]


def test_products_have_the_stated_shape():
    product = share.Product(3, 5, 7, times=2)

    result = product.build(block=4)()

    assert result.shape == (3, 5, 4 * 2)
    assert (result == 7).all()


@pytest.mark.slow
def test_share_table_has_all_detectors_and_widths():
    sizes = ("--seconds", 0.01, "--rounds", 1, "--fitted", 300, "--threads", 1)

    head, *rows = run_script("share", "--widths", "3,5", *sizes)

    assert [row[:2] for row in rows] == [[by, d] for by in ("distance", "loss") for d in ("3", "5")]
    index = head.index("of the best product")
    for row in rows:
        used, best = float(row[4]), float(row[5])
        assert float(row[index].rstrip(" %")) == pytest.approx(100 * used / best, abs=5)


def test_curves_cross_on_logarithmic_axes():
    assert peers.find_crossings({1000: 0.1, 100_000: 10.0}, OURS) == [10_000]
    assert peers.find_crossings({1000: 0.1, 100_000: 0.9}, OURS) == []
    assert peers.find_crossings({1000: 2.0}, OURS) == []


def test_exponent_of_a_power_is_found():
    assert peers.fit_exponent({n: 3 * n**1.5 for n in (10, 100, 1000)}) == pytest.approx(1.5)


@pytest.mark.slow
def test_peers_run_once_and_print_ratios(tmp_path):
    records = tmp_path / "peers.jsonl"
    records.write_text('{"system": "ECOD", "rows": 200, "fi')  # an incomplete record
    arguments = ("--rows", "200", "--systems", "ECOD,IsolationForest", "--records", records)

    run_script("peers", *arguments)
    first = records.read_text()
    run_script("peers", *arguments)

    assert records.read_text() == first
    found = {(each["system"], each["rows"]): each for each in read_json_records(records)}
    assert set(found) == {("ECOD", 200), ("IsolationForest", 200)}
    assert all(each["fit"] > 0 and each["peak"] > 0 for each in found.values())
    ours = dict(found["ECOD", 200], system=peers.OURS, fit=2.0, score=0.0)
    append_json_record(records, ours)
    table = run_script("peers", "--no-runs", "--records", records)
    seconds = peers.total_seconds(found["IsolationForest", 200])
    ratios = next(i for i, row in enumerate(table) if row[0] == "seconds / ours")
    ratio = next(row[1] for row in table[ratios:] if row[0] == "IsolationForest")
    assert float(ratio) == pytest.approx(seconds / 2, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "error"), [("--seconds=0.1", "more than 0.1 s"), ("--gibibytes=0.01", "GiB")]
)
def test_system_beyond_a_limit_gets_no_larger_table(tmp_path, limit, error):
    records = tmp_path / "peers.jsonl"

    options = "--rows", "300,600", "--systems", "OutlierDetector()", "--records", records
    run_script("peers", *options, limit)

    (record,) = read_json_records(records)
    assert record["rows"] == 300
    assert error in record["error"]


@pytest.mark.slow
def test_folder_grows_is_scored_and_removed(tmp_path):
    records, folder = tmp_path / "records.jsonl", tmp_path / "folder"
    folder.mkdir()

    head, *rows = run_script(
        "hundred_million", "--rows", "1e3,3e3", "--records", records, "--folder", folder
    )

    assert [row[:2] for row in rows] == [
        ["altbi fit", "1,000"], ["altbi score", "1,000"], ["altbi score", "3,000"]
    ]  # fmt: skip
    assert all(each["peak"] > 50 * 2**20 for each in read_json_records(records))
    assert head[-1] == "peak MiB"
    assert list(folder.iterdir()) == []


def test_too_large_folder_is_refused(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1e9})
    monkeypatch.setattr(hundred_million.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(hundred_million, "run_command", lambda *command: pytest.fail(str(command)))

    with pytest.raises(SystemExit, match=r"need 6\.4 GB more, but only 1\.0 GB are free"):
        hundred_million.grow(tmp_path, 10**8, 10**6)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_small_jobs_save_a_model_and_print_ratios(tmp_path):
    model = tmp_path / "small.altbi"
    heavy = {f'python -c "{code}"' for code in small.IMPORTS}

    inside = small.measure_fits(model, repeats=1)
    commands = small.build_commands(model)
    light = {name: commands[name] for name in commands.keys() - heavy}
    outside = small.compute_medians(light, repeats=1)

    assert altbi.load(model).training_table.n_rows == small.ROWS
    assert min(inside.values()) > 0
    assert (tmp_path / "found" / "scores.csv").exists()
    assert heavy < commands.keys()
    assert (
        small.format_grid("", {"base": 0.5, "other": 2.0} | outside, "base").splitlines()[3]
        == "| other | 2 | 4 |"
    )


def test_mixed_blocks_have_all_kinds_in_equal_numbers(monkeypatch):
    monkeypatch.setattr(mixed_columns, "BLOCK", 300)

    blocks = list(mixed_columns.generate_mixed_blocks(700, 20))

    assert [len(block) for block in blocks] == [300, 300, 100]
    assert all(block.schema == blocks[0].schema for block in blocks)
    kinds = [name.rpartition("_")[0] for name in blocks[0].column_names]
    assert kinds == 2 * list(mixed_columns.COLUMNS)
    is_holed = {
        name.rpartition("_")[0] for name in blocks[0].column_names if blocks[0][name].null_count
    }
    assert is_holed == {"holed", "country"}


def test_scans_of_duckdb_read_all_values(tmp_path):
    path = tmp_path / "small.csv"
    reading.write_table(path, 500, 20)

    for as_arrow in (True, False):
        assert reading.scan_by_duckdb(path, as_arrow=as_arrow) > 0
    assert len(path.read_text().splitlines()) == 501


def test_passes_are_compared_with_scans_and_commands_with_the_forest():
    seconds = dict.fromkeys(("altbi detect, this version", reading.FOREST), 3.0)
    seconds |= dict.fromkeys(reading.SCANS, 2.0) | {reading.FIRST: 4.0, reading.SECOND: 1.0}
    found = {name: reading.Measured(value, 10.0) for name, value in seconds.items()}

    table = reading.format_csv(found).splitlines()

    assert table[2] == "| altbi detect, this version | 3.00 | 10 | 1.00 |  |  |"
    assert table[-1] == "| both passes | 5.00 | 10 |  | 2.50 | 2.50 |"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "options", "names"),
    [
        ("csv", ("--rows", 300), [reading.FOREST, *reading.SCANS, reading.FIRST, reading.BOTH]),
        ("score", ("--score-rows", 300), [reading.OURS]),
        ("wide", ("--wide", "60x20"), ["csv", "parquet"]),
    ],
)
def test_reading_is_measured_in_each_section(section, options, names):
    rows = run_script("reading", "--only", section, "--repeats", 1, *options)

    assert {row[0] for row in rows} >= set(names)
