"""The grammar's sentences with words hidden, for a model that reads them from both sides.

What a model can know about a hidden word is computed exactly: the grammar is an automaton, so the words before
the gap say which states it can be in, and the words behind the gap say which of them can be true.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.tasks.grammar import _START, VOCABULARY, Grammar, _Choice, _State
from measured_transformer.tasks.task import Batch, check_share, check_sizes


@dataclass(frozen=True)
class MaskedWords:
    """Sentences of the `Grammar`, a share of whose words is replaced by a mask; they are to be guessed.

    Each word is hidden with the chance `share`, whatever it is; where a sequence would have no gap, one place,
    each as likely, becomes one. Scored are the gaps. Every hidden word shows the same token, the last of the
    vocabulary: none keeps its word and none gets a wrong one, as some do in BERT (Devlin et al., 2019).

    Used where a chapter asks for heads that look ahead. `gold` is that of the grammar, for the whole sentence.

    No model can be better than `ideal_losses` on a batch; one that looks at nothing has `constant_loss` at
    best.

    Attributes:
        length: number of words.
        share: chance of each word to be hidden.
        attractor, reference: as in `Grammar`.

    >>> task = MaskedWords(length=12)
    >>> task.text(task.batch(torch.Generator().manual_seed(5), 1).inputs[0])
    'every uncle that needs some _ finds the nun while she arrives'
    """

    length: int = 32
    share: float = 0.2
    attractor: float = 0.4
    reference: float = 0.6
    causal = False

    def __post_init__(self) -> None:
        check_sizes(length=self.length)
        check_share(share=self.share, attractor=self.attractor, reference=self.reference)

    @property
    def vocab(self) -> int:
        """Number of different words, the mask among them."""
        return len(VOCABULARY) + 1

    @property
    def mask(self) -> int:
        """The token that stands where a word is hidden."""
        return len(VOCABULARY)

    @property
    def grammar(self) -> Grammar:
        """Where the sentences come from."""
        return Grammar(self.length, self.attractor, self.reference)

    def text(self, tokens: Tensor) -> str:
        """The words of a sequence, an underscore for each gap."""
        return " ".join((*VOCABULARY, "_")[token] for token in tokens.tolist())

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences."""
        whole = self.grammar.batch(generator, size, length=length)
        chances = torch.rand(whole.inputs.shape, generator=generator)
        hidden = chances < self.share
        hidden |= (chances == chances.amin(1, keepdim=True)) & ~hidden.any(1, keepdim=True)
        inputs = whole.inputs.masked_fill(hidden, self.mask)
        return Batch(inputs, whole.inputs, hidden, gold=whole.gold)

    def ideal_losses(self, batch: Batch) -> Float[Tensor, "batch position"]:
        """Cost of each hidden word, in nats, of the reader who knows the grammar; NaN where none is hidden.

        Raises:
            ValueError: when no sentence of the grammar fits the words that are left.
        """
        rows = zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
        losses = torch.tensor([self._costs(*row) for row in rows], dtype=torch.float64)
        return losses.masked_fill(~batch.scored, math.nan)

    def _costs(self, seen: list[int], true: list[int]) -> list[float]:
        """Cost of each word of one sequence."""
        before = [{_START: 1.0}]
        for token in seen:
            before.append(self._onward(before[-1], token))
        after: dict[_State, float] = dict.fromkeys(before[-1], 1.0)
        costs = []
        for token, word, states in zip(seen[::-1], true[::-1], before[-2::-1], strict=True):
            total = right = 0.0
            earlier = {}
            for state, chance in states.items():
                ways = [
                    (c, self._weight(c, token) * after.get(c.after, 0.0))
                    for c in self._choices(state)
                ]
                earlier[state] = math.fsum(weight for _, weight in ways)
                total += chance * earlier[state]
                right += chance * math.fsum(
                    weight * (VOCABULARY[word] in c.words) / self._number(c, token)
                    for c, weight in ways
                )
            if not right > 0:
                raise ValueError(f"{self.text(torch.tensor(seen))!r} fits no sentence")
            costs.append(-math.log(right / total))
            after = earlier
        return costs[::-1]

    def _onward(self, states: dict[_State, float], token: int) -> dict[_State, float]:
        """How likely each state is, with the words up to this one."""
        after: dict[_State, float] = defaultdict(float)
        for state, chance in states.items():
            for choice in self._choices(state):
                if weight := self._weight(choice, token):
                    after[choice.after] += chance * weight
        return after

    def _weight(self, choice: _Choice, token: int) -> float:
        """Chance of a choice and of the word seen; where it is hidden, of the choice alone."""
        if token == self.mask:
            return choice.chance
        return choice.chance / len(choice.words) * (VOCABULARY[token] in choice.words)

    def _number(self, choice: _Choice, token: int) -> int:
        return len(choice.words) if token == self.mask else 1

    def _choices(self, state: _State) -> tuple[_Choice, ...]:
        return self.grammar._choices(state)[0]

    def constant_loss(self) -> float:
        """Smallest expected loss, in nats, of an answer that looks at nothing: entropy of a word anywhere."""
        likely: dict[_State, float] = {_START: 1.0}
        words: dict[str, float] = defaultdict(float)
        for _ in range(self.length):
            following: dict[_State, float] = defaultdict(float)
            for state, chance in likely.items():
                for choice in self._choices(state):
                    following[choice.after] += chance * choice.chance
                    for word in choice.words:
                        words[word] += chance * choice.chance / len(choice.words) / self.length
            likely = following
        return -math.fsum(chance * math.log(chance) for chance in words.values())
