"""Attention against torch.nn, against PyTorch's kernel, and against loops written by hand."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
    causal_mask,
    fused_attention,
)
from measured_transformer.parts.positions import rotation
from torch import nn
from torch.nn import functional as F

TIGHT = {"rtol": 0, "atol": 1e-12}


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def bernoulli(*shape, p=0.6, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < p


def made(*args, seed=0, **kwargs):
    """Attention in float64 with weights and biases that are all different from zero."""
    attention = MultiHeadAttention(*args, **kwargs).double()
    for i, parameter in enumerate(attention.parameters()):
        parameter.data = 0.4 * normal(*parameter.shape, seed=1000 * seed + i + 1)
    return attention


def explicit(attention, *args, **kwargs):
    """The output and pattern when somebody looks."""
    with capture(attention, "pattern", gradients=True) as seen:
        return attention(*args, **kwargs), seen["pattern"]


def loops(q, k, v, allowed=None, bias=None, scale=None):
    """Attention of one head by loops over plain numbers: (n_query, d), (n_key, d), (n_key, e)."""
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if allowed is None or allowed[i, j]]
        score = {}
        for j in keys:
            score[j] = scale * sum(float(a) * float(b) for a, b in zip(q[i], k[j], strict=True))
            score[j] += 0.0 if bias is None else float(bias[i, j])
        total = math.fsum(math.exp(s) for s in score.values())
        for j in keys:
            out[i] += math.exp(score[j]) / total * v[j]
    return out


def module_by_loops(attention, x, memory=None, allowed=None, bias=None):
    """The whole module in numpy, one sequence, head and query at a time."""
    weight = {n: p.detach().numpy() for n, p in attention.named_parameters()}
    h, g, d = attention.n_heads, attention.n_heads // attention.n_kv_heads, attention.d_head
    x = x.numpy()
    memory = x if memory is None else memory.numpy()

    def project(name, z):
        return z @ weight[f"{name}.weight"].T + weight.get(f"{name}.bias", 0.0)

    out = np.zeros_like(x)
    for b in range(len(x)):
        q, k, v = project("query", x[b]), project("key", memory[b]), project("value", memory[b])
        heads = []
        for i in range(h):
            mine, served = slice(i * d, (i + 1) * d), slice(i // g * d, (i // g + 1) * d)
            heads.append(
                loops(
                    q[:, mine],
                    k[:, served],
                    v[:, served],
                    None if allowed is None else allowed[b, i].numpy(),
                    None if bias is None else bias[b, i].numpy(),
                    attention.scale,
                )
            )
        out[b] = project("output", np.concatenate(heads, axis=1))
    return torch.from_numpy(out)


# --- the functions -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, 0.3, 1.0])
def test_functions_equal_loops_and_the_kernel(scale):
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 6, 8, seed=1), normal(2, 3, 6, 5, seed=2)
    ours = attend(attention_pattern(attention_scores(q, k, scale=scale)), v)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, scale=scale), **TIGHT)
    wide = normal(2, 3, 6, 8, seed=3)
    torch.testing.assert_close(
        fused_attention(q, k, wide, scale=scale),
        F.scaled_dot_product_attention(q, k, wide, scale=scale),
        **TIGHT,
    )
    torch.testing.assert_close(
        fused_attention(q, q, q, causal=True, scale=scale),
        F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=scale),
        **TIGHT,
    )
    by_hand = loops(q[1, 2].numpy(), k[1, 2].numpy(), v[1, 2].numpy(), scale=scale)
    torch.testing.assert_close(ours[1, 2], torch.from_numpy(by_hand), **TIGHT)


def test_the_scale_keeps_the_scores_of_random_vectors_at_variance_one():
    q, k = normal(500, 64), normal(500, 64, seed=1)
    assert attention_scores(q, k).std().item() == pytest.approx(1.0, abs=0.02)


@settings(deadline=None, max_examples=25)
@given(
    n_query=st.integers(1, 7),
    n_key=st.integers(1, 7),
    seed=st.integers(0, 10**6),
    p=st.sampled_from([0.2, 0.5, 0.9]),
)
def test_a_pattern_is_a_distribution_over_what_is_allowed(n_query, n_key, seed, p):
    scores = 5 * normal(2, 3, n_query, n_key, seed=seed)
    mask = bernoulli(2, 1, n_query, n_key, p=p, seed=seed)
    before = scores.clone(), mask.clone()
    pattern = attention_pattern(scores, mask=mask)
    assert (pattern >= 0).all()
    assert (pattern[~mask.expand_as(pattern)] == 0).all()
    rows = mask.any(-1).expand(2, 3, n_query).double()
    torch.testing.assert_close(pattern.sum(-1), rows, **TIGHT)
    weights = scores.exp() * mask
    expected = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    torch.testing.assert_close(pattern, expected, **TIGHT)
    assert torch.equal(scores, before[0])
    assert torch.equal(mask, before[1])


def test_large_scores_do_not_overflow():
    pattern = attention_pattern(torch.tensor([[1e30, 1e30, -1e30]]))
    torch.testing.assert_close(pattern, torch.tensor([[0.5, 0.5, 0.0]]))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_row_without_keys_is_zero_and_passes_no_gradient():
    scores = normal(3, 4).requires_grad_()
    mask = torch.tensor([[True] * 4, [False] * 4, [True, False, False, True]])
    with torch.autograd.detect_anomaly():  # no NaN on the way either
        pattern = attention_pattern(scores, mask=mask)
        (pattern * normal(3, 4, seed=1)).sum().backward()
    assert (pattern[1] == 0).all()
    assert (scores.grad[1] == 0).all()
    assert scores.grad[0].abs().min() > 1e-6
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(("n_query", "n_key"), [(1, 1), (3, 3), (2, 5), (1, 6)])
def test_causal_mask_lets_the_last_queries_see_their_past(n_query, n_key):
    allowed = causal_mask(n_query, n_key)
    for i in range(n_query):
        place = n_key - n_query + i
        assert allowed[i].tolist() == [j <= place for j in range(n_key)]


@pytest.mark.parametrize("n_query", [1, 2, 5, 8])
def test_a_block_of_queries_that_continues_a_cache_gets_the_same_rows(n_query):
    q, k, v = normal(2, 8, 4), normal(2, 8, 4, seed=1), normal(2, 8, 4, seed=2)
    whole = fused_attention(q, k, v, causal=True)
    block = fused_attention(q[:, -n_query:], k, v, causal=True)
    torch.testing.assert_close(block, whole[:, -n_query:], **TIGHT)
    bias = normal(n_query, 8, seed=3)
    mask = bernoulli(2, n_query, 8, seed=4)
    both = causal_mask(n_query, 8) & mask
    pattern = attention_pattern(attention_scores(q[:, -n_query:], k) + bias, mask=both)
    ours = fused_attention(q[:, -n_query:], k, v, causal=True, mask=mask, score_bias=bias)
    torch.testing.assert_close(ours, attend(pattern, v), **TIGHT)


MASKS = [None, (7,), (1,), (5, 7), (5, 1), (1, 7), (3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 7)]


@pytest.mark.parametrize("bias_shape", [None, (7,), (5, 7), (3, 5, 7), (3, 1, 1), (2, 1, 5, 7)])
@pytest.mark.parametrize("mask_shape", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_fused_equals_explicit_in_values_and_gradients(mask_shape, bias_shape, causal):
    inputs = [normal(2, 3, n, 4, seed=n) for n in (5, 7, 8)]
    inputs[2] = inputs[2][:, :, :7]
    mask = None if mask_shape is None else bernoulli(*mask_shape, p=0.5, seed=3)
    bias = None if bias_shape is None else normal(*bias_shape, seed=4)
    weight = normal(2, 3, 5, 4, seed=9)

    def run(function):
        q, k, v = (z.clone().requires_grad_() for z in inputs)
        added = None if bias is None else bias.clone().requires_grad_()
        out = function(q, k, v, added)
        (out * weight).sum().backward()
        return [out, q.grad, k.grad, v.grad] + ([] if bias is None else [added.grad])

    def by_parts(q, k, v, added):
        allowed = torch.ones(2, 3, 5, 7, dtype=torch.bool) if mask is None else mask
        if causal:
            allowed = allowed & torch.tensor([[j <= i + 2 for j in range(7)] for i in range(5)])
        scores = attention_scores(q, k)
        return attend(
            attention_pattern(scores if added is None else scores + added, mask=allowed), v
        )

    fused = run(lambda *z: fused_attention(*z[:3], score_bias=z[3], mask=mask, causal=causal))
    for ours, theirs in zip(fused, run(by_parts), strict=True):
        torch.testing.assert_close(ours, theirs, **TIGHT)


def test_fused_attention_can_drop_weights():
    q = normal(1, 1, 3, 4)
    torch.manual_seed(0)
    out = [fused_attention(q, q, q, dropout=0.5) for _ in range(2)]
    assert not torch.allclose(*out)


# --- the module against torch.nn -------------------------------------------------------------------


def torch_twin(ours):
    """nn.MultiheadAttention with the same weights."""
    theirs = nn.MultiheadAttention(
        ours.d_model, ours.n_heads, bias=ours.query.bias is not None, batch_first=True
    ).double()
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([p.weight.data for p in parts])
    theirs.out_proj.weight.data = ours.output.weight.data.clone()
    if ours.query.bias is not None:
        theirs.in_proj_bias.data = torch.cat([p.bias.data for p in parts])
        theirs.out_proj.bias.data = ours.output.bias.data.clone()
    return theirs


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", ["self", "cross", "causal", "padding", "causal padding"])
def test_module_equals_torch(case, bias, look):
    attention = made(12, 3, bias=bias)
    theirs = torch_twin(attention)
    x = normal(2, 6, 12).requires_grad_()
    memory = normal(2, 9, 12, seed=1).requires_grad_() if case == "cross" else None
    ours_kw, theirs_kw = {}, {}
    if "causal" in case:
        ours_kw["causal"] = True
        theirs_kw["attn_mask"] = torch.ones(6, 6, dtype=torch.bool).triu(1)
    if "padding" in case:
        real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
        ours_kw["padding_mask"] = real
        theirs_kw["key_padding_mask"] = ~real
    source = x if memory is None else memory
    expected, weights = theirs(x, source, source, average_attn_weights=False, **theirs_kw)
    if look:
        out, pattern = explicit(attention, x, memory, **ours_kw)
        torch.testing.assert_close(pattern, weights, **TIGHT)
    else:
        out = attention(x, memory, **ours_kw)
    torch.testing.assert_close(out, expected, **TIGHT)

    direction = normal(2, 6, 12, seed=5)
    wanted = [x, *([] if memory is None else [memory]), attention.output.weight]
    ours_grad = torch.autograd.grad((out * direction).sum(), [*wanted, attention.query.weight])
    wanted[-1] = theirs.out_proj.weight
    theirs_grad = torch.autograd.grad(
        (expected * direction).sum(), [*wanted, theirs.in_proj_weight]
    )
    for a, b in zip(ours_grad[:-1], theirs_grad[:-1], strict=True):
        torch.testing.assert_close(a, b, **TIGHT)
    torch.testing.assert_close(ours_grad[-1], theirs_grad[-1][:12], **TIGHT)


def test_general_masks_equal_torch():
    attention = made(12, 3)
    x = normal(2, 6, 12)
    mask = bernoulli(2, 3, 6, 6) | torch.eye(6, dtype=torch.bool)
    expected, weights = torch_twin(attention)(
        x, x, x, attn_mask=~mask.flatten(0, 1), average_attn_weights=False
    )
    torch.testing.assert_close(attention(x, mask=mask), expected, **TIGHT)
    out, pattern = explicit(attention, x, mask=mask)
    torch.testing.assert_close(out, expected, **TIGHT)
    torch.testing.assert_close(pattern, weights, **TIGHT)


# --- the module against loops: what torch.nn does not have --------------------------------------------


@settings(deadline=None, max_examples=30)
@given(
    groups=st.sampled_from([(1, 1), (4, 4), (4, 2), (4, 1), (6, 3), (6, 2)]),
    d_head=st.sampled_from([1, 2, 3, 5]),
    lengths=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    cross=st.booleans(),
    bias=st.booleans(),
    scale=st.sampled_from([None, 0.7]),
    masked=st.booleans(),
    biased=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_module_equals_loops(groups, d_head, lengths, cross, bias, scale, masked, biased, seed):
    n_heads, n_kv_heads = groups
    n_query, n_key = lengths if cross else (lengths[0],) * 2
    attention = made(
        7, n_heads, n_kv_heads=n_kv_heads, d_head=d_head, bias=bias, scale=scale, seed=seed
    )
    x = normal(2, n_query, 7, seed=seed)
    memory = normal(2, n_key, 7, seed=seed + 1) if cross else None
    real = bernoulli(2, n_key, p=0.7, seed=seed) if masked else None
    mask = bernoulli(n_heads, n_query, n_key, p=0.7, seed=seed + 1) if masked else None
    added = normal(n_heads, n_query, n_key, seed=seed + 2) if biased else None
    shape = (2, n_heads, n_query, n_key)
    allowed = None if mask is None else (mask & real[:, None, None, :]).expand(shape)
    expected = module_by_loops(
        attention, x, memory, allowed, None if added is None else added.expand(shape)
    )
    options = {"padding_mask": real, "mask": mask, "score_bias": added}
    torch.testing.assert_close(attention(x, memory, **options), expected, **TIGHT)
    out, _ = explicit(attention, x, memory, **options)
    torch.testing.assert_close(out, expected, **TIGHT)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("biased", [False, True])
def test_module_fused_equals_explicit_with_gradients(n_kv_heads, causal, padding, biased):
    real = torch.ones(3, 6, dtype=torch.bool)
    if padding == "left":
        real[1, :3], real[2, :5] = False, False
    if padding == "right":
        real[1, 3:], real[2, 1:] = False, False
    options = {
        "causal": causal,
        "padding_mask": None if padding is None else real,
        "score_bias": normal(4, 6, 6, seed=7) if biased else None,
    }

    def run(look):
        attention = made(8, 4, n_kv_heads=n_kv_heads)
        x = normal(3, 6, 8).requires_grad_()
        out = explicit(attention, x, **options)[0] if look else attention(x, **options)
        (out * normal(3, 6, 8, seed=3)).sum().backward()
        return [out, x.grad, *(p.grad for p in attention.parameters())]

    for fused, by_parts in zip(run(False), run(True), strict=True):
        assert fused.isfinite().all()
        torch.testing.assert_close(fused, by_parts, **TIGHT)


def test_a_query_with_no_key_receives_the_bias_of_the_output_alone():
    attention = made(8, 2)
    x = normal(1, 4, 8).requires_grad_()
    real = torch.tensor([[False, False, True, True]])
    for look in (False, True):
        options = {"causal": True, "padding_mask": real}
        out = explicit(attention, x, **options)[0] if look else attention(x, **options)
        torch.testing.assert_close(out[0, :2], attention.output.bias.expand(2, 8), **TIGHT)
        (grad,) = torch.autograd.grad(out[0, :2].sum(), x)
        assert (grad == 0).all()


def test_padding_values_do_not_matter():
    attention = made(8, 2)
    x, memory = normal(2, 3, 8), normal(2, 5, 8, seed=1)
    real = torch.tensor([[True] * 5, [True, True, False, False, False]])
    other = memory.masked_fill(~real[:, :, None], 1e3)
    assert not torch.equal(memory, other)
    for look in (False, True):
        call = (lambda *a, **k: explicit(attention, *a, **k)[0]) if look else attention
        a, b = call(x, memory, padding_mask=real), call(x, other, padding_mask=real)
        torch.testing.assert_close(a, b, **TIGHT)
        assert not torch.allclose(call(x, memory), call(x, other))


def test_rotation_turns_queries_and_keys_and_leaves_values_alone():
    attention = made(8, 2)
    x = normal(2, 5, 8)
    turn = rotation(torch.tensor([4, 9, 2, 7, 100]), 4, dtype=torch.float64)
    heads = [
        layer(x).unflatten(-1, (2, 4)).transpose(1, 2)
        for layer in (attention.query, attention.key, attention.value)
    ]
    q, k = turn.apply(heads[0]), turn.apply(heads[1])
    mixed = F.scaled_dot_product_attention(q, k, heads[2], is_causal=True)
    expected = attention.output(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, rotation=turn, causal=True), expected, **TIGHT)
    with capture(attention) as seen:
        torch.testing.assert_close(attention(x, rotation=turn, causal=True), expected, **TIGHT)
    torch.testing.assert_close(seen["queries"], heads[0], **TIGHT)  # taps stand before the rotation
    torch.testing.assert_close(seen["values"], heads[2], **TIGHT)


# --- causality at the level of the module -----------------------------------------------------------

CHANGES = [(n, at) for n in range(2, 65) for at in sorted({(n + 1) // 2, n - 1})]


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("padding", [False, True])
def test_no_query_sees_ahead_at_any_length(n_kv_heads, look, padding):
    attention = made(8, 4, n_kv_heads=n_kv_heads)
    for n, at in CHANGES:
        x = normal(2, n, 8, seed=n)
        changed = x.clone()
        changed[:, at:] = normal(2, n - at, 8, seed=n + 1)
        real = torch.ones(2, n, dtype=torch.bool)
        real[1, : n // 3] = False
        options = {"causal": True, "padding_mask": real if padding else None}
        if look:
            before, after = (
                explicit(attention, x, **options)[0],
                explicit(attention, changed, **options)[0],
            )
        else:
            before, after = attention(x, **options), attention(changed, **options)
        difference = (before - after).abs().amax(-1)
        assert (difference[:, :at] < 1e-12).all(), f"length {n}: a change at {at} is seen earlier"
        assert (difference[:, at:] > 1e-6).all(), f"length {n}: a change at {at} is not seen there"
        free = attention(x) - attention(changed)
        assert (free[:, :at].abs().amax(-1) > 1e-6).all(), "without the mask the change is seen"


# --- heads, taps, dropout, no side effects ----------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_head_outputs_add_up_to_the_output(bias, n_kv_heads):
    attention = made(8, 4, n_kv_heads=n_kv_heads, bias=bias, d_head=3)
    x = normal(2, 5, 8)
    plain = attention(x, causal=True)
    with capture(attention, "head_outputs", "out", "mixed") as seen:
        out = attention(x, causal=True)
    total = seen["head_outputs"].sum(1) + (attention.output.bias if bias else 0)
    for other in (out, seen["out"], total):
        torch.testing.assert_close(other, plain, **TIGHT)
    by_head = attention.output.weight[:, 2 * 3 : 3 * 3]
    torch.testing.assert_close(seen["head_outputs"][:, 2], seen["mixed"][:, 2] @ by_head.T, **TIGHT)


def test_removing_a_head_removes_its_contribution():
    attention = made(8, 4)
    x = normal(2, 5, 8)
    with capture(attention, "head_outputs") as seen:
        whole = attention(x)

    def without(heads):
        keep = torch.ones(1, 4, 1, 1, dtype=torch.float64)
        keep[:, heads] = 0
        return lambda value: value * keep

    with intervene(attention, {"head_outputs": without([1, 3])}):
        rest = attention(x)
    torch.testing.assert_close(rest, whole - seen["head_outputs"][:, [1, 3]].sum(1), **TIGHT)


def test_scores_and_pattern_belong_together():
    attention = made(8, 2)
    x = normal(2, 5, 8)
    bias = normal(2, 5, 5, seed=3)
    with capture(attention) as seen:
        attention(x, causal=True, score_bias=bias)
    scores = seen["queries"] @ seen["keys"].transpose(-2, -1) / 2 + bias
    torch.testing.assert_close(seen["scores"], scores, **TIGHT)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(
        seen["pattern"], scores.masked_fill(future, -torch.inf).softmax(-1), **TIGHT
    )
    torch.testing.assert_close(seen["mixed"], seen["pattern"] @ seen["values"], **TIGHT)


@pytest.mark.parametrize("look", [False, True])
def test_dropout_works_in_training_only_and_keeps_the_mean(look):
    attention = made(8, 2, dropout=0.25)
    attention.output.weight.data, attention.output.bias.data = torch.eye(8).double(), torch.zeros(8)
    attention.output.bias.data = attention.output.bias.data.double()
    x = normal(1, 6, 8)
    call = (lambda z: explicit(attention, z)[0]) if look else attention
    quiet = made(8, 2)
    quiet.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attention.eval()(x), quiet(x), **TIGHT)
    torch.manual_seed(0)
    attention.train()
    many = call(x.expand(4000, 6, 8)).detach()
    spread = many.std(0)
    assert (spread > 1e-3).all()
    assert ((many.mean(0) - quiet(x)[0]).abs() < 5 * spread / math.sqrt(4000)).all()
    # The variance of a sum of weights each dropped with p and else divided by 1 - p: p/(1-p) (a v)^2.
    with capture(quiet, "pattern", "values") as seen:
        quiet(x)
    squares = seen["pattern"].square() @ seen["values"].square() * 0.25 / 0.75
    expected = squares.sqrt().transpose(1, 2).flatten(2)[0]
    torch.testing.assert_close(spread, expected, rtol=0.12, atol=0)


def test_nothing_writes_into_its_inputs():
    attention = made(8, 4, n_kv_heads=2)
    x, memory = normal(2, 4, 8), normal(2, 5, 8, seed=1)
    real, mask = bernoulli(2, 5), bernoulli(4, 4, 5)
    bias = normal(4, 4, 5)
    inputs = (x, memory, real, mask, bias)
    before = copy.deepcopy(inputs)
    for look in (False, True):
        options = {"padding_mask": real, "mask": mask, "score_bias": bias}
        call = explicit if look else (lambda a, *z, **k: a(*z, **k))
        call(attention, x, memory, **options)
        for now, then in zip(inputs, before, strict=True):
            assert torch.equal(now, then)
    pattern = normal(2, 3, 4).softmax(-1)
    values = normal(2, 4, 5)
    kept = pattern.clone(), values.clone()
    attend(pattern, values)
    attention_scores(values, values)
    assert torch.equal(pattern, kept[0])
    assert torch.equal(values, kept[1])


def test_shared_heads_save_parameters():
    whole, shared = MultiHeadAttention(16, 4), MultiHeadAttention(16, 4, n_kv_heads=1)
    assert shared.key.weight.shape == (4, 16)
    assert whole.key.weight.shape == (16, 16)
    assert shared.query.weight.shape == whole.query.weight.shape


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 10, "n_heads": 3}, "d_model=10 and n_heads=3"),
        ({"d_model": 12, "n_heads": 4, "n_kv_heads": 3}, "n_heads=4 and n_kv_heads=3"),
        ({"d_model": 12, "n_heads": 2, "n_kv_heads": 4}, "n_heads=2 and n_kv_heads=4"),
        ({"d_model": 12, "n_heads": 0}, "at least one head, got n_heads=0"),
        ({"d_model": 12, "n_heads": 2, "n_kv_heads": 0}, "n_kv_heads=0"),
        ({"d_model": 12, "n_heads": -2}, "n_heads=-2"),
        ({"d_model": 12, "n_heads": 2, "d_head": 0}, "d_head=0"),
        ({"d_model": 0, "n_heads": 2}, "d_model=0"),
        ({"d_model": 12, "n_heads": 2, "dropout": 1.0}, r"\[0, 1\), got 1.0"),
        ({"d_model": 12, "n_heads": 2, "dropout": -0.1}, r"\[0, 1\), got -0.1"),
    ],
)
def test_impossible_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**arguments)


X, BIG = torch.zeros(2, 4, 8), torch.ones


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(2, 4, 6)}, r"d_model=8\), got \(2, 4, 6\)"),
        ({"x": torch.zeros(4, 8)}, r"got \(4, 8\)"),
        ({"memory": torch.zeros(2, 4, 6)}, r"memory must have .* got \(2, 4, 6\)"),
        ({"memory": torch.zeros(3, 4, 8)}, "same batch, got 2 and 3"),
        ({"memory": X, "causal": True}, "causal is for self-attention"),
        ({"memory": X, "rotation": rotation(4, 4)}, "rotation is for self-attention"),
        ({"rotation": rotation(5, 4)}, r"\(5, 4\), got \(4, 4\)"),
        ({"rotation": rotation(4, 6)}, r"\(4, 6\), got \(4, 4\)"),
        ({"mask": torch.ones(4, 4)}, "mask must be Boolean.*float32"),
        ({"mask": torch.ones(4, 4, dtype=torch.long)}, "mask must be Boolean.*int64"),
        ({"mask": torch.ones(4, 5, dtype=torch.bool)}, r"\(2, 2, 4, 4\), got \(4, 5\)"),
        ({"mask": torch.ones(3, 2, 2, 4, 4, dtype=torch.bool)}, r"got \(3, 2, 2, 4, 4\)"),
        ({"mask": torch.ones(2, 4, 4, dtype=torch.bool)[:1].expand(3, 4, 4)}, r"got \(3, 4, 4\)"),
        ({"padding_mask": torch.ones(2, 4)}, r"\(2, 4\).*got torch.float32"),
        ({"padding_mask": torch.ones(2, 5, dtype=torch.bool)}, r"\(2, 4\).*\(2, 5\)"),
        ({"padding_mask": torch.ones(4, dtype=torch.bool)}, r"\(2, 4\).*\(4,\)"),
        ({"padding_mask": torch.ones(1, 4, dtype=torch.bool)}, r"\(2, 4\).*\(1, 4\)"),
        ({"score_bias": torch.zeros(3, 4, 4)}, r"score_bias.*\(2, 2, 4, 4\), got \(3, 4, 4\)"),
        ({"score_bias": torch.zeros(5, 2, 2, 4, 4)}, r"score_bias.*got \(5, 2, 2, 4, 4\)"),
        ({"score_bias": torch.ones(4, 4, dtype=torch.bool)}, "score_bias.*torch.bool"),
    ],
)
@pytest.mark.parametrize("look", [False, True])
def test_inputs_that_do_not_fit_are_refused(unhooked, arguments, message, look):
    attention = MultiHeadAttention(8, 2)
    arguments = {"x": X, **arguments}
    with pytest.raises(ValueError, match=message):
        explicit(attention, **arguments) if look else attention(**arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention_scores(BIG(3, 4), BIG(3, 5)), r"\(3, 4\) and \(3, 5\)"),
        (lambda: attend(BIG(3, 4), BIG(5, 2)), r"\(3, 4\) and \(5, 2\)"),
        (lambda: attention_pattern(BIG(3, 4), mask=BIG(3, 4)), "Boolean.*float32"),
        (
            lambda: attention_pattern(BIG(3, 4), mask=BIG(2, 3, 4).bool()),
            r"\(3, 4\), got \(2, 3, 4\)",
        ),
        (lambda: fused_attention(BIG(3, 4), BIG(3, 5), BIG(3, 5)), r"\(3, 4\), \(3, 5\)"),
        (lambda: fused_attention(BIG(3, 4), BIG(3, 4), BIG(2, 4)), r"\(3, 4\) and \(2, 4\)"),
        (lambda: fused_attention(BIG(2, 3, 4), BIG(5, 3, 4), BIG(5, 3, 4)), r"\(2, 3, 4\), \(5"),
        (lambda: fused_attention(BIG(3, 4), BIG(3, 4), BIG(3, 4), mask=BIG(3, 3)), "Boolean"),
        (
            lambda: fused_attention(BIG(3, 4), BIG(2, 4), BIG(2, 4), causal=True),
            "3 queries and 2 keys",
        ),
        (lambda: causal_mask(3, 2), "3 queries and 2 keys"),
    ],
)
def test_functions_refuse_what_does_not_fit(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
