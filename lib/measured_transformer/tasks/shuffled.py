"""The sentences of the grammar with their words in disorder: the same words, the same lengths, no syntax."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.grammar import VOCABULARY, Grammar
from measured_transformer.tasks.task import Batch

STOP = VOCABULARY.index(".")
"""The token that ends a sentence."""


@dataclass(frozen=True)
class ShuffledSentences:
    """The grammar's sequences, the words of each sentence shuffled; full stops stay where they are.

    A control for whatever is said to come from syntax. A model can still learn which words are frequent, which
    kinds of words a sentence has, and how long sentences are. From the same generator it draws the very
    sentences that the grammar draws, batch after batch: the order comes from a generator of its own, which is
    seeded from the state that the given one was in.

    Attributes:
        grammar: whose sentences they are.

    >>> task = ShuffledSentences(Grammar(length=12))
    >>> batch = task.batch(torch.Generator().manual_seed(5), 1)
    >>> task.grammar.text(batch.inputs[0])
    'arrives some finds needs the towers nun uncle that every she while'
    """

    grammar: Grammar
    causal = True

    @property
    def vocab(self) -> int:
        """Number of different words."""
        return self.grammar.vocab

    @property
    def length(self) -> int:
        """Number of predictions asked for."""
        return self.grammar.length

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; what was known about their relations holds no more and is left out."""
        state = generator.get_state().numpy().tobytes()
        own = int.from_bytes(blake2b(state, digest_size=4).digest(), "little")
        drawn = self.grammar.batch(generator, size, length=length)
        whole = torch.cat((drawn.inputs[:, :1], drawn.targets), dim=1)
        mixed = shuffled(whole, torch.Generator().manual_seed(own))
        return Batch(mixed[:, :-1], mixed[:, 1:], drawn.scored)


def shuffled(
    tokens: Int[Tensor, "batch position"], generator: torch.Generator
) -> Int[Tensor, "batch position"]:
    """The words of each sentence in random order, all orders equally likely; stops stay in their places.

    Args:
        tokens: of the grammar. What follows the last stop is a sentence too, though cut off.
        generator: of the orders.
    """
    stops = tokens == STOP
    sentence = (
        stops.cumsum(1) - stops.long()
    ).double()  # a stop belongs to the sentence that it ends
    # Sorted by sentence, within it by chance; a stop comes after all words of its sentence.
    chance = 0.9 * torch.rand(tokens.shape, generator=generator, dtype=torch.float64)
    key = sentence + chance.masked_fill(stops, 0.95)
    return tokens.gather(1, key.argsort(dim=1))
