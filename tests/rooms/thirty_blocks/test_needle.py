"""Facts in long texts: what stands where, and that questions see the text and not one another."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.seeds import seeds_of
from measured_book.rooms.thirty_blocks import far, needle
from measured_book.smollm2.model import is_installed, smollm2
from measured_book.smollm2.prompts import one_token
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import frequencies

needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    config = Config(
        vocab=50, d_model=32, n_layers=3, n_heads=4, n_kv_heads=2, positions="rotary", norm="rms"
    )
    return Decoder(config).double().eval().requires_grad_(False)


def test_each_question_is_answered_as_if_it_stood_there_alone(model: Decoder) -> None:
    text, questions = torch.randint(50, (11,)), [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    omega = frequencies(8)
    found = needle.answered(model, text, questions, torch.arange(11.0).double(), omega)
    for one, logits in zip(questions, found, strict=True):
        whole = torch.cat([text, torch.tensor(one)])[None]
        torch.testing.assert_close(logits, model(whole)[0, -1])


def test_positions_are_those_given_and_a_question_goes_on_from_the_last(model: Decoder) -> None:
    text, question = torch.randint(50, (9,)), [1, 2, 3]
    positions = torch.arange(9).double()
    positions[4:] += 100
    found = needle.answered(model, text, [question], positions, frequencies(8))
    places = torch.cat([positions, positions[-1] + torch.arange(1.0, 4.0)]).long()[None]
    whole = torch.cat([text, torch.tensor(question)])[None]
    torch.testing.assert_close(found[0], model(whole, positions=places)[0, -1])


@needs_model
def test_words_and_cities_are_single_tokens_and_no_set_shares_one() -> None:
    for sets in (needle.CITIES, needle.WORDS):
        for some in sets.values():
            words = [f" {word}" for word in some]
            assert one_token(words) == words
        assert not set(sets["judging"]) & set(sets["look"])


@needs_model
@pytest.mark.parametrize("length", [300, 512])
def test_a_line_stands_at_each_depth_and_names_its_word(length: int) -> None:
    stack = needle.haystack(30, length)
    tokenizer = smollm2().tokenizer
    assert len(stack.tokens) == length
    text = stack.tokens.tolist()
    for place, (start, answer, question) in enumerate(
        zip(stack.starts, stack.answers.tolist(), stack.questions, strict=True)
    ):
        said = text[start : start + len(question)]
        assert said == question, "the line begins as the question does"
        assert text[start + len(question)] == answer
        share = (start - 1 - 10 * place) / (length - 51)
        assert share == pytest.approx(needle.DEPTHS[place], abs=0.02)
    assert tokenizer.decode(text).count("password") == len(needle.DEPTHS)


@needs_model
def test_without_lines_the_text_is_the_same_and_has_no_password() -> None:
    with_lines, bare = needle.haystack(40, 400), needle.haystack(40, 400, lines=False)
    assert len(bare.tokens) == 400
    assert "password" not in smollm2().tokenizer.decode(bare.tokens.tolist())
    assert with_lines.questions == bare.questions
    assert torch.equal(with_lines.answers, bare.answers)
    tokens, starts = with_lines.tokens.tolist(), with_lines.starts
    line = len(with_lines.questions[0]) + len([" word", ".", "\n"])
    ends = [*starts[1:], len(tokens)]
    text = [t for start, end in zip(starts, ends, strict=True) for t in tokens[start + line : end]]
    assert tokens[: starts[0]] + text == bare.tokens.tolist()[: len(tokens) - 5 * line]


def test_a_word_is_found_where_it_is_ahead_of_all_others_of_its_set() -> None:
    stack = needle.Haystack(
        torch.zeros(3, dtype=torch.long), [], [], torch.tensor([2, 3]), torch.tensor([2, 3, 4])
    )
    logits = torch.zeros(2, 6)
    logits[0, 2], logits[0, 5], logits[1, 4] = 1.0, 9.0, 1.0  # 5 is no word of the set
    ahead, nats = needle.scored(logits, stack)
    assert ahead.tolist() == [1.0, 0.0]
    right = -torch.log_softmax(logits, -1)[[0, 1], [2, 3]]
    torch.testing.assert_close(nats, right.double())


def test_both_kinds_of_text_are_drawn_alike_often() -> None:
    kinds = [seed // 10 % 2 for seed in seeds_of(10)]
    assert sum(kinds) == 5


def test_gaps_reach_beyond_the_trained_length() -> None:
    reach = [gap * (len(needle.DEPTHS) - 1) + needle.APART for gap in needle.SPREAD]
    assert [one > far.TRAINED for one in reach] == [False, True]
