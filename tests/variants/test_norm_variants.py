"""Other places for a norm, against what they should compute."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.gradients import equal_gradients
from measured_transformer.variants.norms import (
    deep_norm,
    head_norms,
    sandwich,
    zero_branches,
)
from torch.nn import functional as F

TASK = Reversal(vocab=5, length=5)
SMALL = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, activation="relu")
POST = SMALL.replace(placement="post")


def fresh(config=SMALL, seed=0):
    return make_model(config, causal=False, seed=seed)


def tokens(size=3, seed=0):
    return TASK.batch(make_generator(seed, "test"), size).inputs


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def test_a_sandwich_norms_what_is_read_and_what_is_written():
    model = fresh()
    sandwich(model)
    with torch.no_grad(), capture(model, "blocks.*.residual_*") as seen:
        model(tokens())
    block = model.blocks[1]
    x = seen["blocks.1.residual_pre"]
    with torch.no_grad():
        plain = fresh().blocks[1]
        middle = x + norm(plain.attention(norm(x)))
        after = middle + norm(plain.feedforward(norm(middle)))
    assert torch.allclose(seen["blocks.1.residual_mid"], middle, atol=1e-5)
    assert torch.allclose(seen["blocks.1.residual_post"], after, atol=1e-5)
    learned = {name for name, _ in block.named_parameters() if "written_norm" in name}
    assert len(learned) == 4  # weight and bias, for both branches


def test_norms_on_queries_and_keys_hold_each_head_to_one_length():
    model = fresh(SMALL.replace(norm="none"))
    head_norms(model)
    with torch.no_grad(), capture(model, "blocks.0.attention.*") as seen:
        model(tokens())
    for name in ("queries", "keys"):
        heads = seen[f"blocks.0.attention.{name}"]
        width = heads.shape[-1]
        assert torch.allclose(heads.norm(dim=-1), torch.tensor(math.sqrt(width)), atol=1e-2)
        assert torch.allclose(heads.mean(-1), torch.zeros(()), atol=1e-5)
    values = seen["blocks.0.attention.values"].norm(dim=-1)
    assert values.std() > 0.05 * values.mean()  # values stay as they are


def test_deep_norm_is_its_formula():
    model, plain = fresh(POST), fresh(POST)
    deep_norm(model)
    layers = POST.n_layers
    alpha, beta = (2 * layers) ** 0.25, (8 * layers) ** -0.25
    with torch.no_grad():
        for block in plain.blocks:
            for part in (
                block.attention.value,
                block.attention.output,
                block.feedforward.up,
                block.feedforward.down,
            ):
                part.weight.mul_(beta)
        with capture(model, "blocks.*.residual_*") as seen:
            model(tokens())
        block, x = plain.blocks[0], seen["blocks.0.residual_pre"]
        middle = norm(alpha * x + block.attention(x))
        after = norm(alpha * middle + block.feedforward(middle))
    assert torch.allclose(seen["blocks.0.residual_mid"], middle, atol=1e-4)
    assert torch.allclose(seen["blocks.0.residual_post"], after, atol=1e-4)
    assert torch.equal(
        model.blocks[0].attention.query.weight, fresh(POST).blocks[0].attention.query.weight
    )


def test_deep_norm_wants_post_norm():
    with pytest.raises(ValueError, match="post-norm"):
        deep_norm(fresh(SMALL))


def test_zero_branches_leave_the_stream_alone():
    model = fresh(SMALL.replace(norm="none"))
    zero_branches(model)
    with torch.no_grad(), capture(model, "embedding", "blocks.1.residual_post") as seen:
        model(tokens())
    assert torch.equal(seen["embedding"], seen["blocks.1.residual_post"])


def test_models_with_norms_on_heads_can_be_trained_as_one():
    task, settings = Reversal(vocab=8, length=6), {"steps": 3, "learning_rate": 1e-2}
    config = Config(vocab=8, d_model=16, n_heads=2, n_layers=1, max_length=6)
    runs = train_stacked(config, task, [0, 10], prepare=head_norms, **settings)
    for run in runs:
        alone = train(config, task, seed=run.seed, prepare=head_norms, **settings)
        np.testing.assert_allclose(run.losses, alone.losses, rtol=1e-4)


def test_an_encoder_decoder_is_refused():
    config = SMALL
    model = make_model(config, causal=True, source=True, seed=0)
    for change in (sandwich, head_norms, zero_branches, equal_gradients):
        with pytest.raises(ValueError, match="Encoder or a Decoder"):
            change(model)
