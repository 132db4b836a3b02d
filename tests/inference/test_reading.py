"""Text is written by the model's own forward pass, whatever was put into it or around it."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import generate
from measured_transformer.inference.reading import join_projections
from measured_transformer.inference.serving import serve
from measured_transformer.inference.speculative import Speculative
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from small_models import PROMPTS, SMALL, made, start_of
from torch import nn

CONFIG = SMALL.replace(positions="rotary", n_kv_heads=2)


class Negated(Decoder):
    def forward(self, tokens, **given):
        return -super().forward(tokens, **given)


def doubled(model):
    part = model.blocks[1].feedforward.down
    other = nn.Linear(part.in_features, part.out_features).double()
    other.load_state_dict({name: 2 * value for name, value in part.state_dict().items()})
    model.blocks[1].feedforward.down = other


def own_forward(name):
    def change(model):
        part = model.get_submodule(name)
        forward = part.forward
        part.forward = lambda *args, **given: -0.5 * forward(*args, **given)

    return change


def hook(name):
    return lambda model: model.get_submodule(name).register_forward_hook(
        lambda module, inputs, output: -output
    )


CHANGES = {
    "a part replaced": doubled,
    "a model's own forward": own_forward(""),
    "an attention's own forward": own_forward("blocks.0.attention"),
    "a projection's own forward": own_forward("blocks.0.attention.query"),
    "a hook on the model": hook(""),
    "a hook on a block": hook("blocks.1"),
    "a hook on keys": hook("blocks.1.attention.key"),
    "a hook on the unembedding": hook("unembedding"),
}


def reference(model, n=6):
    texts = []
    for prompt in PROMPTS:
        text = list(prompt)
        for _ in range(n):
            with torch.no_grad():
                text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
        texts.append(text[len(prompt) :])
    return texts


def ways(model, n=6):
    yield "generate", [row.tolist() for row in generate(model, PROMPTS, max_new_tokens=n).tokens]
    served = serve(model, PROMPTS, max_new_tokens=n, n_pages=40, page_size=2)
    yield "serve", [row.tolist() for row in served.written.tokens]
    draft = made(Decoder, CONFIG.replace(n_layers=1), seed=5)
    texts = generate(model, PROMPTS, max_new_tokens=n, strategy=Speculative(draft))
    yield "speculative", [row.tolist() for row in texts.tokens]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_is_what_writes(change):
    model = made(Decoder, CONFIG)
    plain = reference(model)
    change(model)
    expected = reference(model)
    assert expected != plain
    for name, found in ways(model):
        assert found == expected, name


def negated(found):
    return (-found[0], *found[1:]) if isinstance(found, tuple) else -found


@pytest.mark.parametrize("name", ["stream", "unembed", "embed", "run_blocks"])
def test_a_step_of_ones_own_writes_as_the_model_computes(name):
    """A model that is called goes through some of these steps; what is written goes through the same."""
    model, inherited = made(Decoder, CONFIG), made(Decoder, CONFIG)
    step = getattr(model, name)
    setattr(model, name, lambda *args, **given: negated(step(*args, **given)))
    common = getattr(Decoder, name)
    methods = {name: lambda self, *args, **given: negated(common(self, *args, **given))}
    inherited.__class__ = type("Mine", (Decoder,), methods)
    for changed in (model, inherited):
        expected = reference(changed)
        for way, found in ways(changed):
            assert found == expected, way


@pytest.mark.parametrize("name", ["encode", "decode", "unembed"])
def test_a_step_of_an_encoder_decoder_writes_as_the_model_computes(name):
    model, inherited = made(EncoderDecoder, CONFIG), made(EncoderDecoder, CONFIG)
    step, common = getattr(model, name), getattr(EncoderDecoder, name)
    setattr(model, name, lambda *args, **given: -step(*args, **given))
    methods = {name: lambda self, *args, **given: -common(self, *args, **given)}
    inherited.__class__ = type("Mine", (EncoderDecoder,), methods)
    start = start_of(model)
    for changed in (model, inherited):
        written = generate(changed, PROMPTS, max_new_tokens=5, start=start).tokens
        for prompt, row in zip(PROMPTS, written, strict=True):
            text = [start]
            for _ in range(5):
                with torch.no_grad():
                    logits = changed(torch.tensor([list(prompt)]), torch.tensor([text]))
                text.append(int(logits[0, -1].argmax()))
            assert row.tolist() == text[1:]


def test_a_class_of_ones_own_writes_by_its_own_forward():
    model = made(Negated, CONFIG)
    for name, found in ways(model):
        assert found == reference(model), name


@pytest.mark.parametrize("kind", [Decoder, EncoderDecoder])
def test_a_hooked_model_searches_with_its_hook(kind):
    model = made(kind, CONFIG)
    plain = generate(
        model, PROMPTS, max_new_tokens=4, strategy=BeamSearch(3), start=start_of(model)
    )
    model.register_forward_hook(lambda module, inputs, output: output + 0.0)
    hooked = generate(
        model, PROMPTS, max_new_tokens=4, strategy=BeamSearch(3), start=start_of(model)
    )
    for a, b in zip(plain.tokens, hooked.tokens, strict=True):
        assert torch.equal(a, b)


def test_interventions_reach_every_token():
    model = made(Decoder, CONFIG)
    cut = {"blocks.*.attention.out": 0.0}
    with intervene(model, cut):
        expected = reference(model)
        found = [row.tolist() for row in generate(model, PROMPTS, max_new_tokens=6).tokens]
    assert found == expected != reference(model)


def test_queries_keys_and_values_are_seen_though_one_product_makes_them():
    model = made(Decoder, CONFIG)
    names = [f"blocks.1.attention.{name}" for name in ("queries", "keys", "values")]
    x = torch.tensor([[3, 1, 4, 1]])
    with torch.no_grad(), capture(model, *names) as alone:
        model(x)
    cache = model.make_cache()
    join_projections(model, cache)
    assert all(layer.joined is not None for layer in cache.layers)
    with torch.no_grad(), capture(model, *names) as joined:
        model(x, cache=cache)
    for name in names:
        torch.testing.assert_close(joined[name], alone[name])


def test_what_is_more_than_three_linear_maps_is_not_joined():
    for change in ("a projection's own forward", "a hook on keys"):
        model = made(Decoder, CONFIG)
        CHANGES[change](model)
        layers = [block.attention.join_projections() for block in model.blocks]
        assert layers[0 if "own" in change else 1] is None
    shared = made(Decoder, CONFIG.replace(shared_kv=True))
    assert shared.blocks[0].attention.join_projections() is None
