"""Instruments look at what training gives: trained on a CUDA device (the fake one), looked at on the CPU.

Every preparation of `train` that the library has is trained with for some steps, and the instruments that
chapters use on trained models are used as chapters use them, with batches of the CPU.
"""

import numpy as np
import pytest
import torch
from fake_cuda import fake_cuda, fakes_in
from measured_book.rooms.feed_forward.measure import replaced
from measured_book.rooms.heads.paths import pair_effects
from measured_book.rooms.initialisation.measure import passage
from measured_book.rooms.layer_norm.measure import norm_divisors
from measured_book.rooms.layers.measure import rise_without
from measured_book.rooms.norm_gradients.measure import first_gradients
from measured_book.rooms.norm_gradients.measure import passage as stream_passage
from measured_book.rooms.norm_placement.measure import logit_deviation
from measured_book.rooms.one_head.pruning import gradient_importance
from measured_book.rooms.one_head.table import look
from measured_book.rooms.pieces.measure import rises_when_taken
from measured_book.rooms.projections.measure import reading
from measured_book.rooms.scale.measure import first_look
from measured_book.rooms.step_size.measure import TakesOver
from measured_book.rooms.training_attention.looking import head_entropy
from measured_book.rooms.warm_up.measure import largest_eigenvalue, snapshots
from measured_transformer.analysis.ablation import effects, heads
from measured_transformer.analysis.early_stopping import train_until_solved
from measured_transformer.analysis.extrapolation import excess_loss
from measured_transformer.analysis.gradients import stream_gradients
from measured_transformer.analysis.positions import position_r2_by_layer
from measured_transformer.analysis.residual import ledger
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import loop
from measured_transformer.training.loop import evaluate, make_model, predict, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.attention import (
    CutScores,
    FrozenScores,
    RescaledScores,
    Tied,
    learn_scale,
)
from measured_transformer.variants.component_ablation import without_attention, without_ffn
from measured_transformer.variants.dropout import drop_behind
from measured_transformer.variants.embeddings import FixedTables
from measured_transformer.variants.feedforward import with_squared_relu
from measured_transformer.variants.gradients import (
    EqualRates,
    Watched,
    equal_by_kind,
    equal_gradients,
    gradient_lengths,
)
from measured_transformer.variants.initialisation import BranchFactor, Scaled, ScaledWrites
from measured_transformer.variants.maximal_update import ScaledByWidth
from measured_transformer.variants.norms import (
    deep_norm,
    gated_branches,
    head_norms,
    sandwich,
    scaled_branches,
    t_fixup,
    tanh_norms,
    zero_branches,
)
from measured_transformer.variants.optimisers import AdamWithFilled, ZLoss
from measured_transformer.variants.positions import Band, RandomPositions, RandomTable
from measured_transformer.variants.substitutes import Instead

REVERSAL, LAG = Reversal(vocab=8, length=6), Lag(vocab=8, length=8, lag=2)
CONFIG = Config(vocab=8, d_model=16, n_layers=2, n_heads=2)
OPTIONS = {"steps": 4, "learning_rate": 0.01, "batch_size": 8}


def trained(config=CONFIG, task=REVERSAL, **options):
    return train(config, task, seed=0, **(OPTIONS | options)).model


def batch_of(task):
    return task.batch(make_generator(0, "evaluation"), 4)


def other(task):
    return task.batch(make_generator(1, "evaluation"), 4)


INSTRUMENTS = {
    "ledger": lambda: ledger(trained(), batch_of(REVERSAL).inputs),
    "head_entropy": lambda: head_entropy(trained(), batch_of(REVERSAL)),
    "effects": lambda: effects(
        m := trained(), heads(m), batch_of(REVERSAL), reference=other(REVERSAL)
    ),
    "reading": lambda: reading(
        trained(CONFIG.replace(n_layers=1, n_heads=1)), REVERSAL, seed=0, size=8
    ),
    "first_look": lambda: first_look(trained(), REVERSAL, seed=0, size=8),
    "look": lambda: look(trained(), batch_of(REVERSAL)),
    "stream_gradients": lambda: stream_gradients(trained(), batch_of(REVERSAL)),
    "rise_without": lambda: rise_without(trained(task=LAG), batch_of(LAG), other(LAG)),
    "norm_divisors": lambda: norm_divisors(trained(task=LAG), batch_of(LAG).inputs),
    "position_r2": lambda: position_r2_by_layer(trained(), REVERSAL, seed=0, size=32),
    "passage": lambda: passage(trained(), batch_of(REVERSAL)),
    "importance": lambda: gradient_importance(trained(), batch_of(REVERSAL)),
    "logit_deviation": lambda: logit_deviation(trained(), REVERSAL, seed=0),
    "excess_loss": lambda: excess_loss(trained(task=LAG), LAG, seed=0, length=12),
    "stream_passage": lambda: stream_passage(trained(), batch_of(REVERSAL)),
    "first_gradients": lambda: first_gradients(trained(), batch_of(REVERSAL)),
    "pair_effects": lambda: pair_effects(trained(), batch_of(REVERSAL)),
    "rises": lambda: rises_when_taken(trained(), batch_of(REVERSAL), other(REVERSAL)),
    "replaced": lambda: replaced(trained(), REVERSAL, seed=0, size=8),
    "until_solved": lambda: train_until_solved(
        CONFIG, REVERSAL, 0, steps=12, look_every=10, learning_rate=0.01
    ),
    "curvature": lambda: [
        largest_eigenvalue(one.model, batch_of(REVERSAL), one.divisors, tolerance=0.1)
        for one in snapshots(CONFIG, REVERSAL, [0, 2], seed=0, learning_rate=0.01)
    ],
}


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_an_instrument_looks_at_what_was_trained_there(name):
    with fake_cuda():
        found = INSTRUMENTS[name]()
    assert not fakes_in(found)


def test_internals_are_seen_and_changed_on_the_cpu():
    with fake_cuda():
        model, batch = trained(), batch_of(REVERSAL)
        with capture(model, "blocks.0.attention.pattern") as seen, torch.no_grad():
            before = predict(model, batch)
        assert seen["blocks.0.attention.pattern"].numpy().shape[0] == 4
        zeros = {"blocks.0.attention.mixed": torch.zeros_like}
        with intervene(model, zeros), torch.no_grad():
            after = predict(model, batch)
    assert not np.allclose(before.numpy(), after.numpy())


POST = CONFIG.replace(placement="post")
GIVEN = make_model(CONFIG, causal=False, seed=9)
PREPARATIONS = {
    "sandwich": (CONFIG, sandwich),
    "head_norms": (CONFIG, head_norms),
    "deep_norm": (POST, deep_norm),
    "zero_branches": (CONFIG, zero_branches),
    "equal_gradients": (CONFIG, equal_gradients),
    "equal_by_kind": (CONFIG, equal_by_kind),
    "EqualRates": (CONFIG, EqualRates(REVERSAL, size=4)),
    "Watched": (CONFIG, Watched((0, 2))),
    "scaled_branches": (CONFIG.replace(norm="none"), scaled_branches),
    "gated_branches": (CONFIG.replace(norm="none"), gated_branches),
    "t_fixup": (CONFIG.replace(norm="none"), t_fixup),
    "tanh_norms": (CONFIG, tanh_norms),
    "learn_scale": (CONFIG, learn_scale),
    "RescaledScores": (CONFIG, RescaledScores(2.0)),
    "without_attention": (CONFIG, without_attention),
    "without_ffn": (CONFIG, without_ffn),
    "AdamWithFilled": (CONFIG, AdamWithFilled(2, "second")),
    "ZLoss": (CONFIG, ZLoss()),
    "with_squared_relu": (CONFIG.replace(activation="relu"), with_squared_relu),
    "fixed": (CONFIG, Instead(attention="fixed")),
    "linear": (CONFIG, Instead(network="linear")),
    "no network": (CONFIG, Instead(network="none")),
    "FrozenScores": (CONFIG, FrozenScores()),
    "CutScores": (CONFIG, CutScores()),
    "FixedTables": (CONFIG, FixedTables()),
    "Band": (CONFIG.replace(positions="learned"), Band("fastest")),
    "RandomTable": (CONFIG.replace(positions="learned"), RandomTable()),
    "RandomPositions": (CONFIG, RandomPositions(32)),
    "tied": (CONFIG, Tied("qk")),
    "Scaled": (CONFIG, Scaled(0.5)),
    "ScaledWrites": (CONFIG, ScaledWrites("depth-index")),
    "BranchFactor": (CONFIG, BranchFactor(0.5)),
    "drop_behind": (CONFIG.replace(dropout=0.1), drop_behind),
    "TakesOver": (CONFIG, TakesOver(GIVEN, zero_branches)),
}


@pytest.mark.parametrize("name", PREPARATIONS)
def test_a_preparation_trains_there_as_it_does_here(name):
    config, prepare = PREPARATIONS[name]
    here = train(config, REVERSAL, seed=0, prepare=prepare, evaluate_every=2, **OPTIONS)
    with fake_cuda():
        there = train(config, REVERSAL, seed=0, prepare=prepare, evaluate_every=2, **OPTIONS)
        assert not fakes_in(there)
        evaluate(there.model, REVERSAL, seed=0, size=8)
    np.testing.assert_allclose(there.losses, here.losses, rtol=1e-4)
    if name == "Watched":
        for weight, lengths in gradient_lengths(here.model).items():
            np.testing.assert_allclose(
                gradient_lengths(there.model)[weight], lengths, rtol=1e-3, atol=1e-6
            )


def test_a_decoder_scaled_by_its_width_trains_there_as_it_does_here():
    config = CONFIG.replace(initialisation="gpt2", bias=False)
    prepare = ScaledByWidth("maximal-update", 8)
    here = train(config, LAG, seed=0, prepare=prepare, **OPTIONS)
    with fake_cuda():
        there = train(config, LAG, seed=0, prepare=prepare, **OPTIONS)
        assert not fakes_in(there)
    np.testing.assert_allclose(there.losses, here.losses, rtol=1e-4)


@pytest.mark.parametrize("name", ["ledger", "head_entropy", "effects", "reading", "look"])
def test_an_instrument_fails_at_a_model_that_stayed_there(monkeypatch, name):
    """As `train` gave it before: the instruments of about ten chapters fail, as on a real device."""
    kept = loop.finished

    def stays(model, history, seed):
        run = kept(model, history, seed)
        run.model.to("cuda")
        return run

    monkeypatch.setattr(loop, "finished", stays)
    with fake_cuda(), pytest.raises((RuntimeError, TypeError), match=r"same device|host memory"):
        INSTRUMENTS[name]()
