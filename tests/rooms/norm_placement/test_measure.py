"""What the chapter on norm placement measures, against what is known by other ways."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.norm_placement import measure
from torch.nn import functional as F

RESULTS = load_results("norm_placement")


def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid():
    for (_, kind), job in measure.two_blocks.jobs(0).items():
        if kind == "tuned":
            rate = job.settings["learning_rate"]
            assert measure.RATES[0] < rate < measure.RATES[-1]


def test_the_deviation_of_logits_is_that_of_their_spread_over_answers():
    model = measure.untrained_model(measure.deep("pre", 2), 3)
    found = measure.logit_deviation(model, measure.TASK, seed=3)
    batch = measure.TASK.batch(measure.make_generator(3, "evaluation"), 64)
    with torch.no_grad():
        logits = model(batch.inputs)
    assert found == pytest.approx(float(logits.var(-1, correction=0).mean().sqrt()), rel=1e-5)


def test_the_gradient_is_that_of_the_loss():
    model = measure.untrained_model(measure.deep("post", 2), 1)
    found = measure.gradient_of_last(model, 1)
    batch = measure.TASK.batch(measure.make_generator(1, "evaluation"), 64)
    F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten()).backward()
    assert found == pytest.approx(
        float(model.blocks[-1].feedforward.down.weight.grad.norm()), rel=1e-4
    )


def test_a_post_norm_stream_keeps_its_size_and_a_pre_norm_stream_grows():
    sizes = {
        where: measure.block_sizes(measure.untrained_model(measure.deep(where), 0), 0)
        for where in measure.PLACEMENTS
    }
    assert np.allclose(sizes["post"][0], 1, atol=0.01)
    assert sizes["pre"][0][-1] > 1.5 * sizes["pre"][0][0]
    assert all(-1 <= cosine <= 1 + 1e-6 for _, kept in sizes.values() for cosine in kept)


def test_all_trainings_of_the_map_are_there():
    border = RESULTS["border"]
    assert border.steps.shape == (24, 2, 3, 6)
    assert (border.steps > 0).all()
    assert (border.steps.where(border.solved == 0) == measure.LIMIT).sum() == (~border.solved).sum()
