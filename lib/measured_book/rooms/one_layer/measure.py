r"""What *Inside one layer* measures: a layer as a list of operations, which mix tokens, what each costs.

A layer is attention and a feed-forward network, each with an addition and a norm (Vaswani et al. 2017). Here it
is taken apart into values: what enters, and the results of its operations, fourteen in the layer of 2017. With
the norms before the sublayers (pre-norm) the same operations stand in another order; today's layer has three
more, two rotations and a gate.

In every value the second axis from the end is that of positions (of queries, where there are keys too), so that
"the token's own row" means the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.positions import Rotation, rotation
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.dropout import drop_behind
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import measurement

KINDS = ("2017", "pre-norm", "today")
"""The layer of 2017, the same with its norms first, and the layer of most language models since 2023."""

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


def operations(block: Block, turned: Rotation | None = None) -> tuple[Operation, ...]:
    """The operations of a block in the order in which they happen, without dropout (as in evaluation).

    Args:
        block: with both residual connections and no cross-attention. Its attention has no mask.
        turned: the rotary angles of its positions; None where positions are not told by rotation.

    Raises:
        ValueError: when the block has another form.
    """
    if block.cross_attention is not None or not block.residual:
        raise ValueError("expected a block with skip connections and without cross-attention")
    if block.placement == "pre":
        return (
            Operation("norm 1", "norm", (ENTERS,), block.attention_norm, None),
            *_attention(block.attention, "norm 1", turned),
            Operation("add 1", "residual", (ENTERS, "output"), torch.add, "residual_mid"),
            Operation("norm 2", "norm", ("add 1",), block.feedforward_norm, None),
            *_network(block.feedforward, "norm 2"),
            Operation("add 2", "residual", ("add 1", "down"), torch.add, "residual_post"),
        )
    return (
        *_attention(block.attention, ENTERS, turned),
        Operation("add 1", "residual", (ENTERS, "output"), torch.add, None),
        Operation("norm 1", "norm", ("add 1",), block.attention_norm, "residual_mid"),
        *_network(block.feedforward, "norm 1"),
        Operation("add 2", "residual", ("norm 1", "down"), torch.add, None),
        Operation("norm 2", "norm", ("add 2",), block.feedforward_norm, "residual_post"),
    )


Steps = tuple[tuple[str, tuple[str, ...], Callable[..., Tensor], str | None], ...]


def _attention(
    layer: MultiHeadAttention, reads: str, turned: Rotation | None
) -> tuple[Operation, ...]:
    """What happens inside of attention, from what it reads to what it writes."""

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, layer.d_head)).transpose(-2, -3)

    def merge(x: Tensor) -> Tensor:
        return x.transpose(-2, -3).flatten(-2)

    def shared(x: Tensor) -> Tensor:  # each key-value head serves a group of query heads
        return x.repeat_interleave(layer.n_heads // layer.n_kv_heads, dim=-3)

    def scores(queries: Tensor, keys: Tensor) -> Tensor:
        return attention_scores(queries, shared(keys), scale=layer.scale)

    def mix(pattern: Tensor, values: Tensor) -> Tensor:
        return attend(pattern, shared(values))

    asked = ("queries", "keys")
    rotations: Steps = ()
    if turned is not None:
        rotations = (
            ("rotate q", ("queries",), turned.apply, None),
            ("rotate k", ("keys",), turned.apply, None),
        )
        asked = ("rotate q", "rotate k")
    steps: Steps = (
        ("queries", (reads,), lambda x: split(layer.query(x)), "queries"),
        ("keys", (reads,), lambda x: split(layer.key(x)), "keys"),
        ("values", (reads,), lambda x: split(layer.value(x)), "values"),
        *rotations,
        ("scores", asked, scores, "scores"),
        ("pattern", ("scores",), attention_pattern, "pattern"),
        ("mixed", ("pattern", "values"), mix, "mixed"),
        ("output", ("mixed",), lambda x: layer.output(merge(x)), "out"),
    )
    return tuple(
        Operation(name, "attention", read, compute, tap and f"attention.{tap}")
        for name, read, compute, tap in steps
    )


def _network(layer: FeedForward, reads: str) -> tuple[Operation, ...]:
    """What happens inside of the feed-forward network."""
    if layer.gate is None:
        return (
            Operation("up", "ffn", (reads,), layer.up, "feedforward.pre_activation"),
            Operation("activation", "ffn", ("up",), layer.activate, "feedforward.neurons"),
            Operation("down", "ffn", ("activation",), layer.down, "feedforward.out"),
        )

    def gated(gate: Tensor, up: Tensor) -> Tensor:
        return layer.activate(gate) * up

    return (
        Operation("gate", "ffn", (reads,), layer.gate, "feedforward.pre_activation"),
        Operation("up", "ffn", (reads,), layer.up, None),
        Operation("activation", "ffn", ("gate", "up"), gated, "feedforward.neurons"),
        Operation("down", "ffn", ("activation",), layer.down, "feedforward.out"),
    )


@torch.no_grad()
def trace(
    block: Block, x: Float[Tensor, "batch position d_model"], turned: Rotation | None = None
) -> dict[str, Tensor]:
    """Every value of one layer by its name, in order: what enters, then what each operation gives.

    Shapes: (batch position d_model) on the stream, (batch position d_ff) in the feed-forward network, and in
    attention (batch head position d_head) or, for `scores` and `pattern`, (batch head query key).

    Raises:
        ValueError: when the block has a form that `operations` does not know.

    >>> block, x, turned = toy_layer("pre-norm")
    >>> {name: tuple(value.shape) for name, value in trace(block, x).items()}["scores"]
    (1, 2, 3, 3)
    """
    values = {ENTERS: x}
    for operation in operations(block, turned):
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
        return f"{self.name:10} {self.shape!s:10}{numbers}"


def strips(
    block: Block,
    x: Float[Tensor, "batch position d_model"],
    turned: Rotation | None = None,
    *,
    token: int,
) -> tuple[Strip, ...]:
    """What one token of the first sequence is after each operation of a layer, in order.

    Raises:
        ValueError: there is no such token, or the block has a form that `operations` does not know.
    """
    if not 0 <= token < x.shape[1]:
        raise ValueError(f"expected a token from 0 to {x.shape[1] - 1}, got {token}")
    parts = {operation.name: operation.part for operation in operations(block, turned)}
    found = []
    for name, value in trace(block, x, turned).items():
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


def layer_config(kind: str, **sizes: Any) -> Config:
    """The choices of one kind of layer, with the sizes that are given.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "today":
        return Config(
            norm="rms",
            positions="rotary",
            activation="swiglu",
            bias=False,
            placement="pre",
            **sizes,
        )
    return Config(activation="relu", placement="post" if kind == "2017" else "pre", **sizes)


Layer = tuple[Block, Float[Tensor, "batch position d_model"], Rotation | None]
"""A block, what enters it, and the rotary angles of the positions where it has any."""


def toy_layer(kind: str) -> Layer:
    """A layer of width 4 with 2 heads whose weights are halves, and three tokens for it.

    The layers of 2017 and with pre-norm have the same weights and 8 neurons; today's has one key-value head
    and 6 neurons on gates. Biases are zero, norms as they are born. Seeds were chosen for numbers that read
    well: no row or column of weights is zero, and no weight of attention is nearly one.
    """
    seed = 77 if kind == "today" else 76
    sizes: dict[str, Any] = {"vocab": 3, "d_model": 4, "n_layers": 1, "n_heads": 2, "d_ff": 8}
    if kind == "today":
        sizes |= {"n_kv_heads": 1, "d_ff": 6}
    block = make_model(layer_config(kind, **sizes), causal=False, seed=seed).blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad(), seeded(seed):
        for parameter in (*block.attention.parameters(), *block.feedforward.parameters()):
            if parameter.ndim == 2:
                parameter.copy_((1.4 * torch.randn(parameter.shape)).round() / 2)
            else:
                parameter.zero_()
    tokens = [[1.0, 0.5, -1.0, 2.0], [-0.5, 2.0, 1.0, 0.0], [2.0, -1.0, 0.5, -1.5]]
    x = torch.tensor([tokens], dtype=torch.float64)
    turned = rotation(3, 2, dtype=torch.float64) if kind == "today" else None
    return block.double().eval(), x, turned


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
    turned: Rotation | None = None,
    *,
    token: int = 0,
    other: int = 1,
    seed: int = 0,
) -> dict[str, Changes]:
    """For each operation, how far one token's row moves when another token is replaced by random numbers.

    Args:
        block: the layer.
        x: what enters it.
        turned: the rotary angles of its positions, where it has any.
        token: whose row is watched.
        other: who is changed.
        seed: of the random numbers.

    Raises:
        ValueError: when both are the same token.
    """
    if token == other:
        raise ValueError(f"expected two different tokens, got {token} twice")
    before = trace(block, x, turned)
    with seeded(seed):
        after = trace(block, _replaced(x, other), turned)
        found = {}
        for operation in operations(block, turned):
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
    block: Block,
    x: Float[Tensor, "batch position d_model"],
    turned: Rotation | None = None,
    *,
    order: list[int],
) -> float:
    """Largest entry of |layer(shuffled tokens) - shuffled layer(tokens)|: 0 when tokens are treated alike."""
    shuffled = block(x[:, order], rotation=turned)
    return float((shuffled - block(x, rotation=turned)[:, order]).abs().max())


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
        """A line of a table: name, whose rows it reads, shape, parameters, operations."""
        gives = str(self.gives).replace(" ", "")
        reads = "all tokens" if self.mixes else "own row"
        return f"{self.name:10} {reads:10} -> {gives:13} {self.parameters:12,} {self.flops:15,}"


def costs(config: Config, *, length: int) -> tuple[Cost, ...]:
    """The operations of one of a config's layers in order, with shapes, parameters and operations counted.

    As in `models.sizes.count_flops`, only matrix products count; norms, softmax, activation, rotations and
    additions touch each number a few times.

    Raises:
        ValueError: no skip connections, or no norm.
    """
    if config.norm == "none":
        raise ValueError(f"expected a norm, got {config.norm!r}")
    small = config.replace(
        vocab=2, d_model=8, n_heads=2, n_kv_heads=1, n_layers=1, d_head=4, d_ff=4, max_length=2
    )
    block = make_model(small, causal=False, seed=0).blocks[0]  # knows the order, whatever the sizes
    assert isinstance(block, Block)
    turned = rotation(2, 4) if config.positions == "rotary" else None
    d, h, g, e = config.d_model, config.n_heads, config.kv_heads, config.head_width
    m, n = config.neurons, length
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("queries", "rotate q", "mixed"), (h, n, e)),
        **dict.fromkeys(("keys", "rotate k", "values"), (g, n, e)),
        **dict.fromkeys(("scores", "pattern"), (h, n, n)),
        **dict.fromkeys(("gate", "up", "activation"), (n, m)),
    }
    matrices = {
        "queries": (d, h * e),
        **dict.fromkeys(("keys", "values"), (d, g * e)),
        "output": (h * e, d),
        **dict.fromkeys(("gate", "up"), (d, m)),
        "down": (m, d),
    }
    rows = []
    for operation in operations(block, turned):
        name = operation.name
        parameters = flops = 0
        if name in matrices:
            wide, high = matrices[name]
            biased = (
                config.attention_has_bias if operation.part == "attention" else config.ffn_has_bias
            )
            parameters, flops = wide * high + high * biased, 2 * n * wide * high
        elif operation.part == "norm":
            parameters = d + d * (config.bias and config.norm == "layer")
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


BERT = Config(vocab=30522, d_model=768, n_layers=12, n_heads=12, placement="post")
"""A layer of BERT base (Devlin et al. 2019)."""
LLAMA = layer_config(
    "today", vocab=128256, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=8, d_ff=14336
)
"""A layer of Llama 3 8B (Grattafiori et al. 2024)."""


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
    x: Float[Tensor, "batch position d_model"],
    layer: nn.TransformerEncoderLayer,
) -> Float[Tensor, "batch position d_model"]:
    """A post-norm layer on the weights of PyTorch's, with its dropout.

    In training the attention weights are dropped within operation 2, as
    that layer does it; its dropout of neurons is not among the six.
    """
    rate = layer.dropout1.p
    kept = x  # 1. the input
    # 2. self-attention of several heads
    a = layer.self_attn(x, x, x, need_weights=False)[0]
    # 3. dropout, then the first addition
    x = kept + F.dropout(a, rate, layer.training)
    x = layer.norm1(x)  # 4. the first norm
    # 5. the feed-forward network
    f = layer.linear2(layer.activation(layer.linear1(x)))
    # 6. dropout, the second addition and the second norm
    return layer.norm2(x + F.dropout(f, rate, layer.training))


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


# What is measured ----------------------------------------------------------------------------------

NAMES = {kind: tuple(one.name for one in operations(*toy_layer(kind)[::2])) for kind in KINDS}
"""The operations of each kind of layer, in order."""
ORDER = [2, 0, 3, 1]


def random_layer(kind: str, seed: int) -> Layer:
    """A layer of random size with random weights, norms and biases too, in float64, and four tokens for it."""
    if kind == "today":
        draws = make_generator(seed, "random layer")
        width = 8 * int(torch.randint(1, 4, (), generator=draws))
        sizes: dict[str, Any] = {"vocab": 2, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2}
        model = make_model(layer_config(kind, d_model=width, **sizes), causal=False, seed=seed)
        with torch.no_grad():
            for parameter in model.double().parameters():
                if parameter.ndim == 1:
                    noise = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
                    parameter.add_(0.3 * noise)
        turned = rotation(4, width // 4, dtype=torch.float64)
    else:
        placement = "post" if kind == "2017" else "pre"
        model = random_model(seed, placement=placement, n_layers=1)[0]
        turned = None
    block = model.eval().blocks[0]
    assert isinstance(block, Block)
    with seeded(seed):
        return block, torch.randn(1, 4, block.attention.d_model, dtype=torch.float64), turned


@measurement(
    seeds=100,
    coords={"kind": KINDS, **{f"operation_{i}": NAMES[kind] for i, kind in enumerate(KINDS)}},
    tolerance={f"{what}_{i}": 10.0 for what in ("through", "alone") for i in range(len(KINDS))},
)
def mixing(seed: int) -> dict[str, Any]:
    """How far a token's values move when another is changed, before the layer or before one operation."""
    found: dict[str, Any] = {}
    layers = [random_layer(kind, seed) for kind in KINDS]
    for i, layer in enumerate(layers):
        moved = changes(*layer, token=1, other=2, seed=seed).values()
        axis = f"operation_{i}"
        found[f"through_{i}"] = (axis, [one.through_layer for one in moved])
        found[f"alone_{i}"] = (axis, [one.alone for one in moved])
    found["shuffled"] = ("kind", [shuffle_error(*layer, order=ORDER) for layer in layers])
    return found


@measurement(seeds=100, coords={"mode": ("eval", "train")})
def forms(seed: int) -> dict[str, Any]:
    """The layer of 2017 written out in several ways, against PyTorch's layer and the library's block."""
    model, _ = random_model(seed, placement="post", n_layers=1)
    block, norm_first = (
        model.blocks[0],
        random_model(seed, placement="pre", n_layers=1)[0].blocks[0],
    )
    assert isinstance(block, Block)
    with torch.no_grad(), seeded(seed):
        x = torch.randn(2, 5, model.config.d_model, dtype=torch.float64)
        h = block.attention_norm(x + block.attention(x))
        told = block.feedforward_norm(h + block.feedforward(h))
        h = x + block.attention(x)
        skipped = block.feedforward_norm(h + block.feedforward(h))
        given = {
            "staged": staged(block, x),
            "nested": nested(block, x),
            "norm_first": norm_first(x),
            "told": told,
            "skipped": skipped,
        }
        found: dict[str, Any] = {n: float((y - block(x)).abs().max()) for n, y in given.items()}
    found["wider"] = abs(block.feedforward.up.out_features - 4 * x.shape[-1])
    modes = (False, True)
    found["six"] = ("mode", [difference(seed, training) for training in modes])
    found["six_control"] = ("mode", [difference(seed, training, True) for training in modes])
    found["weights_dropped"] = moved_by(seed, weights=0.1)
    found["neurons_dropped"] = moved_by(seed, neurons=0.1)
    found["nothing_dropped"] = moved_by(seed)
    return found


def difference(seed: int, training: bool, norm_first: bool = False) -> float:
    """Largest difference of the six operations from PyTorch's layer, both with the same masks of dropout.

    The layer's dropout of attention weights and of neurons, which the six operations do not have, is off.
    """
    with seeded(seed):
        layer = nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, batch_first=True)
        x = torch.randn(2, 5, 16, dtype=torch.float64)
    layer.double().train(training)
    layer.self_attn.dropout = layer.dropout.p = 0.0
    outputs = []
    for run in (layer, lambda x: six_operations(x, layer)):
        with torch.no_grad(), seeded(seed):  # so that both draw the same masks
            outputs.append(run(x))
    return float((outputs[0] - outputs[1]).abs().max())


@torch.no_grad()
def moved_by(seed: int, *, weights: float = 0.0, neurons: float = 0.0) -> float:
    """How far dropout of attention weights or of neurons alone moves what PyTorch's layer gives."""
    with seeded(seed):
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).double()
        x = torch.randn(2, 5, 16, dtype=torch.float64)
        asleep = layer.eval()(x)
        layer.self_attn.dropout, layer.dropout.p = weights, neurons
        return float((layer.train()(x) - asleep).abs().max())


PATH = (
    "residual_pre",
    "attention.queries",
    "attention.out",
    "residual_mid",
    "feedforward.neurons",
    "feedforward.out",
    "residual_post",
)
"""The taps of a block that a token meets, of those that the table of names lists."""
WIDE = Config(
    vocab=12,
    d_model=768,
    n_layers=3,
    n_heads=8,
    d_ff=3072,
    activation="relu",
    placement="post",
)


@measurement(seeds=1, coords={"tap": PATH, "entry": tuple(range(9))})
def widths(seed: int) -> dict[str, Any]:
    """The width of a token's vector at the taps of a layer as wide as BERT's, in the order of the pass."""
    model = make_model(WIDE, causal=False, seed=seed)
    with capture(model) as seen, torch.no_grad():
        model(torch.arange(12)[None])
    taps = [name for name in seen if name.removeprefix("blocks.0.") in PATH]
    return {
        "tap_width": ("tap", [seen[name].shape[-1] for name in taps]),
        "stream_width": ("entry", [seen[name].shape[-1] for name in seen if "residual_" in name]),
    }


DEPTH = 12
RATES_BEHIND = (0.1, 0.3)


@measurement(
    seeds=10,
    coords={"rate": RATES_BEHIND, "sublayer": tuple(range(2 * DEPTH + 1))},
    tolerance={"behind": 0.05, "mean_behind": 1.0},
)
def dropout(seed: int) -> dict[str, Any]:
    """What dropout before and behind additions leaves of an embedding along twelve layers."""
    before = entries_kept(0.1, layers=DEPTH, seed=seed, behind=False)
    behind = [entries_kept(p, layers=DEPTH, seed=seed, behind=True) for p in RATES_BEHIND]
    axes = ("rate", "sublayer")
    return {
        "before": ("sublayer", before[0]),
        "behind": (axes, [kept[0] for kept in behind]),
        "mean_behind": (axes, [kept[1] for kept in behind]),
    }
