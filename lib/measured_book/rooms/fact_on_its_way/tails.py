"""Runs of prompts from their subject on: what stands before it is run once, and its keys and values are kept.

No change of this chapter reaches what a prompt says before its subject, as no token sees a later one. So only
two to four tokens of each prompt are run again where one state, write or view is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.cache import KeyValues
from torch import Tensor

from measured_book.smollm2.model import smollm2
from measured_book.smollm2.sweeps import Sweep


@dataclass(frozen=True, eq=False)
class Tail(Sweep):
    """The end of a batch of prompts of one length, as a `Sweep` of these tokens alone.

    Attributes:
        before: number of tokens before them.
        past: keys and values of those, for each block.
        told: what each block is told of positions.
    """

    before: int
    past: list[tuple[Tensor, Tensor]]
    told: list[dict[str, Any]]

    def run(
        self, block: int, state: Float[Tensor, "row position d_model"]
    ) -> Float[Tensor, "row position d_model"]:
        """The stream at the last tokens after one block; with gradients where these are recorded.

        Raises:
            ValueError: when the rows are no multiple of those of the batch.
        """
        copies, rest = divmod(len(state), len(self.tokens))
        if rest:
            raise ValueError(
                f"expected rows that are a multiple of {len(self.tokens)} prompts, got {len(state)}"
            )
        keys, values = (one.repeat(copies, 1, 1, 1) for one in self.past[block])
        past = KeyValues()
        past.extend(keys, values)
        after: Tensor = self.model.blocks[block](state, causal=True, cache=past, **self.told[block])
        return after


@torch.no_grad()
def begin_at(
    tokens: Int[Tensor, "prompt position"], start: int, *, model: Decoder | None = None
) -> Tail:
    """Run prompts of one length once, and keep the stream before every block from one position on.

    Args:
        tokens: of the prompts.
        start: the first position that is kept.
        model: SmolLM2 when not given.

    Raises:
        ValueError: when no token, or every one, stands before `start`.
    """
    if not 0 < start < tokens.shape[1]:
        raise ValueError(f"expected a start inside {tokens.shape[1]} tokens, got {start}")
    model = smollm2().model if model is None else model
    cache = model.make_cache()
    model.stream(tokens[:, :start], cache=cache)
    past = [(one.keys.clone(), one.values.clone()) for one in cache.layers]
    resolved = model.resolve_positions(tokens[:, start:], cache=cache)
    x, rotation, bias = model.embed(tokens[:, start:], resolved)
    told = [{"rotation": one, "score_bias": bias} for one in model._rotations(resolved, rotation)]
    states = torch.empty(len(model.blocks) + 1, *x.shape, dtype=x.dtype)
    tail = Tail(model, tokens[:, start:], states, None, start, past, told)
    states[0] = x
    for block in range(len(model.blocks)):
        states[block + 1] = tail.run(block, states[block])
    return tail
