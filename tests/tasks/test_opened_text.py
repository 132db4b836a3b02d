"""The text behind a start token: its parts, its windows, its checks."""

import pytest
import torch
from measured_transformer.tasks import opened_text
from measured_transformer.tasks.opened_text import OpenedText, characters


def test_parts_share_no_text_and_make_up_the_whole():
    whole = sum(len(characters(part)) for part in ("train", "validation", "test"))
    assert len(characters("train")) == pytest.approx(0.8 * whole, abs=1)
    assert whole > 100_000


def test_windows_are_of_the_text_and_behind_a_start_token():
    task = OpenedText(length=9, part="test")
    batch = task.batch(torch.Generator().manual_seed(1), 5)
    assert batch.inputs.shape == batch.targets.shape == (5, 9)
    assert batch.inputs[:, 0].eq(task.vocab - 1).all()
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert batch.scored.all()
    windows = characters("test").unfold(0, 9, 1)
    for target in batch.targets:
        assert (windows == target).all(-1).any()
    assert task.batch(torch.Generator().manual_seed(1), 2, length=4).inputs.shape == (2, 4)


def test_another_file_is_refused(monkeypatch):
    opened_text.whole_text.cache_clear()
    monkeypatch.setattr(opened_text, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match="with SHA-256 000"):
        characters.__wrapped__("train")
    with pytest.raises(ValueError, match="length"):
        OpenedText(length=0)
