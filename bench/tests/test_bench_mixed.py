"""Tests of the benchmark on mixed tables: codes, systems, errors, payments and cells."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altbi.errors import TableError
from altbi_bench.mixed import systems
from altbi_bench.mixed.cells import CELL_SYSTEMS, DirtyTable, measure_cells, score_cells
from altbi_bench.mixed.codes import (
    N_CATEGORIES,
    compute_rarities,
    compute_robust_z_scores,
    encode_frequencies,
    encode_one_hot,
    to_numbers,
)
from altbi_bench.mixed.errors import (
    ERROR_PLANS,
    KINDS,
    SENTINEL,
    ErrorPlan,
    edit_text,
    inject_errors,
)
from altbi_bench.mixed.jobs import get_key, list_mixed_jobs, measure_mixed_job
from altbi_bench.mixed.payments import MERCHANTS, build_payments
from altbi_bench.mixed.ranking import compute_top_weights
from altbi_bench.mixed.systems import OLD, OURS, ROW_SYSTEMS, find_missing_packages, score_rows
from altbi_bench.mixed.tables import LABEL, list_mixed_tables, sample_rows, split_labels


def build_frame(n_rows=120):
    """Return rows with a number, a text, a date and missing values; row 7 has far values."""
    generator = np.random.default_rng(0)
    amounts = generator.normal(size=n_rows)
    amounts[7] = 60.0
    dates = np.datetime64("2024-01-01", "us") + generator.integers(0, 9**13, n_rows)
    cities = generator.choice(["north", "south", "east"], n_rows).tolist()
    cities[7] = "nroth"
    cities[9] = None
    mask = np.arange(n_rows) == 11
    return pa.table(
        {
            "amount": pa.array(amounts, mask=mask),
            "city": pa.array(cities, type=pa.large_string()),
            "date": pa.array(dates, type=pa.timestamp("us")),
        }
    )


class TestTables:
    def test_sample_keeps_order_and_depends_on_seed(self):
        frame = pa.table({"x": list(range(50))})

        first, again, other = (sample_rows(frame, 20, seed)["x"].to_pylist() for seed in (0, 0, 1))

        assert first == again == sorted(set(first))
        assert len(first) == 20
        assert first != other

    def test_labels_are_split_from_the_columns(self, tmp_path):
        frame = build_frame().append_column(LABEL, [[index == 7 for index in range(120)]])
        pq.write_table(frame, tmp_path / "a.parquet")

        (table,) = list_mixed_tables(tmp_path)
        found, labels = table.load()

        assert (table.name, found.column_names) == ("a", ["amount", "city", "date"])
        assert np.flatnonzero(labels).tolist() == [7]

    def test_empty_folder_raises(self, tmp_path):
        with pytest.raises(TableError, match="no Parquet files"):
            list_mixed_tables(tmp_path)


class TestCodes:
    def test_dates_are_seconds(self):
        column = pa.array([np.datetime64("1970-01-02", "us"), None])

        assert np.array_equal(to_numbers(column), [86_400.0, np.nan], equal_nan=True)

    def test_missing_numbers_are_the_median(self):
        frame = pa.table({"x": [1.0, None, 5.0, 9.0], "y": pa.nulls(4, pa.float64())})

        assert encode_frequencies(frame).T.tolist() == [[1, 5, 5, 9], [0, 0, 0, 0]]

    def test_rare_categories_have_no_feature(self):
        texts = [f"{index}" for index in range(N_CATEGORIES)] * 2 + ["once"]

        found = encode_one_hot(pa.table({"x": texts}))

        assert found.shape == (len(texts), N_CATEGORIES)
        assert np.allclose(found.std(axis=0), 1)
        assert (found[-1] < 0).all()

    def test_rarity_of_numbers_is_by_bins(self):
        values = [*np.linspace(0, 1, 200), 50.0, None]

        rarities = compute_rarities(pa.table({"x": values}))[:, 0]

        # The far value shares its bin with the last two of the others, beyond the quantile.
        assert rarities[200] == pytest.approx(np.log(202 / 3), rel=0.3)
        assert rarities[201] == pytest.approx(np.log(202))
        assert rarities[100] < np.log(30)

    def test_robust_z_scores_ignore_texts(self):
        found = compute_robust_z_scores(pa.table({"x": [1.0, 2.0, 3.0, None], "t": list("abcd")}))

        assert found[:, 1].tolist() == [0, 0, 0, 0]
        assert found[1, 0] == found[3, 0] == 0
        assert found[0, 0] == found[2, 0] > 0


class TestRanking:
    def test_equal_scores_share_the_last_positions(self):
        weights = compute_top_weights(np.array([0.0, 2.0, 2.0, 2.0, 5.0]), 3)

        assert weights.tolist() == pytest.approx([0, 2 / 3, 2 / 3, 2 / 3, 1])

    @pytest.mark.parametrize(("n_top", "total"), [(0, 0), (2, 2), (9, 2)])
    def test_weights_add_up(self, n_top, total):
        assert compute_top_weights(np.array([1.0, 1.0]), n_top).sum() == total


class TestSystems:
    @pytest.mark.parametrize("name", [name for name in ROW_SYSTEMS if name != OLD])
    def test_far_row_has_a_high_score(self, name):
        if package := find_missing_packages([name]).get(name):
            pytest.skip(f"the package {package} is not installed")

        scores = score_rows(name, build_frame(), 0, None)

        assert scores.shape == (120,)
        assert (scores > scores[7]).sum() <= 2

    def test_old_version_needs_its_sources(self, tmp_path):
        with pytest.raises(ValueError, match="Pass --old FOLDER"):
            score_rows(OLD, build_frame(), 0, None)
        with pytest.raises(FileNotFoundError, match="no package altbi"):
            score_rows(OLD, build_frame(), 0, tmp_path)

    def test_old_version_scores_in_its_own_process(self, tmp_path):
        package = tmp_path / "altbi"
        package.mkdir()
        (package / "__init__.py").write_text(
            "import numpy as np\n"
            "class ALTBI:\n"
            "    def __init__(self, random_state): self.seed = random_state\n"
            "    def fit(self, frame): return self\n"
            "    def score_samples(self, frame):\n"
            "        if self.seed == 9: raise KeyError('nine')\n"
            "        return np.full(len(frame), -self.seed)\n"
        )

        with systems.OldProcess(tmp_path) as process:
            with pytest.raises(RuntimeError, match="KeyError: 'nine'"):
                process.score(build_frame(), 9)
            scores = process.score(build_frame(), 3)

        assert scores.tolist() == [3] * 120

    def test_scores_that_are_not_finite_raise(self, monkeypatch):
        broken = systems.RowSystem(lambda frame, seed: np.full(len(frame), np.nan))
        monkeypatch.setitem(ROW_SYSTEMS, "broken", broken)

        with pytest.raises(ValueError, match="not finite"):
            score_rows("broken", build_frame(), 0, None)

    def test_missing_packages_are_named(self, monkeypatch):
        monkeypatch.setitem(ROW_SYSTEMS, "a", systems.RowSystem(None, package="no_such_package"))

        assert find_missing_packages(["a", OURS]) == {"a": "no_such_package"}


class TestJobs:
    def test_unseeded_systems_run_once(self, tmp_path):
        pq.write_table(build_frame(), tmp_path / "a.parquet")
        tables = list_mixed_tables(tmp_path)

        jobs = list_mixed_jobs(
            tables, [OURS, "frequency"], n_seeds=2, done={("a", OURS, 0)}, old=None
        )

        assert [get_key(job.record) for job in jobs] == [("a", "frequency", 0), ("a", OURS, 1)]

    def test_accuracy_is_that_of_the_scores(self, tmp_path):
        frame = build_frame().append_column(LABEL, [[index == 7 for index in range(120)]])
        pq.write_table(frame, tmp_path / "a.parquet")
        (job,) = list_mixed_jobs(
            list_mixed_tables(tmp_path), ["frequency"], n_seeds=1, done=set(), old=None
        )

        found = measure_mixed_job(job)

        assert found["auc"] > 0.98
        assert found["ap"] > 0.3


@pytest.fixture(scope="module")
def payments():
    return build_payments(0, 2_000)


class TestPayments:
    def test_same_seed_gives_the_same_table(self, payments):
        assert build_payments(0, 2_000).equals(payments)
        assert not build_payments(1, 2_000).equals(payments)

    def test_postcodes_belong_to_one_city(self, payments):
        cities = payments.group_by("postcode").aggregate([("city", "count_distinct")])
        states = payments.group_by("city").aggregate([("state", "count_distinct")])

        assert set(cities["city_count_distinct"].to_pylist()) == {1}
        assert set(states["state_count_distinct"].to_pylist()) == {1}

    def test_dates_are_in_order(self, payments):
        birth, opened, paid = (
            np.array(payments[name])
            for name in ("birth_date", "account_opened", "transaction_time")
        )

        assert (birth < opened).all()
        assert (opened < paid).all()

    def test_columns_are_complete_and_realistic(self, payments):
        amounts = payments["amount"].to_numpy()
        hours = payments["transaction_time"].to_numpy().astype("datetime64[h]").astype(int) % 24

        assert sum(column.null_count for column in payments.columns) == 0
        assert set(payments["merchant_category"].to_pylist()) == set(MERCHANTS)
        assert amounts.min() > 0
        assert np.mean(amounts) > 1.2 * np.median(amounts)
        assert np.mean((hours >= 8) & (hours < 22)) > 0.75


class TestErrors:
    def test_payments_admit_all_kinds(self, payments):
        injected = inject_errors(payments, ERROR_PLANS["payments"], 0, n_each=4)

        assert list(injected.rows) == list(KINDS)
        assert injected.n_errors == 4 * len(KINDS)
        assert len({row for rows in injected.rows.values() for row in rows}) == injected.n_errors

    def test_other_rows_are_unchanged(self, payments):
        injected = inject_errors(payments, ERROR_PLANS["payments"], 0, n_each=4)
        changed = {
            row
            for row, (before, after) in enumerate(
                zip(payments.to_pylist(), injected.frame.to_pylist(), strict=True)
            )
            if before != after
        }

        assert changed == {row for rows in injected.rows.values() for row in rows}

    def test_errors_are_of_their_kind(self, payments):
        injected = inject_errors(payments, ERROR_PLANS["payments"], 0, n_each=4)
        before, after = payments.to_pylist(), injected.frame.to_pylist()

        def list_changes(kind):
            return [
                (name, before[row][name], after[row][name])
                for row in injected.rows[kind]
                for name in payments.column_names
                if before[row][name] != after[row][name]
            ]

        assert {new for _, _, new in list_changes("sentinel")} == {SENTINEL}
        assert {new for _, _, new in list_changes("missing value")} == {None}
        assert all(new == old.lower() != old for _, old, new in list_changes("lower case"))
        assert all(new == pytest.approx(100 * old) for _, old, new in list_changes("amount x 100"))
        assert all(new < 0 for _, _, new in list_changes("negative"))
        assert {name for name, _, _ in list_changes("typo, large category")} == {"city"}
        latest = max(payments["transaction_time"].to_pylist())
        assert all(new > latest for _, _, new in list_changes("date in the future"))
        rows = list(map(repr, after))
        assert all(rows.count(rows[row]) == 2 for row in injected.rows["duplicate row"])

    def test_wrong_pairs_are_new(self, payments):
        plan = ErrorPlan(pairs=(("city", "postcode"),))
        pairs = {(each["city"], each["postcode"]) for each in payments.to_pylist()}

        injected = inject_errors(payments, plan, 0)

        found = injected.frame.take(injected.rows["wrong pair"]).to_pylist()
        assert all((each["city"], each["postcode"]) not in pairs for each in found)
        assert {each["city"] for each in found} <= {city for city, _ in pairs}

    def test_plans_name_existing_columns(self):
        with pytest.raises(KeyError):
            inject_errors(build_frame(), ErrorPlan(amounts=("price",)), 0)

    def test_columns_with_missing_values_keep_theirs(self):
        injected = inject_errors(build_frame(), ErrorPlan(), 0, n_each=3)

        assert list(injected.rows) == ["missing value", "duplicate row"]
        assert {injected.frame["date"][row].as_py() for row in injected.rows["missing value"]} == {
            None
        }

    def test_edits_change_one_or_two_letters(self):
        chance = random.Random(0)

        found = [edit_text("abcdef", chance) for _ in range(200)]

        assert {len(each) for each in found} == {5, 6, 7}
        assert "abcedf" in found


def write_pair(folder, dirty, clean):
    """Write two CSV files, and return the table that is read from them."""
    paths = folder / "dirty.csv", folder / "clean.csv"
    for path, rows in zip(paths, (dirty, clean), strict=True):
        path.write_text("".join(",".join(row) + "\n" for row in rows))
    return DirtyTable.read(*paths)


class TestCells:
    def test_wrong_cells_differ_from_the_clean_file(self, tmp_path):
        table = write_pair(
            tmp_path, [["A", "B"], ["1", "x"], ["2", "N/A"]], [["a", "b"], ["1", "y"], ["2", ""]]
        )

        assert table.names == ("a", "b")
        assert table.wrong.tolist() == [[False, True], [False, True]]
        assert table.frame.to_pydict() == {"a": [1.0, 2.0], "b": ["x", "N/A"]}
        reduced = table.remove_text("b", "N/A")
        assert reduced.frame["b"].to_pylist() == ["x", None]
        assert reduced.wrong.tolist() == [[False, True], [False, False]]
        assert table.drop("a").wrong.tolist() == [[True], [True]]

    def test_typos_are_in_the_given_columns(self, tmp_path):
        rows = [["a", "b"], *([f"text{index}", "same"] for index in range(30))]
        table = write_pair(tmp_path, rows, rows)

        dirty = table.write_typos([1], 12, seed=0)

        texts = np.array(dirty.texts).T
        assert np.array_equal(texts != np.array(table.texts).T, dirty.wrong)
        assert dirty.wrong.sum(axis=0).tolist() == [0, 12]
        assert dirty.texts == table.write_typos([1], 12, seed=0).texts

    @pytest.mark.parametrize("name", list(CELL_SYSTEMS))
    def test_systems_score_each_cell(self, name):
        package = CELL_SYSTEMS[name].package
        if package:
            pytest.importorskip(package)
        frame = build_frame()

        scores = score_cells(name, frame)

        assert scores.shape == (120, 3)
        # Bins do not show how far a number is.
        if name not in ("outliertree", "histograms", "OutlierDetector, cell_scores"):
            assert scores[:, 0].argmax() == 7
        if name.startswith("OutlierDetector"):
            assert scores[:, 1].argmax() == 7

    def test_wrong_shape_raises(self, monkeypatch):
        from altbi_bench.mixed.cells import CellSystem

        monkeypatch.setitem(CELL_SYSTEMS, "broken", CellSystem(lambda frame: np.zeros((1, 1))))

        with pytest.raises(ValueError, match="the shape is"):
            score_cells("broken", build_frame())

    def test_f1_is_at_the_true_number(self):
        wrong = np.array([[True, False], [True, False]])

        found = measure_cells(wrong, np.array([[3.0, 2.0], [1.0, 0.0]]))

        assert found["f1"] == 0.5
        assert found["ap"] == pytest.approx((1 + 2 / 3) / 2, abs=1e-5)

    def test_equal_scores_count_with_their_probability(self):
        found = measure_cells(np.array([[True, False, False, False]]), np.zeros((1, 4)))

        assert found == {"ap": 0.25, "f1": 0.25}


def test_split_labels_are_numbers():
    frame, labels = split_labels(pa.table({"x": [1], LABEL: [True]}))

    assert frame.column_names == ["x"]
    assert labels.tolist() == [1]
