"""What a source is worth: the same tokens are scored, whatever stands before them."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.rooms.encoder_decoder import real
from measured_book.smollm2.model import is_installed, smollm2

needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")


@needs_model
def test_losses_are_those_of_the_rest_behind_its_beginning() -> None:
    lm = smollm2()
    whole = lm.encode("The river runs down to the sea.")
    first, rest = whole[:, :3], whole[:, 3:]
    with torch.no_grad():
        log_probs = lm.model(whole)[0].log_softmax(-1)
    wanted = -log_probs[3:-1].gather(-1, rest[0, 1:, None])[:, 0]
    torch.testing.assert_close(real.losses(first, rest)[0], wanted, atol=1e-4, rtol=1e-4)


def test_the_right_source_helps_in_every_draw() -> None:
    loss = load_result("encoder_decoder", "told").loss
    assert (loss.sel(source="own") < loss.sel(source="another")).all()
    assert (loss.sel(source="own") < loss.sel(source="none")).all()
