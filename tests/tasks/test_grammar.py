"""The grammar: sentences read by a parser of their own, arcs checked word by word, floors by simulation."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.tasks import grammar
from measured_transformer.tasks.grammar import NUMBERS, RELATIONS, TAGS, VOCABULARY, Grammar


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


def either(words, plural=None):
    forms = [*words] if plural is not True else []
    forms += [w + "s" for w in words] if plural is not False else []
    return "(?:" + "|".join(forms) + ")"


def sentence_pattern():
    """A regular expression of one sentence, written without looking at the automaton."""
    people = [noun for nouns in grammar.NOUNS.values() for noun in nouns]
    determiner = "(?:the|one|every|some|many)"
    noun = f"{determiner} (?:{either(grammar.ADJECTIVES, plural=False)} ){{0,2}}{either(people)}"
    place = f"{determiner} {either(grammar.PLACES)}"
    transitive, intransitive = either(grammar.TRANSITIVE), either(grammar.INTRANSITIVE)
    prepositions = either(grammar.PREPOSITIONS, plural=False)
    between = f"(?: {prepositions} {place}| that {transitive} {place})?"
    adverb = f"(?: {either(grammar.ADVERBS, plural=False)})?"
    main = f"(?: {transitive} {noun}| {intransitive}{adverb})"
    second = f"(?: (?:because|while|and) (?:he|she|it|they) {intransitive}{adverb})?"
    return re.compile(f"{noun}{between}{main}{second} \\.")


SENTENCE = sentence_pattern()


def sentences(text):
    return [part.strip() + " ." for part in text.split(".")[:-1]]


def test_every_sentence_is_one():
    task = Grammar(length=60)
    for row in drawn(task, size=100).inputs:
        found = sentences(task.text(row))
        assert found
        for sentence in found:
            assert SENTENCE.fullmatch(sentence), sentence


def test_the_vocabulary_is_used_and_has_no_doubles():
    assert len(set(VOCABULARY)) == len(VOCABULARY) == Grammar().vocab == 149
    assert len(drawn(Grammar(), size=600).inputs.unique()) == 149


def plural_of(word):
    """Read the number off a noun's, verb's or pronoun's form."""
    stems = {*grammar.PLACES, *(n for nouns in grammar.NOUNS.values() for n in nouns)}
    verbs = {*grammar.TRANSITIVE, *grammar.INTRANSITIVE}
    if word in ("he", "she", "it", "they"):
        return word == "they"
    return word not in stems if word not in verbs and word[:-1] not in verbs else word in verbs


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 60))
def test_arcs_join_what_belongs_together(seed, length):
    task = Grammar(length=length)
    batch = drawn(task, seed=seed, size=4)
    for i in range(4):
        words = task.text(batch.inputs[i]).split()
        heads, relations, tags, numbers = (
            batch.gold[name][i].tolist() for name in ("head", "relation", "tag", "number")
        )
        kinds = [TAGS[tag] for tag in tags]
        for t, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            assert (head == -1) == (relation == -1)
            if kinds[t] in ("noun", "place", "verb", "pronoun"):
                assert NUMBERS[numbers[t]] == ("plural" if plural_of(words[t]) else "singular")
            else:
                assert numbers[t] == -1
            if kinds[t] in ("verb", "pronoun"):
                assert relation != -1, "its head got before"
            if head == -1:
                continue
            assert 0 <= head < length
            assert "." not in words[min(t, head) : max(t, head)], "within a sentence"
            name = RELATIONS[relation]
            if name in ("determiner", "adjective"):
                assert kinds[t] == name
                assert head > t
                assert kinds[head] in ("noun", "place")
                assert set(kinds[t + 1 : head]) <= {"adjective"}
                singular = {"one": True, "every": True, "some": False, "many": False}
                assert singular.get(words[t], not plural_of(words[head])) != plural_of(words[head])
            elif name == "agreement":
                assert kinds[t] == "verb"
                assert kinds[head] in ("noun", "pronoun")
                assert head < t
                assert numbers[head] == numbers[t]
                start = max((k for k in range(t) if words[k] == "."), default=-1)
                nouns = [k for k in range(start + 1, t) if kinds[k] in ("noun", "pronoun")]
                assert head == (nouns[-1] if kinds[t - 1] == "pronoun" else nouns[0])
            elif name == "reference":
                assert kinds[t] == "pronoun"
                assert kinds[head] == "noun"
                assert plural_of(words[head]) == (words[t] == "they")
                if words[t] != "they":
                    assert words[head] in grammar.NOUNS[words[t]]
            elif name == "object":
                assert kinds[t] in ("noun", "place")
                assert kinds[head] == "verb"
                assert set(kinds[head + 1 : t]) <= {"determiner", "adjective"}
            else:
                assert (name, kinds[t], kinds[head]) == ("place", "place", "preposition")
                assert kinds[head + 1 : t] == ["determiner"]


def test_a_pronoun_can_mean_one_noun_only():
    batch = drawn(Grammar(length=60, reference=1.0), size=100)
    meant = [0, 0]  # the subject, the object
    for row, tags, heads in zip(
        batch.inputs, batch.gold["tag"].tolist(), batch.gold["head"].tolist(), strict=True
    ):
        words = Grammar().text(row).split()
        start = 0
        for t, word in enumerate(words):
            if word == ".":
                start = t
            if word in ("he", "she", "it", "they"):
                nouns = [k for k in range(start, t) if TAGS[tags[k]] == "noun"]
                stems = () if word == "they" else grammar.NOUNS[word]
                fitting = [
                    plural_of(words[k]) if word == "they" else words[k] in stems for k in nouns
                ]
                assert fitting.count(True) == 1
                assert nouns[fitting.index(True)] == heads[t]
                meant[fitting.index(True)] += 1
    assert min(meant) > 20


def test_nothing_between_subject_and_verb_and_no_pronouns_when_not_asked_for():
    task = Grammar(length=60, attractor=0.0, reference=0.0)
    seen = {TAGS[tag] for tag in drawn(task, size=50).gold["tag"].unique().tolist()}
    assert seen == {"determiner", "adjective", "noun", "verb", "adverb", "stop"}
    task = Grammar(length=60, attractor=1.0, reference=1.0)
    text = " ".join(task.text(row) for row in drawn(task, size=50).inputs)
    assert text.count(" because ") + text.count(" while ") + text.count(" and ") > 50
    distracted = drawn(Grammar(length=60, attractor=1.0), size=200)
    verbs = distracted.gold["relation"] == RELATIONS.index("agreement")
    apart = (torch.arange(60) - distracted.gold["head"])[verbs]
    assert (apart > 2).double().mean() > 0.2


@pytest.mark.parametrize("task", [Grammar(), Grammar(attractor=0.0), Grammar(reference=1.0)])
def test_the_floor_is_the_mean_cost_of_many_sentences(task):
    losses = task.ideal_losses(drawn(task, size=700))
    rows = losses.mean(1)
    assert abs(rows.mean() - task.bayes_loss()) < 4 * rows.std() / math.sqrt(700)
    late = (200 * task.bayes_loss(length=200) - 150 * task.bayes_loss(length=150)) / 50
    assert late == pytest.approx(task.entropy_rate(), abs=1e-3)


def test_chances_are_those_of_what_is_written():
    task = Grammar(length=6)
    batch = drawn(task, size=6000)
    whole = torch.cat([batch.inputs[:, :1], batch.targets], 1)
    starts = whole[:, 0] == VOCABULARY.index("some")
    after = torch.bincount(whole[starts, 1], minlength=149) / starts.sum()
    adjectives = [VOCABULARY.index(word) for word in grammar.ADJECTIVES]
    assert after[adjectives].sum().item() == pytest.approx(0.3, abs=0.04)
    nouns = [VOCABULARY.index(n + "s") for nouns in grammar.NOUNS.values() for n in nouns]
    assert after[nouns].sum().item() == pytest.approx(0.7, abs=0.04)
    assert after[nouns].max() - after[nouns].min() < 0.05
    costs = task.ideal_losses(batch)[starts, 0]
    noun = torch.isin(whole[starts, 1], torch.tensor(nouns))
    assert costs[noun].tolist()[0] == pytest.approx(-math.log(0.7 / 24))
    assert costs[~noun].tolist()[0] == pytest.approx(-math.log(0.3 / 20))


def test_chances_sum_to_one_everywhere():
    from measured_transformer.tasks.grammar import _START, _what_may_follow

    seen, todo = set(), [_START]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        choices, _ = _what_may_follow(state, 0.4, 0.6)
        assert sum(choice.chance for choice in choices) == pytest.approx(1)
        words = [word for choice in choices for word in choice.words]
        assert len(set(words)) == len(words), "the word tells which choice was made"
        assert set(words) <= set(VOCABULARY)
        todo += [choice.after for choice in choices]
    assert len(seen) > 30


def test_what_is_no_sentence_has_no_cost():
    task = Grammar(length=3)
    batch = drawn(task)
    batch.targets[0, 0] = VOCABULARY.index(".")
    with pytest.raises(ValueError, match=r"'\.' cannot follow '\w+' in this grammar"):
        task.ideal_losses(batch)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Grammar(length=0), "length .* got 0"),
        (lambda: Grammar(attractor=1.1), "attractor must lie between 0 and 1, got 1.1"),
        (lambda: Grammar(reference=-0.1), "reference must lie between 0 and 1, got -0.1"),
    ],
)
def test_impossible_grammars_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
