import json
import math
import pickle
import struct
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import rewrite, rewrite_text
from safetensors.numpy import save_file

from altbi.errors import ModelFileError
from altbi.model import _file
from altbi.model._file import (
    FORMAT_VERSION,
    encode_model,
    read_header,
    read_header_text,
    read_model,
)


@pytest.fixture(scope="module")
def content():
    tensors = {"low": np.arange(3.0), "width": np.ones((2, 2), dtype=np.float32)}
    return encode_model(tensors, {"altbi_version": "1.2", "name": "é"})


@pytest.fixture
def path(tmp_path, content):
    path = tmp_path / "model.altbi"
    path.write_bytes(content)
    return path


def test_header_and_tensors_are_restored(path):
    tensors, header = read_model(path)

    assert header == {
        "format": "altbi model",
        "format_version": FORMAT_VERSION,
        "altbi_version": "1.2",
        "name": "é",
    }
    assert read_header(path) == header
    assert tensors["low"].tolist() == [0.0, 1.0, 2.0]
    assert tensors["width"].dtype == np.float32
    assert encode_model(tensors, header) == path.read_bytes()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_cannot_be_saved(value):
    with pytest.raises(ModelFileError, match="a number that is not finite"):
        encode_model({}, {"threshold": value})


def test_unreadable_path_raises_error_of_operating_system(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_model(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        read_model(tmp_path)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_truncated_file_is_rejected(path, content, share):
    path.write_bytes(content[: int(share * len(content))])

    with pytest.raises(ModelFileError, match=f"^{path}: not a complete model file"):
        read_model(path)


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2\n" * 50, b"PK\x03\x04" + bytes(200), bytes(200)], ids=["csv", "zip", "0"]
)
def test_file_of_other_format_is_rejected(path, content):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=f"^{path}: not a complete model file"):
        read_model(path)


def test_safetensors_file_of_other_program_is_rejected(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"w": np.zeros(3)}, path)
    with pytest.raises(ModelFileError, match=f"^{path}: a safetensors file, but not a model"):
        read_model(path)


def test_other_format_version_names_the_writer(path):
    rewrite(path, format_version=99)

    message = f"format version 99, but this altbi reads version {FORMAT_VERSION}. .*'1.2'"
    with pytest.raises(ModelFileError, match=message):
        read_model(path)


def test_pickle_is_not_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("exploded").touch, ())

    (tmp_path / "bomb").write_bytes(pickle.dumps(Bomb()))

    with pytest.raises(ModelFileError):
        read_model(tmp_path / "bomb")
    assert not (tmp_path / "exploded").exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_single_changed_bit_is_detected(path, content, position, bit):
    changed = bytearray(content)
    changed[int(position * len(content))] ^= 1 << bit
    path.write_bytes(changed)

    with pytest.raises(ModelFileError):
        read_model(path)


def test_changed_tensor_shapes_are_detected(path, content):
    reshaped = content.replace(b'"shape":[2,2]', b'"shape":[4,1]')
    assert reshaped != content
    path.write_bytes(reshaped)

    with pytest.raises(ModelFileError, match="does not match its checksum"):
        read_model(path)


def test_exchanged_tensor_names_are_detected(path, content):
    exchanged = content.replace(b'"low"', b'"xxx"').replace(b'"width"', b'"low__"')
    assert exchanged != content
    path.write_bytes(exchanged)

    with pytest.raises(ModelFileError, match="does not match its checksum"):
        read_model(path)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", '"\\ud800"', "01"])
def test_header_must_be_strict_json(path, value):
    rewrite_text(path, lambda text: text.replace('"1.2"', value))

    with pytest.raises(ModelFileError, match=f"^{path}: the header is not valid JSON"):
        read_header(path)


def test_deeply_nested_header_is_rejected(path, content):
    size = struct.unpack("<Q", content[:8])[0]
    container = json.loads(content[8 : 8 + size])
    container["__metadata__"]["altbi"] = "0\n" + "[" * 100_000
    changed = json.dumps(container).encode()
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + size :])

    with pytest.raises(ModelFileError, match="not valid JSON"):
        read_model(path)


def test_large_headers_are_refused_before_parsing(path, content, monkeypatch):
    tensors, header = read_model(path)
    size = int.from_bytes(content[:8], "little")
    monkeypatch.setattr(_file, "MAX_HEADER_BYTES", size - 1)
    message = f"^{path}: its header has {size} bytes, but .* at most {size - 1}"
    with (
        mock.patch("safetensors.safe_open", side_effect=AssertionError),
        pytest.raises(ModelFileError, match=message),
    ):
        read_header(path)
    with pytest.raises(ModelFileError, match=f"cannot be saved: .* take {size} bytes"):
        encode_model(tensors, header)
    monkeypatch.setattr(_file, "MAX_HEADER_BYTES", size)
    assert read_header(path)["name"] == "é"


def test_many_tensors_are_refused_before_reading(path, monkeypatch):
    monkeypatch.setattr(_file, "MAX_TENSORS", 1)
    with (
        mock.patch.object(_file, "_read_tensor", side_effect=AssertionError),
        pytest.raises(ModelFileError, match=f"^{path}: it holds 2 tensors, but .* at most 1"),
    ):
        read_model(path)


def test_other_fields_are_decoded_only_once(path):
    """The format is known from three fields; a header may have 100,000 columns."""
    text = read_header_text(path)
    assert json.loads(text)["name"] == "é"
    rewrite_text(path, lambda text: text.replace('"name": "', '"name": "\\ud800'))
    with pytest.raises(ModelFileError, match="not valid JSON"):
        read_header(path)
