"""The fastest pairs turn as in a rotary model, and the others do not turn at all."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import frequencies
from measured_transformer.variants.fast_pairs import FastPairs


@pytest.mark.parametrize(("share", "turning"), [(0.25, 2), (0.3, 2), (0.5, 4), (1.0, 8)])
def test_the_fastest_pairs_keep_their_frequencies(share, turning):
    found = FastPairs(share).frequencies(16, 10000.0, 99)
    assert torch.equal(found[:turning], frequencies(16)[:turning])
    assert not found[turning:].any()


def test_all_pairs_are_the_usual_rotation_and_fewer_are_not():
    tokens = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    found = {}
    for share in (None, 1.0, 0.25):
        torch.manual_seed(0)
        scaling = None if share is None else FastPairs(share)
        config = Config(vocab=9, d_model=32, n_heads=2, positions="rotary", rotary_scaling=scaling)
        found[share] = Decoder(config).double()(tokens)
    torch.testing.assert_close(found[1.0], found[None])
    assert not torch.allclose(found[0.25], found[None])


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        FastPairs(share)
