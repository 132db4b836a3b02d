"""Every choice of `Config`: one pass or piece by piece, watched or not, padded or not, the same logits."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from measured_transformer.inference.generate import generate
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config, Layer
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.sizes import count_parameters
from measured_transformer.parts.experts import Clamp, Experts
from measured_transformer.parts.latent import Latent
from measured_transformer.parts.norms import NORMS
from measured_transformer.parts.position_schemes import SCHEMES, PositionScheme
from measured_transformer.parts.rotary_scaling import (
    Dynamic,
    Interpolated,
    Llama3,
    LongRope,
    RotaryScaling,
    Yarn,
)

VOCAB, N = 17, 9
SIZES = {"vocab": VOCAB, "d_model": 16, "n_layers": 3, "n_heads": 4, "d_ff": 24, "max_length": 16}
SCALINGS = [
    Interpolated(4.0),
    Dynamic(2.0, 32),
    Yarn(4.0, 8),
    Llama3(8.0, 8),
    LongRope((1.0, 2.0), (3.0, 4.0), 32, 1.1),
]
CHOICES = {
    **{scheme: {"positions": scheme} for scheme in SCHEMES},
    **{f"{scheme}, groups": {"positions": scheme, "n_kv_heads": 2} for scheme in SCHEMES},
    **{f"norm {name}": {"norm": name, "positions": "rotary"} for name in NORMS},
    **{type(one).__name__: {"positions": "rotary", "rotary_scaling": one} for one in SCALINGS},
    "half turned": {"positions": "rotary", "rotary_share": 0.5},
    "half turned, halves": {
        "positions": "rotary",
        "rotary_share": 0.5,
        "rotary_pairing": "halves",
    },
    "norm of each head": {"qk_norm": "head", "norm": "rms", "positions": "rotary"},
    "norm by head": {"qk_norm": "heads", "n_kv_heads": 2},
    "norm of all heads": {"qk_norm": "width", "norm": "rms", "n_kv_heads": 1},
    "offset": {"norm": "rms", "norm_offset": 1.0, "qk_norm": "head"},
    "window": {"window": 3, "positions": "rotary"},
    "window, groups": {"window": 3, "n_kv_heads": 2},
    "window, ALiBi, groups": {"window": 3, "n_kv_heads": 2, "positions": "alibi"},
    "window of one": {"window": 1},
    "sinks": {"sinks": True, "window": 4, "n_kv_heads": 2},
    "capped scores": {"score_cap": 2.0, "n_kv_heads": 2, "window": 4},
    "capped logits": {"logit_cap": 1.5},
    "K = V": {"shared_kv": True, "n_kv_heads": 2, "positions": "rotary", "qk_norm": "head"},
    "sandwich": {"placement": "sandwich"},
    "branch": {"placement": "branch", "norm": "rms"},
    "parallel": {"parallel": True},
    "parallel, one norm": {"parallel": True, "shared_norm": True},
    "parallel sandwich": {"parallel": True, "placement": "sandwich"},
    "residual scale": {"residual_scale": 0.22},
    "biases of q, k, v": {"bias": False, "qkv_bias": True},
    "no biases of q, k, v": {"qkv_bias": False},
    "norms without bias": {"norm_bias": False},
    "attention without norm": {"attention_norm": False},
    "another decoder": {"n_decoder_heads": 2, "d_decoder_ff": 12, "n_kv_heads": 2},
    "an embedding for each side": {"shared_embedding": False, "tie_embeddings": True},
    "wide stream": {"wide_stream": True, "placement": "sandwich"},
    "first block's attention without norm": {
        "layers": (Layer(attention_norm=False), *[Layer()] * 3),
    },
    "experts": {"network": Experts(5, 2)},
    "experts with gates, biases, normalised": {
        "network": Experts(4, 2, width=5, normalised=True, router_bias=True),
        "activation": "swiglu",
    },
    "experts, some shared": {
        "network": Experts(4, 1, shared_width=7, shared_gate=True, scores="sigmoid"),
        "bias": False,
        "parallel": True,
    },
    "experts in groups": {
        "network": Experts(
            6, 2, groups=3, asked_groups=2, group_best=2, choice_bias=True, weight_scale=2.5
        ),
        "initialisation": "gpt2",
    },
    "clamped experts": {"network": Experts(4, 3, clamp=Clamp(0.8, 1.3)), "activation": "swiglu"},
    "experts in some blocks": {"layers": (Layer(network=Experts(3, 1)), Layer())},
    "latent attention": {"attention": Latent(8, d_rotary=2), "positions": "rotary"},
    "latent attention, of queries too": {
        "attention": Latent(8, d_rotary=4, d_value=6, query_rank=5),
        "positions": "rotary",
        "norm": "rms",
        "norm_offset": 1.0,
        "window": 3,
    },
    "latent attention, ALiBi": {
        "attention": Latent(8, d_value=3, normalised=False),
        "positions": "alibi",
        "window": 4,
        "bias": False,
    },
    "latent attention, capped, sinks": {
        "attention": Latent(6, d_rotary=2, d_value=9),
        "positions": "rotary",
        "rotary_scaling": SCALINGS[2],
        "score_cap": 2.0,
        "sinks": True,
    },
    "latent attention in some blocks": {
        "positions": "rotary",
        "n_kv_heads": 2,
        "layers": (
            Layer(attention=Latent(8, d_rotary=2, query_rank=4), network=Experts(3, 2)),
            Layer(),
            Layer(attention=Latent(8, d_rotary=2), positions="none"),
        ),
    },
    "layers": {
        "positions": "rotary",
        "layers": (
            Layer(window=3, rotary_base=100.0),
            Layer(positions="none", d_ff=20, activation="swiglu"),
            Layer(rotary_scaling=Yarn(4.0, 8), attention_scale=0.3),
        ),
    },
}


def made(kind, changes, dtype=torch.float64):
    torch.manual_seed(0)
    model = kind(Config(**SIZES, **changes)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def tokens(rows=2, n=N):
    return torch.randint(VOCAB, (rows, n), generator=torch.Generator().manual_seed(1))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
@torch.no_grad()
def test_pieces_give_what_one_pass_gives(changes):
    model, x = made(Decoder, changes), tokens()
    for sizes in ([1] * N, [4, 1, 3, 1]):
        cache = model.make_cache()
        pieces = [model(part, cache=cache) for part in x.split(sizes, dim=1)]
        close(torch.cat(pieces, dim=1), model(x))


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("kind", [Decoder, Encoder, EncoderDecoder])
@torch.no_grad()
def test_watching_changes_nothing(kind, changes):
    if kind is EncoderDecoder and changes.get("parallel"):
        pytest.skip("a parallel block has no cross-attention")
    model = made(kind, changes)
    given = (tokens(), tokens(n=5)) if kind is EncoderDecoder else (tokens(),)
    plain = model(*given)
    with capture(model) as seen:
        close(model(*given), plain)
    assert len(seen) > 20


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("kind", [Decoder, Encoder])
@torch.no_grad()
def test_padding_on_the_left_moves_nothing(kind, changes):
    model, x = made(kind, changes), tokens()
    pad = torch.zeros(2, 3, dtype=torch.int64)
    real = torch.cat((pad.bool(), torch.ones_like(x).bool()), dim=1)
    padded = model(torch.cat((pad, x), dim=1), padding_mask=real)
    close(padded[:, 3:], model(x))


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
def test_generation_takes_the_likeliest_token_of_the_whole_text(changes):
    model = made(Decoder, changes)
    text = [3, 1, 4]
    written = generate(model, [text], max_new_tokens=6).tokens[0].tolist()
    for token in written:
        with torch.no_grad():
            assert token == int(model(torch.tensor([text]))[0, -1].argmax())
        text = [*text, token]


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("kind", [Decoder, Encoder, EncoderDecoder])
def test_parameters_are_counted(kind, changes):
    if kind is EncoderDecoder and changes.get("parallel"):
        pytest.skip("a parallel block has no cross-attention")
    model = made(kind, changes)
    name = {Decoder: "decoder", Encoder: "encoder", EncoderDecoder: "encoder-decoder"}[kind]
    assert count_parameters(model.config, name).total == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "changes",
    [
        *({"window": 2}, {"sinks": True}, {"score_cap": 0.5}, {"qk_norm": "head"}),
        *({"shared_kv": True}, {"placement": "sandwich"}, {"placement": "branch"}),
        *({"parallel": True}, {"residual_scale": 0.5}, {"logit_cap": 0.5}, {"rotary_share": 0.5}),
        *({"rotary_scaling": Llama3(8.0, 8)}, {"layers": (Layer(positions="none"), Layer())}),
    ],
    ids=str,
)
@torch.no_grad()
def test_each_choice_changes_the_function(changes):
    """With the weights of the plain model, where the names are the same."""
    base = made(Decoder, {"positions": "rotary"})
    model = made(Decoder, {"positions": "rotary", **changes})
    model.load_state_dict(base.state_dict(), strict=False)
    assert (model(tokens()) - base(tokens())).abs().max() > 1e-3


@torch.no_grad()
def test_a_window_hides_what_is_farther_away():
    model = made(Decoder, {"window": 3, "positions": "rotary"})
    with capture(model, "*.pattern") as seen:
        model(tokens())
    pattern = seen["blocks.0.attention.pattern"]
    place = torch.arange(N)
    back = place[:, None] - place
    assert bool(((pattern > 0) == ((back >= 0) & (back < 3))).all())
    both = made(Encoder, {"window": 3})
    with capture(both, "*.pattern") as seen:
        both(tokens())
    assert bool(((seen["blocks.0.attention.pattern"] > 0) == (back.abs() < 3)).all())


@torch.no_grad()
def test_a_sink_takes_weight_and_writes_nothing():
    model = made(Decoder, {"sinks": True})
    for block in model.blocks:
        block.attention.sinks.fill_(1000.0)
    with capture(model, "*.pattern", "*.mixed") as seen:
        model(tokens())
    assert all(float(value.abs().max()) == 0 for value in seen.values())


@torch.no_grad()
def test_a_scheme_of_ones_own_is_one_definition(monkeypatch):
    class Slower(RotaryScaling):
        def frequencies(self, d, base, length):
            return Interpolated(8.0).frequencies(d, base, length)

    both = PositionScheme(turned=SCHEMES["rotary"].turned, bias=SCHEMES["alibi"].bias)
    monkeypatch.setitem(SCHEMES, "both", both)
    for changes in ({"positions": "both"}, {"positions": "rotary", "rotary_scaling": Slower()}):
        model, x = made(Decoder, changes), tokens()
        cache = model.make_cache()
        pieces = [model(part, cache=cache) for part in x.split([5, 1, 3], dim=1)]
        close(torch.cat(pieces, dim=1), model(x))


def test_a_block_has_the_settings_of_its_layer():
    config = Config(**SIZES, positions="rotary", layers=(Layer(window=2), Layer(), Layer(d_ff=8)))
    model = Decoder(config)
    assert [block.attention.window for block in model.blocks] == [2, None, None]
    assert [block.feedforward.up.out_features for block in model.blocks] == [24, 24, 8]
    assert config.of_layer(3).window == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rotary_scaling": 8.0}, "rotary_scaling must be one of the classes of parts"),
        ({"rotary_share": 0.3}, "rotary_share must turn an even number of the 4 entries"),
        ({"rotary_share": 0.0}, "rotary_share must turn an even number of the 4 entries"),
        ({"rotary_share": 1.5}, "rotary_share must lie in"),
        ({"shared_norm": True}, "shared_norm is for parallel blocks with pre-norm"),
        ({"parallel": True, "placement": "post"}, "a parallel block has no post-norm"),
        ({"norm_offset": 1.0}, "norm_offset is for norm='rms', got norm='layer'"),
        ({"norm": "none", "qk_norm": "head"}, "qk_norm needs a norm"),
        ({"qk_norm": "all"}, "qk_norm must be one of none, head, heads, width; got 'all'"),
        ({"score_cap": -1.0}, "score_cap must be positive or None"),
        ({"window": 0}, "window must be a positive whole number"),
        (
            {"network": "experts"},
            "network must be an object of a class derived from Network, got str",
        ),
        ({"network": Experts(4, 2, clamp=Clamp())}, "clamp is for gated activations, got 'gelu'"),
        ({"attention": Latent(4), "positions": "rotary"}, "need an even width of heads, got 0"),
        (
            {"attention": Latent(4), "qk_norm": "head"},
            "latent attention is for qk_norm='none'",
        ),
        ({"layers": ({"window": 3},)}, "layers must hold objects of the class Layer, got dict"),
        ({"layers": (Layer(rotary_base=9.0),)}, "layers with rotary settings are for"),
        ({"positions": "rotary", "layers": (Layer(rotary_base=0.5),)}, "rotary_base must be"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unhooked")
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**SIZES, **changes)


def test_every_choice_is_in_the_list_above():
    """A new field of `Config` wants a case here, or a place among those that other files test."""
    elsewhere = {
        *("vocab", "d_model", "n_layers", "n_decoder_layers", "n_heads", "d_head", "d_ff"),
        *("max_length", "rotary_base", "relative_buckets", "relative_max_distance"),
        *("attention_scale", "norm_eps", "final_norm", "residual", "activation", "dropout"),
        *("attention_bias", "ffn_bias", "token_types", "embedding_norm", "embedding_scale"),
        *("head", "head_bias", "logit_scale", "pooler", "tie_embeddings", "initialisation"),
        *("head_activation", "head_layer_bias", "labels", "pooler_activation"),
    }
    tried = {name for changes in CHOICES.values() for name in changes}
    assert {field.name for field in dataclasses.fields(Config)} <= tried | elsewhere
