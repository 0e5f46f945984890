"""Small fitted models and edited model files."""

import json

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import save
from torch import nn

from altbi import ALTBI, IWAE, ODIM, OutlierDetector, Schedule
from altbi.model._file import _compute_digest, encode_model, read_model
from altbi.torch import CustomBackbone, Glow, PrivacyBudget

FAST = Schedule(n0=32, T0=1, T1=2, T2=4)
N_ROWS = 120


class Centre(nn.Module):
    """The smallest network: the squared distance from a point."""

    def __init__(self, n_features):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(n_features))

    def forward(self, rows):
        return (rows - self.centre).square().sum(1)


def make_frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=N_ROWS),
            "colour": rng.choice(["red", "blue", "<b>"], N_ROWS),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(N_ROWS), "h"),
            "holed": np.where(rng.random(N_ROWS) < 0.2, np.nan, rng.random(N_ROWS)),
        }
    )


FRAME = make_frame()
BOUNDS = {
    "size": [-4, 4],
    "colour": ["red", "blue"],
    "day": ["2026-01-01", "2026-01-09"],
    "holed": [0, 1],
}
DETECTORS = {
    "distance": OutlierDetector(n_reference=50, schedule=FAST),
    "whitened": OutlierDetector(n_reference=50, schedule=FAST, whiten=True),
    "loss": ALTBI(schedule=FAST, contamination=0.05),
    "paper": ALTBI.paper(random_state=3).set_params(schedule=FAST),
    "glow": ALTBI(schedule=FAST, backbone=Glow(flow_steps=1, hidden=(4, 4))),
    "custom": ALTBI(schedule=FAST, backbone=CustomBackbone(Centre, learning_rate=0.02)),
    "private": ALTBI(
        schedule=FAST, threshold=0.0, privacy=PrivacyBudget(3.0, delta=1e-5, bounds=BOUNDS)
    ),
    "odim": ODIM(n_models=2, backbone=IWAE(n_samples=3), patience=2, max_updates=40),
}


def rewrite(path, tensors=None, **changes):
    """Write a file again with other tensors or header fields, and a matching digest."""
    old_tensors, header = read_model(path)
    path.write_bytes(encode_model(tensors or old_tensors, header | changes))


def rewrite_text(path, change):
    """Change the text of the header, with a matching digest."""
    tensors, header = read_model(path)
    text = change(json.dumps(header, sort_keys=True))
    entry = {"altbi": f"{_compute_digest(text, tensors)}\n{text}"}
    path.write_bytes(save(tensors, metadata=entry))
