"""Norms against torch.nn, watched and unwatched."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.norms import LayerNorm, RMSNorm, make_norm
from torch import nn

TIGHT = {"rtol": 0, "atol": 1e-12}


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def pair(kind, d, eps, bias):
    """Ours and torch's with the same random weights."""
    if kind == "layer":
        ours, theirs = LayerNorm(d, eps=eps, bias=bias), nn.LayerNorm(d, eps=eps, bias=bias)
    else:
        ours, theirs = RMSNorm(d, eps=eps), nn.RMSNorm(d, eps=eps)
    for i, (a, b) in enumerate(zip(ours.parameters(), theirs.parameters(), strict=True)):
        a.data = 1 + normal(d, seed=i + 1)
        b.data = a.data.clone()
    return ours, theirs


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(["layer", "rms"]),
    shape=st.sampled_from([(4,), (3, 5), (2, 3, 2), (2, 3, 8), (2, 1, 2, 6)]),
    eps=st.sampled_from([1e-5, 1e-12, 0.3]),
    bias=st.booleans(),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_equal_to_torch_in_values_and_gradients_watched_or_not(kind, shape, eps, bias, size):
    x = size * (normal(*shape) + 0.7)
    direction = normal(*shape, seed=9)
    spread = x.var(-1, unbiased=False) if kind == "layer" else x.square().mean(-1)
    scale = (spread + eps).sqrt()[..., None]
    results = []
    ours, theirs = pair(kind, shape[-1], eps, bias)
    for norm, watch in ((theirs, False), (ours, False), (ours, True)):
        norm.zero_grad()
        mine = x.clone().requires_grad_()
        if watch:
            with capture(norm, "scale") as seen:
                out = norm(mine)
        else:
            out = norm(mine)
        (out * direction).sum().backward()
        assert torch.equal(mine.detach(), x)
        results.append([out.detach(), mine.grad * scale, *(p.grad for p in norm.parameters())])
    for ours in results[1:]:
        for a, b in zip(ours, results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(seen["scale"], scale, rtol=1e-12, atol=0)


def test_layer_norm_divides_by_the_biased_deviation():
    out = LayerNorm(4, eps=0.0).double()(normal(5, 4))
    torch.testing.assert_close(out.var(-1, unbiased=False), torch.ones(5).double(), **TIGHT)
    torch.testing.assert_close(out.mean(-1), torch.zeros(5).double(), **TIGHT)
    out = RMSNorm(4, eps=0.0).double()(normal(5, 4) + 3)
    torch.testing.assert_close(out.square().mean(-1), torch.ones(5).double(), **TIGHT)
    assert out.mean(-1).abs().min() > 0.1, "RMSNorm does not centre"


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_frozen_scale_makes_the_norm_linear(kind):
    norm = make_norm(kind, 6).double()
    a, b = normal(2, 3, 6), normal(2, 3, 6, seed=1)
    with intervene(norm, {"scale": 2.0}):
        together, apart = norm(a + b), norm(a) + norm(b)
    torch.testing.assert_close(together, apart, **TIGHT)
    assert not torch.allclose(norm(a + b), norm(a) + norm(b), atol=0.1)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_watching_does_not_change_the_result_in_low_precision(kind):
    norm = make_norm(kind, 16).bfloat16()
    x = normal(4, 16).bfloat16()
    with capture(norm):
        watched = norm(x)
    assert watched.dtype == torch.bfloat16
    torch.testing.assert_close(watched.float(), norm(x).float(), rtol=0.02, atol=0.02)


def test_make_norm_makes_what_is_asked():
    assert isinstance(make_norm("layer", 4), LayerNorm)
    assert make_norm("layer", 4, bias=False).bias is None
    assert make_norm("rms", 4, eps=0.5).eps == 0.5
    assert make_norm("layer", 4, eps=0.5).eps == 0.5
    nothing = make_norm("none", 4)
    x = normal(2, 4)
    assert nothing(x) is x
    assert list(nothing.parameters()) == []


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_another_width_is_refused(unhooked, kind):
    with pytest.raises(ValueError, match=r"d_model=4, got shape \(2, 5\)"):
        make_norm(kind, 4)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"d_model=4, got shape \(2, 1\)"):
        make_norm(kind, 4)(torch.zeros(2, 1))


def test_another_name_is_refused(unhooked):
    with pytest.raises(
        ValueError, match="norm must be one of layer, rms, layer_plain, none; got 'batch'"
    ):
        make_norm("batch", 4)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_in_float16_takes_and_gives_float32(kind):
    """A stream beyond the largest number of float16 is normalised as it is."""
    exact, _ = pair(kind, 8, 1e-5, True)
    norm = make_norm(kind, 8).half()
    norm.load_state_dict(exact.state_dict())
    x = 1e5 * normal(3, 8)
    expected = exact.half().double()(x).float()
    plain = norm(x.float())
    assert plain.dtype == torch.float32
    torch.testing.assert_close(plain, expected, rtol=1e-5, atol=1e-5)
    with capture(norm):
        torch.testing.assert_close(norm(x.float()), expected, rtol=1e-5, atol=1e-5)
    assert norm(torch.ones(1, 8).half()).dtype == torch.float16
