"""Losses against PyTorch's, in value and gradient, and what the two traps do to them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.training.losses import (
    cross_entropy,
    cross_entropy_diluted,
    cross_entropy_with_padding,
    smoothing_floor,
    token_losses,
)
from torch.nn import functional as F

PAD = 6


def example(seed=0, batch=4, positions=5, vocab=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch, positions, vocab, generator=generator, dtype=dtype)
    targets = torch.randint(PAD, (batch, positions), generator=generator)
    lengths = torch.randint(1, positions + 1, (batch, 1), generator=generator)
    scored = torch.arange(positions) < lengths
    return logits.requires_grad_(), targets.masked_fill(~scored, PAD), scored


def value_and_gradient(loss, logits):
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


def pytorchs(logits, targets, **options):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), **options)


@given(
    seed=st.integers(0, 10**6),
    smoothing=st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0]),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 6)),
)
def test_padding_ignored_is_pytorchs_in_value_and_gradient(seed, smoothing, shape):
    logits, targets, scored = example(seed, *shape)
    expected = pytorchs(logits, targets, ignore_index=PAD, label_smoothing=smoothing)
    found = cross_entropy(logits, targets, scored, label_smoothing=smoothing)
    for a, b in zip(
        value_and_gradient(found, logits), value_and_gradient(expected, logits), strict=True
    ):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_counted_is_pytorchs_without_an_ignored_token(smoothing):
    logits, targets, _ = example(3)
    expected = pytorchs(logits, targets, label_smoothing=smoothing)
    found = cross_entropy_with_padding(logits, targets, label_smoothing=smoothing)
    for a, b in zip(
        value_and_gradient(found, logits), value_and_gradient(expected, logits), strict=True
    ):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_diluted_is_pytorchs_sum_over_all_positions():
    logits, targets, scored = example(4)
    expected = pytorchs(logits, targets, ignore_index=PAD, reduction="sum") / targets.numel()
    found = cross_entropy_diluted(logits, targets, scored)
    for a, b in zip(
        value_and_gradient(found, logits), value_and_gradient(expected, logits), strict=True
    ):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    share = scored.double().mean()
    assert torch.allclose(found, share * cross_entropy(logits, targets, scored))


def test_single_precision_is_pytorchs_too():
    logits, targets, scored = example(5, batch=16, positions=32, dtype=torch.float32)
    expected = pytorchs(logits, targets, ignore_index=PAD, label_smoothing=0.1)
    found = cross_entropy(logits, targets, scored, label_smoothing=0.1)
    assert torch.allclose(found, expected, rtol=1e-5)


def test_padding_gets_no_gradient_unless_it_counts():
    logits, targets, scored = example(1)
    assert not scored.all()
    _, gradient = value_and_gradient(cross_entropy(logits, targets, scored), logits)
    assert gradient[~scored].abs().max() == 0
    assert gradient[scored].abs().sum(-1).min() > 0
    _, gradient = value_and_gradient(cross_entropy_with_padding(logits, targets), logits)
    assert gradient[~scored].abs().sum(-1).min() > 0


def test_what_stands_at_padding_does_not_matter_even_when_it_is_not_a_number():
    logits, targets, scored = example(2)
    spoilt = logits.detach().clone()
    spoilt[~scored] = math.nan
    other = targets.masked_fill(~scored, 0)
    assert torch.equal(
        cross_entropy(spoilt, other, scored), cross_entropy(logits, targets, scored).detach()
    )


def test_a_model_that_knows_padding_looks_better_the_more_there_is():
    logits, targets, scored = example(6, batch=8, positions=10)
    sure = logits.detach().masked_fill(~scored[..., None], -50.0)
    sure[..., PAD] = torch.where(scored, sure[..., PAD], 50.0)
    honest = cross_entropy(sure, targets, scored)
    share = scored.double().mean()
    assert torch.allclose(cross_entropy_with_padding(sure, targets), share * honest)


def test_the_mean_is_that_of_the_token_losses():
    logits, targets, scored = example(7)
    losses = token_losses(logits, targets, label_smoothing=0.2)
    assert losses.shape == targets.shape
    expected = pytorchs(logits, targets, reduction="none", label_smoothing=0.2)
    assert torch.allclose(losses.flatten(), expected)
    found = cross_entropy(logits, targets, scored, label_smoothing=0.2)
    assert torch.allclose(found, losses[scored].mean())


def test_nothing_scored_is_not_a_number_as_in_pytorch():
    logits, targets, scored = example(8)
    nothing = torch.zeros_like(scored)
    assert cross_entropy(logits, targets, nothing).isnan()
    assert pytorchs(logits, torch.full_like(targets, PAD), ignore_index=PAD).isnan()


def test_many_models_at_once():
    many = torch.stack([example(seed)[0].detach() for seed in range(3)])
    _, targets, scored = example(0)
    together = torch.vmap(cross_entropy, in_dims=(0, None, None))(many, targets, scored)
    alone = torch.stack([cross_entropy(logits, targets, scored) for logits in many])
    assert torch.allclose(together, alone)


def test_losses_leave_their_arguments_as_they_were():
    logits, targets, scored = example(9)
    kept = logits.detach().clone(), targets.clone(), scored.clone()
    cross_entropy(logits, targets, scored, label_smoothing=0.1)
    cross_entropy_diluted(logits, targets, scored)
    assert all(torch.equal(a, b) for a, b in zip((logits, targets, scored), kept, strict=True))


@pytest.mark.parametrize(
    ("vocab", "smoothing"), [(2, 0.1), (7, 0.1), (7, 0.0), (7, 1.0), (1, 0.3), (50, 0.01)]
)
def test_the_floor_is_the_loss_of_the_best_logits(vocab, smoothing):
    best = torch.full((vocab,), smoothing / vocab, dtype=torch.float64)
    best[0] += 1 - smoothing
    logits = best.log().clamp_min(-1e4).view(1, 1, vocab)
    target = torch.zeros(1, 1, dtype=torch.long)
    reached = F.cross_entropy(logits[0], target[0], label_smoothing=smoothing).item()
    floor = smoothing_floor(vocab, smoothing)
    assert floor == pytest.approx(reached, abs=1e-9)
    generator = torch.Generator().manual_seed(vocab)
    for _ in range(50):  # whatever else a model says costs more
        noise = 0.1 * torch.randn(logits.shape, generator=generator, dtype=torch.float64)
        other = F.cross_entropy((logits + noise)[0], target[0], label_smoothing=smoothing)
        assert other.item() >= floor - 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cross_entropy(*example(), label_smoothing=1.5), "between 0 and 1, got 1.5"),
        (lambda: token_losses(*example()[:2], label_smoothing=-0.1), "between 0 and 1, got -0.1"),
        (lambda: smoothing_floor(10, 2.0), "between 0 and 1, got 2.0"),
        (lambda: smoothing_floor(0, 0.1), "vocab .* got 0"),
    ],
)
def test_impossible_settings_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
