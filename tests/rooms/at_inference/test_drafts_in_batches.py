"""What a pass over several tokens of each text costs: computed from sizes alone, and in its limits."""

from __future__ import annotations

import pytest
from measured_book.rooms.at_inference.reading import formula_per_pass, pass_ratio

OPERATIONS, BANDWIDTH = 312e12, 2.039e12  # an A100's, from its data sheet


def test_one_token_takes_as_long_as_one_token():
    for model in ("Llama 2", "Llama 3"):
        assert pass_ratio(model=model, tokens=1000, batch=7, ahead=1) == pytest.approx(1.0)


def test_where_memory_is_the_limit_five_tokens_are_nearly_free():
    assert 1.0 < pass_ratio(model="Llama 2", tokens=4096, batch=1, ahead=5) < 1.01


def test_where_the_arithmetic_of_weights_is_all_there_is_five_tokens_take_five_times_as_long():
    ratio = pass_ratio(model="Llama 3", tokens=1, batch=20_000, ahead=5)
    assert ratio == pytest.approx(5, rel=0.02)


def test_a_large_batch_by_hand():
    """Llama 3 8B, 153 texts of 2048 tokens: 32 layers, 8 heads of 128 with keys and values, two bytes each."""
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    weights = 32 * layer + 4096 * 128_256
    caches = 153 * 2048 * 32 * 2 * 8 * 128 * 2 / BANDWIDTH
    once = max(2 * weights / BANDWIDTH, 2 * weights * 153 / OPERATIONS)
    five = 2 * weights * 153 * 5 / OPERATIONS
    found = pass_ratio(model="Llama 3", tokens=2048, batch=153, ahead=5)
    assert found == pytest.approx((five + caches) / (once + caches), rel=0.03)


def test_the_shorter_the_texts_the_dearer_a_draft_and_it_loses_in_the_end():
    ratios = [
        pass_ratio(model="Llama 3", tokens=n, batch=153, ahead=5) for n in (4096, 2048, 512, 64)
    ]
    assert ratios == sorted(ratios)
    gain = formula_per_pass(percent=70, ahead=4)
    assert ratios[1] < gain < ratios[2]
