"""Our attributions beside Captum's: signs, slopes, integrals and tokens that are taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from captum.attr import (
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    LayerGradientXActivation,
    LayerIntegratedGradients,
    Occlusion,
    Saliency,
)
from measured_transformer import capture
from measured_transformer.analysis.attribution import (
    Target,
    answer_logit,
    attention_times_gradient,
    completeness_gap,
    embedded,
    explained,
    gradient_times_input,
    gradients,
    integrated_gradients,
    occlusion,
)
from measured_transformer.parts.block import Block
from torch import Tensor

from comparisons.row import Row, apart
from comparisons.subjects import Subject

STEPS = 50


def rows(subject: Subject) -> Iterator[Row]:
    """Every method that both have."""
    model, tokens, target = subject.model, subject.tokens, subject.target
    own = embedded(model, tokens)
    usual = embedded(model, subject.other).mean(0)
    positions = torch.arange(tokens.shape[1])[None, :, None].expand(1, -1, own.shape[-1])

    def asked(count: int) -> tuple[Tensor, Target]:
        """Tokens and target of a batch with a copy of each example for each point of the way."""
        copies = count // len(tokens)
        return tokens.repeat(copies, 1), answer_logit(-1, subject.answers.repeat(copies))

    def of_vectors(entered: Tensor) -> Tensor:
        given, wanted = asked(len(entered))
        return explained(model, given, entered, wanted)

    def of_tokens(given: Tensor) -> Tensor:
        return asked(len(given))[1](model(given))

    def row(quantity: str, ours: str, theirs: str, difference: float, **more: object) -> Row:
        told = {"same": True, **more}
        return Row("Captum", subject.name, quantity, ours, theirs, difference=difference, **told)  # type: ignore[arg-type]

    slopes = gradients(model, tokens, target)
    signed = Saliency(of_vectors).attribute(own, abs=False)
    yield row("gradient", "gradients", "Saliency(abs=False)", apart(slopes, signed))
    sizes = Saliency(of_vectors).attribute(own).sum(-1)
    yield row(
        "saliency of a token",
        "gradients(...).norm(dim=-1)",
        "Saliency, summed over entries",
        apart(slopes.norm(dim=-1), sizes),
        same=False,
        after=apart(slopes.abs().sum(-1), sizes),
        why="the length of the gradient here, the sum of its entries' sizes there",
    )
    product = InputXGradient(of_vectors).attribute(own).sum(-1)
    ours = gradient_times_input(model, tokens, target)
    yield row(
        "gradient times input", "gradient_times_input", "InputXGradient", apart(ours, product)
    )
    layer = LayerGradientXActivation(of_tokens, model.embedding)
    with capture(model, "embedding", gradients=True):  # hooks on a tap see what is captured
        by_hook = cast(Tensor, layer.attribute(tokens)).sum(-1)
    yield row(
        "the same, by a hook on the layer",
        "gradient_times_input",
        "LayerGradientXActivation",
        apart(ours, by_hook),
    )
    for name, start in (("zero", torch.zeros_like(own)), ("mean", usual.expand_as(own))):
        found = integrated_gradients(model, tokens, target, baseline=start, steps=STEPS)
        method = IntegratedGradients(of_vectors)
        theirs, gap = method.attribute(
            own, baselines=start, n_steps=STEPS, return_convergence_delta=True
        )
        yield row(
            f"integrated gradients from the {name} vector",
            "integrated_gradients",
            "IntegratedGradients",
            apart(found, theirs.sum(-1)),
        )
        left = completeness_gap(model, tokens, target, found, baseline=start)
        yield row(
            f"what they lack of adding up, from the {name} vector",
            "completeness_gap",
            "convergence delta",
            float((left - gap).abs().max() / theirs.sum(-1).abs().max()),
        )
    found = integrated_gradients(model, tokens, target, baseline=usual, steps=STEPS)
    trapezoid = IntegratedGradients(of_vectors).attribute(
        own, baselines=usual.expand_as(own), n_steps=STEPS, method="riemann_trapezoid"
    )
    shares, places = torch.full((STEPS,), 1 / STEPS), torch.linspace(0, 1, STEPS)
    shares[[0, -1]] /= 2
    total = sum(
        float(share) * gradients(model, tokens, target, entered=usual + float(at) * (own - usual))
        for share, at in zip(shares.double(), places.double(), strict=True)
    )
    yield row(
        "integrated gradients by another quadrature",
        "integrated_gradients",
        "IntegratedGradients(method='riemann_trapezoid')",
        apart(found, trapezoid.sum(-1)),
        same=False,
        after=apart(((own - usual) * total).sum(-1), trapezoid.sum(-1)),
        why="Gauss-Legendre points here, evenly spaced ones with the ends counted half there",
    )
    first = torch.zeros_like(tokens)
    with capture(model, "embedding", gradients=True):
        method_of_layer = LayerIntegratedGradients(of_tokens, model.embedding)
        of_layer = method_of_layer.attribute(tokens, n_steps=STEPS)
    zero = integrated_gradients(model, tokens, target, baseline=0.0, steps=STEPS)
    token = integrated_gradients(
        model, tokens, target, baseline=embedded(model, first), steps=STEPS
    )
    yield row(
        "integrated gradients of a layer, default baseline",
        "integrated_gradients",
        "LayerIntegratedGradients",
        apart(zero, cast(Tensor, of_layer).sum(-1)),
        same=False,
        after=apart(token, cast(Tensor, of_layer).sum(-1)),
        why="the zero vector here, the vectors of a sequence of token 0 there",
    )
    for how, start in (("zero", torch.zeros_like(own)), ("mean", usual.expand_as(own))):
        gone = FeatureAblation(of_vectors).attribute(own, baselines=start, feature_mask=positions)
        yield row(
            f"a token's vector replaced by {how}",
            f"occlusion(how='{how}')",
            "FeatureAblation, a feature a position",
            apart(
                occlusion(model, tokens, target, how=how, reference=subject.other),  # type: ignore[arg-type]
                gone[..., 0],
            ),
        )
    window = Occlusion(of_vectors).attribute(own, sliding_window_shapes=(1, own.shape[-1]))
    yield row(
        "a window of one token, moved along",
        "occlusion(how='zero')",
        "Occlusion",
        apart(occlusion(model, tokens, target, how="zero"), window[..., 0]),
    )
    products = attention_times_gradient(model, tokens, target)
    hooked = []
    for block in model.blocks:
        pattern = cast(Block, block).attention.pattern
        with capture(model, "*.pattern", gradients=True):  # has the pattern written out
            seen = LayerGradientXActivation(of_tokens, pattern).attribute(tokens)
        hooked.append(cast(Tensor, seen))
    yield row(
        "attention times gradient",
        "attention_times_gradient",
        "LayerGradientXActivation, on the pattern",
        apart(products, torch.stack(hooked)),
    )
