"""Custom networks: training, scores of single rows, and errors for unsuitable modules."""

import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import zuko
from sklearn.base import clone
from torch import nn

from altbi import ALTBI, Schedule
from altbi.encoding import TableEncoder
from altbi.errors import ModelFileError, ParameterError
from altbi.model._file import encode_model, read_model
from altbi.table import as_table
from altbi.torch import CustomBackbone
from altbi.torch._custom import backbone_label

BRIEF = Schedule(T0=1, T1=2, T2=4, updates=1)


def mixed_table(n_rows=300):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "weight": rng.gamma(2.0, size=n_rows),
            "colour": rng.choice(["red", "blue", "green"], n_rows),
            "incomplete": np.where(rng.random(n_rows) < 0.2, np.nan, rng.random(n_rows)),
        }
    )


TABLE = mixed_table()
N_FEATURES = TableEncoder().fit(as_table(TABLE)).n_features_encoded
NUMBERS = np.random.default_rng(1).normal(size=(200, 3)) * [1, 2, 5]


class Gaussian(nn.Module):
    """Independent Gaussian columns, whose maximum likelihood is known."""

    def __init__(self, n_features):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(n_features))
        self.log_variance = nn.Parameter(torch.zeros(n_features))

    def forward(self, rows):
        return gaussian_terms(rows, self.mean, self.log_variance).sum(1)


def gaussian_terms(rows, mean, log_variance):
    squares = (rows - mean) ** 2 / torch.exp(torch.as_tensor(log_variance))
    return (squares + log_variance + math.log(2 * math.pi)) / 2


class Flow(nn.Module):
    def __init__(self, n_features, kind, **settings):
        super().__init__()
        self.flow = kind(n_features, hidden_features=(8, 8), **settings)

    def forward(self, rows):
        return -self.flow().log_prob(rows)


def real_nvp(n_features):
    return Flow(n_features, zuko.flows.RealNVP, transforms=2)


class VAE(nn.Module):
    def __init__(self, n_features, latent=2):
        super().__init__()
        self.encoder = nn.Linear(n_features, 2 * latent)
        self.decoder = nn.Linear(latent, n_features)

    def forward(self, rows):
        mean, log_variance = self.encoder(rows).chunk(2, dim=1)
        noise = torch.randn_like(mean) if self.training else 0
        z = mean + torch.exp(log_variance / 2) * noise
        divergence = (mean**2 + log_variance.exp() - log_variance - 1).sum(1) / 2
        return (rows - self.decoder(z)).square().sum(1) / 2 + divergence


class Storing(nn.Module):
    """Stores the noise for scoring, the same for all rows."""

    def __init__(self, n_features, n_samples=3):
        super().__init__()
        self.decoder = nn.Linear(2, n_features)
        self.register_buffer("noise", torch.randn(n_samples, 1, 2))

    def forward(self, rows):
        noise = torch.randn_like(self.noise) if self.training else self.noise
        losses = (rows - self.decoder(noise)).square().sum(2)
        return -torch.logsumexp(-losses, dim=0)


class Normed(nn.Module):
    """Uses BatchNorm and dropout, in training only."""

    def __init__(self, n_features):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, n_features)
        )

    def forward(self, rows):
        return (rows - self.layers(rows)).square().sum(1)


torch_state = torch.get_rng_state()
READY = Normed(N_FEATURES)
torch.set_rng_state(torch_state)

BACKBONES = {
    "spline": partial(Flow, kind=zuko.flows.NSF, transforms=1),
    "real_nvp": real_nvp,
    "vae": VAE,
    "storing": Storing,
    "normed": lambda n_features: Normed(n_features),
    "ready": READY,
}


@pytest.fixture(scope="module", params=BACKBONES)
def fitted(request):
    return ALTBI(backbone=BACKBONES[request.param], schedule=BRIEF).fit(TABLE)


def scaled(rows):
    return torch.from_numpy((rows - rows.min(0)) / np.ptp(rows, axis=0))


@pytest.fixture(scope="module")
def gaussian():
    """Return a converged Gaussian with one snapshot, whose loss is the score."""
    schedule = Schedule(rho=1.0, n0=len(NUMBERS), gamma=1.0, T0=1, T1=0, T2=1, updates=400)
    backbone = CustomBackbone(Gaussian, learning_rate=0.03, weight_decay=0.0)
    return ALTBI(backbone=backbone, schedule=schedule, average="plain").fit(NUMBERS)


def test_training_converges_to_maximum_likelihood(gaussian):
    rows = scaled(NUMBERS).numpy()

    assert np.allclose(gaussian.model_.scorer.arrays["module.mean"], rows.mean(0), atol=1e-3)
    variance = np.exp(gaussian.model_.scorer.arrays["module.log_variance"])
    assert np.allclose(variance, rows.var(0), rtol=1e-2)


def test_score_is_the_loss(gaussian):
    rows = scaled(NUMBERS)
    losses = gaussian_terms(rows, rows.mean(0), rows.var(0, correction=0).log()).sum(1)

    assert np.allclose(gaussian.outlier_score(NUMBERS), losses, atol=0.01)


def test_contributions_are_differences_from_medians(gaussian):
    """The quadrature is exact for parabolas."""
    learned = (gaussian.model_.scorer.arrays[f"module.{name}"] for name in ("mean", "log_variance"))
    mean, log_variance = map(torch.from_numpy, learned)
    terms = gaussian_terms(scaled(NUMBERS), mean, log_variance)
    median = torch.from_numpy(
        gaussian.model_.scorer.landmarks[len(gaussian.model_.scorer.landmarks) // 2]
    )
    neutral = gaussian_terms(median, mean, log_variance)

    explanation = gaussian.explain(NUMBERS)

    baseline = gaussian.model_.scorer.typical.baseline
    assert np.allclose(explanation.contributions + baseline, terms - neutral, atol=1e-4)
    assert np.allclose(explanation.remainder - baseline.sum(), neutral.sum(), atol=1e-4)


def test_expected_value_is_best_landmark(gaussian):
    landmarks = gaussian.model_.scorer.landmarks
    mean = gaussian.model_.scorer.arrays["module.mean"][0]
    best = landmarks[np.abs(landmarks - mean).argmin(0), range(3)]
    variance = np.exp(gaussian.model_.scorer.arrays["module.log_variance"][0])
    rows = scaled(NUMBERS).numpy()
    gain = ((rows - mean) ** 2 - (best - mean) ** 2) / (2 * variance)

    explanation = gaussian.explain(NUMBERS)

    expected = np.column_stack([column.to_numpy() for column in explanation.expected])
    assert np.allclose(expected, NUMBERS.min(0) + best * np.ptp(NUMBERS, axis=0), atol=1e-4)
    z_scores = np.sqrt(2 * np.maximum(gain, 0))
    assert np.allclose(explanation.z_scores, z_scores, rtol=1e-2, atol=0.01)


def test_model_without_gradient_has_reasons():
    class Histogram(nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.weights = nn.Parameter(torch.zeros(n_features, 4))

        def forward(self, rows):
            bins = (4 * rows).long().clamp(0, 3)
            return -self.weights.log_softmax(1)[torch.arange(rows.shape[1]), bins].sum(1)

    rows = np.repeat([[0.0, 0.0], [0.1, 0.1], [1.0, 0.0]], [50, 50, 1], axis=0)
    detector = ALTBI(backbone=CustomBackbone(Histogram, learning_rate=0.3), schedule=BRIEF).fit(
        rows
    )
    explanation = detector.explain(rows[-1:])

    assert detector.outlier_score(rows).argmax() == 100
    assert (explanation.contributions == 0).all()
    assert explanation.remainder == explanation.score
    assert explanation.reasons(0)[0].column == "x0"


def test_model_may_use_gradients_in_its_loss():
    class GradientNorm(nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.energy = nn.Linear(n_features, 4)

        def forward(self, rows):
            with torch.enable_grad():
                rows = rows if rows.requires_grad else rows.clone().requires_grad_()
                energy = self.energy(rows).square().sum(1)
                (gradient,) = torch.autograd.grad(energy.sum(), rows, create_graph=True)
            return energy + gradient.square().sum(1)

    detector = ALTBI(backbone=GradientNorm, schedule=BRIEF).fit(NUMBERS)

    assert np.isfinite(detector.outlier_score(NUMBERS)).all()
    assert len(detector.explain(NUMBERS[:2]).reasons(0)) >= 1


@pytest.mark.parametrize("far", [1e5, 1e9])
def test_overflowing_rows_are_explained(far):
    """The loss and its gradient overflow or are NaN."""

    class Explosive(Gaussian):
        def forward(self, rows):
            grown = rows.square().square().exp()
            return super().forward(rows) + (grown - grown / 2).sum(1)

    detector = ALTBI(backbone=Explosive, schedule=BRIEF).fit(NUMBERS)
    rows = NUMBERS[:2].copy()
    rows[1, 2] = far
    explanation = detector.explain(rows)

    assert explanation.score[1] > 1e9 > explanation.score[0]
    for found in (explanation.contributions, explanation.remainder, explanation.z_scores):
        assert np.isfinite(found).all()
    total = explanation.contributions.sum(1) + explanation.remainder
    assert np.allclose(total, explanation.score)
    assert explanation.reasons(1)[0].column == "x2"


def test_truncation_ignores_distant_rows():
    """A fifth of the rows is far away; the mean is that of the others."""
    rows = np.concatenate([np.linspace(0, 1, 80), np.full(20, 9.0)])[:, None]
    schedule = Schedule(T0=0, T1=0, T2=1, updates=300, first_truncated=1, n0=100, rho=0.8)

    kept = ALTBI(backbone=CustomBackbone(Gaussian, learning_rate=0.03), schedule=schedule).fit(rows)

    assert kept.model_.scorer.arrays["module.mean"][0] * 9 == pytest.approx(0.5, abs=0.05)


class Clipped(Gaussian):
    """Sets gradients of the mean to zero by a hook, and freezes it after five batches."""

    def __init__(self, n_features):
        super().__init__(n_features)
        self.mean.register_post_accumulate_grad_hook(self.clip)
        self.clips = 0

    def clip(self, parameter):
        self.clips += 1
        parameter.grad.zero_()

    def forward(self, rows):
        if self.clips >= 5:
            self.mean.requires_grad_(False)
        return super().forward(rows)


def test_model_may_change_gradients_and_freeze_parameters():
    detector = ALTBI(backbone=Clipped, schedule=Schedule(T0=0, T1=5, T2=10, updates=2)).fit(NUMBERS)

    assert (detector.model_.scorer.arrays["module.mean"] == 0).all()
    assert (detector.model_.scorer.arrays["module.log_variance"] != 0).all()


@pytest.mark.slow
def test_scores_do_not_depend_on_other_rows(fitted, monkeypatch):
    scores = fitted.outlier_score(TABLE)

    assert np.array_equal(fitted.outlier_score(TABLE[::-1])[::-1], scores)
    assert np.array_equal(fitted.outlier_score(TABLE[7:8]), scores[7:8])
    assert np.array_equal(fitted.outlier_score(TABLE[100:190]), scores[100:190])
    monkeypatch.setattr("altbi.model._fitted_model._CHUNK_ROWS", 77)
    assert np.array_equal(fitted.outlier_score(TABLE), scores)


def test_scores_do_not_depend_on_threads(fitted):
    scores, threads = fitted.outlier_score(TABLE), torch.get_num_threads()

    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            assert np.array_equal(fitted.outlier_score(TABLE), scores)
    finally:
        torch.set_num_threads(threads)


def test_explanations_add_up(fitted):
    explanation, alone = fitted.explain(TABLE[:40]), fitted.explain(TABLE[7:8])

    total = explanation.contributions.sum(1) + explanation.remainder
    assert np.array_equal(explanation.score, fitted.outlier_score(TABLE[:40]))
    assert np.allclose(total, explanation.score, rtol=1e-5, atol=1e-5)
    assert np.array_equal(alone.contributions[0], explanation.contributions[7])
    assert np.array_equal(alone.z_scores[0], explanation.z_scores[7])
    assert set(explanation.expected[2].to_pylist()) <= {"red", "blue", "green"}


def test_loaded_detector_equals_saved_one(fitted, tmp_path):
    fitted.save(tmp_path / "model")

    loaded = ALTBI.load(tmp_path / "model", backbone=fitted.backbone)

    assert np.array_equal(loaded.outlier_score(TABLE), fitted.outlier_score(TABLE))
    assert np.array_equal(loaded.predict(TABLE), fitted.predict(TABLE))
    ours, theirs = loaded.explain(TABLE[:9]), fitted.explain(TABLE[:9])
    assert np.array_equal(ours.contributions, theirs.contributions)
    assert ours.expected == theirs.expected
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


@pytest.mark.slow
def test_fit_depends_on_seed_only(fitted):
    scores = fitted.outlier_score(TABLE)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        again = clone(fitted).fit(TABLE)
    other = clone(fitted).set_params(random_state=1).fit(TABLE)

    assert np.array_equal(again.outlier_score(TABLE), scores)
    assert not np.array_equal(other.outlier_score(TABLE), scores)


def test_concurrent_fits_are_independent():
    start = threading.Barrier(2)

    def fit(seed):
        start.wait(60)
        return ALTBI(backbone=Normed, schedule=BRIEF._copy_with(T2=20), random_state=seed).fit(
            TABLE
        )

    with ThreadPoolExecutor(2) as pool:
        together = [detector.outlier_score(TABLE) for detector in pool.map(fit, range(2))]

    for seed, scores in enumerate(together):
        start = threading.Barrier(1)
        assert np.array_equal(fit(seed).outlier_score(TABLE), scores)


def test_global_random_state_is_preserved(fitted, tmp_path):
    before = torch.get_rng_state()

    def untouched():
        return torch.equal(torch.get_rng_state(), before)

    for _ in clone(fitted).iter_fit(TABLE):
        assert untouched()
    assert untouched()
    fitted.outlier_score(TABLE)
    assert untouched()
    fitted.explain(TABLE[:3])
    assert untouched()
    fitted.save(tmp_path / "model")
    assert untouched()
    ALTBI.load(tmp_path / "model", backbone=fitted.backbone)
    assert untouched()


def test_global_random_state_survives_errors():
    def failing(n_features):
        torch.rand(n_features)
        raise LookupError("no such model")

    before = torch.get_rng_state()
    with pytest.raises(LookupError, match="no such model"):
        ALTBI(backbone=failing, schedule=BRIEF).fit(TABLE)

    assert torch.equal(torch.get_rng_state(), before)


def test_clone_has_same_backbone(fitted):
    copy = clone(fitted)

    assert backbone_label(copy.backbone) == backbone_label(fitted.backbone)
    assert not hasattr(copy, "offset_")
    if not isinstance(fitted.backbone, nn.Module | partial):
        assert copy.backbone is fitted.backbone


def test_module_is_copied_with_its_weights():
    module = Gaussian(3)
    nn.init.constant_(module.mean, 5.0)
    kept = deepcopy(module.state_dict())

    detector = ALTBI(backbone=CustomBackbone(module, learning_rate=0.01), schedule=BRIEF).fit(
        NUMBERS
    )

    assert all(torch.equal(state, kept[name]) for name, state in module.state_dict().items())
    assert module.training
    learned = detector.model_.scorer.arrays["module.mean"]
    assert ((learned > 4.9) & (learned < 5.0)).all()


def test_label_is_the_class_name():
    class Own(nn.Module):
        def func(self):
            pass

    assert backbone_label(Own()) == backbone_label(Own) == "Own"
    assert backbone_label(partial(VAE, latent=1)) == "VAE"
    assert backbone_label(real_nvp) == "real_nvp"
    assert backbone_label(BACKBONES["normed"]) == "<lambda>"


class Noisy(Gaussian):
    scale = 1.0

    def forward(self, rows):
        return super().forward(rows) + self.scale * torch.randn(len(rows))


class HardlyNoisy(Noisy):
    scale = 1e-9


class Seeding(Gaussian):
    def forward(self, rows):
        torch.manual_seed(0)
        return super().forward(rows + torch.randn(rows.shape[1]))


class Generating(Gaussian):
    """Has its own generator, whose state changes."""

    def __init__(self, n_features):
        super().__init__(n_features)
        self.generator = torch.Generator()

    def forward(self, rows):
        return super().forward(rows) + torch.randn(len(rows), generator=self.generator)


class Scribbling(Gaussian):
    def forward(self, rows):
        return super().forward(rows.mul_(2))


class Gregarious(Gaussian):
    """Uses the other rows of the batch."""

    def forward(self, rows):
        return super().forward(rows - rows.mean(0))


class Positional(Gaussian):
    """Adds different noise to each row, the same in every call."""

    def forward(self, rows):
        noise = torch.randn(len(rows), generator=torch.Generator().manual_seed(0))
        return super().forward(rows) + noise


class Forgetful(Gaussian):
    """Trains a value that is not in the state dict."""

    def __init__(self, n_features):
        super().__init__(n_features)
        self.running = torch.zeros(n_features)

    def forward(self, rows):
        if self.training:
            self.running = 0.5 * self.running + 0.5 * rows.detach().mean(0)
        return super().forward(rows - self.running)


class Drawing(Gaussian):
    """Samples a value in the constructor that is not in the state dict."""

    def __init__(self, n_features):
        super().__init__(n_features)
        self.shift = torch.randn(n_features)

    def forward(self, rows):
        return super().forward(rows - self.shift)


class Growing(Gaussian):
    def forward(self, rows):
        self.register_buffer("seen", torch.ones(3))
        return super().forward(rows)


class Masked(Gaussian):
    def __init__(self, n_features):
        super().__init__(n_features)
        self.register_buffer("mask", torch.full((n_features,), -math.inf))


class Column(Gaussian):
    def forward(self, rows):
        return super().forward(rows)[:, None]


class Pair(Gaussian):
    def forward(self, rows):
        return super().forward(rows), rows


class Unlearned(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))

    def forward(self, rows):
        return (rows - self.mean).square().sum(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "sentence"),
    [
        (Noisy, "Noisy uses or sets torch's global random state in evaluation mode"),
        (HardlyNoisy, "uses or sets torch's global random state"),
        (Seeding, "uses or sets torch's global random state"),
        (Generating, "Generating returns different losses for the same rows in two calls"),
        (Scribbling, "different losses for the same rows.*nor the rows"),
        (Gregarious, "Gregarious returns losses that depend on the other rows of a batch"),
        (Positional, "depend on the other rows.*without separate noise for each row"),
        (partial(Flow, kind=zuko.flows.CNF), "depend on the other rows.*solvers that adapt"),
        (Forgetful, "a new Forgetful with the same state returns other losses"),
        (Forgetful(3), "a new Forgetful with the same state returns other losses"),
        (Drawing, "a new Drawing with the same state returns other losses"),
        (Growing, "a new Growing cannot load the trained state.*seen"),
        (Masked, "'mask' of Masked is not finite.*persistent=False"),
        (Column, r"Column returned shape \(128, 1\).*Return losses of shape \(128,\)"),
        (Pair, r"Pair returned .*tuple.*Return losses of shape \(128,\)"),
        (Unlearned, "Unlearned has no parameters to train"),
        (Gaussian(3).requires_grad_(requires_grad=False), "has no parameters to train"),
        (lambda n_features: [n_features], "<lambda> returned a list for 3 features"),
        ("vae", "backbone='vae'"),
    ],
    ids=lambda value: backbone_label(value) if callable(value) else None,
)
def test_unsuitable_module_raises(backbone, sentence):
    with pytest.raises(ParameterError, match=f"(?s){sentence}"):
        ALTBI(backbone=backbone, schedule=BRIEF).fit(NUMBERS)


def test_failed_fit_leaves_detector_unfitted():
    detector = ALTBI(backbone=Noisy, schedule=BRIEF)

    with pytest.raises(ParameterError):
        detector.fit(NUMBERS)

    assert not hasattr(detector, "offset_")


def test_random_numbers_of_other_threads_are_ignored():
    """Another thread may use the random state once during the checks."""

    class Innocent(Gaussian):
        calls = 0

        def forward(self, rows):
            if not self.training:
                Innocent.calls += 1
                if Innocent.calls == 2:
                    torch.rand(1)
            return super().forward(rows)

    ALTBI(backbone=Innocent, schedule=BRIEF).fit(NUMBERS)

    assert Innocent.calls > 2


@pytest.fixture
def path(gaussian, tmp_path):
    gaussian.save(tmp_path / "model")
    return tmp_path / "model"


def test_file_holds_the_name_of_the_network(path):
    assert read_model(path)[1]["parameters"]["backbone"]["module"] == "Gaussian"


def test_loading_without_network_raises(path):
    with pytest.raises(ModelFileError, match=r"'Gaussian'.*backbone=MyNetwork"):
        ALTBI.load(path)


@pytest.mark.parametrize("wrong", [VAE, lambda n_features: Gaussian(n_features + 1), Gaussian(2)])
def test_loading_with_another_network_raises(path, wrong):
    with pytest.raises(ModelFileError, match="do not fit"):
        ALTBI.load(path, backbone=wrong)


def test_backbone_for_other_models_raises(tmp_path):
    ALTBI(schedule=BRIEF).fit(NUMBERS).save(tmp_path / "model")

    with pytest.raises(ModelFileError, match="Load it without one"):
        ALTBI.load(tmp_path / "model", backbone=Gaussian)


@pytest.mark.parametrize("name", ["trap.run", "trap", "os.system"])
@pytest.mark.parametrize("as_object", [True, False])
def test_names_in_files_are_never_imported(path, name, as_object, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("run"))
    tensors, header = read_model(path)
    if as_object:
        header["parameters"]["backbone"]["module"] = name
    else:
        header["parameters"]["backbone"] = {"object": name}
    header = {key: value for key, value in header.items() if not key.startswith("format")}
    path.write_bytes(encode_model(tensors, header))

    with pytest.raises(ModelFileError):
        ALTBI.load(path)
    if as_object:
        assert ALTBI.load(path, backbone=Gaussian).backbone.module is Gaussian

    assert "trap" not in sys.modules
