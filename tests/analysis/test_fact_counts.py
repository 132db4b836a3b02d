"""Counting facts: recall is the accuracy, and the largest stored table is found from either side."""

import numpy as np
import pytest
from measured_transformer.analysis import fact_counts as counts
from measured_transformer.models.config import Config
from measured_transformer.tasks.facts import Facts
from measured_transformer.training.loop import evaluate, train

TABLE = Facts(count=20, subjects=8, relations=6, objects=5, seed=1)

# --- how many -------------------------------------------------------------------------------------


def test_recall_is_the_accuracy_on_the_whole_table():
    config = Config(vocab=TABLE.vocab, d_model=8, n_layers=1, n_heads=2, positions="none")
    trained = train(config, TABLE, seed=0, learning_rate=0.03, **counts.whole_table(20, 200)).model
    wrong = Facts(count=20, subjects=8, relations=6, objects=5, seed=2)
    for task in (TABLE, wrong):
        score = evaluate(trained, task, seed=0, size=20)
        assert counts.recall(trained, task) == pytest.approx(score.accuracy)
        assert counts.recalled(trained, task).double().mean() == pytest.approx(score.accuracy)
    assert counts.recall(trained, wrong) < 0.6


def test_sizes_double_in_two_steps():
    sizes = counts.table_sizes(10, 100)
    assert sizes[::2] == [10, 20, 40, 80]
    assert np.allclose(np.diff(np.log(sizes)), np.log(2) / 2, atol=0.05)
    with pytest.raises(ValueError, match="0 < least <= largest"):
        counts.table_sizes(8, 4)


@pytest.mark.parametrize(
    ("limit", "start", "number", "tried", "bounded"),
    [
        (40, 20, 40, [20, 28, 40, 57], False),
        (27, 57, 20, [57, 40, 28, 20], False),
        (28, 28, 28, [28, 40], False),
        (999, 28, 57, [28, 40, 57], True),
        (5, 28, 10, [28, 20, 14, 10], True),
    ],
)
def test_the_largest_stored_table_is_found_from_either_side(
    monkeypatch, limit, start, number, tried, bounded
):
    def pretend(config, task, seeds, **options):
        assert options["batch_size"] == task.count
        assert task.seed == seeds[0] == 7
        assert options["schedule"].steps == options["steps"] == 50
        return [type("Run", (), {"model": task.count, "diverged": False})]

    monkeypatch.setattr(counts, "train_ensemble", pretend)
    # 99 per cent are stored, 98 are not
    monkeypatch.setattr(counts, "recall", lambda size, task: 0.99 if size <= limit else 0.98)
    many = Facts(count=1, subjects=8, relations=8, objects=5)
    found = counts.facts_stored(
        Config(vocab=21), many, seed=7, sizes=counts.table_sizes(10, 57), start=start,
        learning_rate=0.1, steps=50,
    )  # fmt: skip
    assert (found.number, list(found.tried), found.bounded) == (number, tried, bounded)


def test_a_training_that_diverged_stores_nothing(monkeypatch):
    run = type("Run", (), {"model": None, "diverged": True})
    monkeypatch.setattr(counts, "train_ensemble", lambda *_, **__: [run])
    found = counts.facts_stored(
        Config(vocab=19), TABLE, seed=0, sizes=[4, 8], start=4, learning_rate=0.1, steps=5
    )
    assert found.tried == {4: 0.0}
    assert found.bounded


def test_counting_trains_real_models():
    found = counts.facts_stored(
        Config(vocab=19, d_model=8, n_layers=1, n_heads=2, positions="none"), TABLE, seed=0,
        sizes=[5, 45], start=5, learning_rate=0.03, steps=60, store=None,
    )  # fmt: skip
    assert found.number == 5
    assert found.tried[5] == 1
    assert found.tried[45] < 0.99
    with pytest.raises(ValueError, match="rising sizes"):
        counts.facts_stored(
            Config(vocab=19), TABLE, seed=0, sizes=[5, 9], start=6, learning_rate=0.1, steps=1
        )


def test_logarithms_of_ratios_are_taken_in_pairs():
    more, less = ([counts.Stored(n, {}, False) for n in row] for row in ((8, 6), (4, 12)))
    assert counts.log_ratio(more, less) == pytest.approx([np.log(2), -np.log(2)])
    with pytest.raises(ValueError, match="expected pairs"):
        counts.log_ratio(more, less[:1])
