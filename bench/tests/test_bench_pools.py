"""Tests of the pools of tables."""

import numpy as np
import pytest

from altbi.errors import TableError
from altbi_bench.catalogue import pools
from altbi_bench.catalogue.pools import (
    PoolTable,
    find_half,
    is_in_half,
    list_tables,
    load_pool_table,
    select_by_hash,
)
from bench_pools import build_rows, build_table


@pytest.fixture
def oddbench(tmp_path, monkeypatch):
    """Write a table in each folder, and return their folder; ADBench has no files."""
    monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path / "adbench"))
    for folder, name in (("oddbench-A", "ArtCollections"), ("ovrbench-A", "AgilePriority")):
        (tmp_path / folder).mkdir()
        X, y = build_rows()
        np.savez(tmp_path / folder / f"{name}.npz", X=X.astype(np.float32), y=y)
    return tmp_path


def write_adbench(folder, *paths):
    for path in paths:
        file = folder / "adbench" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


class TestHalves:
    def test_half_follows_the_documented_hash(self):
        names = ["ALLPatientData", "AdultDemographics", "AgilePriority", "Fitness_Club"]

        assert [find_half(name) for name in names] == ["select", "confirm", "confirm", "select"]

    @pytest.mark.parametrize(
        ("pool", "own", "half", "expected"),
        [
            ("oddbench", "confirm", "confirm", True),
            ("oddbench", "select", "confirm", False),
            ("adbench", "select", "select", True),
            ("adbench", "confirm", "select", False),
            ("adbench", "select", "confirm", True),
            ("embeddings", "select", "confirm", True),
        ],
    )
    def test_pools_count_for_their_halves(self, pool, own, half, expected):
        assert is_in_half(pool, own, half) is expected


class TestListTables:
    def test_folders_are_listed_with_their_halves(self, oddbench):
        found = [(each.pool, each.name, each.half) for each in list_tables(oddbench)]

        assert found == [
            ("oddbench", "ArtCollections", "select"),
            ("ovrbench", "AgilePriority", "confirm"),
        ]

    def test_missing_folder_raises_an_error(self, oddbench, tmp_path):
        (tmp_path / "ovrbench-A" / "AgilePriority.npz").unlink()

        with pytest.raises(TableError, match=r"ovrbench-A: no npz files\. Pass --oddbench"):
            list_tables(oddbench)

    def test_embeddings_of_one_name_differ(self, oddbench):
        paths = [f"{folder}/MVTec-AD_pill.npz" for folder in ("CV_by_ViT", "CV_by_ResNet18")]
        write_adbench(oddbench, *paths)

        found = {each.name for each in list_tables(oddbench) if each.pool == "embeddings"}

        assert found == {"CV_by_ViT/MVTec-AD_pill", "CV_by_ResNet18/MVTec-AD_pill"}

    def test_chosen_tables_of_adbench_are_select(self, oddbench):
        write_adbench(oddbench, "Classical/29_Pima.npz", "Classical/45_wine.npz")

        found = {each.name: each.half for each in list_tables(oddbench) if each.pool == "adbench"}

        assert found == {"29_Pima": "select", "45_wine": "confirm"}


class TestLoadPoolTable:
    def test_arrays_are_read_in_double_precision(self, oddbench):
        X, y = load_pool_table(list_tables(oddbench)[0])

        expected, labels = build_rows()
        assert X.dtype == np.float64
        np.testing.assert_array_equal(X, expected.astype(np.float32))
        np.testing.assert_array_equal(y, labels)

    def test_sample_of_rows_keeps_their_order(self, monkeypatch):
        monkeypatch.setattr(pools, "MAX_ROWS", 20)
        X, y = build_rows()

        rows, labels = load_pool_table(PoolTable("oddbench", "a", "select", lambda: (X, y)))

        expected = np.sort(np.random.default_rng(0).permutation(60)[:20])
        np.testing.assert_array_equal(rows, X[expected])
        np.testing.assert_array_equal(labels, y[expected])


class TestSelectByHash:
    def test_order_of_tables_does_not_matter(self):
        tables = [build_table(f"t{number}") for number in range(20)]

        names = [each.name for each in select_by_hash(tables, 5)]

        assert names == [each.name for each in select_by_hash(tables[::-1], 5)]
        assert names != [each.name for each in tables[:5]]

    def test_selection_depends_on_the_pool(self):
        names = [f"t{number}" for number in range(20)]
        found = [
            [each.name for each in select_by_hash([build_table(n, pool) for n in names], 5)]
            for pool in ("oddbench", "ovrbench")
        ]

        assert found[0] != found[1]
