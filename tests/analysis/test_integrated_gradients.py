"""Integrated gradients add up, by default whatever the norm is, and say where they do not."""

import warnings

import pytest
import torch
from measured_transformer.analysis.attribution import (
    GAP,
    answer_logit,
    completeness_gap,
    embedded,
    integrated_gradients,
)
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

TOKENS = torch.randint(1, 20, (3, 7), generator=torch.Generator().manual_seed(0))
TARGET = answer_logit(-1, torch.tensor([1, 2, 3]))
CONFIGS = {
    "pre": {},
    "post": {"placement": "post"},
    "deep": {"n_layers": 4, "d_model": 16},
    "rotary": {"positions": "rotary"},
    "learned": {"positions": "learned"},
    "types": {"token_types": 2},
    "bert": {"embedding_norm": True, "placement": "post", "positions": "learned"},
}


def made(kind=Decoder, **changes):
    torch.manual_seed(0)
    return kind(Config(vocab=20, d_model=32).replace(**changes)).double().eval()


@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_they_add_up_at_their_defaults(kind, name, norm):
    changes = {key: CONFIGS[name][key] for key in CONFIGS[name]}
    model = made(kind, **changes, norm=norm)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = integrated_gradients(model, TOKENS, TARGET)
    gap = completeness_gap(model, TOKENS, TARGET, found)
    change = (TARGET(model(TOKENS)) - TARGET(model(torch.zeros_like(TOKENS)))).detach()
    torch.testing.assert_close(found.sum(-1) - gap, change)
    assert gap.abs().max() < 1e-3 * found.abs().sum(-1).max()


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("name", ["pre", "post", "rotary", "deep"])
def test_a_baseline_at_which_a_norm_jumps_is_named_by_a_warning(name, norm):
    model = made(**CONFIGS[name], norm=norm)
    with pytest.warns(UserWarning, match=r"do not add up: at worst .*% .*steps=50"):
        found = integrated_gradients(model, TOKENS, TARGET, baseline=0.0)
    gap = completeness_gap(model, TOKENS, TARGET, found, baseline=0.0)
    assert (gap.abs() > GAP * found.abs().sum(-1)).any()


def test_without_norms_zero_is_as_good_as_any_baseline():
    model = made(norm="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for baseline in (0.0, torch.zeros(32), embedded(model, TOKENS).mean(0)):
            found = integrated_gradients(model, TOKENS, TARGET, baseline=baseline)
            gap = completeness_gap(model, TOKENS, TARGET, found, baseline=baseline)
            assert gap.abs().max() < 1e-6


def test_too_few_steps_are_named_and_more_steps_help():
    model = made()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.mul_(20)
    with pytest.warns(UserWarning, match="steps=1"):
        integrated_gradients(model, TOKENS, TARGET, steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        integrated_gradients(model, TOKENS, TARGET, steps=400)


def test_the_default_starts_at_token_zero():
    model = made()
    start = embedded(model, torch.zeros_like(TOKENS))
    assert torch.equal(
        integrated_gradients(model, TOKENS, TARGET),
        integrated_gradients(model, TOKENS, TARGET, baseline=start),
    )
    same = TOKENS.clone()
    same[:, 2] = 0
    assert bool((integrated_gradients(model, same, TARGET)[:, 2] == 0).all())


def test_an_example_is_explained_by_itself():
    model = made()
    alone = answer_logit(-1, torch.tensor([2]))
    both = integrated_gradients(model, TOKENS, TARGET)[1:2]
    torch.testing.assert_close(both, integrated_gradients(model, TOKENS[1:2], alone))


def test_both_sides_of_an_encoder_decoder():
    whole = made(EncoderDecoder)
    for side in (TargetSide(whole, TOKENS), SourceSide(whole, TOKENS)):
        found = integrated_gradients(side, TOKENS, TARGET)
        assert completeness_gap(side, TOKENS, TARGET, found).abs().max() < 1e-3


def test_weights_that_are_lost_are_named():
    model = made()
    with torch.no_grad():
        model.unembedding.weight.fill_(torch.nan)
    with pytest.warns(UserWarning, match="do not add up"):
        integrated_gradients(model, TOKENS, TARGET, steps=2)
