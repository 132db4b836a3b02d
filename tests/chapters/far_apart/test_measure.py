"""Both readers are what they say, learn by the same batches, and are counted as declared."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.handmade import induction_model
from measured_transformer.chapters.far_apart.measure import (
    Learnt,
    Recurrent,
    Sizes,
    accuracy,
    influence,
    learn,
    make_reader,
    tuned_rate,
)
from measured_transformer.evidence.profile import Profile
from measured_transformer.tasks.spaced_recall import SpacedRecall
from measured_transformer.training import tuning

SMALL = Sizes(d_model=8, n_layers=1, n_heads=1)
TASKS = [SpacedRecall(pairs=2, queries=2, keys=3, values=2, before=0, between=n) for n in (1, 5)]


def weights(model):
    return sum(w.numel() for w in model.parameters())


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(d_model=16), Sizes(n_layers=4)])
def test_both_kinds_have_equally_many_weights(sizes):
    large, other = (make_reader(kind, 13, sizes, seed=0) for kind in ("transformer", "lstm"))
    assert weights(other) == pytest.approx(weights(large), rel=0.02)
    assert large.token_embedding.weight.shape == other.embedding.weight.shape


def test_the_recurrent_model_is_an_lstm():
    model = Recurrent(5, d_model=4, d_state=3, forget=1.5).double()
    tokens = torch.tensor([[0, 3, 1, 4]])
    p = dict(model.lstm.named_parameters())
    bias = p["bias_ih_l0"] + p["bias_hh_l0"]
    assert torch.equal(bias[3:6], torch.full((3,), 1.5, dtype=torch.float64))
    h, c, found = torch.zeros(3).double(), torch.zeros(3).double(), []
    for x in model.embedding(tokens)[0]:
        i, f, g, o = (p["weight_ih_l0"] @ x + p["weight_hh_l0"] @ h + bias).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(model.unembedding(model.norm(model.output(h))))
    assert torch.allclose(model(tokens)[0], torch.stack(found))


def test_a_state_that_forgets_all_has_no_influence_from_afar():
    near, far = influence("lstm", Sizes(d_model=8, forget=-30.0), (0, 40), vocab=5, seed=0)
    assert near > 1e-3
    assert far < 1e-12
    for kind in ("transformer", "lstm"):
        model, distances = make_reader(kind, 5, SMALL, seed=0), (0, 3)
        found = influence(kind, SMALL, distances, vocab=5, seed=0, rows=1)
        tokens = torch.randint(5, (1, 4), generator=_stream())
        assert found.shape == (2,)
        assert bool(model(tokens).isfinite().all())
        assert (found > 0).all()


def _stream():
    return torch.Generator().manual_seed(0)


def test_an_induction_pair_answers_over_any_distance():
    for task in TASKS:
        model = induction_model(vocab=task.vocab, length=task.length)
        assert accuracy(model, task, seed=0) == 1.0


def test_the_last_step_below_the_level_counts():
    rows = np.array([[0.2, 0.96, 0.9, 1.0], [0.1, 0.2, 0.3, 0.4], [1.0, 1.0, 1.0, 1.0]])
    found = Learnt(make_reader("lstm", 5, SMALL, seed=0), np.array([10, 20, 30, 40]), rows)
    assert found.steps_to(0.95).tolist() == [30.0, 40.0, 10.0]


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_learning_is_repeatable_and_learns(kind):
    options = {"steps": 60, "learning_rate": 0.02, "seed": 1, "rows": 32, "every": 20}
    first, second = (learn(kind, TASKS, SMALL, **options) for _ in range(2))
    assert np.array_equal(first.accuracies, second.accuracies)
    assert first.steps.tolist() == [20, 40, 60]
    assert first.accuracies.shape == (2, 3)
    assert first.accuracies[:, -1].min() > 0.6  # guessing among two values gives a half


def test_a_tuned_rate_is_found_and_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "build_table", lambda: tmp_path / "tuned.jsonl")
    how = {"rates": (1e-6, 0.02), "profile": Profile("quick", 0), "steps": 40, "rows": 16}
    rate, found = tuned_rate("some", "lstm", TASKS, SMALL, **how)
    assert rate == 0.02
    assert np.mean(found[0.02]) > np.mean(found[1e-6])
    monkeypatch.setattr("measured_transformer.chapters.far_apart.measure.make_reader", None)
    assert tuned_rate("some", "lstm", TASKS, SMALL, **how) == (rate, found)  # nothing is trained
    with pytest.raises(TypeError):
        tuned_rate("some", "lstm", TASKS, SMALL, **{**how, "rates": (1e-6, 0.03)})
