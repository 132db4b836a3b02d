"""Heads and relations: hand-made heads get exactly the score of their offset; arcs are those of the words."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.heads_and_grammar import measure as relations
from measured_book.rooms.heads_and_grammar.measure import (
    NAMES,
    Arcs,
    arcs,
    best,
    best_of,
    boundaries,
    f1,
    far_subject_scores,
    fresh,
    head_scores,
    hidden,
    masses,
    number_odds,
    number_without,
    offset_scores,
    patterns,
    prefers_the_meant,
    relation_arcs,
    rivals,
    sentence_patterns,
    swapped,
    view,
    without_role,
)
from measured_transformer.analysis.handmade import heads_model
from measured_transformer.models.config import Config
from measured_transformer.tasks.grammar import NOUNS, VOCABULARY, Grammar
from measured_transformer.training.loop import make_model

LENGTH = 16


def drawn(size=60, seed=0, length=LENGTH):
    return Grammar(length).batch(torch.Generator().manual_seed(seed), size)


def handmade(*roles, causal=True):
    return heads_model(roles, vocab=len(VOCABULARY), length=LENGTH, causal=causal)


@pytest.mark.parametrize("relation", NAMES)
def test_scores_are_the_f1_of_what_is_predicted(relation):
    gold = arcs(drawn(), relation)
    here = torch.arange(LENGTH).expand_as(gold.end)
    for offset, score in offset_scores(gold).items():
        there = here + offset
        assert score == pytest.approx(
            f1(there.masked_fill((there < 0) | (there >= LENGTH), -1), gold)
        )
    looked = torch.randint(LENGTH, (60, 5, LENGTH), generator=torch.Generator().manual_seed(0))
    expected = [f1(one, gold) for one in looked.unbind(1)]
    assert head_scores(looked, gold) == pytest.approx(expected)


@pytest.mark.parametrize("relation", NAMES)
def test_a_head_of_one_offset_scores_what_the_offset_scores(relation):
    batch = drawn()
    gold = arcs(batch, relation)
    offsets = offset_scores(gold)
    looked = patterns(handmade("previous", "self", "next", causal=False), batch).argmax(-1)
    found = head_scores(looked, gold)
    # A word in the last place has no next one: an offset says nothing there, a head says something wrong.
    ends = LENGTH - 1
    last = int(gold.start[:, ends].sum())
    made = int(gold.start.sum())
    there = int((gold.end >= 0).sum())
    assert found[0] == pytest.approx(offsets[-1] if relation != "adjective" else 0.0)
    assert found[1] == offsets[0] == 0
    assert found[2] == pytest.approx(offsets[1] * (made - last + there) / (made + there))


def test_the_best_head_is_found_and_measured_on_the_other_half():
    batch = drawn(200)
    gold = arcs(batch, "agreement")
    found = best(patterns(handmade("first", "self", "previous"), batch).argmax(-1), gold)
    assert (found.head, found.offset) == (2, -1)
    assert found.score == pytest.approx(found.offset_score)
    assert found.offset_score == pytest.approx(offset_scores(gold.half(1))[-1])
    assert found.offset_score != pytest.approx(offset_scores(gold.half(0))[-1])


def test_the_choice_does_not_see_what_is_scored():
    gold = Arcs(torch.ones(4, 3, dtype=torch.bool), torch.tensor([[0, 0, 0], [1, 1, 1]] * 2))
    looked = torch.stack([torch.zeros(4, 3), torch.ones(4, 3)], 1).long()
    assert best(looked, gold).head == 0, "right on rows with even numbers"
    assert best(looked, gold).score == 0, "and never right on the others"


def test_f1_by_hand():
    gold = Arcs(torch.tensor([[True, True, True, False]]), torch.tensor([[-1, 0, 1, -1]]))
    assert f1(torch.tensor([[3, 0, 0, 0]]), gold) == pytest.approx(2 * 1 / (3 + 2))
    assert f1(torch.tensor([[-1, 0, 1, 0]]), gold) == 1
    assert f1(torch.tensor([[-1, -1, -1, 0]]), gold) == 0
    none = Arcs(torch.zeros(1, 2, dtype=torch.bool), torch.full((1, 2), -1))
    assert f1(torch.zeros(1, 2, dtype=torch.long), none) == 0


def test_arcs_one_place_earlier_and_far_ones():
    batch = drawn()
    gold = arcs(batch, "agreement")
    early = gold.earlier()
    assert torch.equal(early.end[:, :-1][gold.start[:, 1:]], gold.end[:, 1:][gold.start[:, 1:]])
    distances = gold.distances()
    assert sorted(set(distances)) == [-5, -4, -2, -1]
    assert sorted(set(early.distances())) == [-4, -3, -1, 0]
    far = gold.farther(2)
    assert sorted(set(far.distances())) == [-5, -4]
    assert far.start.sum() == (distances < -2).sum() == (far.end >= 0).sum()
    ahead = arcs(batch, "adjective").earlier()
    assert not ahead.start[ahead.end < 0].any() or (arcs(batch, "adjective").end == -1).any()
    assert (ahead.end == -1).all(), "what points ahead cannot be looked along"


def test_masses_of_known_heads():
    batch = drawn()
    found = masses(
        patterns(handmade("previous", "first", "next", "self", causal=False), batch),
        boundaries(batch),
    )
    # The first word is the previous one of the second; the head for the next word looks everywhere at the end.
    assert found["previous"] == pytest.approx([1, 1 / 15, 1 / 15 / 16, 0], abs=1e-9)
    assert found["next"] == pytest.approx([1 / 15 / 16, 0, 1, 0], abs=1e-9)
    assert found["boundary"][1] == pytest.approx(1)
    assert found["boundary"][3] == pytest.approx(0)
    marked = boundaries(batch)
    after_boundary = marked[:, :-1][~marked[:, 1:]].double().mean()
    assert found["boundary"][0] == pytest.approx(after_boundary.item())
    even = masses(torch.full((60, 1, LENGTH, LENGTH), 1 / LENGTH), marked)
    assert even["next"][0] == even["previous"][0] == pytest.approx(1 / LENGTH)


def test_heads_without_a_role():
    batch = drawn()
    seen = patterns(handmade("previous", "uniform", "first", "self"), batch)
    assert without_role(seen, batch).tolist() == [False, True, False, True]
    # What looks at the right words is not without a role, however little weight goes where.
    gold = arcs(batch, "reference")
    knows = torch.full_like(seen[:, :1], 0.05)
    knows.scatter_(3, gold.end.clamp_min(0)[:, None, :, None], 0.1)
    assert without_role(torch.cat([seen, knows], 1), batch).tolist()[-1] is False


def test_rivals_are_nouns_of_the_same_sentence_that_do_not_fit():
    batch = drawn(200, length=24)
    meant, other = arcs(batch, "reference").end, rivals(batch)
    rows, queries = (other >= 0).nonzero(as_tuple=True)
    assert len(rows) > 40
    assert 0.3 < len(rows) / int((meant >= 0).sum()) < 0.8
    for row, query in zip(rows.tolist(), queries.tolist(), strict=True):
        words = [VOCABULARY[token] for token in batch.inputs[row].tolist()]
        place = int(other[row, query])
        assert place != meant[row, query]
        assert "." not in words[min(place, int(meant[row, query])) : query]
        plural = words[query] == "they"
        same = batch.gold["number"][row, place] == int(plural)
        assert not (same and (plural or words[place] in NOUNS[words[query]]))
    knowing = torch.zeros(200, 24, 24)
    knowing.scatter_(2, meant.clamp_min(0)[..., None], 1.0)
    assert prefers_the_meant(knowing, batch) == 1
    assert prefers_the_meant(1 - knowing, batch) == 0


def other_number(word):
    twin = word[:-1] if word.endswith("s") else word + "s"
    return twin if twin in VOCABULARY else word


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("change", "sign"), [(str, 1), (other_number, -1)])
def test_number_odds_see_the_number_and_nothing_else(monkeypatch, causal, change, sign):
    batch = drawn(100)
    told = batch.targets if causal else batch.inputs
    words = [change(VOCABULARY[token]) for token in told.flatten().tolist()]
    ids = torch.tensor([VOCABULARY.index(word) for word in words]).view_as(told)
    vocab = len(VOCABULARY) + (not causal)
    logits = 5 * torch.nn.functional.one_hot(ids, vocab).float()
    monkeypatch.setattr(relations, "predict", lambda model, batch: logits)
    model = fresh("decoder" if causal else "encoder", 0)
    odds = number_odds(model, batch)
    assert len(odds) == int(arcs(batch, "agreement").farther(2).start.sum())
    right, wrong = np.exp(5) + 19, 20.0  # twenty verbs of either number
    assert odds.numpy() == pytest.approx(sign * np.log(right / wrong))


def test_without_heads_that_do_nothing_everything_stays_and_without_all_it_does_not():
    batch, other = drawn(40), drawn(40, seed=1)
    config = Config(vocab=len(VOCABULARY), d_model=16, n_layers=2, n_heads=4)
    model = make_model(config, causal=True, seed=0).eval()
    whole = number_odds(model, batch)
    assert torch.equal(number_without(model, [], batch, other), whole)
    some = number_without(model, [0, 5], batch, other)
    assert not torch.allclose(some, whole)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.output.weight.zero_()
    silent = number_odds(model, batch)
    torch.testing.assert_close(number_without(model, list(range(8)), batch, other), silent)


def test_exchanged_rows_keep_habits_and_nothing_else():
    batch = drawn(300)
    gold = arcs(batch, "agreement")
    habit = patterns(handmade("previous", "first", "self"), batch).argmax(-1)
    mixed = swapped(habit, gold, torch.Generator().manual_seed(0))
    assert head_scores(mixed, gold) == pytest.approx(head_scores(habit, gold))
    knowing = gold.end[:, None].clamp_min(0)
    assert head_scores(knowing, gold)[0] == 1
    mixed = swapped(knowing, gold, torch.Generator().manual_seed(0))
    assert 0.2 < head_scores(mixed, gold)[0] < 0.8
    for query in range(LENGTH):  # the same ends, in other rows
        rows = gold.start[:, query]
        assert sorted(mixed[rows, 0, query].tolist()) == sorted(knowing[rows, 0, query].tolist())
        assert torch.equal(mixed[~rows, 0, query], knowing[~rows, 0, query])


def test_the_best_of_many_guesses():
    assert best_of(1, share=0.3, count=7) == pytest.approx(0.3)
    assert best_of(2, share=0.5, count=1) == pytest.approx(0.75)
    draws = np.random.default_rng(0).binomial(10, 0.2, (200_000, 16)).max(1).mean() / 10
    assert best_of(16, share=0.2, count=10) == pytest.approx(draws, abs=0.003)


def test_a_word_is_predicted_before_it_or_where_it_is_hidden():
    batch = drawn(20, length=24)
    shown, gold = view("decoder", batch, "far agreement", "predicted")
    assert shown is batch
    far = relation_arcs(batch, "far agreement")
    assert torch.equal(gold.end, far.earlier().end)
    shown, gold = view("encoder", batch, "far agreement", "predicted")
    assert torch.equal(gold.end, far.end)
    verbs = arcs(batch, "agreement").start
    assert (shown.inputs[verbs] == len(VOCABULARY)).all(), "near verbs are hidden as well"
    assert torch.equal(shown.inputs[~verbs], batch.inputs[~verbs])
    assert torch.equal(hidden(batch, "agreement").inputs, shown.inputs)
    for kind in ("decoder", "encoder"):
        same, gold = view(kind, batch, "agreement", "read")
        assert same is batch
        assert torch.equal(gold.end, arcs(batch, "agreement").end)


def test_the_sentence_is_one_of_the_grammar_and_its_arrows_are_right():
    seen = sentence_patterns(fresh("decoder", 0))
    n = len(relations.SENTENCE)
    assert seen.shape == (16, n, n)
    torch.testing.assert_close(seen.sum(-1), torch.ones(16, n))
    words = relations.SENTENCE
    named = {(words[a], words[b]) for pairs in relations.ARROWS.values() for a, b in pairs}
    assert named == {("sees", "queen"), ("waits", "it"), ("it", "robot"), ("old", "queen")}


def test_untrained_heads_do_not_find_far_subjects():
    assert far_subject_scores("decoder", fresh("decoder", 3), 3).max() < 0.5


def test_every_result_is_of_this_code():
    for one in measurements_of("heads_and_grammar").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_results_keep_to_what_is_possible():
    results = load_results("heads_and_grammar")
    learned, found, cuts = results["learned"], results["found"], results["cuts"]
    assert float((learned.loss - learned.floor).min()) > -0.05
    ahead = found.f1.sel(reader="decoder", relation="adjective", by=["head", "untrained"])
    assert float(ahead.max()) == 0
    gone = cuts.odds.sel(removed=16)
    assert float(abs(gone - gone.sel(order="random")).max()) < 1e-6, "all gone, in any order"
    assert results["distances"].share.sum("distance").values == pytest.approx(1.0, abs=0.02)


def test_what_does_not_fit_is_refused(unhooked):
    with pytest.raises(ValueError, match="expected a batch of the grammar and one of"):
        arcs(drawn(), "object")
    with pytest.raises(ValueError, match="an end of -1 where no arc can start"):
        Arcs(torch.tensor([[False]]), torch.tensor([[0]]))


def test_untrained_heads_have_the_shares_of_chance():
    batch = drawn(200)
    config = Config(vocab=len(VOCABULARY), d_model=16, n_layers=1, n_heads=4)
    looked = patterns(make_model(config, causal=True, seed=0), batch).argmax(-1)
    assert np.all(head_scores(looked, arcs(batch, "agreement")) < 0.5)
    assert np.all(head_scores(looked, arcs(batch, "adjective")) == 0)
