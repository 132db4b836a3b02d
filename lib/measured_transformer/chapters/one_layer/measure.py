r"""One layer as a list of operations: what each reads and gives, what it costs, and which of them mix tokens.

A layer is attention and a feed-forward network, each with an addition and a norm (Vaswani et al. 2017). Here it
is taken apart into fifteen values: what enters, and the results of fourteen operations. With the norms before
the sublayers (pre-norm) the same operations stand in another order.

In every value the second axis from the end is that of positions (of queries, where there are keys too), so that
"the token's own row" means the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.parts.block import Block, Placement
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import seeded
from measured_transformer.variants.dropout import drop_behind

ENTERS = "input"
"""Name of the value that enters the layer; all others are named after their operation."""

MIXES = ("scores", "mixed")
"""The operations that read other tokens' rows; `changes` finds them without being told."""


@dataclass(frozen=True)
class Operation:
    """One operation of a layer.

    Attributes:
        name: its own, and that of the value it gives.
        part: whose colour it has: 'residual' (an addition), 'norm', 'attention' or 'ffn'.
        reads: names of the values that it is computed from.
        compute: the operation itself, a function of these values.
        tap: name of the library's tap that shows the value, within the block; None where none does.
    """

    name: str
    part: Literal["residual", "norm", "attention", "ffn"]
    reads: tuple[str, ...]
    compute: Callable[..., Tensor]
    tap: str | None


def operations(block: Block) -> tuple[Operation, ...]:
    """The operations of a block in the order in which they happen, without dropout (as in evaluation).

    Args:
        block: with both residual connections, no cross-attention, no gate in the feed-forward network and as
            many key-value heads as query heads. Its attention has no mask.

    Raises:
        ValueError: when the block has another form.
    """
    _check_form(block)
    if block.placement == "pre":
        return (
            Operation("norm 1", "norm", (ENTERS,), block.attention_norm, None),
            *_attention(block.attention, "norm 1"),
            Operation("add 1", "residual", (ENTERS, "output"), torch.add, "residual_mid"),
            Operation("norm 2", "norm", ("add 1",), block.feedforward_norm, None),
            *_network(block.feedforward, "norm 2"),
            Operation("add 2", "residual", ("add 1", "narrow"), torch.add, "residual_post"),
        )
    return (
        *_attention(block.attention, ENTERS),
        Operation("add 1", "residual", (ENTERS, "output"), torch.add, None),
        Operation("norm 1", "norm", ("add 1",), block.attention_norm, "residual_mid"),
        *_network(block.feedforward, "norm 1"),
        Operation("add 2", "residual", ("norm 1", "narrow"), torch.add, None),
        Operation("norm 2", "norm", ("add 2",), block.feedforward_norm, "residual_post"),
    )


def _check_form(block: Block) -> None:
    attention, network = block.attention, block.feedforward
    if block.cross_attention is not None or not block.residual:
        raise ValueError("expected a block with skip connections and without cross-attention")
    if network.gate is not None or attention.n_kv_heads != attention.n_heads:
        raise ValueError(
            "expected a network without a gate and as many key-value heads as query heads, got "
            f"{network.activation!r}, {attention.n_kv_heads} and {attention.n_heads}"
        )


def _attention(layer: MultiHeadAttention, reads: str) -> tuple[Operation, ...]:
    """What happens inside of attention, from what it reads to what it writes."""

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (layer.n_heads, layer.d_head)).transpose(-2, -3)

    def merge(x: Tensor) -> Tensor:
        return x.transpose(-2, -3).flatten(-2)

    def scores(queries: Tensor, keys: Tensor) -> Tensor:
        return attention_scores(queries, keys, scale=layer.scale)

    steps: tuple[tuple[str, tuple[str, ...], Callable[..., Tensor], str], ...] = (
        ("queries", (reads,), lambda x: split(layer.query(x)), "queries"),
        ("keys", (reads,), lambda x: split(layer.key(x)), "keys"),
        ("values", (reads,), lambda x: split(layer.value(x)), "values"),
        ("scores", ("queries", "keys"), scores, "scores"),
        ("pattern", ("scores",), attention_pattern, "pattern"),
        ("mixed", ("pattern", "values"), attend, "mixed"),
        ("output", ("mixed",), lambda x: layer.output(merge(x)), "out"),
    )
    return tuple(
        Operation(name, "attention", read, compute, f"attention.{tap}")
        for name, read, compute, tap in steps
    )


def _network(layer: FeedForward, reads: str) -> tuple[Operation, ...]:
    """What happens inside of the feed-forward network."""
    return (
        Operation("widen", "ffn", (reads,), layer.up, "feedforward.pre_activation"),
        Operation("bend", "ffn", ("widen",), layer.activate, "feedforward.neurons"),
        Operation("narrow", "ffn", ("bend",), layer.down, "feedforward.out"),
    )


@torch.no_grad()
def trace(block: Block, x: Float[Tensor, "batch position d_model"]) -> dict[str, Tensor]:
    """Every value of one layer by its name, in order: what enters, then what each operation gives.

    Shapes: (batch position d_model) on the stream, (batch position d_ff) in the feed-forward network, and in
    attention (batch head position d_head) or, for `scores` and `pattern`, (batch head query key).

    Raises:
        ValueError: when the block has a form that `operations` does not know.

    >>> block, x = toy_layer("pre")
    >>> {name: tuple(value.shape) for name, value in trace(block, x).items()}["scores"]
    (1, 2, 3, 3)
    """
    values = {ENTERS: x}
    for operation in operations(block):
        values[operation.name] = operation.compute(*(values[name] for name in operation.reads))
    return values


@dataclass(frozen=True)
class Strip:
    """One token's own numbers of one value of a layer.

    Attributes:
        name: of the value.
        part: as in `Operation`.
        mixes: whether its operation reads other tokens' rows.
        heads: the numbers, one list a head, or a single list where there are no heads.
        shape: of the whole value, all tokens, without the batch.
    """

    name: str
    part: str
    mixes: bool
    heads: tuple[tuple[float, ...], ...]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """The numbers with two decimals, heads parted by a bar, after name and shape."""
        numbers = " |".join(
            "".join(f" {round(number, 2) + 0.0:5.2f}" for number in head) for head in self.heads
        )
        return f"{self.name:8} {self.shape!s:10}{numbers}"


def strips(
    block: Block, x: Float[Tensor, "batch position d_model"], *, token: int
) -> tuple[Strip, ...]:
    """What one token of the first sequence is after each operation of a layer, in order.

    Raises:
        ValueError: there is no such token, or the block has a form that `operations` does not know.
    """
    if not 0 <= token < x.shape[1]:
        raise ValueError(f"expected a token from 0 to {x.shape[1] - 1}, got {token}")
    parts = {operation.name: operation.part for operation in operations(block)}
    found = []
    for name, value in trace(block, x).items():
        row = value[0].select(-2, token)
        heads = row if row.ndim == 2 else row[None]
        found.append(
            Strip(
                name,
                parts.get(name, "residual"),
                name in MIXES,
                tuple(tuple(map(float, head)) for head in heads),
                tuple(value.shape[1:]),
            )
        )
    return tuple(found)


# A layer that fits on a page -----------------------------------------------------------------------


def toy_layer(
    placement: Placement, *, seed: int = 76
) -> tuple[Block, Float[Tensor, "batch position d_model"]]:
    """A layer of width 4 with 2 heads and 8 neurons whose weights are halves, and three tokens for it.

    Both placements have the same weights. Biases are zero, norms as they are born. The seed was chosen for
    numbers that read well: no row or column of weights is zero, and no weight of attention is nearly one.
    """
    config = Config(vocab=3, d_model=4, n_layers=1, n_heads=2, d_ff=8, activation="relu")
    block = make_model(config.replace(placement=placement), causal=False, seed=seed).blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad(), seeded(seed):
        for parameter in (*block.attention.parameters(), *block.feedforward.parameters()):
            if parameter.ndim == 2:
                parameter.copy_((1.4 * torch.randn(parameter.shape)).round() / 2)
            else:
                parameter.zero_()
    tokens = [[1.0, 0.5, -1.0, 2.0], [-0.5, 2.0, 1.0, 0.0], [2.0, -1.0, 0.5, -1.5]]
    return block.double().eval(), torch.tensor([tokens], dtype=torch.float64)


# Who mixes tokens ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changes:
    """What changing another token does to one token's row of a value.

    Attributes:
        through_layer: largest change when the other token is changed where it enters the layer.
        alone: largest change when the other token's rows are changed in what the operation itself reads, and
            everything else is left as it was; 0 means that the operation works on each token for itself.
    """

    through_layer: float
    alone: float


@torch.no_grad()
def changes(
    block: Block,
    x: Float[Tensor, "batch position d_model"],
    *,
    token: int = 0,
    other: int = 1,
    seed: int = 0,
) -> dict[str, Changes]:
    """For each operation, how far one token's row moves when another token is replaced by random numbers.

    Args:
        block: the layer.
        x: what enters it.
        token: whose row is watched.
        other: who is changed.
        seed: of the random numbers.

    Raises:
        ValueError: when both are the same token.
    """
    if token == other:
        raise ValueError(f"expected two different tokens, got {token} twice")
    before = trace(block, x)
    with seeded(seed):
        after = trace(block, _replaced(x, other))
        found = {}
        for operation in operations(block):
            read = [_replaced(before[name], other) for name in operation.reads]
            alone = operation.compute(*read)
            was = before[operation.name].select(-2, token)
            moved = [
                float((now.select(-2, token) - was).abs().max())
                for now in (after[operation.name], alone)
            ]
            found[operation.name] = Changes(*moved)
    return found


def _replaced(value: Tensor, position: int) -> Tensor:
    value = value.clone()
    value.select(-2, position).copy_(torch.randn_like(value.select(-2, position)))
    return value


@torch.no_grad()
def shuffle_error(
    block: Block, x: Float[Tensor, "batch position d_model"], order: list[int]
) -> float:
    """Largest entry of |layer(shuffled tokens) - shuffled layer(tokens)|: 0 when tokens are treated alike."""
    return float((block(x[:, order]) - block(x)[:, order]).abs().max())


# What each operation costs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Sizes of one operation for one sequence.

    Attributes:
        name: of the operation.
        part: as in `Operation`.
        mixes: whether a token's result depends on other tokens' rows of what the operation reads.
        takes: shape of each value that it reads, without the batch.
        gives: shape of its value, without the batch.
        parameters: how many weights, biases and norm weights belong to it.
        flops: operations of its matrix product, two for each multiplication and addition; 0 where it has none.
    """

    name: str
    part: str
    mixes: bool
    takes: tuple[tuple[int, ...], ...]
    gives: tuple[int, ...]
    parameters: int
    flops: int

    def __str__(self) -> str:
        """A line of a table: name, whose rows it reads, shapes, parameters, operations."""
        shapes = " ".join(str(shape).replace(" ", "") for shape in self.takes)
        gives = str(self.gives).replace(" ", "")
        reads = "all tokens" if self.mixes else "own row"
        return (
            f"{self.name:8} {reads:10} {shapes:25} -> {gives:12} "
            f"{self.parameters:9,} {self.flops:13,}"
        )


def costs(config: Config, *, length: int) -> tuple[Cost, ...]:
    """The operations of one of a config's layers in order, with shapes, parameters and operations counted.

    As in `models.sizes.count_flops`, only matrix products count; norms, softmax, activation and additions touch
    each number a few times.

    Raises:
        ValueError: a gated network, shared key-value heads, no skip connections, or no LayerNorm.
    """
    if config.norm != "layer":
        raise ValueError(f"expected the norm 'layer', got {config.norm!r}")
    small = Config(vocab=2, d_model=4, n_heads=1, n_layers=1).replace(
        placement=config.placement,
        activation=config.activation,
        residual=config.residual,
        n_kv_heads=None if config.kv_heads == config.n_heads else 1,
        n_heads=1 if config.kv_heads == config.n_heads else 2,
    )
    block = make_model(small, causal=False, seed=0).blocks[0]  # knows the order, whatever the sizes
    assert isinstance(block, Block)
    d, h, e, m, n = config.d_model, config.n_heads, config.head_width, config.neurons, length
    in_heads, pairs = (h, n, e), (h, n, n)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("queries", "keys", "values", "mixed"), in_heads),
        **dict.fromkeys(("scores", "pattern"), pairs),
        **dict.fromkeys(("widen", "bend"), (n, m)),
    }
    matrices = {
        **dict.fromkeys(("queries", "keys", "values"), (d, h * e)),
        "output": (h * e, d),
        "widen": (d, m),
        "narrow": (m, d),
    }
    rows = []
    for operation in operations(block):
        name = operation.name
        parameters = flops = 0
        if name in matrices:
            wide, high = matrices[name]
            biased = (
                config.attention_has_bias if operation.part == "attention" else config.ffn_has_bias
            )
            parameters, flops = wide * high + high * biased, 2 * n * wide * high
        elif operation.part == "norm":
            parameters = d + d * config.bias
        elif name in MIXES:
            flops = 2 * h * n * n * e
        rows.append(
            Cost(
                name=name,
                part=operation.part,
                mixes=name in MIXES,
                takes=tuple(shapes.get(read, (n, d)) for read in operation.reads),
                gives=shapes.get(name, (n, d)),
                parameters=parameters,
                flops=flops,
            )
        )
    return tuple(rows)


# Dropout on the stream -----------------------------------------------------------------------------------


@torch.no_grad()
def entries_kept(
    rate: float, *, layers: int, seed: int, behind: bool, tokens: int = 64, d_model: int = 32
) -> Float[np.ndarray, "quantity state"]:
    r"""What dropout leaves of an embedding along the skip connections, after 0, 1, ..., 2L sublayers.

    Runs the library's pre-norm blocks in training mode on a stream of ones, with all writes set to zero, so
    that nothing but the embedding is on the stream. With dropout behind the addition an entry survives k
    sublayers with probability $(1 - p)^k$, and is $(1 - p)^{-k}$ times as large when it does.

    Args:
        rate: probability p of dropping an entry, at each sublayer.
        layers: number L of layers.
        seed: of the masks.
        behind: whether the stream is dropped after the addition, rather than the write before it.
        tokens, d_model: how many entries are watched.

    Returns:
        Two rows: the share of entries that are not zero, and the mean of all entries.
    """
    config = Config(vocab=2, d_model=d_model, n_layers=layers, n_heads=1, d_ff=1, dropout=rate)
    model = make_model(config, causal=False, seed=seed).train()
    for block in model.blocks:
        assert isinstance(block, Block)
        for parameter in (
            *block.attention.output.parameters(),
            *block.feedforward.down.parameters(),
        ):
            parameter.zero_()
    if behind:
        drop_behind(model)
    x = torch.ones(1, tokens, d_model)
    states = [x]
    with seeded(seed):
        for block in model.blocks:
            with capture(block, "residual_mid", "residual_post") as seen:
                x = block(x)
            states += [seen["residual_mid"], seen["residual_post"]]
    kept = torch.stack(states).flatten(1)
    shares = torch.stack([(kept != 0).double().mean(1), kept.double().mean(1)])
    return np.asarray(shares.numpy())


def expected_share(rate: float, sublayers: int) -> float:
    """Share of entries that survive so many masks one after another: $(1 - p)^k$.

    >>> round(expected_share(0.1, 12), 3)
    0.282
    """
    return math.pow(1 - rate, sublayers)


# The six operations --------------------------------------------------------------------------------


def six_operations(
    x: Float[Tensor, "batch position d_model"], layer: nn.TransformerEncoderLayer
) -> Float[Tensor, "batch position d_model"]:
    """One post-norm layer written out in the order in which its operations happen.

    Uses the weights of a PyTorch layer and its dropout after each of the two sublayers. In training mode the
    attention weights are dropped as that layer does it, within operation 2; its dropout inside the
    feed-forward network is not among the six operations and is left out here.
    """
    drop = layer.dropout1.p
    residual = x  # 1. the input
    a = layer.self_attn(x, x, x, need_weights=False)[0]  # 2. multi-head self-attention
    x = residual + F.dropout(a, drop, layer.training)  # 3. dropout, then the first addition
    x = layer.norm1(x)  # 4. the first norm
    f = layer.linear2(layer.activation(layer.linear1(x)))  # 5. feed-forward
    x = x + F.dropout(f, drop, layer.training)  # 6. dropout, the second addition ...
    return layer.norm2(x)  # ... and the second norm


def staged(
    block: Block, x: Float[Tensor, "batch position d_model"]
) -> Float[Tensor, "batch position d_model"]:
    """A post-norm layer in two stages, O1 = LN1(SA(X) + X) and LN2(FFN(O1) + O1)."""
    o1 = block.attention_norm(block.attention(x) + x)
    return block.feedforward_norm(block.feedforward(o1) + o1)


def nested(
    block: Block, x: Float[Tensor, "batch position d_model"]
) -> Float[Tensor, "batch position d_model"]:
    """The same layer as one expression in X, with the first stage written out twice."""
    ln1, ln2, sa, ffn = (
        block.attention_norm,
        block.feedforward_norm,
        block.attention,
        block.feedforward,
    )
    return ln2(ffn(ln1(sa(x) + x)) + ln1(sa(x) + x))
