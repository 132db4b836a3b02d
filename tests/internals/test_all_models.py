"""One naming scheme on all three models; values seen are the ones used; nobody is in the way."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

SMALL = Config(vocab=9, d_model=12, n_layers=2, n_heads=3, d_ff=20, max_length=8)
SOURCE = torch.tensor([[1, 2, 3, 4, 5, 6], [8, 0, 8, 0, 1, 1]])
TARGET = torch.tensor([[1, 2, 3, 4], [8, 0, 8, 0]])
B, S, T, H, D, E, FF = 2, 6, 4, 3, 12, 4, 20
MODELS = {
    "decoder": (Decoder, SMALL.replace(positions="rotary", norm="rms", activation="swiglu")),
    "alibi decoder": (Decoder, SMALL.replace(positions="alibi")),
    "encoder": (
        Encoder,
        SMALL.replace(head="mlm", token_types=2, embedding_norm=True, placement="post"),
    ),
    "encoder-decoder": (EncoderDecoder, SMALL.replace(positions="relative", n_kv_heads=1)),
    "vaswani": (EncoderDecoder, SMALL.replace(placement="post", activation="relu")),
}
every_model = pytest.mark.parametrize(("kind", "config"), MODELS.values(), ids=MODELS.keys())


def made(kind, config, dtype=torch.float64):
    torch.manual_seed(0)
    return kind(config).to(dtype).eval()


def inputs(model):
    return (SOURCE, TARGET) if isinstance(model, EncoderDecoder) else (SOURCE,)


def attention(query, key, n_kv_heads=H):
    return {
        "queries": (B, H, query, E),
        "keys": (B, n_kv_heads, key, E),
        "values": (B, n_kv_heads, key, E),
        "scores": (B, H, query, key),
        "pattern": (B, H, query, key),
        "mixed": (B, H, query, E),
        "head_outputs": (B, H, query, D),
        "out": (B, query, D),
    }


def block(n, memory=None, n_kv_heads=H):
    parts = {"attention": attention(n, n, n_kv_heads)}
    streams = ["pre", "mid", "post"]
    if memory is not None:
        parts["cross_attention"] = attention(n, memory, n_kv_heads)
        streams.append("cross")
    found = {f"{part}.{name}": s for part, names in parts.items() for name, s in names.items()}
    found |= {f"{part}_norm.scale": (B, n, 1) for part in (*parts, "feedforward")}
    found |= {f"feedforward.{name}": (B, n, FF) for name in ("pre_activation", "neurons")}
    return found | {"feedforward.out": (B, n, D)} | {f"residual_{s}": (B, n, D) for s in streams}


def stack(n, memory=None, n_kv_heads=H):
    ends = {"embedding": (B, n, D), "final_norm.scale": (B, n, 1), "final_state": (B, n, D)}
    blocks = block(n, memory, n_kv_heads)
    return ends | {f"blocks.{i}.{name}": s for i in range(2) for name, s in blocks.items()}


def test_the_names_of_an_encoder_decoder():
    model = made(*MODELS["encoder-decoder"])
    expected = {"logits": (B, T, 9)}
    expected |= {f"encoder.{name}": s for name, s in stack(S, n_kv_heads=1).items()}
    expected |= {f"decoder.{name}": s for name, s in stack(T, S, n_kv_heads=1).items()}
    with capture(model) as seen:
        model(SOURCE, TARGET)
    assert {name: tuple(value.shape) for name, value in seen.items()} == expected
    assert set(taps(model)) == set(expected)


def test_the_names_of_an_encoder_with_all_of_bert():
    config = MODELS["encoder"][1].replace(pooler=True, final_norm=True)
    model = made(Encoder, config)
    expected = stack(S) | {
        "embedding_norm.scale": (B, S, 1),
        "head_layer.norm.scale": (B, S, 1),
        "logits": (B, S, 9),
        "pooler.out": (B, D),
    }
    with capture(model) as seen:
        model(SOURCE)
        model.pool(seen["final_state"])
    assert {name: tuple(value.shape) for name, value in seen.items()} == expected


@every_model
@torch.no_grad()
def test_looking_changes_nothing_and_leaves_nothing(kind, config):
    model = made(kind, config)
    before = pickle.dumps(model)
    expected = model(*inputs(model))
    with capture(model) as seen:
        torch.testing.assert_close(model(*inputs(model)), expected, rtol=0, atol=1e-12)
    assert torch.equal(model(*inputs(model)), expected)
    assert pickle.dumps(model) == before
    assert not any(tap.watched for tap in taps(model).values())
    assert seen


@every_model
@torch.no_grad()
def test_every_value_seen_is_the_one_used(kind, config):
    """Put back what was seen: nothing changes. Put back noise: the logits change."""
    model = made(kind, config)
    with capture(model) as seen:
        expected = model(*inputs(model))
    with intervene(model, dict(seen)):
        assert torch.equal(model(*inputs(model)), expected)
    for name, value in seen.items():
        with intervene(model, {name: torch.randn_like(value)}):
            assert not torch.allclose(model(*inputs(model)), expected, atol=1e-4), name


@torch.no_grad()
def test_what_crosses_over_is_made_of_its_parts():
    model = made(*MODELS["encoder-decoder"])
    with capture(model) as seen:
        model(SOURCE, TARGET)
    at = "decoder.blocks.1"
    pattern, values = seen[f"{at}.cross_attention.pattern"], seen[f"{at}.cross_attention.values"]
    torch.testing.assert_close(seen[f"{at}.cross_attention.mixed"], pattern @ values)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(B, H, T).double())
    heads, out = seen[f"{at}.cross_attention.head_outputs"], seen[f"{at}.cross_attention.out"]
    bias = model.decoder.blocks[1].cross_attention.output.bias
    torch.testing.assert_close(heads.sum(1) + bias, out)
    torch.testing.assert_close(seen[f"{at}.residual_mid"] + out, seen[f"{at}.residual_cross"])
    written = seen[f"{at}.residual_cross"] + seen[f"{at}.feedforward.out"]
    torch.testing.assert_close(written, seen[f"{at}.residual_post"])


@every_model
def test_gradients_of_what_is_seen(kind, config):
    model = made(kind, config)
    with capture(model, gradients=True) as seen:
        model(*inputs(model)).square().sum().backward()
    assert [name for name, value in seen.items() if value.grad is None] == []


@every_model
def test_in_training_with_dropout(kind, config):
    model = made(kind, config.replace(dropout=0.3)).train()
    torch.manual_seed(1)
    with capture(model) as seen:
        logits = model(*inputs(model))
    torch.testing.assert_close(seen["logits"], logits.detach())
    logits.sum().backward()


@every_model
@torch.no_grad()
def test_under_autocast(kind, config):
    model = made(kind, config, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(*inputs(model))
        with capture(model) as seen:
            looked = model(*inputs(model))
    assert expected.dtype == looked.dtype == torch.bfloat16
    torch.testing.assert_close(looked, expected, rtol=0.05, atol=0.05)
    assert all(value.isfinite().all() for value in seen.values())


COMPILED = """
import torch, test_all_models as here
from measured_transformer.internals.capture import capture
with torch.no_grad():
    for name, (kind, config) in here.MODELS.items():
        torch.compiler.reset()
        model = here.made(kind, config)
        expected = model(*here.inputs(model))
        compiled = torch.compile(here.made(kind, config), backend="eager", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(*here.inputs(model)), expected, rtol=0, atol=1e-12)
print("all equal")
"""


def test_compiled_in_one_graph_while_nobody_looks():
    # In a process of its own: the shape checks that tests have cannot be compiled.
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert done.stdout == "all equal\n", done.stderr


@every_model
@torch.no_grad()
def test_contexts_nest_and_an_error_leaves_nothing_behind(kind, config):
    model = made(kind, config)
    expected = model(*inputs(model))
    with intervene(model, {"logits": lambda x: x + 1}):
        with intervene(model, {"logits": lambda x: 2 * x}), capture(model, "logits") as seen:
            model(*inputs(model))
        assert torch.equal(seen["logits"], 2 * (expected + 1))
        with pytest.raises(ZeroDivisionError), intervene(model, {"*embedding": lambda x: 1 // 0}):
            model(*inputs(model))
    assert torch.equal(model(*inputs(model)), expected)
    assert not any(tap.watched for tap in taps(model).values())
