"""A text file of one's own as a task: its parts, its tokens, and what it is told when it will not do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from measured_transformer import Config, TextFile, evaluate, generate, train
from measured_transformer.tasks.byte_pairs import learn_merges
from measured_transformer.tasks.task import SplitTask, held_out

WORDS = "Der Zug fährt über die Brücke, und das Wasser fließt — wohin? ☃ 🙂\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A text whose lines are numbered, so that no two places are alike."""
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"{i}: {WORDS}" for i in range(100)), "utf-8")
    return path


def windows(task: TextFile, size: int = 200, length: int | None = None) -> list[str]:
    batch = task.batch(torch.Generator().manual_seed(3), size, length=length)
    whole = torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1)
    return [task.decode(row) for row in whole]


def test_the_parts_follow_one_another_and_are_the_whole_file(file: Path):
    for level in ("byte", "character"):
        task = TextFile(file, level=level)
        parts = [held_out(task, part) for part in ("train", "validation", "test")]
        counts = [len(part.tokens()) for part in parts]
        whole: Any = file.read_bytes() if level == "byte" else file.read_text("utf-8")
        assert sum(counts) == len(whole)
        assert counts[0] == round(0.8 * len(whole))
        assert counts[1] == pytest.approx(counts[2], abs=1)
    task = TextFile(file, train_share=0.5)
    read = b"".join(
        bytes(held_out(task, part).tokens().tolist()) for part in ("train", "validation", "test")
    )
    assert read == file.read_bytes()
    assert len(task.tokens()) == round(0.5 * len(read))


@pytest.mark.parametrize("settings", [{}, {"level": "character"}, {"merges": 40}])
def test_windows_are_of_their_own_part_and_of_no_other(file: Path, settings: dict[str, Any]):
    task = TextFile(file, length=100, **settings)  # more than a line, so that a number is in it
    assert isinstance(task, SplitTask)
    known = task.part
    for part in ("train", "validation", "test"):
        one = held_out(task, part)
        text = one.decode(one.tokens())
        assert all(window in text for window in windows(one) if "\ufffd" not in window)
        others = [
            held_out(task, other) for other in ("train", "validation", "test") if other != part
        ]
        assert not any(window in o.decode(o.tokens()) for o in others for window in windows(one))
    assert task.part == known == "train"


def test_targets_are_the_tokens_that_follow(file: Path):
    batch = TextFile(file, length=20).batch(torch.Generator().manual_seed(0), 7)
    assert batch.inputs.shape == batch.targets.shape == (7, 20)
    assert batch.inputs.dtype == torch.int64
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert bool(batch.scored.all())
    text = file.read_bytes()
    for row, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert bytes([*row, target[-1]]) in text[: round(0.8 * len(text))]


def test_pieces_are_learned_from_the_training_part_alone(tmp_path: Path):
    path = tmp_path / "t"
    path.write_bytes(b"ab " * 400 + b"xy " * 100)
    task = TextFile(path, merges=50, length=8)
    assert task.encode("ab")[0] >= 256
    assert task.encode("xy") == list(b"xy")
    train = path.read_bytes()[: round(0.8 * 1500)]
    assert task.vocab == 256 + len(learn_merges(train, 50)) < 306


def test_the_vocabulary_holds_what_there_is(file: Path):
    assert TextFile(file).vocab == 256
    assert TextFile(file, merges=30).vocab == 286
    text = file.read_text("utf-8")
    characters = TextFile(file, level="character")
    assert characters.vocab == 1 + len(set(text[: round(0.8 * len(text))]))


def test_a_character_that_training_lacks_is_unknown(tmp_path: Path):
    path = tmp_path / "t"
    path.write_text("abc" * 100 + "z" * 50, "utf-8")
    task = TextFile(path, level="character", length=5)
    assert task.encode("cabz") == [3, 1, 2, 0]
    assert task.decode([3, 1, 2, 0]) == "cab\ufffd"
    assert int(held_out(task, "test").tokens().max()) == 0


@pytest.mark.parametrize("settings", [{}, {"merges": 60}])
def test_any_text_can_be_written_in_bytes(file: Path, settings: dict[str, Any]):
    task = TextFile(file, **settings)
    for text in (WORDS, "", "日本語", "\x00\x7f\n\t", "Brücke" * 3):
        tokens = task.encode(text)
        assert task.decode(tokens) == text
        assert task.decode(torch.tensor(tokens, dtype=torch.int64)) == text
        assert b"".join(task._pieces()[token] for token in tokens) == text.encode()
    assert len(TextFile(file, merges=60).encode(WORDS)) < len(WORDS.encode())


def test_tokens_have_names(file: Path):
    task = TextFile(file)
    assert [task.string(token) for token in task.encode("aü")] == ["a", "\\xc3", "\\xbc"]
    assert task.decode([0xC3]) == "\ufffd"
    merged = TextFile(file, merges=60)
    names = [merged.string(token) for token in range(256, merged.vocab)]
    assert "Zug" in {name.strip() for name in names}
    assert TextFile(file, level="character").string(0) == "\ufffd"


def test_a_path_may_be_text_or_path(file: Path):
    task = TextFile(str(file))
    assert task == TextFile(file)
    assert task.path == str(file)
    assert eval(repr(task), {"TextFile": TextFile}) == task


def test_what_a_task_says_of_itself_names_the_text(file: Path):
    task = TextFile(file)
    file.write_text(file.read_text("utf-8").replace("Zug", "Bus"), "utf-8")
    other = TextFile(file)
    assert task != other
    assert task.sha256 in repr(task)
    with pytest.raises(ValueError, match="is not the file that the task was made for"):
        dataclasses.replace(task, part="test")


def test_a_file_that_changes_under_way_is_noticed(file: Path):
    task = TextFile(file, merges=3)
    file.write_text("another text " * 100)
    first = windows(task, 3)  # it has been read
    from measured_transformer.tasks import text_file

    for cached in (text_file._part, text_file._cut):
        cached.cache_clear()
    with pytest.raises(ValueError, match="make the task anew"):
        windows(task, 3)
    assert all(first)


def test_the_unigram_loss_is_what_it_says(tmp_path: Path):
    path = tmp_path / "t"
    path.write_bytes(b"ab" * 500)
    expected = torch.tensor([401.0 / 1056]).double().log().neg().item()
    assert TextFile(path, length=4).unigram_loss() == pytest.approx(expected)


def test_three_lines_train_a_model_and_another_writes(file: Path):
    task = TextFile(file, length=48)
    config = Config(vocab=task.vocab, d_model=32, n_layers=1, positions="rotary")
    run = train(config, task, steps=80, learning_rate=1e-2, seed=0, batch_size=16)
    score = evaluate(run.model, task, seed=0)
    assert score.part == "validation"
    assert score.loss < held_out(task).unigram_loss() - 1
    written = generate(run.model, [task.encode("7: Der Zug f")], max_new_tokens=12)
    assert task.decode(written.tokens[0]).startswith("ährt")


def test_training_beyond_the_file_is_a_training_of_another_text(file: Path, tmp_path: Path):
    config, kept = Config(vocab=256, d_model=16, n_layers=1), tmp_path / "kept"
    settings: dict[str, Any] = {
        "learning_rate": 1e-3,
        "seed": 0,
        "batch_size": 2,
        "checkpoint": kept,
    }
    train(config, TextFile(file), steps=2, **settings)
    train(config, TextFile(file), steps=3, **settings)
    file.write_text(file.read_text("utf-8") + "more", "utf-8")
    with pytest.raises(ValueError, match="belongs to another training"):
        train(config, TextFile(file), steps=4, **settings)


# What will not do -----------------------------------------------------------------------------------


def test_no_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"expected a text file, got nothing there: .*mine"):
        TextFile(tmp_path / "mine.txt")
    with pytest.raises(FileNotFoundError, match="expected a text file, got a folder"):
        TextFile(tmp_path)


def test_an_empty_file(tmp_path: Path):
    (tmp_path / "t").write_text("")
    with pytest.raises(ValueError, match="expected a text to learn from, got the empty file"):
        TextFile(tmp_path / "t")


def test_no_characters(tmp_path: Path):
    (tmp_path / "t").write_bytes("é".encode() * 100 + b"\xe9" + b"a" * 900)
    with pytest.raises(ValueError, match=r"is no UTF-8 \(byte 200 is 0xe9\).*level='byte'"):
        TextFile(tmp_path / "t", level="character")
    assert TextFile(tmp_path / "t").vocab == 256


def test_a_file_or_part_that_is_too_short(tmp_path: Path):
    path = tmp_path / "t"
    path.write_text("x" * 650)  # 520, 65 and 65
    assert TextFile(path, length=64)
    with pytest.raises(
        ValueError, match=r"the validation part of .* has 65 tokens, too few .*length=65"
    ):
        TextFile(path, length=65)
    with pytest.raises(
        ValueError, match=r"the train part of .* has 520 tokens.*expected at least 521"
    ):
        TextFile(path, length=520)
    task = TextFile(path)
    assert task.batch(torch.Generator(), 2, length=519).inputs.shape == (2, 519)
    with pytest.raises(ValueError, match="the validation part"):
        held_out(task).batch(torch.Generator(), 2, length=66)
    path.write_text("x")
    with pytest.raises(ValueError, match=r"the train part of .* has 1 tokens"):
        TextFile(path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"length": 0}, "length must be a positive whole number, got 0"),
        ({"merges": -1}, "merges must be 0 or a positive whole number, got -1"),
        ({"level": "word"}, "level must be one of byte, character, got 'word'"),
        ({"part": "dev"}, "part must be one of train, validation, test, got 'dev'"),
        ({"merges": 3, "level": "character"}, "merges are of bytes"),
        ({"train_share": 1.0}, "train_share must lie between 0 and 1, got 1.0"),
        ({"sha256": "0"}, "expected SHA-256 0, got"),
    ],
)
@pytest.mark.usefixtures("unhooked")
def test_settings_that_will_not_do(file: Path, settings: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        TextFile(file, **settings)


@pytest.mark.usefixtures("unhooked")
def test_what_is_no_text_and_no_token(file: Path):
    task: Any = TextFile(file)
    with pytest.raises(ValueError, match="expected a text, got list"):
        task.encode([1])
    for wrong in ([256], [-1], ["a"]):
        with pytest.raises(ValueError, match="expected tokens from 0 to 255, got"):
            task.decode(wrong)
    with pytest.raises(ValueError, match="expected tokens from 0 to 255, got 300"):
        task.string(300)
