"""In the place of a sublayer: networks that cannot bend, patterns that cannot look, and how many neurons."""

import numpy as np
import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.substitutes import FixedPattern, Instead, network_made_up

CONFIG = Config(vocab=6, d_model=12, n_heads=3, n_layers=2, positions="learned", max_length=5)
TOKENS = torch.tensor([[0, 3, 2, 5, 1], [4, 4, 0, 1, 2]])


def made(config=CONFIG, *, causal=False, source=False, **instead):
    model = make_model(config, causal=causal, source=source, seed=0)
    Instead(**instead)(model)
    return model


def number(model):
    return sum(p.numel() for p in model.parameters())


def test_nothing_asked_for_changes_nothing():
    fresh, prepared = make_model(CONFIG, causal=False, seed=0), made()
    assert torch.equal(fresh(TOKENS), prepared(TOKENS))


def test_a_linear_network_adds_and_scales():
    model = made(network="linear").double()
    network = model.blocks[1].feedforward
    x, y = torch.randn(2, 1, 4, 12, dtype=torch.float64, generator=make_generator(0, "inputs"))
    with torch.no_grad():
        zero = network(torch.zeros_like(x))
        mixed = network(2 * x - 3 * y) - zero
        assert torch.allclose(mixed, 2 * (network(x) - zero) - 3 * (network(y) - zero))
        bent = made().double().blocks[1].feedforward
        assert not torch.allclose(bent(-x) - bent(0 * x), -(bent(x) - bent(0 * x)))
    assert number(model) == number(made())


@pytest.mark.parametrize("causal", [False, True])
def test_without_attention_a_position_sees_itself_alone(causal):
    model = made(causal=causal, attention="none")
    other = TOKENS.clone()
    other[:, 0] = (other[:, 0] + 1) % 6
    changed = (model(TOKENS) - model(other)).abs().amax(-1)
    assert (changed[:, 1:] == 0).all()
    assert (changed[:, 0] > 0).all()


def test_without_networks_only_attention_writes():
    model = made(network="none")
    with capture(model, "*.residual_mid", "*.residual_post") as seen:
        model(TOKENS)
    for i in range(2):
        assert torch.equal(seen[f"blocks.{i}.residual_mid"], seen[f"blocks.{i}.residual_post"])


@pytest.mark.parametrize("causal", [False, True])
def test_a_fixed_pattern_is_attention_with_that_pattern(causal):
    fresh = make_model(CONFIG, causal=causal, seed=0)
    model = made(causal=causal, attention="fixed")
    tables = torch.randn(2, 3, 5, 5, generator=make_generator(1, "tables"))
    with torch.no_grad():
        for block, table in zip(model.blocks, tables, strict=True):
            block.attention.scores.copy_(table)
    allowed = torch.ones(5, 5).tril() if causal else torch.ones(5, 5)
    patterns = [t.exp() * allowed / (t.exp() * allowed).sum(-1, keepdim=True) for t in tables]
    forced = {
        f"blocks.{i}.attention.pattern": (lambda now, own=p: own.expand_as(now))
        for i, p in enumerate(patterns)
    }
    with intervene(fresh, forced):
        expected = fresh(TOKENS)
    assert torch.allclose(model(TOKENS), expected, atol=1e-5)
    short = model.blocks[0].attention.pattern(3, causal=causal)
    assert torch.allclose(short.sum(-1), torch.ones(3, 3))


def test_patterns_are_learned_and_runs_are_the_same_again():
    task = Reversal(6, 5)
    runs = [
        train(CONFIG, task, steps=20, learning_rate=0.01, seed=0, prepare=Instead(attention="fixed"))
        for _ in range(2)
    ]  # fmt: skip
    assert np.array_equal(runs[0].losses, runs[1].losses)
    assert runs[0].model.blocks[0].attention.scores.abs().max() > 0.01


def test_what_cannot_be_is_refused(unhooked):
    with pytest.raises(ValueError, match="network must be one of whole, linear, none"):
        Instead(network="straight")
    with pytest.raises(ValueError, match="attention must be one of"):
        Instead(attention="some")
    with pytest.raises(ValueError, match="EncoderDecoder"):
        made(source=True, network="none")
    with pytest.raises(ValueError, match="gate"):
        made(CONFIG.replace(activation="swiglu"), network="linear")
    attention = MultiHeadAttention(12, 3)
    with pytest.raises(ValueError, match="n_heads must divide"):
        FixedPattern(attention.value, attention.output, n_heads=5, length=4)
    model = made(attention="fixed", config=CONFIG.replace(max_length=4, positions="sinusoidal"))
    with pytest.raises(ValueError, match="reach 4 positions, got 5"):
        model(TOKENS)
    with pytest.raises(ValueError, match="no padding"):
        made(attention="fixed")(TOKENS, padding_mask=torch.ones_like(TOKENS, dtype=torch.bool))
    with pytest.raises(ValueError, match="no whole number of neurons"):
        network_made_up(CONFIG.replace(n_heads=1, d_head=1, activation="swiglu"))
