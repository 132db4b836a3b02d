"""Gradients that are made equal parameter by parameter, against the untouched ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.chapters.norm_gradients.measure import (
    Watched,
    equal_by_kind,
    first_gradients,
    gradient_lengths,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator

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
