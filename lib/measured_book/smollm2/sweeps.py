"""Sweeps over blocks and heads that begin at the block that changes, and losses without all logits at once.

`begin` runs a small batch once and keeps the state before every block. `Sweep.onward` goes on from any of them,
so that a change of block 20 costs ten blocks, not thirty. Interventions on the model apply as in a whole run:

>>> from measured_transformer import Config, Decoder, intervene
>>> from measured_transformer.internals.at import at
>>> model = Decoder(Config(vocab=50, d_model=16, n_layers=3, n_heads=2, positions="rotary")).eval()
>>> sweep = begin(torch.randint(50, (2, 8)), model=model)
>>> with intervene(model, {"blocks.1.attention.mixed": at(0.0, heads=1)}):
...     changed = sweep.onward(1)                       # blocks 1 and 2; the stream before the final norm
>>> (sweep.losses(changed) - sweep.losses()).shape
torch.Size([2, 7])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.ablation import How
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.internals.places import Places, select, select_one
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.attention import MultiHeadAttention
from torch import Tensor
from torch.nn import functional as F

from measured_book.smollm2.model import smollm2

CHUNK = 128
"""Positions whose logits are there at once: 25 MB of SmolLM2's."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """A batch that was run once, with the stream before every block.

    Attributes:
        model: that was run.
        tokens: that it read.
        states: the stream before each block, and after the last one; before the final norm.
        positions: of the tokens, where they are not counted from 0.
    """

    model: Decoder
    tokens: Int[Tensor, "text position"]
    states: Float[Tensor, "state text position d_model"]
    positions: Int[Tensor, "text position"] | None
    _how: dict[int, list[dict[str, Any]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.model.blocks)

    @torch.no_grad()
    def onward(
        self,
        block: int,
        state: Float[Tensor, "row position d_model"] | None = None,
        *,
        until: int | None = None,
    ) -> Float[Tensor, "row position d_model"]:
        """The stream that a state leads to.

        Args:
            block: the first block that runs, from 0; the number of blocks for none at all.
            state: the stream before it; the kept one when not given. It may have several times as many rows
                as the batch, such as one copy for each head.
            until: the first block that does not run; all run when not given.

        Raises:
            ValueError: when a block does not exist, or the rows are no multiple of those of the batch.
        """
        first = select_one("block", block, self.blocks + 1)
        last = self.blocks if until is None else select_one("until", until, self.blocks + 1)
        if last < first:
            raise ValueError(f"expected a block up to until={last}, got {first}")
        x = self.states[first] if state is None else state
        for number in range(first, last):
            x = self.run(number, x)
        return x

    @torch.no_grad()
    def run(
        self, block: int, state: Float[Tensor, "row position d_model"]
    ) -> Float[Tensor, "row position d_model"]:
        """The stream after one block; for sweeps that leave blocks out, swap or repeat them.

        Raises:
            ValueError: when the rows are no multiple of those of the batch.
        """
        copies, rest = divmod(len(state), len(self.tokens))
        if rest:
            raise ValueError(
                f"expected rows that are a multiple of {len(self.tokens)} texts, got {len(state)}"
            )
        if copies not in self._how:
            self._how[copies] = _how(self.model, self.tokens, self.positions, copies)
        how = self._how[copies][block]
        after: Tensor = self.model.blocks[block](state, causal=True, **how)
        return after

    def final(self, state: Float[Tensor, "row position d_model"] | None = None) -> Tensor:
        """The stream after the last block: `state`, or that of the run itself."""
        return self.states[-1] if state is None else state

    def losses(
        self, state: Float[Tensor, "row position d_model"] | None = None, *, chunk: int = CHUNK
    ) -> Float[Tensor, "row target"]:
        """Nats for each token after the first, from the stream after the last block; see `token_losses`."""
        state = self.final(state)
        copies = len(state) // len(self.tokens)
        return token_losses(self.model, state, self.tokens.repeat(copies, 1), chunk=chunk)

    @torch.no_grad()
    def last_logits(
        self, state: Float[Tensor, "row position d_model"] | None = None, *, position: int = -1
    ) -> Float[Tensor, "row vocab"]:
        """The logits at one position, the last one when not given."""
        return self.model.unembed(self.final(state)[:, [position]])[:, 0]

    @torch.no_grad()
    def head_outputs(self, block: int) -> Float[Tensor, "text head position d_model"]:
        """What each head of a block adds to the stream."""
        name = f"blocks.{select_one('block', block, self.blocks)}.attention.head_outputs"
        with capture(self.model, name) as seen:
            self.onward(block, until=block + 1)
        return seen[name]

    @torch.no_grad()
    def write_norms(self, *, skip: Places | None = 0) -> Float[Tensor, "block head"]:
        """The mean length of what each head adds to the stream, before a norm of it where there is one.

        Args:
            skip: positions that are left out, the first one when not given; None for none.
        """
        keep = kept(self.tokens.shape[1], skip)
        names = [f"blocks.{i}.attention.mixed" for i in range(self.blocks)]
        with capture(self.model, *names, transform=lambda x: x[:, :, keep]) as seen:
            self.onward(0)
        found = []
        for name, block in zip(names, self.model.blocks, strict=True):
            attention = block.attention
            assert isinstance(attention, MultiHeadAttention)
            written = attention.output.weight.unflatten(1, (attention.n_heads, -1))
            # as long as the product with the whole matrix, by a square one
            short = torch.linalg.qr(written.transpose(0, 1)).R  # head, d_head, d_head
            lengths = torch.einsum("nhtd,hed->nhte", seen[name], short).norm(dim=-1)
            found.append(lengths.mean((0, 2)))
        return torch.stack(found)

    @torch.no_grad()
    def after_block_without(
        self, block: int, heads: Places, how: How = "zero", *, skip: Places | None = None
    ) -> Float[Tensor, "text position d_model"]:
        """The stream after a block whose heads are taken away together.

        Args:
            block: its number; it gets the kept state.
            heads: which of its heads.
            how: `zero`: they hand on nothing; `mean`: what they hand on at that position in the mean over the
                batch; `resample`: what they hand on in the next text of the batch.
            skip: positions at which they hand on what they did.

        Raises:
            ValueError: when `how` is none of these.
        """
        with self.without({select_one("block", block, self.blocks): heads}, how, skip=skip):
            return self.onward(block, until=block + 1)

    @contextmanager
    def without(
        self,
        heads: dict[int, Any],
        how: How = "zero",
        *,
        skip: Places | None = None,
    ) -> Iterator[None]:
        """Let the model run without some heads, of any blocks, inside a `with` block; then use `onward`.

        Args:
            heads: block -> which of its heads.
            how, skip: as in `after_block_without`; what stands in is taken from the run of the batch.

        Raises:
            ValueError: when `how` is none of these.
        """
        if how not in ("zero", "mean", "resample"):
            raise ValueError(f"a head is taken away by zero, mean or resample; got {how!r}")
        places = kept(self.tokens.shape[1], skip)
        changes: dict[str, Change] = {}
        for block, which in heads.items():
            name = f"blocks.{block}.attention.mixed"
            chosen = select("heads", which, self.model.config.n_heads)
            if how == "zero":
                changes[name] = at(0.0, heads=chosen, positions=places)
                continue
            with torch.no_grad(), capture(self.model, name) as seen:
                self.onward(block, until=block + 1)
            mixed = seen[name][:, chosen][:, :, places]
            other = mixed.mean(0, keepdim=True) if how == "mean" else mixed.roll(-1, 0)
            other = other.expand_as(mixed)
            changes[name] = at(_repeated(other), heads=chosen, positions=places)
        with intervene(self.model, changes):
            yield


def _repeated(other: Tensor) -> Callable[[Tensor], Tensor]:
    """A change that puts these rows in place of as many, or of several times as many."""
    return lambda value: other.repeat(len(value) // len(other), 1, 1, 1)


@torch.no_grad()
def begin(
    tokens: Int[Tensor, "text position"],
    *,
    model: Decoder | None = None,
    positions: Int[Tensor, "text position"] | None = None,
) -> Sweep:
    """Run a batch once and keep the stream before every block.

    Args:
        tokens: of texts of one length, as `texts.draw` gives them.
        model: SmolLM2 when not given.
        positions: of the tokens, where they should not be counted from 0.

    Raises:
        ValueError: when the tokens do not fit the model.
    """
    model = smollm2() if model is None else model
    x, how = _opened(model, tokens, positions)
    states = [x]
    for block, given in zip(model.blocks, how, strict=True):
        x = block(x, causal=True, **given)
        states.append(x)
    sweep = Sweep(model, tokens, torch.stack(states), positions)
    sweep._how[1] = how
    return sweep


@torch.no_grad()
def stream_after(
    blocks: int, tokens: Int[Tensor, "text position"], *, model: Decoder | None = None
) -> Float[Tensor, "text position d_model"]:
    """The stream after the first blocks; the others do not run. Captures see what these compute.

    Args:
        blocks: how many run.
        tokens: of texts of one length.
        model: SmolLM2 when not given.

    Raises:
        ValueError: when there are not as many blocks, or the tokens do not fit the model.
    """
    model = smollm2() if model is None else model
    last = select_one("blocks", blocks, len(model.blocks) + 1)
    x, how = _opened(model, tokens, None)
    for number in range(last):
        x = model.blocks[number](x, causal=True, **how[number])
    return x


def _opened(
    model: Decoder, tokens: Tensor, positions: Tensor | None
) -> tuple[Tensor, list[dict[str, Any]]]:
    """What the first block reads, and what each block is told of positions."""
    resolved = model.resolve_positions(tokens, positions=positions)
    x, rotation, bias = model.embed(tokens, resolved)
    turned = model._rotations(resolved, rotation)
    return x, [{"rotation": one, "score_bias": bias} for one in turned]


def _how(
    model: Decoder, tokens: Tensor, positions: Tensor | None, copies: int
) -> list[dict[str, Any]]:
    """What each block is told of positions when the batch stands there several times."""
    again = None if positions is None else positions.repeat(copies, 1)
    return _opened(model, tokens.repeat(copies, 1), again)[1]


@torch.no_grad()
def token_losses(
    model: Decoder,
    state: Float[Tensor, "row position d_model"],
    tokens: Int[Tensor, "row position"],
    *,
    chunk: int = CHUNK,
) -> Float[Tensor, "row target"]:
    """Nats for each token after the first, with the logits of few positions there at once.

    Args:
        model: whose final norm and unembedding read.
        state: the stream after the last block.
        tokens: that were read; each is predicted from the position before it.
        chunk: positions whose logits are there at once.
    """
    read = state[:, :-1].flatten(0, 1)
    answers = tokens[:, 1:].flatten()
    found = [
        F.cross_entropy(_at_least_single(model.unembed(some[None])[0]), right, reduction="none")
        for some, right in zip(read.split(chunk), answers.split(chunk), strict=True)
    ]
    return torch.cat(found).view(len(tokens), -1)


def _at_least_single(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def kept(length: int, skip: Places | None) -> Int[Tensor, "kept"]:
    """The positions that are left when some are skipped.

    >>> kept(4, 0).tolist(), kept(4, [0, -1]).tolist(), kept(2, None).tolist()
    ([1, 2, 3], [1, 2], [0, 1])
    """
    here = torch.ones(length, dtype=torch.bool)
    if skip is not None:
        here[select("skip", skip, length)] = False
    return here.nonzero()[:, 0]


def losses_of(
    tokens: Int[Tensor, "text position"], *, model: Decoder | None = None, rows: int = 8
) -> Float[Tensor, "text target"]:
    """Nats for each token after the first, some texts at a time, from whole runs that keep nothing.

    Args:
        tokens: of texts of one length.
        model: SmolLM2 when not given; interventions on it apply.
        rows: texts that run at once.
    """
    model = smollm2() if model is None else model
    with torch.no_grad():
        return torch.cat(
            [token_losses(model, model.stream(some), some) for some in tokens.split(rows)]
        )


def heads_of(chosen: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Block and head of each chosen one -> heads by block, as `Sweep.without` takes them.

    >>> heads_of([(2, 1), (0, 3), (2, 0)])
    {0: [3], 2: [0, 1]}
    """
    found: dict[int, list[int]] = {}
    for block, head in sorted(chosen):
        found.setdefault(block, []).append(head)
    return found
