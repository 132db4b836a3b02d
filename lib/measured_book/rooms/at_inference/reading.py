"""Numbers of the chapter on attention at inference that follow from sizes and formulas alone."""

from __future__ import annotations

from measured_transformer.analysis.roofline import A100
from measured_transformer.inference.speculative import per_pass
from measured_transformer.models.config import Config

from measured_book.measuring import number
from measured_book.rooms.at_inference.measure import (
    CACHES,
    LLAMA_2,
    LLAMA_3,
    Work,
    by_weights,
    largest_batch,
    matrices,
    one_step,
    tokens_a_second,
)


@number
def kilobytes(*, model: str) -> float:
    """Kilobytes (1024 bytes) that a token leaves in a cache, two bytes a number."""
    kept = {name.split(":")[0]: one for name, one in CACHES.items()}
    return kept[model].bytes(1) / 1024


@number
def gigabytes(*, model: str, tokens: int) -> float:
    """Gigabytes of a text's cache, two bytes a number."""
    kept = {name.split(":")[0]: one for name, one in CACHES.items()}
    return kept[model].bytes(tokens) / 1e9


@number
def fits(*, model: str, tokens: int) -> int:
    """How many texts of a length fit beside the weights into 80 gigabytes."""
    return largest_batch({"Llama 2": LLAMA_2, "Llama 3": LLAMA_3}[model], tokens)


@number
def most_tokens(*, model: str, tokens: int, batch: int) -> float:
    """The most tokens a second that an A100 can write in a batch of texts of a length; batch 0: the largest."""
    config = {"Llama 2": LLAMA_2, "Llama 3": LLAMA_3}[model]
    return tokens_a_second(config, tokens, batch or largest_batch(config, tokens))


@number
def weight_gigabytes() -> float:
    """Gigabytes of the matrices of Llama 2 7B, two bytes a number."""
    return 2 * sum(a * b for a, b in matrices(LLAMA_2)) / 1e9


@number
def step_milliseconds(*, tokens: int) -> float:
    """The least milliseconds that one more token after so many takes on an A100, batch of one, Llama 2 7B."""
    return 1e3 * one_step(LLAMA_2, tokens).seconds(A100)


def reading_several(config: Config, length: int, batch: int, ahead: int) -> Work:
    """What scores and mixing take when each text of a batch reads so many tokens at once, two bytes a number.

    The tokens of one text share a single reading of its keys and values; see `measure.step_attention` for one.
    """
    heads, width = config.n_heads, config.head_width
    moved = 2 * length * config.kv_heads * width + 2 * ahead * heads * width
    return Work(
        4.0 * batch * ahead * length * heads * width * config.n_layers,
        2.0 * batch * moved * config.n_layers,
    )


@number
def pass_ratio(*, model: str, tokens: int, batch: int, ahead: int) -> float:
    """How many times as long a pass over several tokens of each text takes as one over a single token.

    By the roofline of an A100, for a batch of texts of a length: what a draft of one token fewer must gain.
    """
    config = {"Llama 2": LLAMA_2, "Llama 3": LLAMA_3}[model]

    def seconds(read: int) -> float:
        cache = reading_several(config, tokens, batch, read)
        return by_weights(config, batch * read).seconds(A100) + cache.seconds(A100)

    return seconds(ahead) / seconds(1)


@number
def formula_per_pass(*, percent: int, ahead: int) -> float:
    """Tokens for each pass of the target when so many in a hundred proposals are accepted."""
    return per_pass(percent / 100, ahead)
