"""Training on the accelerator, looking on the CPU; the fake device stands in for one that is not there."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from fake_cuda import fake_cuda, fakes_in
from measured_transformer.models.config import Config
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import loop
from measured_transformer.training.arithmetic import arithmetic
from measured_transformer.training.device import circumstances, find_device, settled
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.loop import evaluate, make_model, predict, train
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.training.stacked import train_stacked
from measured_transformer.training.store import Store, pack, unpack
from measured_transformer.training.sweep import sweep

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=16, n_layers=2, n_heads=2)
OPTIONS = {"steps": 4, "learning_rate": 0.01, "batch_size": 8}


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def accelerator(request, monkeypatch):
    """A CUDA device: always the fake one, and a real one under `pytest -m gpu`."""
    if request.param == "fake":
        with fake_cuda():
            yield
    else:
        monkeypatch.setenv("MEASURED_DEVICE", "cuda")
        yield


# Which device ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "found"),
    [("", "cuda"), ("auto", "cuda"), (" CPU ", "cpu"), ("cuda", "cuda"), ("cpu", "cpu")],
)
def test_a_word_chooses_the_device(monkeypatch, word, found):
    with fake_cuda():
        monkeypatch.setenv("MEASURED_DEVICE", word)
        assert find_device().type == found


def test_without_an_accelerator_there_is_the_cpu(monkeypatch):
    for word in ("auto", "cpu", ""):
        monkeypatch.setenv("MEASURED_DEVICE", word)
        assert find_device() == torch.device("cpu")
    monkeypatch.delenv("MEASURED_DEVICE")
    assert find_device() == torch.device("cpu")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gpu", r"expected MEASURED_DEVICE to be one of auto, cpu, cuda, got 'gpu'; unset it"),
        ("cuda:1", r"got 'cuda:1'"),
        (
            "cuda",
            r"MEASURED_DEVICE=cuda expected a CUDA device, and PyTorch .* set MEASURED_DEVICE=cpu",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_advice(monkeypatch, word, message):
    monkeypatch.setenv("MEASURED_DEVICE", word)
    with pytest.raises(ValueError, match=message):
        train(CONFIG, TASK, seed=0, **OPTIONS)


def test_the_driver_is_named_where_pytorch_was_built_for_cuda(monkeypatch):
    monkeypatch.setenv("MEASURED_DEVICE", "cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(ValueError, match=r"CUDA 13\.0, which needs a card and a driver as new"):
        find_device()


def test_unit_tests_see_no_accelerator():
    assert find_device().type == "cpu"
    assert not torch.cuda.is_available()


# How exactly -------------------------------------------------------------------------------------


def settings() -> tuple[object, ...]:
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.get_num_threads(),
    )


def test_precision_and_determinism_are_set_and_put_back(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.set_float32_matmul_precision("medium")
    before = settings()
    try:
        with settled(torch.device("cuda")):
            assert settings()[:5] == ("highest", True, False, True, False)
        assert settings() == before
        with settled(torch.device("cpu"), threads=1):
            assert settings()[:2] == ("highest", False)
        assert settings() == before
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("trained", [train, lambda *a, seed, **o: train_stacked(*a, [seed], **o)])
def test_training_settles_them(trained):
    seen = []

    class Looking(Reversal):
        def batch(self, *args, **kwargs):
            seen.append(settings()[:2])
            return super().batch(*args, **kwargs)

    with fake_cuda():
        trained(CONFIG, Looking(vocab=4, length=4), seed=0, **OPTIONS)
    assert set(seen) == {("highest", True)}


def test_circumstances_of_a_cpu_and_of_an_accelerator():
    here = circumstances()
    capability = torch.backends.cpu.get_cpu_capability()
    assert here["kind"] == f"cpu {capability} {here['device']}, arithmetic {arithmetic()}"
    assert here["torch"] == torch.__version__
    assert here["numpy"] == np.__version__
    assert here["dtype"] == "float32"
    with fake_cuda():
        there = circumstances()
    assert there["device"] == "Fake CUDA"
    assert there["kind"] == "cuda Fake CUDA"
    assert {"precision", "deterministic"} < set(here) < set(there)
    assert set(there) - set(here) == {"cuda", "driver"}
    assert json.loads(json.dumps(there)) == there


def test_seeds_leave_no_trace_on_either_device():
    with fake_cuda():
        torch.manual_seed(1)
        first = torch.rand(3, device="cuda").cpu()
        torch.manual_seed(1)
        with seeded(5):
            torch.rand(3, device="cuda")
        assert torch.rand(3, device="cuda").cpu().equal(first)


# Finished models are on the CPU ------------------------------------------------------------------


def looked_at(run) -> None:
    """What chapters do with a run: feed it batches of the CPU."""
    assert not fakes_in(run)
    assert all(t.device.type == "cpu" for t in run.model.state_dict().values())
    assert not run.model.training
    batch = TASK.batch(make_generator(0, "evaluation"), 2)
    predict(run.model, batch).detach().numpy()
    assert 0 <= evaluate(run.model, TASK, seed=1).accuracy <= 1


def test_training_comes_back(accelerator):
    run = train(CONFIG, TASK, seed=0, evaluate_every=2, **OPTIONS)
    looked_at(run)
    assert run.evaluated.tolist() == [2, 4]


def test_ensembles_stacks_and_sweeps_come_back(accelerator, tmp_path):
    store = Store(tmp_path)
    for stacked in (None, False, True):
        for run in train_ensemble(CONFIG, TASK, [0, 1], store=store, stacked=stacked, **OPTIONS):
            looked_at(run)
    for run in train_stacked(CONFIG, TASK, [0, 1], evaluate_every=2, **OPTIONS):
        looked_at(run)
    found = sweep({"one": CONFIG}, [0, 1], task=TASK, store=None, progress=False, **OPTIONS)
    for run in found["one"]:
        looked_at(run)
    for run in train_ensemble(CONFIG, TASK, [0, 1], store=store, **OPTIONS):  # now from the store
        looked_at(run)


def test_what_comes_from_the_store_is_what_was_trained(accelerator):
    job = make_jobs(CONFIG, TASK, [0], OPTIONS)[0]
    run = job.train()
    again = unpack(pack(run, {}), CONFIG, TASK)
    looked_at(again)
    for one, other in zip(run.model.parameters(), again.model.parameters(), strict=True):
        assert one.equal(other)


def test_training_there_is_training_here(accelerator, monkeypatch):
    there = train(CONFIG, TASK, seed=0, evaluate_every=2, **OPTIONS)
    monkeypatch.setenv("MEASURED_DEVICE", "cpu")
    here = train(CONFIG, TASK, seed=0, evaluate_every=2, **OPTIONS)
    np.testing.assert_allclose(there.losses, here.losses, rtol=1e-5)
    np.testing.assert_allclose(there.gradient_norms, here.gradient_norms, rtol=1e-4)
    np.testing.assert_allclose(there.evaluation_losses, here.evaluation_losses, rtol=1e-5)


def test_evaluations_on_the_way_stay_on_the_device(monkeypatch):
    seen = []

    def watched(model, *args, **kwargs):
        seen.append(next(model.parameters()).device.type)
        return evaluate(model, *args, **kwargs)

    monkeypatch.setattr(loop, "evaluate", watched)
    with fake_cuda():
        train(CONFIG, TASK, seed=0, evaluate_every=2, **OPTIONS)
    assert seen == ["cuda", "cuda"]


def test_what_is_prepared_is_prepared_on_the_cpu_and_moves(accelerator):
    seen = []

    def prepare(model):
        model.register_buffer("mask", torch.rand(4))
        seen.append((next(model.parameters()).device.type, model.mask))

    with seeded(0):
        run = train(CONFIG, TASK, seed=0, prepare=prepare, **OPTIONS)
    unpack(pack(run, {}), CONFIG, TASK, prepare)
    train_stacked(CONFIG, TASK, [0, 1], prepare=prepare, **OPTIONS)
    assert {where for where, _ in seen} == {"cpu"}
    looked_at(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": name}
        for name in ("none", "learned", "sinusoidal", "rotary", "alibi", "relative")
    ]
    + [{"norm": "rms"}, {"placement": "post"}, {"dropout": 0.1}, {"tie_embeddings": True}],
    ids=str,
)
def test_every_kind_of_model_trains_there(changes):
    config = CONFIG.replace(**changes)
    with fake_cuda():
        for task in (TASK, Lag(vocab=4, length=4, lag=1)):
            looked_at(train(config, task, seed=0, evaluate_every=2, **OPTIONS))


def test_an_encoder_decoder_trains_there():
    task = NoisyTranslation()
    config = Config(vocab=task.vocab, d_model=16, n_layers=1, n_heads=2)
    with fake_cuda():
        run = train(config, task, seed=0, evaluate_every=2, **OPTIONS)
        assert not fakes_in(run)
        predict(run.model, task.batch(make_generator(0, "evaluation"), 2)).detach().numpy()


@pytest.mark.parametrize("optimiser", ["AdamW", "Adam", "RAdam", "SGD"])
def test_an_interrupted_training_goes_on_there(tmp_path, accelerator, optimiser):
    options = OPTIONS | {"optimiser": optimiser}
    whole = train(CONFIG.replace(dropout=0.1), TASK, seed=0, **options)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 1}
    train(CONFIG.replace(dropout=0.1), TASK, seed=0, **kept, **(options | {"steps": 2}))
    rest = train(CONFIG.replace(dropout=0.1), TASK, seed=0, **kept, **options)
    np.testing.assert_allclose(rest.losses, whole.losses, rtol=1e-5)
    looked_at(rest)


# It bites ----------------------------------------------------------------------------------------


def test_a_model_that_stayed_there_would_be_noticed(monkeypatch):
    """As `train` gave it before: what a chapter does with it fails as on a real device."""
    kept = loop.finished

    def stays(model, history, seed):
        run = kept(model, history, seed)
        run.model.to("cuda")
        return run

    monkeypatch.setattr(loop, "finished", stays)
    with fake_cuda():
        run = train(CONFIG, TASK, seed=0, **OPTIONS)
        assert fakes_in(run)
        with pytest.raises(RuntimeError, match="to be on the same device"):
            predict(run.model, TASK.batch(make_generator(0, "evaluation"), 2))
        with pytest.raises(TypeError, match="to host memory first"):
            run.model.token_embedding.weight.detach().numpy()


def test_bits_on_the_cpu_are_those_of_a_plain_loop():
    """Nothing that is settled changes a bit on the CPU: a loop without any of it gives the same weights."""
    run = train(CONFIG, TASK, seed=3, clip=None, **OPTIONS)
    model = make_model(CONFIG, causal=TASK.causal, seed=3).train()
    updates = torch.optim.AdamW(
        model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0, fused=True
    )
    batches = make_generator(3, "training")
    for _ in range(OPTIONS["steps"]):
        batch = TASK.batch(batches, OPTIONS["batch_size"])
        updates.zero_grad()
        loss = loop.cross_entropy(predict(model, batch), batch.targets, batch.scored)
        loss.backward()
        updates.step()
    for one, other in zip(run.model.parameters(), model.parameters(), strict=True):
        assert one.equal(other)


def test_the_gpu_is_hidden_before_pytorch_looks(tmp_path):
    """A test of this folder sees no device, whatever the shell says; with `-m gpu` what it says counts."""
    code = (
        "import os, pytest, sys\n"
        "class See:\n"
        "    def pytest_sessionstart(self): print('sees', repr(os.environ.get('CUDA_VISIBLE_DEVICES')))\n"
        "pytest.main(['-q', '--collect-only', *sys.argv[1:]], plugins=[See()])\n"
    )
    for words, seen in (([], "''"), (["-m", "gpu"], "'7'")):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "tests/tasks/test_lag.py"],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "7"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"sees {seen}" in done.stdout, done.stdout + done.stderr
