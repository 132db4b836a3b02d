"""Evenness, following, sharing and similarity give the known answer where the answer is known."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.handmade import heads_model, induction_model, uniform_model
from measured_transformer.chapters.training_attention.measure import (
    carried_lengths,
    evenness,
    follow,
    fresh_pattern,
    head_evenness,
    model_evenness,
    predicted_evenness,
    score_gradient,
    score_variance,
    self_similarity,
    spent,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.spaced_recall import SpacedRecall
from measured_transformer.training.loop import train


def drawn(task, size=32, seed=0):
    return task.batch(torch.Generator().manual_seed(seed), size)


def test_evenness_counts_what_may_be_seen():
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    pattern = causal / causal.sum(-1, keepdim=True)
    found = evenness(pattern, causal)
    assert math.isnan(found[0])  # it sees only itself
    assert torch.allclose(found[1:], torch.ones(3))
    half = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    assert evenness(half).item() == pytest.approx(0.5)


def test_models_with_known_heads_have_the_evenness_of_their_heads():
    task = Reversal(vocab=5, length=6)
    assert model_evenness(uniform_model(vocab=5, length=6), drawn(task)) == pytest.approx(1)
    assert model_evenness(heads_model(["mirror"], vocab=5, length=6), drawn(task)) < 1e-6
    both = heads_model(["mirror", "uniform"], vocab=5, length=6)
    assert model_evenness(both, drawn(task)) == pytest.approx(0.5)


def test_each_head_has_its_own_evenness():
    task = Reversal(vocab=5, length=6)
    both = heads_model(["mirror", "uniform"], vocab=5, length=6)
    found = head_evenness(both, drawn(task))
    assert found.shape == (1, 2)
    assert found[0] == pytest.approx([0, 1], abs=1e-6)


def test_only_scored_positions_count_for_evenness():
    recall = AssociativeRecall(pairs=3, queries=1, keys=5, values=4)
    model, batch = induction_model(vocab=recall.vocab, length=recall.length), drawn(recall)
    assert head_evenness(model, batch).max() < 1e-6  # elsewhere its second head finds no copy


def test_the_gradient_of_scores_is_that_of_autograd():
    generator = torch.Generator().manual_seed(0)
    for n, width in ((1, 3), (2, 1), (7, 4)):
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        scores = draw(5, n).requires_grad_()
        values, upstream = draw(5, n, width), draw(5, width)
        mixed = (scores.softmax(-1)[..., None] * values).sum(1)
        (mixed * upstream).sum().backward()
        found = score_gradient(scores.detach().softmax(-1), values, upstream)
        assert torch.allclose(found, scores.grad, atol=1e-12)
        assert torch.allclose(found.sum(-1), torch.zeros(5, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("weights", ["xavier", "torch", "small"])
def test_fresh_scores_have_the_variance_that_their_weights_say(weights):
    pattern = fresh_pattern(weights, 64, 128, seed=3, rows=16)
    assert torch.allclose(pattern.sum(-1), torch.ones(16, 128), atol=1e-5)
    found = pattern.log().var(-1).mean().item()  # of the scores, up to what all share
    assert found == pytest.approx(score_variance(weights, 64), rel=0.1)
    if weights != "xavier":
        even = evenness(pattern).mean().item()
        assert even == pytest.approx(
            predicted_evenness(score_variance(weights, 64), 128), abs=0.003
        )


def test_following_is_one_training():
    task = Lag(vocab=5, length=6)
    config = Config(vocab=5, d_model=8, n_layers=1, n_heads=1)
    options = {"learning_rate": 0.01, "batch_size": 4, "evaluate_every": 2}
    followed = dict(follow(config, task, (0, 2, 5), seed=1, **options))
    for steps, run in followed.items():
        alone = train(config, task, steps=steps, seed=1, **options)
        assert len(run.losses) == steps
        for left, right in zip(run.model.parameters(), alone.model.parameters(), strict=True):
            assert torch.equal(left, right)
    with pytest.raises(ValueError, match="rising"):
        list(follow(config, task, (4, 2), seed=1, **options))


def test_an_induction_pair_spends_all_on_what_is_needed():
    recall = AssociativeRecall(pairs=3, queries=1, keys=5, values=4)
    model, batch = induction_model(vocab=recall.vocab, length=recall.length), drawn(recall)
    last = spent(model, batch, block=1, before=0)
    assert last.needed == pytest.approx(1)
    first = spent(model, batch, block=0, before=0)  # looks one place back: a value of the last pair
    back = (batch.gold["value"][:, -1] == 5).double().mean().item()
    assert first.needed == pytest.approx(back)
    assert first.distractors == pytest.approx(1 - back)


@pytest.mark.parametrize("written", [False, True])
def test_an_even_head_spends_by_the_number_of_places(written):
    task = SpacedRecall(pairs=3, queries=1, keys=5, values=4, before=2)
    model = uniform_model(vocab=task.vocab, length=task.length, causal=True)
    found = spent(model, drawn(task), block=0, before=2, written=written)
    assert found == pytest.approx((2 / 9, 4 / 9, 2 / 9, 1 / 9), abs=1e-6)  # equally long values


def test_what_is_written_counts_the_length_of_values():
    task = SpacedRecall(pairs=3, queries=1, keys=5, values=4, before=2)
    model = uniform_model(vocab=task.vocab, length=task.length, causal=True)
    weight = model.get_parameter("blocks.0.attention.value.weight")
    with torch.no_grad():
        weight[:, task.vocab - 1] = 0  # a filler's value is nothing
    found = spent(model, drawn(task), block=0, before=2, written=True)
    assert found == pytest.approx((2 / 7, 4 / 7, 0, 1 / 7), abs=1e-6)
    assert spent(model, drawn(task), block=0, before=2).spare == pytest.approx(2 / 9)


def test_carried_lengths_are_those_of_each_heads_output():
    model = heads_model(["previous", "first"], vocab=4, length=5, causal=True)
    name = "blocks.0.attention"
    with capture(model, f"{name}.values") as seen:
        model(torch.tensor([[0, 1, 2, 3, 0]]))
    values = 3 * seen[f"{name}.values"]
    found = carried_lengths(values, model.get_parameter(f"{name}.output.weight"))
    assert found.shape == (1, 2, 5)
    assert torch.allclose(found, torch.full_like(found, 3))


def test_a_word_is_like_itself_until_its_neighbours_are_mixed_in():
    tokens = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]])
    model = heads_model(["previous"], vocab=3, length=4, causal=True)
    with torch.no_grad():
        model.get_parameter("positions.table").zero_()  # only words are left in the stream
    found = self_similarity(model, tokens)
    assert found.same[0] == pytest.approx(1)
    words = tokens.flatten()
    rows = torch.arange(3).repeat_interleave(4)
    apart = rows[:, None] != rows
    chance = (words[:, None] == words)[apart].double().mean().item()
    assert found.random[0] == pytest.approx(chance)
    assert found.adjusted[0] == pytest.approx(1 - chance)
    assert found.same[1] < 1
    assert np.allclose(found.adjusted, found.same - found.random)
