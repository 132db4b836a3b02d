"""Path patching of all heads at once: what another prompt's value of a head changes along one path alone.

Everything that is not on the path is held at what it writes in the prompt itself. So what a head would write
otherwise is added to the stream that the path's next part reads, and nothing else moves: no run of the model is
needed beyond the two that the values come from. `analysis.path_patching.patched_along` does the same for one
path of any model; here are three kinds of path to the last position's logits, for every sender:

- straight to them;
- through the queries of some later heads, at the last position, which write straight to the logits;
- through the values of some heads, which write to those queries.

Sources: Wang et al. (2023), section 3; Goldowsky-Dill et al. (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.attention import MultiHeadAttention, attention_scores
from measured_transformer.parts.positions import Rotation
from torch import Tensor

from measured_book.smollm2.controls import Head
from measured_book.smollm2.sweeps import Sweep, begin

LEVELS = ("answer", "queries", "values")
"""How a head acts: on the answer, on the queries of heads that do, or on the values that set those queries."""


@dataclass(frozen=True, eq=False)
class Routes:
    """Prompts and others of the same form, with what each head would write otherwise.

    Attributes:
        clean: the run that is changed.
        change: what each head writes in the other run less what it writes in this one, at all positions.
        rotated: rotated keys of each block in the clean run.
        patterns, values: what each head looks at, and the values there, in the clean run.
        between: for each prompt the direction in the normed final state that is the logit gap.
    """

    clean: Sweep
    change: Float[Tensor, "block head prompt position d_model"]
    rotated: list[Tensor]
    patterns: list[Tensor]
    values: list[Tensor]
    between: Float[Tensor, "prompt d_model"]

    @property
    def model(self) -> Decoder:
        """The model of both runs."""
        return self.clean.model

    @property
    def ends(self) -> Float[Tensor, "block head prompt d_model"]:
        """What each head would write otherwise at the last position."""
        return self.change[:, :, :, -1]

    def gap(
        self, change: Float[Tensor, "block head prompt d_model"]
    ) -> Float[Tensor, "block head prompt"]:
        """How much the logit gap changes when these are added to the last position's final state."""
        final = self.clean.states[-1][:, -1]
        usual = (self._read(final[None]) * self.between).sum(-1)
        found = [(self._read(final + one) * self.between).sum(-1) - usual for one in change]
        return torch.stack(found)

    def _read(self, state: Tensor) -> Tensor:
        return self.model.apply_final_norm(state)

    def before(self, block: int) -> Float[Tensor, "block head prompt d_model"]:
        """What the heads of earlier blocks would write otherwise at the last position; nothing for the rest."""
        found = self.ends.clone()
        found[block:] = 0.0
        return found

    def by_queries(
        self, receivers: Sequence[Head], reaching: Callable[[int], Tensor]
    ) -> Float[Tensor, "block head prompt d_model"]:
        """What receivers write at the last position when their queries there read a changed stream.

        Args:
            receivers: heads, whose writes are added up.
            reaching: for a block what is added to the stream before it at the last position, for each sender
                (block head prompt d_model).
        """
        total = torch.zeros_like(self.ends)
        for block, head in receivers:
            attention, turn, change = self._attention(block), self._last(block), reaching(block)
            kv = head // (attention.n_heads // attention.n_kv_heads)
            keys, values = self.rotated[block][:, kv], self.values[block][:, kv]
            for row, one in enumerate(change):
                read = self.model.blocks[block].attention_norm(  # type: ignore[operator]
                    self.clean.states[block][:, -1] + one
                )
                asked = attention.query(read).unflatten(-1, (attention.n_heads, -1))[:, :, head]
                turned = turn.apply(asked.flatten(0, 1)[:, None, None]).view(
                    *asked.shape[:2], 1, -1
                )
                scores = attention_scores(
                    turned, keys.expand(len(one), -1, -1, -1), scale=attention.scale
                )
                total[row] += self._written(block, head, (scores.softmax(-1) @ values)[:, :, 0])
        return total

    def by_values(
        self, receivers: Sequence[Head]
    ) -> Float[Tensor, "receiver block head prompt d_model"]:
        """What each receiver writes at the last position when its values read one sender's other writes.

        Args:
            receivers: heads; they look where they do in the clean run.
        """
        found = self.ends.new_zeros(len(receivers), *self.ends.shape)
        for place, (block, head) in enumerate(receivers):
            attention = self._attention(block)
            kv = head // (attention.n_heads // attention.n_kv_heads)
            look = self.patterns[block][:, head, -1]
            for sender in range(block):
                read = self.model.blocks[block].attention_norm(  # type: ignore[operator]
                    self.clean.states[block] + self.change[sender]
                )
                values = attention.value(read).unflatten(-1, (attention.n_kv_heads, -1))[..., kv, :]
                mixed = torch.einsum("pk,hpkd->hpd", look, values)
                found[place, sender] = self._written(block, head, mixed)
        return found

    def _written(self, block: int, head: int, mixed: Tensor) -> Tensor:
        """What a head writes at the last position with this mixture, less what it writes in the clean run."""
        attention = self._attention(block)
        kv = head // (attention.n_heads // attention.n_kv_heads)
        usual = torch.einsum(
            "pk,pkd->pd", self.patterns[block][:, head, -1], self.values[block][:, kv]
        )
        columns = slice(head * attention.d_head, (head + 1) * attention.d_head)
        written: Tensor = (mixed - usual) @ attention.output.weight[:, columns].T
        return written

    def _attention(self, block: int) -> MultiHeadAttention:
        attention = self.model.blocks[block].attention
        assert isinstance(attention, MultiHeadAttention)
        return attention

    def _last(self, block: int) -> Rotation:
        turn = self.clean._how[1][block]["rotation"]
        return Rotation(turn.cos[-1:], turn.sin[-1:], turn.pairing, turn.unturned)


@torch.no_grad()
def routes(
    tokens: Int[Tensor, "prompt position"],
    other: Int[Tensor, "prompt position"],
    right: Int[Tensor, "prompt"],
    wrong: Int[Tensor, "prompt"],
    *,
    model: Decoder | None = None,
) -> Routes:
    """Run prompts and others, and keep what paths between heads are made of.

    Args:
        tokens, other: prompts row by row, of one length.
        right, wrong: the two answers of each prompt, whose logits are compared.
        model: a decoder with rotary positions and norms before its sublayers; SmolLM2 when not given.
    """
    runs = []
    for some in (tokens, other):
        sweep = begin(some, model=model)
        runs.append(
            (
                sweep,
                torch.stack([sweep.head_outputs(i).transpose(0, 1) for i in range(sweep.blocks)]),
            )
        )
    (clean, own), (_, others) = runs
    names = ("rotated_keys", "pattern", "values")
    with capture(clean.model, *(f"blocks.*.attention.{name}" for name in names)) as seen:
        clean.onward(0)
    rotated, patterns, values = (
        [seen[f"blocks.{i}.attention.{name}"] for i in range(clean.blocks)] for name in names
    )
    assert clean.model.unembedding is not None
    weight = clean.model.unembedding.weight
    return Routes(clean, others - own, rotated, patterns, values, weight[right] - weight[wrong])


def effects(found: Routes, count: int) -> Float[Tensor, "level block head"]:
    """The mean change of the logit gap by each head along each kind of path.

    Each kind leads to the strongest of the kind before, as `strongest` takes them.

    Args:
        found: what `routes` gives.
        count: how many that are.
    """
    straight = found.gap(found.ends).mean(-1)
    (first,) = strongest(straight[None], count)
    queries = found.gap(found.by_queries(first, found.before)).mean(-1)
    _, second = strongest(torch.stack([straight, queries]), count)
    written = found.by_values(second)
    blocks = torch.tensor([block for block, _ in second])

    def reaching(block: int) -> Tensor:
        return written[blocks < block].sum(0)

    values = found.gap(found.by_queries(first, reaching)).mean(-1)
    return torch.stack([straight, queries, values])


def strongest(effect: Float[Tensor, "level block head"], count: int) -> list[list[Head]]:
    """The heads with the largest effects of each kind, whatever their sign; none is taken twice.

    >>> effect = torch.tensor([[[3.0, -1.0], [0.0, 2.0]], [[9.0, 0.5], [-0.7, 0.0]]])
    >>> strongest(effect, 1)
    [[(0, 0)], [(1, 0)]]
    """
    taken: list[list[Head]] = []
    for level in effect:
        before = {head for some in taken for head in some}
        order = level.abs().flatten().argsort(descending=True, stable=True).tolist()
        ranked = [divmod(place, level.shape[1]) for place in order]
        taken.append([head for head in ranked if head not in before][:count])
    return taken
