"""Best losses without attention, losses after ablation and sizes of writes, against other ways to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.pieces import measure
from measured_book.rooms.pieces.measure import (
    added_positions,
    bigram_loss,
    entropy,
    log_writes,
    mean_ablated,
    no_attention_floor,
    parameter_ratio,
    rises_when_taken,
)
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.tasks.copying import Copying
from measured_transformer.tasks.opened_text import OpenedText, characters
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.component_ablation import PIECES, without_attention

CONFIG = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, activation="relu")


RESULTS = load_results("pieces")


def test_whole_models_solve_the_puzzles_and_know_more_of_text_than_a_bigram():
    whole = RESULTS["puzzles"].loss.sel(arm="whole")
    assert float(whole.max()) < 0.1
    floor = no_attention_floor(measure.HELD_OUT["text"])
    assert float(RESULTS["text"].loss.sel(arm="whole").max()) < floor - 0.2


def test_the_only_learning_rate_at_the_edge_of_its_grid_is_one_that_changes_nothing():
    """Reversal without attention is at its bound, at any rate."""
    at_edge = []
    for result in (RESULTS["puzzles"], RESULTS["text"]):
        for task in result.task.values:
            for arm in result.arm.values:
                rate = float(result.rate.sel(task=task, arm=arm)[0])
                if rate in (measure.RATES[0], measure.RATES[-1]):
                    at_edge.append((str(task), str(arm)))
    assert at_edge == [("reversal", "attention")]
    loss = RESULTS["puzzles"].loss.sel(task="reversal", arm="attention")
    assert float(loss.max()) == pytest.approx(
        no_attention_floor(measure.TASKS["reversal"]), abs=0.01
    )
    rates = RESULTS["writes"].rate
    assert measure.WIDTH_RATES[0] < float(rates.min())
    assert float(rates.max()) < measure.WIDTH_RATES[-1]


def counted(batch, vocab):
    """Loss of the best guess by position and own token, from counts: an oracle that knows no formula."""
    tables = {}
    rows = []
    for position in range(batch.inputs.shape[1]):
        scored = batch.scored[:, position]
        own, answer = (
            batch.inputs[scored, position].tolist(),
            batch.targets[scored, position].tolist(),
        )
        for a, b in zip(own, answer, strict=True):
            tables.setdefault((position, a), np.zeros(vocab))[b] += 1
            rows.append((position, a, b))
    return float(np.mean([-np.log(tables[p, a][b] / tables[p, a].sum()) for p, a, b in rows]))


@pytest.mark.parametrize(
    "task",
    [Reversal(4, 4), Reversal(4, 3), AssociativeRecall(pairs=2, queries=2, keys=3, values=3)],
)
def test_the_best_loss_alone_is_that_of_counting(task):
    batch = task.batch(make_generator(0, "test"), 60_000)
    vocab = task.vocab
    assert no_attention_floor(task) == pytest.approx(counted(batch, vocab), abs=0.005)


def test_training_without_attention_comes_near_that_loss_and_not_below():
    task = Reversal(vocab=4, length=3)
    config = CONFIG.replace(vocab=4, n_layers=1)
    run = train(
        config,
        task,
        seed=0,
        steps=300,
        learning_rate=0.01,
        batch_size=64,
        prepare=without_attention,
    )
    assert run.losses[-50:].mean() == pytest.approx(no_attention_floor(task), abs=0.03)


def test_other_tasks_have_no_known_loss():
    with pytest.raises(ValueError, match="Copying"):
        no_attention_floor(Copying())


def test_a_bigram_is_counted_pair_by_pair():
    tokens = torch.randint(4, (500,), generator=torch.Generator().manual_seed(0))
    pairs = list(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
    first = [a for a, _ in pairs]
    by_hand = -sum(math.log(pairs.count(pair) / first.count(pair[0])) for pair in pairs)
    assert bigram_loss(tokens, 4) == pytest.approx(by_hand / len(pairs))
    with pytest.raises(ValueError, match="two tokens"):
        bigram_loss(tokens[:1], 4)


def test_text_costs_a_unigram_at_first_and_a_bigram_from_then_on():
    tokens = characters("validation")
    single = entropy(torch.bincount(tokens))
    pair = bigram_loss(tokens, OpenedText.vocab)
    assert no_attention_floor(OpenedText(1, "validation")) == pytest.approx(single)
    assert no_attention_floor(OpenedText(4, "validation")) == pytest.approx((single + 3 * pair) / 4)
    assert 1.5 < pair < single - 0.3


def test_entropy_is_that_of_the_shares():
    assert entropy(torch.tensor([1, 1, 2, 0])) == pytest.approx(1.5 * math.log(2))


# What is taken away ---------------------------------------------------------------------------------

TASK = Reversal(vocab=5, length=4)
BATCH = TASK.batch(make_generator(0, "test"), 8)
REFERENCE = TASK.batch(make_generator(1, "test"), 20)


def untrained(**changes):
    return make_model(CONFIG.replace(**changes), causal=False, seed=3).double().eval()


@torch.no_grad()
def losses(model, changes):
    with intervene(model, changes):
        return float(cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.scored))


@torch.no_grad()
def seen(model, *names):
    with capture(model, *names) as found:
        model(REFERENCE.inputs)
    return found


@pytest.mark.parametrize(
    ("piece", "names"),
    [
        ("attention", [f"blocks.{i}.attention.out" for i in range(2)]),
        ("ffn", [f"blocks.{i}.feedforward.out" for i in range(2)]),
        (
            "norm",
            [
                *(
                    f"blocks.{i}.{p}_norm.scale"
                    for i in range(2)
                    for p in ("attention", "feedforward")
                ),
                "final_norm.scale",
            ],
        ),
    ],
)
def test_writes_and_divisors_are_set_to_their_mean(piece, names):
    model = untrained()
    means = {name: value.mean(0) for name, value in seen(model, *names).items()}
    changes = {name: (lambda there, m=m: m.expand_as(there)) for name, m in means.items()}
    rise = losses(model, changes) - losses(model, {})
    assert abs(rise) > 1e-4
    assert rises_when_taken(model, BATCH, REFERENCE)[PIECES.index(piece)] == pytest.approx(rise)


@torch.no_grad()
def test_without_skips_a_sublayer_hands_on_its_write_and_the_mean_of_what_passed():
    model = untrained()
    passing = [f"blocks.{i}.{tap}" for i in range(2) for tap in ("residual_pre", "residual_mid")]
    means = {name: value.mean(0) for name, value in seen(model, *passing).items()}
    embedding = seen_now(model, "embedding")
    x = embedding
    for i, block in enumerate(model.blocks):
        x = block.attention(block.attention_norm(x)) + means[f"blocks.{i}.residual_pre"]
        x = block.feedforward(block.feedforward_norm(x)) + means[f"blocks.{i}.residual_mid"]
    expected = model.unembed(x)
    with mean_ablated(model, "skip", REFERENCE):
        torch.testing.assert_close(model(BATCH.inputs), expected)


@torch.no_grad()
def seen_now(model, name):
    with capture(model, name) as found:
        model(BATCH.inputs)
    return found[name]


@torch.no_grad()
def test_without_positions_the_answers_move_with_the_tokens():
    model, order = untrained(), torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(
        added_positions(model, REFERENCE.inputs), model.positions(4).to(torch.float64)
    )
    with mean_ablated(model, "positions", REFERENCE):
        torch.testing.assert_close(model(BATCH.inputs[:, order]), model(BATCH.inputs)[:, order])


@torch.no_grad()
@pytest.mark.parametrize("piece", PIECES)
def test_a_model_is_whole_again_afterwards(piece):
    model = untrained()
    before = model(BATCH.inputs)
    with mean_ablated(model, piece, REFERENCE):
        assert not torch.allclose(model(BATCH.inputs), before)
    assert torch.equal(model(BATCH.inputs), before)


@pytest.mark.parametrize(
    ("changes", "piece", "message"),
    [
        ({}, "head", "piece must be one of attention, positions, skip, norm, ffn; got 'head'"),
        ({"placement": "post"}, "skip", "got placement='post'"),
        ({"positions": "rotary"}, "positions", "positions='rotary'"),
        ({"residual": False}, "skip", "with residual connections"),
    ],
)
def test_what_cannot_be_taken_away_is_refused(changes, piece, message):
    model = untrained(**changes)
    with pytest.raises(ValueError, match=message), mean_ablated(model, piece, REFERENCE):
        pass


# Width and writes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "ratio"), [(32, 1.0), (64, 2.0), (8, 0.25)])
def test_without_biases_parameters_are_those_of_the_matrices(width, ratio):
    model = make_model(CONFIG.replace(d_ff=width, bias=False), causal=False, seed=0)
    assert parameter_ratio(model) == ratio


def test_log_writes_are_those_of_single_vectors():
    task = Reversal(vocab=5, length=4)
    tokens = task.batch(make_generator(0, "test"), 3).inputs
    model = make_model(CONFIG, causal=False, seed=0).double()
    with torch.no_grad(), capture(model, "*.out") as seen:
        model(tokens)
    attention, network = log_writes(model, tokens)
    for i in range(2):
        for found, part in ((attention, "attention"), (network, "feedforward")):
            rows = seen[f"blocks.{i}.{part}.out"].reshape(-1, 16)
            lengths = [math.sqrt(sum(float(v) ** 2 for v in row)) for row in rows]
            assert math.exp(found[i]) == pytest.approx(sum(lengths) / len(lengths))
