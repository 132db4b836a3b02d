"""Shuffled sentences have the words of the grammar's, in random order; the stops stay in place."""

import itertools

import torch
from measured_transformer.tasks.grammar import Grammar
from measured_transformer.tasks.shuffled import STOP, ShuffledSentences, shuffled
from measured_transformer.tasks.task import Task


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sentences(row):
    return [
        sorted(words)
        for stop, words in itertools.groupby(row, key=lambda token: token == STOP)
        if not stop
    ]


def test_each_sentence_keeps_its_words_and_its_length():
    grammar = Grammar(length=40)
    mixed, plain = ShuffledSentences(grammar).batch(generator(), 50), grammar.batch(generator(), 50)
    changed = 0
    for one, other in zip(
        torch.cat((mixed.inputs[:, :1], mixed.targets), 1).tolist(),
        torch.cat((plain.inputs[:, :1], plain.targets), 1).tolist(),
        strict=True,
    ):
        assert sentences(one) == sentences(other)
        assert [i for i, t in enumerate(one) if t == STOP] == [
            i for i, t in enumerate(other) if t == STOP
        ]
        changed += one != other
    assert changed > 45
    assert torch.equal(mixed.inputs[:, 1:], mixed.targets[:, :-1])
    assert not mixed.gold


def test_the_same_sentences_come_batch_after_batch():
    grammar, one, other = Grammar(length=20), generator(3), generator(3)
    task = ShuffledSentences(grammar)
    for _ in range(3):
        mixed, plain = task.batch(one, 4), grammar.batch(other, 4)
        for one_row, other_row in zip(mixed.inputs.tolist(), plain.inputs.tolist(), strict=True):
            if STOP in one_row:
                assert sentences(one_row)[0] == sentences(other_row)[0]
    assert torch.equal(one.get_state(), other.get_state())


def test_all_orders_are_equally_likely():
    tokens = torch.tensor([[1, 2, 3, STOP, 4, 5]]).expand(6000, -1)
    mixed = shuffled(tokens, generator())
    found, counts = mixed.unique(dim=0, return_counts=True)
    assert len(found) == 12  # 3! orders of the first sentence, 2! of the one that is cut off
    assert bool((found[:, 3] == STOP).all())
    assert 420 < int(counts.min()) <= int(counts.max()) < 580
    assert not torch.equal(shuffled(tokens, generator(1)), mixed)


def test_it_is_a_task():
    task = ShuffledSentences(Grammar(length=9))
    assert isinstance(task, Task)
    assert (task.vocab, task.length, task.causal) == (Grammar().vocab, 9, True)
    assert task.batch(generator(), 2, length=5).inputs.shape == (2, 5)
