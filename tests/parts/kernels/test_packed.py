"""Packed weights: the same map up to rounding, found by a trial, only when asked for, never stale."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import generate
from measured_transformer.inference.writer import Writer
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.kernels import packed as module
from measured_transformer.parts.kernels.linear import linear_kernel
from measured_transformer.parts.kernels.packed import FastestMap, PackedMap, can_pack
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(
    not can_pack(torch.zeros(2, 2), None), reason="this build of PyTorch has no oneDNN"
)
CONFIG = Config(vocab=50, d_model=32, n_layers=2, n_heads=4, positions="rotary", max_length=64)
PROMPTS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


@pytest.fixture
def wins(monkeypatch):
    """Every trial is won by the packed map."""
    monkeypatch.setattr(module, "_trials", {})
    monkeypatch.setattr(module, "_is_faster", lambda packed: True)


def drawn(rows=3, d_in=24, d_out=40, bias=True):
    generator = torch.Generator().manual_seed(0)
    x, weight, offset = (
        torch.randn(*shape, generator=generator)
        for shape in ((rows, d_in), (d_out, d_in), (d_out,))
    )
    return x, weight, offset if bias else None


def made(kind=Decoder, **changes):
    torch.manual_seed(0)
    return kind(CONFIG.replace(**changes)).eval()


def calls(monkeypatch):
    seen = []
    plain = PackedMap.__call__

    def counted(self, x):
        seen.append(tuple(x.shape))
        return plain(self, x)

    monkeypatch.setattr(PackedMap, "__call__", counted)
    return seen


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 8, 40])
def test_the_map_is_that_of_pytorch_up_to_rounding(rows, bias):
    x, weight, offset = drawn(rows, bias=bias)
    own = PackedMap(weight, offset, rows)
    for given in (x, x[:, None], x[None], x.T.contiguous().T):
        found = own(given)
        assert found.shape == (*given.shape[:-1], 40)
        torch.testing.assert_close(found, F.linear(given, weight, offset))
        found.add_(1)  # a tensor of its own
    assert own.bytes == weight.numel() * 4


def test_vectors_of_another_number_or_kind_are_multiplied_with_the_weight_itself():
    x, weight, offset = drawn(3)
    own = PackedMap(weight, offset, 3)
    for other in (x[:2], torch.cat((x, x))):
        assert torch.equal(own(other), F.linear(other, weight, offset))


def test_a_weight_that_changes_is_packed_again():
    x, weight, offset = drawn(3)
    own = PackedMap(weight, offset, 3)
    weight.mul_(2)
    torch.testing.assert_close(own(x), F.linear(x, weight, offset))
    with torch.no_grad():
        weight[0] = 0
    torch.testing.assert_close(own(x), F.linear(x, weight, offset))


def test_weights_of_inference_mode_can_be_packed():
    with torch.inference_mode():
        x, weight, offset = drawn(3)
        torch.testing.assert_close(PackedMap(weight, offset, 3)(x), F.linear(x, weight, offset))


def test_gradients_refuse_packed_weights():
    x, weight, offset = drawn(3)
    own = PackedMap(weight, offset, 3)
    with pytest.raises(ValueError, match=r"passes on no gradients: call it in torch\.no_grad"):
        own(x.requires_grad_())
    with torch.no_grad():
        assert own(x).shape == (3, 40)
    learned = PackedMap(weight.requires_grad_(), offset, 3)
    with pytest.raises(ValueError, match="passes on no gradients"):
        learned(x.detach())


@pytest.mark.parametrize(
    ("weight", "rows"),
    [(torch.zeros(4, 4).double(), 2), (torch.zeros(4), 2), (torch.zeros(4, 4), 0)],
    ids=["precision", "shape", "rows"],
)
def test_what_cannot_be_packed_is_refused(weight, rows, unhooked):
    with pytest.raises(ValueError, match="a weight can be packed for oneDNN as a float32 matrix"):
        PackedMap(weight, None, rows)


@pytest.mark.parametrize("faster", [True, False])
def test_one_trial_for_each_size_decides(faster, monkeypatch):
    tried = []
    monkeypatch.setattr(module, "_trials", {})
    monkeypatch.setattr(module, "_is_faster", lambda one: tried.append(one.rows) or faster)
    x, weight, offset = drawn(3)
    one = FastestMap(weight, offset, 3)
    assert one.packed is None
    assert not tried, "nothing is copied before the first call"
    for _ in range(2):
        torch.testing.assert_close(one(x), F.linear(x, weight, offset))
    assert (one.packed is not None) == faster
    assert one.bytes == (weight.numel() * 4 if faster else 0)
    FastestMap(weight.clone(), offset, 3)(x)
    assert tried == [3], "a second map of the same size knows the outcome"


def test_a_trial_times_both(monkeypatch):
    seen = calls(monkeypatch)
    _, weight, offset = drawn(3)
    assert isinstance(module._is_faster(PackedMap(weight, offset, 3)), bool)
    assert len(seen) == (1 + module._TURNS) * module._CALLS


MODELS = {
    "plain": {},
    "biases, tied": {"tie_embeddings": True, "positions": "learned"},
    "gated": {"activation": "swiglu", "norm": "rms", "bias": False, "n_kv_heads": 2},
    "experts": {"network": Experts(3, 2), "bias": False},
    "shared": {"shared_kv": True},
}


@pytest.mark.parametrize("name", MODELS)
def test_decoding_with_packed_weights_writes_the_same(name, wins, monkeypatch):
    model, seen = made(**MODELS[name]), calls(monkeypatch)
    plain = generate(model, PROMPTS, max_new_tokens=12)
    assert not seen, "nobody gets packed weights unasked"
    with linear_kernel("onednn"):
        generate(model, PROMPTS, max_new_tokens=3)
    assert not seen
    with linear_kernel("fastest"):
        packed = generate(model, PROMPTS, max_new_tokens=12)
    assert set(seen) == {(3, 1, 32), (3, 1, 128)} - ({(3, 1, 128)} if name == "experts" else set())
    for one, other in zip(plain.log_probs, packed.log_probs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert list(map(list, plain.tokens)) == list(map(list, packed.tokens))


def test_an_encoder_decoder_packs_what_its_decoder_calls(wins, monkeypatch):
    model, seen = made(EncoderDecoder, positions="learned"), calls(monkeypatch)
    plain = generate(model, PROMPTS, max_new_tokens=8, start=0)
    with linear_kernel("fastest"):
        packed = generate(model, PROMPTS, max_new_tokens=8, start=0)
    assert seen
    for one, other in zip(plain.log_probs, packed.log_probs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_beams_are_rows(wins, monkeypatch):
    model, seen = made(), calls(monkeypatch)
    plain = generate(model, PROMPTS, max_new_tokens=6, strategy=BeamSearch(n_beams=2))
    with linear_kernel("fastest"):
        packed = generate(model, PROMPTS, max_new_tokens=6, strategy=BeamSearch(n_beams=2))
    assert {shape[0] for shape in seen} == {6}
    assert list(map(list, plain.tokens)) == list(map(list, packed.tokens))


def test_the_memory_of_the_copies_is_told(wins):
    model = made()
    joined = sum(
        part.weight.numel() * 4
        for block in model.blocks
        for part in (block.attention.query, block.attention.key, block.attention.value)
    )
    plain = generate(model, PROMPTS, max_new_tokens=4)
    assert plain.copied_bytes == joined
    with linear_kernel("fastest"):
        packed = generate(model, PROMPTS, max_new_tokens=4)
    others = [model.unembedding.weight]
    for block in model.blocks:
        network = block.feedforward
        others += [block.attention.output.weight, network.up.weight, network.down.weight]
    assert packed.copied_bytes == 2 * joined + sum(weight.numel() * 4 for weight in others)


def test_weights_may_change_while_a_text_is_written(wins):
    model = made()
    with linear_kernel("fastest"), torch.inference_mode():
        writer = Writer(model, PROMPTS, start=None, max_new_tokens=4, chunk=None)
        writer.begin()
        new = torch.tensor([1, 2, 3])
        writer.next(new)
    with torch.no_grad():
        model.unembedding.weight.mul_(0)
    with linear_kernel("fastest"), torch.inference_mode():
        assert bool((writer.next(new) == 0).all())


def test_what_is_hooked_replaced_or_watched_is_called_as_ever(wins, monkeypatch):
    model, seen = made(), calls(monkeypatch)
    for block in model.blocks:
        block.feedforward.down.register_forward_hook(lambda module, inputs, output: -output)
        block.attention.output = torch.nn.Linear(32, 32)
    model.unembedding.forward = lambda state: F.linear(state, model.unembedding.weight) * 2
    plain = generate(model, PROMPTS, max_new_tokens=6)
    with linear_kernel("fastest"), capture(model, "*.mixed", "*.neurons", every_call=True) as taps:
        packed = generate(model, PROMPTS, max_new_tokens=6)
    assert all(len(values) == 6 for values in taps.values())
    assert set(seen) == {(3, 1, 32)}
    assert list(map(list, plain.tokens)) == list(map(list, packed.tokens))


def test_half_precision_and_double_are_left_alone(wins, monkeypatch):
    seen = calls(monkeypatch)
    for dtype in (torch.float64, torch.bfloat16):
        model = made().to(dtype)
        plain = generate(model, PROMPTS, max_new_tokens=4)
        with linear_kernel("fastest"):
            packed = generate(model, PROMPTS, max_new_tokens=4)
        assert all(map(torch.equal, plain.log_probs, packed.log_probs))
    assert not seen
