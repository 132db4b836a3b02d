r"""What the feed-forward network computes, where the parameters are, and what attention can do without it.

The network acts on one position, $\text{FFN}(x) = g(x W_1 + b_1) W_2 + b_2$; attention mixes positions. First
exact things: formulas, the Jacobian between positions, superposition, what an activation does, and counts from
published configurations. Then models that are trained without one of the two, on jobs that ask for moving
information, for transforming it, or for both. (GELU: Hendrycks and Gimpel, 2016; gates: Shazeer, 2020.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.ablation import Component, ablated, accuracy, effects, loss
from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.gradients import jacobian
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import Count, count_parameters
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import Activation, FeedForward, activation_function
from measured_transformer.tasks.bit_pairs import BitPairs
from measured_transformer.tasks.bit_table import BitTable
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.task import Batch, Task, held_out
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model
from measured_transformer.training.schedules import WarmupStableDecay
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.feedforward import bit_vectors, without_network
from measured_transformer.variants.substitutes import Attention, Instead, Network, network_made_up
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

Array = Float[np.ndarray, "..."]


# Drawn parts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A causal attention layer, a network of the same width and an input for both, in float64.

    Attributes:
        attention, network: with random weights and biases that are not zero.
        x: an input.
    """

    attention: MultiHeadAttention
    network: FeedForward
    x: Float[Tensor, "batch position d_model"]


def drawn(seed: int, *, activation: Activation = "relu", batch: int = 2) -> Drawn:
    """Draw sizes, weights and an input.

    Args:
        seed: of all that is drawn.
        activation: of the network.
        batch: number of sequences.
    """
    sizes, draws = random.Random(seed), make_generator(seed, "drawn parts")
    heads = sizes.choice([1, 2, 3])
    width = 2 * heads * sizes.randint(1, 3)
    with seeded(seed):
        attention = MultiHeadAttention(width, heads).double()
        network = FeedForward(width, sizes.randint(2, 24), activation=activation).double()
    with torch.no_grad():
        for parameter in (*attention.parameters(), *network.parameters()):
            if parameter.ndim == 1:
                parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
    x = torch.randn(batch, sizes.randint(3, 7), width, generator=draws, dtype=torch.float64)
    return Drawn(attention, network, x)


@torch.no_grad()
def formula(
    network: FeedForward,
    x: Float[Tensor, "*batch d_model"],
    *,
    without: str = "",
    activation: Activation | None = None,
) -> Float[Tensor, "*batch d_model"]:
    r"""The network without a gate, written out: $g(x W_1 + b_1) W_2 + b_2$, with rows as vectors.

    Args:
        network: whose weights are used.
        x: any number of vectors.
        without: 'b1', 'b2' or 'activation' leaves that out, to see whether a test would notice.
        activation: another than the network's own.

    Raises:
        ValueError: when the network has a gate or no biases, or something else shall be left out.
    """
    if without not in ("", "b1", "b2", "activation"):
        raise ValueError(f"without must be 'b1', 'b2', 'activation' or '', got {without!r}")
    b1, b2 = network.up.bias, network.down.bias
    if network.gate is not None or b1 is None or b2 is None:
        raise ValueError("expected a network with biases and without a gate")
    inner = x @ network.up.weight.T
    if without != "b1":
        inner = inner + b1
    if without != "activation":
        inner = activation_function(activation or network.activation)(inner)
    outer = inner @ network.down.weight.T
    return outer if without == "b2" else outer + b2


@torch.no_grad()
def as_torch_layers(network: FeedForward) -> nn.Sequential:
    """The same network made of PyTorch's own layers, as an independent oracle; ReLU or GELU between.

    Raises:
        ValueError: for another activation.
    """
    between = {"relu": nn.ReLU(), "gelu": nn.GELU()}.get(network.activation)
    if between is None:
        raise ValueError(f"expected activation 'relu' or 'gelu', got {network.activation!r}")
    layers = []
    for ours in (network.up, network.down):
        layer = nn.Linear(ours.in_features, ours.out_features).double()
        layer.load_state_dict(ours.state_dict())
        layers.append(layer)
    return nn.Sequential(layers[0], between, layers[1])


@torch.no_grad()
def block_error(seed: int, activation: Activation, *, other: Activation | None = None) -> float:
    """Largest entry of stream after - stream before - network(norm(stream before)), in a random pre-norm block.

    The norm, both biases and the activation are written out.

    Args:
        seed: of sizes, weights and input.
        activation: of the block.
        other: what is written out instead of it, which must not fit.
    """
    parts = drawn(seed, activation=activation)
    width = parts.x.shape[-1]
    norms = [nn.LayerNorm(width).double() for _ in range(2)]
    block = Block(parts.attention, parts.network, *norms)
    with capture(block, "residual_mid", "residual_post") as seen:
        block(parts.x, causal=True)
    before, after = seen["residual_mid"], seen["residual_post"]
    centred = before - before.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + norms[1].eps).sqrt()
    wrote = formula(parts.network, scaled, activation=other)
    return float((after - before - wrote).abs().max())


# Between positions ---------------------------------------------------------------------------------


def _map_of(layer: nn.Module, *, causal: bool = True) -> Any:
    if isinstance(layer, MultiHeadAttention):
        return lambda x: layer(x, causal=causal)
    return layer


@torch.no_grad()
def shuffle_error(layer: nn.Module, x: Float[Tensor, "batch position d_model"], seed: int) -> float:
    """Largest difference between the output of shuffled positions and the shuffled output.

    Attention is causal here, so that order matters to it. The order drawn is never the one that was.
    """
    order = torch.randperm(x.shape[1], generator=make_generator(seed, "shuffle"))
    if torch.equal(order, torch.arange(x.shape[1])):
        order = order.flip(0)
    f = _map_of(layer)
    return float((f(x[:, order]) - f(x)[:, order]).abs().max())


def blocks_between(
    layer: nn.Module, x: Float[Tensor, "batch position d_model"], *, causal: bool = True
) -> Float[Tensor, "position position"]:
    """Norms of the Jacobian's blocks: how the output at a row's position depends on the input at a column's.

    Args:
        layer: attention or a network.
        x: one sequence.
        causal: whether attention has the causal mask; a network knows none.

    Raises:
        ValueError: when there is more than one sequence.
    """
    if x.shape[0] != 1:
        raise ValueError(f"expected one sequence, got {x.shape[0]}")
    n, width = x.shape[1:]
    whole = jacobian(_map_of(layer, causal=causal), x).reshape(n, width, n, width)
    return whole.square().sum(dim=(1, 3)).sqrt()


def largest_between(blocks: Float[Tensor, "position position"]) -> float:
    """The largest norm of a block between different positions."""
    return float((blocks - blocks.diagonal().diag()).max())


def largest_above(blocks: Float[Tensor, "position position"]) -> float:
    """The largest norm of a block above the diagonal: of an output by an input behind it."""
    return float(blocks.triu(1).max())


def smallest_seen(blocks: Float[Tensor, "position position"], *, strictly: bool = False) -> float:
    """The smallest norm of a block on or below the diagonal; `strictly` leaves the diagonal out."""
    n = len(blocks)
    return float(blocks[torch.ones(n, n).tril(-1 if strictly else 0).bool()].min())


# Linear in what? -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Superposition:
    """How far a causal attention layer is from linear, each as the largest entry of an error.

    Attributes:
        fixed: with the weights held at one pattern, f(a x + b y) - a f(x) - b f(y).
        whole: the same with the weights computed from each input.
        bent: the same for a drawn ReLU network of the layer's width.
        span: distance of one head's output from the span of its values.
        span_behind: distance of the same after a drawn network that acts on it.
    """

    fixed: float
    whole: float
    bent: float
    span: float
    span_behind: float


@torch.no_grad()
def superposition(seed: int) -> Superposition:
    """Draw an attention layer without biases and see in what it is linear.

    A bias would add a constant, which spoils superposition for reasons that have nothing to do with attention.
    """
    sizes, draws = random.Random(seed), make_generator(seed, "superposition")
    heads = sizes.choice([1, 2, 3])
    d_head = sizes.randint(4, 6)
    n = d_head - sizes.randint(
        1, 2
    )  # fewer values than numbers in one, or they would span everything
    width = heads * d_head
    with seeded(seed):
        layer = MultiHeadAttention(width, heads, bias=False).double()
        network = FeedForward(d_head, 4 * d_head, activation="relu", bias=False).double()
        wide = FeedForward(width, 4 * width, activation="relu", bias=False).double()
    x, y, z = torch.randn(3, 1, n, width, generator=draws, dtype=torch.float64)
    a, b = (0.5 + torch.rand(2, generator=draws, dtype=torch.float64)).tolist()

    def whole(u: Tensor) -> Tensor:
        out: Tensor = layer(u, causal=True)
        return out

    with capture(layer, "pattern") as seen:
        layer(z, causal=True)
    pattern = seen["pattern"]

    def fixed(u: Tensor) -> Tensor:
        with intervene(layer, {"pattern": lambda _: pattern}):
            out: Tensor = layer(u, causal=True)
        return out

    with capture(layer, "values", "mixed") as seen:
        layer(x, causal=True)
    values, mixed = seen["values"][0, 0], seen["mixed"][0, 0]
    return Superposition(
        fixed=_superposed(fixed, x, y, a, b),
        whole=_superposed(whole, x, y, a, b),
        bent=_superposed(wide, x, y, a, b),
        span=off_span(mixed, values),
        span_behind=off_span(network(mixed[None])[0], values),
    )


def _superposed(f: Any, x: Tensor, y: Tensor, a: float, b: float) -> float:
    return float((f(a * x + b * y) - a * f(x) - b * f(y)).abs().max())


def off_span(
    vectors: Float[Tensor, "vector d_model"], spanning: Float[Tensor, "spanning d_model"]
) -> float:
    """Largest entry of what is left of the vectors when their part in the span of others is taken off."""
    basis = torch.linalg.qr(spanning.T)[0]
    return float((vectors - vectors @ basis @ basis.T).abs().max())


# Bends ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallNetwork:
    """A network of ReLU neurons on a stream of two numbers, small enough to follow by hand.

    Attributes:
        w1: weights into the neurons.
        b1: biases of the neurons.
        w2: what each neuron writes, a row each.
    """

    w1: Float[Tensor, "2 d_ff"]
    b1: Float[Tensor, "d_ff"]
    w2: Float[Tensor, "d_ff 2"]

    def before(self, x: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch d_ff"]:
        """What enters the activation."""
        return x @ self.w1 + self.b1

    def neurons(self, x: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch d_ff"]:
        """What leaves the activation."""
        return self.before(x).relu()

    def __call__(self, x: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch 2"]:
        """What the network writes."""
        return self.neurons(x) @ self.w2


def by_hand() -> SmallNetwork:
    """The chapter's network of three neurons.

    >>> network, x = by_hand(), torch.tensor([2.0, 1.0])
    >>> network.before(x).tolist(), network.neurons(x).tolist(), network(x).tolist()
    ([1.0, 1.0, -2.0], [1.0, 1.0, 0.0], [-1.0, 1.0])
    """
    return SmallNetwork(
        w1=torch.tensor([[1.0, 1.0, -1.0], [-1.0, 1.0, 0.0]]),
        b1=torch.tensor([0.0, -2.0, 0.0]),
        w2=torch.tensor([[1.0, 0.0], [-2.0, 1.0], [1.0, 3.0]]),
    )


def curve(x: Float[Array, "x"]) -> Float[Array, "x"]:
    """The curve that networks of different widths are fitted to.

    >>> float(curve(np.array([0.0]))[0])
    0.0
    """
    return np.sin(2 * x) + 0.3 * x


@dataclass(frozen=True)
class Fit:
    """A network of one input fitted to `curve`.

    Attributes:
        knots: where its neurons begin.
        values: the fit at the x of the call.
        error: root of the mean squared difference.
    """

    knots: Array
    values: Array
    error: float


def fitted(d_ff: int, x: Float[Array, "x"], *, seed: int, tries: int = 20) -> Fit:
    """Fit a network of `d_ff` ReLU neurons to `curve` by least squares.

    The weights into the neurons are drawn (their sign and the place where each neuron begins), the weights out
    of them, and the output's bias, are solved for; of several draws the best is kept.

    Raises:
        ValueError: when there is no neuron or no try.
    """
    if d_ff < 1 or tries < 1:
        raise ValueError(f"expected at least one neuron and one try, got {d_ff} and {tries}")
    draws = np.random.default_rng(seed)
    best: Fit | None = None
    target = curve(x)
    for _ in range(tries):
        knots = draws.uniform(x.min(), x.max(), d_ff)
        signs = draws.choice([-1.0, 1.0], d_ff)
        neurons = np.maximum(0.0, signs * (x[:, None] - knots))
        columns = np.column_stack([neurons, np.ones_like(x)])
        weights = np.linalg.lstsq(columns, target, rcond=None)[0]
        values = columns @ weights
        error = float(np.sqrt(np.mean(np.square(values - target))))
        if best is None or error < best.error:
            best = Fit(np.sort(knots), values, error)
    assert best is not None
    return best


# How an activation bends ---------------------------------------------------------------------------


def derivative(
    activation: Activation, x: Float[Tensor, "x"], *, order: int = 1
) -> Float[Tensor, "x"]:
    """The derivative of an activation at each x, by PyTorch's differentiation.

    Args:
        activation: its name; of gated forms the function on the gate.
        x: where.
        order: 1 or 2.

    Raises:
        ValueError: for another order.
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order}")
    with torch.enable_grad():
        at = x.detach().clone().requires_grad_()
        value = activation_function(activation)(at)
        for remaining in range(order, 0, -1):
            (value,) = torch.autograd.grad(value.sum(), at, create_graph=remaining > 1)
    return value.detach()


def gelu_derivative(x: Float[Tensor, "x"], *, second_term: bool = True) -> Float[Tensor, "x"]:
    r"""$\Phi(x) + x \varphi(x)$, from the Gaussian distribution function and its density."""
    below = (1 + torch.erf(x / math.sqrt(2))) / 2
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return below + x * density if second_term else below


def largest_jump(activation: Activation, *, step: float = 1e-6, reach: float = 3.0) -> float:
    """Largest change of the derivative over a step, on a coarse grid and in a fine neighbourhood of zero.

    Outside of that neighbourhood, every 200th of a unit is looked at: for a function that is smooth there, or
    straight, that is enough.
    """
    fine = torch.arange(-50, 50, dtype=torch.float64) * step + step / 2
    coarse = torch.linspace(-reach, reach, round(400 * reach) + 1, dtype=torch.float64)
    at = torch.cat([fine, coarse])
    change = derivative(activation, at + step) - derivative(activation, at)
    return float(change.abs().max())


def lipschitz(activation: Activation, *, of_derivative: bool = False, reach: float = 8.0) -> float:
    """Largest absolute slope between -reach and reach: of the function, or of its derivative.

    ReLU's derivative has none: it jumps. The result is then infinite.
    """
    if of_derivative and activation in ("relu", "reglu"):
        return math.inf
    x = torch.linspace(-reach, reach, 320001, dtype=torch.float64)
    return float(derivative(activation, x, order=2 if of_derivative else 1).abs().max())


@torch.no_grad()
def approximation_error(activation: Activation, x: Float[Tensor, "x"]) -> Float[Tensor, "x"]:
    """What an approximation of GELU gives minus the exact form."""
    return activation_function(activation)(x) - F.gelu(x)


# Where parameters are ------------------------------------------------------------------------------

_GPT: dict[str, Any] = {"positions": "learned", "max_length": 1024, "activation": "gelu_tanh"}
_GATED: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "activation": "swiglu",
    "bias": False,
}
MODELS: Mapping[str, Config] = {
    "BERT-base": Config(
        vocab=30522, d_model=768, n_layers=12, n_heads=12, d_ff=3072, max_length=512,
        positions="learned", placement="post", token_types=2, embedding_norm=True, pooler=True,
        head="none", embedding_scale=1.0,
    ),
    "GPT-2": Config(vocab=50257, d_model=768, n_layers=12, n_heads=12, tie_embeddings=True, **_GPT),
    "LLaMA 7B": Config(vocab=32000, d_model=4096, n_layers=32, n_heads=32, d_ff=11008, **_GATED),
    "Mistral 7B": Config(
        vocab=32000, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=8, d_ff=14336, **_GATED
    ),
    "Llama 3 8B": Config(
        vocab=128256, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=8, d_ff=14336, **_GATED
    ),
    "Llama 3 70B": Config(
        vocab=128256, d_model=8192, n_layers=80, n_heads=64, n_kv_heads=8, d_ff=28672, **_GATED
    ),
    "Gemma 2 9B": Config(
        vocab=256000, d_model=3584, n_layers=42, n_heads=16, n_kv_heads=8, d_head=256, d_ff=14336,
        tie_embeddings=True, **{**_GATED, "activation": "geglu_tanh"},
    ),
    "Qwen3 8B": Config(
        vocab=151936, d_model=4096, n_layers=36, n_heads=32, n_kv_heads=8, d_head=128, d_ff=12288,
        **_GATED,
    ),
    "SmolLM2 135M": Config(
        vocab=49152, d_model=576, n_layers=30, n_heads=9, n_kv_heads=3, d_ff=1536,
        tie_embeddings=True, **_GATED,
    ),
}  # fmt: skip
"""Published models by name, from their papers and the settings published with their weights.

BERT is counted with its pooler and without the layer that predicts masked words. Of the norms those on queries
and keys (Qwen3) and behind sublayers (Gemma 2) are not counted: they are a few thousand numbers a layer.
"""
LENGTHS = ("quarter", "equal", "four")
"""Tokens, in units of the width of the stream, at which operations are counted."""


def count(name: str) -> Count:
    """The parameters of a published model, part by part."""
    config = MODELS[name]
    return count_parameters(config, "encoder" if config.pooler else "decoder")


@measurement(seeds=1, coords={"model": tuple(MODELS), "length": LENGTHS, "side": range(4)})
def counted(seed: int) -> dict[str, Any]:
    """Parameters of published models by part, in millions, and the network's share of a layer's operations."""
    counts = [count(name) for name in MODELS]

    def millions(of: Any) -> tuple[str, list[float]]:
        return "model", [float(of(one)) / 1e6 for one in counts]

    network = FeedForward(768, 3072)
    return {
        "attention": millions(lambda c: c.attention),
        "network": millions(lambda c: c.feedforward),
        "rest": millions(lambda c: c.total - c.attention - c.feedforward),
        "embedding": millions(lambda c: c.embedding + c.positions),
        "head": millions(lambda c: c.head),
        "total": millions(lambda c: c.total),
        "ratio": ("model", [c.feedforward / c.attention for c in counts]),
        "share": ("model", [c.feedforward / c.total for c in counts]),
        "wider": ("model", [c.neurons / c.d_model for c in MODELS.values()]),
        "work": ("length", [1 - Operations(n, 256).share for n in (64, 256, 1024)]),
        "shapes": ("side", [*network.up.weight.T.shape, *network.down.weight.T.shape]),
        "parameters": sum(q.numel() for q in network.parameters()),
    }


# Identities ----------------------------------------------------------------------------------------

_SWAPPED: Mapping[Activation, Activation] = {"relu": "gelu", "gelu": "silu", "silu": "relu"}
_EXACT = (
    "relu", "gelu", "whole", "block", "shuffled", "between", "ahead", "fixed", "span",
)  # fmt: skip


@measurement(seeds=100, tolerance=dict.fromkeys(_EXACT, 1e-12))
def identities(seed: int) -> dict[str, Any]:
    """Largest errors of the network's formulas and of what they say, each beside a version that must fail."""
    relu, gelu = (drawn(seed, activation=g) for g in ("relu", "gelu"))

    def worst(parts: Drawn, other: Tensor) -> float:
        return float((other - parts.network(parts.x)).detach().abs().max())

    def written(parts: Drawn, without: str = "") -> float:
        return worst(parts, formula(parts.network, parts.x, without=without))

    one = drawn(seed, batch=1)
    blocks = {part: blocks_between(getattr(one, part), one.x) for part in ("attention", "network")}
    found = superposition(seed)
    return {
        "relu": worst(relu, as_torch_layers(relu.network)(relu.x)),
        "gelu": worst(gelu, as_torch_layers(gelu.network)(gelu.x)),
        "relu_control": written(relu, "activation"),
        "gelu_control": written(gelu, "activation"),
        "whole": written(relu),
        "without_b1": written(relu, "b1"),
        "without_b2": written(relu, "b2"),
        "block": max(block_error(seed, g) for g in _SWAPPED),
        "block_control": min(block_error(seed, g, other=o) for g, o in _SWAPPED.items()),
        "shuffled": shuffle_error(one.network, one.x, seed),
        "shuffled_control": shuffle_error(one.attention, one.x, seed),
        "between": largest_between(blocks["network"]),
        "between_control": largest_between(blocks["attention"]),
        "seen": smallest_seen(blocks["attention"]),
        "seen_control": smallest_seen(blocks["network"]),
        "ahead": largest_above(blocks["attention"]),
        "ahead_control": largest_above(blocks_between(one.attention, one.x, causal=False)),
        "fixed": found.fixed,
        "mixed": found.whole,
        "bent": found.bent,
        "span": found.span,
        "span_behind": found.span_behind,
    }


NEURONS = (1, 2, 8, 64)
X = np.linspace(-3, 3, 241)
"""Where the curve is fitted."""


@measurement(seeds=5, coords={"neurons": NEURONS}, tolerance={"error": 1e-6})
def fits(seed: int) -> dict[str, Any]:
    """Root mean square error of networks of one input, fitted to a curve."""
    return {"error": ("neurons", [fitted(m, X, seed=seed).error for m in NEURONS])}


_SMOOTH = ("relu", "gelu", "silu")


@measurement(seeds=1, coords={"activation": _SMOOTH}, tolerance={"formula": 1e-12, "slope": 1e-12})
def activations(seed: int) -> dict[str, Any]:
    """GELU against its formulas, its approximations against GELU, and how steep functions and slopes are."""
    x = 16 * torch.rand(100, generator=make_generator(seed, "activations"), dtype=torch.float64) - 8
    grid = torch.linspace(-8, 8, 160001, dtype=torch.float64)
    written = x * (1 + torch.erf(x / 2**0.5)) / 2
    exact, slope = derivative("gelu", grid), derivative("gelu", x)
    return {
        "formula": (written - F.gelu(x)).abs().max(),
        "slope": (slope - gelu_derivative(x)).abs().max(),
        "slope_control": (slope - gelu_derivative(x, second_term=False)).abs().max(),
        "tanh": approximation_error("gelu_tanh", grid).abs().max(),
        "tanh_slope": (derivative("gelu_tanh", grid) - exact).abs().max(),
        "sigmoid": approximation_error("gelu_sigmoid", grid).abs().max(),
        "jump": largest_jump("gelu"),
        "jump_control": largest_jump("relu"),
        "steepest": ("activation", [lipschitz(g) for g in _SMOOTH]),  # type: ignore[arg-type]
        "bends": (
            "activation",
            [0.0, *(lipschitz(g, of_derivative=True) for g in ("gelu", "silu"))],
        ),
        "lowest": F.gelu(grid).min(),
    }


# Jobs and models -----------------------------------------------------------------------------------

COMPANY = BitPairs(bits=6, length=8)
JOBS: Mapping[str, Task] = {
    "copy": BitTable(table="identity", mirrored=True),
    "recall": JoinedRecall(pairs=6, queries=4, keys=12, values=8),
    "alone": BitPairs(bits=6, length=1),
    "table": BitTable(),
    "both": BitTable(mirrored=True),
    "sums": ModularAddition(modulus=23, train_share=0.9),
    "text": TextLM(corpus="python", length=32),
}
"""What models are trained on: moving, transforming, both, and text."""
ARMS = ("whole", "heads", "neurons", "layers", "linear", "removed")
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
FAST_RATES = (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2)
"""The grid for sums and text, the same for all models as the other one is."""


@dataclass(frozen=True)
class Substituted:
    """A preparation for training: something in the place of networks or attention, and tokens given as bits.

    Attributes:
        network, attention: what stands there, see `variants.substitutes.Instead`.
        bits: of a token, whose vector is then fixed, see `variants.feedforward.bit_vectors`; 0 for a learned
            vector.
    """

    network: Network = "whole"
    attention: Attention = "whole"
    bits: int = 0

    def __call__(self, model: Model) -> None:
        """Change the fresh model in place."""
        Instead(self.network, self.attention)(model)
        if self.bits:
            table = model.token_embedding.weight  # type: ignore[union-attr]
            table.requires_grad_(False).copy_(bit_vectors(self.bits, model.config))  # type: ignore[operator]


def config_of(task: Task) -> Config:
    """The whole model for a task: one block of width 32 with 128 neurons; two for sums and text."""
    deep = isinstance(task, (ModularAddition, TextLM))
    return Config(
        vocab=task.vocab,
        d_model=32,
        n_layers=2 if deep else 1,
        n_heads=4,
        positions="none" if isinstance(task, BitPairs) else "learned",
        max_length=task.length,
    )


def arm(task: Task, name: str) -> tuple[Config, Substituted]:
    """A model for a task and what is done to it when it is fresh.

    `whole`; without networks and with as many parameters as the whole, by three times the heads (`heads`) or
    layers (`layers`); without networks and nothing in exchange (`removed`); with networks that do not bend
    (`linear`); without attention and with as many parameters, by half as many neurons again (`neurons`).
    """
    config = config_of(task)
    bits = task.bits if isinstance(task, (BitPairs, BitTable)) else 0
    less = without_network(config)
    found: dict[str, tuple[Config, Substituted]] = {
        "whole": (config, Substituted(bits=bits)),
        "heads": (less["heads"], Substituted("none", bits=bits)),
        "layers": (less["layers"], Substituted("none", bits=bits)),
        "removed": (config, Substituted("none", bits=bits)),
        "linear": (config, Substituted("linear", bits=bits)),
        "neurons": (network_made_up(config), Substituted(attention="none", bits=bits)),
    }
    return found[name]


def trained(task: Task, name: str, seed: int) -> Job:
    """One training of an arm on a task, at the learning rate that suits the arm."""
    config, prepare = arm(task, name)
    options: dict[str, Any] = {"prepare": prepare, "batch_size": 32}
    steps, rates, few = 300, RATES, 2
    if isinstance(task, ModularAddition):
        steps, rates, few = 600, FAST_RATES, 1
        fall = WarmupStableDecay(warmup=10, steps=steps, decay=steps // 4)
        options |= {"batch_size": 64, "weight_decay": 1.0, "schedule": fall}
    if isinstance(task, TextLM):
        steps, rates, few = 400, FAST_RATES, 1
        options |= {"batch_size": 16}
    label = "company" if task == COMPANY else next(k for k, t in JOBS.items() if t == task)
    search = Search(
        f"feed-forward-{label}-{name}", config, task, rates, tuning_seeds(few), steps, options
    )
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)


def weights(task: Task, name: str) -> int:
    """Trained parameters of an arm."""
    config, prepare = arm(task, name)
    model = make_model(config, causal=task.causal, seed=0)
    prepare(model)
    return sum(q.numel() for q in model.parameters() if q.requires_grad)


# In company ----------------------------------------------------------------------------------------

ALONE = ("whole", "heads", "layers")
TOKENS = (1, 2, 4, 8, 16)


def company_trainings(seed: int) -> dict[str, Job]:
    """Exclusive-ors of pairs of bits in rows of eight tokens, with networks and without."""
    return {name: trained(COMPANY, name, seed) for name in ALONE}


@measurement(
    seeds=10,
    coords={"arm": ALONE, "tokens": TOKENS},
    trainings=company_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2, "by_length": 0.3, "frozen": 0.3},
)
def company(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Exclusive-ors within a token: accuracy by the number of tokens in a row, and with frozen patterns."""
    models = [runs[name].model for name in ALONE]
    at = [[accuracy_at(m, COMPANY, length=n, seed=seed) for n in TOKENS] for m in models]
    return {
        "accuracy": ("arm", [evaluate(m, COMPANY, seed=seed).accuracy for m in models]),
        "by_length": (("arm", "tokens"), at),
        "frozen": ("arm", [accuracy_frozen(m, COMPANY, seed=seed) for m in models]),
        "weights": ("arm", [weights(COMPANY, name) for name in ALONE]),
    }


def accuracy_at(model: Model, task: Task, *, length: int, seed: int) -> float:
    """Share of right answers on rows of another length than in training."""
    batch = task.batch(make_generator(seed, f"evaluation at {length}"), 256, length=length)
    return accuracy(model, batch)


def accuracy_frozen(model: Model, task: Task, *, seed: int, size: int = 256) -> float:
    """Share of right answers on rows held out, when no head may react to what it reads.

    Every head keeps one pattern for all rows, its mean over rows of the training's kind.

    Raises:
        KeyError: when a block has no attention.
    """
    batch, reference = _sequences(task, seed, size)
    patterns = [Component(f"blocks.{i}.attention.pattern") for i in range(model.config.n_layers)]
    with ablated(model, patterns, "mean", reference=reference):
        return accuracy(model, batch)


# Which job needs which -----------------------------------------------------------------------------

THREE = ("whole", "heads", "neurons")
PARTS = ("network", "attention")


def jobs_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """On every job: the whole model, one with attention alone and one with networks alone."""
    return {(task, name): trained(JOBS[task], name, seed) for task in JOBS for name in THREE}


@measurement(
    seeds=10,
    coords={"job": tuple(JOBS), "arm": THREE, "part": PARTS},
    trainings=jobs_trainings,
    repeat="opening",
    tolerance={"loss": 0.5, "accuracy": 0.3, "taken": 2.0, "all_taken": 3.0},
)
def jobs(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Loss and accuracy without one of the two, and the rise of the loss when it is taken away afterwards."""
    scores = [[evaluate(runs[t, n].model, JOBS[t], seed=seed) for n in THREE] for t in JOBS]
    taken = [replaced(runs[t, "whole"].model, JOBS[t], seed=seed) for t in JOBS]
    axes = ("job", "arm")
    return {
        "loss": (axes, [[s.loss for s in row] for row in scores]),
        "accuracy": (axes, [[s.accuracy for s in row] for row in scores]),
        "weights": (axes, [[weights(JOBS[t], n) for n in THREE] for t in JOBS]),
        "taken": (("job", "part"), [[t.network.mean(), t.attention.mean()] for t in taken]),
        "all_taken": (("job", "part"), [[t.networks, t.attentions] for t in taken]),
    }


FOUR = ("whole", "linear", "removed", "heads")


def instead_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """A table and text, with networks and with what may stand in their place."""
    return {
        (task, name): trained(JOBS[task], name, seed) for task in ("table", "text") for name in FOUR
    }


@measurement(
    seeds=10,
    coords={"job": ("table", "text"), "arm": FOUR},
    trainings=instead_trainings,
    repeat="opening",
    tolerance={"loss": 0.5, "accuracy": 0.3},
)
def instead(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """In the place of the network: a linear one, nothing, or more attention."""
    scores = [
        [evaluate(runs[t, n].model, JOBS[t], seed=seed) for n in FOUR] for t in ("table", "text")
    ]
    axes = ("job", "arm")
    return {
        "loss": (axes, [[s.loss for s in row] for row in scores]),
        "accuracy": (axes, [[s.accuracy for s in row] for row in scores]),
    }


LAYERED = ("table", "alone", "sums")


def deeper_trainings(seed: int) -> dict[str, Job]:
    """Three times the layers of attention in the place of networks."""
    return {task: trained(JOBS[task], "layers", seed) for task in LAYERED}


@measurement(
    seeds=10,
    coords={"job": LAYERED},
    trainings=deeper_trainings,
    repeat="opening",
    tolerance={"loss": 0.5, "accuracy": 0.3},
)
def deeper(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Attention alone with three times the layers."""
    scores = [evaluate(runs[t].model, JOBS[t], seed=seed) for t in LAYERED]
    return {
        "loss": ("job", [s.loss for s in scores]),
        "accuracy": ("job", [s.accuracy for s in scores]),
    }


LARGER_RATES = (RATES[-1], 6.4e-2, 1.28e-1)


def lone_trainings(seed: int) -> dict[float, Job]:
    """Attention alone with more heads on lone tokens, at the largest rate of its grid and beyond."""
    task = JOBS["alone"]
    config, prepare = arm(task, "heads")
    options: dict[str, Any] = {"prepare": prepare, "batch_size": 32, "steps": 300}
    return {rate: job(config, task, seed, learning_rate=rate, **options) for rate in LARGER_RATES}


@measurement(
    seeds=10,
    coords={"rate": LARGER_RATES},
    trainings=lone_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3},
)
def lone(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Accuracy of attention alone with more heads on lone tokens, at still larger learning rates."""
    found = [evaluate(runs[rate].model, JOBS["alone"], seed=seed) for rate in LARGER_RATES]
    return {"accuracy": ("rate", [score.accuracy for score in found])}


@dataclass(frozen=True)
class Replaced:
    """How far the loss rises when one kind of sublayer of a trained model is replaced by its mean.

    Attributes:
        network: the network of each block, one at a time.
        attention: the attention of each block, one at a time.
        networks: all networks at once.
        attentions: all attention at once.
    """

    network: Float[np.ndarray, "block"]
    attention: Float[np.ndarray, "block"]
    networks: float
    attentions: float


def replaced(model: Model, task: Task, *, seed: int, size: int = 256) -> Replaced:
    """Replace what each sublayer writes by its mean over other sequences, position by position.

    The loss is that on sequences held out; the means are taken over sequences of the training's kind.

    Args:
        model: with one or more blocks of attention and a network.
        task: what it was trained on.
        seed: of the sequences.
        size: number of sequences, and of those that the means are taken over.

    Raises:
        KeyError: when a block has no network, or no attention.
    """
    batch, reference = _sequences(task, seed, size)
    blocks = range(model.config.n_layers)
    networks = [Component(f"blocks.{i}.feedforward.out") for i in blocks]
    attentions = [Component(f"blocks.{i}.attention.out") for i in blocks]
    found = effects(
        model,
        [*networks, *attentions, networks, attentions],
        batch,
        how="mean",
        reference=reference,
        metric=loss,
    )
    n = len(blocks)
    return Replaced(found[:n], found[n : 2 * n], float(found[-2]), float(found[-1]))


def _sequences(task: Task, seed: int, size: int) -> tuple[Batch, Batch]:
    batch = held_out(task).batch(make_generator(seed, "evaluation"), size)
    return batch, task.batch(make_generator(seed, "reference"), size)


def two_heads(sharpness: float = 6.0) -> Float[Tensor, "pair value"]:
    """The exclusive-or of two bits by two heads, without any network: for each pair what they hand over.

    Both heads hand over the bits as they are. The first looks for ones, with scores of `sharpness` for a one
    and 0 for a zero, and so hands over their maximum, nearly; the second looks at both alike. Maximum less
    mean is one half where the bits differ, and zero where they do not.

    Args:
        sharpness: the score of a one.

    Returns:
        a row for each of the pairs 00, 01, 10, 11: what the first head hands over, the second, and twice their
        difference.

    >>> two_heads(20.0)[:, 2].round(decimals=6).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    values = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).double()[..., None]
    asks = torch.full((4, 1, 1), sharpness, dtype=torch.float64)
    looks, mean = (
        attend(attention_pattern(attention_scores(query, values, scale=1.0)), values)[:, 0, 0]
        for query in (asks, torch.zeros_like(asks))
    )
    return torch.stack([looks, mean, 2 * (looks - mean)], dim=1)
