"""Lag: the rule is followed as often as it says, and its best losses are what they should be."""

import math

import pytest
import torch
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.task import Batch, Task


def drawn(task, size, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@pytest.mark.parametrize("lag", [1, 2, 3, 7])
def test_the_rule_is_followed_as_often_as_it_says(lag):
    task = Lag(vocab=8, length=24, lag=lag, fidelity=0.6)
    batch = drawn(task, 3000)
    image = task.permutation()
    assert sorted(image.tolist()) == list(range(8))
    whole = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)
    assert torch.equal(whole[:, 1:], batch.targets)
    right = (whole[:, lag:] == image[whole[:, :-lag]]).double()
    expected = 0.6 + 0.4 / 8
    spread = math.sqrt(expected * (1 - expected) / 3000)
    assert (right.mean(0) - expected).abs().max() < 5 * spread, "at every position alike"
    for other in {1, 2, 3, 5, 7} - {lag}:
        apart = (whole[:, other:] == image[whole[:, :-other]]).double().mean().item()
        assert abs(apart - 1 / 8) < 0.05, "no other distance tells anything"


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_scored_are_the_positions_where_the_rule_applies(lag):
    task = Lag(vocab=5, length=9, lag=lag, fidelity=1.0)
    batch = drawn(task, 200)
    assert batch.scored.shape == (200, 9)
    assert batch.scored[0].tolist() == [t >= lag - 1 for t in range(9)]
    image = task.permutation()
    for t in range(lag - 1, 9):  # with full fidelity, the answer stands lag - 1 positions back
        assert torch.equal(batch.targets[:, t], image[batch.inputs[:, t - lag + 1]])
    for t in range(lag - 1):  # before, it is drawn at random
        counts = torch.bincount(batch.targets[:, t], minlength=5) / 200
        assert (counts - 0.2).abs().max() < 5 * math.sqrt(0.16 / 200)


def test_ideal_loss_of_large_batches_is_the_bayes_loss():
    task = Lag(vocab=8, length=10, lag=3, fidelity=0.7)
    losses = task.ideal_loss(drawn(task, 20000))
    assert losses[:2].isnan().all()
    right, wrong = -math.log(0.7 + 0.3 / 8), -math.log(0.3 / 8)
    p = 0.7 + 0.3 / 8
    spread = (wrong - right) * math.sqrt(p * (1 - p) / 20000)
    assert (losses[2:] - task.bayes_loss()).abs().max() < 5 * spread


def test_ideal_loss_is_the_mean_of_the_chances_of_this_very_batch():
    task = Lag(vocab=4, length=5, lag=2, fidelity=0.5)
    batch = drawn(task, 6)
    image = task.permutation().tolist()
    for t in range(1, 5):
        total = 0.0
        for row, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            chances = [0.5 / 4] * 4
            chances[image[row[t - 1]]] += 0.5
            assert sum(chances) == pytest.approx(1)
            total -= math.log(chances[answers[t]])
        assert task.ideal_loss(batch)[t].item() == pytest.approx(total / 6, abs=1e-12)


@pytest.mark.parametrize(("vocab", "fidelity"), [(2, 0.5), (32, 0.8), (10, 0.0), (10, 1.0)])
def test_bayes_loss_is_the_entropy_of_the_next_token(vocab, fidelity):
    chances = [(1 - fidelity) / vocab] * vocab
    chances[0] += fidelity
    entropy = -sum(p * math.log(p) for p in chances if p)
    task = Lag(vocab=vocab, fidelity=fidelity)
    assert task.bayes_loss() == pytest.approx(entropy, abs=1e-12)


def test_the_rule_belongs_to_the_task_and_not_to_the_batch():
    assert torch.equal(Lag().permutation(), Lag().permutation())
    assert not torch.equal(Lag().permutation(), Lag(rule_seed=1).permutation())
    a, b = drawn(Lag(), 4), drawn(Lag(), 4)
    assert torch.equal(a.inputs, b.inputs)
    assert torch.equal(a.targets, b.targets)
    assert not torch.equal(a.inputs, drawn(Lag(), 4, seed=1).inputs)
    state = torch.random.get_rng_state()
    drawn(Lag(), 4)
    Lag().permutation()
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator is not touched"


def test_nothing_changes_a_batch():
    task = Lag(length=8)
    batch = drawn(task, 4)
    kept = batch.inputs.clone(), batch.targets.clone(), batch.scored.clone()
    task.ideal_loss(batch)
    moved = batch.to("cpu")
    for tensor, then in zip((batch.inputs, batch.targets, batch.scored), kept, strict=True):
        assert torch.equal(tensor, then)
    assert isinstance(moved, Batch)
    assert torch.equal(moved.inputs, batch.inputs)
    assert batch.to("meta").scored.device.type == "meta"


def test_it_is_a_task_for_a_model_that_must_not_see_ahead():
    assert isinstance(Lag(), Task)
    assert Lag.causal is True
    assert drawn(Lag(length=8), 4, length=20).inputs.shape == (4, 20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Lag(vocab=0), "vocab .* got 0"),
        (lambda: Lag(lag=0), "lag .* got 0"),
        (lambda: Lag(length=True), "length .* got True"),
        (lambda: Lag(fidelity=1.5), "probability, got 1.5"),
        (lambda: Lag(fidelity=-0.1), "probability, got -0.1"),
        (lambda: Lag(length=2, lag=3), "at least lag=3, got 2"),
        (lambda: drawn(Lag(lag=3), 4, length=2), "at least lag=3, got 2"),
        (lambda: drawn(Lag(), 0), "size .* got 0"),
    ],
)
def test_impossible_tasks_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
