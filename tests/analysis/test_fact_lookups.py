"""Facts in one block: against networks written by hand, interventions in the model, and least squares."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis import fact_counts as counts
from measured_transformer.analysis import fact_lookups as f
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.facts import Facts
from measured_transformer.training.loop import make_model, predict, train

TABLE = Facts(count=20, subjects=8, relations=6, objects=5, seed=1)


@pytest.fixture(scope="module")
def trained() -> Decoder:
    config = Config(
        vocab=TABLE.vocab, d_model=8, n_layers=1, n_heads=2, d_ff=12, positions="none", activation="relu"
    )  # fmt: skip
    run = train(config, TABLE, seed=0, learning_rate=0.03, **counts.whole_table(20, 200))
    assert counts.recall(run.model, TABLE) == 1
    # float64, and norms that do something, so that nothing is right by accident
    model = run.model.double()
    with torch.no_grad():
        for number, norm in enumerate((model.blocks[0].feedforward_norm, model.final_norm)):
            generator = torch.Generator().manual_seed(number)
            norm.weight.mul_(0.9 + 0.2 * torch.rand(8, generator=generator, dtype=torch.float64))
    return model


# --- by hand --------------------------------------------------------------------------------------


def test_the_network_by_hand_knows_its_facts_and_nothing_else():
    model = f.slots_model(TABLE)
    assert counts.recall(model, TABLE) == 1
    seen = f.lookups(model, TABLE)
    assert torch.equal(seen.neurons, torch.eye(20, dtype=torch.float64)), "one neuron a fact"
    whole = Facts(count=48, subjects=8, relations=6, objects=5, seed=1)
    with capture(model, "*.neurons") as elsewhere:
        logits = predict(model, whole.facts())
    assert elsewhere["blocks.0.feedforward.neurons"][20:, -1].abs().max() == 0
    assert logits[20:, -1].abs().max() == 0, "of a pair that is not in the table it says nothing"


def test_silencing_the_one_neuron_of_a_fact_takes_this_fact_alone():
    model = f.slots_model(TABLE)
    leads = f.leads(model, TABLE)
    own = f.strongest_neurons(leads, 1)
    assert torch.equal(own, torch.eye(20).bool())
    found = f.silencing(model, TABLE, own)
    assert (found.own, found.others, found.before) == (0, 1, 1)
    assert (found.subject, found.relation) == (1, 1)
    elsewhere = f.silencing(model, TABLE, own.roll(1, 1))
    assert elsewhere.own == 1


def test_every_edit_of_the_network_by_hand_changes_one_fact_alone():
    model = f.slots_model(TABLE)
    for how in ("least", "plain", "value"):
        found = f.overwrite(model, TABLE, how=how, number=20, seed=0, ridge=1e-9)
        assert found.done.all()
        assert (found.foretold == 1).all()
        assert torch.equal(found.changed, torch.eye(20).bool()[found.facts])
        assert torch.allclose(found.spill, torch.eye(20).double()[found.facts], atol=1e-12)
        assert set(found.lost(TABLE).values()) == {0.0}


# --- what is read and written ---------------------------------------------------------------------


def test_leads_add_up_to_the_lead_of_the_right_object(trained):
    seen, network = f.lookups(trained, TABLE), trained.blocks[0].feedforward
    with torch.no_grad():
        logits = predict(trained, TABLE.facts())[:, -1]
        lead = logits.gather(1, seen.answers[:, None])[:, 0] - logits[:, 14:].mean(1)
        rows = trained.unembedding.weight
        towards = rows[seen.answers] - rows[14:].mean(0)
        # what the stream and the biases add without any neuron, through the norm of the whole
        scale = (seen.after.var(1, unbiased=False) + 1e-5).sqrt()
        rest = seen.before + network.down.bias
        rest = (rest - rest.mean(1, keepdim=True)) / scale[:, None] * trained.final_norm.weight
        beside = ((rest + trained.final_norm.bias) * towards).sum(1)
    assert torch.allclose(f.leads(trained, TABLE).sum(1) + beside, lead, atol=1e-9)


def test_silencing_is_what_an_intervention_in_the_model_does(trained):
    chosen = torch.rand(6, 12, generator=torch.Generator().manual_seed(0)) < 0.4
    found = f.answered_without(trained, TABLE, chosen)
    for row, off in enumerate(chosen):
        with intervene(trained, {"*.neurons": lambda value, off=off: value * ~off}):
            assert torch.equal(found[row], counts.recalled(trained, TABLE))
    assert f.answered_without(trained, TABLE, torch.zeros(1, 12).bool()).all()
    assert not found.all()
    with pytest.raises(ValueError, match="expected 12 neurons"):
        f.answered_without(trained, TABLE, chosen[:, :5])


def test_own_and_others_are_told_apart_by_loops(trained):
    chosen = f.strongest_neurons(f.leads(trained, TABLE), 3)
    found = f.silencing(trained, TABLE, chosen)
    right, table = f.answered_without(trained, TABLE, chosen), TABLE.table().tolist()
    cells = {"own": [], "others": [], "subject": [], "relation": []}
    for i, one in enumerate(table):
        for j, other in enumerate(table):
            value = float(right[i, j])
            cells["own" if i == j else "others"].append(value)
            if i != j and one[0] == other[0]:
                cells["subject"].append(value)
            if i != j and one[1] == other[1]:
                cells["relation"].append(value)
    for name, values in cells.items():
        assert getattr(found, name) == pytest.approx(np.mean(values))
    assert found.own < found.others
    with pytest.raises(ValueError, match="each of 20 facts"):
        f.silencing(trained, TABLE, chosen[:3])


def test_random_neurons_are_active_ones_as_long_as_there_are_any():
    neurons = torch.tensor([[0.0, 1.0, 2.0, 0.0, 3.0]]).expand(50, 5)
    drawn = f.random_active(neurons, 2, seed=0)
    assert (drawn.sum(1) == 2).all()
    assert not drawn[:, [0, 3]].any()
    assert len({tuple(row) for row in drawn.tolist()}) == 3
    four = f.random_active(neurons, 4, seed=0)
    assert four[:, [1, 2, 4]].all()
    with pytest.raises(ValueError, match="from 0 to 5"):
        f.strongest_neurons(neurons, 6)


# --- overwriting ----------------------------------------------------------------------------------


def test_the_least_reader_is_the_constrained_minimum():
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(30, 7, generator=generator, dtype=torch.float64).relu()
    key = keys[4]
    found = f.reader(key, keys, "least", ridge=0.0)
    others = torch.cat([keys[:4], keys[5:]])

    def cost(r):
        return float((others @ r).square().sum())

    assert found @ key == pytest.approx(1)
    for seed in range(20):
        step = torch.randn(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        step = step - (step @ key) / (key @ key) * key  # keeps the product with the key
        assert cost(found + 1e-3 * step) > cost(found)
    assert torch.allclose(found, f.reader(key, others, "least", ridge=0.0)), (
        "its own key is neutral"
    )
    for how in ("plain", "value"):
        other = f.reader(key, keys, how)
        assert other @ key == pytest.approx(1)
        assert cost(other) > cost(found)
    assert (f.reader(key, keys, "value") != 0).sum() == 1
    short = f.reader(key, keys, "plain")
    assert short.norm() <= found.norm()


def test_dead_neurons_do_no_harm_and_silent_facts_are_refused():
    keys = torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = f.reader(keys[0], keys)
    assert torch.isfinite(found).all()
    assert found @ keys[0] == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="with an active neuron"):
        f.reader(torch.zeros(3), keys)


def test_another_kind_of_edit_is_refused(unhooked):
    with pytest.raises(ValueError, match="how must be one of least, plain, value"):
        f.reader(torch.ones(3), torch.ones(2, 3), "most")


def test_an_edit_writes_into_a_copy_and_does_what_it_says(trained):
    seen = f.lookups(trained, TABLE)
    before = {name: p.clone() for name, p in trained.named_parameters()}
    read = f.reader(seen.neurons[3], seen.neurons)
    change = torch.arange(8.0, dtype=torch.float64)
    other = f.edited(trained, read, change)
    assert all(torch.equal(p, before[name]) for name, p in trained.named_parameters())
    moved = f.lookups(other, TABLE).after - seen.after
    assert torch.allclose(moved, (seen.neurons @ read)[:, None] * change, atol=1e-9)
    assert torch.allclose(moved[3], change, atol=1e-6)
    changed = [n for n, p in other.named_parameters() if not torch.equal(p, before[n])]
    assert changed == ["blocks.0.feedforward.down.weight"]


def test_what_is_foretold_comes_true_and_a_wrong_forecast_would_not(trained, monkeypatch):
    found = f.overwrite(trained, TABLE, how="plain", number=10, seed=0)
    assert (found.foretold == 1).all()
    assert found.surprise.max() < 1e-9
    assert found.changed[range(10), found.facts].all()
    assert found.done.all()
    lost = found.lost(TABLE)
    pairs = [(row, j) for row, i in enumerate(found.facts.tolist()) for j in range(20) if j != i]
    assert lost["others"] == pytest.approx(np.mean([float(found.changed[p]) for p in pairs]))
    again = f.overwrite(trained, TABLE, how="plain", number=10, seed=0)
    assert torch.equal(again.changed, found.changed)
    real = f.edited
    monkeypatch.setattr(f, "edited", lambda model, read, change: real(model, read, -change))
    assert (f.overwrite(trained, TABLE, how="plain", number=10, seed=0).foretold < 1).all()


def test_facts_are_given_objects_that_the_table_has(trained):
    seen = f.lookups(trained, TABLE)
    wanted = int(seen.answers[0])
    rows = [i for i in range(20) if int(seen.answers[i]) == wanted]
    found = f.change_for(seen, 5, wanted)
    assert torch.allclose(seen.after[5] + found, seen.after[rows].mean(0))
    with pytest.raises(ValueError, match="some fact has"):
        f.change_for(seen, 5, 0)
    strange = Facts(count=40, subjects=8, relations=6, objects=5, seed=9)
    with pytest.raises(ValueError, match="knows 40 facts"):
        f.overwrite(trained, strange, how="plain", number=40, seed=0)


def test_models_of_another_kind_are_refused():
    config = Config(vocab=19, d_model=8, n_heads=2, n_layers=2, positions="none")
    for other, words in (
        (config, "2 blocks"),
        (config.replace(n_layers=1, placement="post"), "placement='post'"),
        (config.replace(n_layers=1, activation="swiglu"), "without a gate"),
    ):
        with pytest.raises(ValueError, match=words):
            f.lookups(make_model(other, causal=True, seed=0), TABLE)
