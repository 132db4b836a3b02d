"""Names that have changed: the former one does what the new one does, and says what that is."""

import subprocess
import sys
import warnings

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.token_positions import find_positions
from measured_transformer.parts.cache import KeyValues

CONFIG = Config(vocab=7, d_model=8, n_layers=1, n_heads=2)
TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def model(kind=Decoder):
    torch.manual_seed(0)
    return kind(CONFIG)


def held(length=3):
    past = KeyValues()
    past.extend(*torch.randn(2, 2, 1, length, 4).unbind())
    return past


def filled():
    cache = model().make_cache()
    mask = torch.tensor([[True, True, True], [False, True, True]])
    model()(TOKENS, padding_mask=mask, cache=cache)
    return cache


def cropped(name):
    past = held()
    getattr(past, name)(2)
    return past.length


def reordered(made, name):
    torch.manual_seed(0)
    past = made()
    getattr(past, name)(torch.tensor([1, 0]))
    return past.keys if isinstance(past, KeyValues) else past.layers[0].keys


def with_two_rows():
    past = KeyValues()
    past.extend(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4))
    return past


def doubled(name):
    changed = model()
    setattr(changed.blocks[0].feedforward, name, lambda x: 2 * x)
    return changed(TOKENS)


RENAMED = {
    "TokenPositions.padding_mask": (
        lambda: find_positions(TOKENS, padding_mask=TOKENS > 1).real,
        lambda: find_positions(TOKENS, padding_mask=TOKENS > 1).padding_mask,
    ),
    "KeyValues.crop": (lambda: cropped("cut"), lambda: cropped("crop")),
    "KeyValues.reorder": (
        lambda: reordered(with_two_rows, "select"),
        lambda: reordered(with_two_rows, "reorder"),
    ),
    "KeyValueCache.reorder": (
        lambda: reordered(filled, "select"),
        lambda: reordered(filled, "reorder"),
    ),
    "KeyValueCache.positions": (lambda: filled().places.keys, lambda: filled().positions.keys),
    "FeedForward.activate": (
        lambda: model().blocks[0].feedforward.bend,
        lambda: model().blocks[0].feedforward.activate,
    ),
    "FeedForward.activate ": (lambda: doubled("bend"), lambda: doubled("activate")),
    "Stack.embed": (
        lambda: model().enter(TOKENS, find_positions(TOKENS))[0],
        lambda: model().embed(TOKENS, find_positions(TOKENS))[0],
    ),
    "Stack.apply_final_norm": (
        lambda: model().finish(torch.ones(1, 2, 8)),
        lambda: model().apply_final_norm(torch.ones(1, 2, 8)),
    ),
    "Decoder.unembed": (
        lambda: model().read(torch.ones(1, 2, 8)),
        lambda: model().unembed(torch.ones(1, 2, 8)),
    ),
    "EncoderDecoder.unembed": (
        lambda: model(EncoderDecoder).read(torch.ones(1, 2, 8)),
        lambda: model(EncoderDecoder).unembed(torch.ones(1, 2, 8)),
    ),
}


@pytest.mark.parametrize("name", RENAMED)
def test_the_former_name_works_and_tells_the_new_one(name):
    former, new = RENAMED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        wanted = new()
    with pytest.warns(DeprecationWarning, match=rf"is now called \S*{name.strip()};"):
        got = former()
    if isinstance(wanted, torch.Tensor):
        assert torch.equal(got, wanted)
    else:
        assert got == wanted


def test_the_warning_points_at_whoever_wrote_the_former_name():
    # In a process of its own: the shape checks that tests have stand between the two.
    code = "from measured_transformer.parts.cache import KeyValues; KeyValues().cut(0)"
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code],
        capture_output=True,
        text=True,
    )
    assert "DeprecationWarning: KeyValues.cut is now called KeyValues.crop" in done.stderr
