"""What depends on positions in models that are known."""

import pytest
import torch
from measured_transformer.analysis.positions import (
    captured,
    position_vectors,
)
from measured_transformer.chapters.surviving.measure import (
    changed_positions,
    explained_by_position,
    loss_without_places,
    task_loss,
    untrained,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


def test_explained_by_position_of_hand_made_patterns() -> None:
    n = 4
    fixed = torch.eye(n).flip(1).expand(6, n, n)  # the same for all inputs
    flat = torch.full((6, n, n), 1 / n)  # nothing to explain
    content = torch.stack([torch.eye(n)[torch.full((n,), b % n)] for b in range(4)] + [flat[0]] * 2)
    pattern = torch.stack((fixed, flat, content), dim=1)
    shares = explained_by_position(pattern)
    assert shares[0] == pytest.approx(1)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0, abs=1e-6)  # every key is as often the one
    causal = torch.tril(torch.ones(n, n))
    causal = (causal / causal.sum(1, keepdim=True)).expand(2, 1, n, n)
    assert explained_by_position(causal, causal=True)[0] == 0


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_changed_positions_replace_what_is_added(scheme: str) -> None:
    model = make_model(TINY.replace(positions=scheme), causal=False, seed=0)
    bare = make_model(TINY.replace(positions="none"), causal=False, seed=0)
    bare.load_state_dict(
        {k: v for k, v in model.state_dict().items() if not k.startswith("positions")}
    )
    tokens = torch.randint(8, (2, 7), generator=torch.Generator().manual_seed(0))
    with changed_positions(model, torch.zeros(7, 16)), torch.no_grad():
        torch.testing.assert_close(model(tokens), bare(tokens), atol=1e-5, rtol=1e-5)
    assert position_vectors(bare, 7).abs().max() == 0


def test_task_loss_and_captured_use_the_evaluation_stream() -> None:
    task = Reversal(vocab=8, length=6)
    model = make_model(TINY, causal=False, seed=0)
    assert task_loss(model, task, seed=3) == pytest.approx(
        evaluate(model, task, seed=3, size=256).loss
    )
    seen = captured(model, task, "embedding", seed=3, size=5)
    assert seen["embedding"].shape == (5, 6, 16)


def test_taking_out_places_matters_only_to_models_that_have_them() -> None:
    task = Reversal(vocab=8, length=6)
    without = make_model(TINY.replace(positions="none"), causal=False, seed=0)
    plain = task_loss(without, task, seed=0)
    losses = loss_without_places(without, task, seed=0)
    assert len(losses) == 3
    assert losses == pytest.approx([plain] * 3, abs=0.05)
    trained = train(TINY, task, steps=150, learning_rate=1e-2, seed=0, batch_size=32).model
    assert loss_without_places(trained, task, seed=0)[0] > task_loss(trained, task, seed=0) + 0.5


def test_untrained_is_the_same_config_with_other_weights() -> None:
    model = train(TINY, Reversal(vocab=8, length=6), steps=2, learning_rate=1e-2, seed=5).model
    fresh = untrained(model, seed=5)
    assert fresh.config == model.config
    reference = make_model(TINY, causal=False, seed=5)
    for (name, a), (_, b) in zip(
        fresh.named_parameters(), reference.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert not torch.equal(fresh.unembedding.weight, model.unembedding.weight)
