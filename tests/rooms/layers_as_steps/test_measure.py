"""Lenses, edits of the order of blocks and measures of contribution, on models whose inside is known."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from measured_book.evidence.declarations import parse_values
from measured_book.evidence.expressions import Scope
from measured_book.evidence.results import load_results
from measured_book.rooms.layers_as_steps import measure, reading
from measured_book.rooms.layers_as_steps.measure import (
    common_shares,
    contributions,
    direct_attribution,
    edit_costs,
    exchanged,
    layer_cosines,
    length_shares,
    logit_account,
    rank_correlation,
    rearranged,
    repairs,
    repeated,
    share_of_pairs,
    skipped,
    suppression,
)
from measured_book.rooms.without_skips.measure import deleted
from measured_transformer.analysis.handmade import composed_model, heads_model, reversal_model
from measured_transformer.analysis.lens import (
    fit_tuned_lens,
    largest_rise,
    logit_lens,
    probe_accuracies,
    rise_chosen_apart,
)
from measured_transformer.analysis.residual import ledger, random_model
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import make_model
from torch import nn
from xarray import Dataset

RESULTS = load_results("layers_as_steps")
INDUCTION = Induction(vocab=8, length=12, shortest=3, longest=4)
SAID = math.log(7 + math.e) - 1
"""The loss of a hand-made model that raises the right one of eight logits by one."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_batch(tokens: torch.Tensor, seed: int = 0) -> Batch:
    targets = torch.randint(11, tokens.shape, generator=generator(seed))
    scored = torch.rand(tokens.shape, generator=generator(seed + 1)) < 0.7
    scored[0, 0] = True
    return Batch(tokens, targets, scored)


# Reading early --------------------------------------------------------------------------------------


def test_the_logit_lens_reads_nothing_before_the_work_is_done_and_all_after_it():
    model = composed_model("k", vocab=8, length=12)
    found = logit_lens(model, INDUCTION.batch(generator(), 40))
    assert found.loss[:2] == pytest.approx(math.log(8))
    assert found.loss[2] == pytest.approx(SAID)
    assert found.accuracy[2] == 1


def test_the_last_reading_is_the_models_own():
    model, tokens = random_model(5, causal=True, n_layers=3)
    batch = random_batch(tokens)
    logits = model(tokens)[batch.scored]
    own = torch.nn.functional.cross_entropy(logits, batch.targets[batch.scored])
    found = logit_lens(model, batch)
    assert found.loss.shape == (4,)
    assert found.loss[-1] == pytest.approx(own.item())
    right = (logits.argmax(-1) == batch.targets[batch.scored]).double().mean()
    assert found.accuracy[-1] == pytest.approx(right.item())
    assert abs(found.loss[1] - own.item()) > 1e-4


def test_a_tuned_lens_translates_what_the_logit_lens_cannot_read():
    # The block copies the token from one part of the stream to the part that is read: before it, the token
    # is there, in the wrong place.
    model = heads_model(["self"], vocab=5, length=4)
    inputs = torch.randint(5, (60, 4), generator=generator())
    fit, other = (
        Batch(x, x, torch.ones_like(x, dtype=torch.bool)) for x in (inputs[:40], inputs[40:])
    )
    assert logit_lens(model, other).accuracy[0] < 0.5
    tuned = fit_tuned_lens(model, fit, seed=0, size=160, rate=0.5)
    assert tuned.read(model, other).accuracy[0] == 1
    assert tuned.gap[1][0] < 0.01 < tuned.gap[0][0]
    assert not tuned.weight[-1].any()
    assert tuned.read(model, other).loss[-1] == pytest.approx(logit_lens(model, other).loss[-1])


def test_a_tuned_lens_cannot_read_what_is_not_there_and_leaves_the_model_alone():
    model = reversal_model(vocab=5, length=4)
    batch = Reversal(5, 4).batch(generator(), 200)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tuned = fit_tuned_lens(model, batch, seed=0, steps=100, rate=0.1)
    other = Reversal(5, 4).batch(generator(1), 200)
    assert tuned.read(model, other).accuracy[0] < 0.4  # one in five, and a little luck
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"size": 0}, {"rate": 0.0}])
def test_a_fit_needs_positive_numbers(wrong):
    model = reversal_model(vocab=5, length=4)
    with pytest.raises(ValueError, match="positive"):
        fit_tuned_lens(model, Reversal(5, 4).batch(generator(), 4), seed=0, **wrong)


def test_the_largest_rise_and_the_one_chosen_apart():
    losses = np.array([[3.0, 2.0, 2.5, 1.0], [3.0, 2.0, 1.5, 1.0]])
    assert largest_rise(losses).tolist() == [0.5, -0.5]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 4000, 6))
    assert largest_rise(noise[0]).mean() > 1  # of noise around nothing: it finds a rise always
    assert abs(rise_chosen_apart(*noise).mean()) < 0.1


def test_probes_read_what_a_linear_map_can_read_and_no_more():
    labels = torch.randint(3, (80, 6), generator=generator())
    line = labels[..., None].float() + 0.1 * torch.randn(80, 6, 1, generator=generator(1))
    noise = torch.randn(80, 6, 3, generator=generator(2))
    states = torch.stack([torch.cat([line, noise[..., :2]], -1), noise])
    fitted = torch.arange(80) < 40
    found = probe_accuracies(states, labels, fitted, n_labels=3)
    assert found[0] > 0.98  # the middle label lies between the others: least squares would miss it
    assert 0.2 < found[1] < 0.47


def test_probes_are_scored_on_sequences_that_they_were_not_fitted_on():
    states = torch.randn(1, 8, 3, 64, generator=generator())  # more entries than examples
    labels = torch.randint(2, (8, 3), generator=generator(3))
    found = probe_accuracies(states, labels, torch.arange(8) < 4, n_labels=2)
    assert found[0] < 0.9
    with pytest.raises(ValueError, match="others to be scored"):
        probe_accuracies(states, labels, torch.ones(8, dtype=torch.bool), n_labels=2)
    with pytest.raises(ValueError, match="labels from 0 to 0"):
        probe_accuracies(states, labels, torch.arange(8) < 4, n_labels=1)


# Another order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 2, 1], [2, 0], [0, 1, 1, 2], [1], []])
def test_another_order_is_the_model_built_in_that_order(order):
    model, tokens = random_model(4, n_layers=3)
    built = make_model(
        model.config.replace(n_layers=max(1, len(order))), causal=False, seed=0
    ).double()
    own = {k: v for k, v in model.state_dict().items() if not k.startswith("blocks.")}
    for new, old in enumerate(order):
        block = model.blocks[old].state_dict()
        own |= {f"blocks.{new}.{name}": value for name, value in block.items()}
    built.load_state_dict(own, strict=bool(order))
    expected = built.eval()(tokens) if order else model.unembed(ledger(model, tokens).states[0])
    whole = model(tokens)
    with rearranged(model, order):
        assert torch.equal(model(tokens), expected)
    assert torch.equal(model(tokens), whole)
    assert not torch.allclose(expected, whole)


def test_the_order_comes_back_after_an_error():
    model, tokens = random_model(4, n_layers=3)
    whole = model(tokens)
    with pytest.raises(RuntimeError, match="on the way"), rearranged(model, [2]):
        raise RuntimeError("on the way")
    assert torch.equal(model(tokens), whole)
    with pytest.raises(ValueError, match="from 0 to 2, got \\[3\\]"), rearranged(model, [0, 3]):
        pass


def test_a_skipped_layer_is_one_whose_branches_are_cut():
    model, tokens = random_model(7, n_layers=3)
    batch = random_batch(tokens)
    with (
        deleted(model, "blocks.1.attention", "branch"),
        deleted(model, "blocks.1.feedforward", "branch"),
    ):
        cut = logit_lens(model, batch).loss[-1]
    whole = logit_lens(model, batch).loss[-1]
    assert edit_costs(model, batch)["skip"][1] == pytest.approx(cut - whole)


def test_edits_of_a_relay_cost_and_edits_of_idle_layers_do_not():
    relay = composed_model("k", vocab=8, length=12)  # block 2 reads what block 1 has written
    batch = INDUCTION.batch(generator(), 40)
    costs = edit_costs(relay, batch)
    assert (costs["skip"] > 0.5).all()
    assert costs["swap"][0] > 0.5
    assert np.isnan(costs["swap"][1])
    idle, tokens = random_model(2, n_layers=3)
    with torch.no_grad():
        for name, parameter in idle.named_parameters():
            if "attention.output" in name or "feedforward.down" in name:
                parameter.zero_()
    for cost in edit_costs(idle, random_batch(tokens)).values():
        assert np.nanmax(np.abs(cost)) == 0


def test_orders():
    assert skipped(3, 0) == [1, 2]
    assert repeated(3, 2) == [0, 1, 2, 2]
    assert exchanged(4, 1, 3) == [0, 3, 2, 1]


# Contributions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_parts_of_the_right_logit_add_up(norm, causal):
    for seed in range(5):
        model, tokens = random_model(seed, norm=norm, causal=causal)
        batch = random_batch(tokens, seed)
        parts = logit_account(model, batch).margin()
        assert parts.shape == (2 * model.config.n_layers + 2,)
        assert parts.sum() == pytest.approx(margin(model, batch), abs=1e-9)
        assert abs(parts[1]) > 1e-6
        assert np.array_equal(direct_attribution(model, batch), parts[1:-1])


def margin(model, batch: Batch) -> float:
    """The right answer's logit less the mean logit, by the model's own output."""
    with torch.no_grad():
        logits = model(batch.inputs)[batch.scored]
    answer = logits.gather(1, batch.targets[batch.scored][:, None])[:, 0]
    return (answer - logits.mean(-1)).mean().item()


def test_logits_come_apart_only_where_writes_do():
    model, tokens = random_model(0, placement="post")
    with pytest.raises(ValueError, match="post"):
        logit_account(model, random_batch(tokens))
    model, tokens = random_model(0, head="none")
    with pytest.raises(ValueError, match="linear"):
        logit_account(model, random_batch(tokens))


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_self_repair_adds_up_to_what_the_output_shows(norm):
    model, tokens = random_model(3, norm=norm, causal=True, n_layers=2)
    batch = random_batch(tokens)
    reference = random_batch(tokens.flip(0, 1), 5)
    found = repairs(model, batch, reference)
    assert found["total"] == pytest.approx(found["direct"] + found["later"] + found["norm"])
    means = ledger(model, reference.inputs).writes.mean(1)
    for place, name in enumerate(ledger(model, tokens).names):
        mean = means[place]
        with measure.ablated(
            model, [measure.Component(f"{name}.out")], "mean", reference=reference
        ):
            with capture(model, f"{name}.out") as seen:
                changed = margin(model, batch)
            assert torch.allclose(seen[f"{name}.out"], mean.expand_as(seen[f"{name}.out"]))
        assert found["total"][place] == pytest.approx(changed - margin(model, batch))
    assert found["later"][-1] == 0  # nothing comes after the last network
    assert np.abs(found["later"][:-1]).min() > 1e-6


def test_without_a_norm_nothing_is_given_back_by_it():
    model, tokens = random_model(1, norm="none", n_layers=2)
    found = repairs(model, random_batch(tokens), random_batch(tokens.flip(0, 1)))
    assert np.abs(found["norm"]).max() < 1e-9
    assert np.abs(found["direct"]).max() > 1e-3


def test_a_hand_made_head_that_lowers_what_has_been_is_told_from_one_that_raises_it():
    config = Config(vocab=5, d_model=8, n_layers=1, n_heads=2, positions="none", norm="rms")
    model = make_model(config, causal=True, seed=0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        pick = torch.eye(8, dtype=torch.float64)[:5]
        model.token_embedding.weight.copy_(pick)
        model.unembedding.weight.copy_(pick)
        for module in model.modules():
            if type(module).__name__ == "RMSNorm":
                module.weight.fill_(1.0)
        attention = model.blocks[0].attention
        # Even attention; values are tokens of which each head has room for four.
        for head, sign in enumerate((-1.0, 1.0)):
            rows = slice(4 * head, 4 * head + 4)
            attention.value.weight[rows, :4] = torch.eye(4, dtype=torch.float64)
            attention.output.weight[:4, rows] = sign * torch.eye(4, dtype=torch.float64)
    tokens = torch.randint(4, (6, 7), generator=generator())
    batch = Batch(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))
    found = suppression(model, batch)
    assert found["effect"][0] < -0.1
    assert found["effect"][1] == pytest.approx(-found["effect"][0])
    assert found["aim"] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="causal"):
        suppression(make_model(config, causal=False, seed=0), batch)


def test_contributions_of_a_relay_are_what_its_construction_says():
    model = composed_model("k", vocab=8, length=12)
    found = contributions(
        model, INDUCTION.batch(generator(), 40), INDUCTION.batch(generator(1), 40)
    )
    first, network, second, last = range(4)
    assert found["length"][[network, last]].tolist() == [0, 0]
    assert found["length"].sum() == pytest.approx(1)
    # The first speaks to block 2, not to the unembedding.
    assert found["attribution"][first] == pytest.approx(0)
    assert found["attribution"][second] == pytest.approx(1 - 1 / 8)
    for rise in (found["zero"], found["mean"]):
        assert (rise[[first, second]] > 0.5).all()
        assert np.abs(rise[[network, last]]).max() < 1e-9


def test_cosines_of_blocks_are_those_of_their_writes_raw_and_centred():
    model, tokens = random_model(3, n_layers=3)
    account = ledger(model, tokens)
    raw, centred = layer_cosines(account, centred=False), layer_cosines(account)
    writes = account.writes[::2] + account.writes[1::2]
    means = writes.mean((1, 2))
    for i in range(3):
        for j in range(3):
            each = torch.cosine_similarity(writes[i], writes[j], dim=-1)
            assert raw[i, j] == pytest.approx(each.mean().item())
            each = torch.cosine_similarity(writes[i] - means[i], writes[j] - means[j], dim=-1)
            assert centred[i, j] == pytest.approx(each.mean().item())
    assert np.abs(raw - centred).max() > 0.01
    common = means.square().sum(-1) / writes.square().sum(-1).mean((1, 2))
    assert common_shares(account) == pytest.approx(common.numpy())
    assert length_shares(account)[0] == pytest.approx(
        (
            account.writes[0].norm(dim=-1).mean() / account.writes.norm(dim=-1).mean((1, 2)).sum()
        ).item()
    )


def test_a_share_of_pairs_counts_each_pair_once():
    cosines = np.array([[1.0, -0.5, 0.2], [-0.5, 1.0, -0.05], [0.2, -0.05, 1.0]])
    assert share_of_pairs(cosines) == pytest.approx(2 / 3)
    assert share_of_pairs(cosines, below=-0.1) == pytest.approx(1 / 3)


def test_ranks_need_numbers_that_differ():
    assert rank_correlation(np.arange(4.0), -(np.arange(4.0) ** 3)) == pytest.approx(-1)
    with pytest.raises(ValueError, match="at least two"):
        rank_correlation(np.arange(3.0), np.arange(4.0))
    with pytest.raises(ValueError, match="the same"):
        rank_correlation(np.ones(3), np.arange(3.0))


def test_a_decoder_can_be_edited_too():
    model, tokens = random_model(1, causal=True, n_layers=2)
    assert isinstance(model, Decoder)
    batch = random_batch(tokens)
    other = copy.deepcopy(model)
    other.blocks = nn.ModuleList([other.blocks[1], other.blocks[0]])

    def loss(one):
        logits = one(batch.inputs)[batch.scored]
        return float(nn.functional.cross_entropy(logits, batch.targets[batch.scored]))

    cost = loss(other) - loss(model)
    assert edit_costs(model, batch)["swap"][0] == pytest.approx(cost, abs=1e-6)
    assert abs(cost) > 1e-3  # or the test would show nothing


# What was measured ----------------------------------------------------------------------------------


def test_no_tuned_learning_rate_of_the_chapter_stands_at_the_edge_of_its_grid():
    rates = [job.settings["learning_rate"] for job in measure.six_trainings(0).values()]
    for rate in rates:
        assert measure.SMALL_RATES[0] < rate < measure.SMALL_RATES[-1]
    assert 1e-3 < measure.raffle_job(0).settings["learning_rate"] < 3.2e-2


def test_what_was_measured_adds_up():
    twelve = RESULTS["twelve"]
    parts = twelve.direct + twelve.later + twelve.norm
    assert np.allclose(parts, twelve.total, atol=1e-4)
    assert np.allclose(twelve.raw, twelve.raw.transpose(*twelve.raw.dims[:-2], "other", "block"))
    assert float(twelve.accuracy.sel(task="shell").min()) > 0.9


def test_surplus_blocks_are_those_that_are_missed_least():
    six = RESULTS["six"].isel(seed=0).sel(task="reversal", arm="plain")
    least = np.argsort(six.skip.values)[:4]
    found = reading.surplus_ratio(RESULTS["six"]).isel(seed=0).sel(task="reversal", arm="plain")
    assert float(found) == pytest.approx(six.ratio.values[least].mean())


def declared(name, **results):
    """A value that the room declares, of other results."""
    path = Path(measure.__file__).with_name("claims.toml")
    written = parse_values(path.read_text("utf-8"), path.name)
    return Scope(results, {name: one.text for name, one in written.items()}).evaluate(name)


def test_only_rises_that_another_sample_has_as_well_count_as_worse():
    def worsened(chosen):
        read = [[chosen, [3.0, 2.0, 2.25, 1.0, 0.9]]]
        axes, samples = ("seed", "sample", "state"), {"sample": list(measure.SAMPLES)}
        return declared("worsened", readings=Dataset({"read": (axes, read)}, coords=samples)).values

    assert worsened([3.0, 2.0, 2.5, 1.0, 1.1]) == pytest.approx([0.25 - 0.1])
    assert worsened([3.0, 2.0, 1.0, 0.5, 0.4]).tolist() == [0.0]


def test_a_sublayer_is_made_up_for_where_others_say_more():
    """Of four beyond the first block one is repaired, one helps nobody, one is small, one hardly repaired."""
    direct = [[[-9.0, -9.0, -1.0, -1.0, -0.01, -0.2]]]
    later = [[[9.0, 9.0, 0.5, -0.5, 0.5, 0.001]]]
    axes = ("seed", "task", "sublayer")
    twelve = Dataset(
        {"direct": (axes, direct), "later": (axes, later)}, coords={"sublayer": range(6)}
    )
    assert declared("rerouted", twelve=twelve).values.tolist() == [[0.25]]


def test_climbs_are_those_of_a_straight_line():
    rows = np.stack([np.linspace(1, 3, 12), np.linspace(2, 1, 12)])[None]
    coords = {"kind": list(measure.TRAINED_ON), "block": list(measure.BLOCKS)}
    sentences = Dataset({"distance": (("seed", "kind", "block"), rows)}, coords=coords)
    found = declared("climbs", sentences=sentences)
    assert found.values == pytest.approx(np.array([[2.0, -1.0]]))
