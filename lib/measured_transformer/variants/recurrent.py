r"""Recurrence in the place of attention: an LSTM for all blocks, or a linear recurrence in each of them.

An LSTM keeps a cell $c_t = f_t \odot c_{t-1} + i_t \odot \tilde c_t$, whose gates depend on its last output, so
that step $t$ must wait for step $t - 1$. In a *linear* recurrence $h_t = a_t \odot h_{t-1} + b_t$ the gate
$a_t$ depends on the input alone: the whole sequence is then one sum of products, which a scan finds in
$\lceil \log_2 n \rceil$ steps.

Sources: Hochreiter and Schmidhuber (1997) and Gers et al. (2000) for the LSTM; Martin and Cundy (2018),
"Parallelizing linear recurrent neural nets over sequence length", for the scan; De et al. (2024), "Griffin",
for the factor of the input; Tallec and Ollivier (2018), "Can recurrent neural networks warp time?", for the
biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model
from measured_transformer.training.seeding import make_generator, seeded

LONGEST = 64.0
"""The longest time, in tokens, over which a channel of a linear recurrence keeps its state to begin with."""

# The LSTM -----------------------------------------------------------------------------------------


class LSTM(nn.Module):
    """One layer of LSTM, written as a loop; the same sums as `torch.nn.LSTM` whose second bias is zero.

    PyTorch's own cannot be trained in a stack of models, a loop can.
    """

    def __init__(self, d_input: int, d_state: int, *, forget: float = 1.0) -> None:
        """Draw weights as PyTorch does; biases are zero, those of the forget gates `forget`."""
        super().__init__()
        self.read = nn.Linear(d_input, 4 * d_state)
        self.recur = nn.Linear(d_state, 4 * d_state, bias=False)
        bound = d_state**-0.5
        with torch.no_grad():
            for weight in (self.read.weight, self.recur.weight):
                nn.init.uniform_(weight, -bound, bound)
            self.read.bias.zero_()
            self.read.bias[d_state : 2 * d_state] = forget  # order: input, forget, cell, output

    def forward(
        self, x: Float[Tensor, "batch position d_input"]
    ) -> Float[Tensor, "batch position d_state"]:
        """The output of every position."""
        read = self.read(x)
        state = read.new_zeros(read.shape[0], read.shape[-1] // 4)
        output, outputs = state, []
        for t in range(read.shape[1]):
            gates = read[:, t] + self.recur(output)
            write, keep, new, show = gates.chunk(4, dim=-1)
            state = keep.sigmoid() * state + write.sigmoid() * new.tanh()
            output = show.sigmoid() * state.tanh()
            outputs.append(output)
        return torch.stack(outputs, dim=1)


class LSTMLayers(nn.Module):
    """Layers of LSTM in the place of all blocks, and one matrix from the last state to the stream's width.

    Taps: `residual_post` (batch position d_model), what leaves them.
    """

    def __init__(
        self, d_model: int, d_state: int, layers: int, *, forget: float, dropout: float
    ) -> None:
        """Draw the weights, see `LSTM`.

        Args:
            d_model, d_state, layers: the sizes.
            forget: initial bias of the forget gates.
            dropout: probability of dropping an entry of each layer's output.
        """
        super().__init__()
        widths = [d_model, *[d_state] * (layers - 1)]
        self.layers = nn.ModuleList(LSTM(width, d_state, forget=forget) for width in widths)
        self.output = nn.Linear(d_state, d_model, bias=False)
        nn.init.xavier_uniform_(self.output.weight)
        self.dropout = dropout
        self.residual_post = Tap()
        self.cross_attention = None

    def forward(
        self,
        x: Float[Tensor, "batch position d_model"],
        memory: None = None,
        *,
        causal: bool = False,
        **other: Any,
    ) -> Float[Tensor, "batch position d_model"]:
        """What takes the place of the stream after the last block.

        Raises:
            ValueError: when it is not causal, or anything else is given that attention can take.
        """
        del memory
        _only_the_stream(causal, other)
        for layer in self.layers:
            x = layer(x)
            if self.training and self.dropout:
                x = F.dropout(x, self.dropout)
        return self.residual_post(self.output(x))


@dataclass(frozen=True)
class Recurrent:
    """Preparation for training: LSTM layers in the place of all blocks of a decoder.

    Attributes:
        layers: how many.
        share: of the blocks' weights that they have together, as nearly as whole widths allow.
        forget: initial bias of the forget gates.
        dropout: probability of dropping an entry of each layer's output.

    Raises:
        ValueError: when there is no layer, or the share is not positive.
    """

    layers: int = 1
    share: float = 1.0
    forget: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.layers < 1 or self.share <= 0:
            raise ValueError(
                f"expected at least one layer and a positive share, got {self.layers} and {self.share}"
            )

    def __call__(self, model: Model) -> None:
        """Replace the blocks. Raises ValueError when the model is an encoder-decoder."""
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder, got an EncoderDecoder")
        weights = sum(weight.numel() for weight in model.blocks.parameters())
        d_model = model.config.d_model
        width = state_width(round(self.share * weights), d_model, self.layers)
        with seeded(_seed_of(model.token_embedding.weight)):
            layers = LSTMLayers(
                d_model, width, self.layers, forget=self.forget, dropout=self.dropout
            )
        model.blocks = nn.ModuleList([layers])


@dataclass(frozen=True)
class Chrono:
    r"""Preparation for training: an LSTM layer whose gates start as Tallec and Ollivier (2018) have it.

    The bias of each unit's forget gate is $\log u$ with $u$ uniform between 1 and `longest` - 1, so that
    memories of all lengths occur, and the bias of its input gate is $-\log u$.

    Attributes:
        longest: the longest distance that matters, in tokens.
        dropout: probability of dropping an entry of the layer's output.

    Raises:
        ValueError: when the longest distance is less than 3 tokens.
    """

    longest: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.longest < 3:
            raise ValueError(
                f"expected a longest distance of at least 3 tokens, got {self.longest}"
            )

    def __call__(self, model: Model, *, seed: int) -> None:
        """Replace the blocks, with biases drawn by the seed. Raises ValueError for an encoder-decoder."""
        Recurrent(dropout=self.dropout)(model)
        assert not isinstance(model, EncoderDecoder)
        (layers,) = model.blocks
        assert isinstance(layers, LSTMLayers)
        (layer,) = layers.layers
        assert isinstance(layer, LSTM)
        width = layer.recur.in_features
        drawn = torch.rand(width, generator=make_generator(seed, "chrono"))
        keep = (1 + (self.longest - 2) * drawn).log()
        with torch.no_grad():
            layer.read.bias[:width] = -keep  # order: input, forget, cell, output
            layer.read.bias[width : 2 * width] = keep


def state_width(weights: int, d_model: int, layers: int = 1) -> int:
    """The width of LSTM layers with about so many weights, the matrix after them included.

    >>> state_width(weights=4 * 50 * (32 + 50) + 4 * 50 + 50 * 32, d_model=32)
    50
    """
    square, linear = 8 * layers - 4, 5 * d_model + 4 * layers
    return round((-linear + math.sqrt(linear**2 + 4 * square * weights)) / (2 * square))


# The linear recurrence ----------------------------------------------------------------------------


def recurrence(
    keep: Float[Tensor, "*batch position channel"], new: Float[Tensor, "*batch position channel"]
) -> Float[Tensor, "*batch position channel"]:
    r"""All states of $h_t = a_t \odot h_{t-1} + b_t$, one after another, from $h_0 = 0$.

    Args:
        keep: the gates $a$.
        new: what is written, $b$.
    """
    state, states = torch.zeros_like(new[..., 0, :]), []
    for t in range(new.shape[-2]):
        state = keep[..., t, :] * state + new[..., t, :]
        states.append(state)
    return torch.stack(states, dim=-2)


def scan(
    keep: Float[Tensor, "*batch position channel"], new: Float[Tensor, "*batch position channel"]
) -> Float[Tensor, "*batch position channel"]:
    """The same in as many steps as the length has binary digits: each joins neighbours twice as far apart.

    After a step of reach r, `new` at a position holds what its last 2r tokens have left, and `keep` the product
    of their gates.
    """
    reach = 1
    while reach < new.shape[-2]:
        late, early = new[..., reach:, :], new[..., :-reach, :]
        joined = late + keep[..., reach:, :] * early
        gates = keep[..., reach:, :] * keep[..., :-reach, :]
        new = torch.cat((new[..., :reach, :], joined), dim=-2)
        keep = torch.cat((keep[..., :reach, :], gates), dim=-2)
        reach *= 2
    return new


class LinearRecurrence(nn.Module):
    r"""A gated linear recurrence in the place of `MultiHeadAttention`, with four matrices of the same shapes.

    $a_t = \sigma(W_a x_t)$, $h_t = a_t \odot h_{t-1} + \sqrt{1 - a_t^2} \odot W_v x_t$, and what is written to
    the stream is $W_o (h_t \odot \mathrm{silu}(W_g x_t))$. Biases of $a$ are spread, so that channels keep
    their state over different times to begin with: up to `LONGEST` tokens.

    Taps: `keep` and `states` (batch position channel), `out` (batch position d_model).
    """

    def __init__(self, old: MultiHeadAttention) -> None:
        """Take over the matrices of an attention sublayer: query, key, value and output.

        Raises:
            ValueError: when it has fewer key-value heads than query heads, or no biases.
        """
        super().__init__()
        if old.n_kv_heads != old.n_heads or old.query.bias is None:
            raise ValueError(
                "expected attention with as many key-value heads as heads and with biases, got "
                f"{old.n_kv_heads} for {old.n_heads} and bias={old.query.bias is not None}"
            )
        self.gate, self.keep_gate, self.value, self.output = (
            old.query,
            old.key,
            old.value,
            old.output,
        )
        channels = self.keep_gate.weight.shape[0]
        times = torch.logspace(0, 1, channels) ** math.log10(LONGEST)  # 1 ... LONGEST
        with torch.no_grad():
            self.keep_gate.bias.copy_(times.log())  # a = t / (t + 1): about t tokens
        self.keep, self.states, self.out = Tap(), Tap(), Tap()

    def forward(
        self, x: Float[Tensor, "batch position d_model"], *, causal: bool = False, **other: Any
    ) -> Float[Tensor, "batch position d_model"]:
        """What the sublayer writes to the stream.

        Raises:
            ValueError: when it is not causal, or anything else is given that attention can take.
        """
        _only_the_stream(causal, other)
        keep = self.keep(self.keep_gate(x).sigmoid())
        new = (1 - keep.square()).clamp(min=1e-6).sqrt() * self.value(x)
        states = self.states(scan(keep, new))
        return self.out(self.output(states * F.silu(self.gate(x))))


def linear_recurrence(model: Model) -> None:
    """Preparation for training: put a linear recurrence in the place of all self-attention of a decoder.

    Raises:
        ValueError: when the model is an encoder-decoder.
    """
    if isinstance(model, EncoderDecoder):
        raise ValueError("expected a Decoder, got an EncoderDecoder")
    for block in model.blocks:
        assert isinstance(block, Block)
        block.attention = LinearRecurrence(block.attention)  # type: ignore[assignment]


def _only_the_stream(causal: bool, other: dict[str, Any]) -> None:
    if given := [name for name, value in other.items() if value is not None]:
        raise ValueError(f"a recurrence takes the stream alone, got {', '.join(given)}")
    if not causal:
        raise ValueError("expected a causal model, got causal=False")


def _seed_of(weight: Tensor) -> int:
    """A number that follows from the bits of some weights."""
    bits = weight.detach().float().flatten()[:64].contiguous().view(torch.int32)
    return int(bits.long().sum()) % 2**31
