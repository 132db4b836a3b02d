r"""Beam search: continues several texts at once and keeps the likeliest.

At each step all continuations of all running texts compete, and the best `n_beams` go on. A text that ends in
a stop token competes with other ended ones by its score, $\log p / \text{length}^\alpha$; $\alpha$ is the
length penalty: with 0 short texts win, because every token costs probability (Wu et al. 2016, "Google's Neural
Machine Translation System", section 7, has this and a more elaborate form).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.inference.sampling import require_finite
from measured_transformer.inference.writer import Writer


@dataclass(frozen=True)
class BeamSearch:
    """Look for the text with the best score rather than the likeliest next token.

    Attributes:
        n_beams: how many texts run side by side.
        length_penalty: the exponent of the length that a text's log-probability is divided by: 0 compares
            log-probabilities, 1 their mean over the tokens, more favours long texts.

    Raises:
        ValueError: when `n_beams` is less than one or the penalty is not a number.
    """

    n_beams: int = 4
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if (
            isinstance(self.n_beams, bool)
            or not isinstance(self.n_beams, Integral)
            or self.n_beams < 1
        ):
            raise ValueError(f"n_beams must be a whole number of at least 1, got {self.n_beams!r}")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a number, got {self.length_penalty}")


@dataclass(frozen=True)
class Beams:
    """Texts of each row, best first.

    Attributes:
        scores: log-probability over length to the power of the penalty; -inf: there is no such text.
        tokens: new tokens, of which the first `lengths` count.
        log_probs: of each new token.
        lengths: number of new tokens.
        ended: whether a stop token ended it.
    """

    scores: Float[Tensor, "row beam"]
    tokens: Int[Tensor, "row beam step"]
    log_probs: Float[Tensor, "row beam step"]
    lengths: Int[Tensor, "row beam"]
    ended: Bool[Tensor, "row beam"]


def beam_search(
    writer: Writer,
    strategy: BeamSearch,
    *,
    max_new_tokens: int,
    stop: Int[Tensor, "stop"],
) -> Beams:
    """The best texts found for each prompt.

    The search for a batch ends when no running text could still overtake the worst of the best `n_beams`
    ended ones, whatever got next.

    Args:
        writer: has its prompts, not yet read.
        strategy: number of beams and length penalty.
        max_new_tokens: where all texts end that have not before.
        stop: tokens that end a text.

    Raises:
        ValueError: when a logit is not finite.
    """
    n, penalty = strategy.n_beams, strategy.length_penalty
    rows = writer.rows
    logits = writer.begin()
    vocab, device = logits.shape[-1], logits.device
    # All beams of a prompt are alike at first: only one of them may compete.
    first = torch.arange(rows, device=device)[:, None]
    writer.select(first.expand(rows, n).flatten())
    logits = logits.repeat_interleave(n, dim=0)
    totals = logits.new_full((rows, n), -math.inf)
    totals[:, 0] = 0
    running = torch.zeros(rows, n, max_new_tokens, dtype=torch.int64, device=device)
    running_log_probs = logits.new_zeros(rows, n, max_new_tokens)
    best = Beams(
        scores=torch.full_like(totals, -math.inf),
        tokens=running,
        log_probs=running_log_probs,
        lengths=torch.zeros(rows, n, dtype=torch.int64, device=device),
        ended=torch.zeros(rows, n, dtype=torch.bool, device=device),
    )
    # Each text has as many endings as there are stop tokens; beyond those, n must be left to go on.
    n_candidates = min(n * (1 + len(stop)), n * vocab)

    for step in range(max_new_tokens):
        length = step + 1
        require_finite(logits)
        log_probs = logits.log_softmax(dim=-1).unflatten(0, (rows, n))
        candidates, flat = (totals[:, :, None] + log_probs).flatten(1).topk(n_candidates)
        parent, token = flat // vocab, flat % vocab
        texts = running[first, parent]
        texts[:, :, step] = token
        text_log_probs = running_log_probs[first, parent]
        text_log_probs[:, :, step] = log_probs.flatten(1).gather(1, flat)

        stopped = (token[:, :, None] == stop).any(dim=-1)
        ends = stopped | (length == max_new_tokens)
        ends = (
            ends[:, :n] & candidates[:, :n].isfinite()
        )  # an ending must be among the best n itself
        best = _best(
            best,
            Beams(
                scores=(candidates[:, :n] / length**penalty).masked_fill(~ends, -math.inf),
                tokens=texts[:, :n],
                log_probs=text_log_probs[:, :n],
                lengths=torch.full_like(flat[:, :n], length),
                ended=stopped[:, :n],
            ),
        )
        if length == max_new_tokens:
            break
        totals, chosen = candidates.masked_fill(stopped, -math.inf).topk(n)
        longest = max_new_tokens if penalty > 0 else length + 1
        if len(stop) and bool((totals[:, 0] / longest**penalty <= best.scores[:, -1]).all()):
            break
        running, running_log_probs = texts[first, chosen], text_log_probs[first, chosen]
        writer.select((first * n + parent.gather(1, chosen)).flatten())
        logits = writer.next(token.gather(1, chosen).flatten())
    return best


def _best(held: Beams, new: Beams) -> Beams:
    """The best of both sets, as many as are held."""
    scores, flat = torch.cat((held.scores, new.scores), dim=1).topk(held.scores.shape[1])
    row = torch.arange(len(scores), device=scores.device)[:, None]
    return Beams(
        scores=scores,
        tokens=torch.cat((held.tokens, new.tokens), dim=1)[row, flat],
        log_probs=torch.cat((held.log_probs, new.log_probs), dim=1)[row, flat],
        lengths=torch.cat((held.lengths, new.lengths), dim=1)[row, flat],
        ended=torch.cat((held.ended, new.ended), dim=1)[row, flat],
    )
