"""Modular addition, recall and induction: answers that stand, or follow from, elsewhere in the sequence."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.modular import ModularAddition
from measured_transformer.tasks.recall import AssociativeRecall, TwoHopRecall


def drawn(task, size=20, seed=0, **options):
    return task.batch(torch.Generator().manual_seed(seed), size, **options)


# --- modular addition -----------------------------------------------------------------------------


@given(modulus=st.integers(4, 40), seed=st.integers(0, 10**6))
def test_sums_are_right_and_asked_for_behind_the_equals_sign(modulus, seed):
    batch = drawn(ModularAddition(modulus), seed=seed)
    for (a, b, equals), answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert equals == modulus
        assert answers[2] == (a + b) % modulus
    assert batch.scored.tolist() == [[False, False, True]] * 20


def test_sums_of_a_part_are_all_drawn_and_no_others():
    task = ModularAddition(modulus=5, train_share=0.6, part="test")
    pairs = set(map(tuple, task.sums().tolist()))
    assert len({frozenset(pair) for pair in pairs}) == 3, "a fifth of 15 pairs without their order"
    assert len(pairs) == len(task.sums())
    assert set(map(tuple, drawn(task, size=500).inputs[:, :2].tolist())) == pairs
    other = ModularAddition(modulus=5, train_share=0.6, part="test", split_seed=1)
    assert set(map(tuple, other.sums().tolist())) != pairs


@given(modulus=st.integers(4, 40), share=st.floats(0.4, 0.8), seed=st.integers(0, 100))
def test_no_sum_is_in_another_part_the_other_way_round(modulus, share, seed):
    parts = [
        list(map(tuple, ModularAddition(modulus, share, part, seed).sums().tolist()))
        for part in ("train", "validation", "test")
    ]
    for sums in parts:
        assert {(b, a) for a, b in sums} == set(sums)
    whole = sorted(pair for sums in parts for pair in sums)
    assert whole == list(itertools.product(range(modulus), repeat=2)), "each exactly once"
    trained = {frozenset(pair) for pair in parts[0]}
    assert len(trained) == round(share * modulus * (modulus + 1) / 2)


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_what_the_first_number_alone_tells(part):
    task = ModularAddition(modulus=7, train_share=0.7, part=part)
    sums = [(a, (a + b) % 7) for a, b in task.sums().tolist()]
    both, first = Counter(sums), Counter(a for a, _ in sums)
    cost = -sum(c * math.log(c / first[a]) for (a, _), c in both.items()) / len(sums)
    assert task.blind_loss() == pytest.approx(cost, abs=1e-12)
    whole = ModularAddition(modulus=59)
    assert abs(whole.blind_loss() - math.log(59 * 0.8)) < 0.05


# --- recall ---------------------------------------------------------------------------------------


@given(
    pairs=st.integers(1, 7),
    more=st.integers(0, 3),
    queries=st.integers(1, 4),
    values=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
def test_each_key_asks_for_its_value(pairs, more, queries, values, seed):
    queries = min(queries, pairs)
    task = AssociativeRecall(pairs, queries, keys=pairs + more, values=values)
    batch = drawn(task, seed=seed)
    for i, row in enumerate(batch.inputs.tolist()):
        told = dict(zip(row[0 : 2 * pairs : 2], row[1 : 2 * pairs : 2], strict=True))
        assert len(told) == pairs, "no key comes twice"
        assert max(told) < task.keys <= min(told.values())
        asked = [t for t in range(len(row)) if batch.scored[i, t]]
        assert asked == list(range(2 * pairs, 2 * pairs + 2 * queries, 2))
        assert len({row[t] for t in asked}) == queries
        for t in asked:
            key, value = batch.gold["key"][i, t].item(), batch.gold["value"][i, t].item()
            assert batch.targets[i, t].item() == told[row[t]] == row[value]
            assert (row[key], value) == (row[t], key + 1)
            assert value < 2 * pairs, "among the pairs, not among the queries"
    for gold in batch.gold.values():
        assert (gold[~batch.scored] == -1).all()


def test_any_pair_may_be_asked_for_or_a_certain_one():
    free = drawn(AssociativeRecall(pairs=4), size=4000).gold["key"][:, -1]
    assert (torch.bincount(free)[::2] / 4000 - 0.25).abs().max() < 5 * math.sqrt(3 / 16 / 4000)
    for back in (1, 3, 4):
        found = drawn(AssociativeRecall(pairs=4, back=back)).gold["key"][:, -1]
        assert set(found.tolist()) == {2 * (4 - back)}
    far = drawn(AssociativeRecall(pairs=4, back=2, keys=16), length=2 * 10 + 1)
    assert set(far.gold["key"][:, -1].tolist()) == {16}


@pytest.mark.parametrize(
    ("pairs", "queries", "values"), [(1, 1, 3), (3, 1, 2), (3, 2, 3), (4, 4, 2)]
)
def test_a_bag_of_values_by_enumeration(pairs, queries, values):
    total = count = 0.0
    for told in itertools.product(range(values), repeat=pairs):
        for order in itertools.permutations(range(pairs), queries):
            left = Counter(told)
            for asked in order:
                total -= math.log(left[told[asked]] / left.total())
                count += 1
                left[told[asked]] -= 1
    task = AssociativeRecall(pairs, queries, keys=8, values=values)
    assert task.bag_loss() == pytest.approx(total / count, abs=1e-12)
    assert task.blind_loss() == pytest.approx(math.log(values))


@given(chains=st.integers(1, 5), more=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_two_hops_lead_to_the_answer(chains, more, seed):
    task = TwoHopRecall(chains, names=chains + more, values=4)
    batch = drawn(task, seed=seed)
    assert batch.scored.sum(1).tolist() == [1] * 20
    for i, row in enumerate(batch.inputs.tolist()):
        told = dict(zip(row[0:-1:2], row[1::2], strict=True))
        assert len(told) == 2 * chains
        assert batch.targets[i, -1].item() == told[told[row[-1]]]
        bridge, value = (batch.gold[name][i, -1].item() for name in ("bridge", "value"))
        assert row[bridge - 1] == row[-1]
        assert row[value - 1] == row[bridge]
        assert row[value] == batch.targets[i, -1].item()
    assert task.bag_loss() == AssociativeRecall(chains, keys=8, values=4).bag_loss()


def test_both_kinds_of_pairs_stand_anywhere():
    batch = drawn(TwoHopRecall(chains=2), size=4000)
    for name in ("bridge", "value"):
        shares = torch.bincount(batch.gold[name][:, -1])[1::2] / 4000
        assert (shares - 0.25).abs().max() < 5 * math.sqrt(3 / 16 / 4000)
    assert drawn(TwoHopRecall(), length=9).inputs.shape == (20, 9)


# --- induction ------------------------------------------------------------------------------------


@given(
    vocab=st.integers(4, 12),
    shortest=st.integers(2, 4),
    more=st.integers(0, 3),
    length=st.integers(8, 30),
    seed=st.integers(0, 10**6),
)
def test_what_followed_a_token_follows_it_again(vocab, shortest, more, length, seed):
    longest = min(vocab, shortest + more)
    batch = drawn(Induction(vocab, length, shortest, longest), seed=seed)
    for i, row in enumerate(batch.inputs.tolist()):
        period = next((t for t in range(1, length) if row[t] in row[:t]), None)
        assert period is not None
        assert shortest <= period <= longest
        for t, token in enumerate(row):
            before = [s for s in range(t) if row[s] == token]
            assert bool(batch.scored[i, t]) == bool(before)
            if before:
                source = before[-1] + 1
                assert batch.gold["source"][i, t].item() == source
                assert batch.targets[i, t].item() == row[source]
            else:
                assert batch.gold["source"][i, t].item() == -1


def test_the_floor_of_induction_agrees_with_chance_draws():
    task = Induction(vocab=8, length=20, shortest=2, longest=6)
    batch = drawn(task, size=3000)
    period = batch.scored.logical_not().sum(1)
    costs = ((period - 1.0).log()[:, None] * batch.scored).sum() / batch.scored.sum()
    assert task.bag_loss() == pytest.approx(costs.item(), abs=0.02)
    fixed = Induction(vocab=8, length=20, shortest=5, longest=5)
    assert fixed.bag_loss() == pytest.approx(math.log(4))
    assert task.bag_loss(length=40) > task.bag_loss(), "long strings weigh more in long sequences"


def test_strings_of_any_length_are_equally_likely():
    batch = drawn(Induction(vocab=8, length=20, shortest=3, longest=6), size=4000)
    shares = torch.bincount(batch.scored.logical_not().sum(1))[3:] / 4000
    assert (shares - 0.25).abs().max() < 5 * math.sqrt(3 / 16 / 4000)
    assert drawn(Induction(), length=256).inputs.shape == (20, 256)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ModularAddition(modulus=1), "1 items .* leave nothing"),
        (lambda: drawn(ModularAddition(), length=4), "3 tokens, got length=4"),
        (lambda: AssociativeRecall(pairs=9, keys=8), "keys=8, got 9"),
        (lambda: AssociativeRecall(pairs=2, queries=3), "at least 3 pairs"),
        (lambda: AssociativeRecall(back=9), "at least 9 pairs"),
        (lambda: AssociativeRecall(back=0), "back=0"),
        (lambda: AssociativeRecall(back=1, queries=2), "queries=2"),
        (lambda: drawn(AssociativeRecall(), length=16), "odd number of positions, got length=16"),
        (lambda: drawn(AssociativeRecall(keys=8), length=19), "keys=8, got 9"),
        (lambda: TwoHopRecall(chains=5, names=4), "names=4, got 5"),
        (lambda: drawn(TwoHopRecall(), length=8), "multiple of four positions, got length=8"),
        (lambda: drawn(TwoHopRecall(), length=1), "at least one chain .* got 0"),
        (lambda: Induction(shortest=1), "2 <= shortest <= longest <= vocab, got 1"),
        (lambda: Induction(vocab=8), "got 4, 16 and 8"),
        (lambda: Induction(length=16), "longest=16 tokens must repeat.* got 16"),
        (lambda: drawn(Induction(), length=16), "must repeat.* got 16"),
    ],
)
def test_impossible_tasks_are_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()
