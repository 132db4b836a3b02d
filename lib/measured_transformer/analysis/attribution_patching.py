r"""Attribution patching: the effect of patching, estimated to first order for all components at once.

Patching (`patching.patched`) takes one run for each component. *Attribution patching* (Nanda, 2023; Syed et
al., 2023) takes a few runs and one backward pass for all of them: putting the value $v'$ of a source run in
place of $v$ has the effect $(v' - v) \cdot \partial F / \partial v$, as far as the first term of a Taylor
series goes. Where the target is a linear function of the value, that is the effect. Where a softmax saturates
or a norm rescales the stream, it can be far off, and so it belongs beside true patching: `compare_patching`
makes both and says how well they agree.

With `steps` above one the gradient is averaged over points on the way from the run's own embedding to the
source's, by Gauss-Legendre quadrature (Hanna et al., 2024, who sum over equal steps). The estimates of the
component `embedding` are then integrated gradients, and their sum approaches the whole effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import rankdata
from torch import Tensor

from measured_transformer.analysis.ablation import Component, listed
from measured_transformer.analysis.attribution import Explained, Target, answered, embedded
from measured_transformer.analysis.patching import patched
from measured_transformer.analysis.references import part_of, seen_on
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import Places


@takes_text("into", "source")
def attribution_patched(
    model: Explained,
    into: Int[Tensor, "example position"],
    source: Int[Tensor, "example position"],
    components: Sequence[Component] | Component,
    target: Target,
    *,
    steps: int = 1,
) -> dict[Component, Float[Tensor, "example position"]]:
    """The estimated rise of the target when each component is patched at one position.

    The estimate for several positions, or for all of them, is the sum over these. Of patterns and scores a
    position is the query's.

    Args:
        model: run three times and back once for all components; no parameter gets a gradient. Of an
            encoder-decoder one of its `interop.sides`.
        into: the tokens of the run that would be changed.
        source: the tokens of the run that the values would come from.
        components: each by itself.
        target: read off the logits.
        steps: at how many points on the way from one run's embedding to the other's the gradient is taken; with
            one, at the run itself.

    Raises:
        ValueError: when the two differ in shape, a head lies outside, or `steps` is below one.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.attribution import answer_logit
    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> model, head = reversal_model(vocab=6, length=4), Component("blocks.0.attention.mixed", 0)
    >>> into, source = torch.tensor([[2, 1, 1, 3]]), torch.tensor([[5, 1, 1, 3]])
    >>> attribution_patched(model, into, source, [head], answer_logit(-1, torch.tensor([5])))[head]
    tensor([[0., 0., 0., 1.]], dtype=torch.float64)
    """
    if into.shape != source.shape:
        raise ValueError(
            "the two runs must have tokens of one shape, got "
            f"{tuple(into.shape)} and {tuple(source.shape)}"
        )
    if steps < 1:
        raise ValueError(f"a gradient is taken at one point at least, got steps={steps}")
    components = listed("components", components)
    own, other = (seen_on(model, tokens, components).values for tokens in (into, source))
    slopes = _slopes(model, into, source, list(own), target, steps)
    found = {}
    for each in components:
        change = (other[each.tap] - own[each.tap]) * slopes[each.tap]
        part = part_of(change, head=each.head).sum(-1)
        found[each] = part if part.ndim == 2 else part.sum(1)
    return found


def _slopes(
    model: Explained, into: Tensor, source: Tensor, names: list[str], target: Target, steps: int
) -> dict[str, Tensor]:
    """The target's gradient at each tap, averaged over the points of the quadrature."""
    if steps == 1:
        return dict(zip(names, _gradients(model, into, names, target), strict=True))
    start, end = embedded(model, into), embedded(model, source)
    total = [torch.zeros(()) for _ in names]
    points, shares = np.polynomial.legendre.leggauss(steps)
    for point, share in zip((1 + points) / 2, shares / 2, strict=True):
        entered = start + float(point) * (end - start)
        with intervene(model, {"embedding": entered}):
            slopes = _gradients(model, into, names, target)
        total = [sum_ + float(share) * slope for sum_, slope in zip(total, slopes, strict=True)]
    return dict(zip(names, total, strict=True))


def _gradients(model: Explained, tokens: Tensor, names: list[str], target: Target) -> list[Tensor]:
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        value = answered(target, model(tokens), slopes=True).sum()
        values = [seen[name] for name in names]
        slopes = torch.autograd.grad(value, values, allow_unused=True)
    # A value that the target does not depend on has no gradient: its slope is zero.
    return [
        torch.zeros_like(value) if slope is None else slope.detach()
        for value, slope in zip(values, slopes, strict=True)
    ]


@dataclass(frozen=True)
class PatchingComparison:
    """The effect of patching each component, and its estimate.

    Attributes:
        components: each was patched by itself.
        patched: the rise of the target, by a run of its own.
        estimated: the rise of the target, to first order.
    """

    components: tuple[Component, ...]
    patched: Float[Tensor, "component example"]
    estimated: Float[Tensor, "component example"]

    @property
    def correlation(self) -> float:
        """Pearson's correlation over all components and examples; NaN where one of the two never varies."""
        return _correlation(self.patched.flatten(), self.estimated.flatten())

    @property
    def rank_correlation(self) -> float:
        """Spearman's correlation of the components' effects, each its mean over the examples."""
        a, b = (
            torch.from_numpy(rankdata(each.mean(1).double().cpu().numpy()))
            for each in (self.patched, self.estimated)
        )
        return _correlation(a, b)

    @property
    def largest_error(self) -> float:
        """The largest distance of an estimate from the effect, in the target's units."""
        return float((self.patched - self.estimated).abs().max())


@takes_text("into", "source")
def compare_patching(
    model: Explained,
    into: Int[Tensor, "example position"],
    source: Int[Tensor, "example position"],
    components: Sequence[Component] | Component,
    target: Target,
    *,
    positions: Places | None = None,
    steps: int = 1,
) -> PatchingComparison:
    """Patch each component, and estimate the same to first order.

    Args:
        model, into, source, components, target, steps: as for `attribution_patched`.
        positions: at which positions, all at once; all when None.

    Raises:
        ValueError: as `attribution_patched`, or when a position lies outside.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.ablation import heads
    >>> from measured_transformer.analysis.attribution import answer_logit
    >>> from measured_transformer.analysis.handmade import heads_model
    >>> model = heads_model(["next", "mirror"], vocab=6, length=4)
    >>> into, source = torch.tensor([[2, 1, 1, 3]]), torch.tensor([[5, 1, 1, 3]])
    >>> found = compare_patching(model, into, source, heads(model), answer_logit(-1, torch.tensor([5])))
    >>> found.patched[:, 0], found.largest_error
    (tensor([0., 1.], dtype=torch.float64), 0.0)
    """
    components = listed("components", components)
    by_position = attribution_patched(model, into, source, components, target, steps=steps)
    # With a last axis each stands as a stream does, so that `at` finds the positions.
    estimated = [
        part_of(by_position[each][..., None], positions=positions).sum((1, 2))
        for each in components
    ]
    with torch.no_grad():
        before = target(model(into))
    effects = [
        patched(model, into, source, [each], target, positions=positions) - before
        for each in components
    ]
    return PatchingComparison(tuple(components), torch.stack(effects), torch.stack(estimated))


def _correlation(a: Float[Tensor, "entry"], b: Float[Tensor, "entry"]) -> float:
    return float(torch.corrcoef(torch.stack([a.double(), b.double()]))[0, 1])
