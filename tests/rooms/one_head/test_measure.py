"""The rules of the case study's table, on models whose heads were written by hand."""

import numpy as np
import pytest
import torch
from measured_book.rooms.one_head.observing import observe
from measured_book.rooms.one_head.table import (
    Attention,
    exchange_error,
    look,
    permute_heads,
    rows,
    study,
)
from measured_transformer.analysis.handmade import (
    Layout,
    attentions,
    empty_model,
    heads_model,
    reversal_model,
)
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.rewriting import ReversalED, ReversalLM
from measured_transformer.tasks.variable_reversal import VariableReversal
from measured_transformer.training.loop import make_model

LENGTH, VOCAB = 8, 6
TABLE = (["next", "self", "same_token", "first"], ["mirror", "several", "uniform", "mirror"])


def generator():
    return torch.Generator().manual_seed(0)


def batch(size=60):
    return Reversal(VOCAB, LENGTH).batch(generator(), size)


def two_layers(first, second):
    """Attentions as `look` gives them, of two models of a layer each."""
    data = batch()
    found = []
    for layer, roles in enumerate((first, second)):
        patterns = []
        for role in roles:
            known = "uniform" if role == "several" else role
            model = heads_model([known], vocab=VOCAB, length=LENGTH)
            own = look(model, data)[0].patterns[:, 0]
            if role == "several":  # evenly the first three
                own = torch.zeros_like(own)
                own[..., :3] = 1 / 3
            if role == "same_token":  # but not itself: see the chapter on why that matters
                tokens = data.inputs
                own = (tokens[:, :, None] == tokens[:, None, :]).double()
                own.diagonal(dim1=1, dim2=2).zero_()
                own = torch.where(own.sum(-1, keepdim=True) > 0, own, torch.ones_like(own))
                own = own / own.sum(-1, keepdim=True)
            patterns.append(own)
        stacked = torch.stack(patterns, 1)
        mirror = LENGTH - 1 - torch.arange(LENGTH)
        observed = observe(stacked, targets={"mirror": mirror})
        found.append(Attention("self", layer, stacked, observed, data.inputs, data.inputs))
    return found


def test_the_whole_table_is_found_where_it_is():
    assert all(rows(two_layers(*TABLE), generator()).values())


@pytest.mark.parametrize(
    ("layer", "head", "instead", "missing"),
    [
        (0, 0, "uniform", {"next and first"}),
        (0, 3, "uniform", {"next and first"}),
        (0, 1, "uniform", {"self"}),
        (0, 2, "uniform", {"content"}),
        (1, 0, "uniform", {"two mirrors"}),
        (1, 1, "uniform", {"several"}),
        (1, 1, "mirror", {"two mirrors", "several"}),
        (1, 2, "self", {"global"}),
    ],
)
def test_each_row_is_missed_when_its_head_is_another(layer, head, instead, missing):
    table = [list(roles) for roles in TABLE]
    table[layer][head] = instead
    found = rows(two_layers(*table), generator())
    assert {row for row, there in found.items() if not there} == missing


def test_layers_are_not_confused():
    found = rows(two_layers(TABLE[1], TABLE[0]), generator())
    assert not found["self"]
    assert not found["two mirrors"]
    assert not found["global"]


def test_thresholds_can_be_moved():
    data = batch()
    mirror = LENGTH - 1 - torch.arange(LENGTH)
    for weight, at in ((0.4, {0.75}), (0.55, {0.75, 1.0}), (0.7, {0.75, 1.0, 1.25})):
        mixed = two_layers(["self"], ["mirror", "mirror", "self", "self"])
        patterns = weight * mixed[1].patterns + (1 - weight) / LENGTH
        observed = observe(patterns, targets={"mirror": mirror})
        given = [mixed[0], Attention("self", 1, patterns, observed, data.inputs, data.inputs)]
        found = {f for f in (0.75, 1.0, 1.25) if rows(given, generator(), factor=f)["two mirrors"]}
        share = weight + (1 - weight) / LENGTH
        assert found == {f for f in (0.75, 1.0, 1.25) if share > 0.5 * f} == at


def test_a_hand_made_reversal_model_looks_at_the_mirror_image():
    (own,) = look(reversal_model(vocab=VOCAB, length=LENGTH), batch())
    assert (own.kind, own.layer) == ("self", 0)
    assert own.table.masses["mirror"][0] == pytest.approx(1)
    assert own.maps.shape == (1, LENGTH, LENGTH)


def test_with_varying_lengths_the_mirror_image_stands_before_the_padding():
    task = VariableReversal(VOCAB, 3, LENGTH)
    data = task.batch(generator(), 40)
    model = make_model(Config(vocab=task.vocab, d_model=16), causal=False, seed=0).eval()
    own = look(model, data)[0]
    lengths = data.scored.sum(1)
    by_hand = np.zeros(own.patterns.shape[1])
    for row, length in enumerate(lengths.tolist()):
        weights = [own.patterns[row, :, q, length - 1 - q] for q in range(length)]
        by_hand += torch.stack(weights).mean(0).double().numpy() / len(lengths)
    assert own.table.masses["mirror"] == pytest.approx(by_hand)
    assert own.observed.groups.tolist() == lengths.tolist()


def test_decoders_are_measured_where_they_write():
    task = ReversalLM(VOCAB, 4)
    data = task.batch(generator(), 30)
    model = make_model(Config(vocab=task.vocab, d_model=16), causal=True, seed=0).eval()
    own = look(model, data)[0]
    # Behind four tokens the separator (position 4) writes the token of position 3, and so on.
    weights = [own.patterns[:, :, 4 + i, 3 - i].mean(0) for i in range(4)]
    assert own.table.masses["mirror"] == pytest.approx(torch.stack(weights).mean(0).numpy())
    targets = data.targets[:, 4:]
    assert torch.equal(targets, data.inputs[:, :4].flip(1))
    assert own.maps.shape == (4, 4, 8)


def test_all_three_attentions_of_an_encoder_decoder_are_seen():
    task = ReversalED(VOCAB, 5)
    data = task.batch(generator(), 30)
    config = Config(vocab=task.vocab, d_model=16, n_layers=2)
    model = make_model(config, causal=True, source=True, seed=0).eval()
    found = look(model, data)
    kinds = [(each.kind, each.layer) for each in found]
    assert kinds == [(k, layer) for layer in (0, 1) for k in ("encoder", "decoder", "cross")]
    assert "mirror" not in found[1].table.masses
    assert torch.equal(found[2].keys, data.source)
    assert torch.equal(found[2].queries, data.inputs)
    cross = found[2].patterns.flip(-1).diagonal(dim1=-2, dim2=-1).mean((0, 2))
    assert found[2].table.masses["mirror"] == pytest.approx(cross.numpy())


def test_a_study_keeps_labels_roles_and_what_is_stable():
    layout = Layout(VOCAB, LENGTH, 1)
    assert len(attentions(empty_model(layout, n_layers=2, n_heads=2, causal=False))) == 2
    config = Config(vocab=VOCAB, d_model=16)
    model = make_model(config, causal=False, seed=0).eval()
    kept = study(model, batch(), generator())
    assert len(kept.labels()) == len(kept.roles()) == 8
    assert kept.statistic("mirror").shape == kept.statistic("entropy").shape == (2, 4)
    assert set(kept.found) == {0.75, 1.0, 1.25}
    assert 0 <= kept.one_class((0.75, 1.25)) <= 1
    assert 0 <= kept.stable <= 1
    one = study(reversal_model(vocab=VOCAB, length=LENGTH), batch(), generator())
    assert (one.roles(), one.labels(), one.stable) == (["mirror"], ["none"], 1)


@pytest.mark.parametrize("seed", range(8))
def test_heads_may_trade_places_when_their_outputs_do(seed):
    assert exchange_error(seed) < 1e-12
    assert exchange_error(seed, exchange_outputs=False) > 1e-2


def test_shared_keys_and_values_forbid_it(unhooked):
    with pytest.raises(ValueError, match="n_kv_heads=1"):
        permute_heads(MultiHeadAttention(8, 2, n_kv_heads=1), torch.tensor([1, 0]))
