"""Methods of attribution keep their exact properties, and find what is known to matter in hand-made models."""

import itertools

import numpy as np
import pytest
import torch
from measured_transformer.analysis.attribution import (
    answer_logit,
    attention_times_gradient,
    attention_weights,
    completeness_gap,
    direct_logits,
    embedded,
    explained,
    flow,
    found_area,
    found_first,
    gradient_times_input,
    gradients,
    integrated_gradients,
    occlusion,
    ranks_agree,
    relevance_rollout,
    rollout,
    weighted_norms,
)
from measured_transformer.analysis.handmade import induction_model, previous_token_model
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.loop import make_model
from scipy.stats import spearmanr


def drawn(seed=3, n=5, **changes):
    model, _ = random_model(seed, causal=True, **changes)
    tokens = torch.randint(11, (3, n), generator=torch.Generator().manual_seed(seed))
    return model, tokens, answer_logit(-1, tokens[:, 0])


def patterns(layers, n, seed=0):
    scores = torch.randn(layers, 2, n, n, generator=torch.Generator().manual_seed(seed)).double()
    return scores.softmax(-1)


def test_weights_and_weighted_values_add_up_to_what_attention_writes():
    model, tokens, _ = drawn(bias=False)
    norms = weighted_norms(model, tokens)
    with capture(model, "blocks.*.attention.out", "blocks.*.attention.head_outputs") as seen:
        model(tokens)
    assert attention_weights(model, tokens).sum(-1).allclose(torch.ones(()).double())
    # The first position sees only itself, so what it fetches is all that is written there.
    written = torch.stack([seen[f"blocks.{i}.attention.out"] for i in range(len(model.blocks))])
    assert norms[:, :, 0, 0].allclose(written[:, :, 0].norm(dim=-1))
    assert (norms.sum(-1) >= written.norm(dim=-1) - 1e-9).all()


def test_heads_that_share_values_fetch_what_they_would_with_copies_of_their_own():
    shared, tokens, _ = drawn(n_heads=4, n_kv_heads=2, d_model=16, n_layers=2)
    own = make_model(shared.config.replace(n_kv_heads=None), causal=True, seed=0).double()
    weights = shared.state_dict()
    for name, weight in weights.items():
        if ".key." in name or ".value." in name:
            weights[name] = weight.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
    own.load_state_dict(weights)
    assert weighted_norms(shared, tokens).allclose(weighted_norms(own, tokens))


def test_rollout_is_the_product_with_the_last_layer_on_the_left():
    a = patterns(3, 4)
    eye = torch.eye(4).double()
    expected = (0.7 * eye + 0.3 * a[2]) @ (0.7 * eye + 0.3 * a[1]) @ (0.7 * eye + 0.3 * a[0])
    assert rollout(a, kept=0.7).allclose(expected)
    assert rollout(a).sum(-1).allclose(torch.ones(()).double())
    assert rollout(a, kept=1.0).allclose(eye)


def test_flow_is_the_smallest_cut():
    a = patterns(2, 4)
    mixed = (torch.eye(4).double() + a) / 2
    found = flow(a, -1)
    for example, key in itertools.product(range(2), range(4)):
        top, low = mixed[1, example, -1], mixed[0, example, :, key]
        cuts = [
            sum(float(low[m] if m in kept else top[m]) for m in range(4))
            for size in range(5)
            for kept in itertools.combinations(range(4), size)
        ]
        assert float(found[example, key]) == pytest.approx(min(cuts), abs=1e-5)
    assert flow(a[:1], 2).allclose(mixed[0, :, 2], atol=1e-5)


@pytest.mark.parametrize("method", [rollout, lambda weights, kept: flow(weights, -1, kept=kept)])
def test_what_is_kept_is_a_share(method):
    with pytest.raises(ValueError, match=r"kept must lie between 0 and 1, got 1\.5"):
        method(patterns(1, 3), kept=1.5)


def test_gradients_are_those_of_finite_differences_and_leave_the_model_alone():
    model, tokens, target = drawn()
    slopes = gradients(model, tokens, target)
    start = embedded(model, tokens)
    step = torch.randn(start.shape, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        up, down = (explained(model, tokens, start + e * step, target) for e in (1e-5, -1e-5))
    assert (slopes * step).sum((1, 2)).allclose((up - down) / 2e-5, rtol=1e-5, atol=1e-7)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert gradient_times_input(model, tokens, target).allclose((slopes * start).sum(-1))


def test_integrated_gradients_are_the_integral_and_add_up():
    model, tokens, target = drawn()
    start = embedded(model, tokens.flip(0)).mean((0, 1))
    found = integrated_gradients(model, tokens, target, baseline=start, steps=200)
    end, count = embedded(model, tokens), 2000
    total = sum(
        gradients(model, tokens, target, entered=start + (k + 0.5) / count * (end - start))
        for k in range(count)
    )
    assert found.allclose(((end - start) * total).sum(-1) / count, atol=1e-4)
    assert completeness_gap(model, tokens, target, found, baseline=start).abs().max() < 1e-9
    product = gradient_times_input(model, tokens, target)
    assert completeness_gap(model, tokens, target, product).abs().min() > 1e-3
    with pytest.raises(ValueError, match="steps=0"):
        integrated_gradients(model, tokens, target, steps=0)


def test_integrated_gradients_of_something_linear_are_gradient_times_input():
    model = induction_model(vocab=6, length=8)

    def linear(logits):
        return logits[:, 0].sum(-1)  # the first position sees itself alone: no softmax to bend

    tokens = torch.tensor([[0, 5, 3]])
    one = integrated_gradients(model, tokens, linear, baseline=0.0, steps=3)
    assert one.allclose(gradient_times_input(model, tokens, linear))


def test_attention_times_gradient_is_what_a_little_less_of_one_weight_costs():
    model, tokens, target = drawn()
    found = attention_times_gradient(model, tokens, target)
    head, query, key = 0, 4, 2

    def less(pattern):
        pattern[:, head, query, key] *= 1 - 1e-6
        return pattern

    with torch.no_grad():
        whole = target(model(tokens))
        with intervene(model, {"blocks.0.attention.pattern": less}):
            fall = (whole - target(model(tokens))) / 1e-6
    assert found[0, :, head, query, key].allclose(fall, rtol=1e-4, atol=1e-8)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_relevance_of_one_layer_is_the_mean_of_its_positive_products():
    products = torch.randn(1, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.eye(4) + products[0].clamp_min(0).mean(1)
    assert relevance_rollout(products).allclose(expected)
    twice = relevance_rollout(torch.cat([products, products]))
    assert twice.allclose(expected @ expected)


@pytest.mark.parametrize("how", ["zero", "mean", "resample", "delete"])
def test_only_the_token_that_is_read_matters(how):
    model = previous_token_model(vocab=5, length=6)
    tokens = torch.tensor([[3, 1, 4, 2, 0]])
    reference = torch.tensor([[0, 3, 2, 4, 1], [1, 0, 3, 1, 2], [4, 2, 0, 3, 3], [2, 4, 1, 0, 4]])
    target = answer_logit(-1, tokens[:, -2])
    found = occlusion(model, tokens, target, how=how, reference=reference)[0]
    assert found[3] > 0.7
    assert found[[0, 1, 2]].abs().max() < (1e-9 if how != "delete" else 1.1)
    if how == "resample":
        assert found[4].abs() < 1e-9


def test_occlusion_says_what_it_needs():
    model, tokens, target = drawn()
    with pytest.raises(ValueError, match="give a reference"):
        occlusion(model, tokens, target, how="mean")
    with pytest.raises(ValueError, match="3, got 1"):
        occlusion(model, tokens, target, how="resample", reference=tokens[:1])


@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
@pytest.mark.parametrize("bias", [True, False])
def test_direct_logits_add_up_and_name_every_part(norm, bias):
    model, tokens, _ = drawn(norm=norm, bias=bias, head_bias=bias, logit_scale=0.5)
    parts = direct_logits(model, tokens)
    with torch.no_grad():
        assert (parts.logits.sum(0) - model(tokens)).abs().max() < 1e-9
    config = model.config
    assert len(parts.names) == 2 + config.n_layers * (config.n_heads + 1 + bias)
    assert len(set(parts.names)) == len(parts.names) == len(parts.logits)


@pytest.mark.parametrize("changes", [{"placement": "post"}, {"residual": False}, {"head": "mlm"}])
def test_direct_logits_need_a_sum(changes):
    model, tokens, _ = drawn(**changes)
    with pytest.raises(ValueError, match="pre-norm models"):
        direct_logits(model, tokens)


def test_areas_are_those_of_all_pairs():
    scores = torch.tensor([[0.9, 0.5, 0.3, 0.1], [1.0, 1.0, 0.0, 0.0]])
    relevant = torch.tensor([[True, False, True, False], [True, False, True, False]])
    every = torch.ones_like(relevant)
    assert found_area(scores, relevant, every).tolist() == [0.75, 0.5]
    assert found_first(scores, relevant, every).tolist() == [True, True]
    some = torch.tensor([[False, True, True, True], [True, True, True, True]])
    assert found_area(scores, relevant, some)[0] == 0.5
    assert found_first(scores, relevant, some).tolist() == [False, True]
    with pytest.raises(ValueError, match="one that is not"):
        found_area(scores, every, every)


def test_ranks_agree_as_scipy_has_it():
    draws = torch.Generator().manual_seed(0)
    a, b = (torch.randint(4, (3, 7), generator=draws).float() for _ in range(2))
    every = torch.ones(3, 7, dtype=torch.bool)
    expected = [spearmanr(x, y).statistic for x, y in zip(a.numpy(), b.numpy(), strict=True)]
    assert np.allclose(ranks_agree(a, b, every), expected)
    assert ranks_agree(torch.zeros(1, 7), b[:1], every[:1])[0] == 0
