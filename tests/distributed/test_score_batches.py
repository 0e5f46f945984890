import pickle
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from partition_tables import FEATURES, N_ROWS

from altbi.distributed import SCHEMA, score_batches
from altbi.errors import ParameterError, TableError, TableWarning
from small_tables import fast_detector


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.altbi")
    return tmp_path / "model.altbi"


@pytest.mark.parametrize("size", [700, 100_000])
@pytest.mark.parametrize("convert", [str, Path, Path.read_bytes], ids=["str", "path", "bytes"])
def test_batches_have_the_scores_of_the_model(path, table, scores, size, convert):
    function = pickle.loads(pickle.dumps(score_batches(convert(path), keep=["invoice"])))

    output = pa.Table.from_batches(function(iter(table.to_batches(max_chunksize=size))))

    assert output.schema.names == ["invoice", "score", "outlier"]
    assert output["invoice"].equals(table["invoice"])
    assert (output["score"].to_numpy() == scores).all()
    assert 0 < pa.compute.sum(output["outlier"]).as_py() < N_ROWS


def test_function_with_a_path_is_small(path):
    assert len(pickle.dumps(score_batches(path))) < 1000


def test_tables_and_empty_batches_are_scored(path, table, scores):
    function = score_batches(path)
    features = table.select(FEATURES)

    assert (function.table(features)["score"].to_numpy() == scores).all()
    chunks = pa.concat_tables([features.slice(0, 100), features.slice(100)])
    assert (function.table(chunks)["score"].to_numpy() == scores).all()
    empty = function.table(features.slice(0, 0))
    assert (len(empty), empty.schema.names) == (0, ["score", "outlier"])


def test_model_of_array_selects_columns_by_position(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    detector = fast_detector().fit(X)
    detector.save(tmp_path / "model.altbi")
    batch = pa.record_batch({"id": range(200), "a": X[:, 0], "b": X[:, 1]})

    (output,) = score_batches(tmp_path / "model.altbi", keep=["id"])([batch])

    assert (output["score"].to_numpy() == detector.outlier_score(X)).all()


def test_other_columns_are_errors(path):
    with pytest.raises(TableError, match="Select the columns of the model"):
        list(score_batches(path)([pa.record_batch({"size": [1.0]})]))
    with pytest.raises(ParameterError, match="Rename the column"):
        score_batches(path, keep=["score"])


def test_drift_is_a_warning(path, table):
    unknown = table.select(FEATURES).slice(0, 200)
    unknown = unknown.set_column(2, "colour", pa.array(["new"] * 200))

    with pytest.warns(TableWarning, match="'colour'"):
        list(score_batches(path)(unknown.to_batches()))


def test_changed_model_file_is_loaded_again(path, table, scores):
    features = table.select(FEATURES)
    function = score_batches(path)
    before = function.table(features)["score"].to_pylist()

    fast_detector(random_state=5).fit(features).save(path)

    assert before == scores.tolist()
    assert function.table(features)["score"].to_pylist() != before


def test_spark_maps_the_function(path, table, scores, monkeypatch):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        frame = spark.createDataFrame(table.to_pandas()).repartition(3)
        function = score_batches(path, keep=["invoice"])
        rows = frame.mapInArrow(function, f"invoice string, {SCHEMA}").collect()
    finally:
        spark.stop()
    expected = dict(zip(table["invoice"].to_pylist(), scores.tolist(), strict=True))
    assert {row["invoice"]: row["score"] for row in rows} == expected


def test_ray_maps_the_function(path, table, scores, tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    folder = tmp_path / "table"
    folder.mkdir()
    for first in range(0, N_ROWS, 2500):
        pq.write_table(table.slice(first, 2500), folder / f"{first:05}.parquet")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        function = score_batches(path, keep=["invoice"])
        source = ray.data.read_parquet(str(folder))
        rows = source.map_batches(function.table, batch_format="pyarrow").take_all()
    finally:
        ray.shutdown()
    expected = dict(zip(table["invoice"].to_pylist(), scores.tolist(), strict=True))
    assert {row["invoice"]: row["score"] for row in rows} == expected
