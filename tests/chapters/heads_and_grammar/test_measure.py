"""Heads and relations: hand-made heads get exactly the score of their offset; arcs are those of the words."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.handmade import heads_model
from measured_transformer.chapters.heads_and_grammar import measure as relations
from measured_transformer.chapters.heads_and_grammar.measure import (
    NAMES,
    Arcs,
    arcs,
    best,
    boundaries,
    f1,
    head_scores,
    look_at,
    masses,
    number_right,
    number_right_without,
    offset_scores,
    patterns,
    prefers_the_meant,
    rivals,
)
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
    gold = {name: arcs(batch, name) for name in NAMES}
    found = look_at(handmade("previous", "uniform", "first", "self"), batch, gold)
    assert found.no_role(("agreement", "reference")).tolist() == [False, True, False, True]
    assert found.best["agreement"].head == 0
    # What looks at the right words is not without a role, however little weight goes where.
    found.scores["reference"][3] = 0.99
    assert not found.no_role(("agreement", "reference"))[3]


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


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(("change", "right"), [(str, 1), (other_number, 0)])
def test_number_right_sees_the_number_and_nothing_else(monkeypatch, far, change, right):
    batch = drawn(100)
    words = [change(VOCABULARY[token]) for token in batch.targets.flatten().tolist()]
    ids = torch.tensor([VOCABULARY.index(word) for word in words]).view_as(batch.targets)
    logits = 10 * torch.nn.functional.one_hot(ids, len(VOCABULARY)).float()
    monkeypatch.setattr(relations, "predict", lambda model, batch: logits)
    assert number_right(handmade("self"), batch, far=far) == right


def test_without_heads_that_do_nothing_everything_stays_and_without_all_it_does_not():
    batch, other = drawn(40), drawn(40, seed=1)
    config = Config(vocab=len(VOCABULARY), d_model=16, n_layers=2, n_heads=4)
    model = make_model(config, causal=True, seed=0).eval()
    whole = number_right(model, batch, far=False)
    assert number_right_without(model, [], batch, other, far=False) == whole
    with torch.no_grad():
        for block in model.blocks:
            block.attention.output.weight.zero_()
    silent = number_right(model, batch, far=False)
    assert number_right_without(model, list(range(8)), batch, other, far=False) == silent


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
