"""Where the model is trained."""

import numpy as np
import pytest
import torch

from altbi import ALTBI
from altbi.errors import ParameterError
from altbi.networks._torch_modes import resolve_device

X = np.random.default_rng(0).normal(size=(60, 3))
BRIEF = {"T0": 1, "T1": 1, "T2": 2}


def test_a_device_is_chosen_or_refused_by_name(monkeypatch):
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")
    for name in ("nonsense", "cuda:77"):
        with pytest.raises(ParameterError, match=f"device='{name}', but torch cannot use it here"):
            resolve_device(name)


def test_a_device_that_is_not_there_is_named_at_fit():
    with pytest.raises(ParameterError, match="device='xpu:9', but torch cannot use it here"):
        ALTBI(**BRIEF, device="xpu:9").fit(X)
    with pytest.raises(ParameterError, match="device=None, but expected 'auto'"):
        ALTBI(**BRIEF, device=None).fit(X)


def test_auto_is_the_processor_where_there_is_nothing_else():
    scores = [ALTBI(**BRIEF, device=d).fit(X).outlier_score(X) for d in ("auto", "cpu")]

    assert np.array_equal(*scores)
