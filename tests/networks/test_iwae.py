import copy
import math
from itertools import pairwise

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal
from torch.func import functional_call

from altbi.networks import IWAE, StackedIWAE, allocate, iwae, default_sizes, stacked_iwae
from altbi.networks._iwae import gaussian_terms, importance_weighted

HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2


def small(draws=2, bounded=False, n_features=3):
    torch.manual_seed(1)
    model = IWAE(n_features, (6, 5), 2, draws, bounded=bounded)
    model.redraw()
    return model


def linear_gaussian(draws):
    """An IWAE that is, by its weights, x = A z + b + noise with q(z | x) = p(z)."""
    model = IWAE(2, (4, 4), 2, draws, bounded=False)
    loadings = torch.tensor([[1.0, 0.3], [0.0, 0.8]])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # Far from its kink a ReLU is a shift: z + 50, and again + 50.
        for layer in (model.decoder[0], model.decoder[2]):
            layer.weight[:, : layer.in_features].copy_(torch.eye(4)[:, : layer.in_features])
            layer.bias.fill_(50.0)
        model.mean.weight[:, :2] = loadings
        model.mean.bias.copy_(torch.tensor([0.5, -0.5]) - loadings @ torch.tensor([100.0, 100.0]))
        model.log_variance.bias.fill_(math.log(0.25))
    exact = MultivariateNormal(
        torch.tensor([0.5, -0.5]), loadings @ loadings.T + 0.25 * torch.eye(2)
    )
    return model.train(), exact


@pytest.mark.parametrize("bounded", [False, True])
def test_with_one_draw_the_loss_is_the_negative_elbo(bounded):
    model = small(draws=1, bounded=bounded).eval()
    x = torch.rand(7, 3)

    m, v = model.encode(x)
    z = m + (v / 2).exp() * model.scoring_noise[0]
    mean, log_variance = (t[:, 0] for t in model.decode(z[:, None]))
    likelihood = Normal(mean, (log_variance / 2).exp()).log_prob(x).sum(-1)
    posterior = Normal(m, (v / 2).exp()).log_prob(z).sum(-1)
    elbo = likelihood + Normal(0, 1).log_prob(z).sum(-1) - posterior
    missing_half = log_variance.sum(-1) / 2 if bounded else 0
    expected = -elbo - 3 * HALF_LOG_TWO_PI + missing_half

    assert torch.allclose(model(x), expected, atol=1e-5)


def test_more_draws_tighten_the_bound_towards_the_exact_likelihood():
    x = torch.tensor([[0.5, -0.5], [2.0, 1.0], [-1.5, -2.0]])
    torch.manual_seed(0)

    bounds = []
    for draws, repeats in ((1, 9000), (2, 4500), (20, 450), (9000, 20)):
        model, exact = linear_gaussian(draws)
        with torch.no_grad():
            bounds.append(torch.stack([model(x) for _ in range(repeats)]).mean(0))
    truth = -exact.log_prob(x) - 2 * HALF_LOG_TWO_PI

    assert all((looser > tighter).all() for looser, tighter in pairwise(bounds))
    assert torch.allclose(bounds[-1], truth, atol=0.03)
    assert (bounds[0] - truth).min() > 0.2


@pytest.mark.parametrize("bounded", [False, True])
def test_gradients_agree_with_finite_differences(bounded):
    model = small(bounded=bounded).double().eval()
    x = torch.rand(4, 3, dtype=torch.float64)
    names, values = zip(*model.named_parameters(), strict=True)

    def loss(*parameters):
        return functional_call(model, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-6)


def test_every_parameter_learns():
    for bounded in (False, True):
        model = small(bounded=bounded)
        model(torch.rand(20, 3)).mean().backward()

        assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_in_training_draws_are_fresh_and_in_evaluation_they_are_shared():
    model, x = small(), torch.rand(1, 3).expand(5, 3)

    trained = model.train()(x)
    scored = model.eval()(x)

    assert len(set(trained.tolist())) == 5
    assert len(set(scored.tolist())) == 1
    assert torch.equal(model(x), scored)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_started_model_is_as_torch_would_have_made_it_but_for_its_own_generator(bounded):
    torch.manual_seed(8)
    usual = IWAE(3, (6, 5), 2, 2, bounded=bounded)
    state = torch.random.get_rng_state()
    with torch.device("meta"):
        ours = IWAE(3, (6, 5), 2, 2, bounded=bounded)
    allocate(ours, torch.device("cpu"))
    kinds = {name: state.dtype for name, state in ours.state_dict().items()}
    assert kinds == {name: state.dtype for name, state in usual.state_dict().items()}

    ours.scoring_noise.zero_()
    ours.start(torch.Generator().manual_seed(8))
    losses = ours(torch.ones(4, 3))
    ours.redraw()

    assert torch.equal(torch.random.get_rng_state(), state)
    for name, weight in usual.named_parameters():
        assert torch.equal(weight, ours.get_parameter(name)), name
    assert torch.equal(losses, usual(torch.ones(4, 3)))


def test_redrawing_changes_the_scoring_draws():
    model = small().eval()
    before = model(torch.ones(1, 3))

    model.redraw()

    assert not torch.equal(model(torch.ones(1, 3)), before)


def test_the_reference_network_is_the_facts_one():
    model = IWAE(10, (32, 16), 8, 2, bounded=True)

    kinds = [type(layer).__name__ for layer in model.encoder]
    assert kinds == ["Linear", "BatchNorm1d", "LeakyReLU"] * 2
    norm = model.encoder[1]
    assert (norm.eps, norm.affine, norm.momentum) == (1e-4, False, 0.1)
    assert model.encoder[0].bias is None
    assert (model.latent_mean.bias, model.mean.bias) == (None, None)
    assert model.log_variance_range == (-6, 2)
    mean, log_variance = model.eval().decode(torch.randn(3, 2, 8) * 100)
    assert 0 <= mean.min() <= mean.max() <= 1
    assert -6 <= log_variance.min() <= log_variance.max() <= 2


def test_the_paper_s_network_has_no_batch_norm_and_an_unbounded_mean():
    model = IWAE(10, (100, 50), 10, 2, bounded=False)

    assert [type(layer).__name__ for layer in model.encoder] == ["Linear", "ReLU"] * 2
    mean, _ = model.decode(torch.randn(3, 2, 10) * 1000)
    assert mean.abs().max() > 1
    assert model.log_variance_range == (-20, 20)


def test_gaussian_terms_are_normal_log_densities():
    x, mean, log_variance = torch.randn(3, 50)

    terms = gaussian_terms(x, mean, log_variance, log_weight=0.5)

    exact = -Normal(mean, (log_variance / 2).exp()).log_prob(x) - HALF_LOG_TWO_PI
    assert torch.allclose(terms, exact, atol=1e-4)


def test_importance_weighting_averages_densities():
    losses = torch.tensor([[0.0, 1.0], [3.0, 3.0]])

    expected = [-math.log((1 + math.exp(-1)) / 2), 3.0]
    assert torch.allclose(importance_weighted(losses, dim=-1), torch.tensor(expected))


def trained_snapshots(bounded, n_features, hidden, latent, draws):
    """Models whose BatchNorm statistics and weights have moved away from their start."""
    torch.manual_seed(2)
    model, states = IWAE(n_features, hidden, latent, draws, bounded=bounded), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.rand(40, n_features)).mean().backward()
            optimizer.step()
        model.redraw()
        states.append({name: state.clone() for name, state in model.state_dict().items()})
    return model, states


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("hidden", [(6, 5), (7,), (4, 8, 3)])
def test_stacked_snapshots_score_as_the_models_themselves(bounded, draws, hidden):
    model, states = trained_snapshots(bounded, 5, hidden, 2, draws)
    stacked = StackedIWAE(model, {k: torch.stack([s[k] for s in states]) for k in states[0]})
    x = torch.rand(30, 5) * 3 - 1

    one_by_one = []
    for state in states:
        model.load_state_dict(state)
        one_by_one.append(model.eval()(x))

    assert torch.allclose(stacked.losses(x.T), torch.stack(one_by_one), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bounded", [False, True])
def test_cells_and_rest_add_up_to_the_loss(bounded):
    model, states = trained_snapshots(bounded, 5, (6, 5), 2, 3)
    stacked = StackedIWAE(model, {k: torch.stack([s[k] for s in states]) for k in states[0]})
    x = torch.rand(5, 30) * 3 - 1

    parts = stacked.parts(x)

    assert torch.allclose(parts.losses, stacked.losses(x))
    assert torch.allclose(parts.cells.sum(1) + parts.rest, parts.losses, rtol=1e-5, atol=1e-5)
    assert parts.cells.shape == (4, 5, 30)


def test_the_distance_from_the_expectation_is_half_a_square_of_deviations():
    model, states = trained_snapshots(True, 5, (6, 5), 2, 1)
    model.load_state_dict(states[0])
    stacked = StackedIWAE(model, {name: state[None] for name, state in states[0].items()})
    known, cells = torch.rand(2, 5, 30)

    expected, distance = stacked.expect(known, cells)

    z_mean, z_log_variance = model.eval().encode(known.T)
    z = z_mean + (z_log_variance / 2).exp() * model.scoring_noise
    mean, log_variance = (t[:, 0].T for t in model.decode(z[:, None]))
    assert torch.allclose(expected[0], mean, atol=1e-5)
    assert torch.allclose(distance[0], (cells - mean) ** 2 / log_variance.exp() / 2, rtol=1e-3)


@pytest.mark.parametrize(
    ("n_features", "sizes"),
    [
        (3, ((32, 16), 2)),
        (4, ((32, 16), 2)),
        (5, ((32, 16), 4)),
        (6, ((32, 16), 4)),
        (7, ((32, 16), 6)),
        (9, ((32, 16), 8)),
        (64, ((32, 16), 8)),
        (65, ((128, 64), 32)),
        (166, ((128, 64), 32)),
        (512, ((128, 64), 32)),
        (513, ((512, 256), 128)),
        (768, ((512, 256), 128)),
        (1555, ((512, 256), 128)),
    ],
)
def test_reference_sizes_follow_the_number_of_features(n_features, sizes):
    assert default_sizes(n_features) == sizes


def wide(n_features=80, draws=20):
    torch.manual_seed(3)
    model = IWAE(n_features, (12, 6), 3, draws, bounded=True).double()
    model.redraw()
    # Losses of the draws lie some ten apart: some weigh in, others do not.
    with torch.no_grad():
        model.log_variance.bias.fill_(-3)
        model.mean.weight.mul_(4)
    return model, torch.rand(9, n_features, dtype=torch.float64)


def learned(model, rows):
    """Losses and gradients of one batch, with the same noise each time."""
    model.generator = torch.Generator().manual_seed(5)
    model.zero_grad()
    losses = model.train()(rows)
    (losses * torch.linspace(1, 2, len(rows))).sum().backward()
    return losses.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("draws", [1, 2, 6])
@pytest.mark.parametrize("hidden", [(7,), (6, 5), (8, 7, 6)])
def test_the_gradient_written_out_is_that_of_autograd(hidden, draws):
    torch.manual_seed(4)
    model = IWAE(5, hidden, 3, draws, bounded=True).double()
    with torch.no_grad():
        # Some log-variances are at their bounds, others are not, and draws differ in weight.
        for head in (model.latent_log_variance, model.log_variance):
            head.weight.mul_(8)
        model.mean.weight.mul_(4)
    plain, rows = copy.deepcopy(model), 2 * torch.rand(30, 5, dtype=torch.float64) - 0.5

    losses, gradients = learned(model, rows)
    # Where gradients of the rows are wanted, too, autograd keeps the books.
    plain_losses, plain_gradients = learned(plain, rows.clone().requires_grad_())

    _, log_variance = plain.encode(rows)
    assert 0 < (log_variance.abs() < 2).sum() < log_variance.numel()
    assert "_Bounds" in type(model(rows).grad_fn).__name__
    assert torch.allclose(losses, plain_losses, rtol=1e-10)
    for name, gradient in plain_gradients.items():
        largest = gradient.abs().max()
        assert largest > 0
        assert (gradients[name] - gradient).abs().max() < 1e-9 * largest, name


def test_norms_remember_what_they_see_where_the_gradient_is_written_out():
    model = small(bounded=True).double()
    plain, rows = copy.deepcopy(model), torch.rand(12, 3, dtype=torch.float64)
    for _ in range(3):
        learned(model, rows)
        learned(plain, rows.clone().requires_grad_())

    for (name, ours), theirs in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10), name
    assert model.encoder[1].num_batches_tracked == 3
    assert (model.decoder[1].running_var - 1).abs().max() > 0.01


@pytest.mark.parametrize(
    "kind", ["evaluation", "no norms", "paper", "wide", "gradients of rows", "a part in evaluation"]
)
def test_otherwise_autograd_keeps_the_books(kind):
    model, rows = small(bounded=kind != "paper"), torch.rand(12, 3)
    if kind == "evaluation":
        model.eval()
    elif kind == "no norms":
        model = IWAE(3, (6, 5), 2, 2, bounded=True, normed=False)
    elif kind == "wide":
        model, rows = wide()
    elif kind == "gradients of rows":
        rows.requires_grad_()
    elif kind == "a part in evaluation":
        model.encoder.eval()

    assert "_Bounds" not in type(model(rows).grad_fn).__name__


def test_draws_that_do_not_weigh_in_are_left_out_without_changing_what_is_learned(monkeypatch):
    model, rows = wide()
    seen = []
    hook = model.mean.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0]))
    losses, gradients = learned(model, rows)
    hook.remove()
    monkeypatch.setattr(iwae, "_MANY_DRAWS", 21)
    plain_losses, plain_gradients = learned(model, rows)

    n_learned_from = [len(inputs) for inputs in seen if inputs.requires_grad]
    assert 9 <= sum(n_learned_from) < 9 * 20 / 2
    assert torch.allclose(losses, plain_losses, rtol=1e-7, atol=0)
    for name, gradient in plain_gradients.items():
        largest = gradient.abs().max()
        assert largest > 0
        assert (gradients[name] - gradient).abs().max() < 1e-6 * largest, name


def test_without_a_gradient_no_draw_is_left_out(monkeypatch):
    model, rows = wide()
    with torch.no_grad():
        scored = model.eval()(rows)
        monkeypatch.setattr(iwae, "_MANY_DRAWS", 21)
        plain = model(rows)

    assert torch.allclose(scored, plain, rtol=1e-12)


@pytest.mark.parametrize(
    ("n_features", "draws", "is_selective"), [(64, 8, True), (63, 8, False), (64, 7, False)]
)
def test_many_draws_of_wide_rows_are_selected_from(n_features, draws, is_selective):
    model = IWAE(n_features, (4, 4), 2, draws, bounded=True)

    assert model.is_selective == is_selective
    assert not IWAE(n_features, (4, 4), 2, draws, bounded=True, normed=False).is_selective


def test_what_is_no_number_reaches_the_weights():
    model, rows = wide()
    with torch.no_grad():
        model.mean.weight[0, 0] = math.nan

    losses, gradients = learned(model, rows)

    assert losses.isnan().all()
    assert gradients["mean.weight"].isnan().any()


def test_snapshots_evaluated_in_lots_have_the_losses_of_all_at_once(monkeypatch):
    models = [small(draws=3, bounded=True) for _ in range(5)]
    for shift, model in enumerate(models):
        for state in (model.scoring_noise, *model.parameters()):
            state.data += 0.1 * shift
    states = [model.state_dict() for model in models]
    stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    whole = StackedIWAE(models[0], stacked)
    # Of 64 rows, 3 draws and 6 activations two snapshots stay below the limit, a third would not.
    monkeypatch.setattr(stacked_iwae, "_CELLS_PER_BLOCK", 2 * 64 * 3 * 6)
    in_lots = StackedIWAE(models[0], stacked)
    columns = torch.rand(3, 64)

    assert in_lots.groups == [slice(0, 2), slice(2, 4), slice(4, 6)]
    assert len(whole.groups) == 1
    assert torch.allclose(in_lots.losses(columns), whole.losses(columns), rtol=1e-5)
    assert len(set(in_lots.losses(columns)[:, 0].tolist())) == 5
