r"""How branches and learning rates follow the depth: $1/\sqrt L$ on each branch, or CompleteP's $1/L$.

Depth is the number L of blocks, $m = L / L_0$ its multiple of a base depth, at which all rules are the same
model with the same learning rates. A rule is one exponent $\alpha$, with Adam:

- what each sublayer adds to the stream is multiplied by $m^{-\alpha}$;
- the learning rate of every weight of the blocks, norms included, by $m^{\alpha - 1}$;
- Adam's epsilon by $m^{-\alpha}$, as the gradients of the blocks are.

$\alpha = 1/2$ is the depth rule of Yang et al. (2023), "Tensor Programs VI": branches and rates fall as
$1/\sqrt L$. $\alpha = 1$ is CompleteP, Dey et al. (2025), "Don't be lazy": branches fall as $1/L$ and rates
stay. Initial weights do not depend on depth in either. Embedding, unembedding and final norm keep the
common rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.nn.utils import parametrize

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import Model
from measured_transformer.variants.gradients import _Times

ROOT, COMPLETE = 0.5, 1.0
"""The exponents of the two rules."""


@dataclass(frozen=True)
class ScaledByDepth:
    r"""Preparation for training: a decoder or encoder whose branches and rates follow its depth by a rule.

    An optimiser with one learning rate is enough. A weight $W$ that should move at $r \eta$ is kept as
    $V = W / r$: Adam moves V by $\eta$ whatever the gradient's size, and so W by $r \eta$. This is exact when
    gradients are not clipped by their common length, there is no weight decay and the optimiser's epsilon is
    that of `epsilon`.

    Attributes:
        exponent: $\alpha$, from 0 to 1.
        base: the depth at which nothing is changed.

    Raises:
        ValueError: when the exponent lies outside [0, 1], or the base is not positive.
    """

    exponent: float
    base: int

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 1:
            raise ValueError(f"exponent must lie in [0, 1], got {self.exponent}")
        if self.base < 1:
            raise ValueError(f"base must be positive, got {self.base}")

    def branch(self, n_layers: int) -> float:
        """The factor on what each sublayer adds.

        >>> ScaledByDepth(ROOT, 2).branch(8), ScaledByDepth(COMPLETE, 2).branch(8)
        (0.5, 0.25)
        """
        return float((n_layers / self.base) ** -self.exponent)

    def rate(self, n_layers: int) -> float:
        """The factor on the learning rate of the blocks.

        >>> ScaledByDepth(ROOT, 2).rate(8), ScaledByDepth(COMPLETE, 2).rate(8)
        (0.5, 1.0)
        """
        return float((n_layers / self.base) ** (self.exponent - 1))

    def epsilon(self, n_layers: int, eps: float = 1e-8) -> float:
        r"""What to give the optimiser as its epsilon, for weights that are kept as W / r.

        The gradient of W / r is r times that of W, so that $\epsilon m^{-\alpha}$ becomes $r \epsilon
        m^{-\alpha}$: with either rule $\epsilon / m$.

        >>> ScaledByDepth(ROOT, 2).epsilon(8), ScaledByDepth(COMPLETE, 2).epsilon(8)
        (2.5e-09, 2.5e-09)
        """
        return eps * self.branch(n_layers) * self.rate(n_layers)

    def __call__(self, model: Model) -> None:
        """Scale the branches of a fresh model, and replace its weights where their rate is another.

        Raises:
            ValueError: for an `EncoderDecoder`, or blocks that scale their branches already.
        """
        if not isinstance(model, Stack):
            raise ValueError(f"expected a model of one stack, got {type(model).__name__}")
        depth = len(model.blocks)
        rate = self.rate(depth)
        for block in model.blocks:
            assert isinstance(block, Block)
            if block.residual_scale != 1:
                raise ValueError(
                    f"expected branches without a factor, got residual_scale={block.residual_scale}"
                )
            block.residual_scale = self.branch(depth)
            if math.isclose(rate, 1):
                continue
            owners = [
                (part, name)
                for part in block.modules()
                for name, _ in part.named_parameters(recurse=False)
            ]
            for part, name in owners:
                parametrize.register_parametrization(part, name, _Times(rate))
