"""What is captured is a copy: it reaches nothing, and nothing reaches it."""

import pytest
import torch
from measured_transformer.internals import capture as module
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

CONFIG = Config(vocab=9, d_model=12, n_layers=2, n_heads=3, d_ff=20, positions="rotary")
TOKENS = torch.tensor([[1, 2, 3, 4, 5], [8, 0, 8, 0, 1]])
KINDS = [Decoder, Encoder, EncoderDecoder]


@pytest.fixture(params=["on write", "at once"], autouse=True)
def copies(request, monkeypatch):
    """With PyTorch's copies on write, and as where there are none."""
    if request.param == "at once":
        monkeypatch.setattr(module, "_lazy", lambda value: None)


def made(kind=Decoder, dtype=torch.float64, **changes):
    torch.manual_seed(0)
    model = kind(CONFIG.replace(**changes)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def run(model):
    return model(TOKENS, TOKENS[:, :3]) if isinstance(model, EncoderDecoder) else model(TOKENS)


SPOIL = {
    "zero_": lambda value: value.zero_(),
    "mul_": lambda value: value.mul_(-3),
    "index": lambda value: value.__setitem__((0,), 7.0) or value,
    "view": lambda value: value.flatten()[:1].fill_(9.0),
    "data": lambda value: value.data.fill_(5.0),
    "copy_": lambda value: value.copy_(torch.randn_like(value)),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", SPOIL)
def test_a_transform_in_place_changes_neither_the_run_nor_its_gradients(kind, how, grad):
    model = made(kind)
    with torch.set_grad_enabled(grad):
        with capture(model):  # the way of computing where every tap is watched
            plain = run(model)
        with capture(model, transform=SPOIL[how]):
            spoilt = run(model)
        assert torch.equal(plain, spoilt)
        if grad:
            weights = list(model.parameters())
            wanted = torch.autograd.grad(plain.square().sum(), weights)
            found = torch.autograd.grad(spoilt.square().sum(), weights)
            assert all(map(torch.equal, wanted, found))


@pytest.mark.parametrize("name", list(taps(made())))
def test_a_captured_value_shares_nothing(name):
    model = made()
    with torch.no_grad(), capture(model) as seen:
        out = run(model)
    kept, result = {key: value.clone() for key, value in seen.items()}, out.clone()
    seen[name].fill_(123.0)
    assert torch.equal(out, result)
    for other, value in seen.items():
        assert other == name or torch.equal(value, kept[other])


@pytest.mark.parametrize(
    "name", ["embedding", "blocks.0.residual_post", "blocks.0.attention.values"]
)
def test_what_is_done_to_a_value_during_the_run_does_not_reach_the_run(name):
    model = made()
    plain = run(model)

    def meddle(value):
        seen[name].zero_()
        return value

    with (
        torch.no_grad(),
        capture(model, name) as seen,
        intervene(model, {"blocks.1.residual_pre": meddle}),
    ):
        assert torch.equal(run(model), plain)


def test_what_the_run_does_later_does_not_reach_a_value():
    model = made()
    with torch.no_grad(), capture(model, "logits", "*.keys", "*.values") as seen:
        cache = model.make_cache()
        out = model(TOKENS, cache=cache)
        kept = {name: value.clone() for name, value in seen.items()}
        first = dict(seen)
        out.zero_()
        for layer in cache.layers:
            layer.keys.zero_()
            layer.values.zero_()
        model(TOKENS, cache=cache)
    for name, value in kept.items():
        assert torch.equal(first[name], value)


def test_a_value_that_was_replaced_by_a_tensor_does_not_share_it():
    model, new = made(), torch.ones(2, 5, 12, dtype=torch.float64)
    with intervene(model, {"embedding": new}), capture(model, "embedding") as seen:
        run(model)
    seen["embedding"].mul_(2)
    assert bool((new == 1).all())
    with intervene(model, {"embedding": new}), capture(model, "embedding") as seen:
        run(model)
    new.zero_()
    assert bool((seen["embedding"] == 1).all())


def test_a_value_that_was_replaced_by_a_number_can_be_written_to():
    model = made()
    with intervene(model, {"embedding": 0.0}), capture(model, "embedding") as seen:
        run(model)
    seen["embedding"][0, 0, 0] = 1.0
    assert seen["embedding"].sum() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_written_to_in_place_leave_a_later_backward_pass_alone(dtype):
    model = made(dtype=dtype)
    with capture(model):
        run(model).float().square().sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with capture(model) as seen:
        loss = run(model).float().square().sum()
    for value in seen.values():
        value.zero_()
    loss.backward()
    assert all(map(torch.equal, wanted, [parameter.grad for parameter in model.parameters()]))


def test_under_inference_mode():
    model = made()
    with torch.inference_mode(), capture(model, "embedding", "blocks.0.residual_pre") as seen:
        plain = run(model).clone()
        seen["embedding"].zero_()
        assert not torch.equal(seen["embedding"], seen["blocks.0.residual_pre"])
        assert torch.equal(run(model), plain)
