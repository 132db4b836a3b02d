"""Answers, labels, masks and inputs that belong together must have a row for each other, or be refused.

Gathering takes a shorter index and comparisons stretch a single row, both without a word.
"""

import dataclasses

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.attribution import (
    answer_logit,
    attention_times_gradient,
    embedded,
    found_area,
    found_first,
    gradient_times_input,
    gradients,
    integrated_gradients,
    logit_difference,
    occlusion,
    ranks_agree,
)
from measured_transformer.analysis.attribution_patching import attribution_patched
from measured_transformer.analysis.erasure import leace
from measured_transformer.analysis.fact_edits import changes_for, look_inside, trace
from measured_transformer.analysis.patching import patched, path_patched, restored_tokens
from measured_transformer.analysis.probing import dealt, fit_probe
from measured_transformer.analysis.readers import fit_reader, online_code
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.losses import (
    cross_entropy,
    cross_entropy_diluted,
    cross_entropy_with_padding,
)

torch.manual_seed(0)
MODEL = Decoder(Config(vocab=9, d_model=16, n_layers=2, n_heads=2, positions="learned")).eval()
X = torch.randint(9, (4, 5))
OTHER = torch.randint(9, (4, 5))
YES = torch.ones_like(X, dtype=torch.bool)
RIGHT = torch.tensor([1, 2, 3, 4])
STATES, LABELS = torch.randn(4, 6), torch.tensor([0, 1, 0, 1])
SCORES, SOME = torch.rand(4, 5), torch.arange(5).expand(4, 5) < 2
MIXED = Component("blocks.0.attention.mixed", 0)
LATER = Component("blocks.1.attention.queries", 0)
BATCH = Batch(X, X, YES, YES, X, YES)


def told(answers):
    return answer_logit(-1, answers)


def resampled(tokens):
    with ablated(MODEL, [MIXED], "resample", reference=Batch(tokens, tokens, tokens >= 0)):
        return MODEL(X)


def coded(labels):
    return online_code(STATES, labels, n_labels=2, portions=(0.5, 1.0), steps=2)


# Each takes what has a row for each example, in its right form as the second entry.
CALLS = {
    "gradients": (lambda a: gradients(MODEL, X, told(a)), RIGHT),
    "times input": (lambda a: gradient_times_input(MODEL, X, told(a)), RIGHT),
    "integrated": (lambda a: integrated_gradients(MODEL, X, told(a), steps=2), RIGHT),
    "attention": (lambda a: attention_times_gradient(MODEL, X, told(a)), RIGHT),
    "occlusion": (lambda a: occlusion(MODEL, X, told(a), how="zero"), RIGHT),
    "entered": (lambda e: gradients(MODEL, X, told(RIGHT), entered=e), embedded(MODEL, X)),
    "target": (lambda a: patched(MODEL, X, OTHER, [MIXED], told(a)), RIGHT),
    "source": (lambda s: patched(MODEL, X, s, [MIXED], told(RIGHT)), OTHER),
    "whole source": (
        lambda s: patched(MODEL, X, s, [Component("embedding")], told(RIGHT)),
        OTHER,
    ),
    "restored": (lambda s: restored_tokens(MODEL, s, OTHER, told(RIGHT)), X),
    "path": (lambda s: path_patched(MODEL, X, s, MIXED, [LATER], told(RIGHT)), OTHER),
    "resampled": (resampled, OTHER),
    "traced": (lambda a: trace(MODEL, X, a, subject=[0], seed=0, draws=1).clean, RIGHT),
    "edited": (
        lambda a: changes_for(MODEL, look_inside(MODEL, X), a, block=0, position=0, steps=1),
        RIGHT,
    ),
    "area": (lambda r: found_area(SCORES, r, YES), SOME),
    "area of candidates": (lambda c: found_area(SCORES, SOME, c), YES),
    "first": (lambda r: found_first(SCORES, r, YES), SOME),
    "first of candidates": (lambda c: found_first(SCORES, SOME, c), YES),
    "ranks": (lambda s: ranks_agree(SCORES, s, YES), SCORES.flip(1)),
    "ranks of candidates": (lambda c: ranks_agree(SCORES, SCORES.flip(1), c), YES),
    "probe": (lambda y: fit_probe(STATES, y, n_labels=2).bias, LABELS),
    "reader": (lambda y: fit_reader(STATES, y, n_labels=2)(STATES), LABELS),
    "code": (coded, LABELS),
    "dealt": (lambda t: dealt(LABELS, t, torch.Generator(), deals=1), LABELS + 3),
    "dealt labels": (lambda y: dealt(y, LABELS + 3, torch.Generator(), deals=1), LABELS),
    "eraser": (lambda y: leace(STATES, y, n_labels=2).centre, LABELS),
    "loss": (lambda y: cross_entropy(MODEL(X), y, YES), OTHER),
    "loss of scored": (lambda s: cross_entropy(MODEL(X), OTHER, s), YES),
    "with padding": (lambda y: cross_entropy_with_padding(MODEL(X), y), OTHER),
    "diluted": (lambda s: cross_entropy_diluted(MODEL(X), OTHER, s), YES),
    **{
        name: (
            lambda t, name=name: dataclasses.replace(BATCH, **{name: t}),
            getattr(BATCH, name),
        )
        for name in ("targets", "scored", "padding_mask", "source_padding_mask")
    },
}


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("name", CALLS)
def test_another_number_of_rows_is_refused(unhooked, name, rows):
    call, fitting = CALLS[name]
    call(fitting)
    wrong = torch.cat((fitting, fitting))[:rows]
    with pytest.raises(ValueError, match=r"shape|expected|Expected|for each|must"):
        call(wrong)


@pytest.mark.parametrize("answers", [torch.tensor([9, 0, 0, 0]), torch.tensor([-1, 0, 0, 0])])
def test_an_answer_that_is_no_token_is_refused(unhooked, answers):
    with pytest.raises(ValueError, match="below vocab=9"):
        told(answers)(MODEL(X))


@pytest.mark.parametrize("name", ["answers", "right", "wrong"])
@pytest.mark.parametrize(
    "given",
    [None, "Paris", ["a", "b"], 1.5, [0.5, 1.0], torch.rand(4), [True], [[1], [2]], object()],
)
def test_answers_are_tokens_by_number(unhooked, name, given):
    calls = {
        "answers": lambda: answer_logit(-1, given),
        "right": lambda: logit_difference(-1, given, 0),
        "wrong": lambda: logit_difference(-1, 0, given),
    }
    with pytest.raises(ValueError, match=f"{name} must be the number of a token, or a list of"):
        calls[name]()


def test_answers_may_be_given_in_every_form_of_whole_numbers(unhooked):
    logits = MODEL(X)
    wanted = told(RIGHT)(logits)
    forms = (RIGHT.tolist(), tuple(RIGHT.tolist()), RIGHT.numpy(), RIGHT.to(torch.uint8))
    assert all(torch.equal(told(one)(logits), wanted) for one in forms)
    assert torch.equal(told(RIGHT[1])(logits), told([2] * 4)(logits))
    assert torch.equal(told(np.int64(2))(logits), told(2)(logits))


@pytest.mark.parametrize("shape", [(4, 9), (9,), (2, 4, 5, 9)])
def test_logits_without_positions_are_no_answers(unhooked, shape):
    with pytest.raises(
        ValueError, match=r"\(example, position, vocab\), got shape .*by a function"
    ):
        told(RIGHT)(torch.zeros(shape))


NO_TARGETS = {
    "a number of Python": (lambda logits: 3.0, "for each of 4 examples, got float"),
    "one number": (lambda logits: logits.sum(), r"for each of 4 examples, got shape \(\)"),
    "nothing": (lambda logits: None, "for each of 4 examples, got NoneType"),
    "detached": (lambda logits: logits[:, -1, 0].detach(), "steps that have gradients, got"),
    "the likeliest": (lambda logits: logits[:, -1].argmax(-1), "leave out detach, argmax"),
}
SLOPES = {
    "gradients": lambda target: gradients(MODEL, X, target),
    "integrated": lambda target: integrated_gradients(MODEL, X, target, steps=2),
    "attention": lambda target: attention_times_gradient(MODEL, X, target),
    "patching": lambda target: attribution_patched(MODEL, X, OTHER, [MIXED], target),
}


@pytest.mark.parametrize("name", NO_TARGETS)
@pytest.mark.parametrize("way", SLOPES)
def test_a_target_gives_numbers_with_gradients(unhooked, way, name):
    target, said = NO_TARGETS[name]
    with pytest.raises(ValueError, match=said):
        SLOPES[way](target)


@pytest.mark.parametrize("position", [5, -6, None, "last", 1.0, True])
def test_a_position_is_one_of_those_there_are(unhooked, position):
    with pytest.raises(ValueError, match="position must"):
        answer_logit(position, RIGHT)(MODEL(X))


def test_an_order_is_numbers(unhooked):
    reference = Batch(OTHER, OTHER, YES)
    with (
        pytest.raises(ValueError, match="one number of a sequence"),
        ablated(MODEL, [MIXED], "resample", reference=reference, order=YES[:, 0]),
    ):
        pass
