r"""What happens on the residual stream: who writes what, how large it is, and what is lost without it.

A *state* is the stream at one place: `states[0]` is the embedding, and one state follows each sublayer
(attention, feed-forward, attention, ...), so a model of L blocks has 2L writes and 2L + 1 states. A *write*
is what a sublayer hands to the addition. "Inside the Transformer everything is a sum of writes" is the view
of Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator


@dataclass(frozen=True)
class Ledger:
    """The account of one forward pass.

    Attributes:
        names: of the sublayers, in order: `blocks.0.attention`, `blocks.0.feedforward`, ...
        states: the stream before the first sublayer and after each one.
        writes: what each sublayer hands to the addition.
    """

    names: tuple[str, ...]
    states: Float[Tensor, "state batch position d_model"]
    writes: Float[Tensor, "sublayer batch position d_model"]

    @property
    def blocks(self) -> Float[Tensor, "block_state batch position d_model"]:
        """The embedding and the stream after each whole block."""
        return self.states[::2]

    def step_errors(self) -> Float[Tensor, "sublayer"]:
        """Largest entry of |state after - state before - write|, for each sublayer."""
        return (self.states.diff(dim=0) - self.writes).abs().flatten(1).amax(1)

    def sum_error(self) -> float:
        """Largest entry of |last state - embedding - sum of all writes|."""
        return float((self.states[-1] - self.states[0] - self.writes.sum(0)).abs().max())


@torch.no_grad()
def ledger(model: Stack, tokens: Int[Tensor, "batch position"]) -> Ledger:
    """Run the model and keep every state of the stream and every write."""
    names = tuple(
        f"blocks.{i}.{part}"
        for i in range(model.config.n_layers)
        for part in ("attention", "feedforward")
    )
    with capture(model, "embedding", "*.out", "*.residual_mid", "*.residual_post") as seen:
        model(tokens)
    after = [
        seen[f"blocks.{i}.{tap}"]
        for i in range(model.config.n_layers)
        for tap in ("residual_mid", "residual_post")
    ]
    return Ledger(
        names,
        torch.stack([seen["embedding"], *after]),
        torch.stack([seen[f"{name}.out"] for name in names]),
    )


def mean_norm(x: Float[Tensor, "... d_model"]) -> float:
    """Length of the vectors, averaged over everything but their own axis."""
    return float(x.norm(dim=-1).mean())


def stream_norms(
    states: Float[Tensor, "state batch position d_model"],
) -> Float[np.ndarray, "state"]:
    """Mean length of the stream at each state."""
    return _numpy(states.norm(dim=-1).mean(dim=(1, 2)))


def write_ratios(account: Ledger) -> Float[np.ndarray, "sublayer"]:
    """Mean length of each write, divided by the mean length of the stream that it is added to."""
    return _numpy(account.writes.norm(dim=-1).mean(dim=(1, 2))) / stream_norms(account.states)[:-1]


def write_cosines(account: Ledger) -> Float[np.ndarray, "sublayer"]:
    """Mean cosine between each write and the stream it is added to; negative: it erases."""
    cosines = F.cosine_similarity(account.writes, account.states[:-1], dim=-1)
    return _numpy(cosines.mean(dim=(1, 2)))


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


def token_spread(
    states: Float[Tensor, "state batch position d_model"],
) -> Float[np.ndarray, "state"]:
    """Share of the stream's size that tells the tokens of a sequence apart.

    The root of sum |x_i - mean|^2 / sum |x_i|^2 over the positions i of a sequence, averaged over
    sequences: about 1 for tokens without anything in common, 0 when all positions hold the same vector.
    """
    apart = (states - states.mean(dim=2, keepdim=True)).square().sum(dim=(2, 3))
    return _numpy((apart / states.square().sum(dim=(2, 3))).sqrt().mean(dim=1))


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


def random_model(
    seed: int, *, causal: bool = False, **changes: Any
) -> tuple[Decoder | Encoder, Int[Tensor, "batch position"]]:
    """A float64 model of random size with random weights, norms and biases too, and tokens for it.

    For identities that must hold whatever the sizes are.

    Args:
        seed: of the sizes, the weights and the tokens.
        causal: a `Decoder` rather than an `Encoder`.
        changes: fields of the `Config` to set.
    """
    sizes = random.Random(seed)
    heads = sizes.choice([1, 2, 4])
    config = Config(
        vocab=11,
        d_model=8 * sizes.randint(1, 3),
        n_heads=heads,
        n_layers=sizes.randint(1, 4),
    ).replace(**changes)
    model = make_model(config, causal=causal, seed=seed).double().eval()
    draws = make_generator(seed, "random model")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                noise = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
                parameter.add_(0.3 * noise)
    tokens = torch.randint(11, (2, sizes.randint(2, 8)), generator=draws)
    return model, tokens


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()
