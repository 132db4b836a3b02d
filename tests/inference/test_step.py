"""The quick step computes what the modules compute, and gives way where they do more."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.inference import step
from measured_transformer.inference.generate import generate
from measured_transformer.inference.step import flat_layers
from measured_transformer.inference.writer import Writer
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.kernels.linear import linear_kernel
from small_models import KINDS, PROMPTS, SCHEMES, SMALL, VOCAB, made, start_of
from torch import nn

VARIANTS = [
    *({"positions": scheme, "n_kv_heads": n} for scheme in SCHEMES for n in (1, 2, 4)),
    *({"activation": name} for name in ("relu", "gelu_tanh", "gelu_sigmoid", "geglu", "swiglu")),
    *({"norm": name, "placement": at} for name in ("rms", "none") for at in ("pre", "post")),
    {"placement": "post", "final_norm": True, "positions": "rotary", "rotary_pairing": "halves"},
    {"residual": False},
    {"bias": False, "attention_scale": 1.0, "d_head": 6, "positions": "relative"},
    {"attention_bias": False, "ffn_bias": True, "logit_scale": 0.3, "tie_embeddings": True},
]


def writer(model, prompts):
    return Writer(model, prompts, start=start_of(model), max_new_tokens=6, chunk=None)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_it_gives_the_logits_of_the_modules(kind, changes):
    model = made(kind, SMALL.replace(**changes))
    for prompts in (PROMPTS, [[1, 2, 3], [4, 5, 6]]):
        quick, slow = writer(model, prompts), writer(model, prompts)
        assert quick.layers is not None
        slow.layers = None
        torch.testing.assert_close(quick.begin(), slow.begin(), rtol=0, atol=0)
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            tokens = torch.randint(VOCAB, (len(prompts),), generator=generator)
            torch.testing.assert_close(
                quick.next(tokens), slow.next(tokens), rtol=1e-11, atol=1e-11
            )
        assert quick.cache.bytes == slow.cache.bytes


def test_it_gives_way_to_watchers():
    model = made(Decoder)
    assert flat_layers(model) is not None
    with capture(model, "blocks.1.feedforward.neurons"):
        assert flat_layers(model) is None
    with intervene(model, {"blocks.0.attention.keys": 0.0}):
        assert flat_layers(model) is None
    with capture(model, "logits", "embedding"):
        assert flat_layers(model) is not None, "these are called in any case"
    assert flat_layers(model) is not None


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("way", ["replaced", "hook", "pre-hook"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_way_to_parts_that_do_something_else(kind, way):
    model = made(kind)
    expected = generate(model, PROMPTS, max_new_tokens=6, start=start_of(model))
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    part = stack.blocks[1].feedforward.down
    if way == "replaced":
        doubled = Doubled(part.in_features, part.out_features).double()
        doubled.load_state_dict(part.state_dict())
        stack.blocks[1].feedforward.down = doubled
    elif way == "hook":
        part.register_forward_hook(lambda module, inputs, output: 2 * output)
    else:
        part.register_forward_pre_hook(lambda module, inputs: 2 * inputs[0])
    assert flat_layers(stack) is None
    ours = generate(model, PROMPTS, max_new_tokens=6, start=start_of(model))
    for a, b in zip(ours.log_probs, expected.log_probs, strict=True):
        assert not torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "as they are"])
def test_large_weights_give_the_same_states_packed_or_not(bias, packed, monkeypatch):
    monkeypatch.setattr(step, "_packing_pays", lambda weight: packed and weight.numel() >= 2**17)
    torch.manual_seed(0)
    config = Config(vocab=9, d_model=256, n_layers=2, n_heads=4, n_kv_heads=2, bias=bias)
    model = Decoder(config).eval()
    for parameter in model.parameters():  # biases are zero at first
        torch.nn.init.normal_(parameter, std=0.05)
    tokens = torch.randint(9, (3, 7))
    with torch.inference_mode():
        cache = model.make_cache()
        model(tokens[:, :3], cache=cache)
        layers = step.flat_layers(model)
        states = [step.one_step(model, layers, tokens[:, at], cache) for at in range(3, 7)]
        expected = model.stream(tokens)[:, 3:]
    torch.testing.assert_close(torch.cat(states, dim=1), expected, rtol=1e-4, atol=1e-4)


def test_weights_of_other_precisions_are_not_packed():
    assert not step._packing_pays(torch.zeros(512, 512, dtype=torch.float64))
    assert not step._packing_pays(torch.zeros(512, 512, dtype=torch.bfloat16))
    assert not step._packing_pays(torch.zeros(8, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not step._packing_pays(torch.zeros(512, 512))


def test_where_the_product_was_chosen_no_weight_is_packed(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    weight = torch.zeros(512, 512)
    if not step._packing_pays(weight):
        pytest.skip("this build of PyTorch has no packed linear map")
    with linear_kernel("product"):
        assert not step._packing_pays(weight)
