"""Serves many requests with one model: a request joins the batch when there is room and leaves when done.

After every step the batch is made up anew (iteration-level scheduling; Yu et al. 2022, "Orca"), and the keys
and values lie in pages (Kwon et al. 2023, "PagedAttention"). When no page is left, the request that joined last
gives its pages back, waits, and is read again from the tokens it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.inference.generate import Generated, Greedy, evaluating
from measured_transformer.inference.paged import PagedCache
from measured_transformer.inference.prompts import Prompts, whole_numbers
from measured_transformer.inference.reading import last_logits
from measured_transformer.inference.sampling import Sampling, draw, require_finite
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.light import light
from measured_transformer.parts.position_schemes import SCHEMES


@dataclass(frozen=True)
class Served:
    """The texts written, and what they cost.

    Attributes:
        written: the texts, as `generate` gives them; its `cache_bytes` are those of the fullest moment.
        steps: how often the model gave one token to each request of a batch.
        running: for each step, the requests that were in the batch.
        peak_bytes: bytes of the pages given away at the fullest moment.
        preemptions: how often a request lost its pages and went back to the queue.
    """

    written: Generated
    steps: int
    running: tuple[tuple[int, ...], ...]
    peak_bytes: int
    preemptions: int


@dataclass
class _Request:
    number: int
    prompt: list[int]
    limit: int
    tokens: list[int] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    finished: bool = False

    @property
    def text(self) -> list[int]:
        return [*self.prompt, *self.tokens]

    @property
    def done(self) -> bool:
        return self.finished or len(self.tokens) >= self.limit


def serve(
    model: Decoder,
    prompts: Prompts,
    *,
    max_new_tokens: int | Sequence[int],
    strategy: Greedy | Sampling | None = None,
    stop: int | Sequence[int] | None = (),
    n_pages: int,
    page_size: int = 16,
    at_once: int = 8,
) -> Served:
    """Continue each prompt as `generate` does, in a batch whose members come and go.

    The texts are those of `generate` with the same arguments, whoever shares the batch. The model works in
    evaluation mode meanwhile and without gradients.

    Args:
        model: continues the prompts.
        prompts: for each request a list or vector of token numbers.
        max_new_tokens: the largest number of tokens to write, for all requests or for each.
        strategy: `Greedy()` (when not given) or `Sampling(generator, ...)`.
        stop: the token, or the tokens, that end a text.
        n_pages: pages in all, of `page_size` tokens.
        page_size: tokens of a page.
        at_once: the most requests in the batch.

    Raises:
        ValueError: when a request alone needs more pages than there are, its text outgrows learned positions,
            or a number is less than one; when a logit is not finite.

    >>> from measured_transformer.models.config import Config
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> served = serve(model, [[1, 2, 3], [4], [5]], max_new_tokens=[2, 4, 1], n_pages=8, at_once=2)
    >>> served.running
    ((0, 1), (0, 1), (1, 2), (1,))
    """
    strategy = Greedy() if strategy is None else strategy
    requests = _requests(model, prompts, max_new_tokens)
    ends = set(whole_numbers("stop", () if stop is None else stop).reshape(-1).tolist())
    _check(model, requests, strategy, n_pages, page_size, at_once)
    longest = max(one.limit for one in requests)
    uniform = None
    if isinstance(strategy, Sampling):  # the numbers that `generate` would draw
        uniform = torch.stack(
            [
                torch.rand(
                    len(requests), generator=strategy.generator, device=strategy.generator.device
                )
                for _ in range(longest)
            ]
        )
    cache = PagedCache(len(model.blocks), n_pages=n_pages, page_size=page_size)
    waiting, running = deque(requests), list[_Request]()
    history: list[tuple[int, ...]] = []
    peak = held = preemptions = 0

    def take(some: Sequence[_Request], logits: Float[Tensor, "row vocab"]) -> None:
        for one, row in zip(some, logits, strict=True):
            require_finite(row)
            if isinstance(strategy, Sampling) and uniform is not None:
                number = uniform[len(one.tokens), one.number].to(row.device)
                token = int(draw(strategy.logits(row[None]), number[None]))
            else:
                token = int(row.argmax())
            one.tokens.append(token)
            one.log_probs.append(row.log_softmax(-1)[token])
            one.finished = token in ends

    def read(some: Sequence[_Request], new: list[list[int]]) -> Float[Tensor, "row vocab"]:
        tokens = torch.tensor(new, device=next(model.parameters()).device)
        rows = cache.rows([one.number for one in some], tokens.shape[1])
        return last_logits(reader, tokens, cache=rows)[:, -1]

    with evaluating(model), torch.inference_mode():
        reader = light(model)
        while waiting or running:
            joined = []
            while waiting and len(running) < at_once:
                one = waiting[0]
                room = cache.table.free_pages - sum(
                    cache.table.missing(other.number, 1) for other in running
                )
                if running and cache.table.missing(one.number, len(one.text)) > room:
                    break
                take([waiting.popleft()], read([one], [one.text]))
                running.append(one)
                joined.append(one)
            going = [one for one in running if one not in joined and not one.done]
            while going and (
                sum(cache.table.missing(one.number, 1) for one in going) > cache.table.free_pages
            ):
                last = next(one for one in reversed(running) if not one.done)
                cache.release(last.number)
                running.remove(last)
                going = [one for one in going if one is not last]
                joined = [one for one in joined if one is not last]
                waiting.appendleft(last)
                preemptions += 1
            if going:
                take(going, read(going, [[one.tokens[-1]] for one in going]))
            history.append(tuple(sorted(one.number for one in running)))
            held, peak = max(held, cache.bytes), max(peak, cache.given_bytes)
            for one in [one for one in running if one.done]:
                cache.release(one.number)
                running.remove(one)
    written = Generated(
        tokens=tuple(torch.tensor(one.tokens) for one in requests),
        log_probs=tuple(torch.stack(one.log_probs).clone() for one in requests),
        finished=tuple(one.finished for one in requests),
        cache_bytes=held,
    )
    return Served(written, len(history), tuple(history), peak, preemptions)


def _requests(
    model: Decoder, prompts: Prompts, max_new_tokens: int | Sequence[int]
) -> list[_Request]:
    texts = [whole_numbers(f"prompt {i}", prompt).tolist() for i, prompt in enumerate(prompts)]
    limits = [max_new_tokens] * len(texts) if isinstance(max_new_tokens, int) else max_new_tokens
    if not texts or len(limits) != len(texts) or min(limits) < 1 or not all(texts):
        raise ValueError(
            f"expected prompts of at least one token and as many limits of at least 1, got {len(texts)} "
            f"prompts and max_new_tokens={max_new_tokens}"
        )
    if not all(0 <= token < model.config.vocab for text in texts for token in text):
        raise ValueError(f"tokens of prompts must lie in 0..{model.config.vocab - 1}")
    return [
        _Request(i, text, limit) for i, (text, limit) in enumerate(zip(texts, limits, strict=True))
    ]


def _check(
    model: Decoder,
    requests: Sequence[_Request],
    strategy: object,
    n_pages: int,
    page_size: int,
    at_once: int,
) -> None:
    if not isinstance(strategy, Greedy | Sampling):
        raise ValueError(f"strategy must be Greedy() or Sampling(...), got {strategy!r}")
    if min(n_pages, page_size, at_once) < 1:
        raise ValueError(
            f"expected numbers of at least 1, got n_pages={n_pages}, page_size={page_size}, at_once={at_once}"
        )
    longest = max(len(one.prompt) + one.limit - 1 for one in requests)  # the last is never read
    if -(-longest // page_size) > n_pages:
        raise ValueError(
            f"the longest request may need {-(-longest // page_size)} pages of {page_size} tokens, "
            f"there are {n_pages}"
        )
    if SCHEMES[model.config.positions].limited and longest > model.config.max_length:
        raise ValueError(
            f"learned positions reach to {model.config.max_length - 1}, got a text of {longest}"
        )
