"""What depends on positions in models that are known."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.surviving.measure import (
    CHANGES,
    LAYERS,
    changed,
    changed_positions,
    diluted_r2,
    explained_by_position,
    fresh_r2,
    kept,
    loss_without_places,
    stack,
    strongest,
    task_loss,
    untrained,
)
from measured_transformer.analysis.positions import (
    captured,
    position_vectors,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train

RESULTS = load_results("surviving")
TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


def test_explained_by_position_of_hand_made_patterns() -> None:
    n = 4
    fixed = torch.eye(n).flip(1).expand(6, n, n)  # the same for all inputs
    flat = torch.full((6, n, n), 1 / n)  # nothing to explain
    content = torch.stack([torch.eye(n)[torch.full((n,), b % n)] for b in range(4)] + [flat[0]] * 2)
    pattern = torch.stack((fixed, flat, content), dim=1)
    shares = explained_by_position(pattern)
    assert shares[0] == pytest.approx(1)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0, abs=1e-6)  # every key is as often the one
    causal = torch.tril(torch.ones(n, n))
    causal = (causal / causal.sum(1, keepdim=True)).expand(2, 1, n, n)
    assert explained_by_position(causal, causal=True)[0] == 0


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_changed_positions_replace_what_is_added(scheme: str) -> None:
    model = make_model(TINY.replace(positions=scheme), causal=False, seed=0)
    bare = make_model(TINY.replace(positions="none"), causal=False, seed=0)
    bare.load_state_dict(
        {k: v for k, v in model.state_dict().items() if not k.startswith("positions")}
    )
    tokens = torch.randint(8, (2, 7), generator=torch.Generator().manual_seed(0))
    with changed_positions(model, torch.zeros(7, 16)), torch.no_grad():
        torch.testing.assert_close(model(tokens), bare(tokens), atol=1e-5, rtol=1e-5)
    assert position_vectors(bare, 7).abs().max() == 0


def test_task_loss_and_captured_use_the_evaluation_stream() -> None:
    task = Reversal(vocab=8, length=6)
    model = make_model(TINY, causal=False, seed=0)
    assert task_loss(model, task, seed=3) == pytest.approx(
        evaluate(model, task, seed=3, size=256).loss
    )
    seen = captured(model, task, "embedding", seed=3, size=5)
    assert seen["embedding"].shape == (5, 6, 16)


def test_taking_out_places_matters_only_to_models_that_have_them() -> None:
    task = Reversal(vocab=8, length=6)
    without = make_model(TINY.replace(positions="none"), causal=False, seed=0)
    plain = task_loss(without, task, seed=0)
    losses = loss_without_places(without, task, seed=0)
    assert len(losses) == 3
    assert losses == pytest.approx([plain] * 3, abs=0.05)
    trained = train(TINY, task, steps=150, learning_rate=1e-2, seed=0, batch_size=32).model
    assert loss_without_places(trained, task, seed=0)[0] > task_loss(trained, task, seed=0) + 0.5


def test_untrained_is_the_same_config_with_other_weights() -> None:
    model = train(TINY, Reversal(vocab=8, length=6), steps=2, learning_rate=1e-2, seed=5).model
    fresh = untrained(model, seed=5)
    assert fresh.config == model.config
    reference = make_model(TINY, causal=False, seed=5)
    for (name, a), (_, b) in zip(
        fresh.named_parameters(), reference.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert not torch.equal(fresh.unembedding.weight, model.unembedding.weight)


def test_every_result_is_of_this_code() -> None:
    for one in measurements_of("surviving").values():
        assert standing(one).state in HOLDS, standing(one).why


@pytest.mark.parametrize("norms", [False, True])
def test_what_is_kept_of_a_drawn_stream(norms: bool) -> None:
    rng = np.random.default_rng(0)
    entered = rng.standard_normal(200_000)
    stream = entered.copy()
    for _ in range(6):
        stream = stream + 0.5 * rng.standard_normal(stream.size)
        if norms:
            stream /= stream.std()
    share = np.corrcoef(entered, stream)[0, 1] ** 2
    assert kept(0.25, sublayers=6, norms=norms) == pytest.approx(share, abs=0.01)


def test_what_is_kept_wants_sizes() -> None:
    assert kept(0.0, sublayers=5, norms=True) == kept(1.0, sublayers=0, norms=False) == 1
    with pytest.raises(ValueError, match="negative"):
        kept(-0.1, sublayers=2, norms=True)
    with pytest.raises(ValueError, match="negative"):
        kept(0.1, sublayers=-2, norms=True)


def test_the_best_reader_of_a_noisy_value() -> None:
    rng = np.random.default_rng(1)
    value = rng.standard_normal(200_000)
    for deviation in (0.5, 1.0, 3.0):
        seen = value + deviation * rng.standard_normal(value.size)
        assert diluted_r2(deviation) == pytest.approx(np.corrcoef(value, seen)[0, 1] ** 2, abs=0.01)


def test_fresh_stacks_by_layer() -> None:
    found = fresh_r2(stack("pre-norm"), 3, 1)
    assert len(found) == len(LAYERS)
    assert found[0] > 0.99  # the embedding and the vector
    silent = fresh_r2(stack("post-norm"), 3, 1, factor=0.0)
    assert min(silent) > 0.95  # a norm of what it has normed changes next to nothing
    assert abs(fresh_r2(stack("pre-norm, none"), 3, 1)[-1]) < 0.2


def test_the_strongest_head_is_that_of_a_pattern_of_places() -> None:
    task = Reversal(vocab=8, length=6)
    fresh = make_model(TINY, causal=False, seed=0)
    trained = train(TINY, task, steps=150, learning_rate=1e-2, seed=0, batch_size=32).model
    before, _ = strongest(fresh, task, 0)
    share, weights = strongest(trained, task, 0)
    assert share > before + 0.2
    assert weights.shape == (6, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6))


def test_changes_of_vectors() -> None:
    own = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    by = {how: changed(own, how, 5) for how in CHANGES}
    assert by["zero"].abs().max() == 0
    torch.testing.assert_close(by["average"], own.mean(0).repeat(12, 1))
    assert sorted(by["shuffled"][:, 0].tolist()) == sorted(own[:, 0].tolist())
    assert not torch.equal(by["shuffled"], own)
    torch.testing.assert_close(changed(own, "shuffled", 5), by["shuffled"])
    with pytest.raises(ValueError, match="shuffled, average, zero"):
        changed(own, "lost", 0)


def test_a_removal_at_the_embedding_leaves_at_best_a_model_without_order() -> None:
    deep = RESULTS["deep"]
    bag = Reversal(vocab=12, length=12).bag_loss()
    assert float(deep.without.sel(layer=0).min()) > bag - 0.05
    assert float(abs(deep.shuffled).max()) < 0.3
