"""Prompts: what is read after them, and how they are put together."""

from __future__ import annotations

import pytest
import torch
from measured_book.smollm2 import prompts
from measured_transformer.interop.tokenizer import Tokenizer
from small_smollm2 import needs_smollm2, small_model

BYTES = Tokenizer.of_bytes()
MODEL = small_model(vocab=256)
ASKED = ["ab", "a longer one", "cd", "e", "another"]


def test_what_is_read_after_prompts_of_all_lengths_is_what_each_gives_alone():
    found = prompts.next_logits(ASKED, model=MODEL, tokenizer=BYTES, rows=2)
    for row, text in zip(found, ASKED, strict=True):
        alone = MODEL(torch.tensor([BYTES.encode(text)]))[0, -1]
        torch.testing.assert_close(row, alone)
    first = prompts.next_logits([[7, 8]], model=MODEL, tokenizer=BYTES, first=9)
    torch.testing.assert_close(first[0], MODEL(torch.tensor([[9, 7, 8]]))[0, -1])
    best = prompts.next_logits(
        ASKED, model=MODEL, tokenizer=BYTES, read=lambda logits: logits.argmax(-1)
    )
    assert best.tolist() == found.argmax(-1).tolist()


def test_gaps_are_differences_of_the_two_logits():
    right, wrong = ["x", "y", 3, "z", "v"], ["y", "x", "x", 4, "w"]
    found = prompts.gaps(ASKED, right, wrong, model=MODEL, tokenizer=BYTES)
    logits = prompts.next_logits(ASKED, model=MODEL, tokenizer=BYTES)
    numbers = [
        [one if isinstance(one, int) else ord(one) for one in all_] for all_ in (right, wrong)
    ]
    wanted = [float(row[a] - row[b]) for row, a, b in zip(logits, *numbers, strict=True)]
    assert found.tolist() == pytest.approx(wanted)
    with pytest.raises(ValueError, match="each of 5 prompts, got 1 and 5"):
        prompts.gaps(ASKED, right[:1], wrong, model=MODEL, tokenizer=BYTES)
    with pytest.raises(ValueError, match="one token, got 'xx'"):
        prompts.gaps(["a"], ["xx"], ["y"], model=MODEL, tokenizer=BYTES)


@pytest.mark.parametrize("given", [[], ["a", ""], [[1], []]])
def test_a_prompt_without_a_token_is_refused(given):
    with pytest.raises(ValueError, match="each with at least one token"):
        prompts.encode(given, tokenizer=BYTES)


def test_pairs_are_minimal_where_they_are_as_long_and_answers_are_tokens():
    assert prompts.Pair("the cat", "the dog", "s", " ").is_minimal(BYTES)
    assert not prompts.Pair("the cat", "the cats", "s", " ").is_minimal(BYTES)
    assert not prompts.Pair("the cat", "the dog", "ss", " ").is_minimal(BYTES)


def test_examples_in_a_row():
    shown = prompts.few_shot([("1", "2")], "3", form="Q: {question} A: {answer}.", between=" | ")
    assert shown == "Q: 1 A: 2. | Q: 3 A:"
    with pytest.raises(ValueError, match=r"a form with \{question\} and \{answer\}, got 'nothing'"):
        prompts.few_shot([], "3", form="nothing")


def test_combinations_come_in_order():
    found = prompts.filled("{a}{b}{a}", a="xy", b="12")
    assert found == ["x1x", "x2x", "y1y", "y2y"]


@needs_smollm2
def test_smollm2_knows_some_capitals():
    lands = {"France": " Paris", "Italy": " Rome", "Spain": " Madrid"}
    asked = prompts.filled("The capital of {land} is", land=list(lands))
    right = list(lands.values())
    found = prompts.gaps(asked, right, [*right[1:], right[0]], first="end")
    assert bool((found > 2).all())
    assert prompts.one_token([" Paris", " Reykjavik"]) == [" Paris"]
