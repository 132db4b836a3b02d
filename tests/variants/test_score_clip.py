"""Heads whose scores have grown past the threshold shrink to where the same scores are at it; others stay."""

import copy

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import Step, train
from measured_transformer.variants.score_clip import (
    LargestScores,
    ScoreClip,
    largest_scores,
    watch_scores,
)

CONFIG = Config(vocab=9, d_model=16, n_heads=2, n_layers=2, positions="rotary", bias=False)


def stepped(model):
    return Step(1, model, [1.0], 0.1, 1.0)


@pytest.fixture
def tokens():
    return torch.randint(9, (3, 7), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Decoder(CONFIG).double()
    for block in model.blocks:
        block.attention.query.weight.data[:8] *= 30  # the first head alone has large scores
    return model


def scores_of(model, tokens):
    with capture(model, "*.scores") as seen, torch.no_grad():
        model(tokens)
    return [seen[f"blocks.{i}.attention.scores"] for i in range(2)]


def test_the_largest_score_is_that_of_a_key_the_query_may_see():
    scores = torch.randn(2, 3, 4, 4)
    wanted = [
        max(float(scores[b, h, q, k]) for b in range(2) for q in range(4) for k in range(q + 1))
        for h in range(3)
    ]
    torch.testing.assert_close(largest_scores(scores), torch.tensor(wanted))


def test_scores_past_the_threshold_come_back_to_it_and_others_stay(model, tokens):
    watch_scores(model)
    before = scores_of(model.train(), tokens)
    threshold = float(largest_scores(before[0])[1]) + 0.1
    assert float(largest_scores(before[0])[0]) > threshold
    ScoreClip(threshold)(stepped(model))
    after = scores_of(model, tokens)
    assert float(largest_scores(after[0])[0]) == pytest.approx(threshold)
    torch.testing.assert_close(after[0][:, 1], before[0][:, 1])


def test_queries_and_keys_shrink_alike(model, tokens):
    watch_scores(model)
    old = copy.deepcopy(model.blocks[0].attention)
    model.train()(tokens)
    largest = float(model.blocks[0].attention.scores.largest[0])
    ScoreClip(largest / 4)(stepped(model))
    new = model.blocks[0].attention
    for name in ("query", "key"):
        torch.testing.assert_close(getattr(new, name).weight[:8], getattr(old, name).weight[:8] / 2)
    assert torch.equal(new.value.weight, old.value.weight)


def test_a_watched_model_computes_what_it_did_and_looks_in_training_alone(model, tokens):
    wanted = model(tokens)
    watch_scores(model)
    torch.testing.assert_close(model.eval()(tokens), wanted)
    assert all(
        bool((m.largest == -torch.inf).all())
        for m in model.modules()
        if isinstance(m, LargestScores)
    )
    ScoreClip(1.0)(stepped(model))
    torch.testing.assert_close(model(tokens), wanted)


def test_a_training_with_a_clip_has_bounded_scores():
    task = Lag(vocab=9, length=8)
    given = {
        "steps": 30,
        "learning_rate": 0.03,
        "batch_size": 8,
        "seed": 1,
        "prepare": watch_scores,
    }
    batch = task.batch(torch.Generator().manual_seed(3), 16)
    free = train(CONFIG, task, **given, after_step=ScoreClip(1e6)).model
    held = train(CONFIG, task, **given, after_step=ScoreClip(1.0)).model
    most = [
        max(float(largest_scores(s).max()) for s in scores_of(m, batch.inputs))
        for m in (free, held)
    ]
    assert most[0] > 5
    assert most[1] < 2


@pytest.mark.parametrize(
    "changes", [{"qk_norm": "head", "norm": "rms"}, {"n_kv_heads": 1}, {"bias": True}]
)
def test_only_plain_heads_are_watched(changes):
    with pytest.raises(ValueError, match="keys of their own"):
        watch_scores(Decoder(CONFIG.replace(**changes)))


def test_a_clip_needs_a_watched_model_and_a_threshold(model):
    with pytest.raises(ValueError, match="watch_scores"):
        ScoreClip(1.0)(stepped(model))
    with pytest.raises(ValueError, match="positive"):
        ScoreClip(0.0)
