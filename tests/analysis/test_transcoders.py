"""Networks as features: with errors the model is itself, and fitted features explain what others do not."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from measured_transformer.analysis import transcoders as m
from measured_transformer.analysis.autoencoders import explained
from measured_transformer.analysis.residual import random_model
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import train

TASK = Lag(vocab=16, length=16, lag=2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def trained() -> Decoder:
    config = Config(
        vocab=16, d_model=32, n_layers=2, n_heads=2, positions="rotary", activation="gelu"
    )
    return train(config, TASK, seed=0, steps=150, batch_size=32, learning_rate=1e-2).model.eval()


def test_features_are_a_relu_or_the_largest_k() -> None:
    eye = torch.eye(3)
    code = m.Transcoder(eye, torch.tensor([0.0, 0.0, 1.0]), 2 * eye, torch.ones(3))
    x = torch.tensor([[[3.0, -1.0, 2.0], [0.5, 0.25, -4.0]]])
    assert code.encode(x).tolist() == [[[3, 0, 3], [0.5, 0.25, 0]]]
    assert code(x).tolist() == [[[7, 1, 7], [2, 1.5, 1]]]
    one = m.Transcoder(eye, torch.zeros(3), 2 * eye, torch.ones(3), k=1)
    assert one.encode(x).tolist() == [[[3, 0, 0], [0.5, 0, 0]]]


@pytest.mark.parametrize("bias", [True, False])
def test_relu_neurons_are_features_as_they_are(bias) -> None:
    torch.manual_seed(0)
    network = FeedForward(6, 10, bias=bias).double()
    x = torch.randn(2, 4, 6).double()
    code = m.neurons_as_features(network)
    torch.testing.assert_close(code(x), network(x), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="got activation='swiglu'"):
        m.neurons_as_features(FeedForward(6, 10, activation="swiglu"))


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("seed", range(3))
def test_with_errors_the_rewritten_model_is_the_model(seed, placement) -> None:
    model, tokens = random_model(seed, causal=True, placement=placement)
    codes = m.fit_transcoders(model, tokens, 12, seed=0, k=3, steps=20)
    errors = m.network_errors(model, codes, tokens)
    plain = model(tokens)
    with m.replaced(model, codes, errors):
        torch.testing.assert_close(model(tokens), plain, rtol=0, atol=1e-11)
    with m.replaced(model, codes):
        assert not torch.allclose(model(tokens), plain, atol=1e-3)
    with m.replaced(model, codes, torch.zeros_like(errors)):
        without = model(tokens)
    with m.replaced(model, codes):
        assert torch.equal(model(tokens), without)
    assert torch.equal(model(tokens), plain)


def test_pairs_are_what_networks_read_and_write() -> None:
    model, tokens = random_model(1, causal=True)
    inputs, outputs = m.network_pairs(model, tokens)
    for block, x, y in zip(model.blocks, inputs, outputs, strict=True):
        torch.testing.assert_close(block.feedforward(x), y, rtol=0, atol=1e-12)


def test_a_fit_finds_the_features_that_a_network_was_made_of() -> None:
    torch.manual_seed(0)
    reads = torch.linalg.qr(torch.randn(8, 8))[0]
    writes = torch.nn.functional.normalize(torch.randn(8, 8), dim=1)
    x = torch.randn(4000, 8)
    y = (x @ reads.T - 0.5).relu() @ writes + 0.3
    code = m.fit_transcoder(x, y, 16, generator(), penalty=0.02, steps=1500)
    held = torch.randn(1000, 8)
    wanted = (held @ reads.T - 0.5).relu() @ writes + 0.3
    assert explained(wanted, code(held)) > 0.95
    found = torch.nn.functional.normalize(code.decoder, dim=1)
    used = code.encode(held).mean(0) * code.decoder.norm(dim=1) > 0.02
    cosines = (writes @ found[used].T).amax(1)
    assert float(cosines.min()) > 0.9


def test_fitted_on_a_trained_model_they_explain_networks_and_answers() -> None:
    model = trained()
    fit, held = (TASK.batch(generator(seed), 64) for seed in (1, 2))
    with torch.no_grad():  # which a fit does not mind
        codes = m.fit_transcoders(model, fit.inputs, 64, seed=0, k=8, steps=300)
        random = m.fit_transcoders(model, fit.inputs, 64, seed=0, k=8, steps=1, learning_rate=1e-9)
    inputs, outputs = m.network_pairs(model, held.inputs)
    for code, control, x, y in zip(codes, random, inputs, outputs, strict=True):
        assert explained(y.flatten(0, 1), code(x).flatten(0, 1)) > 0.8
        assert explained(y.flatten(0, 1), control(x).flatten(0, 1)) < 0.2
        assert int((code.encode(x) > 0).sum(-1).max()) <= 8
    right = {}
    for name, chosen in (("model", None), ("fitted", codes), ("random", random)):
        if chosen is None:
            logits = model(held.inputs)
        else:
            with m.replaced(model, chosen):
                logits = model(held.inputs)
        right[name] = float((logits.argmax(-1) == held.targets)[held.scored].float().mean())
    assert right["model"] > 0.7
    assert right["fitted"] > right["model"] - 0.05


def test_the_same_seed_gives_the_same_features() -> None:
    model, tokens = random_model(2, causal=True)
    first, second = (m.fit_transcoders(model, tokens, 6, seed=3, steps=3) for _ in range(2))
    assert torch.equal(first[0].encoder, second[0].encoder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latents": 0}, "expected positive latents, steps, size and learning_rate, got 0"),
        ({"steps": 0}, "got 4, 0"),
        ({"learning_rate": -1.0}, "-1.0"),
        ({"k": 5}, "k must lie between 1 and 4 latents, got 5"),
    ],
)
def test_what_cannot_be_fitted_is_refused(changes, message) -> None:
    x = torch.randn(10, 3)
    with pytest.raises(ValueError, match=message):
        m.fit_transcoder(x, x, generator=generator(), **{"latents": 4, "steps": 2} | changes)


def test_each_layer_needs_its_own() -> None:
    model, tokens = random_model(0, causal=True, n_layers=2)
    code = m.fit_transcoders(model, tokens, 4, seed=0, steps=1)[:1]
    message = "expected a transcoder for each of 2 layers, got 1"
    with pytest.raises(ValueError, match=message), m.replaced(model, code):
        pass
    with pytest.raises(ValueError, match=message):
        m.network_errors(model, code, tokens)
