"""The light form of a model computes what the model computes, and runs what was put around it."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.inference.generate import generate
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.light import light
from measured_transformer.parts.tap import Tap
from torch import nn
from torch.nn.utils import parametrize

SMALL = Config(vocab=11, d_model=16, n_layers=2, n_heads=4, max_length=16, dropout=0.1)
CONFIGS = {
    "learned": SMALL.replace(positions="learned"),
    "sinusoidal": SMALL,
    "rotary": SMALL.replace(positions="rotary", n_kv_heads=2, norm="rms", activation="swiglu"),
    "alibi": SMALL.replace(positions="alibi", placement="post"),
    "relative": SMALL.replace(positions="relative"),
    "sandwich": SMALL.replace(placement="sandwich", qk_norm="head"),
    "parallel": SMALL.replace(parallel=True, shared_norm=True),
    "experts": SMALL.replace(network=Experts(4, 2)),
}
TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


def made(config, kind=Decoder):
    torch.manual_seed(0)
    return kind(config).double().eval()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_light_model_gives_the_same_numbers(config):
    model = made(config)
    other = light(model)
    assert torch.equal(other(TOKENS), model(TOKENS))
    first, second = model.make_cache(), model.make_cache()
    for at in (slice(0, 3), slice(3, 4)):
        assert torch.equal(other(TOKENS[:, at], cache=first), model(TOKENS[:, at], cache=second))


def test_a_light_encoder_decoder_gives_the_same_numbers():
    model = made(SMALL, EncoderDecoder)
    assert torch.equal(light(model)(TOKENS, TOKENS[:, :2]), model(TOKENS, TOKENS[:, :2]))


def test_its_parts_are_called_by_their_forward_alone(monkeypatch):
    other = light(made(CONFIGS["learned"]))
    monkeypatch.setattr(
        nn.Module, "__call__", lambda *args, **given: pytest.fail("a module's call")
    )
    other(TOKENS)


def test_it_leaves_the_model_as_it_was():
    model = made(SMALL)
    before, kinds = model(TOKENS), [type(module) for module in model.modules()]
    light(model)(TOKENS)
    assert [type(module) for module in model.modules()] == kinds
    assert torch.equal(model(TOKENS), before)
    assert all(part is model.get_submodule(name) for name, part in model.named_modules())


def test_it_holds_the_weights_themselves():
    model = made(SMALL)
    other = light(model)
    before = other(TOKENS)
    with torch.no_grad():
        model.blocks[1].feedforward.down.weight.mul_(2)
    assert torch.equal(other(TOKENS), model(TOKENS))
    assert not torch.equal(other(TOKENS), before)


def hooked(model):
    model.blocks[1].attention.output.register_forward_hook(lambda *given: -given[-1])


def hooked_before(model):
    model.blocks[0].register_forward_pre_hook(lambda part, given: (2 * given[0], *given[1:]))


def own_forward(model):
    part = model.blocks[0].feedforward
    forward = part.forward
    part.forward = lambda x: -forward(x)


def parametrized(model):
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(model.blocks[0].feedforward.up, "weight", Doubled())


def replaced(model):
    class Other(nn.Module):
        def forward(self, x):
            return x.flip(-1)

    model.blocks[1].feedforward = Other()


@pytest.mark.parametrize("change", [hooked, hooked_before, own_forward, parametrized, replaced])
def test_what_was_put_around_a_part_or_in_its_place_is_run(change):
    model = made(SMALL)
    plain = light(model)(TOKENS)
    change(model)
    assert torch.equal(light(model)(TOKENS), model(TOKENS))
    assert not torch.equal(model(TOKENS), plain)


def test_a_hook_on_all_modules_is_run():
    model, seen = made(SMALL), []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: seen.append(type(module))
    )
    try:
        light(model)(TOKENS)
    finally:
        handle.remove()
    assert nn.Embedding in seen


def test_dropout_is_run_in_training():
    model = made(SMALL).train()
    torch.manual_seed(1)
    expected = model(TOKENS)
    torch.manual_seed(1)
    assert torch.equal(light(model)(TOKENS), expected)


def test_taps_show_their_values_also_when_they_are_watched_later():
    model = made(CONFIGS["rotary"])
    other = light(model)
    with capture(model) as expected:
        model(TOKENS)
    with capture(model) as seen:
        other(TOKENS)
    assert seen.keys() == expected.keys()
    assert all(torch.equal(seen[name], expected[name]) for name in seen)
    assert other.blocks[0].attention.pattern is model.blocks[0].attention.pattern
    assert isinstance(other.blocks[0].attention.pattern, Tap)


def test_tables_of_positions_are_kept_from_text_to_text():
    model = made(CONFIGS["rotary"]).float()
    generate(model, [[1, 2, 3]], max_new_tokens=4)
    table = model.rotary.table
    assert table is not None
    generate(model, [[1, 2, 3]], max_new_tokens=4)
    assert model.rotary.table is table


def test_a_shared_block_has_one_light_form():
    model = made(SMALL)
    model.blocks[1] = model.blocks[0]
    other = light(model)
    assert other.blocks[1] is other.blocks[0]
    assert torch.equal(other(TOKENS), model(TOKENS))
