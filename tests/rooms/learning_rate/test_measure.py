"""Parts of a variance, noise scales and hyperbolas that are known beforehand; Adam by its formula."""

import numpy as np
import pytest
import torch
import xarray
from measured_book.rooms.learning_rate import measure
from measured_book.rooms.learning_rate.measure import (
    CAPS,
    LEVEL,
    READER,
    TEXT,
    AtLevel,
    Space,
    adam_steps,
    batch_gradients,
    descend,
    draw_trials,
    hyperbola,
    loss_of,
    noise_scale,
    variance_parts,
    variance_shares,
)
from measured_book.rooms.learning_rate.reading import best_rates, log_steps
from measured_transformer.training.loop import Step, evaluate, make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator

SPACE = Space(rates=(1e-4, 1e-1))
RNG = np.random.default_rng(0)


def levels_of(seed: int, space: Space = SPACE) -> np.ndarray:
    return np.array([trial.levels for trial in draw_trials(space, 256, seed=seed)])


@pytest.mark.parametrize("rate", [0.1, 1.0, 1.9, 2.1])
def test_descent_multiplies_each_weight_by_one_minus_rate_times_curvature(rate):
    path = descend([1.0, 3.0], [1.0, -2.0], rate, 6)
    steps = np.arange(7)
    np.testing.assert_allclose(path[:, 0], (1 - rate) ** steps, atol=1e-12)
    np.testing.assert_allclose(path[:, 1], -2 * (1 - 3 * rate) ** steps, rtol=1e-9, atol=1e-12)


def test_descent_needs_a_curvature_for_each_weight():
    with pytest.raises(ValueError, match="1 for 2 weights"):
        descend([1.0], [1.0, 1.0], 0.1, 1)


@pytest.mark.parametrize(("betas", "eps"), [((0.9, 0.98), 1e-9), ((0.8, 0.999), 0.5)])
def test_adam_steps_follow_the_formula(betas, eps):
    gradients = RNG.normal(size=30).tolist()
    m = v = 0.0
    wanted = []
    for t, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        wanted.append(m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps))
    np.testing.assert_allclose(adam_steps(gradients, betas=betas, eps=eps), wanted, rtol=1e-9)


def test_adams_first_step_is_the_rate_whatever_the_gradient():
    for gradient in (1e-3, 1.0, 1e5):
        assert adam_steps([gradient])[0] == pytest.approx(1, abs=1e-4)


def test_parts_of_a_variance_add_up_and_know_a_product_from_a_sum():
    a, b, c = (RNG.normal(size=n) for n in (3, 4, 2))
    a, b, c = a - a.mean(), b - b.mean(), c - c.mean()
    table = 5 + a[:, None, None] + 2 * c + b[:, None] * c
    parts = variance_parts(table)
    assert list(parts) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert sum(parts.values()) == pytest.approx(table.var())
    known = {(0,): a.var(), (2,): 4 * c.var(), (1, 2): b.var() * c.var()}
    for axes, part in parts.items():
        assert part == pytest.approx(known.get(axes, 0.0), abs=1e-12)


def test_a_search_tries_each_pair_of_levels_once():
    levels = levels_of(3)
    assert levels.shape == (25, 4)
    for first in range(4):
        for second in range(first):
            assert len({tuple(pair) for pair in levels[:, [first, second]]}) == 25
    assert not np.array_equal(levels, levels_of(4))
    np.testing.assert_array_equal(levels, levels_of(3))


def test_trials_hold_what_their_levels_say():
    for trial in draw_trials(SPACE, 256, seed=5):
        rate, depth, heads, width = trial.levels
        assert trial.config.vocab == 256
        assert trial.config.n_layers == SPACE.depths[depth]
        assert trial.config.n_heads == SPACE.heads[heads]
        assert trial.config.d_model == SPACE.widths[width]
        part = (np.log10(trial.rate) + 4) / 3 * 5
        assert rate <= part <= rate + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"depths": (1, 2, 3)},
        {"depths": (1, 2, 3, 4), "heads": (1, 2, 4, 8), "widths": (16, 32, 48, 64)},
        {"widths": (16, 32, 48, 64, 72)},
        {"rates": (1e-2, 1e-3)},
        {"rates": (0.0, 1e-3)},
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(changes):
    with pytest.raises(ValueError, match=r"expected|heads must divide"):
        Space(**{"rates": (1e-4, 1e-1), **changes})


def test_shares_of_a_sum_are_exact():
    levels = levels_of(1)
    effects = RNG.normal(size=(4, 5)) * np.array([[3.0], [1.0], [0.0], [0.5]])
    effects -= effects.mean(1, keepdims=True)
    losses = 2 + sum(effects[f][levels[:, f]] for f in range(4))
    found = variance_shares(levels, losses)
    known = effects.var(1) / effects.var(1).sum()
    np.testing.assert_allclose(found.main, known, atol=1e-12)
    np.testing.assert_allclose(found.raw, known, atol=1e-12)
    np.testing.assert_allclose(found.means, 2 + effects, atol=1e-12)
    assert found.rest == pytest.approx(0, abs=1e-12)


def test_noise_is_no_share_of_a_factor():
    found = [variance_shares(levels_of(s), RNG.normal(size=25)) for s in range(200)]
    corrected = np.array([each.main for each in found])
    assert np.abs(corrected.mean(0)).max() < 0.03  # 5 errors of the mean
    raw = np.array([each.raw for each in found])
    np.testing.assert_allclose(raw.mean(0), 4 / 24, atol=0.03)  # by chance: 4 of 24 freedoms
    np.testing.assert_allclose(raw.sum(1) + [each.rest for each in found], 1)


def test_shares_with_interaction_and_noise_are_nearly_unbiased():
    known = np.array([0.5, 0.05, 0.0, 0.25])
    level = np.array([-2, -1, 0, 1, 2]) / np.sqrt(2)
    found = []
    for seed in range(200):
        levels = levels_of(seed)
        z = level[levels]
        losses = z @ np.sqrt(known) + np.sqrt(0.1) * (z[:, 0] * z[:, 3] + RNG.normal(size=25))
        found.append(variance_shares(levels, losses).main)
    np.testing.assert_allclose(np.mean(found, axis=0), known, atol=0.03)


def test_an_unbalanced_or_saturated_search_is_refused():
    levels = levels_of(0)
    with pytest.raises(ValueError, match="equally often"):
        variance_shares(levels[:-1], RNG.normal(size=24))
    with pytest.raises(ValueError, match="losses that differ"):
        variance_shares(levels, np.ones(25))
    full = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
    with pytest.raises(ValueError, match="a rest to compare"):
        variance_shares(full, RNG.normal(size=4))


def test_steps_are_pytorchs_own():
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = torch.optim.Adam([weight], lr=0.25, betas=(0.9, 0.98))
    for gradient in (3.0, -1.0):
        weight.grad = torch.full_like(weight, gradient)
        optimiser.step()
    moved = -0.25 * adam_steps([3.0, -1.0], betas=(0.9, 0.98)).sum()
    assert weight.item() == pytest.approx(moved)


def steps_of(curvature: float, vertices: list[float]) -> xarray.Dataset:
    """Logarithms of steps that are parabolas with these vertices, one for each batch size, two seeds."""
    x = np.log(measure.BATCH_RATES)
    rows = [5 + curvature * np.square(x - np.log(vertex)) for vertex in vertices]
    steps = np.exp([rows, rows])
    coords = {"seed": [0, 1], "batch": list(CAPS), "rate": list(measure.BATCH_RATES)}
    return xarray.Dataset({"steps": (("seed", "batch", "rate"), steps)}, coords)


def test_the_best_rate_is_the_vertex_of_a_parabola():
    vertices = [0.003, 0.01, 0.013, 0.03]
    found = best_rates(steps_of(0.7, vertices))
    np.testing.assert_allclose(found.values, [vertices, vertices], rtol=1e-6)


def test_a_best_rate_beyond_the_grid_is_its_edge():
    vertices = [0.0001, 0.01, 0.013, 0.5]
    found = best_rates(steps_of(0.7, vertices)).values
    np.testing.assert_allclose(found[:, [0, 3]], [[0.001, 0.064]] * 2)


def test_steps_at_the_best_rate_of_each_batch():
    found = log_steps(steps_of(0.7, [0.004, 0.008, 0.016, 0.032]))
    assert found.dims == ("seed", "batch")
    np.testing.assert_allclose(found.values, 5.0)


def test_a_hyperbola_is_found_again():
    sizes = np.array([4.0, 16.0, 64.0, 256.0])
    least, critical, residuals = hyperbola(sizes.tolist(), (30 * (1 + 50 / sizes)).tolist())
    assert (least, critical) == (pytest.approx(30, rel=1e-3), pytest.approx(50, rel=1e-3))
    assert np.abs(residuals).max() < 1e-3
    _, _, bent = hyperbola(sizes.tolist(), (30 * (1 + 50 / sizes) * [1, 2, 1, 1]).tolist())
    assert np.abs(bent).max() > 0.2


def test_the_noise_scale_of_gradients_with_known_noise():
    generator = torch.Generator().manual_seed(0)
    true = torch.linspace(-1, 1, 400, dtype=torch.float64)
    noise = torch.randn(500, 400, generator=generator, dtype=torch.float64) * 3
    expected = 400 * 9 / float(true.square().sum())
    for size in (1, 16):
        found = noise_scale(true + noise / size**0.5, size)
        assert found == pytest.approx(expected, rel=0.05)


def test_batch_gradients_are_those_of_the_loss():
    model = make_model(READER, causal=True, seed=1)
    found = batch_gradients(model, seed=5, count=2)
    generator = make_generator(5, "noise")
    for row in found:
        batch = TEXT.batch(generator, 16)
        model.zero_grad()
        cross_entropy(predict(model, batch), batch.targets, batch.scored).backward()
        expected = torch.cat([w.grad.flatten() for w in model.parameters()]).double()
        torch.testing.assert_close(row, expected)


def test_a_training_ends_at_the_level(monkeypatch):
    model = make_model(READER, causal=True, seed=1)
    hook = AtLevel(every=3, seed=1)
    at = evaluate(model, TEXT, seed=1).loss
    for level, number, ends in ((at, 3, True), (at, 4, False), (at - 0.01, 3, False)):
        monkeypatch.setattr(measure, "LEVEL", level)
        assert hook(Step(number, model, [1.0] * number, 0.1, 1.0)) is ends
    assert LEVEL == 2.5


def test_runs_that_diverge_count_as_a_guess():
    given = {"seed": 1, "batch_size": 4, "clip": None, "optimiser": "SGD", "betas": (0.0, 0.0)}
    lost = train(READER, TEXT, steps=20, learning_rate=100.0, **given)
    fine = train(READER, TEXT, steps=2, learning_rate=0.01, **given)
    assert loss_of(lost, 1) == measure.GUESS
    assert loss_of(fine, 1) == min(evaluate(fine.model, TEXT, seed=1, size=512).loss, measure.GUESS)


def test_shares_of_the_wrong_kind_of_decay_are_told_apart():
    # The hand example of the page: loud and quiet weights, both 2, a pull of 0.002.
    pull = {"loud": 0.002 / np.hypot(1, 0.002), "quiet": 0.002 / np.hypot(0.01, 0.002)}
    assert round(pull["loud"], 3) == 0.002
    assert round(pull["quiet"], 3) == 0.196


def test_after_a_shock_adam_crawls():
    after = adam_steps([1.0] * 2000 + [100.0] + [1.0] * 400, betas=(0.9, 0.98))[2000:]
    assert after[0] == pytest.approx(10.9 / 200.98**0.5, rel=1e-3)
    assert after.max() < 1
    assert after.min() < 0.15
