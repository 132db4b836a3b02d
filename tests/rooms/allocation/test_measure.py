"""The arithmetic of the budget agrees with the softmax, and hand-made readers with the arithmetic."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.rooms.allocation import measure
from measured_book.rooms.allocation.measure import (
    Reader,
    ReaderSizes,
    keep_largest,
    learned_margin,
    longest,
    margin_weights,
    marked,
    marked_weight,
    needed_margin,
    predicted_r_squared,
    r_squared,
    sharper,
    total_weight,
    train_reader,
)
from measured_transformer.internals.capture import capture
from measured_transformer.training import tuning


@pytest.mark.parametrize(
    ("n", "m", "margin"), [(8, 1, 2.0), (64, 5, 10.0), (512, 16, 0.0), (9, 8, -1.0)]
)
def test_total_weight_is_that_of_the_softmax(n, m, margin):
    weights = margin_weights(margin, n, m)
    assert weights.shape == (n,)
    assert weights.sum() == pytest.approx(1)
    assert total_weight(margin, n, m) == pytest.approx(weights[:m].sum(), abs=1e-12)
    assert np.ptp(weights[:m]) < 1e-15
    assert needed_margin(total_weight(margin, n, m), n, m) == pytest.approx(margin, abs=1e-9)
    assert longest(total_weight(margin, n, m), margin, m) == pytest.approx(n)


@pytest.mark.parametrize("wrong", [(8, 0), (8, 8), (4, 9)])
def test_impossible_counts_are_errors(wrong):
    for ask in (lambda n, m: total_weight(1.0, n, m), lambda n, m: needed_margin(0.9, n, m)):
        with pytest.raises(ValueError, match="fewer than all"):
            ask(*wrong)
    with pytest.raises(ValueError, match="strictly between"):
        needed_margin(1.0, 8)
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


def handmade(margin: float) -> Reader:
    """Copies values exactly; a mark adds `margin` to the score and nothing else does."""
    reader = ReaderSizes(d_value=4, d_model=5).make()
    with torch.no_grad():
        for weight in reader.parameters():
            weight.zero_()
        reader.enter.weight[:4] = torch.eye(4)
        reader.mark[4] = 1
        reader.question[4] = 1
        reader.attention.query.weight[0, 4] = margin * math.sqrt(5)
        reader.attention.key.weight[0, 4] = 1
        reader.attention.value.weight[:4, :4] = torch.eye(4)
        reader.attention.output.weight[:4, :4] = torch.eye(4)
        reader.read.weight[:, :4] = torch.eye(4)
    return reader.eval()


@pytest.mark.parametrize(("margin", "n", "m"), [(3.0, 32, 1), (3.0, 32, 10), (5.0, 200, 4)])
def test_a_known_margin_gives_the_predicted_weight_and_reading(margin, n, m):
    reader = handmade(margin)
    assert marked_weight(reader, n=n, m=m, seed=1) == pytest.approx(
        total_weight(margin, n, m), abs=1e-5
    )
    assert learned_margin(reader, n=n, m=m, seed=1) == pytest.approx(margin, abs=1e-3)
    found = r_squared(reader, n=n, m=m, seed=1, rows=2000)
    assert found == pytest.approx(predicted_r_squared(margin, n, m), abs=0.03)
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


@pytest.mark.parametrize("name", measure.ARMS)
def test_every_arm_has_a_rate_inside_the_grid(name):
    found = measure.tried_rates(name)
    assert sorted(found) == sorted(measure.RATES)
    assert all(len(losses) == 2 for losses in found.values())
    assert min(measure.RATES) < measure.tuned_rate(name) < max(measure.RATES)


def test_the_best_rate_is_the_one_that_learns_and_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "build_table", lambda: tmp_path / "tuned.jsonl")
    monkeypatch.setattr(measure, "RATES", (1e-6, 1e-2))
    monkeypatch.setattr(measure, "STEPS", 150)
    arms = {
        "some": measure.Arm(ReaderSizes(d_value=4, d_model=12), 8, (2, 2)),
        "other": measure.Arm(ReaderSizes(d_value=4, d_model=12), 9, (2, 2)),
    }
    monkeypatch.setattr(measure, "ARMS", arms)
    assert measure.tuned_rate("some") == 1e-2
    monkeypatch.setattr(measure, "marked", unexpected)
    assert measure.tuned_rate("some") == 1e-2
    with pytest.raises(AssertionError, match="trained"):
        measure.tuned_rate("other")


def unexpected(*_, **__):
    raise AssertionError("trained although it was known")


def test_a_row_without_marks_has_the_answer_zero():
    data = marked(torch.Generator().manual_seed(1), 50, 8, (0, 1), width=3)
    none = data.marks.sum(1) == 0
    assert 0 < int(none.sum()) < 50
    assert (data.answers[none] == 0).all()
    assert (data.answers[~none] != 0).any(1).all()


def with_start(margin: float, start: float) -> Reader:
    """The reader made by hand, and a start token without a value whose score is `start`."""
    plain = handmade(margin)
    reader = ReaderSizes(d_value=4, d_model=5, start=True).make()
    reader.load_state_dict(
        {**plain.state_dict(), "start": torch.tensor([0, 0, 0, 0, start / margin])}
    )
    return reader.eval()


def test_a_start_token_takes_what_is_left_over():
    reader = with_start(20.0, 10.0)
    assert measure.start_weight(reader, n=16, m=0, seed=0) > 0.99
    assert measure.start_weight(reader, n=16, m=1, seed=0) < 0.01
    assert measure.reading_error(reader, n=16, m=0, seed=0) < 1e-4
    without = measure.reading_error(handmade(20.0), n=16, m=0, seed=0, rows=4000)
    assert without == pytest.approx(1 / 16, rel=0.05)
    start, other = measure.value_sizes(reader, n=16, seed=0)
    assert start == 0
    assert other == pytest.approx(1, rel=0.05)


def test_a_start_token_is_seen_whatever_is_hidden():
    reader = with_start(20.0, 10.0)
    data = marked(torch.Generator().manual_seed(1), 6, 8, 1, width=4)
    with capture(reader, "attention.pattern") as seen:
        reader(data, seen=~data.marks)
    assert (seen["attention.pattern"][..., 0] > 0.99).all()


def test_rollout_is_that_of_repeated_mixing():
    for force in measure.FORCES:
        share = measure.contributions(force)
        assert share.sum() == pytest.approx(1)
        assert (share >= 0).all()
    # one token's share by hand: every path of four steps from the last place to the first
    n = measure.MIDDLE
    rows = np.zeros(n)
    rows[-1] = 1.0
    for _ in range(measure.DEPTH):
        rows = np.array(
            [rows[j] / 2 + sum(rows[i] / (2 * (i + 1)) for i in range(j, n)) for j in range(n)]
        )
    assert measure.contributions("causal mask") == pytest.approx(rows)
    both = measure.contributions("both")[:-1]
    assert both[0] > 2 * both.min() < both[-1]


def test_results_are_of_this_code_and_say_what_the_page_says():
    reading = load_result("allocation", "reading")
    error = (reading.read - reading.predicted).mean("seed")
    assert abs(error).max() < 0.02
    alone = reading.read.sel(needed=1, tokens=2048)
    assert (alone < reading.read.sel(needed=10, tokens=2048)).all()
    nothing = load_result("allocation", "nothing")
    left = nothing.error.sel(marked=0)
    assert (left.sel(reader="start") < 0.1 * left.sel(reader="plain")).all()
