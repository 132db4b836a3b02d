"""Best losses without attention, losses after ablation and sizes of writes, against other ways to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.chapters.pieces.measure import (
    bigram_loss,
    expected_write,
    fitted_slope,
    log_writes,
    lonely_loss,
    parameter_ratio,
    rises_when_taken,
)
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.copying import Copying
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.component_ablation import without_attention

CONFIG = Config(vocab=5, d_model=16, n_layers=2, n_heads=2, activation="relu")


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
    assert lonely_loss(task) == pytest.approx(counted(batch, vocab), abs=0.005)


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
    assert run.losses[-50:].mean() == pytest.approx(lonely_loss(task), abs=0.03)


def test_other_tasks_have_no_known_loss():
    with pytest.raises(ValueError, match="Copying"):
        lonely_loss(Copying())


def test_a_bigram_is_counted_pair_by_pair():
    tokens = torch.randint(4, (500,), generator=torch.Generator().manual_seed(0))
    pairs = list(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
    first = [a for a, _ in pairs]
    by_hand = -sum(math.log(pairs.count(pair) / first.count(pair[0])) for pair in pairs)
    assert bigram_loss(tokens, 4) == pytest.approx(by_hand / len(pairs))
    with pytest.raises(ValueError, match="two tokens"):
        bigram_loss(tokens[:1], 4)


def test_a_bigram_knows_more_than_a_unigram_of_real_text():
    task = TextLM(length=8)
    assert 1.5 < lonely_loss(task) < task.unigram_loss() - 0.3


@pytest.mark.parametrize("part", ["attention", "feedforward"])
def test_rises_are_those_of_writes_set_to_their_mean_by_hand(part):
    task = Reversal(vocab=5, length=4)
    model = make_model(CONFIG, causal=False, seed=3).double().eval()
    batch, reference = (
        task.batch(make_generator(0, "test"), 8),
        task.batch(make_generator(1, "test"), 20),
    )
    names = [f"blocks.{i}.{part}.out" for i in range(2)]

    @torch.no_grad()
    def loss(taken):
        with capture(model, *names) as seen:
            model(reference.inputs)
        means = {n: seen[n].mean(0) for n in taken}
        changes = {n: (lambda there, m=m: m.expand_as(there)) for n, m in means.items()}
        with intervene(model, changes):
            return float(cross_entropy(model(batch.inputs), batch.targets, batch.scored))

    whole = loss([])
    expected = [loss([names[0]]) - whole, loss([names[1]]) - whole, loss(names) - whole]
    found = rises_when_taken(model, batch, reference, part=part)
    assert found == pytest.approx(expected)
    assert np.abs(found).min() > 1e-4


def test_another_part_is_refused():
    model = make_model(CONFIG, causal=False, seed=0)
    batch = Reversal(5, 4).batch(make_generator(0, "test"), 2)
    with pytest.raises(ValueError, match="'attention' or 'feedforward', got 'norm'"):
        rises_when_taken(model, batch, batch, part="norm")


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


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0])
def test_fresh_networks_write_as_the_variance_says(ratio):
    d, draws = 64, []
    for seed in range(20):
        torch.manual_seed(seed)
        network = FeedForward(d, int(ratio * d), activation="relu", bias=False)
        for part in (network.up, network.down):
            torch.nn.init.xavier_uniform_(part.weight)
        with torch.no_grad():
            draws.append(float(network(torch.randn(1, 256, d)).square().mean()))
    expected = float(expected_write(np.array([ratio]))[0])
    assert math.sqrt(np.mean(draws)) == pytest.approx(expected, rel=0.05)


def test_a_slope_is_that_of_the_line():
    x = [0.0, 0.5, 2.0, 3.0]
    noise = np.array([0.1, -0.2, 0.3, 0.0])
    design = np.column_stack([x, np.ones(4)])
    wanted = np.linalg.lstsq(design, 2 * np.array(x) + noise, rcond=None)[0][0]
    assert fitted_slope(x, 2 * np.array(x) + noise) == pytest.approx(wanted)
    with pytest.raises(ValueError, match="two different x"):
        fitted_slope([1.0, 1.0], np.array([0.0, 1.0]))
