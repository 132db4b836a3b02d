"""A model built without a piece has none of it, and keeps all others."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.component_ablation import (
    PIECES,
    Silent,
    piece_arms,
    without_attention,
    without_ffn,
)

TASK = Reversal(vocab=5, length=4)
CONFIG = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, activation="relu")
TOKENS = TASK.batch(make_generator(0, "test"), 6).inputs


def built(arm, *, config=CONFIG, causal=False, seed=0):
    side = piece_arms(config)[arm]
    model = make_model(side.config, causal=causal, seed=seed).double().eval()
    if (prepare := side.options.get("prepare")) is not None:
        prepare(model)
    return model


def test_there_is_an_arm_for_each_piece_the_whole_and_both():
    assert set(piece_arms(CONFIG)) == {"whole", "both", *PIECES}


@torch.no_grad()
def test_without_attention_no_position_sees_another():
    other = TOKENS.clone()
    other[:, 0] = (other[:, 0] + 1) % 5
    alone, whole = built("attention"), built("whole")
    assert torch.equal(alone(TOKENS)[:, 1:], alone(other)[:, 1:])
    assert not torch.equal(alone(TOKENS)[:, 0], alone(other)[:, 0])
    assert not torch.allclose(whole(TOKENS)[:, 1:], whole(other)[:, 1:])


@torch.no_grad()
def test_without_positions_an_encoder_moves_its_answers_with_the_tokens():
    order = torch.tensor([2, 0, 3, 1])
    for arm, moves in (("positions", True), ("whole", False)):
        model = built(arm)
        assert torch.allclose(model(TOKENS[:, order]), model(TOKENS)[:, order]) == moves


@torch.no_grad()
@pytest.mark.parametrize(("arm", "part"), [("attention", "feedforward"), ("ffn", "attention")])
def test_a_silent_sublayer_leaves_the_stream_and_the_other_one_writes_as_ever(arm, part):
    model, whole = built(arm), built("whole")
    with capture(model, "*.out", "*.residual_*") as seen:
        model(TOKENS)
    silent = "attention" if arm == "attention" else "feedforward"
    for i in range(2):
        block = f"blocks.{i}"
        assert not seen[f"{block}.{silent}.out"].any()
        written = seen[f"{block}.residual_post"] - seen[f"{block}.residual_pre"]
        assert torch.allclose(written, seen[f"{block}.{part}.out"])
        assert written.abs().max() > 0.01
    kept = dict(model.named_parameters())
    expected = {n for n, _ in whole.named_parameters() if f".{silent}." not in n}
    assert set(kept) == expected
    assert all(torch.equal(kept[n], w) for n, w in whole.named_parameters() if n in kept)


@torch.no_grad()
def test_without_skips_a_state_is_a_write_and_without_norms_nothing_is_normalised():
    model = built("skip")
    with capture(model, "*.out", "*.residual_*") as seen:
        model(TOKENS)
    assert torch.equal(seen["blocks.1.residual_post"], seen["blocks.1.feedforward.out"])
    assert not [n for n, _ in built("norm").named_parameters() if "norm" in n]
    both = built("both")
    assert not both.config.residual
    assert not [n for n, _ in both.named_parameters() if "norm" in n]


def test_what_is_left_learns_and_stacks_as_it_trains_alone():
    options = {"steps": 3, "learning_rate": 0.01, "batch_size": 4}
    for prepare in (without_attention, without_ffn):
        alone = train(CONFIG, TASK, seed=1, prepare=prepare, **options)
        stacked = train_ensemble(
            CONFIG, TASK, [0, 1], prepare=prepare, stacked=True, store=None, **options
        )[1]
        assert any(isinstance(module, Silent) for module in stacked.model.modules())
        for (name, one), (_, other) in zip(
            alone.model.named_parameters(), stacked.model.named_parameters(), strict=True
        ):
            if not name.endswith("key.bias"):  # its gradient is rounding, which Adam makes large
                assert torch.allclose(one, other, atol=1e-4), name
        assert alone.losses == pytest.approx(stacked.losses, rel=1e-4)


def test_a_decoder_without_attention_runs_too():
    task = AssociativeRecall(pairs=2, keys=3, values=3)
    tokens = task.batch(make_generator(0, "test"), 3).inputs
    model = built("attention", config=CONFIG.replace(vocab=6), causal=True)
    assert model(tokens).shape == (3, task.length, 6)


def test_a_model_of_which_nothing_would_be_left_is_refused():
    model = make_model(CONFIG.replace(residual=False), causal=False, seed=0)
    with pytest.raises(ValueError, match="residual connections"):
        without_attention(model)
    with pytest.raises(ValueError, match="EncoderDecoder"):
        without_ffn(make_model(CONFIG, causal=True, source=True, seed=0))


@pytest.mark.parametrize("lacks", [{"norm": "none"}, {"positions": "none"}, {"residual": False}])
def test_the_whole_must_be_whole(lacks):
    with pytest.raises(ValueError, match="expected a config with norms"):
        piece_arms(CONFIG.replace(**lacks))
