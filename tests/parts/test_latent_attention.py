"""Latent attention as a choice of `Config`: against the preparation for training, and what its cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from measured_transformer import load, save
from measured_transformer.analysis.attribution import direct_logits
from measured_transformer.analysis.circuits import module_circuits
from measured_transformer.inference.paged import PagedCache
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config, Layer
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.sizes import count_flops
from measured_transformer.parts.attention_schemes import MULTI_HEAD
from measured_transformer.parts.latent import Latent
from measured_transformer.variants import latent as variant
from torch.utils.flop_counter import FlopCounterMode

SIZES = {"vocab": 11, "d_model": 16, "n_layers": 2, "n_heads": 2, "positions": "rotary"}
LATENT = Latent(5, d_rotary=4, d_value=3, query_rank=6)


def made(**changes) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(Config(**SIZES, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def tokens(rows: int = 2, n: int = 7) -> torch.Tensor:
    return torch.randint(11, (rows, n), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_equal_to_the_preparation_for_training():
    """`variants.latent` replaces attention by hand; with its weights this one computes the same."""
    old = made(bias=False)
    variant.Latent(rank=5, d_rotary=4)(old)
    new = made(bias=False, attention=Latent(5, d_rotary=4, normalised=False))
    new.load_state_dict(old.state_dict())
    torch.testing.assert_close(new(tokens()), old.double()(tokens()), rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_cache_holds_latents_and_turned_keys_alone():
    model, cache = made(attention=LATENT), None
    cache = model.make_cache()
    whole = model(tokens(), cache=cache)
    assert cache.bytes == 2 * 2 * 7 * (5 + 4) * 8  # layers, rows, positions, numbers, bytes
    with capture(model, "blocks.0.attention.latent") as seen:
        torch.testing.assert_close(model(tokens()), whole)
    assert torch.equal(cache.layers[0].keys[:, 0], seen["blocks.0.attention.latent"])


@torch.no_grad()
def test_scores_are_products_of_what_is_seen():
    model = made(attention=LATENT)
    with capture(model, "blocks.1.attention.*") as seen:
        model(tokens())
    stem = "blocks.1.attention."
    queries, keys = seen[f"{stem}rotated_queries"], seen[f"{stem}rotated_keys"]
    assert (queries.shape, seen[f"{stem}values"].shape) == ((2, 2, 7, 12), (2, 2, 7, 3))
    scores = (queries @ keys.transpose(-2, -1)) / 12**0.5
    torch.testing.assert_close(seen[f"{stem}scores"], scores)
    torch.testing.assert_close(seen[f"{stem}keys"], keys[..., :8])
    mixed = seen[f"{stem}pattern"] @ seen[f"{stem}values"]
    torch.testing.assert_close(seen[f"{stem}mixed"], mixed)


@torch.no_grad()
def test_pages_hold_what_a_cache_holds():
    model = made(attention=LATENT)
    cache = PagedCache(2, n_pages=8, page_size=4)
    first = model(tokens(1, 3), cache=cache.rows(["a"], 3))
    model(tokens(1, 6), cache=cache.rows(["b"], 6))
    both = model(torch.tensor([[9], [9]]), cache=cache.rows(["a", "b"], 1))
    assert cache.bytes == 2 * (4 + 7) * 9 * 8
    text = torch.cat((tokens(1, 3), torch.tensor([[9]])), dim=1)
    torch.testing.assert_close(torch.cat((first, both[:1]), dim=1), model(text))


@torch.no_grad()
def test_what_heads_write_adds_up_to_the_logits():
    model = made(attention=LATENT, norm="rms")
    parts = direct_logits(model, tokens())
    torch.testing.assert_close(sum(parts.logits), model(tokens()))


@torch.no_grad()
def test_operations_are_counted():
    model = Decoder(Config(**SIZES, attention=LATENT)).eval()
    counter = FlopCounterMode(display=False)
    with counter, capture(model, "*.pattern"):
        model(tokens())
    padding = 2 * 2 * 2 * 2 * 7 * 7 * (12 - 3)  # zeros beside the values
    counted = count_flops(model.config, "decoder", length=7, batch=2).total
    assert counter.get_total_flops() == counted + padding


@torch.no_grad()
def test_a_model_is_kept(tmp_path: Path):
    model = made(layers=(Layer(attention=LATENT), Layer(attention=MULTI_HEAD))).float()
    again = load(save(model, tmp_path))
    assert again.config == model.config
    assert torch.equal(again(tokens()), model(tokens()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank must be a whole number from 1 on, got 0"),
        ({"rank": 2, "d_rotary": -2}, "d_rotary must be a whole number from 0 on, got -2"),
        ({"rank": 2, "d_value": 0}, "d_value must be a whole number from 1 on or None, got 0"),
        ({"rank": 2, "query_rank": 1.5}, "query_rank must be a whole number from 1 on or None"),
    ],
)
def test_sizes_that_are_none_are_refused(unhooked, settings, message):
    with pytest.raises(ValueError, match=message):
        Latent(**settings)


def test_what_latent_attention_has_no_place_for_is_refused(unhooked):
    with pytest.raises(ValueError, match="need an even width of heads, got 3"):
        Config(**SIZES, attention=Latent(4, d_rotary=3))
    for changes in ({"shared_kv": True}, {"qkv_bias": True}, {"qk_norm": "head"}):
        with pytest.raises(ValueError, match="latent attention is for qk_norm='none'"):
            Config(**SIZES, attention=LATENT, **changes)
    attention = made(attention=LATENT).blocks[0].attention
    x = torch.zeros(1, 2, 16, dtype=torch.float64)
    with pytest.raises(ValueError, match="reads its own sequence, got a memory"):
        attention(x, x)
    with pytest.raises(ValueError, match="are read off the stream, got a LatentAttention"):
        module_circuits(attention, 0)
