"""First-order estimates equal true patching in linear models, and Captum's integrals along a path."""

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from measured_transformer.analysis.ablation import Component, feedforwards, heads
from measured_transformer.analysis.attribution import (
    answer_logit,
    embedded,
    explained,
    gradients,
    integrated_gradients,
)
from measured_transformer.analysis.attribution_patching import (
    PatchingComparison,
    attribution_patched,
    compare_patching,
)
from measured_transformer.analysis.handmade import composed_model, heads_model
from measured_transformer.analysis.patching import patched
from measured_transformer.analysis.residual import random_model
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model

EMBEDDING = Component("embedding")


def drawn(seed=3, **changes):
    settings = {"causal": True, "n_layers": 3, "n_heads": 2, "d_model": 16, **changes}
    model, _ = random_model(seed, **settings)
    draws = torch.Generator().manual_seed(seed)
    into, source = (torch.randint(11, (2, 5), generator=draws) for _ in range(2))
    return model, into, source, answer_logit(-1, into[:, 0])


def test_in_a_linear_model_the_estimate_is_the_effect_of_every_part_and_place():
    # Heads that go by place alone, no norm, no network: every logit is a linear function of every value.
    model = heads_model(["previous", "uniform", "first"], vocab=6, length=5, causal=True, read=1)
    draws = torch.Generator().manual_seed(0)
    into, source = torch.randint(6, (2, 4, 5), generator=draws)
    target = answer_logit(-1, source[:, 2])
    parts = [*heads(model), EMBEDDING, Component("blocks.0.attention.values", 1)]
    found = compare_patching(model, into, source, parts, target)
    assert found.patched[1].abs().max() > 0.1
    torch.testing.assert_close(found.estimated, found.patched, rtol=0, atol=1e-12)
    assert found.correlation == pytest.approx(1)
    assert found.rank_correlation == pytest.approx(1)
    by_place = attribution_patched(model, into, source, parts, target)
    before = target(model(into)).detach()
    for place in range(5):
        for part in parts:
            one = patched(model, into, source, [part], target, positions=place)
            estimate = by_place[part][:, place]
            torch.testing.assert_close(estimate, one - before, rtol=0, atol=1e-12)


def test_the_last_write_has_an_exact_estimate_without_a_norm_and_positions_add_up():
    model, into, source, target = drawn(norm="none", d_ff=1)
    parts = [*heads(model)[-2:], *feedforwards(model)[-1:], Component("blocks.2.residual_post")]
    found = compare_patching(model, into, source, parts[2:], target)
    torch.testing.assert_close(found.estimated, found.patched, rtol=1e-9, atol=1e-12)
    found = attribution_patched(model, into, source, parts, target)
    by_place = torch.stack(list(found.values()))
    for positions, columns in ((None, [0, 1, 2, 3, 4]), (-1, [4]), ([0, -2], [0, 3])):
        some = compare_patching(model, into, source, parts, target, positions=positions)
        torch.testing.assert_close(some.estimated, by_place[..., columns].sum(-1))
        one = patched(model, into, source, parts[:1], target, positions=positions)
        assert torch.equal(some.patched[0], one - target(model(into)).detach())


def test_itself_patched_is_nothing_and_small_changes_are_met_to_second_order():
    model, into, source, target = drawn()
    parts = [*heads(model), *feedforwards(model), EMBEDDING]
    same = compare_patching(model, into, into, parts, target)
    assert not same.estimated.any()
    assert same.patched.abs().max() < 1e-12
    errors = []
    with (
        torch.no_grad()
    ):  # the two inputs come nearer: a table in which their tokens lie side by side
        table = model.token_embedding.weight.clone()
    for share in (1e-2, 1e-3):
        with torch.no_grad():
            model.token_embedding.weight.copy_(table[:1] + share * (table - table[:1]))
        found = compare_patching(model, into, source, parts, target)
        errors.append(found.largest_error / float(found.patched.abs().max()))
    assert errors[0] < 0.1
    assert (
        errors[1] < errors[0] / 5
    )  # the error falls with the square, so as a share with the distance


def test_estimates_for_the_embedding_are_gradients_and_captums_integrals():
    model, into, source, target = drawn()
    own, other = embedded(model, into), embedded(model, source)
    first = attribution_patched(model, into, source, [EMBEDDING], target)[EMBEDDING]
    torch.testing.assert_close(first, (gradients(model, into, target) * (other - own)).sum(-1))
    # Integrated gradients go from a baseline to the input: from the source's embedding to the own one.
    along = attribution_patched(model, into, source, [EMBEDDING], target, steps=50)[EMBEDDING]
    ours = integrated_gradients(model, into, target, baseline=other, steps=50)
    torch.testing.assert_close(along, -ours)
    answers = into[:, 0]

    def of_vectors(entered):
        copies = len(entered) // len(into)
        again = answer_logit(-1, answers.repeat(copies))
        return explained(model, into.repeat(copies, 1), entered, again)

    theirs = IntegratedGradients(of_vectors).attribute(own, baselines=other, n_steps=50)
    torch.testing.assert_close(along, -theirs.sum(-1).to(along.dtype), rtol=1e-6, atol=1e-6)
    whole = patched(model, into, source, [EMBEDDING], target) - target(model(into)).detach()
    torch.testing.assert_close(along.sum(-1), whole, rtol=1e-4, atol=1e-5)
    assert (first.sum(-1) - whole).abs().max() > 1e-2  # one point is not enough here


def test_a_saturated_softmax_hides_from_the_slope_what_patching_finds():
    # Induction by keys: the head looks at one place with weight one, so that its keys have no slope there.
    model = composed_model("k", vocab=6, length=8)
    clean, other = torch.tensor([[0, 5, 3, 1, 5]]), torch.tensor([[0, 4, 3, 1, 5]])
    keys, target = Component("blocks.1.attention.keys", 0), answer_logit(-1, torch.tensor([3]))
    found = compare_patching(model, clean, other, [keys], target)
    assert found.patched.item() < -0.5
    assert abs(found.estimated.item()) < 1e-9


def test_both_sides_of_an_encoder_decoder_and_an_encoder():
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=2)
    whole = make_model(config, causal=True, source=True, seed=0).double().eval()
    read, written = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    encoder = make_model(config, causal=False, seed=1).double().eval()
    cases = (
        (TargetSide(whole, read), written, torch.tensor([[6, 0]])),
        (SourceSide(whole, written), read, torch.tensor([[1, 5, 3]])),
        (encoder, read, torch.tensor([[1, 5, 3]])),
    )
    target = answer_logit(-1, torch.tensor([2]))
    for model, into, source in cases:
        along = attribution_patched(model, into, source, [EMBEDDING], target, steps=100)
        whole_effect = target(model(source)) - target(model(into))
        assert along[EMBEDDING].sum().item() == pytest.approx(whole_effect.item(), abs=1e-4)
        found = compare_patching(model, into, source, heads(model), target)
        assert found.correlation > 0.5
        assert all(parameter.grad is None for parameter in model.parameters())


def test_correlations_are_numpys():
    draws = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, 6, 3, generator=draws)
    found = PatchingComparison((EMBEDDING,) * 6, a, b)
    assert found.correlation == pytest.approx(np.corrcoef(a.flatten(), b.flatten())[0, 1])
    swapped = PatchingComparison((EMBEDDING,) * 6, a, a.exp().mean(1, keepdim=True).expand(-1, 3))
    assert -1 <= swapped.rank_correlation <= 1
    cubes = a.mean(1, keepdim=True)
    same = PatchingComparison((EMBEDDING,) * 6, cubes, cubes**3)
    assert same.rank_correlation == pytest.approx(1)
    assert np.isnan(PatchingComparison((EMBEDDING,) * 6, a, torch.zeros_like(a)).correlation)


def test_errors_say_what_does_not_fit(unhooked):
    model, into, source, target = drawn()
    with pytest.raises(ValueError, match="tokens of one shape"):
        attribution_patched(model, into, source[:, :4], [EMBEDDING], target)
    with pytest.raises(ValueError, match="steps=0"):
        attribution_patched(model, into, source, [EMBEDDING], target, steps=0)
    with pytest.raises(ValueError, match="positions must lie"):
        compare_patching(model, into, source, [EMBEDDING], target, positions=5)
