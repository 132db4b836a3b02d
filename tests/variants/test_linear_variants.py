"""Linear attention: the state and the sum over pairs agree, and both are what the definition says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.variants.linear import (
    LinearAttention,
    features,
    linear,
    linear_attention,
    linear_attention_by_pairs,
)

TIGHT = {"rtol": 0, "atol": 1e-12}
CONFIG = Config(vocab=9, d_model=16, n_heads=2, n_layers=2, positions="learned", max_length=12)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_state_and_pairs_agree_with_loops(n, d_head, d_value, seed):
    queries, keys = normal(2, n, d_head, seed=seed).unbind(0)
    values = normal(n, d_value, seed=seed + 1)
    wanted = torch.zeros(n, d_value, dtype=torch.float64)
    for i in range(n):
        weights = [float(features(queries[i]) @ features(keys[j])) for j in range(i + 1)]
        for j, weight in enumerate(weights):
            wanted[i] += weight / sum(weights) * values[j]
    torch.testing.assert_close(linear_attention(queries, keys, values), wanted, **TIGHT)
    torch.testing.assert_close(linear_attention_by_pairs(queries, keys, values), wanted, **TIGHT)


def test_features_are_positive_and_meet_at_zero():
    x = torch.tensor([-3.0, -1e-6, 0.0, 1e-6, 2.0], dtype=torch.float64)
    wanted = torch.where(x > 0, x + 1, x.exp())
    torch.testing.assert_close(features(x), wanted, **TIGHT)
    assert (features(normal(100)) > 0).all()


def test_a_model_of_it_keeps_its_projections_and_sees_nothing_ahead():
    torch.manual_seed(0)
    model = Decoder(CONFIG).double()
    names = {name for name, _ in model.named_parameters()}
    linear(model)
    assert {name for name, _ in model.named_parameters()} == names
    assert sum(isinstance(module, LinearAttention) for module in model.modules()) == 2
    tokens = torch.arange(9)[None]
    before = model(tokens)
    tokens = tokens.clone()
    tokens[0, 6] = 0
    after = model(tokens)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


def test_one_layer_is_its_formula():
    torch.manual_seed(0)
    model = Decoder(CONFIG).double()
    linear(model)
    layer, x = model.blocks[0].attention, normal(1, 7, 16)
    asking, asked, told = (each(x)[0] for each in (layer.query, layer.key, layer.value))
    heads = [
        linear_attention(asking[:, h], asked[:, h], told[:, h]) for h in (slice(0, 8), slice(8, 16))
    ]
    wanted = layer.output(torch.cat(heads, dim=1))[None]
    torch.testing.assert_close(layer(x, causal=True), wanted, **TIGHT)


def test_the_weights_of_so_many_features_have_no_higher_rank():
    queries, keys = normal(2, 16, 4).unbind(0)
    assert torch.linalg.matrix_rank(features(queries) @ features(keys).T) == 4
    assert torch.linalg.matrix_rank((queries @ keys.T).exp()) > 4


def test_what_it_cannot_do_is_refused():
    model = Encoder(CONFIG)
    linear(model)
    with pytest.raises(ValueError, match="got causal=False"):
        model(torch.arange(9)[None])
    model = Decoder(CONFIG.replace(positions="alibi"))
    linear(model)
    with pytest.raises(ValueError, match="takes the stream alone, got score_bias"):
        model(torch.arange(9)[None])
    with pytest.raises(ValueError, match="got 1 and 2"):
        linear(Decoder(CONFIG.replace(n_kv_heads=1)))
    with pytest.raises(ValueError, match="got an EncoderDecoder"):
        linear(EncoderDecoder(CONFIG))
