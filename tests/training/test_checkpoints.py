"""Interrupted and resumed: the same bits as in one go; nothing foreign or damaged is taken up."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import checkpoints, loop
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import WarmupCosine
from safetensors import safe_open

TASK = Reversal(vocab=5, length=4)
CONFIG = Config(vocab=5, d_model=16, n_layers=1, n_heads=2, d_ff=16, dropout=0.2)
ASK = {"learning_rate": 3e-3, "seed": 4, "batch_size": 8, "evaluate_every": 3, "weight_decay": 0.1}
ASK["schedule"] = WarmupCosine(warmup=4, steps=20)
ARRAYS = ("losses", "rates", "gradient_norms", "evaluated", "evaluation_losses")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(loop, "find_device", lambda: torch.device("cpu"))


def same(a, b):
    equal = [
        torch.equal(x, y) for x, y in zip(*(r.model.parameters() for r in (a, b)), strict=True)
    ]
    return all(equal) and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ARRAYS)


@pytest.mark.parametrize("optimiser", ["AdamW", "Adam", "RAdam", "SGD"])
@pytest.mark.parametrize("stop", [1, 7, 20])
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(tmp_path, optimiser, stop):
    whole = train(CONFIG, TASK, steps=20, optimiser=optimiser, **ASK)
    file = tmp_path / "folder" / "run.safetensors"
    train(CONFIG, TASK, steps=stop, checkpoint=file, optimiser=optimiser, **ASK)
    torch.rand(3)
    resumed = train(CONFIG, TASK, steps=20, checkpoint=file, optimiser=optimiser, **ASK)
    assert same(whole, resumed)
    assert len(resumed.losses) == 20
    assert list(resumed.evaluated) == [3, 6, 9, 12, 15, 18]
    assert not same(whole, train(CONFIG, TASK, steps=19, optimiser=optimiser, **ASK))


def test_an_encoder_decoder_resumes_too(tmp_path):
    task = NoisyTranslation(symbols=5, length=6, pad_share=0.4)
    config = Config(vocab=8, d_model=16, n_layers=1, n_heads=2, tie_embeddings=True)
    whole = train(config, task, steps=9, **ASK)
    train(config, task, steps=5, checkpoint=tmp_path / "a", **ASK)
    assert same(whole, train(config, task, steps=9, checkpoint=tmp_path / "a", **ASK))


def test_a_killed_process_goes_on_from_its_last_checkpoint(tmp_path):
    file = tmp_path / "run.safetensors"
    script = textwrap.dedent(f"""
        import time
        from measured_transformer.models.config import Config
        from measured_transformer.parts.attention_schemes import MultiHead
        from measured_transformer.parts.networks import Plain
        from measured_transformer.tasks.reversal import Reversal
        from measured_transformer.training import checkpoints, loop
        from measured_transformer.training.schedules import WarmupCosine
        import torch
        loop.find_device = lambda: torch.device("cpu")
        write = loop.write_checkpoint
        def slowly(*state):
            write(*state)
            time.sleep(0.2)
        loop.write_checkpoint = slowly
        loop.train({CONFIG!r}, {TASK!r}, steps=400, checkpoint={str(file)!r}, checkpoint_every=5,
                   learning_rate=3e-3, seed=4, batch_size=8, evaluate_every=3, weight_decay=0.1,
                   schedule={ASK["schedule"]!r})
    """)
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 120
        while not file.exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    reached = len(checkpoints.read_tensors(file)[0]["history.losses"])
    assert 0 < reached < 400
    steps = reached + 7
    resumed = train(CONFIG, TASK, steps=steps, checkpoint=file, **ASK)
    assert same(train(CONFIG, TASK, steps=steps, **ASK), resumed)


def test_an_interruption_while_writing_leaves_the_last_whole_file(tmp_path, monkeypatch):
    file = tmp_path / "run.safetensors"
    train(CONFIG, TASK, steps=4, checkpoint=file, **ASK)
    before = file.read_bytes()

    def full_disk(tensors, part, **_):
        part.write_bytes(b"half of it")
        raise OSError("no space left")

    monkeypatch.setattr(checkpoints, "save_file", full_disk)
    with pytest.raises(OSError, match="no space left"):
        train(CONFIG, TASK, steps=8, checkpoint=file, **ASK)
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.safetensors"]


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 5},
        {"learning_rate": 1e-3},
        {"schedule": WarmupCosine(warmup=4, steps=21)},
        {"batch_size": 9},
        {"label_smoothing": 0.1},
        {"task": Reversal(vocab=5, length=5)},
        {"config": CONFIG.replace(dropout=0.1)},
    ],
)
def test_another_trainings_checkpoint_is_refused_and_left_alone(tmp_path, change):
    file = tmp_path / "run.safetensors"
    ask = {"config": CONFIG, "task": TASK, "steps": 4, "checkpoint": file, **ASK}
    train(**ask)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="belongs to another training"):
        train(**{**ask, **change})
    assert file.read_bytes() == before


def test_a_damaged_checkpoint_says_so(tmp_path):
    file = tmp_path / "run.safetensors"
    train(CONFIG, TASK, steps=2, checkpoint=file, **ASK)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match="damaged"):
        train(CONFIG, TASK, steps=4, checkpoint=file, **ASK)


def test_a_diverged_training_stays_diverged(tmp_path):
    config = CONFIG.replace(norm="none", dropout=0.0)
    ask = {"learning_rate": 1e20, "seed": 0, "batch_size": 4, "clip": None}
    ask |= {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    first = train(config, TASK, steps=30, **ask)
    again = train(config, TASK, steps=30, **ask)
    assert first.diverged
    assert again.diverged
    assert np.array_equal(first.losses, again.losses, equal_nan=True)


def test_the_file_can_be_read_without_the_library(tmp_path):
    file = tmp_path / "run.safetensors"
    run = train(CONFIG, TASK, steps=3, checkpoint=file, **ASK)
    with safe_open(file, framework="np") as opened:
        np.testing.assert_array_equal(opened.get_tensor("history.losses"), run.losses)
        head = opened.get_tensor("model.unembedding.weight")
    np.testing.assert_array_equal(head, run.model.unembedding.weight.detach().numpy())
