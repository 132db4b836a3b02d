"""The parts of a variance against functions whose parts are known, and Adam's steps against its formula."""

import numpy as np
import pytest
import torch
from measured_transformer.chapters.learning_rate.measure import (
    Space,
    adam_steps,
    descend,
    draw_trials,
    variance_parts,
    variance_shares,
)

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
