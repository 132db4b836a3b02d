"""The arithmetic of the budget agrees with the softmax, and hand-made readers with the arithmetic."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.chapters.allocation.measure import (
    Reader,
    ReaderSizes,
    keep_largest,
    learnt_lead,
    led_weights,
    longest,
    marked,
    marked_mass,
    mass,
    needed_lead,
    predicted_r_squared,
    r_squared,
    sharper,
    train_reader,
    tuned_rate,
)
from measured_transformer.evidence.profile import Profile
from measured_transformer.internals.capture import capture
from measured_transformer.training import tuning


@pytest.mark.parametrize(
    ("n", "m", "lead"), [(8, 1, 2.0), (64, 5, 10.0), (512, 16, 0.0), (9, 8, -1.0)]
)
def test_mass_is_that_of_the_softmax(n, m, lead):
    weights = led_weights(lead, n, m)
    assert weights.shape == (n,)
    assert weights.sum() == pytest.approx(1)
    assert mass(lead, n, m) == pytest.approx(weights[:m].sum(), abs=1e-12)
    assert np.ptp(weights[:m]) < 1e-15
    assert needed_lead(mass(lead, n, m), n, m) == pytest.approx(lead, abs=1e-9)
    assert longest(mass(lead, n, m), lead, m) == pytest.approx(n)


@pytest.mark.parametrize("wrong", [(8, 0), (8, 8), (4, 9)])
def test_impossible_counts_are_errors(wrong):
    for ask in (lambda n, m: mass(1.0, n, m), lambda n, m: needed_lead(0.9, n, m)):
        with pytest.raises(ValueError, match="fewer than all"):
            ask(*wrong)
    with pytest.raises(ValueError, match="strictly between"):
        needed_lead(1.0, 8)
    with pytest.raises(ValueError, match="at least one token"):
        longest(0.5, 1.0, 0)


def test_marked_rows_have_the_marks_and_answers_that_they_say():
    data = marked(torch.Generator().manual_seed(0), 500, 12, (2, 5), width=3)
    counts = data.marks.sum(1)
    assert set(counts.tolist()) == {2, 3, 4, 5}
    assert torch.equal(data.counts[:, 0], counts.float())
    for row in range(20):
        mean = data.values[row][data.marks[row]].mean(0)
        assert torch.allclose(data.answers[row], mean, atol=1e-6)
    assert (data.marks.float().mean(0) - 3.5 / 12).abs().max() < 0.1  # at any place
    with pytest.raises(ValueError, match="least <= most"):
        marked(torch.Generator(), 4, 3, 4)


def handmade(lead: float) -> Reader:
    """Copies values exactly; a mark adds `lead` to the score and nothing else does."""
    reader = ReaderSizes(d_value=4, d_model=5).make()
    with torch.no_grad():
        for weight in reader.parameters():
            weight.zero_()
        reader.enter.weight[:4] = torch.eye(4)
        reader.mark[4] = 1
        reader.question[4] = 1
        reader.attention.query.weight[0, 4] = lead * math.sqrt(5)
        reader.attention.key.weight[0, 4] = 1
        reader.attention.value.weight[:4, :4] = torch.eye(4)
        reader.attention.output.weight[:4, :4] = torch.eye(4)
        reader.read.weight[:, :4] = torch.eye(4)
    return reader.eval()


@pytest.mark.parametrize(("lead", "n", "m"), [(3.0, 32, 1), (3.0, 32, 10), (5.0, 200, 4)])
def test_a_known_lead_gives_the_predicted_mass_and_reading(lead, n, m):
    reader = handmade(lead)
    assert marked_mass(reader, n=n, m=m, seed=1) == pytest.approx(mass(lead, n, m), abs=1e-5)
    assert learnt_lead(reader, n=n, m=m, seed=1) == pytest.approx(lead, abs=1e-3)
    found = r_squared(reader, n=n, m=m, seed=1, rows=2000)
    assert found == pytest.approx(predicted_r_squared(lead, n, m), abs=0.03)
    assert r_squared(reader, n=n, m=m, seed=1, only_marked=True) == pytest.approx(1, abs=1e-6)


def test_a_window_hides_what_lies_before_it():
    reader = handmade(20.0)
    assert r_squared(reader, n=32, m=1, seed=0, rows=400, last=32) > 0.999
    half = r_squared(reader, n=32, m=1, seed=0, rows=4000, last=16)
    # where the mark is outside, the answer is the mean of sixteen others: an error of 1 + 1/16
    assert half == pytest.approx(0.5 - 0.5 / 16, abs=0.05)


def test_remedies_do_what_they_say_and_leave_nothing_behind():
    reader = handmade(4.0)
    before = r_squared(reader, n=100, m=1, seed=0)
    twice = r_squared(reader, n=100, m=1, seed=0, remedy=sharper(2.0))
    assert twice == r_squared(handmade(8.0), n=100, m=1, seed=0) or twice == pytest.approx(
        r_squared(handmade(8.0), n=100, m=1, seed=0), abs=1e-5
    )
    assert r_squared(reader, n=100, m=1, seed=0) == before
    data = marked(torch.Generator().manual_seed(3), 5, 100, 1, width=4)
    reader = handmade(4.0)
    reader.attention.key.weight.data[0, :4] = 0.01  # no ties
    with keep_largest(7)(reader), capture(reader, "attention.pattern") as seen:
        reader(data)
    pattern = seen["attention.pattern"][:, 0, 0]
    assert ((pattern > 0).sum(-1) == 7).all()
    assert (pattern[data.marks] > 0.5).all()


def test_training_reads_and_the_look_sees_it_happen():
    curve = []
    reader = train_reader(
        ReaderSizes(d_value=4, d_model=12),
        n=16,
        marks=(1, 4),
        steps=400,
        learning_rate=0.01,
        seed=0,
        look=lambda step, one: curve.append((step, r_squared(one, n=16, m=2, seed=5, rows=64))),
        every=100,
    )
    assert [step for step, _ in curve] == [0, 100, 200, 300, 400]
    assert curve[0][1] < 0.3 < 0.9 < curve[-1][1]
    assert not reader.training
    again = train_reader(
        ReaderSizes(d_value=4, d_model=12),
        n=16,
        marks=(1, 4),
        steps=400,
        learning_rate=0.01,
        seed=0,
    )
    assert torch.equal(again.mark, reader.mark)  # looking changes nothing


def test_rows_can_grow_during_the_training():
    def trained(n):
        options = {"marks": (1, 4), "steps": 10, "learning_rate": 0.01, "seed": 0}
        return train_reader(ReaderSizes(d_value=4, d_model=12), n=n, **options).mark

    assert torch.equal(trained((16, 16)), trained(16))
    assert not torch.equal(trained((8, 16)), trained(16))


def test_the_best_rate_is_the_one_that_learns_and_is_kept(monkeypatch, tmp_path):
    here = "measured_transformer.chapters.allocation.measure"
    monkeypatch.setattr(tuning, "build_table", lambda: tmp_path / "tuned.jsonl")
    sizes, how = ReaderSizes(d_value=4, d_model=12), {"m": 2, "marks": (2, 2), "steps": 150}
    profile, rates = Profile("quick", 0), (1e-6, 1e-2)
    assert tuned_rate("some", sizes, rates, profile=profile, n=8, **how) == 1e-2
    monkeypatch.setattr(f"{here}.marked", unexpected)
    assert tuned_rate("some", sizes, rates, profile=profile, n=8, **how) == 1e-2
    with pytest.raises(AssertionError, match="trained"):
        tuned_rate("some", sizes, rates, profile=profile, n=9, **how)


def unexpected(*_, **__):
    raise AssertionError("trained although it was known")
