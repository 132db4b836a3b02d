"""The largest eigenvalue against that of whole Hessians in float64."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.sharpness import flat, largest_eigenvalue
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

TASK = Reversal(vocab=3, length=2)
CONFIG = Config(vocab=3, d_model=2, n_layers=1, n_heads=1, d_ff=3, activation="gelu")


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_largest_eigenvalue_is_that_of_the_whole_hessian(placement, preconditioned):
    model = make_model(CONFIG.replace(placement=placement), causal=False, seed=2).double()
    batch = TASK.batch(make_generator(2, "evaluation"), 8)
    names, shapes = zip(*((n, p.shape) for n, p in model.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]

    def loss(vector):
        parts = [p.reshape(s) for p, s in zip(vector.split(sizes), shapes, strict=True)]
        logits = functional_call(model, dict(zip(names, parts, strict=True)), (batch.inputs,))
        return cross_entropy(logits, batch.targets, batch.scored)

    with sdpa_kernel(SDPBackend.MATH):
        hessian = torch.autograd.functional.hessian(loss, flat(model.parameters()).detach())
    divisors = None
    if preconditioned:
        rng = torch.Generator().manual_seed(0)
        divisors = [torch.rand(s, generator=rng, dtype=torch.float64) + 0.1 for s in shapes]
        root = flat(divisors).rsqrt()
        hessian = root[:, None] * hessian * root
    expected = float(np.linalg.eigvalsh(hessian.numpy())[-1])
    found = largest_eigenvalue(model, batch, divisors, tolerance=1e-8)
    assert found == pytest.approx(expected, rel=1e-6)
