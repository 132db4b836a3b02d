"""A small translation with noise and padding: words have images, the order is reversed, some words stray.

How many positions are padding, which source token a target token comes from, and how good the best model can
be are all known, so that a score can be taken apart into what the model does and what the counting does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.tasks.floors import noisy_entropy
from measured_transformer.tasks.task import Batch, check_share, check_sizes


@dataclass(frozen=True)
class NoisyTranslation:
    """The target is the source reversed and mapped by a fixed permutation; some of its tokens stray.

    With 10, 11 and 12 for padding, start and end, and a map that adds 1, the source ``3 1 4 12 10 10`` has the
    target ``5 2 4 12 10 10``. The decoder sees the target one place later, behind the start. Scored are real
    tokens, the end among them. Used where a chapter asks what padding does to a translation model and to its
    scores, and for the depth of encoder and decoder. `gold["alignment"]` holds the place in the source that a
    target token comes from, -1 for the end and for padding.

    Nothing can do better than `bayes_loss` and `bayes_accuracy`.

    Attributes:
        symbols: number of different tokens, drawn uniformly; padding, start and end follow.
        length: positions of source and target, the end among them.
        pad_share: expected share of padding, at most what leaves room for one token and the end.
        noise: chance that a target token is replaced by a uniform one, which may be the same.
        rule_seed: which permutation.

    >>> task = NoisyTranslation(symbols=10, length=6, pad_share=0.5, noise=0.0)
    >>> batch = task.batch(torch.Generator().manual_seed(3), 1)
    >>> batch.source.tolist(), task.image()[[4, 9, 1]].tolist()
    ([[1, 9, 4, 12, 10, 10]], [3, 2, 1])
    >>> batch.inputs.tolist(), batch.targets.tolist(), batch.gold["alignment"].tolist()
    ([[11, 3, 2, 1, 12, 10]], [[3, 2, 1, 12, 10, 10]], [[2, 1, 0, -1, -1, -1]])
    """

    symbols: int = 27
    length: int = 24
    pad_share: float = 0.78
    noise: float = 0.3
    rule_seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(symbols=self.symbols, length=self.length)
        check_share(pad_share=self.pad_share, noise=self.noise)
        self.mean_tokens(self.length)

    @property
    def vocab(self) -> int:
        """The symbols, padding, start and end."""
        return self.symbols + 3

    @property
    def source_length(self) -> int:
        """Positions of the source, as many as of the target."""
        return self.length

    @property
    def padding(self) -> int:
        """The token that fills up."""
        return self.symbols

    @property
    def start(self) -> int:
        """The first token that the decoder sees."""
        return self.symbols + 1

    @property
    def end(self) -> int:
        """The token that ends source and target."""
        return self.symbols + 2

    def image(self) -> Int[Tensor, "symbol"]:
        """The token that each symbol is translated into."""
        generator = torch.Generator().manual_seed(self.rule_seed)
        return torch.randperm(self.symbols, generator=generator)

    def mean_tokens(self, length: int) -> float:
        """Expected number of tokens, the end not counted, so that `pad_share` is padding.

        Raises:
            ValueError: when less than one token would be left, or no room to vary their number.
        """
        mean = (1 - self.pad_share) * length - 1
        if length < 3 or mean < 1:
            raise ValueError(
                "expected room for at least one token and the end, got "
                f"length={length} with pad_share={self.pad_share}"
            )
        return mean

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` pairs; the number of tokens is one more than a binomial number."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        chance = (self.mean_tokens(n) - 1) / (n - 2)
        more = torch.rand(size, n - 2, generator=generator, dtype=torch.float64) < chance
        count = 1 + more.sum(1, keepdim=True)
        symbols = torch.randint(self.symbols, (size, n), generator=generator)
        strays = torch.rand(size, n, generator=generator, dtype=torch.float64) < self.noise
        random = torch.randint(self.symbols, (size, n), generator=generator)
        place = torch.arange(n).expand(size, n)
        alignment = torch.where(place < count, count - 1 - place, -1)
        translated = self.image()[symbols.gather(1, alignment.clamp_min(0))]
        source = self._ended(symbols, count)
        targets = self._ended(torch.where(strays, random, translated), count)
        inputs = torch.cat([torch.full((size, 1), self.start), targets[:, :-1]], dim=1)
        return Batch(
            inputs,
            targets,
            scored=targets != self.padding,
            padding_mask=inputs != self.padding,
            source=source,
            source_padding_mask=source != self.padding,
            gold={"alignment": alignment},
        )

    def _ended(
        self, tokens: Int[Tensor, "batch position"], count: Int[Tensor, "batch 1"]
    ) -> Int[Tensor, "batch position"]:
        place = torch.arange(tokens.shape[1])
        return tokens.masked_fill(place == count, self.end).masked_fill(place > count, self.padding)

    def ideal_losses(self, batch: Batch) -> Float[Tensor, "batch position"]:
        """Cost of each target token, on this very batch, of the predictor that knows the rule; NaN at padding.

        The end costs nothing: the source says where it is.

        Raises:
            ValueError: when the batch has no source.
        """
        if batch.source is None:
            raise ValueError("the batch has no source: expected one that this task made")
        right = 1 - self.noise + self.noise / self.symbols
        wrong = self.noise / self.symbols
        alignment, targets = batch.gold["alignment"].cpu(), batch.targets.cpu()
        source = batch.source.cpu().gather(1, alignment.clamp_min(0))
        follows = self.image()[source.clamp_max(self.symbols - 1)] == targets
        losses = -torch.where(follows, right, wrong).double().log()
        losses = losses.masked_fill(targets == self.end, 0)
        return losses.masked_fill(~batch.scored.cpu(), torch.nan)

    def bayes_loss(self, *, count_padding: bool = False) -> float:
        """Expected cost, in nats, of the predictor that knows the rule, per real token or per position.

        Padding is certain once the end is known, so that counting it only spreads the cost thinner.

        >>> task = NoisyTranslation()
        >>> round(task.bayes_loss(), 3), round(task.bayes_loss(count_padding=True), 3)
        (1.25, 0.275)
        """
        tokens = self.mean_tokens(self.length)
        positions = self.length if count_padding else tokens + 1
        return tokens * noisy_entropy(self.symbols, 1 - self.noise) / positions

    def bayes_accuracy(self, *, count_padding: bool = False) -> float:
        """Highest expected share of right answers among real tokens, or among all positions.

        >>> task = NoisyTranslation()
        >>> round(task.bayes_accuracy(), 3), round(task.bayes_accuracy(count_padding=True), 3)
        (0.766, 0.948)
        """
        tokens = self.mean_tokens(self.length)
        right = 1 - self.noise + self.noise / self.symbols
        best = max(right, 1 / self.symbols)
        if count_padding:
            return (tokens * best + self.length - tokens) / self.length
        return (tokens * best + 1) / (tokens + 1)
