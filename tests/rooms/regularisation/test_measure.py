"""Masks that are all there, places that act alone, and what the chapter measures against other ways to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray
from measured_book.evidence.results import load_results
from measured_book.rooms.regularisation import measure, reading
from measured_book.rooms.regularisation.measure import (
    PLACES,
    connections_dropped,
    drop_only_at,
    every_mask,
    smoothed_ideal,
    stream_noise,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.losses import smoothing_floor, token_losses
from measured_transformer.training.seeding import seeded
from measured_transformer.variants.dropout import drop_behind
from torch import nn

RESULTS = load_results("regularisation")
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


def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid() -> None:
    jobs = measure.remedies_trainings(0) | measure.behind_trainings(0)
    for job in jobs.values():
        assert measure.RATES[0] < job.settings["learning_rate"] < measure.RATES[-1]


def test_connections_are_dropped_each_by_a_coin_of_its_own() -> None:
    x, weights = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    kept = torch.tensor([[True, False]] + [[False, True]] * 7)
    found = connections_dropped(x, weights, kept, 0.5)
    assert found[:, 0].tolist() == [2.0] + [4.0] * 7  # its own masks, each entry doubled
    assert found[:, 1].tolist() == [4.0] * 7 + [2.0]  # the masks of others


@pytest.mark.parametrize("passes", measure.PASSES)
def test_seen_pairs_are_seen_and_unseen_ones_are_not(passes: str) -> None:
    def rows(batch) -> set[tuple[int, ...]]:
        return {tuple(row) for row in batch.source.tolist()}

    old, new = measure.seen(passes, 3), measure.unseen(passes, 3)
    size = {"40": 160, "10": 640, "4": 1600, "new": 1024}[passes]
    assert len(old.source) == size
    assert len(new.source) == 1024
    task = measure.data(passes, 3)
    drawn = task.batch(measure.make_generator(3, "training"), measure.BATCH)
    if passes == "new":
        with_last = [
            task.batch(generator, 32)
            for generator in [measure.make_generator(3, "training")]
            for _ in range(200)
        ]
        assert torch.equal(old.source[-32:], with_last[-1].source)
    else:
        assert isinstance(task, FixedSet)
        assert rows(drawn) <= rows(old)
        assert not rows(new) & rows(old)


def test_each_seed_stops_where_the_others_do_best() -> None:
    curve = xarray.DataArray(
        [[3.0, 1.0, 2.5], [3.0, 2.0, 1.0], [3.0, 1.0, 2.6]],
        coords={"seed": [0, 1, 2], "step": [10, 20, 30]},
        dims=("seed", "step"),
    )
    remedies = xarray.Dataset({"curve": curve, "held": curve.isel(step=-1, drop=True) + 0.5})
    remedies = remedies.expand_dims(arm=["none"])
    found = reading.stopped(remedies)
    assert found.values.tolist() == pytest.approx([1.5, 2.5, 1.5])


def test_the_settled_length_and_turn_are_those_of_many_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(2000, generator=generator, dtype=torch.float64)
    rate, decay = 0.02, 0.5
    for _ in range(1500):
        before = w
        push = torch.randn(2000, generator=generator, dtype=torch.float64)
        push -= (push @ w) / (w @ w) * w
        w = (1 - rate * decay) * w + rate * push / push.norm()
    assert float(w.norm()) == pytest.approx(rate / math.sqrt(1 - 0.99**2), rel=1e-3)
    turn = math.acos(float(torch.cosine_similarity(w, before, dim=0)))
    assert turn == pytest.approx(math.acos(0.99), rel=1e-3)
    assert measure.equilibrium_turn(rate, decay, 0.0) == pytest.approx(turn, rel=0.01)


def test_momentum_shortens_the_turn_as_the_formula_says() -> None:
    """A long random walk of AdamW: signs as directions, averaged with a momentum."""
    generator = torch.Generator().manual_seed(1)
    w, average, rate, decay = torch.zeros(4000, dtype=torch.float64), 0.0, 0.02, 0.5
    turns = []
    for step in range(2000):
        signs = torch.randint(2, (4000,), generator=generator).double() * 2 - 1
        average = 0.9 * average + 0.1 * signs
        after = (1 - rate * decay) * w - rate * average
        if step >= 1500:
            turns.append(math.acos(float(torch.cosine_similarity(after, w, dim=0))))
        w = after
    assert np.mean(turns) == pytest.approx(measure.equilibrium_turn(rate, decay, 0.9), rel=0.05)


def test_bins_hold_all_answers_and_give_back_the_error() -> None:
    remedies = RESULTS["remedies"]
    assert np.allclose(remedies.share.sum("bin"), 1)
    assert np.allclose(abs(remedies.kept - remedies.promised).sum("bin"), remedies.calibration)
    assert np.allclose(remedies.kept.sum("bin"), remedies.tokens)


def test_the_last_look_is_near_the_score_at_the_end() -> None:
    remedies = RESULTS["remedies"]
    assert abs(remedies.curve.isel(step=-1) - remedies.held).max() < 0.5
    assert abs(remedies.curve.isel(step=-1) - remedies.held).mean() < 0.1
