r"""Several residual streams in the place of one: hyper-connections, and mHC, which constrains how they mix.

The stream at a position is a matrix $X$ of $n$ rows of width $d$, which all begin as the embedding. A sublayer
reads one mixture of the rows and writes to each of them:

$X \leftarrow R X + p \, F(r X)^\top$, with $r$ and $p$ of $n$ entries, $R$ of $n \times n$,

and a pre-norm inside $F$. Behind the last block the rows are added. $r$, $p$ and $R$ are learned, in part as
functions of $X$. At first they make the model the usual one with a single stream.

- **Hyper-connections** (Zhu et al. 2025): all three are a bias plus a factor times a tanh of a projection of
  the normalised rows. At first sublayer $k$ reads row $k \bmod n$, writes with ones, and $R$ is the identity.
- **mHC** (Xie et al. 2025): with a projection of all rows normalised together, $r$ is a sigmoid, $p$ twice a
  sigmoid, and $R$ is made doubly stochastic by twenty rounds of Sinkhorn and Knopp: its entries are positive,
  its rows and columns sum to one, and so do those of products over sublayers.

The biases of hyper-connections, which no input changes, are not decayed in the paper; `DecayExcept` of
`variants.decay` spares them. A decay of all weights pulls R to zero, and the streams with it.

>>> from measured_transformer.models.config import Config
>>> from measured_transformer.models.decoder import Decoder
>>> model = Decoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=2))
>>> ManyStreams(2)(model)
>>> model.blocks[0].attention_streams.mixing_bias.shape
torch.Size([2, 2])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.stack import Stack
from measured_transformer.parts.block import Block
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.part import Part
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model

ROUNDS = 20
"""Of Sinkhorn and Knopp, as in mHC."""
SMALL = 0.01
"""What the factors on the learned functions are at first."""
STAY = 5.0
"""The first scores on the diagonal of mHC's R, those beside it are 0; of four rows each keeps 0.98 then."""


def doubly_stochastic(
    scores: Float[Tensor, "*batch row column"], rounds: int = ROUNDS
) -> Float[Tensor, "*batch row column"]:
    """Exponentials of scores whose columns and rows are divided by their sums in turn, rows last.

    >>> doubly_stochastic(torch.zeros(2, 2))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    for _ in range(rounds):
        scores = scores - scores.logsumexp(-2, keepdim=True)
        scores = scores - scores.logsumexp(-1, keepdim=True)
    return scores.exp()


class Connection(Part):
    """What a sublayer reads of the streams, and how it changes them.

    Taps: `reading` and `writing` (batch position stream), r and p; `mixing` (batch position stream stream), R.
    """

    def __init__(self, width: int, streams: int, place: int, *, constrained: bool) -> None:
        """Make weights that leave the model as it is.

        Args:
            width: of a stream.
            streams: how many.
            place: the number of the sublayer, from 0; of hyper-connections, it says what is read at first.
            constrained: whether this is one of mHC.
        """
        super().__init__()
        self.streams, self.constrained = streams, constrained
        n = streams
        read = torch.full((n,), -math.log(n - 1)) if constrained else torch.zeros(n)
        if not constrained:
            read[place % n] = 1.0
        self.reading_bias = nn.Parameter(read)
        self.writing_bias = nn.Parameter(torch.zeros(n) if constrained else torch.ones(n))
        self.mixing_bias = nn.Parameter((STAY if constrained else 1.0) * torch.eye(n))
        size = n * width if constrained else width
        outputs = 2 * n + n * n if constrained else 2 + n
        self.projection = nn.Parameter(torch.zeros(outputs, size))
        self.factors = nn.Parameter(torch.full((3,), SMALL))
        self.reading, self.writing, self.mixing = Tap(), Tap(), Tap()

    def forward(
        self, x: Float[Tensor, "batch position stream d_model"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What is read and written (batch position stream), and R (batch position stream stream)."""
        n = self.streams
        if self.constrained:
            whole = x.flatten(-2)
            found = F.linear(F.rms_norm(whole, whole.shape[-1:]), self.projection)
            read, write, mix = found.split((n, n, n * n), -1)
            mix = mix.unflatten(-1, (n, n))
        else:
            found = F.linear(F.rms_norm(x, x.shape[-1:]), self.projection).tanh()
            read, write, mix = found[..., 0], found[..., 1], found[..., 2:].mT
        read = self.factors[0] * read + self.reading_bias
        write = self.factors[1] * write + self.writing_bias
        mix = self.factors[2] * mix + self.mixing_bias
        if self.constrained:
            read, write, mix = read.sigmoid(), 2 * write.sigmoid(), doubly_stochastic(mix)
        return self.reading(read), self.writing(write), self.mixing(mix)


class ManyStreamsBlock(Block):
    """A pre-norm block between several streams, which the first makes of one and the last adds up.

    `residual_pre`, `residual_mid` and `residual_post` are (batch position stream d_model).
    """

    def __init__(self, block: Block, place: int, n_layers: int, how: ManyStreams) -> None:
        """Take over the parts of a block.

        Args:
            block: of self-attention, pre-norm.
            place: its number, from 0.
            n_layers: how many blocks there are.
            how: how many streams there are, and whether their mixture is constrained.

        Raises:
            ValueError: when the block is none of these, or has dropout or a factor on what it writes.
        """
        plain = block.placement == "pre" and block.residual and not block.parallel
        if not plain or block.cross_attention is not None or block.dropout or block.wide:
            raise ValueError(
                "expected pre-norm blocks of self-attention with skip connections and without dropout, got "
                f"placement={block.placement!r}, residual={block.residual}, parallel={block.parallel}, "
                f"dropout={block.dropout}"
            )
        if block.residual_scale != 1:
            raise ValueError(f"residual_scale must be 1, got {block.residual_scale}")
        super().__init__(
            block.attention, block.feedforward, block.attention_norm, block.feedforward_norm
        )
        like = block.attention.query.weight
        width = like.shape[1]
        self.streams, self.first, self.last = how.streams, place == 0, place == n_layers - 1
        self.attention_streams, self.feedforward_streams = (
            Connection(width, how.streams, 2 * place + i, constrained=how.constrained).to(like)
            for i in range(2)
        )

    def forward(
        self,
        x: Float[Tensor, "..."],
        memory: Float[Tensor, "batch memory d_model"] | None = None,
        *,
        causal: bool = False,
        padding_mask: Bool[Tensor, "batch key"] | None = None,
        memory_padding_mask: Bool[Tensor, "batch memory"] | None = None,
        rotation: Rotation | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        cache: KeyValues | None = None,
        cross_cache: KeyValues | None = None,
    ) -> Float[Tensor, "..."]:
        """The streams after this layer, or their sum after the last one; arguments as of `Block`."""
        if self.first:
            x = x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, x.shape[-1])
        x = self.residual_pre(x)
        read, write, mix = self.attention_streams(x)
        branch = self.attention(
            self.attention_norm(_mixture(read, x)),
            causal=causal,
            padding_mask=padding_mask,
            rotation=rotation,
            score_bias=score_bias,
            cache=cache,
        )
        x = self.residual_mid(_connect(mix, x, write, branch))
        read, write, mix = self.feedforward_streams(x)
        branch = self.feedforward(self.feedforward_norm(_mixture(read, x)))
        x = self.residual_post(_connect(mix, x, write, branch))
        return x.sum(-2) if self.last else x


def _mixture(read: Tensor, x: Tensor) -> Tensor:
    return (read[..., None] * x).sum(-2)


def _connect(mix: Tensor, x: Tensor, write: Tensor, branch: Tensor) -> Tensor:
    return mix @ x + write[..., None] * branch[..., None, :]


@dataclass(frozen=True)
class ManyStreams:
    """Preparation for training: a decoder or encoder with several residual streams.

    Attributes:
        streams: how many, at least 2.
        constrained: mHC in the place of hyper-connections.

    Raises:
        ValueError: when there are fewer than two streams.
    """

    streams: int = 4
    constrained: bool = False

    def __post_init__(self) -> None:
        if self.streams < 2:
            raise ValueError(f"expected at least 2 streams, got {self.streams}")

    def __call__(self, model: Model) -> None:
        """Change the model in place; its weights stay, and at first it computes what it did.

        Raises:
            ValueError: for an `EncoderDecoder`, blocks that `ManyStreamsBlock` does not take, or a model
                without a final norm, which takes the length of the sum back.
        """
        if not isinstance(model, Stack) or not model.config.has_final_norm:
            raise ValueError(
                "expected a model of one stack with a final norm, got "
                f"{type(model).__name__}{'' if isinstance(model, Stack) else ', of several stacks'}"
            )
        for place, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            model.blocks[place] = ManyStreamsBlock(block, place, len(model.blocks), self)


@torch.no_grad()
def composite_gain(
    mixings: list[Float[Tensor, "batch position row column"]],
) -> tuple[float, float]:
    """How much the product of R over sublayers can make of the streams: its largest sums of absolute entries.

    Args:
        mixings: R of each sublayer, from the first to the last.

    Returns:
        the largest sum of a row, for what is passed forward, and of a column, for gradients; means over
        positions.

    >>> half = torch.full((1, 1, 2, 2), 0.5)
    >>> composite_gain([half, 3 * half])
    (3.0, 3.0)
    """
    whole = mixings[0]
    for each in mixings[1:]:
        whole = each @ whole
    size = whole.abs()
    return float(size.sum(-1).amax(-1).mean()), float(size.sum(-2).amax(-1).mean())
