"""Paths, shares and Jacobians, against autograd, products of matrices and functions with known slopes."""

import itertools

import numpy as np
import pytest
import torch
from measured_transformer.analysis.gradients import (
    branch_gains,
    by_length,
    every_path,
    finite_difference,
    jacobian,
    last_gradient,
    shares,
    stream_gradients,
    sublayers,
)
from measured_transformer.analysis.residual import ledger, random_model
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator


def test_jacobian_of_a_matrix_is_its_transpose_because_vectors_are_rows():
    W = torch.randn(3, 2, dtype=torch.float64)
    x = torch.randn(3, dtype=torch.float64)
    J = jacobian(lambda x: x @ W, x)
    torch.testing.assert_close(J, W.T)
    g = torch.randn(2, dtype=torch.float64)
    torch.testing.assert_close(g @ J, g @ W.T)


def test_finite_differences_of_known_functions():
    x = torch.randn(2, 3, dtype=torch.float64)
    g = torch.randn(2, 3, dtype=torch.float64)
    before = x.clone()
    torch.testing.assert_close(finite_difference(torch.sin, x, g), g * x.cos(), rtol=0, atol=1e-9)
    assert torch.equal(x, before)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_paths_are_products_of_jacobian_matrices(placement, causal):
    model, tokens = random_model(
        3, causal=causal, placement=placement, n_layers=1, d_model=8, n_heads=2
    )
    tokens = tokens[:1, :2]
    states = ledger(model, tokens).states
    g = torch.randn_like(states[-1])
    found = every_path(model, states, g)
    assert len(found) == 4
    maps = []
    for k, (branch, norm) in enumerate(sublayers(model)):
        write = branch(states[k]).detach()
        maps.append((jacobian(branch, states[k]), jacobian(norm, states[k] + write)))
    for number, path in enumerate(found):
        expected = g.flatten()
        for k in (1, 0):
            through, past = maps[k]
            expected = expected @ past
            if number >> k & 1:
                expected = expected @ through
        torch.testing.assert_close(path.flatten(), expected)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_paths_sum_to_the_gradient_and_gather_by_length(placement, norm):
    model, tokens = random_model(6, placement=placement, norm=norm, n_layers=2)
    states = ledger(model, tokens).states
    g = torch.randn_like(states[-1])
    x = states[0].clone().requires_grad_()
    y = x
    for block in model.blocks:
        y = block(y)
    (true,) = torch.autograd.grad(y, x, g)
    single, gathered = every_path(model, states, g), by_length(model, states, g)
    torch.testing.assert_close(single.sum(0), true)
    torch.testing.assert_close(gathered.sum(0), true)
    for length in range(5):
        members = [p for p in range(16) if p.bit_count() == length]
        torch.testing.assert_close(gathered[length], single[members].sum(0))
    if placement == "pre":
        assert torch.equal(single[0], g)


def test_shares_add_up_to_one_and_may_be_negative():
    parts = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)[:, None, None]
    found = shares(parts)
    np.testing.assert_allclose(found, [2 / 2, 1 / 2, -1 / 2])
    assert found.sum() == pytest.approx(1)


def test_gains_of_branches_against_jacobian_matrices():
    model, tokens = random_model(2, n_layers=1, placement="pre")
    tokens = tokens[:1]
    states = ledger(model, tokens).states
    g = torch.randn_like(states[0])
    found = branch_gains(model, states, g)
    for k, (branch, _) in enumerate(sublayers(model)):
        down = g.flatten() @ jacobian(branch, states[k])
        assert found[k] == pytest.approx(float(down.norm() / g.norm()))


def test_stream_gradients_against_differences_of_the_loss():
    model, _ = random_model(9, n_layers=1)
    batch = Reversal(vocab=11, length=3).batch(make_generator(0, "training"), 1)
    sizes = stream_gradients(model, batch)
    assert sizes.shape == (3,)
    states = ledger(model, batch.inputs).states

    def from_state(after):
        def loss(x):
            for block in model.blocks[after:]:
                x = block(x)
            return cross_entropy(model.unembed(x), batch.targets, batch.scored)

        return loss

    one = torch.ones((), dtype=torch.float64)
    for place, blocks_done in ((0, 0), (2, 1)):
        slow = finite_difference(from_state(blocks_done), states[place], one)
        assert sizes[place] == pytest.approx(float(slow.norm(dim=-1).mean()), rel=1e-5)
    last = last_gradient(model, states[-1], batch)
    torch.testing.assert_close(last, slow, rtol=1e-5, atol=1e-8)


def test_sublayers_refuse_what_they_cannot_follow():
    for changes in ({"positions": "rotary"}, {"positions": "alibi"}, {"residual": False}):
        model, _ = random_model(1, d_model=8, n_heads=2, **changes)
        with pytest.raises(ValueError, match="expected residual connections"):
            sublayers(model)


def test_causal_paths_carry_nothing_back_from_earlier_positions():
    """The gradient at the first position's last state never reaches a later token's embedding."""
    model, tokens = random_model(12, causal=True, n_layers=2)
    states = ledger(model, tokens).states
    g = torch.zeros_like(states[-1])
    g[:, 0] = 1.0
    found = every_path(model, states, g)
    assert float(found[:, :, 1:].abs().max()) == 0.0
    assert float(found[:, :, 0].abs().max()) > 0
    assert len(list(itertools.product((0, 1), repeat=4))) == len(found)
