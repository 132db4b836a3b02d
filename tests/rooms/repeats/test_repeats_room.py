"""What the room of repeats computes and draws."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.repeats import figures, heads
from measured_book.rooms.repeats import measure as m
from measured_book.rooms.repeats.sentence import chosen, copied
from measured_book.rooms.repeats.words import BETWEEN, NOUNS, RELATIONS, VERBS
from measured_book.smollm2.model import is_installed
from measured_book.smollm2.prompts import one_token
from measured_book.smollm2.sweeps import begin
from measured_transformer.analysis.handmade import induction_model
from measured_transformer.internals.capture import capture
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.model import LanguageModel
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("repeats")
DRAWN = {
    name: (lambda name=name: getattr(figures, name)(RESULTS[name.removeprefix("plot_")]))
    for name in (
        "plot_found",
        "plot_repeated",
        "plot_removed",
        "plot_ordinary",
        "plot_path",
        "plot_shots",
        "plot_agreement",
        "plot_objects",
    )
} | {"plot_circuit": lambda: figures.plot_circuit(RESULTS["objects"])}
needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    config = Config(
        vocab=50, d_model=32, n_layers=3, n_heads=4, n_kv_heads=2, positions="rotary", norm="rms"
    )
    return Decoder(config).eval().requires_grad_(False)


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_every_figure_function_is_tried() -> None:
    assert {name for name in vars(figures) if name.startswith("plot_")} == set(DRAWN)


def test_detectors_find_the_heads_of_a_model_built_by_hand() -> None:
    tokens = torch.randperm(10)[:6].repeat(2)[None]
    prefix, previous = heads.scores(induction_model(vocab=10, length=12), tokens)
    assert heads.top(prefix, 1)[0][0] == 1
    assert heads.top(previous, 1)[0][0] == 0
    assert prefix.max() > 0.9
    assert previous.max() > 0.9


def test_random_sets_hold_no_head_of_either_kind(model: Decoder) -> None:
    tokens = torch.randperm(50)[:8].repeat(2, 2)
    found = heads.find(model, tokens, 0, count=2)
    kept = {*found.induction, *found.before}
    either = torch.maximum(found.prefix, found.previous)
    for one in (*found.for_induction, *found.for_before):
        assert len(set(one)) == 2
        assert not kept & set(one)
        assert all(either[head] <= heads.OF_A_KIND for head in one)


def test_silent_heads_hand_on_nothing_and_others_what_they_did(model: Decoder) -> None:
    tokens = torch.randint(50, (2, 9))
    with heads.silent(model, [(1, 2)]), capture(model, "blocks.*.attention.mixed") as seen:
        model(tokens)
    assert (seen["blocks.1.attention.mixed"][:, 2] == 0).all()
    assert (seen["blocks.1.attention.mixed"][:, 1] != 0).any()
    with heads.silent(model, [(1, 2)]):
        silent = model.stream(tokens)
    sweep = begin(tokens, model=model)
    with sweep.without({1: [2]}):
        torch.testing.assert_close(sweep.onward(1), silent)


def test_the_loss_of_a_time_is_that_of_its_tokens() -> None:
    length = 3 * m.PERIOD
    losses = torch.arange(length).float()[None]  # of tokens 1 to length, behind the first one
    for time in m.TIMES:
        first = (time - 1) * m.PERIOD + 1  # position of its first token, which is left out
        right = [position - 1 for position in range(first + 1, first + m.PERIOD)]
        assert m.of_time(losses, time) == pytest.approx(sum(right) / len(right))


@needs_model
def test_words_are_single_tokens() -> None:
    words = [f" {word}" for pair in NOUNS.items() for word in pair]
    words += [f" {word}" for word in BETWEEN]
    words += VERBS
    words += [f" {word}" for known in RELATIONS.values() for word in known.values()]
    assert one_token(words) == words


@needs_model
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_answer_stands_nowhere_in_its_prompt(relation: str) -> None:
    prompts, answers = m.prompts_of(relation, 3)
    for name in ("right", "wrong"):
        for prompt, answer in zip(prompts[name], answers, strict=True):
            assert answer.strip() not in prompt.replace("->", " ").split()
            assert prompt.count("->") == m.SHOTS + 1
    for right, wrong in zip(prompts["right"], prompts["wrong"], strict=True):
        assert sorted(right.split()) == sorted(wrong.split())
        pairs = [
            dict(line.split(" -> ") for line in one.split("\n")[:-1]) for one in (right, wrong)
        ]
        assert pairs[0].keys() == pairs[1].keys()
        assert all(pairs[0][word] != pairs[1][word] for word in pairs[0])


def test_sentences_differ_in_the_subject_alone() -> None:
    for subject, middle, other in m.sentences(5, 12):
        assert subject != other
        one, many = (
            m.said(subject, middle, other, plural, True).split() for plural in (False, True)
        )
        assert [a == b for a, b in zip(one, many, strict=True)] == [True, False, True, True, True]


@needs_model
def test_strings_and_texts_come_again() -> None:
    for of in m.OF:
        tokens = m.repeated_of(of, 3, 3)[:, 1:].unflatten(1, (3, m.PERIOD))
        assert torch.equal(tokens[:, 0], tokens[:, 1])
        assert torch.equal(tokens[:, 0], tokens[:, 2])
    assert not torch.equal(m.strings(3, 2), m.strings(3 + m.OTHER, 2))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "rms", "activation": "swiglu", "positions": "rotary", "qkv_bias": True},
        {"norm": "layer", "activation": "gelu", "positions": "learned"},
        {"norm": "layer", "activation": "gelu", "positions": "rotary", "parallel": True},
    ],
    ids=["like Qwen", "like GPT-2", "like NeoX"],
)
def test_a_reader_can_put_another_model_in_its_place(changes: dict) -> None:
    torch.manual_seed(1)
    config = Config(vocab=256, d_model=32, n_layers=3, n_heads=4, max_length=64, **changes)
    model = LanguageModel(Decoder(config), Tokenizer.of_bytes()).eval().requires_grad_(False)
    lines = copied(model, "Rain falls on hills.").splitlines()
    assert lines[0].startswith("20 tokens; ")
    numbers = [tuple(float(word) for word in line.split()[-2:]) for line in lines[1:4]]
    twice = torch.tensor([list(b"Rain falls on hills.") * 2])
    losses = torch.nn.functional.cross_entropy(
        model.model(twice)[0, :-1], twice[0, 1:], reduction="none"
    )
    assert numbers[0] == pytest.approx(
        (float(losses[:19].mean()), float(losses[20:].mean())), abs=0.006
    )
    assert len(set(numbers)) == 3
    with pytest.raises(ValueError, match="at least 3 tokens, got 2"):
        copied(model, "Hi")
    with pytest.raises(ValueError, match="at most half of 12 heads, got 7"):
        copied(model, "Rain", count=7)


def test_heads_of_a_readers_model_are_chosen_by_what_they_look_at() -> None:
    model = LanguageModel(induction_model(vocab=256, length=64), Tokenizer.of_bytes())
    best, others = chosen(model, 1)
    assert best[0][0] == 1, "the head of induction is in the second block"
    assert others != best
