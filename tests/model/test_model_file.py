"""Model files: what was saved comes back, what is broken or hostile is refused."""

import errno
import json
import os
import pickle
import re
import struct
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from altbi import ALTBI, ODIM
from altbi.detectors import load
from altbi.errors import ModelFileError, ParameterError
from altbi.model._container import _digest, read_header, read_model, write_model
from altbi.table import TextConventions, as_table
from altbi.io._atomic import atomic_files

FAST = {"T1": 5, "T2": 8, "score_by": "loss"}
REMEMBERING = FAST | {"score_by": "distance", "n_reference": 50}


def frame(n_rows=120):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "colour": rng.choice(["red", "blue", "<b>"], n_rows),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(n_rows), "h"),
            "gaps": np.where(rng.random(n_rows) < 0.2, np.nan, rng.random(n_rows)),
        }
    )


TABLE = frame()
DETECTOR = ALTBI(**FAST, contamination=0.05).fit(TABLE)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "model.altbi"
    DETECTOR.save(file)
    return file


@pytest.mark.parametrize(
    "build",
    [
        partial(ALTBI.paper, **FAST),
        partial(ALTBI.reference, **FAST),
        partial(ALTBI, backbone="glow", flow_steps=2, hidden=(8, 8), **FAST),
        partial(ODIM, n_models=2, draws=3, patience=5),
        partial(ALTBI, **REMEMBERING),
    ],
    ids=["paper", "reference", "glow", "odim", "plain"],
)
def test_a_loaded_detector_is_the_saved_one(build, tmp_path):
    saved = build(random_state=3).fit(TABLE)
    saved.save(tmp_path / "model")

    loaded = load(tmp_path / "model")

    assert type(loaded) is type(saved)

    assert loaded.get_params() == saved.get_params()
    assert np.array_equal(loaded.outlier_score(TABLE), saved.outlier_score(TABLE))
    assert np.array_equal(loaded.predict(TABLE), saved.predict(TABLE))
    ours, theirs = loaded.explain(TABLE[:9]), saved.explain(TABLE[:9])
    assert np.array_equal(ours.parts, theirs.parts)
    assert ours.expected == theirs.expected
    for fact in ("offset_", "n_features_in_", "n_rows_in_", "n_sample_", "history_"):
        assert getattr(loaded, fact) == getattr(saved, fact)
    assert loaded.feature_names_in_.tolist() == list(TABLE.columns)
    assert loaded.encoder_.describe_changes() == saved.encoder_.describe_changes()


def test_a_detector_without_names_comes_back_without_names(tmp_path):
    rows = np.random.default_rng(0).random((50, 3))
    ALTBI(**FAST, hidden=[6, 4], latent=np.int64(2)).fit(rows).save(tmp_path / "model")

    loaded = ALTBI.load(tmp_path / "model")

    assert not hasattr(loaded, "feature_names_in_")
    assert loaded.hidden == (6, 4)
    assert loaded.outlier_score(rows).shape == (50,)


def test_saving_again_gives_the_same_file(path, tmp_path):
    ALTBI.load(path).save(tmp_path / "again")

    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_numpy_seed_is_kept(tmp_path):
    ALTBI(**FAST, random_state=np.int64(7)).fit(TABLE).save(tmp_path / "model")

    assert ALTBI.load(tmp_path / "model").random_state == 7


def test_parameters_changed_after_fit_are_not_saved(tmp_path):
    detector = ALTBI(**FAST).fit(TABLE).set_params(hidden=(5,))

    with pytest.raises(ParameterError, match="changed after fit"):
        detector.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_generator_as_seed_can_be_saved(tmp_path):
    detector = ALTBI(**FAST, random_state=np.random.RandomState(1)).fit(TABLE)
    detector.save(tmp_path / "model")

    loaded = ALTBI.load(tmp_path / "model")

    assert loaded.random_state is None
    assert np.array_equal(loaded.outlier_score(TABLE), detector.outlier_score(TABLE))


def test_the_header_says_what_the_file_is(path):
    header = read_header(path)

    assert header["format_version"] == 4
    assert header["table"] == {
        "rows": 120,
        "sample": 120,
        "columns": 4,
        "frame": True,
        "named": True,
        "remembered": 0,
        "writing": {"readings": {}, "missing": []},
    }
    assert header["parameters"]["contamination"] == 0.05
    assert [column["name"] for column in header["encoder"]["columns"]] == list(TABLE.columns)


def test_a_file_that_does_not_say_how_cells_were_written_is_read(path):
    edited(path, table=TABLE_FACTS)

    assert ALTBI.load(path).conventions_ == TextConventions()


def test_how_cells_were_written_comes_back(tmp_path):
    table = as_table(TABLE)
    table.conventions = TextConventions({"a column": "numbers with a decimal comma"}, ("?", "-"))
    ALTBI(**FAST).fit(table).save(tmp_path / "model")

    assert ALTBI.load(tmp_path / "model").conventions_ == table.conventions


def test_a_missing_file_is_the_operating_system_s_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ALTBI.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        ALTBI.load(tmp_path)


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])

    with pytest.raises(ModelFileError, match="not a whole model file"):
        ALTBI.load(path)


def test_a_foreign_file_is_refused(tmp_path):
    for content in (b"a,b\n1,2\n" * 50, b"PK\x03\x04" + bytes(200), bytes(200)):
        (tmp_path / "foreign").write_bytes(content)
        with pytest.raises(ModelFileError, match="not a whole model file"):
            ALTBI.load(tmp_path / "foreign")
    save_file({"w": np.zeros(3)}, tmp_path / "weights.safetensors")
    with pytest.raises(ModelFileError, match="not a model of altbi"):
        ALTBI.load(tmp_path / "weights.safetensors")


def test_another_format_version_is_refused_with_the_version_to_use(path):
    tensors, header = read_model(path)
    write_model(path, tensors, header | {"format_version": 99})

    with pytest.raises(ModelFileError, match="format version 99, but this altbi reads version 4"):
        ALTBI.load(path)


def test_pickle_is_not_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("exploded").touch, ())

    (tmp_path / "bomb").write_bytes(pickle.dumps(Bomb()))

    with pytest.raises(ModelFileError):
        ALTBI.load(tmp_path / "bomb")
    assert not (tmp_path / "exploded").exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_single_changed_bit_is_noticed(path, place, bit):
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    changed = path.with_name("changed")
    changed.write_bytes(content)

    with pytest.raises(ModelFileError):
        ALTBI.load(changed)


TABLE_FACTS = {
    "rows": 120, "sample": 120, "remembered": 0, "columns": 4, "frame": True, "named": True,
}  # fmt: skip


def edited(path, **changes):
    """Write the file again with other header fields and a checksum that fits them."""
    tensors, header = read_model(path)
    write_model(path, tensors, header | changes)
    return header


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {}},
        {"parameters": {"n0": 128, "exec": "import os"}},
        {"parameters": None},
        {"encoder": {"columns": []}},
        {"encoder": None},
        {"offset": None},
        {"offset": "0"},
        {"history": 5},
        {"history": [{"step": 1}]},
        {"table": {"rows": 1}},
        {"table": TABLE_FACTS | {"rows": "many"}},
        {"table": TABLE_FACTS | {"rows": 5}},
        {"table": TABLE_FACTS | {"sample": -3}},
        {"table": TABLE_FACTS | {"columns": 4.0}},
        {"table": TABLE_FACTS | {"named": "yes"}},
        {"table": TABLE_FACTS | {"frame": None}},
        {"table": TABLE_FACTS | {"remembered": 3}},
        {"table": TABLE_FACTS | {"writing": 5}},
        {"table": TABLE_FACTS | {"writing": {"readings": {}}}},
        {"table": TABLE_FACTS | {"writing": {"readings": ["day"], "missing": []}}},
        {"table": TABLE_FACTS | {"writing": {"readings": {"day": 1}, "missing": []}}},
        {"table": TABLE_FACTS | {"writing": {"readings": {}, "missing": [None]}}},
        {"history": []},
        {"detector": "os.system"},
    ],
    ids=str,
)
def test_a_header_that_makes_no_sense_is_refused_in_one_sentence(path, changes):
    edited(path, **changes)

    with pytest.raises(ModelFileError, match=r"model\.altbi") as refusal:
        ALTBI.load(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        {"draws": 10**9},
        {"hidden": [10**9, 10**9]},
        {"latent": 10**9},
        {"T2": 10**12},
        {"draws": -1},
        {"network": "paper"},
        {"hidden": ["a"]},
        {"gamma": "1"},
        {"hidden": [1] * 20_000},
        {"random_state": {"x": 1}},
        {"random_state": 2**64},
    ],
    ids=str,
)
def test_parameters_that_do_not_fit_the_tensors_are_refused(path, change):
    _, header = read_model(path)
    edited(path, parameters=header["parameters"] | change)

    with pytest.raises(ModelFileError):
        ALTBI.load(path)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("width", np.zeros(3)),
        ("width", np.full(3, 5e-324)),
        ("snapshot.encoder.1.running_var", np.full((3, 32), -5, dtype=np.float32)),
        ("low", np.full(3, np.nan)),
        ("low", np.zeros(3, dtype=np.float32)),
        ("baseline", np.zeros(9)),
        ("snapshot.mean.weight", np.zeros((3, 2, 2), dtype=np.float32)),
        ("extra", np.zeros(3)),
    ],
    ids=str,
)
def test_tensors_that_do_not_fit_are_refused(path, name, tensor):
    tensors, header = read_model(path)
    write_model(path, tensors | {name: tensor}, header)

    with pytest.raises(ModelFileError, match=r"model\.altbi"):
        ALTBI.load(path)


def test_an_absent_tensor_is_noticed(path):
    tensors, header = read_model(path)
    del tensors["low"]
    write_model(path, tensors, header)

    with pytest.raises(ModelFileError, match="tensors do not fit"):
        ALTBI.load(path)


def test_a_deeply_nested_header_is_refused(path):
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    container = json.loads(content[8 : 8 + size])
    container["__metadata__"]["altbi"] = "0\n" + "[" * 100_000
    changed = json.dumps(container).encode()
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + size :])

    with pytest.raises(ModelFileError):
        ALTBI.load(path)


def rewritten(path, change):
    """Change the text of the header by hand, with a checksum that fits."""
    tensors, header = read_model(path)
    text = change(json.dumps(header, sort_keys=True))
    entry = {"altbi": f"{_digest(text, tensors)}\n{text}"}
    path.write_bytes(save(tensors, metadata=entry))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1", "true", '"0"'])
def test_a_threshold_that_is_no_finite_number_is_refused(path, value):
    rewritten(path, lambda text: re.sub(r'"offset": [^,]+', f'"offset": {value}', text))

    with pytest.raises(ModelFileError, match="threshold"):
        ALTBI.load(path)


def test_a_number_of_columns_that_does_not_agree_is_refused(path):
    _, header = read_model(path)
    edited(path, table=header["table"] | {"columns": 5})

    with pytest.raises(ModelFileError, match="columns do not agree"):
        ALTBI.load(path)


def test_wrong_parameters_are_refused_by_name(path):
    _, header = read_model(path)
    edited(path, parameters=header["parameters"] | {"rho": 7.0})

    with pytest.raises(ModelFileError, match=r"rho=7\.0"):
        ALTBI.load(path)


def test_tensors_under_exchanged_names_are_noticed(path):
    content = path.read_bytes()
    exchanged = content.replace(b'"low"', b'"xxx"').replace(b'"width"', b'"low__"')
    assert exchanged != content
    path.write_bytes(exchanged)

    with pytest.raises(ModelFileError, match="checksum"):
        read_model(path)


def test_a_file_has_the_permissions_of_any_new_file(path, tmp_path):
    (tmp_path / "other").touch()

    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_old_file_stays_until_the_new_one_is_whole(path, monkeypatch):
    before = path.read_bytes()

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        ALTBI(**FAST).fit(np.eye(20)).save(path)

    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["model.altbi"]


def test_a_failed_save_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        ALTBI(**FAST).fit(np.eye(20)).save(path)

    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["model.altbi"]


def test_saving_onto_a_folder_says_so(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        DETECTOR.save(tmp_path)


def test_saving_into_a_missing_folder_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not exist: '.*no'"):
        DETECTOR.save(tmp_path / "no" / "model")


def test_folders_made_for_nothing_are_taken_away(tmp_path):
    (tmp_path / "old").mkdir()

    def fail():
        with atomic_files(tmp_path / "old" / "new" / "er") as draft:
            draft("a.txt").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fsync", "pathlib.Path.replace"])
def test_a_file_that_cannot_be_written_is_told_by_its_own_name(tmp_path, monkeypatch, step):
    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted", ".name.x.part")

    monkeypatch.setattr(step, refuse)

    with pytest.raises(PermissionError) as told, atomic_files(tmp_path) as draft:
        draft("name").write_text("all")

    assert told.value.filename == str(tmp_path / "name")
    assert list(tmp_path.iterdir()) == []


def test_all_files_appear_together_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")

    with atomic_files(tmp_path) as draft:
        draft("a").write_text("new a")
        draft("b").write_text("new b")
        assert (tmp_path / "a").read_text() == "old"
        assert not (tmp_path / "b").exists()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a": "new a",
        "b": "new b",
    }


def test_a_pipe_is_never_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)

    for name in ("pipe", "link"):
        with pytest.raises(FileExistsError, match="a device, a pipe or a socket"):
            DETECTOR.save(tmp_path / name)

    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "model.altbi"
    target.write_text("old")
    link = tmp_path / "latest.altbi"
    link.symlink_to(target)

    DETECTOR.save(link)

    assert link.is_symlink()
    assert ALTBI.load(target).offset_ == DETECTOR.offset_
    assert [path.name for path in target.parent.iterdir()] == ["model.altbi"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("mix.sign", 0.0), ("mix.sign", 3e38), ("mix.permutation", 0.0), ("mix.permutation", 0.5)],
)
def test_a_flow_whose_mix_is_none_is_refused(tmp_path, name, value):
    path = tmp_path / "flow"
    ALTBI(backbone="glow", flow_steps=1, hidden=(4, 4), **FAST).fit(TABLE).save(path)
    tensors, header = read_model(path)
    (whole,) = (key for key in tensors if key.endswith(name))
    tensors[whole] = np.full_like(tensors[whole], value)
    write_model(path, tensors, header)

    with pytest.raises(ModelFileError, match="belongs to no mix"):
        ALTBI.load(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"step": "x", "batch_size": 1, "kept": 1.0, "loss": 1.0},
        {"step": 0, "batch_size": [], "kept": 1.0, "loss": 1.0},
        {"step": 0, "batch_size": 1, "kept": None, "loss": 1.0},
        {"step": 0, "batch_size": 1, "kept": 1.0, "loss": "y"},
    ],
)
def test_a_history_that_makes_no_sense_is_refused(path, entry):
    tensors, header = read_model(path)
    header["history"][3] = entry
    write_model(path, tensors, header)

    with pytest.raises(ModelFileError, match="history makes no sense"):
        ALTBI.load(path)


# Files that hold rows


@pytest.fixture
def remembering(tmp_path):
    file = tmp_path / "remembering.altbi"
    ALTBI(**REMEMBERING).fit(TABLE).save(file)
    return file


def test_a_file_of_the_plain_detector_holds_rows_and_no_network(remembering):
    tensors, header = read_model(remembering)

    assert tensors.keys() == {"memory"}
    assert tensors["memory"].shape == (50, ALTBI.load(remembering).encoder_.n_features_encoded)
    assert header["table"]["remembered"] == 50


def test_a_file_of_losses_holds_no_rows(path):
    tensors, header = read_model(path)

    assert "memory" not in tensors
    assert header["table"]["remembered"] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:1],
        lambda rows: rows[:, :-1],
        lambda rows: np.vstack([rows, rows[:1]]),
        lambda rows: rows.astype(np.float64),
        lambda rows: np.where(rows == rows[0, 0], np.nan, rows),
        lambda rows: rows[0],
        lambda rows: rows[None],
        lambda rows: rows[0, 0],
    ],
    ids=["one row", "narrow", "more than it may hold", "double", "nan", "flat", "deep", "scalar"],
)
def test_a_memory_that_does_not_fit_is_refused(remembering, change):
    tensors, header = read_model(remembering)
    memory = np.asarray(change(tensors["memory"]))
    header["table"]["remembered"] = len(np.atleast_1d(memory))
    write_model(remembering, {"memory": memory}, header)

    with pytest.raises(ModelFileError):
        ALTBI.load(remembering)


def test_a_memory_beside_snapshots_is_refused(path, remembering):
    rows, _ = read_model(remembering)
    tensors, header = read_model(path)
    write_model(path, tensors | rows, header)

    with pytest.raises(ModelFileError, match="do not fit its parameters"):
        ALTBI.load(path)


def test_other_neighbours_than_at_fit_are_not_saved(tmp_path):
    detector = ALTBI(**REMEMBERING).fit(TABLE).set_params(n_groups=2)

    with pytest.raises(ParameterError, match="changed after fit"):
        detector.save(tmp_path / "model")


def test_a_whitening_is_stored_and_scores_are_the_same(tmp_path):
    rows = np.random.default_rng(0).normal(size=(120, 5))
    detector = ALTBI(**REMEMBERING, whiten=True).fit(rows)
    detector.save(tmp_path / "model.altbi")
    tensors, header = read_model(tmp_path / "model.altbi")

    loaded = ALTBI.load(tmp_path / "model.altbi")

    assert tensors["whitening"].shape == (5, 5)
    assert np.array_equal(loaded.outlier_score(rows), detector.outlier_score(rows))
    assert not np.array_equal(
        ALTBI(**REMEMBERING, whiten=False).fit(rows).outlier_score(rows),
        detector.outlier_score(rows),
    )
    del tensors["whitening"]
    write_model(tmp_path / "model.altbi", tensors, header)
    with pytest.raises(ModelFileError, match="do not fit its parameters"):
        ALTBI.load(tmp_path / "model.altbi")
