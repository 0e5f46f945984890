import numpy as np
import pytest
import torch

from altbi import ALTBI, Schedule
from altbi.errors import ParameterError
from altbi.torch import CustomBackbone, Glow

X = np.random.default_rng(0).normal(size=(60, 3))
BRIEF = Schedule(T0=1, T1=1, T2=2, updates=1)


def build_detector(**parameters):
    return ALTBI(
        backbone=Glow(flow_steps=1, hidden=(4, 4)).set_params(**parameters), schedule=BRIEF
    )


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"flow_steps": 0}, "Glow: flow_steps=0"),
        ({"flow_steps": 101}, "a whole number from 1 to 100"),
        ({"hidden": (8,)}, "a tuple of two layer sizes"),
        ({"hidden": "auto"}, "a tuple of two layer sizes"),
        ({"learning_rate": 0}, "a number above 0"),
        ({"weight_decay": -1.0}, "a number of at least 0"),
        ({"device": None}, "Glow: device=None, but expected 'auto'"),
        ({"device": "xpu:9"}, "device='xpu:9': torch cannot use this device"),
    ],
)
def test_invalid_glow_parameter_raises(invalid, message):
    with pytest.raises(ParameterError, match=message):
        build_detector(**invalid).fit(X)


def test_auto_device_without_gpu_is_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    scores = [build_detector(device=device).fit(X).outlier_score(X) for device in ("auto", "cpu")]

    assert np.array_equal(*scores)


def test_custom_backbone_needs_a_callable():
    with pytest.raises(ParameterError, match="CustomBackbone: module=3"):
        CustomBackbone(3).validate()
