"""One sequence from every side, against the same quantities computed by other ways; sizes are random."""

import numpy as np
import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, capture, intervene
from measured_transformer.analysis.ablation import ablated, heads
from measured_transformer.analysis.attribution import direct_logits
from measured_transformer.analysis.examination import examine, mean_mixtures
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.at import at
from torch.nn import functional as F


@pytest.fixture(params=[3, 8], ids=lambda seed: f"sizes {seed}")
def causal(request):
    """A decoder of a size that nothing here was written for, and one sequence."""
    model, tokens = random_model(request.param, causal=True)
    return model, tokens[0]


def test_the_lens_is_the_unembedded_stream_and_its_last_depth_the_model_itself(causal):
    model, tokens = causal
    found = examine(model, tokens, top=3)
    with capture(model, "*.residual_post", "embedding") as seen, torch.no_grad():
        chances = model(tokens[None])[0].softmax(-1)
    states = [seen["embedding"], *(v for name, v in seen.items() if name != "embedding")]
    assert len(found.lens_chances) == len(states) == model.config.n_layers + 1
    for depth, state in enumerate(states):
        with torch.no_grad():
            most = model.unembed(state)[0].softmax(-1).topk(3)
        assert np.array_equal(found.lens_tokens[depth], most.indices)
        assert np.allclose(found.lens_chances[depth], most.values)
        assert np.allclose(found.stream[depth], state[0].norm(dim=-1))
    answers = chances[:-1].gather(-1, tokens[1:, None])[:, 0]
    assert np.allclose(found.lens_target[-1, :-1], answers)
    assert np.isnan(found.lens_target[:, -1]).all(), "nothing is known to follow the last token"


@pytest.mark.parametrize("instead", ["mean", "zero"])
def test_a_head_switched_off_is_one_intervention(causal, instead):
    model, tokens = causal
    found = examine(model, tokens)
    mean = mean_mixtures(model, [tokens])
    with torch.no_grad():
        before = model(tokens[None])[0].log_softmax(-1)
    for layer, head in np.ndindex(found.size.shape[:2]):
        value = mean[layer, head] if instead == "mean" else 0.0
        change = {f"blocks.{layer}.attention.mixed": at(value, heads=head)}
        with intervene(model, change), torch.no_grad():
            after = model(tokens[None])[0].log_softmax(-1)
        gone = found.without[instead]
        loss = (before - after)[:-1].gather(-1, tokens[1:, None])[:, 0]
        assert np.allclose(gone.loss[layer, head, :-1], loss)
        assert np.isclose(gone.effect[layer, head], loss.mean())
        assert np.array_equal(gone.token[layer, head], after.argmax(-1))
        assert np.allclose(gone.chance[layer, head], after.exp().amax(-1))
        divergence = F.kl_div(after, before, log_target=True, reduction="none").sum(-1)
        assert np.allclose(gone.divergence[layer, head], divergence)


def test_zeros_are_the_ablation_that_the_chapters_use(causal):
    model, tokens = causal
    found = examine(model, tokens).without["zero"]
    for place, component in zip(np.ndindex(found.token.shape[:2]), heads(model), strict=True):
        with ablated(model, [component], "zero"), torch.no_grad():
            chances = model(tokens[None])[0].softmax(-1)
        assert np.allclose(found.chance[place], chances.amax(-1))


def test_what_heads_write_in_logits_is_the_direct_attribution(causal):
    model, tokens = causal
    found = examine(model, tokens)
    account = direct_logits(model, tokens[None])
    for layer, head in np.ndindex(found.size.shape[:2]):
        part = account.logits[account.names.index(f"blocks.{layer}.attention head {head}")][0]
        part = part - part.mean(-1, keepdim=True)
        assert np.allclose(found.direct_logits[layer, head, :, :3], part.topk(3).values)
        lowest = part.topk(3, largest=False).values
        assert np.allclose(found.direct_logits[layer, head, :, 3:], lowest)
        named = torch.tensor(found.direct_tokens[layer, head])
        assert np.allclose(part.gather(-1, named), found.direct_logits[layer, head])
        wanted = part[:-1].gather(-1, tokens[1:, None])[:, 0]
        assert np.allclose(found.direct_target[layer, head, :-1], wanted)


def test_an_encoder_without_logits_has_states_that_move():
    config = Config(vocab=9, d_model=16, n_layers=2, n_heads=2, head="none", placement="post")
    found = examine(Encoder(config).eval(), torch.tensor([1, 5, 2]))
    assert found.lens_tokens is None
    assert found.direct_tokens is None
    assert found.without["mean"].token is None
    assert np.array_equal(found.without["zero"].effect, found.without["zero"].shift.mean(-1))


def test_bert_s_head_has_a_lens_and_no_direct_attribution():
    config = Config(vocab=9, d_model=16, n_layers=2, n_heads=2, head="mlm", placement="post")
    tokens = torch.tensor([1, 5, 2, 8])
    found = examine(Encoder(config).eval(), tokens, targets=torch.tensor([-1, 5, -1, 3]))
    assert found.direct_tokens is None
    assert np.isnan(found.lens_target[-1]).tolist() == [True, False, True, False]
    gone = found.without["zero"]
    assert np.allclose(gone.effect, gone.loss[..., [1, 3]].mean(-1))


def test_the_model_is_left_as_it_was():
    model = Decoder(Config(vocab=9, d_model=16, n_layers=1, n_heads=2, dropout=0.5)).train()
    tokens = torch.tensor([1, 5, 2])
    one, two = (examine(model, tokens).lens_chances for _ in range(2))
    assert np.array_equal(one, two), "nothing is dropped while one looks"
    assert model.training


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"targets": torch.tensor([1, 2])}, "a target below 9"),
        ({"targets": torch.tensor([1, 2, 9])}, "a target below 9"),
        ({"top": 0}, "top from 1 to the 9"),
    ],
)
def test_what_does_not_fit_is_said(given, message):
    model = Decoder(Config(vocab=9, d_model=16, n_layers=1, n_heads=2))
    with pytest.raises(ValueError, match=message):
        examine(model, torch.tensor([1, 5, 2]), **given)
