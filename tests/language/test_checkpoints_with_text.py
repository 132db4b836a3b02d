"""A model and its tokenizer read together, from a GGUF file and from a folder, as `transformers` reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from measured_transformer import LanguageModel
from measured_transformer.language import TextEncoder

pytest.importorskip("gguf", reason="reads GGUF files: pip install gguf")
transformers = pytest.importorskip("transformers", reason="the reference is not installed")

sys.path.append(str(Path(__file__).parents[1] / "interop"))

from gguf_reference import write_llama  # noqa: E402
from gguf_tokenizers import TEMPLATE, TEXTS, byte_level  # noqa: E402
from hf_reference import randomise  # noqa: E402
from tokenizers import pre_tokenizers  # noqa: E402

LETTERS = pre_tokenizers.ByteLevel(add_prefix_space=False)
SIZES = {"vocab_size": 530, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture
def llama():
    config = transformers.LlamaConfig(
        **SIZES, intermediate_size=64, num_key_value_heads=2, max_position_embeddings=300
    )
    model = transformers.LlamaForCausalLM(config)
    randomise(model)
    return model.eval()


def check_generation(lm, theirs, tokenizer):
    for text in TEXTS[:3]:
        read = tokenizer(text, return_tensors="pt")
        written = theirs.generate(**read, max_new_tokens=8, do_sample=False, eos_token_id=2)
        new = written[0, read["input_ids"].shape[1] :]
        assert lm.generate(text, 8) == tokenizer.decode(new, skip_special_tokens=True)
    messages = [{"role": "user", "content": "Hello, how are you?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    read = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    written = theirs.generate(**read, max_new_tokens=8, do_sample=False, eos_token_id=2)
    new = written[0, read["input_ids"].shape[1] :]
    assert lm.chat(messages, 8) == tokenizer.decode(new, skip_special_tokens=True).strip()


def test_a_gguf_file_writes_what_transformers_writes_from_it(tmp_path, llama):
    keys, _ = byte_level("gpt-2", LETTERS)
    named = {"general.name": "A Model"}
    path = write_llama(tmp_path / "model.gguf", llama, "Q8_0", tokenizer=keys, changed=named)
    lm = LanguageModel.from_gguf(path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    with torch.no_grad():
        for text in TEXTS:
            expected = theirs(**tokenizer(text, return_tensors="pt")).logits
            torch.testing.assert_close(lm(text), expected, rtol=1e-5, atol=1e-4)
    check_generation(lm, theirs, tokenizer)
    assert lm.context == 300
    assert lm.about == "A Model, 8 bits (Q8_0)"
    assert "A Model, 8 bits (Q8_0); 2 blocks" in repr(lm)


def test_a_file_without_a_name_is_called_as_it_is(tmp_path, llama):
    keys, _ = byte_level("gpt-2", LETTERS)
    path = write_llama(tmp_path / "small.gguf", llama, "F16", tokenizer=keys)
    assert LanguageModel.from_gguf(path).about == "small, 16 bits (F16)"
    lm = LanguageModel.from_gguf(path, dtype=torch.float64, name="mine")
    assert lm.about.startswith("mine, ")
    assert lm("a").dtype == torch.float64


def test_a_folder_writes_what_transformers_writes_from_it(tmp_path, llama):
    keys, origin = byte_level("gpt-2", LETTERS)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=origin, eos_token="<|im_end|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(tmp_path)
    llama.save_pretrained(tmp_path)
    lm = LanguageModel.from_huggingface(tmp_path)
    assert len(lm.tokenizer) == len(keys["tokenizer.ggml.tokens"])
    assert lm.tokenizer.stop == (2,)
    check_generation(lm, llama, tokenizer)


def test_an_encoder_is_read_from_a_folder(tmp_path):
    _, origin = byte_level("gpt-2", LETTERS)
    origin.save(str(tmp_path / "tokenizer.json"))
    theirs = transformers.BertModel(transformers.BertConfig(**SIZES, intermediate_size=64)).eval()
    theirs.save_pretrained(tmp_path)
    encoder = TextEncoder.from_huggingface(tmp_path)
    with torch.no_grad():
        for text in TEXTS:
            tokens = torch.tensor([origin.encode(text).ids])
            expected = theirs(tokens).last_hidden_state
            torch.testing.assert_close(encoder(text), expected, rtol=1e-4, atol=1e-4)
    assert encoder.context == 512


def test_an_encoder_is_no_language_model(unhooked, tmp_path):
    _, origin = byte_level("gpt-2", LETTERS)
    origin.save(str(tmp_path / "tokenizer.json"))
    transformers.BertModel(transformers.BertConfig(**SIZES, intermediate_size=64)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match="Decoder with logits, got Encoder"):
        LanguageModel.from_huggingface(tmp_path)
