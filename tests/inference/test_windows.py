"""Decoding in a ring of keys is a pass over the whole text under the mask of the same window."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.windows import SlidingWindow, WindowKeyValues
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from small_models import PROMPTS, SMALL, VOCAB, made

SCHEMES = ["sinusoidal", "learned", "rotary", "none"]


@torch.no_grad()
def masked_logits(model, text, window):
    """Of a full pass in which every layer hides what the window has dropped."""

    def hide(layer, args, given):
        return args, {**given, "mask": window.mask(args[0].shape[1])}

    handles = [
        module.register_forward_pre_hook(hide, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, MultiHeadAttention)
    ]
    try:
        return model(torch.tensor([text]))[0]
    finally:
        for handle in handles:
            handle.remove()


@settings(max_examples=10, deadline=None)
@given(
    positions=st.sampled_from(SCHEMES),
    heads=st.sampled_from([1, 2, 4]),
    window=st.integers(1, 6),
    sinks=st.integers(0, 3),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
)
def test_it_writes_what_a_masked_pass_says(positions, heads, window, sinks, prompt):
    model = made(Decoder, SMALL.replace(positions=positions, n_kv_heads=heads))
    rule = SlidingWindow(window, sinks)
    ours = generate(model, [prompt], max_new_tokens=10, window=rule)
    text = [*prompt, *ours.tokens[0].tolist()]
    logits = masked_logits(model, text[:-1], rule)[len(prompt) - 1 :].log_softmax(-1)
    assert ours.tokens[0].tolist() == logits.argmax(-1).tolist()
    expected = logits.gather(1, ours.tokens[0][:, None])[:, 0]
    torch.testing.assert_close(ours.log_probs[0], expected, rtol=0, atol=1e-9)


def test_a_window_forgets_and_its_cache_stops_growing():
    model = made(Decoder, SMALL.replace(positions="rotary"))
    prompt = [[3, 1, 4, 1, 5]]
    free = generate(model, prompt, max_new_tokens=20)
    narrow = generate(model, prompt, max_new_tokens=20, window=SlidingWindow(4, 2))
    assert narrow.tokens[0].tolist() != free.tokens[0].tolist()
    each = free.cache_bytes // (5 + 20 - 1)
    assert narrow.cache_bytes == 6 * each
    wide = generate(model, prompt, max_new_tokens=20, window=SlidingWindow(40))
    assert wide.tokens[0].tolist() == free.tokens[0].tolist()
    assert wide.cache_bytes == free.cache_bytes


def test_other_strategies_work_in_a_window():
    model = made(Decoder)
    prompts = [[1, 2, 3], [4, 5, 6]]
    sampling = Sampling(torch.Generator().manual_seed(0))
    for strategy in (sampling, BeamSearch(3)):
        found = generate(
            model, prompts, max_new_tokens=8, strategy=strategy, window=SlidingWindow(3, 1)
        )
        assert [len(text) for text in found.tokens] == [8, 8]


def test_slots_are_those_of_the_mask():
    rule = SlidingWindow(3, 2)
    held: dict[int, int] = {}
    for t in range(12):
        held[rule.slot(t)] = t
        seen = rule.mask(t + 1)[t].nonzero().flatten().tolist()
        assert sorted(held.values()) == seen
    assert rule.kept == 5


def test_what_does_not_fit_is_refused():
    for wrong in ((0, 0), (2, -1)):
        with pytest.raises(ValueError, match="at least 1"):
            SlidingWindow(*wrong)
    window = SlidingWindow(2)
    with pytest.raises(ValueError, match="one length"):
        generate(made(Decoder), PROMPTS, max_new_tokens=2, window=window)
    with pytest.raises(ValueError, match="for a Decoder"):
        generate(made(EncoderDecoder), [[1]], max_new_tokens=2, start=1, window=window)
    with pytest.raises(ValueError, match="carry themselves"):
        generate(
            made(Decoder, SMALL.replace(positions="alibi")), [[1]], max_new_tokens=2, window=window
        )
    ring = WindowKeyValues(window)
    keys = torch.ones(1, 1, 2, 4)
    ring.extend(keys, keys)
    with pytest.raises(ValueError, match="singly"):
        ring.extend(keys, keys)
    with pytest.raises(ValueError, match="without gradients"):
        ring.extend(keys[:, :, :1].requires_grad_(), keys[:, :, :1])
    ring.crop(1)
    assert (ring.seen, ring.length) == (1, 1)
    for _ in range(3):
        ring.extend(keys[:, :, :1].detach(), keys[:, :, :1].detach())
    ring.crop(9)
    with pytest.raises(ValueError, match="does not come back"):
        ring.crop(1)
