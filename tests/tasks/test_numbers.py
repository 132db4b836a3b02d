"""Numbers in words: their words, their parts, and what a pair looks like."""

import itertools
import math
import re
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.numbers import LANGUAGES, NumberTranslation, number_words
from measured_transformer.tasks.task import SourceTask, SplitTask, held_out
from num2words import num2words


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@given(number=st.integers(0, 999_999), language=st.sampled_from(LANGUAGES))
def test_the_words_together_are_the_name(number, language):
    name = num2words(number, lang=language)
    assert "".join(number_words(number, language)) == re.sub("[ ,-]", "", name)


@pytest.mark.parametrize(
    ("number", "language", "words"),
    [
        (0, "en", "zero"),
        (0, "de", "null"),
        (1, "de", "eins"),
        (17, "de", "siebzehn"),
        (70, "de", "siebzig"),
        (71, "de", "ein und siebzig"),
        (101, "de", "ein hundert eins"),
        (13_016, "de", "dreizehn tausend sechzehn"),
        (376, "en", "three hundred and seventy six"),
        (80, "fr", "quatre vingts"),
        (71, "fr", "soixante et onze"),
    ],
)
def test_names_that_are_easily_cut_wrong(number, language, words):
    assert number_words(number, language) == tuple(words.split())


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_two_numbers_have_the_same_words(language):
    assert len({number_words(number, language) for number in range(3000)}) == 3000


@pytest.mark.parametrize(("source", "target"), [*itertools.permutations(LANGUAGES, 2)])
def test_a_pair_is_one_number_in_both_languages(source, target):
    task = NumberTranslation(source, target, below=200)
    assert isinstance(task, SourceTask)
    assert isinstance(task, SplitTask)
    batch = drawn(task)
    assert batch.source.shape == (20, task.source_length)
    assert batch.inputs.shape == (20, task.length)
    numbers = [task.numbers()[item] for item in batch.gold["item"].tolist()]
    for i, number in enumerate(numbers):
        assert task.text(batch.source[i]) == " ".join(number_words(number, source))
        assert task.text(batch.targets[i]) == " ".join(number_words(number, target))
        words = len(number_words(number, target))
        row = batch.targets[i].tolist()
        assert row[words] == task.end
        assert row[words + 1 :] == [task.padding] * (task.length - words - 1)
        assert batch.inputs[i].tolist() == [task.start, *row[:-1]]
        assert batch.scored[i].tolist() == [t <= words for t in range(task.length)]
    assert torch.equal(batch.padding_mask, batch.inputs != task.padding)
    assert torch.equal(batch.source_padding_mask, batch.source != task.padding)
    assert task.unknown not in torch.cat([batch.source, batch.targets], dim=1)


def test_held_out_numbers_are_never_drawn_in_training():
    task = NumberTranslation(below=60)

    def seen(task):
        return {task.text(row) for row in drawn(task, size=1000).source}

    train, validation, test = (seen(t) for t in (task, held_out(task), held_out(task, "test")))
    assert len(train) == 48
    assert len(validation) == len(test) == 6
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert held_out(task).vocab == task.vocab, "one vocabulary for all parts"
    assert held_out(task).length == task.length


def test_a_blind_model_pays_for_the_choice_of_a_number():
    task = NumberTranslation(below=100)
    words = sum(len(target) + 1 for _, target in task.pairs())
    assert task.blind_loss() == pytest.approx(80 * math.log(80) / words)
    counts = {}
    for _, target in task.pairs():  # the same cost, word by word
        for i in range(len(target) + 1):
            after = (*target, ".")[i]
            counts.setdefault(target[:i], []).append(after)
    cost = -sum(
        math.log(after.count(word) / len(after)) for after in counts.values() for word in after
    )
    assert task.blind_loss() == pytest.approx(cost / words)


def test_more_room_is_more_padding():
    task = NumberTranslation(below=100)
    short, long = drawn(task), drawn(task, length=9)
    assert long.inputs.shape == (20, 9)
    assert torch.equal(long.targets[:, : task.length], short.targets)
    assert (long.targets[:, task.length :] == task.padding).all()


def test_the_same_seed_gives_the_same_batch():
    task = NumberTranslation(below=100)
    assert torch.equal(drawn(task).source, drawn(task).source)
    assert not torch.equal(drawn(task).source, drawn(task, seed=1).source)
    assert eval(repr(task)) == task


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(ModuleNotFoundError, match="pip install num2words"):
        number_words(3, "en")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NumberTranslation("en", "en"), "two languages .* 'en', 'en'"),
        (lambda: NumberTranslation("en", "it"), "languages are en, de, fr, got 'it'"),
        (lambda: NumberTranslation(below=0), "below .* got 0"),
        (lambda: NumberTranslation(below=1_000_001), "below=1000001"),
        (lambda: NumberTranslation(below=2), "leave nothing"),
        (lambda: NumberTranslation(part="dev"), "got 'dev'"),
        (lambda: drawn(NumberTranslation(below=100), length=3), "takes 4 positions, got length=3"),
        (lambda: drawn(NumberTranslation(below=100), size=0), "size .* got 0"),
        (lambda: number_words(2_000_000, "de"), "below a million, got 'Millionen'"),
    ],
)
def test_impossible_translations_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
