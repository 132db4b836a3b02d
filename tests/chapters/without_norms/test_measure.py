"""Sizes, gradients and stand-ins for norms against closed forms and the plain model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.without_norms.measure import (
    TakesOver,
    block_gradients,
    block_sizes,
    dimension_powers,
    powers_apart,
    rates_that_work,
    worse_than_guessing,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.shift import CyclicShift
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.norms import (
    DynamicTanh,
    gated_branches,
    scaled_branches,
    t_fixup,
    tanh_norms,
    zero_branches,
)

TASK = Reversal(vocab=5, length=5)
NONE = Config(vocab=5, d_model=16, n_layers=3, n_heads=2, activation="relu", norm="none")
BATCH = TASK.batch(make_generator(0, "test"), 6)


def fresh(config=NONE, prepare=None, seed=0):
    model = make_model(config, causal=False, seed=seed).double()
    if prepare is not None:
        prepare(model)
    return model


def stream_of(model):
    with torch.no_grad(), capture(model, "embedding", "*.residual_post", "*.out") as seen:
        model(BATCH.inputs)
    return seen


def test_scaled_branches_write_less_by_the_root_of_the_number_of_writes():
    plain, scaled = stream_of(fresh()), stream_of(fresh(prepare=scaled_branches))
    first = "blocks.0.attention.out"
    assert torch.allclose(scaled[first] * math.sqrt(6), plain[first])
    weights, others = dict(fresh(prepare=scaled_branches).named_parameters()), fresh()
    for name, was in others.named_parameters():
        writes = name.endswith(("attention.output.weight", "feedforward.down.weight"))
        assert torch.allclose(weights[name] * (math.sqrt(6) if writes else 1), was)


@pytest.mark.parametrize("prepare", [gated_branches, zero_branches])
def test_closed_branches_leave_the_embedding_alone(prepare):
    seen = stream_of(fresh(prepare=prepare))
    assert torch.equal(seen["blocks.2.residual_post"], seen["embedding"])


def test_an_open_gate_multiplies_what_is_written():
    model = fresh(NONE.replace(n_layers=1), gated_branches)
    attention, network = model.blocks[0].attention, model.blocks[0].feedforward
    attention.gate_of_branch.data.fill_(2.0)
    seen = stream_of(model)
    plain = fresh(NONE.replace(n_layers=1)).blocks[0]
    wanted = seen["embedding"] + 2 * plain.attention(seen["embedding"])
    assert torch.allclose(seen["blocks.0.residual_post"], wanted)
    network.gate_of_branch.data.fill_(-1.0)
    assert torch.allclose(
        stream_of(model)["blocks.0.residual_post"], wanted - plain.feedforward(wanted)
    )


def test_gates_are_trained():
    (run,) = train_ensemble(
        NONE, TASK, [0], steps=3, learning_rate=0.01, store=None, prepare=gated_branches
    )
    gates = [value for name, value in run.model.named_parameters() if "gate_of" in name]
    assert len(gates) == 6
    assert all(abs(gate.item()) > 0.005 for gate in gates)


def test_t_fixup_scales_what_the_paper_scales():
    weights = dict(fresh(prepare=t_fixup).named_parameters())
    for name, was in fresh().named_parameters():
        factor = 1.0
        if name.startswith("token_embedding"):
            factor = 27**-0.25
        elif name.endswith(("value.weight", "attention.output.weight", "up.weight", "down.weight")):
            factor = 0.67 * 3**-0.25
        assert torch.allclose(weights[name], factor * was), name


def test_a_tanh_stands_where_the_norms_stood():
    model = fresh(NONE.replace(norm="layer"), tanh_norms)
    kinds = [type(part).__name__ for part in model.modules()]
    assert kinds.count("DynamicTanh") == 7
    assert "LayerNorm" not in kinds
    x = torch.randn(4, 16, dtype=torch.float64)
    one = DynamicTanh(16, alpha=0.25).double()
    one.weight.data.fill_(3.0)
    one.bias.data.fill_(1.0)
    assert torch.allclose(one(x), 3 * torch.tanh(x / 4) + 1)


def test_changes_of_encoder_decoders_are_refused():
    both = make_model(NONE, causal=True, source=True, seed=0)
    for prepare in (scaled_branches, gated_branches, t_fixup, tanh_norms):
        with pytest.raises(ValueError, match="expected an Encoder or a Decoder"):
            prepare(both)


def test_sizes_are_those_of_the_states():
    model = fresh()
    seen = stream_of(model)
    states = [seen["embedding"], *(seen[f"blocks.{i}.residual_post"] for i in range(3))]
    sizes = [float(x.square().mean().sqrt()) for x in states]
    assert block_sizes(model, BATCH.inputs) == pytest.approx(sizes)
    spread = [x.square().mean((0, 1)).sqrt() for x in states]
    powers = [float((x.max() / x.min()).log10()) for x in spread]
    assert dimension_powers(model, BATCH.inputs) == pytest.approx(powers)


def test_no_dimension_of_nothing_is_larger_than_another():
    empty = fresh(NONE.replace(residual=False), zero_branches)
    powers = dimension_powers(empty, BATCH.inputs)
    assert powers[0] > 0
    assert list(powers[1:]) == [0, 0, 0]


@pytest.mark.parametrize("sizes", [[], [1.0, math.nan], [-1.0, 1.0], [0.0, 1.0]])
def test_sizes_without_a_ratio_are_refused(sizes):
    with pytest.raises(ValueError, match="expected"):
        powers_apart(np.array(sizes))


def test_gradients_are_gathered_by_block():
    model = fresh()
    cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.scored).backward()
    wanted = [
        float(torch.cat([w.grad.flatten() for w in block.parameters()]).norm())
        for block in model.blocks
    ]
    assert block_gradients(model, BATCH) == pytest.approx(wanted)


def test_rates_are_counted_seed_by_seed():
    found = ([True, False], [True, True], [True, False])
    cells = [Solved(np.array([10.0, 20.0]), np.array(seen)) for seen in found]
    assert list(rates_that_work(cells)) == [3, 1]
    with pytest.raises(ValueError, match="same runs"):
        rates_that_work([cells[0], Solved(np.array([1.0]), np.array([True]))])
    with pytest.raises(ValueError, match="same runs"):
        rates_that_work([])


def test_worse_than_guessing_is_above_the_logarithm_or_no_number():
    which = worse_than_guessing(np.array([0.1, 1.6, 1.7, math.nan, math.inf]), 5)
    assert list(which) == [False, False, True, True, True]


def test_a_training_begins_where_another_ended():
    (before,) = train_ensemble(NONE, TASK, [3], steps=2, learning_rate=0.01, store=None)
    kept = {name: w.clone() for name, w in before.model.state_dict().items()}
    second = CyclicShift(vocab=5, length=5)
    for steps in (0, 2):
        after = train(
            NONE, second, steps=steps, learning_rate=0.01, seed=3, prepare=TakesOver(before.model)
        )
        state = after.model.state_dict()
        assert all(torch.equal(state[name], was) for name, was in kept.items()) == (steps == 0)
    assert all(torch.equal(before.model.state_dict()[name], was) for name, was in kept.items())
    with pytest.raises(ValueError, match="expected a model of the config"):
        TakesOver(before.model)(make_model(NONE.replace(n_layers=1), causal=False, seed=0))
