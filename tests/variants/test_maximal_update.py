"""Both rules for the width: what they draw, what they multiply, and that a multiplier is a learning rate."""

import math

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import make_model
from measured_transformer.variants.maximal_update import ScaledByWidth, width_scales

BASE = 16
PLAIN = {"n_layers": 2, "n_heads": 2, "bias": False, "initialisation": "gpt2"}


def model(width, **changes):
    return make_model(Config(vocab=50, d_model=width, **(PLAIN | changes)), causal=True, seed=3)


def test_at_the_base_width_both_rules_are_one():
    made = {}
    for rule in ("standard", "maximal-update"):
        made[rule] = model(BASE)
        ScaledByWidth(rule, BASE)(made[rule])
    tokens = torch.arange(12)[None]
    assert torch.equal(made["standard"](tokens), made["maximal-update"](tokens))
    sizes = {"d_ff": 64, "n_layers": 2}
    both = [width_scales(BASE, BASE, rule, **sizes) for rule in ("standard", "maximal-update")]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("rule", "unembedding", "scale"),
    [("standard", 1 / 8, 1 / math.sqrt(32)), ("maximal-update", 1 / 16, math.sqrt(8) / 32)],
)
def test_matrices_begin_with_their_standard_deviations(rule, unembedding, scale):
    made = model(64)
    ScaledByWidth(rule, BASE, kept_whole=True)(made)
    block = made.blocks[1]
    wanted = {
        made.token_embedding: 1.0,
        block.attention.query: 1 / 8,
        block.attention.key: 1 / 8,
        block.attention.value: 1 / 8,
        block.attention.output: 1 / 16,
        block.feedforward.up: 1 / 8,
        block.feedforward.down: 1 / 32,
        made.unembedding: unembedding,
    }
    for part, deviation in wanted.items():
        assert part.weight.std().item() == pytest.approx(deviation, rel=0.05)
    assert block.attention.scale == pytest.approx(scale)
    assert all(bool((p == 1).all()) for name, p in made.named_parameters() if "norm" in name)


def test_multiplied_matrices_are_the_same_function():
    whole, kept = model(64), model(64)
    ScaledByWidth("maximal-update", BASE, kept_whole=True)(whole)
    ScaledByWidth("maximal-update", BASE)(kept)
    tokens = torch.arange(12)[None]
    torch.testing.assert_close(whole(tokens), kept(tokens))
    weights = whole.blocks[0].attention.query.weight, kept.blocks[0].attention.query.weight
    torch.testing.assert_close(weights[1], 4 * weights[0])


def test_groups_have_the_learning_rates_of_the_table():
    made = model(64)
    prepare = ScaledByWidth("maximal-update", BASE, kept_whole=True)
    prepare(made)
    groups = prepare.parameter_groups(made, 0.1)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert len(rates) == len(list(made.parameters()))
    for name, parameter in made.named_parameters():
        slow = "norm" not in name and "token_embedding" not in name
        assert rates[id(parameter)] == pytest.approx(0.025 if slow else 0.1)


def test_a_first_step_of_adam_moves_a_multiplied_matrix_at_its_rate():
    made = model(64).double()
    ScaledByWidth("maximal-update", BASE)(made)
    updates = torch.optim.Adam(made.parameters(), lr=0.01, eps=1e-30)
    weight = made.blocks[0].feedforward.up.weight
    before = weight.detach().clone()
    made(torch.arange(12)[None]).square().sum().backward()
    updates.step()
    moved = (0.25 * (weight.detach() - before)).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.0025))


def test_models_scaled_by_width_train_in_a_stack():
    config, task = Config(vocab=256, d_model=32, **PLAIN), TextLM(length=8)
    options = {"steps": 3, "learning_rate": 0.01, "batch_size": 4, "store": None}
    prepare = ScaledByWidth("maximal-update", BASE)
    alone, stacked = (
        train_ensemble(config, task, [0, 1], stacked=how, prepare=prepare, **options)
        for how in (False, True)
    )
    for one, other in zip(alone, stacked, strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"bias": True},
        {"initialisation": "xavier"},
        {"tie_embeddings": True},
        {"positions": "learned"},
        {"activation": "swiglu"},
        {"n_kv_heads": 1},
        {"d_head": 4},
    ],
)
def test_other_models_are_refused(changes, unhooked):
    with pytest.raises(ValueError, match="expected"):
        ScaledByWidth("standard", BASE)(model(64, **changes))


def test_an_encoder_and_unknown_sizes_are_refused(unhooked):
    encoder = make_model(Config(vocab=50, d_model=16, **PLAIN), causal=False, seed=0)
    with pytest.raises(ValueError, match="expected a Decoder"):
        ScaledByWidth("standard", BASE)(encoder)
    with pytest.raises(ValueError, match="positive sizes"):
        ScaledByWidth("standard", 0)
    with pytest.raises(ValueError, match="rule must be one of"):
        ScaledByWidth("mup", BASE)
