"""What is taken out of training stays as it is, and nothing else does."""

import copy

import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.variants.attention import CutScores, FrozenScores

TASK = Lag(vocab=6, length=8)
CONFIG = Config(vocab=6, d_model=16, n_heads=2, positions="learned", max_length=8)
SCORES = (".query.", ".key.")


def fresh(prepare=None):
    model = make_model(CONFIG, causal=True, seed=0)
    if prepare is not None:
        prepare(model)
    return model


def gradients(model):
    batch = TASK.batch(torch.Generator().manual_seed(0), 16)
    cross_entropy(predict(model, batch), batch.targets, batch.scored).backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def test_frozen_projections_keep_their_values_and_the_rest_learns():
    run = train(CONFIG, TASK, steps=3, learning_rate=0.01, seed=0, prepare=FrozenScores())
    before = dict(fresh().named_parameters())
    for name, weight in run.model.named_parameters():
        kept = any(part in name for part in SCORES)
        assert torch.equal(weight, before[name]) == (kept or name.endswith("key.bias")), name


def test_with_frozen_projections_the_gradient_still_flows_through_the_scores():
    frozen, free = gradients(fresh(FrozenScores())), gradients(fresh())
    assert all(grad is None for name, grad in frozen.items() if any(p in name for p in SCORES))
    assert torch.allclose(frozen["token_embedding.weight"], free["token_embedding.weight"])


def test_cut_scores_compute_the_same_and_pass_no_gradient():
    cut, free = fresh(CutScores()), fresh()
    batch = TASK.batch(torch.Generator().manual_seed(0), 16)
    assert torch.allclose(predict(cut, batch), predict(free, batch), atol=1e-5)
    found, whole = gradients(cut), gradients(free)
    assert all(grad is None for name, grad in found.items() if any(p in name for p in SCORES))
    assert not torch.allclose(found["token_embedding.weight"], whole["token_embedding.weight"])
    assert found["blocks.0.attention.value.weight"].abs().max() > 0
    copied = copy.deepcopy(fresh(CutScores()))
    assert gradients(copied)["blocks.0.attention.query.weight"] is None
