"""What the chapter measures on a world of people, against the model that is really changed."""

import dataclasses

import pytest
import torch
from measured_book.rooms.facts import measure as f
from measured_transformer.analysis.fact_edits import answers_after, one_fact
from measured_transformer.models.config import Config
from measured_transformer.tasks.people import People
from measured_transformer.training.loop import predict, train
from measured_transformer.training.schedules import WarmupCosine

TASK = People(people=12, relations=2, cities=4, countries=3, seed=1)


@pytest.fixture(scope="module")
def model():
    config = Config(
        vocab=TASK.vocab, d_model=16, n_layers=2, n_heads=2, positions="learned",
        max_length=TASK.length, activation="relu",
    )  # fmt: skip
    schedule = WarmupCosine(warmup=10, steps=150)
    run = train(
        config, TASK, seed=0, steps=150, learning_rate=0.02, batch_size=64, schedule=schedule
    )
    return run.model


def test_all_facts_of_three_tokens_are_known_with_their_answers(model):
    known = f.known_facts(model, TASK)
    assert len(known.tokens) == len(known.answers) == 12 * 4
    assert known.plain == 24
    with torch.no_grad():
        right = model(known.tokens)[:, -1].argmax(-1) == known.answers
    assert right.double().mean() > 0.9
    for question, rows in (("plain", slice(0, 24)), ("city", slice(24, 36))):
        assert torch.equal(f.answered_right(model, TASK, question), right[rows])


def test_facts_are_grouped_by_what_they_share(model):
    known = f.known_facts(model, TASK)
    groups = known.groups(3)
    assert {name: int(rows.sum()) for name, rows in groups.items()} == {
        "same subject": 3, "same relation": 11, "neither": 33,
    }  # fmt: skip
    assert not any(rows[3] for rows in groups.values())


def test_moments_leave_out_what_comes_behind_the_last_answer(model):
    batch, width = TASK.training(), model.config.neurons
    from measured_transformer.internals.capture import capture

    with capture(model, "blocks.1.feedforward.neurons") as seen, torch.no_grad():
        predict(model, batch)
    total = torch.zeros(width, width, dtype=torch.float64)
    for row, scored in zip(seen["blocks.1.feedforward.neurons"], batch.scored, strict=True):
        keys = row[: int(scored.nonzero().max()) + 1].double()
        total += keys.T @ keys
    found = f.all_moments(model, TASK)[1]
    off = ~torch.eye(width, dtype=torch.bool)
    assert torch.allclose(found[off], total[off], rtol=1e-4, atol=1e-4)


def test_new_objects_are_other_objects():
    answers = torch.arange(TASK.object, TASK.object + TASK.objects)
    found = f.other_object(TASK, answers, 0)
    assert (found != answers).all()
    assert found.min() >= TASK.object
    assert found.max() < TASK.object + TASK.objects


def test_facts_are_drawn_among_those_that_are_known(model):
    known = f.known_facts(model, TASK)
    right = f.answered_right(model, TASK, "plain")
    found = f.drawn_facts(model, TASK, known, 8, 0)
    assert right[found].all()
    assert len(set(found.tolist())) == 8
    with pytest.raises(ValueError, match="expected 1000 plain facts"):
        f.drawn_facts(model, TASK, known, 1000, 0)


def test_a_changed_copy_answers_as_computed_and_the_model_stays(model):
    known = f.known_facts(model, TASK)
    before = model.blocks[1].feedforward.down.weight.clone()
    keys = known.inside.neurons[1, 0, 2]
    change = one_fact(keys, torch.ones(16), f.all_moments(model, TASK)[1])
    other = f.weights_changed(model, change, 1)
    with torch.no_grad():
        expected = other(known.tokens)[:, -1].argmax(-1)
    assert torch.equal(answers_after(model, known.inside, change, 1), expected)
    assert torch.equal(model.blocks[1].feedforward.down.weight, before)


def test_cities_are_taken_in_another_country():
    world, draws = TASK.world(), torch.Generator().manual_seed(0)
    for person in range(12):
        city = f._elsewhere(TASK, person, draws)
        assert world.country[city] != world.country[world.city[person]]
        assert f._stranger(torch.arange(12), person, draws) != person


def test_models_that_are_compared_have_as_many_parameters():
    sizes = {name: f._parameters(name) for name in f.ARMS}
    assert abs(sizes["attention"] / sizes["four"] - 1) < 0.02
    assert sizes["neither"] < sizes["once"] < sizes["four"]


def test_a_world_belongs_to_its_seed():
    assert f.world_of(3) == dataclasses.replace(f.PEOPLE, seed=3)
    jobs = f.four_blocks(3)
    assert jobs["model"].task == f.world_of(3)
    assert jobs["model"].seed == 3
