"""Branches that begin smaller, and what stands where norms stood, against the plain model."""

from __future__ import annotations

import math

import pytest
import torch
from measured_transformer.analysis.residual import ledger
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.initialisation import BranchFactor
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


def usual(seed=0, **changes):
    config = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, activation="relu")
    return make_model(config.replace(**changes), causal=False, seed=seed).eval()


@pytest.mark.parametrize("factor", [0.1, 0.0, 3.0])
@pytest.mark.parametrize("changes", [{}, {"placement": "post"}, {"norm": "none"}])
def test_the_first_branch_writes_so_many_times_as_much(factor, changes):
    tokens = TASK.batch(make_generator(0, "evaluation"), 4).inputs
    whole, scaled = usual(**changes), usual(**changes)
    with torch.no_grad():  # biases begin at zero, and must be multiplied all the same
        for model in (whole, scaled):
            for block in model.blocks:
                block.attention.output.bias.fill_(0.3)
    BranchFactor(factor)(scaled)
    first, other = ledger(whole, tokens).writes[0], ledger(scaled, tokens).writes[0]
    torch.testing.assert_close(other, factor * first)


def test_every_branch_is_multiplied_and_nothing_else():
    model, whole = usual(), usual()
    BranchFactor(0.5)(model)
    x = torch.randn(2, 3, 16)
    for one, other in zip(model.blocks, whole.blocks, strict=True):
        for part in ("attention", "feedforward"):
            torch.testing.assert_close(getattr(one, part)(x), 0.5 * getattr(other, part)(x))
    pairs = zip(model.named_parameters(), whole.parameters(), strict=True)
    changed = {name for (name, a), b in pairs if not torch.equal(a, b)}
    ends = ("attention.output.weight", "feedforward.down.weight")
    assert changed == {f"blocks.{i}.{end}" for i in range(2) for end in ends}


def test_a_factor_of_one_changes_nothing_and_of_zero_is_the_known_preparation():
    for factor, known in ((1.0, None), (0.0, zero_branches)):
        model, other = usual(), usual()
        BranchFactor(factor)(model)
        if known is not None:
            known(other)
        pairs = zip(model.parameters(), other.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf])
def test_a_factor_that_is_none_is_refused(factor):
    with pytest.raises(ValueError, match="factor must be"):
        BranchFactor(factor)


def test_an_encoder_decoder_is_refused():
    with pytest.raises(ValueError, match="Encoder or a Decoder"):
        BranchFactor(0.5)(EncoderDecoder(NONE))
