"""Angles between states of the stream, against ones known beforehand."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.states import turns
from measured_transformer.chapters.very_deep.measure import only_first
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.variants.norms import deep_norm


def test_turns_are_the_angles_that_were_made():
    angles = np.radians([0.0, 30.0, 90.0, 90.001])
    lengths = torch.tensor([1.0, 7.0, 0.1, 3.0])
    plane = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], 1), dtype=torch.float64)
    states = (plane * lengths[:, None]).view(4, 1, 1, 2).expand(4, 2, 3, 2)
    assert turns(states) == pytest.approx([30.0, 60.0, 0.001], rel=1e-5)


def test_turns_are_averaged_over_tokens():
    start = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    end = torch.tensor([[[[0.0, 2.0], [3.0, 0.0]]]])
    assert turns(torch.cat([start, end])) == pytest.approx([45.0])


def test_one_state_has_no_turn():
    with pytest.raises(ValueError, match="two states"):
        turns(torch.ones(1, 2, 3, 4))


@pytest.mark.parametrize("placement", ["pre", "post", "deep"])
def test_a_model_cut_off_reads_what_its_first_blocks_leave(placement):
    where = "pre" if placement == "pre" else "post"
    model = Encoder(Config(vocab=5, d_model=16, n_layers=3, n_heads=2, placement=where)).eval()
    if placement == "deep":  # what it changes must come along
        deep_norm(model)
    tokens = torch.randint(5, (2, 4))
    with torch.no_grad(), capture(model, "blocks.1.residual_post") as seen:
        whole = model(tokens)
    with torch.no_grad():
        cut = only_first(model, 2)(tokens)
        assert torch.allclose(cut, model.unembed(seen["blocks.1.residual_post"]), atol=1e-6)
        assert len(ledger(only_first(model, 2), tokens).writes) == 4
        assert torch.equal(model(tokens), whole)  # the model itself keeps all of its blocks
    assert not torch.allclose(cut, whole, atol=1e-3)


@pytest.mark.parametrize("blocks", [0, 4])
def test_blocks_that_are_not_there_are_refused(blocks):
    model = Encoder(Config(vocab=5, d_model=16, n_layers=3, n_heads=2))
    with pytest.raises(ValueError, match="between 1 and 3"):
        only_first(model, blocks)
