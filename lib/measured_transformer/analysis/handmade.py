"""Models with handwritten weights, in which the function of each head is known in advance.

An analysis that is to be believed about trained models must first give the right answer on these: a head
that looks one place back, one that looks at the mirrored place, one that looks everywhere; two heads of two
layers that work together by queries, by keys (an induction pair) or by values.

Their stream is cut into parts of which each holds one thing (`Layout`): the token, its place, and for each
head a note, where it writes the token that it read. There is no norm, no bias and no feed-forward network that
does anything, and everything is float64. With the default sharpness a head that looks at one place gives all
others together less than 1e-20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.internals.places import select_one
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block

Role = Literal["previous", "next", "self", "first", "mirror", "same_token", "uniform"]
"""What a hand-made head looks at, see `heads_model`."""
Composition = Literal["q", "k", "v"]
"""By what a later head uses what an earlier one wrote: its queries, its keys or its values."""
SHARP = 60.0
"""What a matching place or token adds to a score."""
_AHEAD = ("next", "mirror")


@dataclass(frozen=True)
class Layout:
    """The layout of a handmade model's stream.

    Attributes:
        vocab: number of different tokens.
        length: largest number of positions.
        notes: number of parts that heads write to.
    """

    vocab: int
    length: int
    notes: int = 1

    @property
    def token(self) -> slice:
        """Where the token stands, one entry for each."""
        return slice(0, self.vocab)

    @property
    def place(self) -> slice:
        """Where its position stands, one entry for each."""
        return slice(self.vocab, self.vocab + self.length)

    def note(self, number: int) -> slice:
        """The part of that number, one entry for each token.

        Raises:
            ValueError: when there are not so many parts.
        """
        if not 0 <= number < self.notes:
            raise ValueError(f"expected a note from 0 to {self.notes - 1}, got {number}")
        start = self.vocab + self.length + number * self.vocab
        return slice(start, start + self.vocab)

    @property
    def width(self) -> int:
        """Width of the stream."""
        return self.vocab + self.length + self.notes * self.vocab


def heads_model(
    roles: Sequence[Role],
    *,
    vocab: int,
    length: int,
    causal: bool = False,
    read: int = -1,
    sharpness: float = SHARP,
) -> Decoder | Encoder:
    """One layer with a head for each role; head i copies the token that it looks at to note i.

    - `previous`, `next`: the position one place back, one place ahead.
    - `self`, `first`: the own position, the first one.
    - `mirror`: position `length - 1 - p` from position p: the head that reverses a sequence of this length.
    - `same_token`: all positions with the token of the own one, itself among them, evenly.
    - `uniform`: all positions evenly.

    Where the place asked for does not exist, the head looks at all positions evenly. The same role may come
    more than once: such heads do the same.

    Args:
        roles: of the heads, in their order.
        vocab: number of different tokens.
        length: largest number of positions.
        causal: a decoder, whose heads see nothing ahead; else an encoder.
        read: the note that the logits are read from, the last one unless given.
        sharpness: what a match adds to a score; small values spread the attention.

    Raises:
        ValueError: when there is no role, a role is unknown or looks ahead in a causal model, or `read` is no
            head's number.

    >>> model = heads_model(["previous", "mirror"], vocab=5, length=4)
    >>> model(torch.tensor([[3, 1, 4, 2]])).argmax(-1)
    tensor([[2, 4, 1, 3]])
    """
    unknown = sorted(set(roles) - set(get_args(Role)))
    if not roles or unknown:
        known = ", ".join(get_args(Role))
        raise ValueError(f"expected one or more of the roles {known}; got {unknown or 'none'}")
    if causal and (ahead := [role for role in roles if role in _AHEAD]):
        raise ValueError(f"a causal head cannot look ahead, got the roles {', '.join(ahead)}")
    if not -len(roles) <= read < len(roles):
        raise ValueError(f"read must be the number of one of {len(roles)} heads, got {read}")
    layout = Layout(vocab, length, len(roles))
    model = empty_model(layout, n_layers=1, n_heads=len(roles), causal=causal)
    attention = attentions(model)[0]
    for number, role in enumerate(roles):
        query, key = _asking(role, layout)
        value, output = _copying(layout, layout.token, layout.note(number))
        set_head(attention, number, query=sharpness * query, key=key, value=value, output=output)
    _read_note(model, layout, read % len(roles))
    return model


def previous_token_model(*, vocab: int, length: int, causal: bool = True) -> Decoder | Encoder:
    """A single head that looks one position back and outputs the token there.

    >>> previous_token_model(vocab=5, length=4)(torch.tensor([[3, 1, 4, 2]])).argmax(-1)[:, 1:]
    tensor([[3, 1, 4]])
    """
    return heads_model(["previous"], vocab=vocab, length=length, causal=causal)


def reversal_model(*, vocab: int, length: int) -> Decoder | Encoder:
    """A single head that reverses every sequence of `length` tokens (an encoder).

    >>> reversal_model(vocab=5, length=4)(torch.tensor([[3, 1, 4, 2]])).argmax(-1)
    tensor([[2, 4, 1, 3]])
    """
    return heads_model(["mirror"], vocab=vocab, length=length)


def uniform_model(*, vocab: int, length: int, causal: bool = False) -> Decoder | Encoder:
    """A single head that looks at every position it may see, evenly, and writes the mean of the tokens.

    >>> uniform_model(vocab=3, length=4)(torch.tensor([[0, 1, 1, 2]]))[0, 0].tolist()
    [0.25, 0.5, 0.25]
    """
    return heads_model(["uniform"], vocab=vocab, length=length, causal=causal)


def induction_model(*, vocab: int, length: int) -> Decoder:
    """The induction pair: it predicts the token that followed the earlier copy of the present one.

    Head 0 of layer 0 notes the token one place back. Head 0 of layer 1 looks where its own token is in the
    note: one place behind an earlier copy of it. So it is the `k` of `composed_model`.

    >>> induction_model(vocab=6, length=8)(torch.tensor([[0, 5, 3, 1, 5]])).argmax(-1)[0, -1]
    tensor(3)
    """
    return composed_model("k", vocab=vocab, length=length)


def composed_model(by: Composition, *, vocab: int, length: int) -> Decoder:
    """Two layers of one head each; the second needs what the first wrote.

    Head 0 of layer 0 notes the token one place back. The head of layer 1 uses the note

    - `k`: as its key, and asks for its own token: it looks one place behind earlier copies of it (induction);
    - `q`: as its query, and asks for tokens: it looks at copies of the token that stood one place back;
    - `v`: as its value, and looks one place back: it says what stood two places back. The two together are one
      virtual head.

    It writes to note 1, which the logits read.

    Raises:
        ValueError: when `by` is another one.

    >>> composed_model("v", vocab=6, length=8)(torch.tensor([[0, 5, 3, 1, 5]])).argmax(-1)[:, 2:]
    tensor([[0, 5, 3]])
    """
    if by not in get_args(Composition):
        raise ValueError(f"heads compose by q, k or v, got {by!r}")
    layout = Layout(vocab, length, 2)
    model = empty_model(layout, n_layers=2, n_heads=1, causal=True)
    query, key = _asking("previous", layout)
    value, output = _copying(layout, layout.token, layout.note(0))
    first, second = attentions(model)
    set_head(first, 0, query=SHARP * query, key=key, value=value, output=output)
    token, note = (_entries(layout, part) for part in (layout.token, layout.note(0)))
    read = layout.token
    if by == "k":
        # The first position sees but itself, and so notes its own token: nobody shall find it there.
        nowhere = torch.zeros_like(note)
        nowhere[layout.place.start] = 1
        query, key = token, note - nowhere
    elif by == "q":
        query, key = note, token
    else:
        read = layout.note(0)
    value, output = _copying(layout, read, layout.note(1))
    set_head(second, 0, query=SHARP * query, key=key, value=value, output=output)
    _read_note(model, layout, 1)
    assert isinstance(model, Decoder)
    return model


# What they are made of ------------------------------------------------------------------------------


def empty_model(layout: Layout, *, n_layers: int, n_heads: int, causal: bool) -> Decoder | Encoder:
    """A model whose stream holds token and place, one-hot, and whose heads and networks do nothing yet."""
    config = Config(
        vocab=layout.vocab,
        d_model=layout.width,
        n_layers=n_layers,
        n_heads=n_heads,
        d_head=max(layout.vocab, layout.length),
        d_ff=1,
        max_length=layout.length,
        positions="learned",
        norm="none",
        bias=False,
        attention_scale=1.0,
        embedding_scale=1.0,
    )
    model: Decoder | Encoder = (Decoder if causal else Encoder)(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.token_embedding.weight[:, layout.token] = torch.eye(layout.vocab).double()
        table = model.get_parameter("positions.table")
        table[:, layout.place] = torch.eye(layout.length).double()
    return model


def attentions(model: Decoder | Encoder) -> list[MultiHeadAttention]:
    """The self-attention of each block, from the first to the last."""
    return [cast(Block, block).attention for block in model.blocks]


def set_head(
    attention: MultiHeadAttention,
    head: int,
    *,
    query: Float[Tensor, "d_model some"],
    key: Float[Tensor, "d_model some"],
    value: Float[Tensor, "d_model other"],
    output: Float[Tensor, "other d_model"],
) -> None:
    r"""Write one head's $W_Q$, $W_K$, $W_V$ and $W_O$, as they stand in $x W$; unused columns become zero.

    Raises:
        ValueError: when heads share keys and values, there is no such head, or a matrix does not fit.
    """
    if attention.n_kv_heads != attention.n_heads:
        raise ValueError(
            "a head can be written on its own when it has its own keys and values, got "
            f"n_heads={attention.n_heads} and n_kv_heads={attention.n_kv_heads}"
        )
    head = select_one("head", head, attention.n_heads)
    d_head, d_model = attention.d_head, attention.d_model
    rows = slice(head * d_head, (head + 1) * d_head)
    given = {"query": query.T, "key": key.T, "value": value.T, "output": output}
    for name, matrix in given.items():
        if matrix.ndim != 2 or matrix.shape[0] > d_head or matrix.shape[1] != d_model:
            raise ValueError(
                f"{name} must join d_model={d_model} with at most d_head={d_head} entries, got a matrix "
                f"from {tuple(matrix.shape)}"
            )
        with torch.no_grad():
            weight = attention.get_submodule(name).get_parameter("weight")
            block = weight[:, rows].T if name == "output" else weight[rows]
            block.zero_()
            block[: len(matrix)] = matrix


def _entries(layout: Layout, part: slice) -> Float[Tensor, "d_model entry"]:
    """The matrix that picks a part out of the stream."""
    return torch.eye(layout.width, dtype=torch.float64)[:, part]


def _copying(
    layout: Layout, read: slice, written: slice
) -> tuple[Float[Tensor, "d_model entry"], Float[Tensor, "entry d_model"]]:
    """Value and output matrices that carry one part to another."""
    return _entries(layout, read), _entries(layout, written).T


def _asking(
    role: Role, layout: Layout
) -> tuple[Float[Tensor, "d_model entry"], Float[Tensor, "d_model entry"]]:
    """Query and key matrices whose product is 1 where the role looks, and 0 elsewhere."""
    place, token = _entries(layout, layout.place), _entries(layout, layout.token)
    if role == "same_token":
        return token, token
    n = layout.length
    wanted = torch.zeros(n, n, dtype=torch.float64)  # row: the own place, column: the one looked at
    if role in ("previous", "next"):
        wanted = torch.diag(torch.ones(n - 1, dtype=torch.float64), -1 if role == "previous" else 1)
    elif role == "self":
        wanted = torch.eye(n, dtype=torch.float64)
    elif role == "first":
        wanted[:, 0] = 1
    elif role == "mirror":
        wanted = torch.eye(n, dtype=torch.float64).flip(0)
    return place @ wanted, place


def _read_note(model: Decoder | Encoder, layout: Layout, number: int) -> None:
    with torch.no_grad():
        weight = model.get_parameter("unembedding.weight")
        weight[:, layout.note(number)] = torch.eye(layout.vocab).double()
