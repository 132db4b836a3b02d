"""What stands in the softmax's place: against optimisation, bisection and derivatives."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.training.loop import make_model
from measured_transformer.variants.weights import (
    WEIGHTS,
    Weighed,
    WeighedAttention,
    entmax15,
    sigmoid_weights,
    softmax_plus_one,
    sparsemax,
)
from scipy import optimize

SPARSE = {"sparsemax": (sparsemax, 2.0), "entmax": (entmax15, 1.5)}


def drawn(*shape, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(*shape, generator=generator, dtype=torch.float64)


def by_bisection(scores, alpha):
    """Weights [(alpha - 1) s - tau]_+^(1 / (alpha - 1)), tau found by halving an interval."""
    z = (alpha - 1) * np.asarray(scores)

    def total(tau):
        return (np.maximum(z - tau, 0) ** (1 / (alpha - 1))).sum() - 1

    tau = optimize.brentq(total, z.max() - 1 - 1e-9, z.max(), xtol=1e-15)
    return np.maximum(z - tau, 0) ** (1 / (alpha - 1))


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_sparse_weights_are_those_that_bisection_finds(name, spread):
    function, alpha = SPARSE[name]
    for n in (1, 2, 5, 60):
        rows = drawn(20, n, seed=n, spread=spread)
        found = function(rows)
        assert torch.allclose(found.sum(-1), torch.ones(20, dtype=torch.float64), atol=1e-12)
        for row, weights in zip(rows, found, strict=True):
            np.testing.assert_allclose(weights, by_bisection(row, alpha), atol=1e-9)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_weights_maximise_what_they_are_defined_by(name):
    function, alpha = SPARSE[name]
    scores = drawn(4, seed=3).numpy()

    def loss(p):
        return -(p @ scores + (p - p**alpha).sum() / (alpha * (alpha - 1)))

    best = optimize.minimize(
        loss,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(function(torch.from_numpy(scores)), best.x, atol=1e-5)


def test_sparsemax_by_hand():
    # Both scores stay: their excess of 0.5 over one in sum is taken off in halves.
    rows = torch.tensor([[1.0, 0.5, -1.0], [2.0, 0.5, 0.0], [0.3, 0.3, 0.3]])
    expected = torch.tensor([[0.75, 0.25, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert torch.allclose(sparsemax(rows), expected)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_gradients_are_the_derivatives(kind):
    scores = drawn(6, 7, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(WEIGHTS[kind], (scores,))


@pytest.mark.parametrize("kind", WEIGHTS)
def test_forbidden_keys_have_no_weight_and_count_for_nothing(kind):
    scores = drawn(5, 4, seed=2)
    hidden = torch.cat([scores, torch.full((5, 3), -math.inf, dtype=torch.float64)], -1)
    leaf = hidden.clone().requires_grad_()
    weights = WEIGHTS[kind](leaf)
    assert (weights[:, 4:] == 0).all()
    assert torch.allclose(weights[:, :4], WEIGHTS[kind](scores))
    (gradient,) = torch.autograd.grad(weights, leaf, drawn(5, 7, seed=3))
    assert gradient.isfinite().all()


def test_plus_one_is_a_softmax_with_one_more_score_of_zero():
    scores = drawn(3, 6, spread=5)
    more = torch.cat([scores, torch.zeros(3, 1, dtype=torch.float64)], -1).softmax(-1)
    assert torch.allclose(softmax_plus_one(scores), more[:, :-1])
    assert softmax_plus_one(torch.tensor([-900.0, -900.0])).sum() == 0
    assert softmax_plus_one(torch.tensor([900.0, -900.0])).tolist() == [1.0, 0.0]


def test_sigmoid_weights_know_nothing_of_one_another():
    scores = drawn(2, 5)
    changed = scores.clone()
    changed[:, 0] += 3
    assert torch.equal(sigmoid_weights(changed)[:, 1:], sigmoid_weights(scores)[:, 1:])
    assert torch.allclose(sigmoid_weights(scores), 1 / (1 + 5 * (-scores).exp()))


def layers(bias=False):
    torch.manual_seed(0)
    old = MultiHeadAttention(12, 3, bias=bias)
    return old, WeighedAttention(old, lambda scores: scores.softmax(-1))


@pytest.mark.parametrize("causal", [False, True])
def test_with_a_softmax_it_is_multi_head_attention(causal):
    old, new = layers(bias=True)
    x = drawn(2, 5, 12).float()
    assert torch.allclose(new(x, causal=causal), old(x, causal=causal), atol=1e-6)
    with capture(old, "pattern") as wanted, capture(new, "pattern") as found:
        old(x, causal=causal)
        new(x, causal=causal)
    assert torch.allclose(found["pattern"], wanted["pattern"], atol=1e-6)


def test_the_scale_is_taken_over():
    old = MultiHeadAttention(8, 2, scale=0.01)
    x = drawn(1, 4, 8).float()
    new = WeighedAttention(old, lambda scores: scores.softmax(-1))
    assert torch.allclose(new(x), old(x), atol=1e-6)


def test_the_preparation_replaces_every_sublayer_and_keeps_the_weights():
    config = Config(vocab=5, d_model=8, n_heads=2, n_layers=2)
    model, plain = (make_model(config, causal=True, seed=0) for _ in range(2))
    Weighed("sparsemax")(model)
    for block, old in zip(model.blocks, plain.blocks, strict=True):
        assert isinstance(block.attention, WeighedAttention)
        assert torch.equal(block.attention.query.weight, old.attention.query.weight)
    tokens = torch.randint(5, (2, 6), generator=torch.Generator().manual_seed(0))
    with capture(model, "blocks.1.attention.pattern") as seen:
        model(tokens)
    pattern = seen["blocks.1.attention.pattern"]
    assert torch.allclose(pattern.sum(-1), torch.ones(2, 2, 6))
    assert (pattern.triu(1) == 0).all()


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match=r"one of softmax plus one.*got 'hardmax'"):
        Weighed("hardmax")
    with pytest.raises(ValueError, match="got 1 and 2"):
        WeighedAttention(MultiHeadAttention(8, 2, n_kv_heads=1), sparsemax)
    with pytest.raises(ValueError, match="stream alone, got memory"):
        layers()[1](drawn(1, 2, 12).float(), memory=drawn(1, 2, 12).float())
    with pytest.raises(ValueError, match="got an EncoderDecoder"):
        Weighed("sigmoid")(EncoderDecoder(Config(vocab=4, d_model=8, n_heads=2)))
