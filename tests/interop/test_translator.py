"""A translator and its tokenizer: kept together, refused where they do not fit, never half written."""

import json

import pytest
import torch
from measured_transformer.interop import translator
from measured_transformer.interop.translator import SPECIAL, load_translator, save_translator
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.models.kept_config import config_to_json
from measured_transformer.tasks.text import byte_tokenizer

TEXT = "zwei hunde spielen im schnee two dogs play in the snow"
PIECES = byte_tokenizer(TEXT, 270)
OTHER = byte_tokenizer("a man in a red shirt ein mann in einem roten hemd", 270)


def made(vocab=270 + SPECIAL):
    return EncoderDecoder(Config(vocab=vocab, d_model=8, n_heads=2, n_layers=1)).eval()


def test_what_is_saved_comes_back(tmp_path):
    model, file = made(), tmp_path / "translator.safetensors"
    save_translator(file, model, PIECES.to_str())
    again, tokenizer = load_translator(file, tokenizer=PIECES.to_str())
    assert tokenizer == PIECES.to_str()
    assert not again.training
    source, target = torch.tensor([PIECES.encode(TEXT).ids]), torch.tensor([[271, 5]])
    assert torch.equal(model(source, target), again(source, target))
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_a_tokenizer_that_does_not_fit_is_refused_and_nothing_written(tmp_path):
    file = tmp_path / "translator.safetensors"
    with pytest.raises(ValueError, match="270 pieces and the model 300 tokens"):
        save_translator(file, made(300), PIECES.to_str())
    with pytest.raises(ValueError, match="expected the text of a tokenizer"):
        save_translator(file, made(), "{}")
    assert not list(tmp_path.iterdir())


def test_the_tokenizer_of_another_model_is_refused(tmp_path):
    file = tmp_path / "translator.safetensors"
    save_translator(file, made(), PIECES.to_str())
    with pytest.raises(ValueError, match=r"the tokenizer is not that of .*translator"):
        load_translator(file, tokenizer=OTHER.to_str())


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    model, file = made(), tmp_path / "translator.safetensors"
    save_translator(file, model, PIECES.to_str())
    before = file.read_bytes()

    def half(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(translator, "save_file", half)
    with pytest.raises(OSError, match="disk full"):
        save_translator(file, made(), PIECES.to_str())
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_other_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(FileNotFoundError, match="expected the file of a translator"):
        load_translator(tmp_path / "none")
    (tmp_path / "damaged").write_bytes(b"\x00" * 20)
    with pytest.raises(ValueError, match="is damaged"):
        load_translator(tmp_path / "damaged")
    save_file({"a": torch.zeros(2)}, tmp_path / "weights")
    with pytest.raises(ValueError, match="lacks config, tokenizer"):
        load_translator(tmp_path / "weights")
    config = config_to_json(Config(vocab=274, d_model=8, n_heads=2, n_layers=1))
    about = {"config": json.dumps(config), "tokenizer": PIECES.to_str()}
    save_file({"a": torch.zeros(2)}, tmp_path / "alien", metadata=about)
    with pytest.raises(ValueError, match=r"alien.*do not fit the config"):
        load_translator(tmp_path / "alien")
