"""The sharpness of the loss: the largest eigenvalue of its Hessian over all weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.losses import cross_entropy


def largest_eigenvalue(
    model: Model, batch: Batch, divisors: Sequence[Tensor] | None = None, *, tolerance: float = 0.01
) -> float:
    r"""The largest eigenvalue of the Hessian of the batch's loss over all weights.

    The Hessian is never written down: its product with a vector $v$ is the gradient of $g \cdot v$, two
    backward passes. Lanczos' method needs some twenty such products. Adam divides the gradient entry by entry,
    by $d$; what limits its step is the largest eigenvalue of $D^{-1/2} H D^{-1/2}$.

    Args:
        model: whose weights are varied.
        batch: whose loss is differentiated.
        divisors: what Adam divides each gradient by, in the order of the weights: then of the preconditioned
            Hessian.
        tolerance: relative error allowed.
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    scale = torch.ones(()) if divisors is None else flat(divisors).rsqrt()
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):  # the fused one has no second derivative
        loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
        gradient = flat(torch.autograd.grad(loss, weights, create_graph=True))

        def product(vector: Float[ndarray, "weight"]) -> Float[ndarray, "weight"]:
            v = scale * torch.as_tensor(vector.reshape(-1)).to(gradient)
            curved = torch.autograd.grad(gradient @ v, weights, retain_graph=True)
            return np.asarray((scale * flat(curved)).double().cpu())

        size = gradient.numel()
        operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
        start = np.random.default_rng(0).normal(size=size)
        values = eigsh(
            operator, k=1, which="LA", tol=tolerance, v0=start, return_eigenvectors=False
        )
    return float(values[0])


def flat(tensors: Iterable[Tensor]) -> Float[Tensor, "weight"]:
    """All entries, concatenated."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
