"""Gradients that are made equal parameter by parameter, against the untouched ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.analysis.early_stopping import train_until_solved
from measured_transformer.chapters.norm_gradients.measure import (
    EqualRates,
    Watched,
    equal_by_kind,
    equal_gradients,
    first_gradients,
    gradient_lengths,
    solve_arms,
)
from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm

TASK = Reversal(vocab=5, length=5)
POST = Config(vocab=5, d_model=16, n_layers=3, n_heads=2, activation="relu", placement="post")
BATCH = TASK.batch(make_generator(0, "test"), 16)


def gradients(prepare=None):
    model = make_model(POST, causal=False, seed=0)
    if prepare is not None:
        prepare(model)
    cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.scored).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def test_every_parameter_is_as_long_in_one_block_as_in_the_others():
    plain, equal = gradients(), gradients(equal_by_kind)
    inner = [name.removeprefix("blocks.0.") for name in plain if name.startswith("blocks.0.")]
    before = []
    for name in inner:
        was = [plain[f"blocks.{i}.{name}"] for i in range(3)]
        now = [equal[f"blocks.{i}.{name}"] for i in range(3)]
        lengths = [float(g.norm()) for g in was]
        if min(lengths) < 1e-7:  # rounding, such as the gradient of a key's bias
            continue
        before.append(max(lengths) / min(lengths))
        expected = float(np.exp(np.log(lengths).mean()))
        assert [float(g.norm()) for g in now] == pytest.approx([expected] * 3, rel=1e-4), name
        for a, b in zip(was, now, strict=True):
            assert torch.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.9999
    assert max(before) > 2  # so that there was something to do


def test_what_stands_outside_of_the_blocks_is_left_alone():
    plain, equal = gradients(), gradients(equal_by_kind)
    for name in plain:
        if not name.startswith("blocks."):
            assert torch.equal(plain[name], equal[name])


def test_an_encoder_decoder_is_refused():
    model = make_model(POST, causal=True, source=True, seed=0)
    with pytest.raises(ValueError, match="Encoder or a Decoder"):
        equal_by_kind(model)


def test_the_first_gradients_are_those_that_a_training_meets():
    options = {"steps": 1, "learning_rate": 1e-3, "batch_size": 16, "seed": 4}
    watched = gradient_lengths(train(POST, TASK, prepare=Watched((0,)), **options).model)
    model = make_model(POST, causal=False, seed=4)
    found = first_gradients(model, TASK.batch(make_generator(4, "training"), 16))
    assert set(found) == set(watched)
    for name in found:
        assert found[name] == pytest.approx(watched[name], rel=1e-4, abs=1e-9), name
    assert all(weight.grad is None for weight in model.parameters())


SMALL = Reversal(vocab=3, length=3)
CONFIG = Config(vocab=3, d_model=16, n_layers=1, n_heads=2, activation="relu")
TWO = CONFIG.replace(n_layers=2)  # one block has nothing to be made equal to
OPTIONS = {"learning_rate": 1e-2, "batch_size": 16, "schedule": Constant(warmup=10)}


def same(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("prepare", [None, equal_gradients, EqualRates(SMALL, size=8)])
@pytest.mark.parametrize("optimiser", ["AdamW", "SGD"])
def test_a_run_that_stops_is_the_beginning_of_the_whole_one(prepare, optimiser):
    options = {**OPTIONS, "prepare": prepare, "optimiser": optimiser}
    whole = train(TWO, SMALL, steps=60, seed=3, **options)
    part = train_until_solved(TWO, SMALL, 3, steps=60, look_every=13, **options)
    n = len(part.losses)
    assert np.array_equal(part.losses, whole.losses[:n])
    assert same(part, train(TWO, SMALL, steps=n, seed=3, **options))
    if prepare is not None:  # it changes something, also behind the first look
        bare = train(TWO, SMALL, steps=60, seed=3, **{**options, "prepare": None})
        assert not np.array_equal(bare.losses[:n], part.losses)


def test_arms_get_the_rate_that_was_tuned_and_their_own_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arms = {"plain": CONFIG, "SGD": Arm(CONFIG, {"optimiser": "SGD"})}
    options = {"batch_size": 8, "schedule": Constant(warmup=5)}
    grid = {"steps": 60, "tuned_at": 12, "rates": (1e-5, 1e-2)}
    found = solve_arms("test", arms, SMALL, profile=Profile(), quick=2, **grid, **options)
    assert [len(runs) for runs in found.values()] == [2, 2]
    assert [run.seed for run in found["plain"]] == Profile().seeds(quick=2)
    assert found["plain"][0].rates.max() == pytest.approx(1e-2)
    again = train(CONFIG, SMALL, steps=60, seed=0, learning_rate=1e-2, optimiser="SGD", **options)
    first = found["SGD"][0].losses
    assert np.array_equal(first, again.losses[: len(first)])
