import sys

import numpy as np
import pytest
from model_files import DETECTORS, FAST, FRAME, N_ROWS, Centre, rewrite, rewrite_text

import altbi
from altbi import ALTBI, IWAE, ODIM, OutlierDetector
from altbi.errors import ModelFileError
from altbi.model._file import read_header, read_model
from altbi.table import TextConventions, as_table

CLASSES = {"distance": OutlierDetector, "whitened": OutlierDetector, "odim": ODIM}


def load_estimator(name, path):
    options = {"backbone": Centre} if name == "custom" else {}
    return CLASSES.get(name, ALTBI).load(path, **options)


# Saving and loading


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_loaded_detector_equals_saved_one(get_fitted, write_model, name):
    saved = get_fitted(name)
    loaded = load_estimator(name, write_model(name))

    if name != "private":  # bounds come back as tuples
        assert repr(loaded) == repr(saved)
    assert np.array_equal(loaded.outlier_score(FRAME), saved.outlier_score(FRAME))
    assert np.array_equal(loaded.predict(FRAME), saved.predict(FRAME))
    ours, theirs = loaded.explain(FRAME[:9]), saved.explain(FRAME[:9])
    assert np.array_equal(ours.contributions, theirs.contributions)
    assert ours.expected == theirs.expected
    for attribute in ("training_table", "threshold", "history", "ledger"):
        assert getattr(loaded.model_, attribute) == getattr(saved.model_, attribute)
    assert loaded.feature_names_in_.tolist() == list(FRAME.columns)
    assert loaded.encoder_.columns == saved.encoder_.columns


@pytest.mark.parametrize("name", [name for name in DETECTORS if name != "custom"])
def test_loaded_model_is_saved_to_same_bytes(write_model, name):
    path = write_model(name)
    assert altbi.load(path).to_bytes() == path.read_bytes()


def test_whitening_changes_scores(get_fitted):
    whitened, plain = (get_fitted(name).outlier_score(FRAME) for name in ("whitened", "distance"))
    assert not np.array_equal(whitened, plain)


def test_custom_model_needs_its_network(write_model):
    path = write_model("custom")
    with pytest.raises(ModelFileError, match=f"^{path}: .*'Centre'.*Pass it"):
        altbi.load(path)
    with pytest.raises(ModelFileError, match=f"^{path}: "):
        altbi.load(path, backbone=lambda n_features: Centre(n_features + 1))
    with pytest.raises(ModelFileError, match="not fitted with a network of your own"):
        altbi.load(write_model("loss"), backbone=Centre)


def test_model_without_names_and_numpy_parameters_is_restored(tmp_path):
    rows = np.random.default_rng(0).random((50, 3))
    backbone = IWAE(hidden=[6, 4], latent=np.int64(2))
    seed = np.random.RandomState(1)
    saved = ALTBI(schedule=FAST, backbone=backbone, max_rows=np.int64(99), random_state=seed)
    saved.fit(rows).save(tmp_path / "model")

    loaded = ALTBI.load(tmp_path / "model")

    assert not hasattr(loaded, "feature_names_in_")
    assert loaded.backbone == IWAE(hidden=(6, 4), latent=2)
    assert loaded.max_rows == 99
    assert loaded.random_state is None
    assert np.array_equal(loaded.outlier_score(rows), saved.outlier_score(rows))


def test_text_conventions_are_restored(tmp_path):
    table = as_table(FRAME)
    table.conventions = TextConventions({"a column": "numbers with a decimal comma"}, ("?", "-"))
    ALTBI(schedule=FAST).fit(table).save(tmp_path / "model")

    assert altbi.load(tmp_path / "model").training_table.conventions == table.conventions


def test_header_describes_the_model(write_model):
    header = read_header(write_model("loss"))

    assert header["detector"] == "ALTBI"
    assert header["n_reference"] == 0
    assert header["table"] == {
        "n_rows": N_ROWS,
        "n_sample": N_ROWS,
        "is_frame": True,
        "has_names": True,
        "conventions": {"text_formats": {}, "missing": []},
    }
    assert header["parameters"]["contamination"] == 0.05
    assert header["parameters"]["schedule"]["object"] == "Schedule"
    assert [column["name"] for column in header["encoder"]["columns"]] == list(FRAME.columns)


@pytest.mark.parametrize("name", ["distance", "loss", "private"])
def test_only_reference_rows_are_stored(get_fitted, write_model, name):
    tensors, header = read_model(write_model(name))

    model = get_fitted(name).model_
    if name == "distance":
        parts = {"covariance.center", "covariance.whitening", "units", "spreads"}
        rarity = {"rarity.low", "rarity.high", "rarity.rarities"}
        assert tensors.keys() == {"reference"} | parts | rarity
        assert tensors["reference"].shape == (50, model.encoder.n_features_encoded)
        assert header["n_reference"] == 50
    else:
        assert not {"reference", "whitening"} & tensors.keys()
        assert header["n_reference"] == 0


# Hostile headers


def assert_rejected(path, message="."):
    with pytest.raises(ModelFileError, match=message) as caught:
        altbi.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(path))


TABLE = {
    "n_rows": N_ROWS,
    "n_sample": N_ROWS,
    "is_frame": True,
    "has_names": True,
    "conventions": {"text_formats": {}, "missing": []},
}
STEP = {"step": 0, "batch_size": 32, "kept": 1.0, "loss": 1.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": None},
        {"parameters": {"schedule": None, "exec": "import os"}},
        {"encoder": {"columns": []}},
        {"encoder": None},
        {"threshold": None},
        {"threshold": "0"},
        {"threshold": True},
        {"history": 5},
        {"history": []},
        {"history": [{"step": 1}]},
        {"history": [STEP]},
        {"history": [STEP | {"step": "x"}]},
        {"history": [STEP | {"batch_size": []}]},
        {"history": [STEP | {"kept": None}]},
        {"history": [STEP | {"loss": "y"}]},
        {"history": [STEP | {"loss": None}]},
        {"table": {"n_rows": 1}},
        {"table": TABLE | {"n_rows": "many"}},
        {"table": TABLE | {"n_rows": 5}},
        {"table": TABLE | {"n_sample": -3}},
        {"table": TABLE | {"n_sample": 4.5}},
        {"table": TABLE | {"has_names": "yes"}},
        {"table": TABLE | {"is_frame": None}},
        {"table": TABLE | {"extra": 1}},
        {"table": TABLE | {"conventions": 5}},
        {"table": TABLE | {"conventions": {"text_formats": ["day"], "missing": []}}},
        {"table": TABLE | {"conventions": {"text_formats": {"day": 1}, "missing": []}}},
        {"table": TABLE | {"conventions": {"text_formats": {}, "missing": [None]}}},
        {"n_reference": 3},
        {"n_reference": -1},
        {"n_reference": "48"},
        {"detector": "os.system"},
        {"detector": "x" * 10_000},
        {"format_version": "x" * 10_000},
        {"altbi_version": "x" * 10_000, "format_version": 1},
        {"detector": "ODIM"},
        {"privacy": {"epsilon": 1.0}},
        {"extra": 1},
    ],
    ids=lambda changes: str(changes)[:80],
)
def test_invalid_header_is_rejected_in_one_sentence(write_model, changes):
    path = write_model("loss")
    rewrite(path, **changes)
    assert_rejected(path)


def test_absent_header_field_is_rejected(write_model):
    path = write_model("loss")
    rewrite_text(path, lambda text: text.replace('"threshold"', '"offset"', 1))
    assert_rejected(path, "threshold|offset")


@pytest.mark.parametrize(
    ("owner", "change"),
    [
        ("backbone", {"n_samples": 10**9}),
        ("backbone", {"n_samples": -1}),
        ("backbone", {"hidden": [10**9, 10**9]}),
        ("backbone", {"hidden": ["a"]}),
        ("backbone", {"hidden": [1] * 20_000}),
        ("backbone", {"latent": 10**9}),
        ("backbone", {"network": "reference"}),
        ("backbone", {"object": "os.system"}),
        ("backbone", {"object": "Schedule"}),
        ("backbone", {"object": ["IWAE"]}),
        ("backbone", {"extra": 1}),
        ("schedule", {"T2": 10**12}),
        ("schedule", {"gamma": "1"}),
        ("schedule", {"rho": 7.0}),
        (None, {"random_state": {"x": 1}}),
        (None, {"random_state": 2**64}),
        (None, {"contamination": 0.9}),
        (None, {"contamination": "x" * 10_000}),
        (None, {"backbone": "x" * 10_000}),
        ("backbone", {"object": "x" * 10_000}),
        (None, {"backbone": "posix.system"}),
        (None, {"backbone": {"object": "Schedule"}}),
        (None, {"privacy": {"object": "IWAE"}}),
        (None, {"schedule": {"object": "IWAE"}}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_parameters_are_rejected(write_model, owner, change):
    path = write_model("paper")
    parameters = read_header(path)["parameters"]
    if owner is not None:
        change = {owner: parameters[owner] | change}
    rewrite(path, parameters=parameters | change)
    assert_rejected(path)


# Hostile tensors


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("width", np.zeros_like),
        ("width", lambda array: np.full_like(array, 5e-324)),
        ("snapshot.encoder.1.running_var", lambda array: np.full_like(array, -5)),
        ("low", lambda array: np.full_like(array, np.nan)),
        ("low", lambda array: array.astype(np.float32)),
        ("baseline", lambda array: np.zeros(9)),
        ("snapshot.mean.weight", lambda array: array[:, :2, :2]),
    ],
)
def test_invalid_tensors_are_rejected(write_model, name, change):
    path = write_model("loss")
    tensors, _ = read_model(path)
    rewrite(path, tensors | {name: change(tensors[name])})
    assert_rejected(path, f"'{name}'|tensors do not fit")


@pytest.mark.parametrize("name", ["loss", "distance", "whitened"])
def test_absent_or_extra_tensors_are_rejected(write_model, name):
    path = write_model(name)
    tensors, _ = read_model(path)
    removed = "whitening" if name == "whitened" else next(iter(tensors))
    rewrite(
        path,
        {key: tensor for key, tensor in tensors.items() if key != removed} or {"x": np.zeros(3)},
    )
    assert_rejected(path)
    path = write_model(name)
    rewrite(path, tensors | {"extra": np.zeros(3)})
    assert_rejected(path, "tensors do not fit its parameters")


def test_reference_rows_in_loss_model_are_rejected(write_model):
    reference, _ = read_model(write_model("distance"))
    path = write_model("loss")
    tensors, _ = read_model(path)
    rewrite(path, tensors | reference)
    assert_rejected(path, "tensors do not fit its parameters")


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:1],
        lambda rows: rows[:0],
        lambda rows: rows[:, :-1],
        lambda rows: np.vstack([rows, rows[:1]]),
        lambda rows: rows.astype(np.float64),
        lambda rows: np.where(rows == rows[0, 0], np.nan, rows),
        lambda rows: rows[0],
        lambda rows: rows[None],
        lambda rows: rows[0, 0],
    ],
    ids=["one row", "no row", "narrow", "too many rows", "float64", "nan", "1d", "3d", "scalar"],
)
def test_invalid_reference_rows_are_rejected(write_model, change):
    path = write_model("distance")
    tensors, _ = read_model(path)
    rewrite(path, tensors)
    altbi.load(path)
    rows = np.asarray(change(tensors["reference"]))
    rewrite(path, tensors | {"reference": rows}, n_reference=len(np.atleast_1d(rows)))
    assert_rejected(path)


@pytest.mark.parametrize("count", [7, 0, 49])
def test_wrong_number_of_reference_rows_is_rejected(write_model, count):
    path = write_model("distance")
    rewrite(path, n_reference=count)
    assert_rejected(path, "number of reference rows is wrong")


@pytest.mark.parametrize(
    ("name", "value"),
    [("mix.sign", 0.0), ("mix.sign", 3e38), ("mix.permutation", 0.0), ("mix.permutation", 0.5)],
)
def test_flow_without_rotation_is_rejected(write_model, name, value):
    path = write_model("glow")
    tensors, _ = read_model(path)
    (key,) = (key for key in tensors if key.endswith(name))
    rewrite(path, tensors | {key: np.full_like(tensors[key], value)})
    assert_rejected(path, "is not a rotation")


# Privacy


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["privacy"].update(epsilon_rdp=0.1, epsilon_prv=0.1),
        lambda header: header["privacy"].update(epsilon=2.0),
        lambda header: header["privacy"].update(clip=2.0),
        lambda header: header["privacy"].update(truncation="previous"),
        lambda header: header["privacy"]["releases"][0].update(times=10**400),
        lambda header: header.update(privacy=None),
        lambda header: header["history"][0].update(loss=1.0),
        lambda header: header["parameters"].update(privacy=None),
        lambda header: header["parameters"].update(privacy={"object": "IWAE"}),
    ],
    ids=[
        "cheaper",
        "epsilon",
        "clip",
        "rule",
        "times",
        "no ledger",
        "a loss",
        "no budget",
        "network",
    ],
)
def test_false_privacy_ledger_is_rejected(write_model, change):
    path = write_model("private")
    header = read_header(path)
    change(header)
    rewrite(path, **header)
    assert_rejected(path)


# Numbers that give scores which are not finite


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("distance", "reference", 3.4e38),
        ("distance", "reference", -3500.0),
        ("distance", "covariance.center", 4000.0),
        ("distance", "covariance.whitening", 1e200),
        ("distance", "rarity.low", -1e308),
        ("distance", "rarity.high", 1e308),
        ("distance", "rarity.rarities", 1e308),
        ("distance", "units", 1e200),
        ("distance", "spreads", 1e200),
        ("loss", "low", -1e308),
        ("loss", "low", 1e31),
        ("loss", "width", 1e308),
        ("loss", "baseline", 1e308),
        ("loss", "usual", -1e308),
        ("loss", "neutral", 1e10),
        ("glow", "landmarks", 3e38),
    ],
)
def test_values_that_no_fit_produces_are_rejected(write_model, model, name, value):
    path = write_model(model)
    tensors, _ = read_model(path)
    tensors[name].flat[0] = value
    rewrite(path, tensors)
    assert_rejected(path, f"'{name}' has a value that no fit produces")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("rarity.rarities", -1.0, "0"),
        ("units", 0.0, "1e-09"),
        ("units", 1e-300, "1e-09"),
        ("spreads", -1.0, "1e-09"),
        ("spreads", 0.0, "1e-09"),
    ],
)
def test_values_below_those_of_fits_are_rejected(write_model, name, value, least):
    path = write_model("distance")
    tensors, _ = read_model(path)
    tensors[name].flat[0] = value
    rewrite(path, tensors)
    assert_rejected(path, f"'{name}' is not at least {least}")


@pytest.mark.parametrize("value", [1e-40, 5e-324, 1e-300])
def test_whitening_that_cannot_be_inverted_is_rejected(write_model, value):
    path = write_model("distance")
    tensors, _ = read_model(path)
    tensors["covariance.whitening"][:, 1] = value
    rewrite(path, tensors)
    assert_rejected(path, "'covariance.whitening' has a value that no fit produces")


def test_bins_that_end_before_they_begin_are_rejected(write_model):
    path = write_model("distance")
    tensors, _ = read_model(path)
    tensors["rarity.low"][0] = tensors["rarity.high"][0] + 1
    rewrite(path, tensors)
    assert_rejected(path, "'rarity.high' is below 'rarity.low'")


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("loss", "snapshot.encoder.1.running_mean", 3e38),
        ("loss", "snapshot.scoring_noise", 1e30),
        ("odim", "snapshot.latent_mean.weight", 3e38),
        ("private", "snapshot.encoder.0.weight", 3e38),
        ("paper", "snapshot.decoder.0.weight", 3e38),
        ("glow", "snapshot.levels.0.steps.0.norm.log_scale", -3e38),
    ],
)
def test_networks_without_finite_losses_are_rejected(write_model, model, name, value):
    path = write_model(model)
    tensors, _ = read_model(path)
    tensors[name] = np.full_like(tensors[name], value)
    rewrite(path, tensors)
    assert_rejected(path, "its scores of typical rows are not finite")


@pytest.mark.parametrize("model", ["distance", "whitened"])
def test_largest_reference_rows_give_finite_scores(write_model, model):
    path = write_model(model)
    tensors, _ = read_model(path)
    signs = np.where(np.arange(tensors["reference"].size) % 3, 3460, -3460)
    tensors["reference"] = signs.reshape(tensors["reference"].shape).astype(np.float32)
    if model == "whitened":
        tensors["whitening"] = np.sign(tensors["whitening"]) * np.float32(3.4e38)
    rewrite(path, tensors)

    explanation = altbi.load(path).explain(FRAME[:9])

    assert np.isfinite(explanation.score).all()
    assert np.isfinite(explanation.contributions).all()
    assert np.isfinite(explanation.z_scores).all()


EXTREMES = [1.7976931348623157e308, -1.7976931348623157e308, 1e300, 5e-324, 0.0, np.nan]


@pytest.mark.parametrize("model", ["distance", "whitened", "loss"])
@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"scales": [sys.float_info.min]}),
        (0, {"scales": [1.7e308]}),
        (3, {"scales": [1e-300, 0.001]}),
        (0, {"low": -1.7e308, "median": 0.0, "high": 1.7e308}),
        (0, {"low": 0.0, "median": 0.0, "high": 5e-324}),
        (0, {"kind": "boolean", "role": None, "low": 0.0, "median": 0.0, "high": 1.7e308}),
        (3, {"fill_value": 1.0, "n_missing": 2**53}),
        (0, {"low": 0.0, "median": 0.0, "high": 0.0}),
    ],
    ids=str,
)
def test_extreme_encoders_give_finite_scores(write_model, model, number, change):
    """The numbers are valid, so all rows must have finite scores and explanations."""
    path = write_model(model)
    header = read_header(path)
    header["encoder"]["columns"][number].update(change)
    rewrite(path, **header)
    if change.get("kind") == "boolean" and model != "loss":
        assert_rejected(path, "do not fit")  # booleans have no covariance
        return

    loaded = altbi.load(path)

    rows = FRAME.iloc[: len(EXTREMES)].assign(size=EXTREMES, holed=EXTREMES[::-1])
    assert np.isfinite(loaded.score(rows)).all()
    explanation = loaded.explain(rows)
    assert np.isfinite(explanation.contributions).all()
    assert np.isfinite(explanation.z_scores).all()
