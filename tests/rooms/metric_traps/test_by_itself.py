"""Right by teacher forcing, and right by itself: the first token is the same, and a copy is all right."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.rooms.metric_traps.real import right
from measured_book.smollm2.model import is_installed, smollm2

needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")


@needs_model
def test_a_text_that_the_model_wrote_is_right_in_both_ways() -> None:
    lm = smollm2()
    begun = lm.encode("The capital of France is")
    written = lm.encode("The capital of France is" + lm.generate("The capital of France is", 6))
    size = begun.shape[1]
    assert (written[:, :size] == begun).all()
    assert right(written, size).all()
    spoiled = written.clone()
    spoiled[0, size] = (spoiled[0, size] + 1) % lm.model.config.vocab
    found = right(spoiled, size)
    assert not found[:, 0, 0].any()
    assert torch.equal(found[1, 0, 1:], torch.ones(found.shape[2] - 1, dtype=torch.bool))


def test_shares_lie_between_zero_and_one() -> None:
    result = load_result("metric_traps", "by_itself")
    for share in (result.right, result["last"]):
        assert ((share >= 0) & (share <= 1)).all()
