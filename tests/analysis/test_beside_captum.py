"""Attributions equal Captum's, entry by entry, where both are defined as the same quantity."""

from __future__ import annotations

import pytest
import torch
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients, Saliency
from measured_transformer.analysis.attribution import (
    answer_logit,
    completeness_gap,
    embedded,
    explained,
    gradient_times_input,
    gradients,
    integrated_gradients,
    occlusion,
)
from measured_transformer.analysis.residual import random_model
from torch import Tensor


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients")
def test_slopes_integrals_and_occlusion_are_captums():
    model, _ = random_model(3, causal=True)
    draws = torch.Generator().manual_seed(3)
    tokens, other = torch.randint(11, (2, 3, 5), generator=draws)
    answers = tokens[:, 0]
    target = answer_logit(-1, answers)
    own, usual = embedded(model, tokens), embedded(model, other).mean(0)

    def of_vectors(entered: Tensor) -> Tensor:
        copies = len(entered) // len(tokens)  # one for each point of the quadrature
        return explained(
            model, tokens.repeat(copies, 1), entered, answer_logit(-1, answers.repeat(copies))
        )

    def equal(ours: Tensor, theirs: Tensor) -> None:
        # Captum takes the points of a quadrature and some sums in float32.
        torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-6, atol=1e-6)

    equal(gradients(model, tokens, target), Saliency(of_vectors).attribute(own, abs=False))
    product = InputXGradient(of_vectors).attribute(own).sum(-1)
    equal(gradient_times_input(model, tokens, target), product)
    for start in (torch.zeros_like(own), usual.expand_as(own)):
        found = integrated_gradients(model, tokens, target, baseline=start)
        theirs, gap = IntegratedGradients(of_vectors).attribute(
            own, baselines=start, return_convergence_delta=True
        )
        equal(found, theirs.sum(-1))
        equal(completeness_gap(model, tokens, target, found, baseline=start), gap)
    positions = torch.arange(5)[None, :, None].expand(1, -1, own.shape[-1])
    for how, start in (("zero", torch.zeros_like(own)), ("mean", usual.expand_as(own))):
        gone = FeatureAblation(of_vectors).attribute(own, baselines=start, feature_mask=positions)
        equal(occlusion(model, tokens, target, how=how, reference=other), gone[..., 0])
