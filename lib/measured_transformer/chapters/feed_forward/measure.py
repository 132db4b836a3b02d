r"""What the feed-forward network computes, and what attention alone can do.

The network acts on one position, $\text{FFN}(x) = g(x W_1 + b_1) W_2 + b_2$; attention mixes positions. The
functions here put that to the test: the Jacobian between positions, superposition, the span of the values,
and small networks by hand. Then how an activation bends (GELU: Hendrycks and Gimpel, 2016, "Gaussian Error
Linear Units"), and where the parameters of published models are, counted from their configurations (gates:
Shazeer, 2020, "GLU Variants Improve Transformer").
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.analysis.gradients import jacobian
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.sizes import Count, count_parameters
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import Activation, FeedForward, activation_function
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import predict
from measured_transformer.training.seeding import make_generator, seeded

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


# Attention alone -----------------------------------------------------------------------------------


@torch.no_grad()
def accuracy_at(
    model: Encoder | Decoder, task: Task, *, length: int, seed: int, frozen: bool = False
) -> float:
    """Share of right answers on fresh sequences of a length.

    Args:
        model: trained on the task.
        task: whose batches can have that length.
        length: of the sequences.
        seed: of the sequences.
        frozen: every head keeps one and the same pattern for all sequences, the mean of its own, so that
            attention cannot react to what it reads.
    """
    batch = task.batch(make_generator(seed, f"evaluation at {length}"), 256, length=length)
    if frozen:
        with capture(model, "blocks.*.attention.pattern") as seen:
            predict(model, batch)
        means = {name: pattern.mean(0, keepdim=True) for name, pattern in seen.items()}
        held = {name: _held(mean) for name, mean in means.items()}
        with intervene(model, held):
            logits = predict(model, batch)
    else:
        logits = predict(model, batch)
    right = (logits.argmax(-1) == batch.targets)[batch.scored]
    return float(right.float().mean())


def _held(pattern: Tensor) -> Any:
    return lambda now: pattern.expand_as(now)


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


@dataclass(frozen=True)
class Published:
    """A published model, and which kind of model its config describes.

    Attributes:
        config: its sizes and choices.
        kind: 'encoder' or 'decoder'.
    """

    config: Config
    kind: Any

    @property
    def count(self) -> Count:
        """Its parameters by part."""
        return count_parameters(self.config, self.kind)

    @property
    def network_over_attention(self) -> float:
        """Parameters of the networks over those of attention."""
        return self.count.feedforward / self.count.attention


def published() -> dict[str, Published]:
    """BERT-base, GPT-2 and LLaMA-7B.

    As their papers and published settings have them (Devlin et al. 2019; Radford et al. 2019; Touvron et al.
    2023). BERT is counted with its pooler and without the layer that predicts masked words.
    """
    gpt = {"positions": "learned", "max_length": 1024, "activation": "gelu_tanh"}
    llama = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
    return {
        "BERT-base": Published(
            Config(
                vocab=30522,
                d_model=768,
                n_layers=12,
                n_heads=12,
                d_ff=3072,
                max_length=512,
                positions="learned",
                placement="post",
                token_types=2,
                embedding_norm=True,
                pooler=True,
                head="none",
                embedding_scale=1.0,
            ),
            "encoder",
        ),
        "GPT-2": Published(
            Config(vocab=50257, d_model=768, n_layers=12, n_heads=12, tie_embeddings=True, **gpt),  # type: ignore[arg-type]
            "decoder",
        ),
        "LLaMA-7B": Published(
            Config(vocab=32000, d_model=4096, n_layers=32, n_heads=32, d_ff=11008, **llama),  # type: ignore[arg-type]
            "decoder",
        ),
    }


def whereabouts(count: Count) -> dict[str, int]:
    """Parameters in five groups: 'embeddings', 'attention', 'networks', 'norms' and 'head'.

    Positions count as embeddings; the head is an unembedding that is not tied, or BERT's pooler.
    """
    return {
        "embeddings": count.embedding + count.positions,
        "attention": count.attention + count.cross_attention,
        "networks": count.feedforward,
        "norms": count.norms,
        "head": count.head,
    }
