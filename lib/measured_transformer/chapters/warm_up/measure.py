r"""What could stand in for a warm-up, and how strongly the loss is curved while a training goes on.

Remedies take away one suspected cause each. Gradient descent of rate $\eta$ on a loss whose largest
eigenvalue of the Hessian is $\lambda$ overshoots when $\eta\lambda > 2$. Adam divides each entry of the
gradient by $d = \sqrt{\hat v} + \epsilon$, so what counts is the largest eigenvalue of the *preconditioned*
Hessian $D^{-1/2} H D^{-1/2}$, $D$ having $d$ on its diagonal; with momentum $\beta_1$ the limit is
$\eta\lambda = 2(1 + \beta_1)/(1 - \beta_1)$ (Cohen et al., 2022, "Adaptive Gradient Methods at the Edge of
Stability").
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.checkpoints import read_tensors
from measured_transformer.training.loop import Model, predict, train
from measured_transformer.training.losses import cross_entropy


@dataclass(frozen=True)
class Held:
    """A schedule that keeps the weights where they are at first, then the full rate at once.

    Adam's averages of the gradient and of its square go on meanwhile. So the weights' first step rests on
    many gradients and not on one: what a warm-up would do for Adam's averages, without its small steps. (In
    the test called Adam-2k by Liu et al., 2020, "On the Variance of the Adaptive Learning Rate and Beyond",
    only the average of the square goes on; that of the gradient begins when the weights are released.)

    Attributes:
        steps: number of steps at a rate of zero.

    Raises:
        ValueError: when `steps` is not a whole number of at least 0.
    """

    steps: int

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 0:
            raise ValueError(f"steps must be a whole number of at least 0, got {self.steps!r}")

    def __call__(self, step: int) -> float:
        """The factor at this step: 0 while the weights are held, then 1.

        Raises:
            ValueError: when `step` is negative.
        """
        if step < 0:
            raise ValueError(f"steps are counted from 0, got step {step}")
        return float(step >= self.steps)


@torch.no_grad()
def quiet_branches(model: Model) -> None:
    """Divide every matrix that writes to the stream by twice the number of sublayers, in place.

    Each block then begins close to doing nothing, so that no block hangs on what the others write: the idea
    of Admin (Liu et al., 2020, "Understanding the Difficulty of Training Transformers") and of DeepNorm
    (Wang et al., 2022) in its plainest form. Made to be given to `train` as its `prepare`.
    """
    factor = 1 / (4 * model.config.n_layers)
    for name, weight in model.named_parameters():
        if name.endswith(("attention.output.weight", "feedforward.down.weight")):
            weight.mul_(factor)


def jumps(values: Float[ndarray, "step"], *, window: int = 20) -> Float[ndarray, "step"]:
    """How far each value lies above the median of the `window` values before it; NaN for the first ones.

    >>> jumps(np.array([1.0, 3.0, 2.0, 7.0]), window=3)
    array([nan, nan, nan,  5.])
    """
    found = np.full(len(values), np.nan)
    for step in range(window, len(values)):
        found[step] = values[step] - np.median(values[step - window : step])
    return found


def followed(events: Bool[ndarray, "step"], *, within: int = 10) -> Bool[ndarray, "step"]:
    """Whether an event comes after each step, among the next `within` steps; the step itself is not counted.

    >>> followed(np.array([False, True, False, False]), within=2)
    array([ True, False, False, False])
    """
    return np.array([bool(events[t + 1 : t + 1 + within].any()) for t in range(len(events))])


# States of a training, and curvature ---------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A training, stopped after some steps.

    Attributes:
        step: number of updates that were made.
        model: as it stood then.
        gradient_norms: length of the whole gradient of each step until then, before clipping.
        divisors: what Adam divides the gradient by, in the order of `model.parameters()`: the root of the
            bias-corrected average of squares, and epsilon. None before the first update.
    """

    step: int
    model: Model
    gradient_norms: Float[ndarray, "step"]
    divisors: list[Tensor] | None


def snapshots(
    config: Config,
    task: Task,
    steps: Sequence[int],
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-8,
    **options: Any,
) -> list[Snapshot]:
    """Train as `train` does, and stop on the way to look. One training, whatever the number of stops.

    Args:
        config, task: what is trained, on what.
        steps: after how many updates to look, in rising order.
        betas, eps: of Adam.
        options: what else `train` takes.

    Raises:
        ValueError: when the steps do not rise, or as `train`.
    """
    if list(steps) != sorted(set(steps)):
        raise ValueError(f"steps must rise, got {list(steps)}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        for step in steps:
            settings = {"betas": betas, "eps": eps, "checkpoint_every": max(steps) + 1, **options}
            run = train(config, task, steps=step, checkpoint=file if step else None, **settings)
            divisors = _divisors(file, run.model, betas[1], eps) if step else None
            found.append(Snapshot(step, run.model, run.gradient_norms, divisors))
    return found


def _divisors(file: Path, model: Model, beta: float, eps: float) -> list[Tensor]:
    kept, _ = read_tensors(file)
    divisors = []
    for number, weight in enumerate(model.parameters()):
        seen = float(kept[f"optimiser.{number}.step"])
        square = kept[f"optimiser.{number}.exp_avg_sq"].to(weight.device)
        divisors.append((square / (1 - beta**seen)).sqrt() + eps)
    return divisors


def largest_eigenvalue(
    model: Model, batch: Batch, divisors: Sequence[Tensor] | None = None, *, tolerance: float = 0.01
) -> float:
    r"""The largest eigenvalue of the Hessian of the batch's loss, all weights together.

    The Hessian is never written down: its product with a vector $v$ is the gradient of $g \cdot v$, two
    backward passes. Lanczos' method needs some twenty such products.

    Args:
        model: whose weights are varied.
        batch: whose loss is differentiated.
        divisors: of Adam, from `Snapshot`: then of the preconditioned Hessian.
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


@torch.no_grad()
def update_norm(before: Model, after: Model) -> float:
    """Length of the difference between all weights of two models of one shape."""
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    return float(flat([b - a for a, b in pairs]).norm())


@torch.no_grad()
def prediction_shift(before: Model, after: Model, batch: Batch) -> float:
    """How far the answers of two models lie apart: KL(before || after), in nats a position."""
    old, new = (predict(model, batch).log_softmax(-1) for model in (before, after))
    return float((old.exp() * (old - new)).sum(-1)[batch.scored].mean())


def flat(tensors: Iterable[Tensor]) -> Float[Tensor, "weight"]:
    """All entries behind one another."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
