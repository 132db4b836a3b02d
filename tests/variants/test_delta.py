"""The delta rule: state and pairs agree with loops, and the newest value of each key comes back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.variants.delta import (
    Delta,
    DeltaRule,
    delta_rule,
    delta_rule_by_pairs,
)
from torch.nn import functional as F

TIGHT = {"rtol": 0, "atol": 1e-11}
CONFIG = Config(vocab=9, d_model=16, n_heads=2, n_layers=3, positions="learned", max_length=12)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_state_and_pairs_agree_with_loops(n, d_head, d_value, seed):
    queries, keys = normal(2, n, d_head, seed=seed).unbind(0)
    keys = F.normalize(keys, dim=-1)
    values, strengths = normal(n, d_value, seed=seed + 1), normal(n, seed=seed + 2).sigmoid()
    state = torch.zeros(d_head, d_value, dtype=torch.float64)
    wanted = torch.zeros(n, d_value, dtype=torch.float64)
    for t in range(n):
        # A projection that forgets along the key, then a write: the rule in its other form.
        forget = torch.eye(d_head, dtype=torch.float64) - strengths[t] * torch.outer(
            keys[t], keys[t]
        )
        state = forget @ state + strengths[t] * torch.outer(keys[t], values[t])
        wanted[t] = queries[t] @ state
    torch.testing.assert_close(delta_rule(queries, keys, values, strengths), wanted, **TIGHT)
    torch.testing.assert_close(
        delta_rule_by_pairs(queries, keys, values, strengths), wanted, **TIGHT
    )


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 1000))
def test_the_newest_value_of_each_key_comes_back(keys, told, seed):
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(normal(keys, keys, seed=seed))[0]
    which = torch.randint(keys, (told,), generator=generator)
    values = normal(told, 3, seed=seed + 1)
    newest = {int(key): values[t] for t, key in enumerate(which)}
    asked = torch.tensor(list(newest))
    zeros = torch.zeros(len(asked), 3, dtype=torch.float64)
    read = delta_rule_by_pairs(
        basis[torch.cat([which, asked])],
        basis[torch.cat([which, asked])],
        torch.cat([values, zeros]),
        torch.cat([torch.ones(told), torch.zeros(len(asked))]).double(),
    )[told:]
    torch.testing.assert_close(read, torch.stack(list(newest.values())), **TIGHT)


def test_a_strength_of_zero_leaves_no_trace():
    queries, keys = F.normalize(normal(2, 6, 4), dim=-1).unbind(0)
    values, strengths = normal(6, 3), torch.tensor([1.0, 0.5, 0.0, 1.0, 0.0, 0.3]).double()
    kept = strengths > 0
    whole = delta_rule(queries, keys, values, strengths)
    without = delta_rule(queries[kept], keys[kept], values[kept], strengths[kept])
    torch.testing.assert_close(whole[kept], without, **TIGHT)


def test_a_model_of_it_sees_nothing_ahead_and_some_of_its_blocks_may_attend():
    torch.manual_seed(0)
    model = Decoder(CONFIG).double()
    Delta(blocks=(0, 2))(model)
    kinds = [isinstance(block.attention, DeltaRule) for block in model.blocks]
    assert kinds == [True, False, True]
    tokens = torch.arange(9)[None]
    before = model(tokens)
    tokens = tokens.clone()
    tokens[0, 6] = 0
    after = model(tokens)
    torch.testing.assert_close(before[:, :6], after[:, :6], **TIGHT)
    assert (before[:, 6:] - after[:, 6:]).abs().max() > 1e-3


def test_one_layer_is_its_formula_and_all_its_weights_learn():
    torch.manual_seed(0)
    model = Decoder(CONFIG).double()
    Delta()(model)
    layer, x = model.blocks[0].attention, normal(1, 7, 16)
    with torch.no_grad():
        layer.rate.weight.normal_()
        layer.norm.weight.uniform_(0.5, 2)
    asking, asked = (
        F.normalize(F.silu(each(x)[0].unflatten(-1, (2, 8))), dim=-1)
        for each in (layer.query, layer.key)
    )
    told, strength = layer.value(x)[0].unflatten(-1, (2, 8)), layer.rate(x)[0].sigmoid()
    heads = [delta_rule(asking[:, h], asked[:, h], told[:, h], strength[:, h]) for h in range(2)]
    scaled = [
        head / (head.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
        for head in heads
    ]
    wanted = layer.output(torch.cat(scaled, dim=1))[None]
    with capture(layer, "strength") as seen:
        found = layer(x, causal=True)
    torch.testing.assert_close(found, wanted, **TIGHT)
    torch.testing.assert_close(seen["strength"][0], strength.T, **TIGHT)
    model(torch.arange(9)[None]).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in layer.parameters())


def test_what_it_cannot_do_is_refused():
    model = Encoder(CONFIG)
    Delta()(model)
    with pytest.raises(ValueError, match="got causal=False"):
        model(torch.arange(9)[None])
    model = Decoder(CONFIG.replace(positions="alibi"))
    Delta()(model)
    with pytest.raises(ValueError, match="takes the stream alone, got"):
        model(torch.arange(9)[None])
    with pytest.raises(ValueError, match="expected a Decoder"):
        Delta()(EncoderDecoder(CONFIG))
    with pytest.raises(ValueError, match=r"expected blocks from 0 to 2, got \[3\]"):
        Delta(blocks=(1, 3))(Decoder(CONFIG))
    with pytest.raises(ValueError, match="as many key-value heads"):
        Delta()(Decoder(CONFIG.replace(n_kv_heads=1)))
