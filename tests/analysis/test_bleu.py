"""BLEU against scores of sacrebleu 2.6, against counts by hand, and the bootstrap on systems that are known."""

import math

import numpy as np
import pytest
from measured_transformer.analysis.bleu import (
    corpus_bleu,
    corpus_statistics,
    ngrams,
    paired_bootstrap,
    score,
    sentence_mean,
    statistics,
    tokenised,
)

HYPOTHESES = ["The cat sat on a mat.", "It's 3.5 , or so (he said)", "no dogs here"]
REFERENCES = ["the cat sat on the mat .", "It's 3.5, or so (he said).", "No dog is here!"]


@pytest.mark.parametrize(
    ("how", "lower", "expected"),
    [
        ("13a", False, 0.571352653232),
        ("13a", True, 0.644860287131),
        ("blanks", False, 0.0),
        ("blanks", True, 0.291507473387),
        ("characters", False, 0.76015662216),
        ("characters", True, 0.804058279773),
    ],
)
def test_corpora_score_as_in_sacrebleu(how: str, lower: bool, expected: float) -> None:
    cut = [
        [tokenised(text, how, lower=lower) for text in side] for side in (HYPOTHESES, REFERENCES)
    ]
    assert corpus_bleu(*cut) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(
    ("smoothing", "expected"),
    [
        ("halves", [0.25575390579, 0.262690989442, 0.0]),
        ("add one", [0.336591069121, 0.35745672885, 0.0]),
        ("none", [0.0, 0.0, 0.0]),
    ],
)
def test_sentences_score_as_in_sacrebleu(smoothing: str, expected: list[float]) -> None:
    rows = corpus_statistics(
        *([text.split() for text in side] for side in (HYPOTHESES, REFERENCES))
    )
    found = [score(row, smoothing=smoothing).value for row in rows]
    assert found == pytest.approx(expected, abs=1e-11)
    assert sentence_mean(rows, smoothing=smoothing) == pytest.approx(np.mean(expected), abs=1e-11)


def test_counts_by_hand() -> None:
    output, reference = (
        ["the", "cat", "sat", "on", "a", "mat"],
        ["the", "cat", "sat", "on", "the", "mat"],
    )
    assert statistics(output, reference).tolist() == [5, 3, 2, 1, 6, 5, 4, 3, 6, 6]
    value = score(statistics(output, reference))
    assert value.precisions == pytest.approx((5 / 6, 3 / 5, 1 / 2, 1 / 3))
    assert value.value == pytest.approx((1 / 12) ** 0.25)
    many = statistics(["the"] * 3, reference)
    assert many[0] == 2, "no word counts more often than the reference has it"
    assert ngrams(reference, 7).total() == 0


def test_the_brevity_penalty() -> None:
    reference = list("abcdefgh")
    short = score(statistics(reference[:5], reference))
    assert short.brevity == pytest.approx(math.exp(1 - 8 / 5))
    assert short.value == pytest.approx(short.brevity)
    assert score(statistics([*reference, "i"], reference)).brevity == 1
    assert score(statistics([], reference)).value == 0


def test_shorter_orders_are_left_out_where_asked() -> None:
    pair = statistics(["a", "b"], ["a", "b"])
    assert score(pair).value == 0
    assert score(pair, shorter_orders=True).value == 1


def test_a_corpus_is_not_the_mean_of_its_sentences() -> None:
    rows = corpus_statistics([list("abcdef"), list("xy")], [list("abcdef"), list("yx")])
    assert sentence_mean(rows) == pytest.approx(0.5)
    assert 0.5 < score(rows.sum(0)).value < 1
    with pytest.raises(ValueError, match="one reference for each"):
        corpus_statistics([["a"]], [])


def _system(right: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    references = np.random.default_rng(99).integers(50, size=(300, 8))
    outputs = np.where(rng.random(references.shape) < right, references, 50)
    return corpus_statistics(outputs.tolist(), references.tolist())


def test_the_bootstrap_tells_apart_what_differs() -> None:
    better, worse = _system(0.9, 1), _system(0.8, 2)
    found = paired_bootstrap(better, worse, resamples=300)
    assert found.difference > 0.1
    assert 0 < found.low < found.difference < found.high
    assert found.p == pytest.approx(1 / 301)
    turned = paired_bootstrap(worse, better, resamples=300)
    assert turned.difference == -found.difference
    same = paired_bootstrap(better, better, resamples=50)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    with pytest.raises(ValueError, match="one resample"):
        paired_bootstrap(better, worse, resamples=0)


def test_the_bootstrap_calls_one_in_twenty_equal_systems_different() -> None:
    ps = [
        paired_bootstrap(_system(0.8, 2 * i), _system(0.8, 2 * i + 1), resamples=100).p
        for i in range(60)
    ]
    assert np.mean(np.array(ps) < 0.05) < 0.2
    assert np.mean(ps) == pytest.approx(0.5, abs=0.15)
