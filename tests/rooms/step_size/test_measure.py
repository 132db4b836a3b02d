"""What the chapter on the size of a step measures, against what is known by other ways."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.step_size import measure
from measured_transformer.training.loop import History, finished, make_model
from torch.nn import functional as F

RESULTS = load_results("step_size")


def test_every_answer_that_a_model_gives_is_counted():
    model = make_model(measure.tower(1), causal=True, seed=0).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    batch = measure.TASK.batch(measure.make_generator(4, "evaluation"), 512)
    wanted = (batch.targets == 0).double().mean(0)  # all logits are equal, so the first is named
    assert measure.right(model, 4) == pytest.approx(wanted.tolist())


def test_spreads_are_powers_of_ten():
    assert measure.spread([0.5, 50.0, 5.0]) == pytest.approx(2)
    assert measure.spread(np.zeros(3)) == 0


def test_gradients_of_blocks_are_those_of_the_loss():
    model = measure.fresh("pre", 2, 1)
    found = measure.block_gradients(model, 1)
    batch = measure.TASK.batch(measure.make_generator(1, "evaluation"), 64)
    F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten()).backward()
    wanted = [
        math.sqrt(sum(float(p.grad.square().sum()) for p in block.parameters()))
        for block in model.blocks
    ]
    assert found == pytest.approx(wanted)


def test_without_a_norm_a_stream_twice_as_large_is_written_to_twice_as_much_by_a_network():
    block = measure.fresh("none", 2, 0).blocks[0]
    x = torch.randn(2, 3, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(block.feedforward(2 * x), 2 * block.feedforward(x))


def test_the_stream_is_added_to_with_a_norm_and_multiplied_without():
    sizes = RESULTS["untrained"]["size"]
    none, pre = (np.log(sizes.sel(arm=arm)).mean("seed") for arm in ("none", "pre"))
    first, second = (float(none.sel(state=b) - none.sel(state=a)) for a, b in ((0, 12), (12, 24)))
    assert second == pytest.approx(first, rel=0.15)  # a straight line on a logarithmic axis
    squares = (sizes.sel(arm="pre") ** 2).mean("seed")
    half, whole = (float(squares.sel(state=s) - squares.sel(state=0)) for s in (12, 24))
    assert whole == pytest.approx(2 * half, rel=0.15)  # squared lengths add up
    assert float(pre.max()) < float(none.max())


def test_gates_leave_an_untrained_stream_alone():
    assert (RESULTS["untrained"].turn.sel(arm="gate") < 1e-5).all()


def test_a_run_that_left_the_numbers_counts_as_far_worse_than_a_guess():
    model = make_model(measure.tower(1), causal=True, seed=0)
    history = History(losses=[1.0, math.nan], rates=[0.1] * 2, gradient_norms=[1.0] * 2)
    assert measure.last_loss(finished(model, history, 0)) == 10 * measure.TASK.blind_loss()
    losses = np.linspace(1, 0, 40).tolist()
    whole = finished(model, History(losses, rates=[0.1] * 40, gradient_norms=[1.0] * 40), 0)
    assert measure.last_loss(whole) == pytest.approx(np.mean(losses[-20:]))


def test_what_is_taken_over_is_the_whole_model():
    config = measure.tower(1, norm="none")
    model = make_model(config, causal=True, seed=0)
    measure.gated_branches(model)
    with torch.no_grad():
        model.blocks[0].attention.gate_of_branch.fill_(0.7)
    fresh = make_model(config, causal=True, seed=1)
    measure.TakesOver(model, measure.gated_branches)(fresh)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, fresh.state_dict()[name])
    with pytest.raises(ValueError, match="expected the config"):
        measure.TakesOver(model, measure.gated_branches)(
            make_model(measure.tower(2, norm="none"), causal=True, seed=1)
        )


def test_no_tuned_rate_of_a_tower_that_learns_stands_at_the_edge_of_its_grid():
    towers = RESULTS["towers"]
    for arm in towers.arm.values:
        if float(towers.right.sel(arm=arm, move=4).mean()) > measure.FOLLOWED:
            rate = float(towers.learning_rate.sel(arm=arm).isel(seed=0))
            assert measure.RATES[0] < rate < measure.RATES[-1], arm
