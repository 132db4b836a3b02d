r"""What skip connections do to the stream and to its gradients: paths, lengths, what is lost without them.

States, writes and branches are those of `analysis.residual` and `analysis.gradients`. A gradient is a row
like the vector it belongs to; on its way down it meets each sublayer, and goes past it or through its branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import vjp, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_transformer.analysis.gradients import Map, sublayers
from measured_transformer.analysis.residual import ledger, stream_norms
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.tasks.task import Batch
from measured_transformer.training.losses import cross_entropy

# The way back -------------------------------------------------------------------------------------


@torch.no_grad()
def finite_difference(f: Map, x: Tensor, gradient: Tensor, *, step: float = 1e-5) -> Tensor:
    """The gradient of sum(gradient * f(x)) with respect to `x`, from differences of values alone.

    Central differences, one entry of `x` at a time; the error is of the order of step^2. `x` is left as
    it was.
    """
    result = torch.empty_like(x)
    for index in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.detach().clone()
            moved[index] += sign * step
            ends.append((gradient * f(moved)).sum())
        result[index] = (ends[0] - ends[1]) / (2 * step)
    return result


def last_gradient(model: Decoder | Encoder, last: Tensor, batch: Batch) -> Tensor:
    """The loss gradient at the last state of the stream, below the final norm."""
    with torch.enable_grad():
        x = last.detach().clone().requires_grad_()
        loss = cross_entropy(model.unembed(x), batch.targets, batch.scored)
        return torch.autograd.grad(loss, x)[0]


def every_path(
    model: Decoder | Encoder,
    states: Float[Tensor, "state batch position d_model"],
    gradient: Float[Tensor, "batch position d_model"],
) -> Float[Tensor, "path batch position d_model"]:
    r"""Split the gradient at the embedding into its $2^{2L}$ paths, one for each choice at each sublayer.

    On its way down the gradient meets each sublayer twice: it takes the skip connection, or it goes through
    the branch. Norms on the stream (post-norm) lie on both. Path number p goes through the branch of
    sublayer k where bit k of p is set; path 0 is the pure skip path. The sum over all paths is the gradient.

    Args:
        model: see `sublayers`.
        states: of the same forward pass, from `ledger`.
        gradient: at the last state.
    """
    paths = gradient[None]
    for through, straight in _backwards(model, states):
        below = torch.stack([straight(paths), through(paths)], dim=1)
        paths = below.flatten(0, 1)  # the newest sublayer is the lowest bit
    return paths.detach()


def by_length(
    model: Decoder | Encoder,
    states: Float[Tensor, "state batch position d_model"],
    gradient: Float[Tensor, "batch position d_model"],
) -> Float[Tensor, "length batch position d_model"]:
    r"""The same sum, with the paths gathered by the number of branches that they go through, 0 to 2L.

    The number of paths doubles with each sublayer; that of lengths grows by one. So this goes to any depth.
    """
    lengths = gradient[None]
    for through, straight in _backwards(model, states):
        skipped, taken = straight(lengths), through(lengths)
        none = torch.zeros_like(gradient)[None]
        lengths = torch.cat([skipped, none]) + torch.cat([none, taken])
    return lengths.detach()


def _backwards(
    model: Decoder | Encoder, states: Float[Tensor, "state batch position d_model"]
) -> Iterator[tuple[Map, Map]]:
    """From the last sublayer to the first: how gradients, many at once, get through it and past it."""
    functions = sublayers(model)
    for k in reversed(range(len(functions))):
        branch, norm = functions[k]
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be differentiated in batches
            write, back_branch = _pull_back(branch, states[k])
            _, back_norm = _pull_back(norm, states[k] + write)
            yield _ways(back_branch, back_norm)


def _pull_back(f: Map, x: Tensor) -> tuple[Tensor, Map]:
    """The value of `f` at `x`, and the map from a gradient at the output to that at the input."""
    result: tuple[Any, ...] = vjp(f, x)
    value, back = result[0], result[1]
    return value, lambda gradient: back(gradient)[0]


def _ways(back_branch: Map, back_norm: Map) -> tuple[Map, Map]:
    def straight(above: Tensor) -> Tensor:
        return vmap(back_norm)(above)

    def through(above: Tensor) -> Tensor:
        return vmap(lambda g: back_branch(back_norm(g)))(above)

    return through, straight


def shares(parts: Float[Tensor, "part batch position d_model"]) -> Float[np.ndarray, "part"]:
    r"""Each part's share of the sum: its projection on the sum, divided by the sum's length.

    $\langle p, s \rangle / \langle s, s \rangle$ over all entries: the shares add up to one, and a part
    that works against the sum has a negative one.
    """
    total = parts.sum(0)
    share = (parts * total).flatten(1).sum(1) / total.square().sum()
    return share.double().cpu().numpy()


def branch_gains(
    model: Decoder | Encoder,
    states: Float[Tensor, "state batch position d_model"],
    gradient: Float[Tensor, "batch position d_model"],
) -> Float[np.ndarray, "sublayer"]:
    """For each sublayer how much longer or shorter its branch alone makes this gradient.

    The length of g J over the length of g, over all entries, J being the branch's Jacobian at the state.
    """
    gains = []
    for k, (branch, _) in enumerate(sublayers(model)):
        _, back = _pull_back(branch, states[k])
        gains.append(float(back(gradient).detach().norm() / gradient.norm()))
    return np.array(gains)


# The stream itself ---------------------------------------------------------------------------------


def kept_cosines(
    states: Float[Tensor, "state batch position d_model"],
) -> Float[np.ndarray, "step"]:
    """Mean cosine between each state and the next: 1 when the direction is kept, 0 when it is new."""
    return _numpy(F.cosine_similarity(states[:-1], states[1:], dim=-1).mean(dim=(1, 2)))


def step_ratios(states: Float[Tensor, "state batch position d_model"]) -> Float[np.ndarray, "step"]:
    """Mean length of the change from each state to the next, divided by the mean length before it."""
    return _numpy(states.diff(dim=0).norm(dim=-1).mean(dim=(1, 2))) / stream_norms(states)[:-1]


def growth(norms: Float[np.ndarray, "state"]) -> float:
    """Slope of log(norm) against the number of the state: relative growth per step."""
    return float(np.polyfit(np.arange(norms.size), np.log(norms), 1)[0])


@torch.no_grad()
def embedding_part(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "state batch position d_model"]:
    r"""The part of each state that comes from the embedding along the skip connections alone.

    Without a norm on the stream that is the embedding itself, everywhere. A norm *on* the stream
    (post-norm) is a linear map once its divisor is fixed at the value it has in this pass: centre, divide,
    multiply by the weight. The part goes through that map at each norm and loses size there.

    Raises:
        ValueError: when a post-norm model's norm is not a LayerNorm.
    """
    account = ledger(model, tokens)
    part = account.states[0]
    if model.config.placement == "pre" or model.config.norm == "none":
        return part.expand_as(account.states)
    if model.config.norm != "layer":
        raise ValueError(
            f"expected the norm 'layer' in a post-norm model, got {model.config.norm!r}; "
            "only LayerNorm's linear part is known here"
        )
    with capture(model, "blocks.*.scale") as scales:
        model(tokens)
    parts = [part]
    for name in account.names:
        norm = model.get_submodule(f"{name}_norm")
        weight = norm.get_parameter("weight")
        part = (part - part.mean(dim=-1, keepdim=True)) / scales[f"{name}_norm.scale"] * weight
        parts.append(part)
    return torch.stack(parts)


@torch.no_grad()
def mirror_attention(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> Float[np.ndarray, "block"]:
    """For each block the attention weight that position i gives to position n - 1 - i.

    Averaged over heads, positions and sequences. In the reversal task it tells in which block attention
    fetches the answer.
    """
    with capture(model, "*.attention.pattern") as seen:
        model(tokens)
    patterns = torch.stack(
        [seen[f"blocks.{i}.attention.pattern"] for i in range(model.config.n_layers)]
    )
    mirrored = patterns.flip(-1).diagonal(dim1=-2, dim2=-1)
    return _numpy(mirrored.mean(dim=(1, 2, 3)))


def needed_cosine(before: float, writes: Sequence[float], after: float) -> float:
    r"""Mean cosine that the stream and its writes must have, for their lengths to add up as stated.

    From $|x + \sum_k w_k|^2 = \sum_k |v_k|^2 + 2 \sum_{k<m} |v_k||v_m| \cos_{km}$ with $v_0 = x$: the
    average of the cosines, weighted by the products of lengths. Outside [-1, 1] the lengths contradict
    one another.

    >>> needed_cosine(3.0, [4.0], 5.0)
    0.0
    >>> needed_cosine(3.0, [4.0], 7.0)
    1.0
    """
    lengths = np.array([before, *writes], dtype=float)
    squares = float(np.square(lengths).sum())
    pairs = float(lengths.sum()) ** 2 - squares
    return (after**2 - squares) / pairs


@contextmanager
def deleted(model: Stack, sublayer: str, what: Literal["branch", "skip"]) -> Iterator[None]:
    """Take one branch or one skip connection out of a pre-norm model while the `with` block runs.

    Without the branch the stream passes the sublayer unchanged; without the skip connection the sublayer's
    write replaces the stream. Nothing is retrained.

    Args:
        model: a pre-norm (or norm-free) model with residual connections.
        sublayer: `blocks.{i}.attention` or `blocks.{i}.feedforward`.
        what: which of the two to delete.

    Raises:
        ValueError: when the model has norms on the stream or no skip connections.
        KeyError: when there is no such sublayer.
    """
    if model.config.placement == "post" and model.config.norm != "none":
        raise ValueError("expected a pre-norm model: after a norm the write cannot be told apart")
    if not model.config.residual:
        raise ValueError("expected a model with residual connections, this one has none to delete")
    if what == "branch":
        with intervene(model, {f"{sublayer}.out": 0.0}):
            yield
        return
    block, part = sublayer.rsplit(".", 1)
    after = f"{block}.residual_mid" if part == "attention" else f"{block}.residual_post"
    write: dict[str, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        write["last"] = value
        return value

    with intervene(model, {f"{sublayer}.out": keep, after: lambda _: write["last"]}):
        yield


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()
