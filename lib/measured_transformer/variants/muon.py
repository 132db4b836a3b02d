r"""Muon: the momentum of a matrix, made orthogonal, in the place of Adam's direction.

Write a matrix as $U S V^\top$, its singular value decomposition. $U V^\top$ is the orthogonal matrix that is
nearest to it: the same directions, all singular values 1. Muon steps along $U V^\top$ of its momentum, which
a few products of matrices approximate. Vectors, embeddings and the head have Adam.

Sources: Jordan et al. (2024), "Muon: An optimizer for hidden layers in neural networks", for the method and
the coefficients; Liu et al. (2025), "Muon is scalable for LLM training", for the size of the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.training.loop import Model
from measured_transformer.variants.optimisers import AdamWithFilled, _Direction

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of x, x^3 and x^5: steep at zero, so that small singular values grow fast; all end near 1."""


def orthogonalise(
    matrix: Float[Tensor, "row column"], steps: int = 5
) -> Float[Tensor, "row column"]:
    r"""Nearly $U V^\top$ of a matrix $U S V^\top$, by Newton and Schulz's iteration with a quintic.

    Divided by its Frobenius norm, a matrix has singular values of at most 1. Each step $X \leftarrow a X + b
    X X^\top X + c X X^\top X X^\top X$ leaves U and V as they are and makes of every singular value x the
    number $a x + b x^3 + c x^5$. After five steps those that began above 0.003 lie between 0.68 and 1.21.

    >>> orthogonalise(torch.tensor([[0.0, 10.0], [-2.0, 0.0]])).abs().round(decimals=1)
    tensor([[0.0000, 0.7000],
            [0.8000, 0.0000]])

    Args:
        matrix: any matrix of floating-point numbers; a matrix of zeros stays one.
        steps: of the iteration.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix  # the products below are then of the smaller size
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        squared = x @ x.T
        x = a * x + (b * squared + c * squared @ squared) @ x
    return x.T if tall else x


@dataclass(frozen=True)
class Muon:
    r"""Preparation for training: Muon for the matrices of the blocks, Adam for everything else.

    A matrix W of a block, (rows, columns), with gradient G:

    1. the momentum: $M \leftarrow \mu M + G$;
    2. the step: $W \leftarrow W - 0.2 \eta \sqrt{\max(\text{rows}, \text{columns})} \; O$, where O is the
       orthogonalised $G + \mu M$.

    The factor makes the root mean square of a step's entries about 0.2 $\eta$, as Liu et al. found it for
    Adam, so that one rate serves both.

    Gradients are replaced by directions as soon as they are complete. So train with the optimiser 'SGD', no
    momentum (a first beta of 0), no clipping and the hook `variants.gradients.trains_alone`.

    Attributes:
        momentum: $\mu$.
        betas, eps: of Adam.

    Raises:
        ValueError: when the momentum is not in [0, 1).
    """

    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")

    def __call__(self, model: Model) -> None:
        """Let every weight have its direction in the place of its gradient.

        Raises:
            ValueError: when the model is an encoder-decoder.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        hidden = {id(weight) for weight in model.blocks.parameters() if weight.ndim == 2}
        adam = AdamWithFilled(0, betas=self.betas, eps=self.eps)
        for weight in model.parameters():
            one = _Orthogonal(self.momentum) if id(weight) in hidden else _Direction(adam)
            weight.register_post_accumulate_grad_hook(one)


class _Orthogonal:
    """The momentum of one matrix: turns its gradient into Muon's direction, in place."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self.average: Tensor | None = None

    @torch.no_grad()
    def __call__(self, weight: nn.Parameter) -> None:
        """Replace the gradient of the matrix."""
        gradient = weight.grad
        assert gradient is not None  # the hook is called where one has been accumulated
        old = torch.zeros_like(gradient) if self.average is None else self.average
        self.average = self.momentum * old + gradient
        ahead = gradient + self.momentum * self.average
        gradient.copy_(0.2 * math.sqrt(max(weight.shape)) * orthogonalise(ahead))
