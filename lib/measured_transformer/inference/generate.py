"""Generates text: one function, three ways to choose each token, and an optional draft that proposes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from measured_transformer.inference.beams import BeamSearch, beam_search
from measured_transformer.inference.prompts import Prompts, left_padded, whole_numbers
from measured_transformer.inference.sampling import Sampling, draw, not_finite, require_finite
from measured_transformer.inference.speculative import Speculative, speculate
from measured_transformer.inference.windows import SlidingWindow
from measured_transformer.inference.writer import Writer, check_reach
from measured_transformer.internals.tokens import WithTokenizer, as_model, as_prompts
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

_STEPS_BETWEEN_LOOKS = 16  # on an accelerator: a look at what stopped waits for all that is queued


@dataclass(frozen=True)
class Greedy:
    """Take the likeliest token each time."""


@dataclass(frozen=True)
class Generated:
    """What was written after each prompt.

    Attributes:
        tokens: the new tokens of each text, its stop token included.
        log_probs: the logarithm of the probability that the model gave each of them, before any temperature,
            top-k or top-p.
        finished: for each text, whether it ended with a stop token.
        cache_bytes: of the keys and values held at the end, see `KeyValueCache.bytes`.
        passes: with `Speculative`, how often the model read for each text; otherwise empty.
        proposed, accepted: with `Speculative`, how many tokens the draft proposed for each text, and how many
            of them stood; otherwise empty.
        texts: what the new tokens of each text spell, where the model comes with a tokenizer that has `decode`;
            otherwise empty.
        copied_bytes: of the copies of weights that were held to write faster, see `Writer.copied_bytes`; with
            `Speculative` they are not counted.
    """

    tokens: tuple[Int[Tensor, "_step"], ...]
    log_probs: tuple[Float[Tensor, "_step"], ...]
    finished: tuple[bool, ...]
    cache_bytes: int
    passes: tuple[int, ...] = ()
    proposed: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    copied_bytes: int = 0


def generate(
    model: Decoder | EncoderDecoder | WithTokenizer,
    prompts: Prompts | str | Sequence[str],
    *,
    max_new_tokens: int,
    strategy: Greedy | Sampling | BeamSearch | Speculative | None = None,
    stop: int | Sequence[int] | None = (),
    start: int | Sequence[int] | None = None,
    chunk: int | None = None,
    window: SlidingWindow | None = None,
) -> Generated:
    """Continue each prompt, all of them in one batch with a key-value cache.

    With `Speculative` texts are written one after the other, since a draft is right about them differently
    often. For requests that come and go see `measured_transformer.inference.serving.serve`.

    What is written after a prompt does not depend on the others, but for rounding; with `Sampling` each row
    has random numbers of its own. The model works in evaluation mode meanwhile and without gradients.

    Args:
        model: a `Decoder`, which continues the prompts, or an `EncoderDecoder`, which reads them as sources; or
            one that comes with its tokenizer, see `internals.tokens`.
        prompts: for each text a list or vector of token numbers; lengths may differ. With a tokenizer a text,
            or a list of texts.
        max_new_tokens: the largest number of tokens to write.
        strategy: `Greedy()` (when not given), `Sampling(generator, ...)`, `BeamSearch(...)` or
            `Speculative(draft, ...)`, which needs a `Decoder`.
        stop: the token, or the tokens, that end a text; none when there is no such token. Those that a
            tokenizer knows are not taken from it.
        start: what an `EncoderDecoder`'s text begins with, one token or several; not part of the result.
        chunk: how many positions of the prompts are read at a time, to save memory; all when None.
        window: keep the last tokens and the first ones only, for a `Decoder` and prompts of one length, which
            are then read token by token; everything when None.

    Raises:
        ValueError: when there is no prompt or an empty one, a token lies outside the vocabulary, learned
            positions do not reach far enough, or a number is less than one; when a logit is not finite.

    >>> from measured_transformer.models.config import Config
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> written = generate(model, [[1, 2, 3], [4]], max_new_tokens=5)
    >>> [len(text) for text in written.tokens]
    [5, 5]
    >>> strategy = Sampling(torch.Generator().manual_seed(0), temperature=0.8, top_p=0.9)
    >>> len(generate(model, [[1, 2, 3]], max_new_tokens=5, strategy=strategy).tokens[0])
    5
    """
    prompts = cast(Prompts, as_prompts(model, prompts))
    if (inner := as_model(model)) is not model:
        written = generate(
            inner,
            prompts,
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            stop=stop,
            start=start,
            chunk=chunk,
            window=window,
        )
        decode = getattr(getattr(model, "tokenizer", model), "decode", None)
        texts = () if decode is None else tuple(decode(row.tolist()) for row in written.tokens)
        return replace(written, texts=texts)
    model = cast(Decoder | EncoderDecoder, model)
    strategy = Greedy() if strategy is None else strategy
    _check(model, strategy, max_new_tokens, chunk, window)
    ends = whole_numbers("stop", () if stop is None else stop).reshape(-1)
    if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < model.config.vocab:
        raise ValueError(
            f"stop must lie in 0..{model.config.vocab - 1} (vocab={model.config.vocab}), got {stop}"
        )
    if isinstance(strategy, Speculative):
        return _with_a_draft(model, strategy, prompts, max_new_tokens, ends, start, window)
    with evaluating(model), torch.inference_mode():
        writer = Writer(model, prompts, start=start, max_new_tokens=max_new_tokens, chunk=chunk)
        if window is not None:
            if not isinstance(model, Decoder) or writer.real is not None:
                raise ValueError(
                    "a window is for a Decoder and prompts of one length; give prompts of other lengths "
                    "to calls of their own"
                )
            writer.cache, writer.chunk = window.make_cache(model), 1
        ends = ends.to(writer.tokens.device)
        if isinstance(strategy, BeamSearch):
            found = beam_search(writer, strategy, max_new_tokens=max_new_tokens, stop=ends)
            tokens, log_probs = found.tokens[:, 0], found.log_probs[:, 0]
            lengths, finished = found.lengths[:, 0], found.ended[:, 0]
        else:
            tokens, log_probs = _write(writer, strategy, max_new_tokens, ends)
            stopped = (tokens[:, :, None] == ends).any(dim=-1)
            finished = stopped.any(dim=1)
            lengths = torch.where(finished, stopped.int().argmax(dim=1) + 1, tokens.shape[1])
    tokens, log_probs = tokens.clone(), log_probs.clone()  # outside: usable in training
    counts = lengths.tolist()
    return Generated(
        tokens=tuple(row[:n] for row, n in zip(tokens, counts, strict=True)),
        log_probs=tuple(row[:n] for row, n in zip(log_probs, counts, strict=True)),
        finished=tuple(finished.tolist()),
        cache_bytes=writer.cache.bytes,
        copied_bytes=writer.copied_bytes,
    )


def _with_a_draft(
    model: Decoder | EncoderDecoder,
    strategy: Speculative,
    prompts: Prompts,
    max_new_tokens: int,
    stop: Tensor,
    start: object,
    window: SlidingWindow | None,
) -> Generated:
    """Write each text with the help of a draft, with random numbers of its own."""
    draft = strategy.draft
    if not isinstance(model, Decoder) or start is not None or window is not None:
        raise ValueError("Speculative(...) is for a Decoder, without start and window")
    if draft.config.vocab != model.config.vocab or draft.config.head == "none":
        raise ValueError(
            f"the draft must give logits over the same vocabulary of {model.config.vocab} tokens, got "
            f"vocab={draft.config.vocab}, head={draft.config.head!r}"
        )
    tokens, real = left_padded(prompts, vocab=model.config.vocab)
    for one in (model, draft):
        check_reach(one, int(tokens.shape[1]), int(tokens.shape[1]) + max_new_tokens - 1)
    seeds: list[int] = []
    if strategy.sampling is not None:
        source = strategy.sampling.generator
        seeds = torch.randint(
            2**62, (len(tokens),), generator=source, device=source.device
        ).tolist()
    found = []
    with evaluating(model), evaluating(draft), torch.inference_mode():
        for i, row in enumerate(tokens):
            prompt = row if real is None else row[real[i]]
            found.append(
                speculate(
                    model,
                    strategy,
                    prompt.tolist(),
                    max_new_tokens=max_new_tokens,
                    stop=stop.tolist(),
                    generator=torch.Generator().manual_seed(seeds[i]) if seeds else None,
                )
            )
    ends = set(stop.tolist())
    return Generated(
        tokens=tuple(one.tokens.clone() for one in found),
        log_probs=tuple(one.log_probs.clone() for one in found),
        finished=tuple(int(one.tokens[-1]) in ends for one in found),
        cache_bytes=sum(one.cache_bytes for one in found),
        passes=tuple(one.passes for one in found),
        proposed=tuple(one.proposed for one in found),
        accepted=tuple(one.accepted for one in found),
    )


def _write(
    writer: Writer, strategy: Greedy | Sampling, max_new_tokens: int, stop: Tensor
) -> tuple[Int[Tensor, "row step"], Float[Tensor, "row step"]]:
    """Write token by token until all rows have stopped or are long enough."""
    logits = writer.begin()
    uniform = None
    if isinstance(strategy, Sampling):
        uniform = _uniform(strategy.generator, max_new_tokens, writer.rows).to(logits.device)
    every = 1 if logits.device.type == "cpu" else _STEPS_BETWEEN_LOOKS
    running = torch.ones(writer.rows, dtype=torch.bool, device=logits.device)
    finite = torch.ones((), dtype=torch.bool, device=logits.device)
    tokens: list[Tensor] = []
    log_probs: list[Tensor] = []
    for step in range(max_new_tokens):
        if step:
            logits = writer.next(tokens[-1])
        if every == 1:
            require_finite(logits)
        else:
            finite &= logits.isfinite().all()
            if step % every == every - 1 or step + 1 == max_new_tokens:
                _require(finite, logits)
        if isinstance(strategy, Sampling) and uniform is not None:
            token = draw(strategy.logits(logits), uniform[step])
        else:
            token = logits.argmax(dim=-1)
        tokens.append(token)
        log_probs.append(logits.log_softmax(dim=-1).gather(1, token[:, None]))
        if len(stop):
            running &= (token[:, None] != stop).all(dim=1)
            if step % every == every - 1 and not running.any():
                break
    return torch.stack(tokens, dim=1), torch.cat(log_probs, dim=1)


def _require(finite: Tensor, logits: Tensor) -> None:
    """Raise ValueError when a logit of this step or of an earlier one was not finite."""
    if not finite:
        raise ValueError(not_finite(logits))


def _uniform(generator: torch.Generator, steps: int, rows: int) -> Float[Tensor, "step row"]:
    """Numbers from [0, 1), one step after the other, so that more steps begin like fewer."""
    return torch.stack(
        [torch.rand(rows, generator=generator, device=generator.device) for _ in range(steps)]
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep the model in evaluation mode while the `with` block runs, then restore each module's mode."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def _check(
    model: nn.Module,
    strategy: object,
    max_new_tokens: int,
    chunk: int | None,
    window: object,
) -> None:
    if not isinstance(model, Decoder | EncoderDecoder):
        raise ValueError(
            f"expected a Decoder or an EncoderDecoder, got {type(model).__name__}: only a model that "
            "predicts the next token can continue a text"
        )
    if model.config.head == "none":
        raise ValueError("this model has no logits to choose tokens by: config.head is 'none'")
    if not isinstance(strategy, Greedy | Sampling | BeamSearch | Speculative):
        raise ValueError(
            "strategy must be Greedy(), Sampling(...), BeamSearch(...) or Speculative(...), got "
            f"{strategy!r}"
        )
    for name, number in (("max_new_tokens", max_new_tokens), ("chunk", chunk)):
        if number is None and name == "chunk":
            continue
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {number!r}")
    if not isinstance(window, SlidingWindow | None):
        raise ValueError(
            f"window must be a SlidingWindow, such as SlidingWindow(window=64), or None; got {window!r}"
        )
