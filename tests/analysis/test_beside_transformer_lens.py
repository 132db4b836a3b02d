"""Steering, patching to first order, edges and ablation equal what TransformerLens computes with hooks.

TransformerLens belongs to the extra `benchmark`; without it these tests are skipped.
"""

from __future__ import annotations

import pytest
import torch
from measured_transformer.analysis.ablation import Component, feedforwards, heads
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.attribution_patching import attribution_patched, compare_patching
from measured_transformer.analysis.edges import Edge
from measured_transformer.analysis.faithfulness import ablations
from measured_transformer.analysis.path_patching import edge_patched
from measured_transformer.analysis.residual import random_model
from measured_transformer.analysis.steering import mean_difference, steer

REASON = "TransformerLens is not installed: pip install 'measured-transformer[benchmark]'"
INTO, SOURCE = torch.randint(11, (2, 3, 5), generator=torch.Generator().manual_seed(0))
TARGET = answer_logit(-1, INTO[:, 0])


@pytest.fixture(scope="module")
def pair():
    """The same weights in both libraries, in the form of GPT-2 with every weight drawn."""
    pytest.importorskip("transformer_lens", reason=REASON)
    hooked = pytest.importorskip("comparisons.hooked").hooked
    model, _ = random_model(
        3,
        causal=True,
        n_layers=2,
        n_heads=2,
        d_model=16,
        positions="learned",
        max_length=5,
        activation="gelu_tanh",
    )
    theirs = hooked(model, length=5)
    theirs.set_use_split_qkv_input(True)
    theirs.set_use_hook_mlp_in(True)
    torch.testing.assert_close(theirs(INTO), model(INTO))
    return model, theirs


def equal(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_a_steering_vector_is_a_hook_that_adds_a_difference_of_means(pair):
    model, theirs = pair
    vector = mean_difference(model, SOURCE, INTO, Component("blocks.0.residual_post"))
    name = "blocks.0.hook_resid_post"
    caches = [theirs.run_with_cache(tokens)[1][name][:, -1] for tokens in (SOURCE, INTO)]
    added = caches[0].mean(0) - caches[1].mean(0)
    equal(vector.vector, added)
    expected = theirs.run_with_hooks(
        INTO, fwd_hooks=[(name, lambda value, hook: value + 3 * added)]
    )
    with steer(model, vector, 3.0):
        equal(model(INTO), expected)


def test_estimates_are_differences_times_cached_gradients_and_effects_are_patches(pair):
    model, theirs = pair
    patching = pytest.importorskip("transformer_lens.patching", reason=REASON)

    slopes, values = {}, {}

    def keep_slope(slope, hook):
        slopes[hook.name] = slope.detach()

    def keep_value(value, hook):
        values[hook.name] = value.detach()

    names = [f"blocks.{i}.attn.hook_z" for i in range(2)] + [
        f"blocks.{i}.hook_mlp_out" for i in range(2)
    ]
    hooks = {"fwd_hooks": [(name, keep_value) for name in names]}
    with theirs.hooks(**hooks, bwd_hooks=[(name, keep_slope) for name in names]):
        TARGET(theirs(INTO)).sum().backward()
    own, _ = dict(values), theirs.zero_grad()
    with theirs.hooks(**hooks), torch.no_grad():
        theirs(SOURCE)
    estimates = {name: (values[name] - own[name]) * slopes[name] for name in names}
    parts = [*heads(model), *feedforwards(model)]
    found = attribution_patched(model, INTO, SOURCE, parts, TARGET)
    for part in parts:
        layer = part.tap.split(".")[1]
        if part.head is None:
            equal(found[part], estimates[f"blocks.{layer}.hook_mlp_out"].sum(-1))
        else:
            equal(found[part], estimates[f"blocks.{layer}.attn.hook_z"][:, :, part.head].sum(-1))
    compared = compare_patching(model, INTO, SOURCE, heads(model), TARGET)
    _, cache = theirs.run_with_cache(SOURCE)
    torch.set_default_dtype(torch.float64)  # of the table that they fill
    try:
        with torch.no_grad():
            table = patching.get_act_patch_attn_head_out_all_pos(
                theirs, INTO, cache, lambda logits: TARGET(logits).mean()
            )
    finally:
        torch.set_default_dtype(torch.float32)
    before = TARGET(model(INTO)).detach().mean()
    equal(compared.patched.mean(1), table.flatten() - before)


@torch.no_grad()
def test_an_edge_is_a_change_of_one_input_of_one_head(pair):
    model, theirs = pair
    _, own = theirs.run_with_cache(INTO)
    _, other = theirs.run_with_cache(SOURCE)
    starts = [cache["hook_embed"] + cache["hook_pos_embed"] for cache in (own, other)]
    results = [cache["blocks.0.attn.hook_result"][:, :, 1] for cache in (own, other)]
    senders = {
        Component("embedding"): starts[1] - starts[0],
        Component("blocks.0.attention.mixed", 1): results[1] - results[0],
        Component("blocks.0.feedforward.out"): other["blocks.0.hook_mlp_out"]
        - own["blocks.0.hook_mlp_out"],
    }
    receivers = {
        Component("blocks.1.attention.queries", 0): ("blocks.1.hook_q_input", 0),
        Component("blocks.1.attention.keys", 1): ("blocks.1.hook_k_input", 1),
        Component("blocks.1.attention.values", 0): ("blocks.1.hook_v_input", 0),
        Component("blocks.1.feedforward.out"): ("blocks.1.hook_mlp_in", None),
        Component("final_state"): ("blocks.1.hook_resid_post", None),
    }
    for sender, change in senders.items():
        for receiver, (name, head) in receivers.items():

            def add(value, hook, change=change, head=head):
                if head is None:
                    return value + change
                value = value.clone()
                value[:, :, head] += change
                return value

            expected = TARGET(theirs.run_with_hooks(INTO, fwd_hooks=[(name, add)]))
            found = edge_patched(model, INTO, SOURCE, [Edge(sender, receiver)], TARGET)
            equal(found, expected)
            assert not found.allclose(TARGET(model(INTO)))


@torch.no_grad()
@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_a_circuit_is_the_model_with_hooks_on_all_else(pair, how):
    model, theirs = pair
    given = ablations(
        model,
        INTO,
        TARGET,
        how,
        reference=SOURCE,
        generator=torch.Generator().manual_seed(1),
    )
    rows = torch.randint(3, (3,), generator=torch.Generator().manual_seed(1))
    _, cache = theirs.run_with_cache(SOURCE)
    instead = {
        "zero": lambda value: torch.zeros_like(value),
        "mean": lambda value: value.mean(0, keepdim=True).expand_as(value),
        "resample": lambda value: value[rows],
    }[how]
    circuit = [heads(model)[0], heads(model)[3], feedforwards(model)[1]]

    def ablate(value, hook):
        new = instead(cache[hook.name])
        if hook.name.endswith("hook_mlp_out"):
            return new
        kept = 0 if hook.name.startswith("blocks.0") else 1
        new = new.clone()
        new[:, :, kept] = value[:, :, kept]
        return new

    names = ["blocks.0.attn.hook_z", "blocks.0.hook_mlp_out", "blocks.1.attn.hook_z"]
    expected = TARGET(theirs.run_with_hooks(INTO, fwd_hooks=[(name, ablate) for name in names]))
    equal(given.only(circuit), expected)
