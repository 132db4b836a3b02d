"""Counts from the config are those of the real tensors and of PyTorch's own counter."""

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config, Layer
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.factorised import FactorisedConfig, FactorisedEncoder
from measured_transformer.models.sizes import count_flops, count_parameters
from torch.utils.flop_counter import FlopCounterMode

KINDS = {"decoder": Decoder, "encoder": Encoder, "encoder-decoder": EncoderDecoder}
SMALL = Config(vocab=13, d_model=16, n_layers=2, n_heads=4, d_ff=24, max_length=32)
CONFIGS = [
    SMALL,
    SMALL.replace(n_kv_heads=2, d_head=6, positions="rotary", norm="rms", activation="swiglu"),
    SMALL.replace(bias=False, positions="learned", tie_embeddings=True, placement="post"),
    SMALL.replace(attention_bias=False, positions="relative", activation="geglu", final_norm=False),
    SMALL.replace(ffn_bias=False, norm="none", head="none", d_ff=None),
    SMALL.replace(head_bias=True, embedding_norm=True, n_decoder_layers=3, activation="reglu"),
    SMALL.replace(n_decoder_heads=2, d_decoder_ff=12, shared_embedding=False, d_head=5),
    SMALL.replace(n_decoder_heads=8, positions="relative", tie_embeddings=True, n_kv_heads=2),
]
BERTS = [
    SMALL.replace(head="mlm", head_bias=True, tie_embeddings=True, token_types=2, pooler=True),
    SMALL.replace(head="mlm", positions="learned", token_types=3, embedding_norm=True),
    SMALL.replace(head="mlm", pooler=True, labels=2, head_layer_bias=False),
    SMALL.replace(head="tokens", labels=5, layers=(Layer(attention_norm=False), Layer())),
    SMALL.replace(head="sequence", labels=3, pooler=True),
]
NARROW = {
    **{"vocab": 13, "d_model": 16, "n_layers": 4, "n_heads": 4, "d_ff": 24, "max_length": 32},
    **{"positions": "learned", "embedding_norm": True, "placement": "post", "d_embedding": 6},
}
FACTORISED = [
    FactorisedConfig(**NARROW, head="mlm", head_bias=True, tie_embeddings=True, token_types=2),
    FactorisedConfig(**NARROW, head="mlm", shared_groups=1, pooler=True, labels=2),
    FactorisedConfig(**NARROW, head="mlm", shared_groups=2, head_layer_bias=False, norm_bias=False),
    FactorisedConfig(**NARROW, head="none", shared_groups=1, group_layers=2, pooler=True),
    FactorisedConfig(**NARROW, head="tokens", labels=5, token_types=3),
    FactorisedConfig(**NARROW, head="sequence", labels=3, pooler=True, shared_groups=2),
]
CASES = [
    *((config, kind) for config in CONFIGS for kind in KINDS),
    *((config, "encoder") for config in (*BERTS, *FACTORISED)),
]


def made(config, kind):
    return (FactorisedEncoder if isinstance(config, FactorisedConfig) else KINDS[kind])(config)


def part(name):
    """The part that a parameter belongs to, by its name alone."""
    if any(one in name for one in ("head_layer", "unembedding", "pooler", "classifier")):
        return "head"
    if name.startswith("embedding_norm.map."):
        return "embedding"
    if "norm" in name:
        return "norms"
    if "positions" in name or "relative" in name:
        return "positions"
    if "embedding" in name:
        return "embedding"
    return next(p for p in ("cross_attention", "attention", "feedforward") if f".{p}." in name)


@pytest.mark.parametrize(("config", "kind"), CASES)
def test_parameters_are_those_of_the_model(config, kind):
    model, found = made(config, kind), {}
    for name, parameter in model.named_parameters():
        found[part(name)] = found.get(part(name), 0) + parameter.numel()
    count = count_parameters(config, kind)
    assert {name: getattr(count, name) for name in found} == found
    assert count.total == sum(found.values())


def inputs(kind, length, source_length):
    target = torch.zeros(3, length, dtype=torch.int64)
    if kind != "encoder-decoder":
        return (target,)
    return torch.zeros(3, source_length, dtype=torch.int64), target


@pytest.mark.parametrize(("config", "kind"), CASES)
def test_flops_are_those_that_pytorch_counts(config, kind):
    model = made(config, kind)
    source_length = 5 if kind == "encoder-decoder" else None
    # Watched, attention is made of plain products, which the counter knows on every device.
    with capture(model, "*.pattern"), FlopCounterMode(display=False) as counter:
        model(*inputs(kind, 7, source_length))
    count = count_flops(config, kind, length=7, source_length=source_length, batch=3)
    assert count.total == counter.get_total_flops()


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative"])
@torch.no_grad()
def test_flops_with_a_cache(kind, positions):
    config = SMALL.replace(n_kv_heads=2, positions=positions)
    model = KINDS[kind](config)
    source_length = 5 if kind == "encoder-decoder" else None
    cache = model.make_cache()
    model(*inputs(kind, 7, source_length), cache=cache)
    with capture(model, "*.pattern"), FlopCounterMode(display=False) as counter:
        model(*inputs(kind, 2, source_length), cache=cache)
    count = count_flops(config, kind, length=2, source_length=source_length, batch=3, cached=7)
    assert count.total == counter.get_total_flops()


def test_what_does_not_fit_the_kind_is_refused(unhooked):
    with pytest.raises(ValueError, match="kind must be 'decoder', 'encoder' or"):
        count_parameters(SMALL, "both")
    for kind in ("decoder", "encoder-decoder"):
        with pytest.raises(ValueError, match=f"expected kind='encoder', got '{kind}'"):
            count_parameters(FACTORISED[0], kind)
    with pytest.raises(ValueError, match="expected kind='encoder', got 'decoder'"):
        count_flops(FACTORISED[0], "decoder", length=3)
    with pytest.raises(ValueError, match="source_length is for an encoder-decoder"):
        count_flops(SMALL, "decoder", length=3, source_length=3)
    with pytest.raises(ValueError, match="which needs it"):
        count_flops(SMALL, "encoder-decoder", length=3)
    with pytest.raises(ValueError, match="an encoder has no cache"):
        count_flops(SMALL, "encoder", length=3, cached=1)
