r"""The way back: what the residual connections do to gradients.

Convention: a gradient is a row like the vector it belongs to, and a Jacobian $J$ has entries
$J_{oi} = \partial f_o / \partial x_i$, so that a gradient $g$ at the output becomes $g J$ at the input. A
*branch* is the map from the stream to what a sublayer writes (its norm included in pre-norm models).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.block import Block
from measured_transformer.tasks.task import Batch
from measured_transformer.training.losses import cross_entropy

Map = Callable[[Tensor], Tensor]


def jacobian(f: Map, x: Tensor) -> Float[Tensor, "output input"]:
    """The Jacobian of `f` at `x` as a matrix, inputs and outputs flattened."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be differentiated in batches
        rows = jacrev(f)(x)
    return rows.detach().reshape(-1, x.numel())


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


def stream_gradients(model: Decoder | Encoder, batch: Batch) -> Float[np.ndarray, "state"]:
    """Mean length, over tokens, of the loss gradient at each state of the stream, embedding first.

    The loss is the mean over the scored positions, as in training; weights get no gradient.
    """
    n_layers = model.config.n_layers
    names = [
        "embedding",
        *(
            f"blocks.{i}.{tap}"
            for i in range(n_layers)
            for tap in ("residual_mid", "residual_post")
        ),
    ]
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        gradients = torch.autograd.grad(loss, [seen[name] for name in names])
    return np.array([float(g.norm(dim=-1).mean()) for g in gradients])


def last_gradient(model: Decoder | Encoder, last: Tensor, batch: Batch) -> Tensor:
    """The loss gradient at the last state of the stream, below the final norm."""
    with torch.enable_grad():
        x = last.detach().clone().requires_grad_()
        loss = cross_entropy(model.unembed(x), batch.targets, batch.scored)
        return torch.autograd.grad(loss, x)[0]


def sublayers(model: Decoder | Encoder) -> list[tuple[Map, Map]]:
    r"""For each sublayer in order the two functions (branch, norm on the stream).

    The stream after the sublayer is norm(x + branch(x)), where the norm is the identity in pre-norm
    models, and the branch contains it there. Positions must enter at the embedding.

    Raises:
        ValueError: for rotary and ALiBi positions, and for models without residual connections.
    """
    config = model.config
    if config.positions in ("rotary", "alibi", "relative") or not config.residual:
        raise ValueError(
            "expected residual connections and positions that enter at the embedding, got "
            f"residual={config.residual} and positions={config.positions!r}"
        )
    causal = isinstance(model, Decoder)
    found: list[tuple[Map, Map]] = []
    for block in model.blocks:
        assert isinstance(block, Block)
        found += [_attention(block, causal), _feedforward(block)]
    return found


def _attention(block: Block, causal: bool) -> tuple[Map, Map]:
    if block.placement == "pre":
        return lambda x: block.attention(block.attention_norm(x), causal=causal), _same
    return lambda x: block.attention(x, causal=causal), block.attention_norm


def _feedforward(block: Block) -> tuple[Map, Map]:
    if block.placement == "pre":
        return lambda x: block.feedforward(block.feedforward_norm(x)), _same
    return block.feedforward, block.feedforward_norm


def _same(x: Tensor) -> Tensor:
    return x


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
