"""Steering adds what it says, in proportion to the dose; its controls are as long and measured alike."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.handmade import previous_token_model
from measured_transformer.analysis.patching import patched
from measured_transformer.analysis.residual import random_model
from measured_transformer.analysis.steering import (
    SteeringVector,
    dose_response,
    mean_difference,
    random_controls,
    shuffled_controls,
    steer,
)
from measured_transformer.inference.generate import generate
from measured_transformer.internals.capture import capture
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import make_model

STREAM, HEAD = Component("blocks.0.residual_post"), Component("blocks.1.attention.mixed", 1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(seed=3, **changes):
    settings = {"n_layers": 2, "n_heads": 2, "d_model": 16, **changes}
    model, _ = random_model(seed, causal=True, **settings)
    towards, away = (torch.randint(11, (4, 5), generator=generator(i)) for i in (1, 2))
    return model, towards, away


def as_batch(tokens):
    scored = torch.ones_like(tokens, dtype=torch.bool)
    scored[:, 0] = False
    return Batch(tokens, tokens.roll(-1, 1), scored)


@torch.no_grad()
@pytest.mark.parametrize("component", [STREAM, HEAD])
def test_the_vector_is_the_difference_of_means_and_what_is_added(component):
    model, towards, away = drawn()
    vector = mean_difference(model, towards, away, component, positions=[-1, 1])
    seen = []
    for tokens in (towards, away):
        with capture(model, component.tap) as found:
            model(tokens)
        value = found[component.tap]
        seen.append(value if component.head is None else value[:, component.head])
    expected = seen[0][:, [1, 4]].mean((0, 1)) - seen[1][:, [1, 4]].mean((0, 1))
    torch.testing.assert_close(vector.vector, expected)
    back = mean_difference(model, away, towards, component, positions=[-1, 1])
    torch.testing.assert_close(back.vector, -vector.vector)
    with steer(model, vector, 2.5, positions=-1), capture(model, component.tap) as found:
        model(away)
    value = found[component.tap]
    value = value if component.head is None else value[:, component.head]
    torch.testing.assert_close(value[:, -1], seen[1][:, -1] + 2.5 * expected)
    assert torch.equal(value[:, :-1], seen[1][:, :-1])


@torch.no_grad()
def test_one_pair_of_prompts_at_dose_one_is_patching():
    model, towards, away = drawn()
    one, other = towards[:1], away[:1]
    target = answer_logit(-1, one[:, 0])
    vector = mean_difference(model, one, other, STREAM)
    with steer(model, vector, 1.0, positions=-1):
        found = target(model(other))
    torch.testing.assert_close(found, patched(model, other, one, [STREAM], target, positions=-1))
    with steer(model, vector, -1.0, positions=-1):
        found = target(model(one))
    torch.testing.assert_close(found, patched(model, one, other, [STREAM], target, positions=-1))


@torch.no_grad()
def test_without_a_norm_logits_move_in_proportion_to_the_dose_and_doses_add_up():
    model, towards, away = drawn(norm="none")
    vector = mean_difference(model, towards, away, Component("blocks.1.residual_post"))
    before, moved = model(away), vector.vector @ model.unembedding.weight.T
    for dose in (0.0, 0.5, -3.0):
        with steer(model, vector, dose):
            torch.testing.assert_close(model(away), before + dose * moved)
    with steer(model, vector, 0.5), steer(model, vector, 1.0):
        torch.testing.assert_close(model(away), before + 1.5 * moved)
    assert torch.equal(model(away), before)


def test_prompts_of_several_lengths_are_read_at_their_ends():
    model, towards, away = drawn()
    mixed = [towards[0], towards[1, :3], towards[2, :4]]
    vector = mean_difference(model, mixed, away, STREAM)
    parts = [mean_difference(model, each[None], away, STREAM).vector for each in mixed]
    torch.testing.assert_close(vector.vector, torch.stack(parts).mean(0))


@torch.no_grad()
def test_generation_is_steered_as_whole_passes_are():
    model, towards, away = drawn()
    vector = mean_difference(model, towards, away, STREAM)
    plain = generate(model, list(away), max_new_tokens=4).tokens
    with steer(model, vector, 8.0):
        steered = generate(model, list(away), max_new_tokens=4).tokens
        expected = away
        for _ in range(4):
            expected = torch.cat((expected, model(expected)[:, -1:].argmax(-1)), 1)
    assert torch.equal(torch.stack(steered), expected[:, 5:])
    assert not torch.equal(torch.stack(steered), torch.stack(plain))


def test_controls_are_as_long_can_be_repeated_and_point_elsewhere():
    model, towards, away = drawn()
    vector = mean_difference(model, towards, away, STREAM)
    kinds = {
        "random": lambda seed: random_controls(vector, 20, generator(seed)),
        "shuffled": lambda seed: shuffled_controls(
            model, towards, away, vector, 20, generator(seed)
        ),
    }
    for make in kinds.values():
        first, again, other = make(0), make(0), make(1)
        assert [each.norm for each in first] == pytest.approx([vector.norm] * 20)
        assert all(torch.equal(a.vector, b.vector) for a, b in zip(first, again, strict=True))
        assert not torch.equal(first[0].vector, other[0].vector)
        assert {each.component for each in first} == {STREAM}
    # A random direction has mean cosine 0; the division by chance that gives both sets back has cosine 1.
    cosines = [float(each.vector @ vector.vector) / vector.norm**2 for each in kinds["random"](2)]
    assert abs(np.mean(cosines)) < 3 / np.sqrt(20 * 16)
    alone = shuffled_controls(model, towards[:1], away[:1], vector, 20, generator())
    pair = mean_difference(model, towards[:1], away[:1], STREAM)
    signs = {
        round(float(each.vector @ pair.vector) / (vector.norm * pair.norm), 6) for each in alone
    }
    assert signs == {1.0, -1.0}


@torch.no_grad()
def test_the_wanted_effect_the_side_effects_and_the_controls():
    # What stood one place back is said next: towards 3 and away from 1, where 1 stood.
    model = previous_token_model(vocab=4, length=5)
    start = Component("embedding")
    vector = mean_difference(model, torch.tensor([[0, 3]]), torch.tensor([[0, 1]]), start)
    prompts = torch.tensor([[1, 1, 1], [2, 1, 0]])
    reference = as_batch(torch.randint(4, (6, 5), generator=generator()))
    controls = random_controls(vector, 3, generator())
    doses = [0.0, 1.0, 2.0]
    found = dose_response(
        model,
        vector,
        doses,
        prompts,
        answer_logit(-1, torch.tensor([3, 3])),
        reference,
        controls=controls,
    )
    assert found.target.shape == found.loss.shape == found.divergence.shape == (4, 3)
    assert found.target[0].tolist() == pytest.approx(doses)
    assert found.divergence[:, 0] == pytest.approx(0, abs=1e-12)
    assert found.loss[:, 0] == pytest.approx(found.unsteered[1])
    assert (found.divergence[:, 1:] > 0).all()
    own = model(reference.inputs)[reference.scored].softmax(-1)
    for i, each in enumerate((vector, *controls)):
        with steer(model, each, 2.0):
            logits = model(reference.inputs)[reference.scored]
        loss = torch.nn.functional.cross_entropy(logits, reference.targets[reference.scored])
        assert found.loss[i, 2] == pytest.approx(loss.item())
        gap = torch.nn.functional.kl_div(logits.log_softmax(-1), own, reduction="batchmean")
        assert found.divergence[i, 2] == pytest.approx(gap.item())
    last = found.rows()[2]
    assert (last["dose"], last["target"]) == (2.0, pytest.approx(2.0))
    assert last["loss"] == pytest.approx(found.loss[0, 2] - found.unsteered[1])
    expected = np.abs(found.target[1:, 2] - found.unsteered[0]).max()
    assert last["target, controls"] == pytest.approx(expected)
    assert last["target"] > last["target, controls"]
    assert last["divergence, controls"] == pytest.approx(found.divergence[1:, 2].max())


@torch.no_grad()
def test_both_sides_of_an_encoder_decoder_and_an_encoder():
    config = Config(vocab=7, d_model=8, n_heads=2, n_layers=1)
    whole = make_model(config, causal=True, source=True, seed=0).double().eval()
    read, written = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    encoder = make_model(config, causal=False, seed=1).double().eval()
    for model, tokens, other in (
        (TargetSide(whole, read), written, torch.tensor([[6, 0]])),
        (SourceSide(whole, written), read, torch.tensor([[3, 5, 1]])),
        (encoder, read, torch.tensor([[3, 5, 1]])),
    ):
        target, start = answer_logit(-1, torch.tensor([2])), Component("embedding")
        vector = mean_difference(model, other, tokens, start)
        with steer(model, vector, 1.0, positions=-1):
            found = target(model(tokens))
        expected = patched(model, tokens, other, [start], target, positions=-1)
        torch.testing.assert_close(found, expected)


def test_errors_say_what_is_missing(unhooked):
    model, towards, away = drawn()
    with pytest.raises(ValueError, match="at least one prompt"):
        mean_difference(model, towards[:0], away, STREAM)
    with pytest.raises(ValueError, match="say which one"):
        mean_difference(model, towards, away, Component(HEAD.tap))
    with pytest.raises(ValueError, match="positions must lie"):
        mean_difference(model, towards, away, STREAM, positions=5)
    vector = mean_difference(model, towards, away, STREAM)
    with pytest.raises(ValueError, match="no direction"):
        shuffled_controls(model, towards[:1], towards[:1], vector, 1, generator())
    with pytest.raises(ValueError, match="at least one dose"):
        dose_response(model, vector, [], away, answer_logit(-1, away[:, 0]), as_batch(away))
    unknown = SteeringVector(Component("blocks.7.residual_post"), vector.vector)
    with pytest.raises(KeyError, match="no tap"), steer(model, unknown, 1.0):
        pass
