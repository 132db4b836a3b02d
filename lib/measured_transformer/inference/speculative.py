r"""Speculative decoding: a small model proposes several tokens, the large one checks them in a single pass.

At a step let the large model, the *target*, give the distribution p and the small one, the *draft*, q. The
draft draws x from q, and x is accepted with probability $\min(1, p(x)/q(x))$. If it is not, the token is drawn
from what the draft gives too little of, $\max(0, p - q)$, made to sum to one. Whatever q is, the token that
results is distributed as p says, so the text is distributed as if the target had written it alone.

Source: Leviathan et al. (2023), "Fast Inference from Transformers via Speculative Decoding", section 2.3 and
appendix A.1; the same rule: Chen et al. (2023), "Accelerating Large Language Model Decoding with Speculative
Sampling".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.inference.reading import join_projections, last_logits
from measured_transformer.inference.sampling import Sampling, draw, require_finite
from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.light import light


@dataclass(frozen=True)
class Speculative:
    """Let a small model propose tokens and the large one accept or replace them.

    Attributes:
        draft: the small model, over the same vocabulary.
        sampling: how each token is drawn; None takes the likeliest token each time, and the text is then that
            of `Greedy()`.
        ahead: how many tokens are proposed before the large model reads them.

    Raises:
        ValueError: when `ahead` is less than one or the draft is no `Decoder`.
    """

    draft: Decoder
    sampling: Sampling | None = None
    ahead: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.draft, Decoder):
            raise ValueError(f"the draft must be a Decoder, got {type(self.draft).__name__}")
        if isinstance(self.ahead, bool) or not isinstance(self.ahead, Integral) or self.ahead < 1:
            raise ValueError(f"ahead must be a whole number of at least 1, got {self.ahead!r}")

    def distribution(self, logits: Float[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """The distribution that tokens are drawn from; without sampling, all on one token.

        Raises:
            ValueError: when a logit is not finite.
        """
        require_finite(logits)
        if self.sampling is None:
            likeliest = logits.argmax(dim=-1, keepdim=True)
            return torch.zeros_like(logits).scatter(-1, likeliest, 1.0)
        return self.sampling.logits(logits).softmax(dim=-1)


@dataclass(frozen=True)
class Speculated:
    """One text that was written with a draft.

    Attributes:
        tokens, log_probs: the new tokens and the logarithms of the probabilities that the target gave them.
        passes: how often the target read.
        proposed: how many tokens the draft proposed, those included that nobody looked at after a rejection.
        accepted: how many of them were accepted.
        cache_bytes: of the target's keys and values at the end.
    """

    tokens: Int[Tensor, "step"]
    log_probs: Float[Tensor, "step"]
    passes: int
    proposed: int
    accepted: int
    cache_bytes: int


def acceptance(
    target: Float[Tensor, "*row vocab"], draft: Float[Tensor, "*row vocab"]
) -> Float[Tensor, "*row vocab"]:
    r"""The probability that each token is accepted when the draft proposes it, $\min(1, p/q)$.

    >>> acceptance(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.6, 0.2]))
    tensor([1.0000, 0.5000, 1.0000])
    """
    # A token that the draft never proposes has no quotient, and nobody asks for it.
    return torch.where(draft > 0, target / draft.clamp(min=1e-300), torch.ones_like(target)).clamp(
        max=1.0
    )


def residual(
    target: Float[Tensor, "*row vocab"], draft: Float[Tensor, "*row vocab"]
) -> Float[Tensor, "*row vocab"]:
    r"""What is drawn from after a rejection: $\max(0, p - q)$, made to sum to one; p where p = q.

    >>> residual(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.6, 0.2]))
    tensor([1., 0., 0.])
    """
    missing = (target - draft).clamp(min=0.0)
    total = missing.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, missing / total.clamp(min=1e-300), target)


def agreement(
    target: Float[Tensor, "*row vocab"], draft: Float[Tensor, "*row vocab"]
) -> Float[Tensor, "*row"]:
    r"""How often a proposal is accepted, $\sum_x \min(p(x), q(x))$: one less the total variation distance.

    >>> round(agreement(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.6, 0.2])).item(), 3)
    0.7
    """
    return torch.minimum(target, draft).sum(dim=-1)


def accept(
    target: Float[Tensor, "step_and_one vocab"],
    draft: Float[Tensor, "step vocab"],
    proposed: Int[Tensor, "step"],
    uniform: Float[Tensor, "step_and_one"],
) -> tuple[int, int]:
    """The number of accepted proposals, and the token that follows them.

    Args:
        target: the target's distributions at each proposed token and behind the last.
        draft: what each proposed token was drawn from.
        proposed: the tokens, each drawn from its row of `draft`.
        uniform: numbers from [0, 1): one for each test, and the last one for the draw of the following token.

    Raises:
        ValueError: unless the target has one row more than there are proposals.
    """
    n = len(proposed)
    if len(target) != n + 1 or len(draft) != n or len(uniform) != n + 1:
        raise ValueError(
            f"expected {n + 1} rows of the target and {n} of the draft for {n} proposals, got {len(target)} "
            f"and {len(draft)}, with {len(uniform)} random numbers"
        )
    likely = acceptance(target[:n], draft).gather(1, proposed[:, None])[:, 0]
    refused = (uniform[:n].to(likely) >= likely).nonzero()
    stand = int(refused[0]) if len(refused) else n
    last = target[stand] if stand == n else residual(target[stand], draft[stand])
    return stand, int(draw(last.log()[None], uniform[n:]))


def per_pass(agreement: float, ahead: int) -> float:
    r"""Tokens per pass if every proposal is accepted with equal chance, $(1-\alpha^{\gamma+1})/(1-\alpha)$.

    Leviathan et al. (2023), equation 1.

    Args:
        agreement: the probability that a proposal is accepted.
        ahead: proposals for each pass.

    Raises:
        ValueError: when the agreement is no probability or nothing is proposed.

    >>> round(per_pass(0.7, 4), 2), per_pass(1.0, 4)
    (2.77, 5.0)
    """
    if not 0 <= agreement <= 1 or ahead < 1:
        raise ValueError(
            f"expected a probability and at least one proposal, got {agreement}, {ahead}"
        )
    return float(sum(agreement**i for i in range(ahead + 1)))


def speculate(
    model: Decoder,
    strategy: Speculative,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    stop: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Speculated:
    """Continue one prompt; `generate` calls this for each of its prompts.

    Args:
        model: the target, in evaluation mode.
        strategy: draft, sampling and how far ahead.
        prompt: token numbers.
        max_new_tokens: the largest number of tokens to write.
        stop: tokens that end the text.
        generator: where the random numbers come from; that of the sampling when not given.
    """
    if generator is None and strategy.sampling is not None:
        generator = strategy.sampling.generator
    large, small = _Reader(model), _Reader(strategy.draft)
    text, start = list(prompt), len(prompt)
    log_probs: list[Tensor] = []
    passes = proposals = stood = 0
    while len(text) - start < max_new_tokens:
        ahead = min(strategy.ahead, max_new_tokens - (len(text) - start) - 1)
        drafts: list[Tensor] = []
        proposed: list[int] = []
        for _ in range(ahead):
            drafts.append(strategy.distribution(small.read([*text, *proposed], 1)))
            proposed.append(int(draw(drafts[-1].log(), _uniform(generator, 1))))
        logits = large.read([*text, *proposed], ahead + 1)
        target = strategy.distribution(logits)
        draft = torch.cat(drafts) if drafts else target[:0]
        chosen = torch.tensor(proposed, dtype=torch.int64, device=target.device)
        uniform = _uniform(generator, ahead + 1).to(target.device)
        stand, following = accept(target, draft.to(target), chosen, uniform)
        new = [*proposed[:stand], following]
        ends = [i for i, token in enumerate(new) if token in stop]
        new = new[: ends[0] + 1] if ends else new
        log_probs += [logits[i].log_softmax(-1)[token] for i, token in enumerate(new)]
        text += new
        passes, proposals, stood = passes + 1, proposals + ahead, stood + stand
        large.forget(len(text) - 1)
        small.forget(len(text) - 1)
        if ends:
            break
    device = log_probs[0].device
    return Speculated(
        tokens=torch.tensor(text[start:], dtype=torch.int64, device=device),
        log_probs=torch.stack(log_probs),
        passes=passes,
        proposed=proposals,
        accepted=stood,
        cache_bytes=large.cache.bytes,
    )


class _Reader:
    """A model that has read part of a text and can read on."""

    def __init__(self, model: Decoder) -> None:
        self.model = light(model)
        self.cache: KeyValueCache = model.make_cache()
        self._whole = model
        self._joined = False
        self.device = next(model.parameters()).device

    @property
    def held(self) -> int:
        return 0 if self.cache.positions is None else self.cache.positions.keys.shape[-1]

    def read(self, text: Sequence[int], last: int) -> Float[Tensor, "row vocab"]:
        """Read the new tokens and return the logits after each of the last ones."""
        if self.held and not self._joined and not torch.is_grad_enabled():
            join_projections(self._whole, self.cache)
            self._joined = True
        new = torch.tensor(text[self.held :], dtype=torch.int64, device=self.device)
        return last_logits(self.model, new[None], last=last, cache=self.cache)[0]

    def forget(self, length: int) -> None:
        """Keep the keys and values of the first tokens only."""
        where = self.cache.positions
        if where is not None and length < where.keys.shape[-1]:
            keys = where.keys[:length]
            self.cache.positions = dataclasses.replace(
                where, queries=keys[-1:], keys=keys, below=length
            )
            self.cache.drop_unfinished()


def _uniform(generator: torch.Generator | None, count: int) -> Float[Tensor, "count"]:
    """Numbers from [0, 1); without a generator, where all is certain, zeros."""
    if generator is None:
        return torch.zeros(count)
    return torch.rand(count, generator=generator, device=generator.device)
