"""The block against torch.nn.TransformerEncoderLayer with the same weights."""

import itertools
import math

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import make_norm
from torch import nn
from torch.nn import functional as F

TIGHT = {"rtol": 0, "atol": 1e-11}
D, HEADS, FF = 12, 3, 20


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def made(*, norm="layer", activation="relu", bias=True, **options):
    block = Block(
        MultiHeadAttention(D, HEADS, bias=bias),
        FeedForward(D, FF, activation=activation, bias=bias),
        make_norm(norm, D, bias=bias),
        make_norm(norm, D, bias=bias),
        **options,
    ).double()
    for i, (name, parameter) in enumerate(block.named_parameters()):
        parameter.data = 0.3 * normal(*parameter.shape, seed=i + 1) + (
            "norm" in name and name.endswith("weight")
        )
    return block


def torch_twin(ours, activation, bias):
    theirs = nn.TransformerEncoderLayer(
        D,
        HEADS,
        FF,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=ours.placement == "pre",
        bias=bias,
    ).double()
    a = ours.attention
    renamed = {
        "self_attn.in_proj_": (a.query, a.key, a.value),
        "self_attn.out_proj.": (a.output,),
        "linear1.": (ours.feedforward.up,),
        "linear2.": (ours.feedforward.down,),
        "norm1.": (ours.attention_norm,),
        "norm2.": (ours.feedforward_norm,),
    }
    theirs.load_state_dict(
        {
            name + kind: torch.cat([getattr(part, kind).data for part in parts])
            for name, parts in renamed.items()
            for kind in (("weight", "bias") if bias else ("weight",))
        }
    )
    return theirs


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", ["free", "causal", "padding"])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_equal_to_torch(placement, activation, bias, case, mode):
    ours = made(placement=placement, activation=activation, bias=bias)
    theirs = torch_twin(ours, activation, bias)
    ours.train(mode == "train")
    theirs.train(mode == "train")
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    ahead = torch.ones(7, 7, dtype=torch.bool).triu(1)
    options = {"causal": case == "causal", "padding_mask": real if case == "padding" else None}
    options_theirs = {
        "src_mask": ahead if case == "causal" else None,
        "src_key_padding_mask": ~real if case == "padding" else None,
    }
    x, y = (normal(2, 7, D).requires_grad_() for _ in range(2))
    with capture(ours):
        watched = ours(x, **options)
    out, expected = ours(x, **options), theirs(y, **options_theirs)
    keep = real[..., None] if case == "padding" else torch.ones(2, 7, 1, dtype=torch.bool)
    torch.testing.assert_close(out * keep, expected * keep, **TIGHT)
    torch.testing.assert_close(watched * keep, expected * keep, **TIGHT)

    direction = normal(2, 7, D, seed=9) * keep
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, **TIGHT)
    torch.testing.assert_close(ours.feedforward.up.weight.grad, theirs.linear1.weight.grad, **TIGHT)
    torch.testing.assert_close(ours.attention_norm.weight.grad, theirs.norm1.weight.grad, **TIGHT)
    in_proj = theirs.self_attn.in_proj_weight.grad
    torch.testing.assert_close(ours.attention.value.weight.grad, in_proj[2 * D :], **TIGHT)


@pytest.mark.parametrize(
    ("norm", "placement", "residual"),
    [*itertools.product(["layer", "rms", "none"], ["pre", "post"], [True, False])],
)
def test_every_wiring_equals_its_formula(norm, placement, residual):
    block = made(norm=norm, placement=placement, residual=residual)
    x = normal(2, 5, D)
    kept = x.clone()

    def sublayer(part, normalise, z):
        if placement == "pre":
            return z * residual + part(normalise(z))
        return normalise(z * residual + part(z))

    mid = sublayer(block.attention, block.attention_norm, x)
    post = sublayer(block.feedforward, block.feedforward_norm, mid)
    with capture(block, "residual_*") as seen:
        out = block(x)
    for value, expected in (
        (seen["residual_pre"], x),
        (seen["residual_mid"], mid),
        (seen["residual_post"], post),
        (out, post),
        (block(x), post),
    ):
        torch.testing.assert_close(value, expected, **TIGHT)
    assert torch.equal(x, kept)


def test_without_norms_the_placement_makes_no_difference():
    x = normal(2, 5, D)
    outs = [made(norm="none", placement=placement)(x) for placement in ("pre", "post")]
    assert torch.equal(*outs)


def test_dropout_hits_each_branch_before_the_addition_and_only_in_training():
    block = made(norm="none", dropout=0.5)
    x = normal(1, 3, D)
    with capture(block, "attention.out", "residual_mid") as seen:
        block.eval()(x)
    torch.testing.assert_close(seen["residual_mid"], x + seen["attention.out"], **TIGHT)
    torch.manual_seed(0)
    many = x.expand(2000, 3, D)
    with capture(
        block, "attention.out", "residual_mid", "feedforward.out", "residual_post"
    ) as seen:
        block.train()(many)
    for start, branch, end in (
        (many, "attention.out", "residual_mid"),
        (seen["residual_mid"], "feedforward.out", "residual_post"),
    ):
        kept = (seen[end] - start) / seen[branch]
        dropped = kept.abs() < 1e-9
        assert (dropped | ((kept - 2).abs() < 1e-6)).all(), "an entry is dropped or doubled"
        share = dropped.double().mean().item()
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(dropped.numel())


def test_the_arguments_reach_attention():
    block = made()
    x = normal(2, 5, D)
    bias = normal(HEADS, 5, 5, seed=3)
    with capture(block, "attention.pattern") as seen:
        block(x, causal=True, score_bias=bias)
    q, k = (
        F.linear(block.attention_norm(x), part.weight, part.bias).unflatten(-1, (HEADS, 4))
        for part in (block.attention.query, block.attention.key)
    )
    expected = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2 + bias
    expected = expected.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    torch.testing.assert_close(seen["attention.pattern"], expected.softmax(-1), **TIGHT)


def test_another_placement_is_refused(unhooked):
    with pytest.raises(
        ValueError, match="placement must be one of pre, post, sandwich, branch; got 'both'"
    ):
        made(placement="both")
