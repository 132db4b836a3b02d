"""Sweeps: what begins at a block gives what whole runs give."""

from __future__ import annotations

import pytest
import torch
from measured_book.smollm2 import sweeps
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.tasks.task import Batch
from small_smollm2 import needs_smollm2, small_model
from torch.nn import functional as F

TOKENS = torch.randint(60, (3, 7), generator=torch.Generator().manual_seed(1))
KINDS = {
    "smollm2": {},
    "gpt2": {"positions": "learned", "norm": "layer", "activation": "gelu", "bias": True},
    "neox": {"parallel": True, "n_kv_heads": 6, "rotary_share": 0.5, "tie_embeddings": False},
    "alibi": {"positions": "alibi"},
}


@pytest.fixture(params=KINDS)
def model(request):
    return small_model(**KINDS[request.param])


def whole_losses(model):
    logits = model(TOKENS)[:, :-1].flatten(0, 1)
    return F.cross_entropy(logits, TOKENS[:, 1:].flatten(), reduction="none").view(3, -1)


def test_the_states_are_those_of_a_whole_run(model):
    sweep = sweeps.begin(TOKENS, model=model)
    with capture(model, "*.residual_pre", "*.residual_post") as seen:
        logits = model(TOKENS)
    for block in range(4):
        torch.testing.assert_close(sweep.states[block], seen[f"blocks.{block}.residual_pre"])
        torch.testing.assert_close(sweep.onward(block), seen["blocks.3.residual_post"])
    torch.testing.assert_close(sweep.onward(1, until=3), sweep.states[3])
    torch.testing.assert_close(sweep.onward(4), sweep.states[4])
    torch.testing.assert_close(sweep.losses(chunk=4), whole_losses(model))
    torch.testing.assert_close(sweep.last_logits(), logits[:, -1])
    torch.testing.assert_close(sweep.last_logits(position=2), logits[:, 2])


def test_a_block_left_out_costs_what_a_whole_run_without_it_does(model):
    sweep = sweeps.begin(TOKENS, model=model)
    entered = []
    changes = {
        "blocks.1.residual_pre": lambda x: entered.append(x) or x,
        "blocks.1.residual_post": lambda _: entered[0],
    }
    with intervene(model, changes):
        wanted = whole_losses(model)
    torch.testing.assert_close(sweep.losses(sweep.onward(2, sweep.states[1])), wanted)


def test_states_may_stand_there_several_times(model):
    sweep = sweeps.begin(TOKENS, model=model)
    twice = sweep.onward(1, torch.cat((sweep.states[1], 2 * sweep.states[1])))
    torch.testing.assert_close(twice[:3], sweep.states[4])
    torch.testing.assert_close(twice[3:], sweep.onward(1, 2 * sweep.states[1]))
    assert sweep.losses(twice).shape == (6, 6)
    with pytest.raises(ValueError, match="a multiple of 3 texts, got 4"):
        sweep.onward(1, sweep.states[1][[0, 1, 2, 0]])


def test_positions_may_be_others_in_each_text():
    model = small_model()
    places = torch.arange(7) + torch.tensor([[0], [5], [40]])
    sweep = sweeps.begin(TOKENS, model=model, positions=places)
    wanted = model.stream(TOKENS, positions=places)
    torch.testing.assert_close(sweep.states[4], wanted)
    twice = sweep.onward(2, sweep.states[2].repeat(2, 1, 1))
    torch.testing.assert_close(twice, wanted.repeat(2, 1, 1))


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_heads_are_taken_away_as_the_library_takes_them(model, how):
    """Two heads of one block: what stands in is then the same in both, as no earlier head is missing."""
    sweep = sweeps.begin(TOKENS, model=model)
    batch = Batch(TOKENS, TOKENS, torch.ones_like(TOKENS, dtype=torch.bool))
    components = [Component("blocks.2.attention.mixed", head) for head in (0, 4)]
    with ablated(model, components, how, reference=batch):
        wanted = whole_losses(model)
    with sweep.without({2: [0, 4]}, how):
        found = sweep.losses(sweep.onward(2))
        twice = sweep.onward(2, sweep.states[2].repeat(2, 1, 1))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(sweep.losses(twice), wanted.repeat(2, 1))
    after = sweep.after_block_without(2, [0, 4], how)
    torch.testing.assert_close(sweep.losses(sweep.onward(3, after)), wanted)
    assert not torch.allclose(wanted, whole_losses(model))


def test_positions_that_are_skipped_keep_what_they_had():
    model = small_model()
    sweep = sweeps.begin(TOKENS, model=model)
    after = sweep.after_block_without(1, [0, 1, 2], "zero", skip=[0, 3])
    same = (after - sweep.states[2]).abs().amax((0, 2)) < 1e-12
    assert same.tolist() == [True, False, False, True, False, False, False]
    with pytest.raises(ValueError, match="zero, mean or resample; got 'even'"):
        sweep.after_block_without(1, 0, "even")


def test_the_norms_of_writes_are_those_of_the_heads_outputs(model):
    sweep = sweeps.begin(TOKENS, model=model)
    with capture(model, "*.head_outputs") as seen:
        model(TOKENS)
    for block, found in enumerate(sweep.write_norms()):
        outputs = seen[f"blocks.{block}.attention.head_outputs"]
        torch.testing.assert_close(sweep.head_outputs(block), outputs)
        torch.testing.assert_close(found, outputs[:, :, 1:].norm(dim=-1).mean((0, 2)))
    every = sweep.write_norms(skip=None)
    outputs = seen["blocks.3.attention.head_outputs"]
    torch.testing.assert_close(every[3], outputs.norm(dim=-1).mean((0, 2)))


def test_losses_of_many_texts_are_those_of_single_ones(model):
    torch.testing.assert_close(sweeps.losses_of(TOKENS, model=model, rows=2), whole_losses(model))
    with intervene(model, {"blocks.0.attention.mixed": at(0.0, heads=0)}):
        changed = sweeps.losses_of(TOKENS, model=model)
        torch.testing.assert_close(changed, whole_losses(model))


@needs_smollm2
def test_a_sweep_of_smollm2_gives_its_loss():
    lm = sweeps.smollm2()
    text = "The capital of France is Paris, and the capital of Italy is Rome."
    sweep = sweeps.begin(lm.encode(text))
    assert float(sweep.losses().mean()) == pytest.approx(lm.loss(text), abs=1e-4)
    again = sweep.losses(sweep.onward(28))
    assert float(again.mean()) == pytest.approx(lm.loss(text), abs=1e-4)
    with sweep.without({3: [0, 1, 2]}, skip=0):
        assert sweep.losses(sweep.onward(3)).mean() != sweep.losses().mean()


def test_the_first_blocks_alone_give_the_state_behind_them(model):
    sweep = sweeps.begin(TOKENS, model=model)
    for blocks in range(5):
        torch.testing.assert_close(
            sweeps.stream_after(blocks, TOKENS, model=model), sweep.states[blocks]
        )
    with pytest.raises(ValueError, match="blocks"):
        sweeps.stream_after(9, TOKENS, model=model)
