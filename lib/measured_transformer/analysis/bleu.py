r"""BLEU (Papineni et al., 2002), its choices as arguments, and whether a difference outlasts other sentences.

With $p_n$ the share of the hypotheses' n-grams that stand in the references too, none counted more often than
there, $c$ the length of the hypotheses and $r$ that of the references, all summed over the whole corpus,

$\mathrm{BLEU} = \min(1, e^{1 - r/c}) \cdot \left(p_1 p_2 p_3 p_4\right)^{1/4}$.

Counts and scores are sacrebleu's (Post, 2018), over a hundred; the extra `language` brings it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

ORDERS = 4
"""The longest n-grams that are counted."""
Smoothing = Literal["none", "add one", "halves"]
Tokens = Sequence[Hashable]
_SMOOTHING = {"none": "none", "add one": "add-k", "halves": "exp"}


@dataclass(frozen=True)
class Score:
    """BLEU with its components.

    Attributes:
        value: the score, from 0 to 1.
        precisions: p_1 to p_4, after smoothing; 0 where there is no n-gram.
        brevity: the brevity penalty.
    """

    value: float
    precisions: tuple[float, ...]
    brevity: float


def ngrams(tokens: Tokens, n: int) -> Counter[tuple[Hashable, ...]]:
    """How often each run of `n` tokens occurs.

    >>> ngrams("a b a b".split(), 2)[("a", "b")]
    2
    """
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


@cache
def _counting() -> BLEU:
    """Sacrebleu's BLEU for lines that are tokens with blanks between them."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="none", max_ngram_order=ORDERS, effective_order=True)


def _line(tokens: Tokens) -> str:
    words = [str(token) for token in tokens]
    for word in words:
        if len(word.split()) != 1:
            raise ValueError(f"expected tokens without blanks in them, got {word!r}")
    return " ".join(words)


def statistics(hypothesis: Tokens, reference: Tokens) -> Int[ndarray, "count"]:
    """The statistics of a pair that BLEU uses: matched n-grams and n-grams for n from 1 to 4, and both lengths.

    >>> statistics("the cat sat".split(), "the cat sat down".split()).tolist()
    [3, 2, 1, 0, 3, 2, 1, 0, 3, 4]

    Raises:
        ValueError: when a token is empty or has a blank in it.
    """
    found = _counting().sentence_score(_line(hypothesis), [_line(reference)])
    lengths = (found.sys_len, found.ref_len)
    return np.array([*found.counts, *found.totals, *lengths], dtype=np.int64)


def score(
    counts: Int[ndarray, "count"], *, smoothing: Smoothing = "none", shorter_orders: bool = False
) -> Score:
    """BLEU from the statistics of a pair, or from the sum of those of a corpus.

    Args:
        counts: as `statistics` gives them.
        smoothing: what is done about an n without a match, which would make the score 0: nothing ("none");
            one match and one n-gram more for every n above 1 ("add one"; Lin and Och, 2004); or half a match
            for the first such n, a quarter for the next ("halves", sacrebleu's default for sentences).
        shorter_orders: whether to leave out the n for which the hypothesis is too short.
    """
    matched, total = counts[:ORDERS].tolist(), counts[ORDERS : 2 * ORDERS].tolist()
    lengths = {"sys_len": int(counts[-2]), "ref_len": int(counts[-1])}
    found = _counting().compute_bleu(
        matched,
        total,
        **lengths,
        smooth_method=_SMOOTHING[smoothing],
        effective_order=shorter_orders,
        max_ngram_order=ORDERS,
    )
    precisions = tuple(each / 100 for each in found.precisions)
    value = min(found.score / 100, 1.0)  # a perfect score comes back a rounding error too large
    return Score(value, precisions, float(found.bp))


def corpus_bleu(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> float:
    """BLEU of a corpus: counts are summed over all sentences, then divided.

    >>> pair = "the cat sat on the mat".split(), "the cat sat on a mat".split()
    >>> round(corpus_bleu(*([each] for each in pair)), 3)
    0.537

    Raises:
        ValueError: when there is no sentence, or not one reference for each hypothesis.
    """
    return score(corpus_statistics(hypotheses, references).sum(0)).value


def corpus_statistics(
    hypotheses: Sequence[Tokens], references: Sequence[Tokens]
) -> Int[ndarray, "sentence count"]:
    """The statistics of every sentence, one row each.

    Raises:
        ValueError: as `corpus_bleu`.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise ValueError(
            f"expected one reference for each of at least one hypothesis, got {len(references)} for "
            f"{len(hypotheses)}"
        )
    return np.stack([statistics(h, r) for h, r in zip(hypotheses, references, strict=True)])


def sentence_mean(
    counts: Int[ndarray, "sentence count"],
    *,
    smoothing: Smoothing = "none",
    shorter_orders: bool = False,
) -> float:
    """Mean of the BLEU of single sentences: not the BLEU of the corpus."""
    scores = [score(row, smoothing=smoothing, shorter_orders=shorter_orders) for row in counts]
    return float(np.mean([each.value for each in scores]))


# From text to tokens ----------------------------------------------------------------------------------


def tokenised(
    text: str, how: Literal["blanks", "13a", "characters"] = "13a", *, lower: bool = False
) -> list[str]:
    """Split a line of text: at blanks, as mteval-v13a does (sacrebleu's default), or into characters.

    Blanks count for nothing in all three.

    >>> tokenised("Is it 3.5, then?")
    ['Is', 'it', '3.5', ',', 'then', '?']
    >>> tokenised("Is it 3.5, then?", "blanks", lower=True)
    ['is', 'it', '3.5,', 'then?']
    """
    line = text.lower() if lower else text
    return _splitting(how)(line).split()


@cache
def _splitting(how: str) -> Callable[[str], str]:
    """Sacrebleu's own tokeniser, which gives a line with blanks between the tokens."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_char import TokenizerChar
    from sacrebleu.tokenizers.tokenizer_none import NoneTokenizer

    kinds: dict[str, Callable[[], Callable[[str], str]]] = {
        "blanks": NoneTokenizer,
        "13a": Tokenizer13a,
        "characters": TokenizerChar,
    }
    return kinds[how]()


# Would other sentences have said the same? --------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same sentences, which are drawn again and again with replacement.

    Attributes:
        difference: BLEU of the first minus that of the second.
        low, high: the middle 95 % of the drawn differences.
        p: how often a drawn difference lies at least as far from their mean as this one lies from 0.
    """

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first: Int[ndarray, "sentence count"],
    second: Int[ndarray, "sentence count"],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare the corpus BLEU of two systems by drawing sentences (Koehn, 2004), as sacrebleu does.

    Args:
        first, second: as `corpus_statistics` gives them, for the same references.
        resamples: how many corpora are drawn.
        seed: of the drawing.

    Raises:
        ValueError: when the two have different numbers of sentences, or nothing is to be drawn.
    """
    if first.shape != second.shape or resamples < 1:
        raise ValueError(
            f"expected as many sentences twice and at least one resample, got {len(first)} and "
            f"{len(second)} sentences and resamples={resamples}"
        )
    rng, n = np.random.default_rng(seed), len(first)
    drawn: Float[ndarray, "resample"] = np.empty(resamples)
    for i in range(resamples):
        weights = np.bincount(rng.integers(n, size=n), minlength=n)
        drawn[i] = score(weights @ first).value - score(weights @ second).value
    difference = score(first.sum(0)).value - score(second.sum(0)).value
    low, high = np.quantile(drawn, (0.025, 0.975))
    beyond = int((np.abs(drawn - drawn.mean()) >= abs(difference)).sum())
    return Comparison(difference, float(low), float(high), (beyond + 1) / (resamples + 1))
