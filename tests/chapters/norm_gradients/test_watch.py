"""The watch on gradients and what levels them, against gradients taken by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.chapters.norm_gradients.measure import (
    KINDS,
    EqualRates,
    Watched,
    by_block,
    by_kind,
    equal_gradients,
    gradient_lengths,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.norms import zero_branches

TASK = Reversal(vocab=5, length=5)
SMALL = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, activation="relu")
POST = SMALL.replace(placement="post")


def fresh(config=SMALL, seed=0):
    return make_model(config, causal=False, seed=seed)


def tokens(size=3, seed=0):
    return TASK.batch(make_generator(seed, "test"), size).inputs


@pytest.mark.parametrize("config", [SMALL, POST, SMALL.replace(tie_embeddings=True)])
def test_the_watch_sees_the_gradients_of_its_steps(config):
    run = train(
        config, TASK, steps=4, learning_rate=1e-2, seed=3, batch_size=8, prepare=Watched((0, 3))
    )
    found = gradient_lengths(run.model)
    model, batches = fresh(config, seed=3), make_generator(3, "training")
    batch = TASK.batch(batches, 8)
    cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, weight in model.named_parameters():
        assert found[name][0] == pytest.approx(float(weight.grad.norm()), rel=1e-4, abs=1e-9), name
    three = train(config, TASK, steps=3, learning_rate=1e-2, seed=3, batch_size=8).model
    for _ in range(2):
        TASK.batch(batches, 8)
    batch = TASK.batch(batches, 8)  # that of the fourth step
    three.zero_grad()
    cross_entropy(three(batch.inputs), batch.targets, batch.scored).backward()
    for name, weight in three.named_parameters():
        assert found[name][1] == pytest.approx(float(weight.grad.norm()), rel=1e-3, abs=1e-9), name


def test_the_watch_changes_nothing_and_is_stored(tmp_path):
    plain = train(SMALL, TASK, steps=5, learning_rate=1e-2, seed=1, batch_size=8)
    options = {
        "steps": 5,
        "learning_rate": 1e-2,
        "batch_size": 8,
        "prepare": Watched((0, 2), zero_branches),
    }
    (first,) = train_ensemble(SMALL, TASK, [1], store=tmp_path, **options)
    (again,) = train_ensemble(SMALL, TASK, [1], store=tmp_path, **options)
    watched = train(
        SMALL, TASK, steps=5, learning_rate=1e-2, seed=1, batch_size=8, prepare=Watched((0,))
    )
    assert np.array_equal(plain.losses, watched.losses)
    before, after = gradient_lengths(first.model), gradient_lengths(again.model)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert before["blocks.0.attention.query.weight"][0] == 0  # the variant came first


def test_an_unwatched_model_has_no_lengths():
    with pytest.raises(ValueError, match="Watched"):
        gradient_lengths(fresh())


def test_lengths_are_gathered_by_block_and_kind():
    model = fresh()
    lengths = {name: np.array([2.0, 1.0]) for name, _ in model.named_parameters()}
    whole = by_block(lengths)
    each = len(list(model.blocks[0].parameters()))
    assert whole.shape == (2, 2)
    assert whole[0] == pytest.approx(2 * math.sqrt(each))
    parts = [by_kind(lengths, kind) for kind in KINDS]
    assert np.sqrt(sum(np.square(part) for part in parts)) == pytest.approx(whole)  # nothing twice
    with pytest.raises(ValueError, match="kind must be"):
        by_kind(lengths, "bias")


def test_equal_gradients_are_equal_when_the_step_is_taken():
    batch = TASK.batch(make_generator(0, "test"), 16)

    def blocks_of(model):
        cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
        return [[w.grad.clone() for w in block.parameters()] for block in model.blocks], model

    plain, untouched = blocks_of(fresh(POST.replace(n_layers=3)))
    model = fresh(POST.replace(n_layers=3))
    equal_gradients(model)
    equal, touched = blocks_of(model)

    def length(gradients):
        return math.sqrt(sum(float(g.square().sum()) for g in gradients))

    before, after = [length(g) for g in plain], [length(g) for g in equal]
    assert max(before) > 1.05 * min(before)
    assert after == pytest.approx([math.exp(np.log(before).mean())] * 3, rel=1e-4)
    for old, new, was, now in zip(plain, equal, before, after, strict=True):
        for a, b in zip(old, new, strict=True):
            assert torch.allclose(b, a * now / was, rtol=1e-4, atol=1e-8)
    for name, weight in untouched.named_parameters():
        if not name.startswith("blocks."):
            assert torch.allclose(weight.grad, touched.get_parameter(name).grad, atol=1e-7), name


def test_equal_rates_leave_the_model_and_change_the_steps():
    model, plain = fresh(POST), fresh(POST)
    EqualRates(TASK)(model)
    x = tokens()
    with torch.no_grad():
        assert torch.allclose(model(x), plain(x), atol=1e-5)
    batch = TASK.batch(make_generator(0, "rates"), 64)
    cross_entropy(plain(batch.inputs), batch.targets, batch.scored).backward()
    lengths = [
        math.sqrt(sum(float(w.grad.square().sum()) for w in block.parameters()))
        for block in plain.blocks
    ]
    mean = math.exp(np.log(lengths).mean())
    before = [block.attention.query.weight.detach().clone() for block in model.blocks]
    updates = torch.optim.Adam(model.parameters(), lr=1e-4)
    cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    updates.step()
    for block, was, own in zip(model.blocks, before, lengths, strict=True):
        moved = (block.attention.query.weight.detach() - was).abs().median()
        assert float(moved) == pytest.approx(1e-4 * mean / own, rel=1e-2)


def test_equal_rates_come_back_from_the_store(tmp_path):
    options = {
        "steps": 3,
        "learning_rate": 1e-2,
        "batch_size": 8,
        "prepare": EqualRates(TASK, size=8),
    }
    (first,) = train_ensemble(POST, TASK, [1], store=tmp_path, **options)
    (again,) = train_ensemble(POST, TASK, [1], store=tmp_path, **options)
    x = tokens()
    with torch.no_grad():
        assert torch.equal(first.model(x), again.model(x))
