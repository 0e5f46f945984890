"""A table in several layouts, its model, and a Dask cluster for the tests of this folder."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from partition_tables import FEATURES, N_ROWS, PARTITION_ROWS

from altbi.distributed import Dask, _partitions
from small_tables import fast_detector, mixed_table


@pytest.fixture(autouse=True)
def _small_partitions(monkeypatch):
    monkeypatch.setattr(_partitions, "MAX_PARTITION_ROWS", PARTITION_ROWS)


@pytest.fixture(scope="session")
def cluster():
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1500MiB",
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def dask_engine(cluster):
    with Dask(cluster.scheduler_address) as engine:
        yield engine


@pytest.fixture(scope="session")
def table():
    labels = np.random.default_rng(7).random(N_ROWS) < 0.02
    return mixed_table(N_ROWS).append_column("bad", pa.array(labels))


@pytest.fixture(scope="session")
def paths(table, tmp_path_factory):
    """Return the paths of the table in three layouts, each with five partitions."""
    home = tmp_path_factory.mktemp("tables")
    for format_, write in (("parquet", pq.write_table), ("csv", pyarrow.csv.write_csv)):
        (home / format_).mkdir()
        for number, first in enumerate(range(0, N_ROWS, PARTITION_ROWS)):
            partition = table.slice(first, PARTITION_ROWS)
            write(partition, home / format_ / f"{number}.{format_}")
    pq.write_table(table, home / "one", row_group_size=PARTITION_ROWS // 2)
    return {
        "parquet folder": home / "parquet",
        "csv folder": home / "csv",
        "one parquet file": home / "one",
    }


@pytest.fixture(scope="session")
def model(table):
    return fast_detector().fit(table.select(FEATURES)).model_


@pytest.fixture(scope="session")
def scores(model, table):
    return model.score(table.select(FEATURES))
