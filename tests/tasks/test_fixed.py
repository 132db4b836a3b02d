"""A fixed set: training meets nothing else, held-out sequences are never in it."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.numbers import NumberTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import SourceTask, SplitTask, held_out
from measured_transformer.training.loop import evaluate, train

NOISY = NoisyTranslation(symbols=5, length=8, pad_share=0.4, noise=0.3)


def drawn(task, size=200, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


def read(batch):
    return set(map(tuple, (batch.inputs if batch.source is None else batch.source).tolist()))


@settings(max_examples=25)
@given(size=st.integers(1, 60), seed=st.integers(0, 2**32 - 1), draw=st.integers(0, 1000))
def test_training_draws_the_set_and_nothing_else(size: int, seed: int, draw: int) -> None:
    task = FixedSet(NOISY, size=size, seed=seed)
    whole, batch = task.sequences(), drawn(task, 40, draw)
    rows = [(whole.source == source).all(1).nonzero() for source in batch.source]
    assert all(len(found) for found in rows)
    names = [f.name for f in dataclasses.fields(batch) if f.name != "gold"]
    for i, found in enumerate(rows):  # a source, and all that belongs to it, noise included
        assert any(
            all(torch.equal(getattr(batch, n)[i], getattr(whole, n)[j]) for n in names)
            and torch.equal(batch.gold["alignment"][i], whole.gold["alignment"][j])
            for j in found[:, 0].tolist()
        )


def test_every_sequence_comes_equally_often() -> None:
    task = FixedSet(Reversal(vocab=30, length=6), size=8)
    rows = task.sequences().inputs
    batch = drawn(task, 8000)
    counts = [(batch.inputs == row).all(1).sum().item() for row in rows]
    assert sum(counts) == 8000
    assert all(850 < count < 1150 for count in counts)  # 5 standard deviations


def test_the_set_is_what_its_task_draws_from_its_seed() -> None:
    task = FixedSet(NOISY, size=30, seed=7)
    expected = drawn(NOISY, 30, seed=7)
    assert torch.equal(task.sequences().source, expected.source)
    assert torch.equal(task.sequences().targets, expected.targets)
    assert read(task.sequences()) != read(FixedSet(NOISY, size=30, seed=8).sequences())


def test_nobody_can_change_the_set() -> None:
    task = FixedSet(NOISY, size=5)
    task.sequences().source.zero_()
    drawn(task).targets.zero_()
    assert torch.equal(task.sequences().targets, drawn(NOISY, 5).targets)


@pytest.mark.parametrize(
    "task",
    [FixedSet(NOISY, 300), FixedSet(Reversal(4, 5), 300), FixedSet(Lag(vocab=3, length=6), 300)],
    ids=repr,
)
def test_held_out_sequences_are_not_in_the_set_and_no_part_shares_one(task) -> None:
    train, validation, test = (
        read(drawn(part, 3000)) for part in (task, held_out(task), held_out(task, "test"))
    )
    assert len(train) > 50
    assert len(validation) > 50
    assert len(test) > 50
    assert train == read(task.sequences())
    assert not train & validation
    assert not train & test
    assert not validation & test
    if task.task == Reversal(4, 5):
        assert len(train | validation | test) == 4**5


def test_a_source_seen_with_other_noise_is_not_held_out() -> None:
    task = FixedSet(dataclasses.replace(NOISY, noise=1.0), size=400)
    assert not read(task.sequences()) & read(drawn(held_out(task), 2000))


def test_more_padding_makes_no_new_sequence() -> None:
    task = FixedSet(NOISY, size=400)
    padding = (NOISY.padding,) * 4
    longer = read(drawn(held_out(task), 2000, length=12))
    assert len(longer) > 1000
    assert not {row + padding for row in read(task.sequences())} & longer


def test_held_out_sequences_follow_the_task() -> None:
    task = held_out(FixedSet(Reversal(vocab=6, length=8), size=50))
    tokens = drawn(task, 4000).inputs
    shares = torch.stack([(tokens == token).float().mean(0) for token in range(6)])
    assert (shares - 1 / 6).abs().max() < 0.03  # 5 standard deviations
    assert not torch.equal(drawn(task, seed=1).inputs, drawn(task, seed=2).inputs)


def test_a_task_that_divides_its_items_keeps_its_parts() -> None:
    sums = ModularAddition(modulus=11, train_share=0.5)
    task = FixedSet(sums, size=30)
    assert read(task.sequences()) <= read(drawn(sums, 4000))
    for part in ("validation", "test"):
        assert read(drawn(held_out(task, part), 4000)) == read(drawn(held_out(sums, part), 4000))


def test_it_has_a_source_exactly_where_its_task_has_one() -> None:
    pairs = NumberTranslation(below=100)
    for inner in (NOISY, pairs, Reversal(), Lag()):
        task = FixedSet(inner, size=4)
        for same in (task, held_out(task), copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
            assert isinstance(same, SourceTask) == isinstance(inner, SourceTask)
            assert isinstance(same, SplitTask)
        assert (task.vocab, task.length, task.causal) == (inner.vocab, inner.length, inner.causal)
    assert FixedSet(pairs, 4).source_length == pairs.source_length


def test_a_training_learns_the_set_by_heart_and_is_scored_on_what_is_held_out() -> None:
    task = FixedSet(dataclasses.replace(NOISY, noise=1.0), size=4)
    config = Config(vocab=NOISY.vocab, d_model=32, n_layers=1)
    run = train(
        config, task, steps=80, learning_rate=1e-2, seed=3, batch_size=16, evaluate_every=80
    )
    assert isinstance(run.model, EncoderDecoder)
    known = evaluate(run.model, task, seed=3, part="train", size=32)
    new = evaluate(run.model, task, seed=3)
    assert known.loss < 0.2
    assert new.loss > 1  # targets are pure noise
    assert run.evaluation_losses[-1] == pytest.approx(new.loss)
    fresh = held_out(task).batch(torch.Generator().manual_seed(1), 8)
    assert not read(fresh) & read(task.sequences())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FixedSet(NOISY, 0), "size must be a positive whole number, got 0"),
        (lambda: FixedSet(NOISY, 5, part="all"), "train, validation, test, got 'all'"),
        (lambda: FixedSet(ModularAddition(part="test"), 5), "training part, got part='test'"),
        (lambda: drawn(FixedSet(NOISY, 5), length=9), "have length 8, got length=9"),
        (
            lambda: drawn(held_out(FixedSet(Reversal(2, 2), 200))),
            "no sequence for validation outside of the 200",
        ),
    ],
)
def test_what_cannot_be_is_refused(unhooked, call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
