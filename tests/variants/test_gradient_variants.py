"""The watch on gradients and what makes them equal, against gradients taken by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.early_stopping import train_until_solved
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.stacked import CannotStackError, train_stacked
from measured_transformer.variants.gradients import (
    EqualRates,
    Watched,
    equal_by_kind,
    equal_gradients,
    gradient_lengths,
    trains_alone,
)
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


THREE = Config(vocab=5, d_model=16, n_layers=3, n_heads=2, activation="relu", placement="post")
BATCH = TASK.batch(make_generator(0, "test"), 16)


def gradients(prepare=None):
    model = make_model(THREE, causal=False, seed=0)
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
    model = make_model(THREE, causal=True, source=True, seed=0)
    with pytest.raises(ValueError, match="Encoder or a Decoder"):
        equal_by_kind(model)


EASY = Reversal(vocab=3, length=3)
TWO = Config(vocab=3, d_model=16, n_layers=2, n_heads=2, activation="relu")
OPTIONS = {"learning_rate": 1e-2, "batch_size": 16, "schedule": Constant(warmup=10)}


def same(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("prepare", [None, equal_gradients, EqualRates(EASY, size=8)])
@pytest.mark.parametrize("optimiser", ["AdamW", "SGD"])
def test_a_run_that_stops_is_the_beginning_of_the_whole_one(prepare, optimiser):
    options = {**OPTIONS, "prepare": prepare, "optimiser": optimiser}
    whole = train(TWO, EASY, steps=60, seed=3, **options)
    part = train_until_solved(TWO, EASY, 3, steps=60, look_every=13, **options)
    n = len(part.losses)
    assert np.array_equal(part.losses, whole.losses[:n])
    assert same(part, train(TWO, EASY, steps=n, seed=3, **options))
    if prepare is not None:  # it changes something, also behind the first look
        bare = train(TWO, EASY, steps=60, seed=3, **{**options, "prepare": None})
        assert not np.array_equal(bare.losses[:n], part.losses)


@pytest.mark.parametrize("prepare", [equal_gradients, equal_by_kind, EqualRates(EASY, size=8)])
def test_what_hangs_on_one_model_is_not_trained_in_a_stack(prepare):
    """A stack has weights of its own, on which nothing hangs: it would train as if nothing had been done."""
    options = {**OPTIONS, "steps": 2, "prepare": prepare, "after_step": trains_alone}
    with pytest.raises(CannotStackError, match="after_step"):
        train_stacked(TWO, EASY, [0, 10], **options)
    plain = train(TWO, EASY, seed=0, **{**options, "after_step": None})
    assert same(plain, train(TWO, EASY, seed=0, **options))
