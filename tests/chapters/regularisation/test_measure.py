"""Masks that are all there, places that act alone, and probabilities that mean what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.chapters.regularisation.measure import (
    PLACES,
    answers,
    drop_only_at,
    every_mask,
    reliability,
    smoothed_ideal,
    stream_noise,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.training.losses import smoothing_floor, token_losses
from measured_transformer.training.seeding import seeded
from measured_transformer.variants.dropout import drop_behind
from torch import nn

NOISY = NoisyTranslation(symbols=6, length=8, pad_share=0.3, noise=0.2)


def test_every_mask_comes_once_with_its_probability() -> None:
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    found = every_mask(x, 0.4, seed=1, draws=2000)
    assert len({tuple(row) for row in found.kept.tolist()}) == 8
    assert float(found.chances.sum()) == pytest.approx(1, abs=1e-14)
    for output, kept, chance in zip(found.outputs, found.kept, found.chances, strict=True):
        assert torch.allclose(output, x * kept / 0.6)
        assert float(chance) == pytest.approx(0.6 ** int(kept.sum()) * 0.4 ** int((~kept).sum()))
    assert torch.allclose(found.mean(), x, rtol=0, atol=1e-14)
    assert torch.allclose(found.variance(), 0.4 / 0.6 * x**2, rtol=0, atol=1e-13)


def test_masks_that_did_not_come_up_are_missed(unhooked) -> None:
    with pytest.raises(ValueError, match="masks did not come up in 10 draws"):
        every_mask(torch.ones(8), 0.5, seed=0, draws=10)
    with pytest.raises(ValueError, match="other than 0"):
        every_mask(torch.zeros(2), 0.5, seed=0)


def test_each_place_drops_alone() -> None:
    with seeded(0):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double().train()
        x = torch.randn(1, 4, 8, dtype=torch.float64)
    drop_only_at(layer, None, 0.5)
    still = layer(x)
    assert torch.equal(layer(x), still)
    for place in PLACES:
        drop_only_at(layer, place, 0.5)
        found = [
            layer.self_attn.dropout > 0,
            *(m.p > 0 for m in (layer.dropout, layer.dropout1, layer.dropout2)),
        ]
        assert sum(found) == 1
        assert not torch.equal(layer(x), still)
    drop_only_at(layer, "attention output", 0.999)
    heard = []
    layer.dropout1.register_forward_hook(lambda module, given, out: heard.append((given[0], out)))
    layer(x)
    assert heard[0][1].abs().sum() < heard[0][0].abs().sum() * 1000  # attention's output passes it
    with pytest.raises(ValueError, match="got 'embedding'"):
        drop_only_at(layer, "embedding", 0.5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_dropout_moves_behind_the_addition(placement: str) -> None:
    config = Config(vocab=5, d_model=8, n_layers=1, dropout=0.5, placement=placement, n_heads=2)
    model = make_model(config, causal=False, seed=0)
    inputs = torch.arange(5)[None]
    before = model.eval()(inputs)
    drop_behind(model)
    assert torch.equal(model(inputs), before), "without dropout nothing has changed"
    block = model.blocks[0].train()
    x, branch = torch.full((1, 5, 8), 3.0), torch.ones(1, 5, 8)
    with seeded(0):
        total = block._add(nn.Identity(), x, branch)
    assert set(total.flatten().tolist()) == {0.0, 8.0}


def test_noise_of_the_stream_follows_the_formula_where_nothing_is_written() -> None:
    config = Config(vocab=8, d_model=64, n_layers=3, dropout=0.2, n_heads=2)
    task = Reversal(vocab=8, length=8)

    def silent(model) -> None:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if ".output." in name or ".down." in name:
                    weight.zero_()

    model = make_model(config, causal=False, seed=0)
    model.eval()
    silent(model)
    before = stream_noise(model, task, seed=0, masks=2000)
    assert before == pytest.approx(np.full(7, 0.25), rel=0.05)  # the embedding's dropout alone
    drop_behind(model)
    behind = stream_noise(model, task, seed=0, masks=4000)
    assert behind == pytest.approx(0.8 ** -np.arange(1.0, 8) - 1, rel=0.1)
    assert not model.training


def test_answers_agree_with_the_score_of_the_loop() -> None:
    task = FixedSet(NOISY, size=50)
    config = Config(vocab=NOISY.vocab, d_model=16, n_layers=1, n_heads=2)
    run = train(config, task, steps=60, learning_rate=1e-2, seed=0, batch_size=16)
    for part in ("train", "validation", "test"):
        score = evaluate(run.model, task, seed=3, size=128, part=part)
        told = answers(run.model, task, seed=3, size=128, part=part)
        assert told.loss == pytest.approx(score.loss, abs=1e-5)
        assert told.accuracy == pytest.approx(score.accuracy)
        assert told.exact == pytest.approx(score.exact)
    assert (told.confidences <= 1).all()
    assert (told.confidences >= 1 / NOISY.vocab).all()


def test_calibration_error_by_hand() -> None:
    found = reliability([0.95, 0.95, 0.55, 0.55, 1.0], [True, False, True, True, True])
    # (0.95 + 0.95 + 1) / 3 promised, 2 of 3 kept; 0.55 promised, all kept
    expected = 0.6 * abs(2 / 3 - 2.9 / 3) + 0.4 * 0.45
    assert found.error == pytest.approx(expected)
    assert found.share[[5, 9]] == pytest.approx([0.4, 0.6])
    assert np.isnan(found.accuracy[0])


def test_a_model_that_keeps_its_promises_has_no_calibration_error() -> None:
    generator = np.random.default_rng(0)
    promised = generator.uniform(0.2, 1, 200_000)
    kept = generator.uniform(size=promised.size) < promised
    assert reliability(promised, kept).error < 0.005
    assert reliability(promised, generator.uniform(size=promised.size) < promised - 0.1).error == (
        pytest.approx(0.1, abs=0.005)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5], [True, False]), "got shapes"),
        (([], []), "at least one answer"),
        (([1.5], [True]), "between 0 and 1"),
    ],
)
def test_answers_that_do_not_fit_are_refused(unhooked, arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reliability(*arguments)


def test_the_smoothed_ideal_minimises_the_smoothed_loss() -> None:
    """Its numbers come from gradient descent on the smoothed loss over the true distribution."""
    share, v = 0.15, NOISY.vocab
    follows = 1 - NOISY.noise + NOISY.noise / NOISY.symbols
    truth = torch.zeros(v, dtype=torch.float64)
    truth[: NOISY.symbols] = NOISY.noise / NOISY.symbols
    truth[0] = follows
    losses, gaps = [], []
    for chances in (truth, torch.eye(v, dtype=torch.float64)[-1]):
        logits = torch.zeros(1, v, v, dtype=torch.float64)[:, :1].requires_grad_()
        optimiser = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12)

        def closure(chances=chances, logits=logits, optimiser=optimiser):
            optimiser.zero_grad()
            each = token_losses(
                logits.expand(1, v, v), torch.arange(v)[None], label_smoothing=share
            )
            cost = (each[0] * chances).sum()
            cost.backward()
            return cost

        optimiser.step(closure)
        said = logits.detach()[0, 0].softmax(0)
        losses.append(float(-(chances * said.log()).sum()))
        gaps.append(float(chances.max() - said[chances.argmax()]))
    tokens = NOISY.mean_tokens(NOISY.length)
    cost, gap = smoothed_ideal(NOISY, share)
    assert cost == pytest.approx((tokens * losses[0] + losses[1]) / (tokens + 1), abs=1e-6)
    assert gap == pytest.approx((tokens * gaps[0] + gaps[1]) / (tokens + 1), abs=1e-5)
    assert smoothed_ideal(NOISY, 0.0) == (pytest.approx(NOISY.bayes_loss()), 0)
    assert -math.log(1 - share + share / v) < smoothing_floor(v, share)
    with pytest.raises(ValueError, match=r"got 1\.5"):
        smoothed_ideal(NOISY, 1.5)
