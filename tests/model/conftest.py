"""Fitted models, each fitted once."""

import functools

import pytest
from model_files import DETECTORS, FRAME
from sklearn.base import clone


@functools.cache
def fit_detector(name):
    return clone(DETECTORS[name]).fit(FRAME)


@functools.cache
def encode_detector(name):
    return fit_detector(name).model_.to_bytes()


@pytest.fixture
def get_fitted():
    """Return a function that returns a fitted detector by name; do not change it."""
    return fit_detector


@pytest.fixture
def write_model(tmp_path):
    """Return a function that writes the file of a fitted detector, and returns its path."""

    def write(name="loss"):
        path = tmp_path / f"{name}.altbi"
        path.write_bytes(encode_detector(name))
        return path

    return write
