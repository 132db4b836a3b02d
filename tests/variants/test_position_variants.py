"""What is changed before training stays as it was meant, and positions are drawn as they should."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.analysis.positions import position_vectors
from measured_transformer.models.config import Config
from measured_transformer.parts.positions import rotation, sinusoidal_encoding
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.training.stacked import CannotStackError
from measured_transformer.training.store import Store
from measured_transformer.variants.positions import (
    Band,
    PartialRotary,
    RandomPositions,
    RandomTable,
    RotaryInBlocks,
    WithoutAttention,
    random_positions,
    third,
)

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


def test_thirds_are_even_and_cover_all_dimensions() -> None:
    for d in (6, 16, 32, 64, 512):
        covered = [i for name in ("fastest", "middle", "slowest") for i in range(d)[third(d, name)]]
        assert covered == list(range(d))
        assert all(third(d, name).start % 2 == 0 for name in ("fastest", "middle", "slowest"))


def test_preparations_freeze_what_they_say() -> None:
    task = Reversal(vocab=8, length=6)
    learned = TINY.replace(positions="learned")
    for prepare in (RandomTable(), Band("slowest")):
        fresh = make_model(learned, causal=False, seed=1)
        prepare(fresh)
        before = position_vectors(fresh, 12).clone()
        run = train(learned, task, steps=3, learning_rate=1e-2, seed=1, prepare=prepare)
        assert torch.equal(position_vectors(run.model, 12), before)
    band = position_vectors(run.model, 12)
    kept = third(16, "slowest")
    assert torch.equal(band[:, kept], sinusoidal_encoding(12, 16)[:, kept])
    assert band[:, : kept.start].abs().max() == 0
    trained = train(learned, task, steps=3, learning_rate=1e-2, seed=1).model
    assert not torch.equal(
        position_vectors(trained, 12),
        position_vectors(make_model(learned, causal=False, seed=1), 12),
    )
    with pytest.raises(ValueError, match="learned positions"):
        RandomTable()(make_model(TINY, causal=False, seed=1))


def test_without_attention_a_token_does_not_notice_the_others() -> None:
    run = train(
        TINY,
        Reversal(vocab=8, length=6),
        steps=3,
        learning_rate=1e-2,
        seed=2,
        prepare=WithoutAttention(),
    )
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    other = torch.tensor([[7, 7, 3, 7, 7, 7]])
    torch.testing.assert_close(run.model(tokens)[:, 2], run.model(other)[:, 2])


def test_random_positions_are_in_order_different_and_equally_likely() -> None:
    drawn = random_positions(4000, 3, longest=8, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (4000, 3)
    assert (drawn.diff(dim=1) > 0).all()
    shares = torch.bincount(drawn.flatten(), minlength=8) / 4000
    torch.testing.assert_close(shares, torch.full((8,), 3 / 8), atol=0.03, rtol=0)
    with pytest.raises(ValueError, match="only 2"):
        random_positions(1, 3, longest=2)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rotary", "alibi"])
def test_a_model_at_random_positions_draws_in_training_and_answers_alike_in_use(
    scheme: str,
) -> None:
    config = TINY.replace(positions=scheme, max_length=60)
    model = make_model(config, causal=True, seed=0)
    tokens = torch.randint(8, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        consecutive = model(tokens)
        RandomPositions(60)(model)
        model.train()
        assert not torch.allclose(model(tokens), model(tokens))
        model.eval()
        used = model(tokens)
        torch.testing.assert_close(model(tokens), used)
        assert not torch.allclose(used, consecutive, atol=1e-4)
        places = torch.arange(9).expand_as(tokens)
        torch.testing.assert_close(model(tokens, positions=places), consecutive)


def test_all_positions_there_are_leave_nothing_to_draw() -> None:
    model = make_model(TINY, causal=True, seed=0).eval()
    tokens = torch.randint(8, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plain = model(tokens)
        RandomPositions(9)(model)
        torch.testing.assert_close(model(tokens), plain)


def test_training_at_random_positions_can_be_repeated_and_stored(tmp_path) -> None:
    settings = {"steps": 3, "learning_rate": 1e-2, "prepare": RandomPositions(40)}
    task, config = Lag(vocab=8, length=10), TINY.replace(positions="learned", max_length=40)
    once = train_ensemble(config, task, [3], store=Store(tmp_path), **settings)[0]
    again = train(config, task, seed=3, **settings)
    stored = train_ensemble(config, task, [3], store=Store(tmp_path), **settings)[0]
    assert once.losses.tolist() == again.losses.tolist() == stored.losses.tolist()
    scores = [evaluate(run.model, task, seed=0, size=16).loss for run in (once, stored)]
    assert scores[0] == scores[1]
    other = train(config, task, seed=3, **{**settings, "prepare": RandomPositions(30)})
    assert other.losses.tolist() != once.losses.tolist()


def test_a_stack_refuses_to_draw() -> None:
    with pytest.raises(CannotStackError, match="draw"):
        train_ensemble(
            TINY,
            Lag(vocab=8, length=10),
            [0, 1],
            stacked=True,
            store=None,
            steps=1,
            learning_rate=1e-2,
            prepare=RandomPositions(40),
        )


ROTARY = TINY.replace(positions="rotary", d_head=8)


def test_a_quarter_of_each_head_turns_and_the_rest_does_not() -> None:
    model = make_model(ROTARY, causal=True, seed=0)
    PartialRotary(0.25)(model)
    x = torch.randn(1, 2, 6, 8)
    turned = model.rotary(6).apply(x)
    assert torch.equal(turned[..., 2:], x[..., 2:])
    wanted = rotation(6, 2).apply(x[..., :2])
    torch.testing.assert_close(turned[..., :2], wanted)


def test_all_of_each_head_is_the_rotation_itself() -> None:
    model, other = (make_model(ROTARY, causal=True, seed=0) for _ in range(2))
    PartialRotary(1.0)(model)
    tokens = torch.randint(8, (2, 9))
    torch.testing.assert_close(model(tokens), other(tokens))


def test_rotary_in_all_blocks_is_rotary_and_in_none_is_none() -> None:
    tokens = torch.randint(8, (2, 9))
    for blocks, scheme in (((0, 1), "rotary"), ((), "none")):
        model = make_model(ROTARY, causal=True, seed=0)
        RotaryInBlocks(blocks)(model)
        other = make_model(ROTARY.replace(positions=scheme), causal=True, seed=0)
        torch.testing.assert_close(model(tokens), other(tokens))
    half = make_model(ROTARY, causal=True, seed=0)
    RotaryInBlocks((0,))(half)
    assert not torch.allclose(half(tokens), other(tokens), atol=1e-3)


def test_rotary_variants_refuse_what_does_not_fit() -> None:
    for prepare in (PartialRotary(0.5), RotaryInBlocks((0,))):
        with pytest.raises(ValueError, match="expected a model with rotary positions, got sinus"):
            prepare(make_model(TINY, causal=True, seed=0))
    model = make_model(ROTARY, causal=True, seed=0)
    for share in (0.0, 0.1, 0.375, 1.5):
        with pytest.raises(ValueError, match=f"{share} of 8"):
            PartialRotary(share)(model)
    with pytest.raises(ValueError, match="halves"):
        PartialRotary(0.5)(make_model(ROTARY.replace(rotary_pairing="halves"), causal=True, seed=0))
    with pytest.raises(ValueError, match=r"expected blocks 0 to 1, got \(2,\)"):
        RotaryInBlocks((2,))(model)
