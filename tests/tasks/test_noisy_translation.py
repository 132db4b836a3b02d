"""The noisy translation: what a pair looks like, how much is padding, and the best scores by simulation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.noisy_translation import NoisyTranslation


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@given(
    symbols=st.integers(2, 9),
    length=st.integers(5, 20),
    pad_share=st.floats(0, 0.5),
    seed=st.integers(0, 10**6),
)
def test_a_pair_word_by_word(symbols, length, pad_share, seed):
    task = NoisyTranslation(symbols, length, pad_share, noise=0.0, rule_seed=seed)
    image = task.image().tolist()
    assert sorted(image) == list(range(symbols))
    batch = drawn(task, seed=seed)
    rows = (batch.source, batch.inputs, batch.targets, batch.gold["alignment"])
    for source, inputs, targets, alignment in zip(*(t.tolist() for t in rows), strict=True):
        n = source.index(task.end)
        assert 1 <= n < length
        padding = [task.padding] * (length - n - 1)
        assert max(source[:n]) < symbols
        assert source[n + 1 :] == padding
        expected = [image[token] for token in source[:n][::-1]]
        assert targets == [*expected, task.end, *padding]
        assert inputs == [task.start, *targets[:-1]]
        assert alignment == [*range(n - 1, -1, -1), *[-1] * (length - n)]
    assert torch.equal(batch.scored, batch.targets != task.padding)
    assert torch.equal(batch.padding_mask, batch.inputs != task.padding)
    assert torch.equal(batch.source_padding_mask, batch.source != task.padding)


@pytest.mark.parametrize("pad_share", [0.2, 0.5, 0.78])
def test_the_share_of_padding_is_what_was_asked_for(pad_share):
    task = NoisyTranslation(pad_share=pad_share)
    counts = (~drawn(task, size=8000).scored).double().mean(1)
    assert abs(counts.mean() - pad_share) < 4 * counts.std() / math.sqrt(8000)
    longer = (~drawn(task, size=8000, length=40).scored).double().mean(1)
    assert abs(longer.mean() - pad_share) < 4 * longer.std() / math.sqrt(8000)


def test_tokens_stray_as_often_as_they_should():
    task = NoisyTranslation(symbols=5, noise=0.4)
    batch = drawn(task, size=3000)
    content = batch.gold["alignment"] >= 0
    meant = task.image()[batch.source.gather(1, batch.gold["alignment"].clamp_min(0)) % 5]
    right = (meant == batch.targets)[content].double()
    expected = 0.6 + 0.4 / 5
    spread = math.sqrt(expected * (1 - expected) / right.numel())
    assert abs(right.mean() - expected) < 4 * spread
    strays = batch.targets[content & (meant != batch.targets)]
    assert (torch.bincount(strays) / strays.numel() - 0.2).abs().max() < 0.03


@pytest.mark.parametrize(("pad_share", "noise"), [(0.78, 0.3), (0.2, 0.3), (0.5, 0.0), (0.5, 1.0)])
def test_the_best_scores_agree_with_chance_draws(pad_share, noise):
    task = NoisyTranslation(symbols=9, pad_share=pad_share, noise=noise)
    batch = drawn(task, size=20000)
    losses = task.ideal_losses(batch)
    assert torch.equal(losses.isnan(), ~batch.scored)
    summed = losses.nansum().item()
    assert task.bayes_loss() == pytest.approx(
        summed / batch.scored.sum().item(), rel=0.01, abs=1e-9
    )
    assert task.bayes_loss(count_padding=True) == pytest.approx(
        summed / batch.scored.numel(), rel=0.02, abs=1e-9
    )
    guess = task.image()[batch.source.gather(1, batch.gold["alignment"].clamp_min(0)) % 9]
    guess = torch.where(batch.gold["alignment"] >= 0, guess, batch.targets)  # end and padding
    right = (guess == batch.targets).double()
    assert task.bayes_accuracy() == pytest.approx(right[batch.scored].mean().item(), abs=0.01)
    assert task.bayes_accuracy(count_padding=True) == pytest.approx(right.mean().item(), abs=0.01)


@given(pad_share=st.floats(0, 0.85), noise=st.floats(0, 1))
def test_counting_padding_changes_the_scores_by_its_share_alone(pad_share, noise):
    task = NoisyTranslation(pad_share=pad_share, noise=noise)
    honest, counted = task.bayes_accuracy(), task.bayes_accuracy(count_padding=True)
    assert counted == pytest.approx(pad_share + (1 - pad_share) * honest)
    assert task.bayes_loss(count_padding=True) == pytest.approx((1 - pad_share) * task.bayes_loss())


def test_ideal_losses_are_the_costs_of_this_very_batch():
    task = NoisyTranslation(symbols=4, length=6, pad_share=0.3, noise=0.5)
    batch = drawn(task, size=8)
    image = task.image().tolist()
    for i, row in enumerate(batch.targets.tolist()):
        source = batch.source[i].tolist()
        n = source.index(task.end)
        for t, token in enumerate(row[:n]):
            chances = [0.5 / 4] * 4
            chances[image[source[n - 1 - t]]] += 0.5
            assert task.ideal_losses(batch)[i, t].item() == pytest.approx(-math.log(chances[token]))
        assert task.ideal_losses(batch)[i, n] == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NoisyTranslation(pad_share=0.95), "length=24 with pad_share=0.95"),
        (lambda: NoisyTranslation(length=2), "length=2"),
        (lambda: drawn(NoisyTranslation(), length=6), "length=6 with pad_share=0.78"),
        (lambda: NoisyTranslation(noise=1.5), "noise must lie between 0 and 1, got 1.5"),
        (lambda: NoisyTranslation(pad_share=-0.1), "pad_share must lie between 0 and 1, got -0.1"),
        (lambda: NoisyTranslation(symbols=0), "symbols .* got 0"),
        (
            lambda: NoisyTranslation().ideal_losses(NoBatch),
            "has no source: expected one that this task made",
        ),
    ],
)
def test_impossible_tasks_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()


class NoBatch:
    source = None
