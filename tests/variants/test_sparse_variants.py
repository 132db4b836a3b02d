"""Windows and strides hide what they say, in every layer, and reach as far as they say."""

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.variants.sparse import Strided, Windowed, stride_mask, window_mask


def made(prepare, *, layers=1, heads=2, positions="none"):
    torch.manual_seed(0)
    config = Config(
        vocab=9, d_model=16, n_heads=heads, n_layers=layers, positions=positions, max_length=32
    )
    model = Decoder(config).double()
    prepare(model)
    return model


@pytest.mark.parametrize("n", [1, 5, 13])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_masks_are_those_of_their_definition(n, size):
    window, stride = window_mask(n, size), stride_mask(n, size)
    for i in range(n):
        for j in range(n):
            assert window[i, j] == (j <= i and i - j < size)
            assert stride[i, j] == (j <= i and (i - j) % size == 0)


def test_each_half_of_the_heads_has_its_own_pattern():
    model = made(Strided(3), heads=4, layers=2)
    with capture(model, "blocks.0.attention.pattern", "blocks.1.attention.pattern") as seen:
        model(torch.arange(9)[None])
    for pattern in seen.values():
        weighted = pattern[0] > 0
        for head in range(4):
            assert torch.equal(weighted[head], (window_mask if head < 2 else stride_mask)(9, 3))


@pytest.mark.parametrize(("layers", "window"), [(1, 4), (2, 4), (3, 2)])
def test_a_window_reaches_so_far_and_not_one_position_farther(layers, window):
    model = made(Windowed(window), layers=layers)
    tokens = torch.randint(9, (1, 20), generator=torch.Generator().manual_seed(0))
    before = model(tokens)[0, -1]
    for back in range(20):
        changed = tokens.clone()
        changed[0, -1 - back] = (changed[0, -1 - back] + 1) % 9
        same = torch.equal(model(changed)[0, -1], before)
        assert same == (back > layers * (window - 1)), back


def test_two_layers_of_strides_reach_everything_and_one_does_not():
    tokens = torch.randint(9, (1, 20), generator=torch.Generator().manual_seed(0))
    missed = {}
    for layers in (1, 2):
        model = made(Strided(5), layers=layers)
        before = model(tokens)[0, -1]
        missed[layers] = []
        for back in range(20):
            changed = tokens.clone()
            changed[0, -1 - back] = (changed[0, -1 - back] + 1) % 9
            if torch.equal(model(changed)[0, -1], before):
                missed[layers].append(back)
    assert missed == {1: [k for k in range(20) if k >= 5 and k % 5], 2: []}


def test_nobody_looks_ahead():
    for prepare in (Windowed(3), Strided(3)):
        model = made(prepare, layers=2, positions="learned")
        tokens = torch.randint(9, (1, 12), generator=torch.Generator().manual_seed(0))
        before = model(tokens)
        tokens[0, 7] = (tokens[0, 7] + 1) % 9
        after = model(tokens)
        assert torch.equal(before[:, :7], after[:, :7])
        assert not torch.equal(before[:, 7], after[:, 7])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="window of at least 1, got 0"):
        Windowed(0)
    with pytest.raises(ValueError, match="stride of at least 1, got -2"):
        Strided(-2)
    with pytest.raises(ValueError, match="even number of them, got 1"):
        made(Strided(2), heads=1)
