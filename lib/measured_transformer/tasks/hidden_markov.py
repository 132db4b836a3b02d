"""A hidden Markov source: tokens depend on a state that nobody sees, so that the whole past tells something."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.tasks.markov import chosen, stationary, uneven
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class HiddenMarkov:
    """A hidden state moves by a fixed table; each state shows tokens by chances of its own.

    Every position is scored on the next token. The best predictor keeps a belief about the hidden state and
    updates it with every token that it sees. `gold["state"]` holds the hidden state at each input,
    `beliefs` what an observer can know of it. Used where a chapter asks what a model keeps about its past.

    Attributes:
        states: number of hidden states.
        vocab: number of different tokens.
        length: number of predictions asked for.
        stay: chance that the state stays, on top of the random table: long memory when close to 1.
        sharpness: how much the chances differ; see `Markov`.
        rule_seed: which tables.

    >>> task = HiddenMarkov(states=2, vocab=3, length=4)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.shape, batch.gold["state"].shape
    (torch.Size([1, 4]), torch.Size([1, 4]))

    Raises:
        ValueError: when a size is not a positive whole number, `stay` is no chance below 1 or `sharpness` is
            negative.
    """

    states: int = 3
    vocab: int = 4
    length: int = 32
    stay: float = 0.5
    sharpness: float = 2.0
    rule_seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(states=self.states, vocab=self.vocab, length=self.length)
        if not 0 <= self.stay < 1:
            raise ValueError(f"stay is a chance below 1, got {self.stay}")
        if self.sharpness < 0:
            raise ValueError(f"sharpness must not be negative, got {self.sharpness}")

    def transitions(self) -> Float[Tensor, "state next"]:
        """The chance of every next state after each state."""
        moves, _ = self._tables()
        return self.stay * torch.eye(self.states, dtype=moves.dtype) + (1 - self.stay) * moves

    def emissions(self) -> Float[Tensor, "state token"]:
        """The chance of every token in each state."""
        return self._tables()[1]

    def _tables(self) -> tuple[Float[Tensor, "state next"], Float[Tensor, "state token"]]:
        generator = torch.Generator().manual_seed(self.rule_seed)
        moves = uneven(generator, self.states, self.states, self.sharpness)
        return moves, uneven(generator, self.states, self.vocab, self.sharpness)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of the stationary source.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        moves, shows = self.transitions(), self.emissions()
        draws = torch.rand(2, size, n + 1, generator=generator, dtype=torch.float64)
        states = [chosen(draws[0, :, 0], stationary(moves).expand(size, -1))]
        for t in range(1, n + 1):
            states.append(chosen(draws[0, :, t], moves[states[-1]]))
        hidden = torch.stack(states, dim=1)
        whole = chosen(draws[1].flatten(), shows[hidden.flatten()]).view(size, n + 1)
        scored = torch.ones(size, n, dtype=torch.bool)
        return Batch(whole[:, :-1], whole[:, 1:], scored, gold={"state": hidden[:, :-1]})

    def beliefs(self, batch: Batch) -> Float[Tensor, "batch position state"]:
        """The chance of each state at each input, given all inputs up to it (the forward algorithm)."""
        moves, shows = self.transitions(), self.emissions()
        inputs = batch.inputs.cpu()
        found = []
        expected = stationary(moves).expand(len(inputs), -1)
        for t in range(inputs.shape[1]):
            joint = expected * shows[:, inputs[:, t]].T
            found.append(joint / joint.sum(1, keepdim=True))
            expected = found[-1] @ moves
        return torch.stack(found, dim=1)

    def ideal_losses(self, batch: Batch) -> Float[Tensor, "batch position"]:
        """Cost of each next token, on this very batch, of the predictor that knows both tables."""
        chances = self.beliefs(batch) @ self.transitions() @ self.emissions()
        return -chances.gather(2, batch.targets.cpu()[:, :, None])[:, :, 0].log()

    def bayes_losses(self, tokens: int) -> Float[Tensor, "position"]:
        """Expected cost, in nats, of the next token when 1, 2, ... `tokens` tokens have been seen.

        Exact: every sequence of one token more is enumerated. They fall towards the entropy rate.

        Raises:
            ValueError: when there are too many sequences for it.
        """
        blocks = self._block_entropies(stationary(self.transitions())[None], tokens + 1)
        return (blocks[0, 1:] - blocks[0, :-1])[1:]

    def entropy_rate(self, *, tolerance: float = 1e-3) -> float:
        """Expected cost, in nats, of the best predictor with an endless past, to within `tolerance`.

        There is no closed formula. The cost with k tokens seen is too high; with k tokens seen and the first
        hidden state told it is too low (Cover & Thomas, 2006, theorem 4.5.1). k grows until both meet.

        Raises:
            ValueError: when they do not meet before there are too many sequences to enumerate.
        """
        moves = self.transitions()
        often = stationary(moves)
        gap = math.inf
        for tokens in range(2, self._most_tokens() + 1):
            high = self._block_entropies(often[None], tokens)[0]
            told = self._block_entropies(torch.eye(self.states, dtype=moves.dtype), tokens)
            low = often @ told
            upper, lower = (float(blocks[-1] - blocks[-2]) for blocks in (high, low))
            gap = upper - lower
            if gap <= 2 * tolerance:
                return (upper + lower) / 2
        raise ValueError(
            f"after enumerating sequences of {self._most_tokens()} tokens the entropy rate is known to "
            f"within {gap / 2:.2g} nats only; expected tolerance={tolerance}: ask for less, or take a "
            "source with a shorter memory (smaller stay)"
        )

    def _block_entropies(
        self, starts: Float[Tensor, "start state"], tokens: int
    ) -> Float[Tensor, "start count"]:
        """Entropy of the first 0, 1, ... `tokens` tokens, for each distribution of the first state."""
        if tokens > self._most_tokens():
            raise ValueError(
                f"{self.vocab} tokens allow to enumerate sequences of at most {self._most_tokens()}, "
                f"got {tokens}"
            )
        moves, shows = self.transitions(), self.emissions()
        joint = starts[:, None, :]  # start, sequence so far, state now
        found = [torch.zeros(len(starts), dtype=starts.dtype)]
        for _ in range(tokens):
            seen = (joint[:, :, None, :] * shows.T).flatten(1, 2)
            chances = seen.sum(2)
            found.append(torch.special.entr(chances).sum(1))
            joint = seen @ moves
        return torch.stack(found, dim=1)

    def _most_tokens(self) -> int:
        return int(math.log(200_000) / math.log(self.vocab)) if self.vocab > 1 else 20
