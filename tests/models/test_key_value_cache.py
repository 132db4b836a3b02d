"""A sequence fed piece by piece into a cache gives what one call with all of it gives."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.position_schemes import SCHEMES

VOCAB, N = 13, 11
SMALL = Config(
    vocab=VOCAB,
    d_model=16,
    n_layers=2,
    n_heads=4,
    d_ff=24,
    max_length=16,
    relative_buckets=8,
    relative_max_distance=6,
)
CHUNKS = {"one by one": [1] * N, "prefill, then one by one": [6, *[1] * 5], "chunks": [4, 1, 5, 1]}
LENGTHS = (N, 7, 3)


def made(kind, config, seed=0):
    torch.manual_seed(seed)
    return kind(config).double().eval()


def tokens(*shape, seed=0):
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def padding(side):
    where, lengths = torch.arange(N), torch.tensor(LENGTHS)[:, None]
    return {
        "none": None,
        "left": where >= N - lengths,
        "right": where < lengths,
        "in the middle": (where < lengths - 2) | (where >= N - 2),
    }[side]


def in_chunks(model, x, sizes, real=None, cache=None, **arguments):
    cache = model.make_cache() if cache is None else cache
    outputs, start = [], 0
    for size in sizes:
        piece = slice(start, start + size)
        mask = None if real is None else real[:, piece]
        outputs.append(model(x[:, piece], padding_mask=mask, cache=cache, **arguments))
        start += size
    return torch.cat(outputs, dim=1), cache


def assert_same(ours, expected, real=None):
    if real is not None:
        ours, expected = ours[real], expected[real]
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS.keys())
@pytest.mark.parametrize("side", ["none", "left", "in the middle"])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_a_decoder_in_chunks(positions, n_kv_heads, side, sizes):
    model = made(Decoder, SMALL.replace(positions=positions, n_kv_heads=n_kv_heads))
    x, real = tokens(3, N), padding(side)
    expected = model(x, padding_mask=real)
    ours, cache = in_chunks(model, x, sizes, real)
    assert_same(ours, expected, real)
    assert cache.length == N
    with capture(model, "*.pattern"):
        looked, _ = in_chunks(model, x, sizes, real)
    assert_same(looked, expected, real)


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("side", ["left", "right", "in the middle"])
@torch.no_grad()
def test_padding_on_any_side_moves_no_token(positions, side):
    model, real = made(Decoder, SMALL.replace(positions=positions)), padding(side)
    x = tokens(3, N)
    padded = model(x, padding_mask=real)
    for row in range(3):
        alone = model(x[row : row + 1, real[row]])
        assert_same(padded[row, real[row]], alone[0])


@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_prompts_of_unequal_length_go_on_as_if_each_were_alone(positions):
    model = made(Decoder, SMALL.replace(positions=positions, n_kv_heads=2))
    prompts, after = tokens(3, N), tokens(3, 4, seed=1)
    real = padding("left")
    cache = model.make_cache()
    model(prompts, padding_mask=real, cache=cache)
    together = torch.cat([model(after[:, i : i + 1], cache=cache) for i in range(4)], dim=1)
    for row in range(3):
        whole = torch.cat((prompts[row, real[row]], after[row]))[None]
        assert_same(together[row], model(whole)[0, -4:])


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS.keys())
@torch.no_grad()
def test_positions_given_by_hand(sizes):
    for scheme in ("rotary", "learned", "alibi", "relative"):
        model = made(Decoder, SMALL.replace(positions=scheme))
        x, places = tokens(2, N), torch.stack((torch.arange(N) + 3, torch.arange(N) * 2 % 15))
        expected = model(x, positions=places)
        cache, outputs, start = model.make_cache(), [], 0
        for size in sizes:
            piece = slice(start, start + size)
            outputs.append(model(x[:, piece], positions=places[:, piece], cache=cache))
            start += size
        assert_same(torch.cat(outputs, dim=1), expected)
        shifted = model(x[:1], positions=places[:1])
        if scheme == "learned":
            assert not torch.allclose(shifted, model(x[:1]))
        else:  # the others know distances only
            assert_same(shifted, model(x[:1]))


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS.keys())
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_an_encoder_decoder_in_chunks(positions, side, sizes):
    config = SMALL.replace(positions=positions, n_kv_heads=2, n_decoder_layers=3, placement="post")
    model = made(EncoderDecoder, config)
    source, target = tokens(3, N), tokens(3, N, seed=1)
    real = padding(side)
    masks = {"source_padding_mask": real, "target_padding_mask": real}
    expected = model(source, target, **masks)
    cache, outputs, start = model.make_cache(), [], 0
    for size in sizes:
        piece = slice(start, start + size)
        mask = None if real is None else real[:, piece]
        now = {"source_padding_mask": real, "target_padding_mask": mask}
        outputs.append(model(source, target[:, piece], cache=cache, **now))
        start += size
    assert_same(torch.cat(outputs, dim=1), expected, real)


@torch.no_grad()
def test_the_source_is_read_and_projected_once():
    model = made(EncoderDecoder, SMALL)
    source, target, cache = tokens(2, 5), tokens(2, 4), model.make_cache()
    with capture(model) as seen:
        model(source, target[:, :1], cache=cache)
        assert "encoder.embedding" in seen
        assert seen["decoder.blocks.0.cross_attention.keys"].shape == (2, 4, 5, 4)
        seen.clear()
        model(source, target[:, 1:2], cache=cache)
        assert "encoder.embedding" not in seen
        assert "decoder.blocks.0.cross_attention.keys" not in seen
        assert seen["decoder.blocks.0.cross_attention.pattern"].shape == (2, 4, 1, 5)


@torch.no_grad()
def test_what_is_changed_on_the_way_into_the_cache_stays_changed():
    model, x = made(Decoder, SMALL.replace(positions="rotary")), tokens(2, N)
    with intervene(model, {"blocks.0.attention.values": lambda v: v * (v > 0)}):
        expected = model(x)
        ours, _ = in_chunks(model, x, CHUNKS["chunks"])
    assert_same(ours, expected)


def test_gradients_reach_the_past_through_a_cache():
    model, x = made(Decoder, SMALL.replace(positions="rotary", n_kv_heads=2)), tokens(2, N)
    model(x).square().sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    ours, _ = in_chunks(model, x, CHUNKS["chunks"])
    ours.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


def test_inference_first_and_training_afterwards():
    for scheme in SCHEMES:
        model, x = made(Decoder, SMALL.replace(positions=scheme)), tokens(2, N)
        with torch.inference_mode():
            in_chunks(model, x, CHUNKS["chunks"])
        model(x).sum().backward()
        with torch.no_grad():
            past = in_chunks(model, x[:, :4], [4])[1]
        in_chunks(model, x[:, 4:], [7], cache=past)[0].sum().backward()


@pytest.mark.parametrize("capacity", [0, 5, 64])
@torch.no_grad()
def test_bytes_are_those_of_the_formula(capacity):
    config = SMALL.replace(n_kv_heads=2, d_head=6, n_layers=3)
    for dtype, size in ((torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 2)):
        model = made(Decoder, config).to(dtype)
        cache = model.make_cache(capacity)
        assert cache.bytes == cache.reserved_bytes == 0
        in_chunks(model, tokens(5, N), CHUNKS["chunks"], cache=cache)
        assert cache.bytes == 2 * 3 * 5 * 2 * N * 6 * size
        room = {0: 16, 5: 20, 64: 64}[capacity]
        assert cache.reserved_bytes == 2 * 3 * 5 * 2 * room * 6 * size
    both = made(EncoderDecoder, config.replace(n_decoder_layers=2)).float()
    cache = both.make_cache()
    both(tokens(5, 7), tokens(5, N), cache=cache)
    assert cache.bytes == 2 * 2 * 5 * 2 * (N + 7) * 6 * 4


@torch.no_grad()
def test_rows_can_be_chosen_and_repeated():
    model, x, real = made(Decoder, SMALL.replace(positions="alibi")), tokens(3, N), padding("left")
    cache = model.make_cache()
    model(x[:, :-1], padding_mask=real[:, :-1], cache=cache)
    rows = torch.tensor([2, 0, 0])
    cache.reorder(rows)
    ours = model(x[rows, -1:], cache=cache)
    expected = model(x[rows], padding_mask=real[rows])[:, -1:]
    assert_same(ours, expected)


@torch.no_grad()
def test_earlier_results_are_not_overwritten():
    past = KeyValues(capacity=8)
    keys, values = past.extend(torch.ones(1, 1, 2, 3), torch.ones(1, 1, 2, 3))
    kept = keys.clone()
    past.extend(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 3))
    assert torch.equal(keys, kept)
    assert torch.equal(past.values[:, :, :2], values)


@torch.no_grad()
@pytest.mark.parametrize("read_before", [0, 3])
@pytest.mark.parametrize("where", ["blocks.0.residual_post", "blocks.1.feedforward.out"])
@pytest.mark.parametrize("kind", [Decoder, EncoderDecoder])
@torch.no_grad()
def test_a_call_that_is_interrupted_leaves_nothing_in_the_cache(kind, where, read_before):
    def interrupt(value):
        raise KeyboardInterrupt

    model = made(kind, SMALL.replace(positions="relative"))
    source, target = tokens(2, 4, seed=1), tokens(2, N)
    cache = model.make_cache()

    def read(part):
        if kind is Decoder:
            return model(target[:, part], cache=cache)
        return model(source, target[:, part], cache=cache)

    whole = model(target) if kind is Decoder else model(source, target)
    side = "" if kind is Decoder else "decoder."
    first = read(slice(read_before)) if read_before else target.new_zeros(2, 0, VOCAB)
    rest = slice(read_before, None)
    with pytest.raises(KeyboardInterrupt), intervene(model, {f"{side}{where}": interrupt}):
        read(slice(read_before, read_before + 2))
    torch.testing.assert_close(torch.cat((first, read(rest)), dim=1), whole, rtol=0, atol=1e-12)
    assert cache.length == N


@torch.no_grad()
def test_after_an_interrupted_call_another_memory_can_be_read():
    def interrupt(value):
        raise KeyboardInterrupt

    model = made(EncoderDecoder, SMALL)
    one, other = model.encode(tokens(3, 4, seed=1)), model.encode(tokens(2, 5, seed=2))
    cache = model.make_cache()
    name = "decoder.blocks.1.residual_pre"
    with pytest.raises(KeyboardInterrupt), intervene(model, {name: interrupt}):
        model.decode(tokens(3, 4), one, cache=cache)
    ours = model.decode(tokens(2, 4), other, cache=cache)
    expected = model.decode(tokens(2, 4), other)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_what_is_cut_is_made_anew():
    past = KeyValues()
    keys, values = torch.randn(2, 2, 1, 3, 4).unbind()
    past.extend(keys, values)
    past.crop(5)
    assert past.length == 3
    past.crop(2)
    again, _ = past.extend(keys, values)
    assert torch.equal(again, torch.cat((keys[:, :, :2], keys), dim=2))
    past.crop(0)
    again, _ = past.extend(*torch.randn(2, 3, 1, 2, 4).unbind())
    assert again.shape == (3, 1, 2, 4)


def test_a_cache_of_another_batch_or_model_is_refused():
    model, cache = made(Decoder, SMALL), made(Decoder, SMALL).make_cache()
    model(tokens(2, 3), cache=cache)
    with pytest.raises(ValueError, match=r"expects \(batch, head, new, d_head\) = \(2, 4, 1, 4\)"):
        model(tokens(3, 1), cache=cache)
    deeper = made(Decoder, SMALL.replace(n_layers=3))
    with pytest.raises(ValueError, match="this model has 3 blocks, got a cache of 2 layers"):
        deeper(tokens(2, 1), cache=cache)
    encoder = made(Encoder, SMALL)
    with pytest.raises(ValueError, match="a cache is for causal models"):
        encoder.stream(tokens(2, 3), cache=cache)
    with pytest.raises(ValueError, match="this cache is empty"):
        _ = KeyValues().keys
    with pytest.raises(ValueError, match="capacity must not be negative"):
        KeyValues(-1)


@torch.no_grad()
def test_attention_with_a_cache_of_its_own():
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 4, n_kv_heads=2).double()
    x, memory = torch.randn(2, 6, 8).double(), torch.randn(2, 5, 8).double()
    past = KeyValues()
    first = attention(x[:, :4], causal=True, cache=past)
    rest = attention(x[:, 4:], causal=True, cache=past)
    assert_same(torch.cat((first, rest), dim=1), attention(x, causal=True))
    kept = KeyValues()
    assert_same(attention(x, memory, cache=kept), attention(x, memory))
    assert_same(attention(x[:, 1:2], memory, cache=kept), attention(x, memory)[:, 1:2])
    assert kept.length == 5


@pytest.mark.parametrize("positions", SCHEMES)
def test_everything_is_made_on_the_device_of_the_tokens(positions):
    config = SMALL.replace(positions=positions, n_kv_heads=2)
    x, real = tokens(3, N).to("meta"), torch.ones(3, N, dtype=torch.bool, device="meta")
    decoder, both = made(Decoder, config).to("meta"), made(EncoderDecoder, config).to("meta")
    for mask in (None, real):
        piece = None if mask is None else mask[:, :4]
        cache = decoder.make_cache()
        decoder(x[:, :4], padding_mask=piece, cache=cache)
        assert decoder(x[:, 4:], cache=cache).device.type == "meta"
        cache = both.make_cache()
        both(x, x[:, :4], source_padding_mask=mask, target_padding_mask=piece, cache=cache)
        after = both(x, x[:, 4:], source_padding_mask=mask, cache=cache)
        assert after.shape == (3, N - 4, VOCAB)
