"""A rule for the depth scales branches and rates as it says, and is nothing at the base depth."""

import copy

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.training.loop import make_model
from measured_transformer.variants.depth import COMPLETE, ROOT, ScaledByDepth

BASE = 2


def fresh(depth, **changes):
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=depth, norm="rms", **changes)
    return make_model(config, causal=True, seed=0).double()


def tokens():
    return torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("exponent", [ROOT, COMPLETE])
def test_at_the_base_depth_nothing_is_changed(exponent):
    model, scaled = fresh(BASE), fresh(BASE)
    ScaledByDepth(exponent, BASE)(scaled)
    assert torch.equal(model(tokens()), scaled(tokens()))
    assert list(model.state_dict()) == list(scaled.state_dict())


@pytest.mark.parametrize("exponent", [ROOT, COMPLETE])
def test_fresh_models_add_what_their_parts_write_times_the_factor(exponent):
    model, scaled = fresh(8), fresh(8)
    ScaledByDepth(exponent, BASE)(scaled)
    x = torch.randn(1, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for plain, block in zip(model.blocks, scaled.blocks, strict=True):
        factor = 4.0**-exponent
        mid = x + factor * plain.attention(plain.attention_norm(x), causal=True)
        wanted = mid + factor * plain.feedforward(plain.feedforward_norm(mid))
        torch.testing.assert_close(block(x, causal=True), wanted)


@pytest.mark.parametrize("exponent", [ROOT, COMPLETE])
def test_one_optimiser_moves_each_weight_at_its_own_rate(exponent):
    """Against Adam with a group for the blocks, whose rate and epsilon are those of the rule."""
    rule, rate, eps = ScaledByDepth(exponent, BASE), 0.01, 1e-3
    wanted, scaled = fresh(8), fresh(8)
    rule(scaled)
    for block in wanted.blocks:
        block.residual_scale = rule.branch(8)
    inside = list(wanted.blocks.parameters())
    outside = [w for w in wanted.parameters() if all(w is not one for one in inside)]
    own = {"lr": rate * rule.rate(8), "eps": eps * rule.branch(8)}
    other = {"lr": rate, "eps": rule.epsilon(8, eps)}
    groups = [{"params": inside, **own}, {"params": outside, **other}]
    each = torch.optim.Adam(groups), torch.optim.Adam(scaled.parameters(), **other)
    for model, updates in zip((wanted, scaled), each, strict=True):
        for _ in range(5):
            updates.zero_grad()
            model(tokens()).square().mean().backward()
            updates.step()
    with torch.no_grad():
        torch.testing.assert_close(scaled(tokens()), wanted(tokens()))


def test_both_rules_in_numbers():
    root, complete = ScaledByDepth(ROOT, BASE), ScaledByDepth(COMPLETE, BASE)
    assert (root.branch(8), root.rate(8)) == (0.5, 0.5)
    assert (complete.branch(8), complete.rate(8)) == (0.25, 1.0)
    for rule in (root, complete):  # one step of all branches in one direction moves the sum alike
        assert 8 * rule.branch(8) * rule.rate(8) == pytest.approx(BASE)


def test_a_copy_of_a_scaled_model_says_the_same():
    model = fresh(4)
    ScaledByDepth(ROOT, BASE)(model)
    assert torch.equal(copy.deepcopy(model)(tokens()), model(tokens()))


def test_what_cannot_be_scaled_is_refused():
    for given, words in (((1.5, 2), "exponent"), ((0.5, 0), "base")):
        with pytest.raises(ValueError, match=words):
            ScaledByDepth(*given)
    with pytest.raises(ValueError, match=r"residual_scale=0\.5"):
        ScaledByDepth(COMPLETE, BASE)(fresh(4, residual_scale=0.5))
    with pytest.raises(ValueError, match="one stack"):
        ScaledByDepth(COMPLETE, BASE)(EncoderDecoder(Config(vocab=7, d_model=8, n_heads=2)))
