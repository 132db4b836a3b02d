"""Instruments of the chapter on induction, on models and problems whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray as xr
from measured_book.evidence.results import load_results
from measured_book.rooms.induction import measure, reading
from measured_book.rooms.induction.measure import (
    NOISE,
    POINTS,
    STRINGS,
    NumberReader,
    RepeatingText,
    SomeRepeat,
    composed,
    copies,
    copying_matrix,
    descent_guess,
    fresh,
    linear_attention_guess,
    matching_matrix,
    nats,
    on_diagonal,
    patch_effects,
    prefix_matching_score,
    problems,
    ridge_guesses,
    right,
    scores,
    snippets,
    step_guesses,
    swapped,
)
from measured_transformer.analysis.handmade import induction_model
from measured_transformer.internals.capture import capture
from measured_transformer.training.seeding import make_generator

RESULTS = load_results("induction")


def strings(size: int = 40):
    return STRINGS.batch(make_generator(0, "test"), size)


def test_scores_find_the_heads_of_the_hand_made_pair() -> None:
    batch = strings()
    pair = induction_model(vocab=STRINGS.vocab, length=STRINGS.length)
    previous, prefix = scores(pair, batch)
    assert previous[0, 0] == pytest.approx(1, abs=1e-6)
    assert prefix[1, 0] == pytest.approx(1, abs=1e-6)
    assert previous[1, 0] < 0.3
    assert prefix[0, 0] < 0.2
    assert right(pair, batch) == 1


def test_prefix_matching_counts_every_earlier_copy_and_nothing_else() -> None:
    batch = strings(8)
    n = STRINGS.length
    pattern = torch.rand(8, 2, n, n, generator=make_generator(1, "pattern")).tril()
    expected = torch.zeros(2)
    for b, q in batch.scored.nonzero().tolist():
        tokens = batch.inputs[b]
        behind = [j for j in range(1, q + 1) if tokens[j - 1] == tokens[q] and j - 1 < q]
        expected += pattern[b, :, q, behind].sum(-1)
    torch.testing.assert_close(prefix_matching_score(pattern, batch), expected / batch.scored.sum())


def test_matrices_multiply_the_paths_of_a_model() -> None:
    model = fresh("attention only", 0)
    attention = [block.attention for block in model.blocks]
    e = model.embedding_scale * model.token_embedding.weight
    width, head = 8, 2
    rows = slice(head * width, (head + 1) * width)
    value, output = attention[1].value.weight[rows].T, attention[1].output.weight[:, rows].T
    by_hand = e @ value @ output @ model.unembedding.weight.T
    torch.testing.assert_close(copying_matrix(model, [head]), by_hand, atol=1e-5, rtol=1e-4)
    both = copying_matrix(model, [0]) + copying_matrix(model, [1])
    torch.testing.assert_close(copying_matrix(model, [0, 1]), both, atol=1e-5, rtol=1e-4)


def test_the_match_is_the_part_of_scores_that_comes_by_notes() -> None:
    """The key of a note alone, at each distance: scores of the model with nothing else in the stream."""
    model = fresh("attention only", 3)
    first, second = (block.attention for block in model.blocks)
    e = model.embedding_scale * model.token_embedding.weight.detach()
    rows = slice(0, 8)
    notes = e @ first.value.weight[rows].T @ first.output.weight[:, rows].T
    total = torch.zeros(16, 16)
    for offset in measure.OFFSETS:
        stream = torch.zeros(16 * 16, offset + 1, 32)
        stream[:, 0] = notes.repeat(16, 1)
        stream[:, -1] = e.repeat_interleave(16, 0)
        rotation = model.rotary(torch.arange(offset + 1)[None])
        with capture(model, "blocks.1.attention.scores") as seen, torch.no_grad():
            second(stream, causal=True, rotation=rotation)
        found = seen["blocks.1.attention.scores"][:, 0, -1, 0].view(16, 16)
        total += found / len(measure.OFFSETS)
    torch.testing.assert_close(matching_matrix(model, [0], [0]), total, atol=1e-4, rtol=1e-3)


def test_scores_of_weights_lie_in_their_range() -> None:
    model = fresh("whole blocks", 1)
    for layer in (0, 1):
        assert -1 <= copies(model, layer, 0) <= 1
    for by in "qkv":
        assert 0 < composed(model, 0, 1, by) < 1


def test_the_diagonal_is_counted() -> None:
    assert on_diagonal(torch.eye(4)) == 1
    assert on_diagonal(torch.eye(4).roll(1, 0)) == 0


def test_patching_takes_all_from_the_hand_made_pair() -> None:
    batch = strings()
    pair = induction_model(vocab=STRINGS.vocab, length=STRINGS.length)
    found = patch_effects(pair, 0, batch)
    assert found["pattern"] > 0.5
    assert found["both"] < 0.75 * (found["pattern"] + found["values"])
    assert right(pair, batch) == 1, "the model is as it was"


def test_swapping_changes_a_copy_and_only_what_is_written() -> None:
    model = fresh("attention only", 0)
    batch = strings(4)
    other = swapped(model, [(1, 1), (1, 0), (1, 2), (1, 3)])
    before = model.state_dict()["blocks.1.attention.value.weight"].clone()
    with capture(model, "blocks.1.attention.pattern") as own, torch.no_grad():
        model(batch.inputs)
    with capture(other, "blocks.1.attention.pattern") as new, torch.no_grad():
        other(batch.inputs)
    name = "blocks.1.attention.pattern"
    torch.testing.assert_close(own[name], new[name])
    assert torch.equal(before, model.state_dict()["blocks.1.attention.value.weight"])
    same = swapped(model, [(1, head) for head in range(4)])
    assert nats(same, batch) == nats(model, batch)
    assert nats(other, batch) != nats(model, batch)


def test_some_sequences_repeat_and_the_others_walk_round_the_circle() -> None:
    for share in (0.0, 0.25, 1.0):
        batch = SomeRepeat(share).batch(make_generator(2, "test"), 400)
        walks = ((batch.targets - batch.inputs) % 32 == 1).all(1)
        assert float((~walks).double().mean()) == pytest.approx(share, abs=0.07)
        assert batch.scored[walks].all()
    text = SomeRepeat(0.0).batch(make_generator(2, "test"), 50)
    assert all(len(set(row)) == len(row) for row in text.inputs.tolist())
    with pytest.raises(ValueError, match="vocab > length, got vocab=24"):
        SomeRepeat(0.5, vocab=24)
    with pytest.raises(ValueError, match="share"):
        SomeRepeat(1.5)


def test_text_repeats_in_the_share_of_windows_asked_for() -> None:
    batch = RepeatingText(1.0, shortest=12, longest=12).batch(make_generator(0, "test"), 20)
    assert torch.equal(batch.targets[:, 12:], batch.targets[:, :-12])
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    plain = RepeatingText(0.0).batch(make_generator(0, "test"), 20)
    assert not torch.equal(plain.targets[:, 12:], plain.targets[:, :-12])
    with pytest.raises(ValueError, match="share"):
        RepeatingText(-0.1)


def test_snippets_come_four_times_and_know_their_sources() -> None:
    batch = snippets(0, 10)
    source = batch.gold["source"]
    for b, q in batch.scored.nonzero().tolist()[::7]:
        j = int(source[b, q])
        assert batch.inputs[b, j - 1] == batch.inputs[b, q]
        assert batch.inputs[b, j] == batch.targets[b, q]
    assert batch.scored.sum(1).unique().tolist() == [71]


def test_ridge_and_least_squares_agree_with_the_closed_form() -> None:
    x, y = problems(make_generator(0, "test"), 6)
    for penalty in (NOISE**2, 0.0):
        found = ridge_guesses(x, y, penalty)
        assert found[:, 0].abs().max() == 0
        for b in range(6):
            for n in (1, 5):
                seen, told = x[b, :n].double(), y[b, :n].double()
                if penalty:
                    gram = seen.T @ seen + penalty * torch.eye(2)
                    w = torch.linalg.solve(gram, seen.T @ told)
                else:
                    w = torch.linalg.pinv(seen) @ told
                assert float(found[b, n]) == pytest.approx(float(x[b, n].double() @ w), abs=1e-6)


def test_no_guess_beats_ridge_regression_and_a_step_beats_nothing() -> None:
    x, y = problems(make_generator(1, "test"), 4000)

    def error(guess: torch.Tensor) -> np.ndarray:
        return (guess - y).square().mean(0).numpy()

    best = error(ridge_guesses(x, y, NOISE**2))
    assert (best[1:] < error(step_guesses(x, y))[1:]).all()
    assert (best[3:] < error(ridge_guesses(x, y, 0.0))[3:]).all()
    assert (error(step_guesses(x, y))[1:] < error(torch.zeros_like(y))[1:]).all()
    assert best[-1] > NOISE**2


def test_a_reader_of_numbers_sees_no_answer_before_it_is_asked() -> None:
    reader = NumberReader(measure.NUMBERS).eval()
    x, y = problems(make_generator(0, "test"), 2)
    with torch.no_grad():
        before = reader(x, y)
        changed = y.clone()
        changed[:, 4] += 1
        after = reader(x, changed)
    assert before.shape == (2, POINTS)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_the_example_of_the_page() -> None:
    x, y = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([2.0, 3.0]).double()
    asked = torch.tensor([3.0]).double()
    assert float(linear_attention_guess(x, y, asked, 0.1)) == pytest.approx(2.4)
    assert float(descent_guess(x, y, asked, 0.1)) == pytest.approx(2.4)
    assert float(descent_guess(x, y, asked, 0.1, steps=200)) == pytest.approx(4.8)
    assert math.exp(3) / (math.exp(3) + 3) == pytest.approx(0.870, abs=5e-4)


def test_crossings_lie_between_two_looks() -> None:
    rows = xr.DataArray(
        np.array([[4.0, 2.0, 0.0] + [0.0] * 18]),
        dims=("seed", "look"),
        coords={"seed": [0], "look": list(measure.LOOKS)},
    )
    assert float(reading._first(rows, 1.0, falls=True)[0]) == pytest.approx(30)
    assert float(reading._first(-rows, -3.0, falls=False)[0]) == pytest.approx(10)
    assert float(reading._first(rows, -1.0, falls=True)[0]) == measure.LOOKS[-1]


def test_what_the_text_calls_solved_is_solved() -> None:
    formed = RESULTS["formed"]
    assert float(formed.accuracy.sel(arm=["attention only", "whole blocks"]).min()) > 0.95
