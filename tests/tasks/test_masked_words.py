"""Masked words: what is hidden, and the ideal reader against an enumeration of all sentences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.tasks.grammar import _START, VOCABULARY, Grammar
from measured_transformer.tasks.masked_words import MaskedWords


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 40), share=st.floats(0, 1))
def test_only_scored_words_are_hidden_and_the_rest_is_a_sentence(seed, length, share):
    task = MaskedWords(length=length, share=share)
    batch = drawn(task, size=4, seed=seed)
    assert torch.equal(batch.inputs == task.mask, batch.scored)
    assert batch.scored.any(1).all()
    assert torch.equal(batch.inputs[~batch.scored], batch.targets[~batch.scored])
    whole = Grammar(length).batch(torch.Generator().manual_seed(seed), 4)
    assert torch.equal(batch.targets, whole.inputs)
    assert all(torch.equal(batch.gold[name], whole.gold[name]) for name in whole.gold)


def test_as_many_are_hidden_as_asked_for_and_anywhere():
    hidden = drawn(MaskedWords(length=20, share=0.2), size=600).scored.double()
    assert hidden.mean().item() == pytest.approx(0.2 + 0.8**20 / 20, abs=0.015)
    assert (hidden.mean(0) - 0.2).abs().max() < 0.08
    lone = drawn(MaskedWords(length=5, share=0.0), size=600).scored.double()
    assert (lone.sum(1) == 1).all()
    assert (lone.mean(0) - 0.2).abs().max() < 0.08


def chances_by_enumeration(task, seen):
    """Word -> chance at each gap, from all beginnings of sentences that fit, written out one by one."""
    grammar = task.grammar
    found = [{} for _ in seen]

    def go(place, state, chance, words):
        if place == len(seen):
            for i, word in enumerate(words):
                found[i][word] = found[i].get(word, 0.0) + chance
            return
        for choice in grammar._choices(state)[0]:
            for word in choice.words:
                token = VOCABULARY.index(word)
                if seen[place] in (task.mask, token):
                    share = chance * choice.chance / len(choice.words)
                    go(place + 1, choice.after, share, [*words, token])

    go(0, _START, 1.0, [])
    return [{word: p / sum(each.values()) for word, p in each.items()} for each in found]


@pytest.mark.parametrize("gaps", [(2,), (0, 3), (3, 4), (1, 5)])
def test_the_ideal_reader_is_the_one_that_tries_all_sentences(gaps):
    task = MaskedWords(length=7)
    batch = drawn(task, size=6, seed=3)
    scored = torch.zeros_like(batch.scored)
    scored[:, list(gaps)] = True
    inputs = batch.targets.masked_fill(scored, task.mask)
    batch = type(batch)(inputs, batch.targets, scored, gold=batch.gold)
    losses = task.ideal_losses(batch)
    assert losses.isnan().equal(~scored)
    for row in range(6):
        chances = chances_by_enumeration(task, inputs[row].tolist())
        for gap in gaps:
            chance = chances[gap][batch.targets[row, gap].item()]
            assert losses[row, gap].item() == pytest.approx(-math.log(chance))


def test_words_behind_the_gap_help():
    task = MaskedWords(length=24)
    batch = drawn(task, size=40)
    both = task.ideal_losses(batch).nanmean()
    assert both < 0.85 * Grammar(24).bayes_loss()
    words = task.grammar.batch(torch.Generator().manual_seed(1), 600).inputs.flatten()
    share = torch.bincount(words).double() / len(words)
    entropy = torch.special.entr(share).sum().item()
    assert task.constant_loss() == pytest.approx(entropy, abs=0.03)
    assert both < 0.5 * task.constant_loss()


def test_what_fits_no_sentence_has_no_cost():
    task = MaskedWords(length=6)
    batch = drawn(task)
    batch.inputs[0, 0] = VOCABULARY.index(".")
    with pytest.raises(ValueError, match="fits no sentence"):
        task.ideal_losses(batch)


def test_impossible_shares_are_refused(unhooked):
    with pytest.raises(ValueError, match=r"share must lie between 0 and 1, got 1\.5"):
        MaskedWords(share=1.5)
