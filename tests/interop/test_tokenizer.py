"""Tokenizers that come with a checkpoint, equal to what `transformers` makes of the same files."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import pytest
import torch
from measured_transformer.interop import Tokenizer
from measured_transformer.interop.gguf_tokenizer import PRE_TOKENIZERS

pytest.importorskip("gguf", reason="reads GGUF files: pip install gguf")
transformers = pytest.importorskip("transformers", reason="the reference is not installed")

from gguf_reference import write_llama  # noqa: E402
from gguf_tokenizers import SPECIAL, TEMPLATE, TEXTS, byte_level, sentence_pieces  # noqa: E402
from tokenizers import Regex, pre_tokenizers  # noqa: E402
from tokenizers import Tokenizer as Backend  # noqa: E402

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello, 東京!"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Why?"},
]
LETTERS = pre_tokenizers.ByteLevel(add_prefix_space=False)
APART = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), LETTERS])


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


CUTS = {
    "gpt-2": LETTERS,
    "smollm": APART,
    "llama-bpe": split(PRE_TOKENIZERS["llama-bpe"]),
    "qwen2": split(PRE_TOKENIZERS["qwen2"]),
}


@pytest.fixture(scope="module")
def tiny():
    config = transformers.LlamaConfig(
        vocab_size=600,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def file_with(tmp_path, tiny, keys, **changed):
    return write_llama(tmp_path / "model.gguf", tiny, tokenizer={**keys, **changed})


def by_transformers(path):
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@pytest.mark.parametrize("pre", CUTS)
def test_byte_level_bpe_is_that_of_transformers_and_of_the_tokenizer_it_was_taken_from(
    tmp_path, tiny, pre
):
    keys, origin = byte_level(pre, CUTS[pre])
    path = file_with(tmp_path, tiny, keys)
    ours, theirs = Tokenizer.from_gguf(path), by_transformers(path)
    assert len(ours) == len(keys["tokenizer.ggml.tokens"])
    for text in [*TEXTS, "<|im_start|>user\nHello<|im_end|>"]:
        found = ours.encode(text)
        assert found == origin.encode(text).ids
        if pre != "smollm":  # theirs leaves digits together
            assert found == theirs(text)["input_ids"]
        assert ours.decode(found, special=True) == text
        assert "".join(ours.tokens(text)) == text or "<0x" in "".join(ours.tokens(text))


def test_every_cut_is_one_that_keeps_the_whole_text():
    for name, pattern in PRE_TOKENIZERS.items():
        cut = split(pattern) if "|" in pattern else APART
        for text in TEXTS:
            pieces = cut.pre_tokenize_str(text)
            assert pieces[0][1][0] == 0, name
            assert pieces[-1][1][1] == len(text), name
            ends = [(a[1][1], b[1][0]) for a, b in pairwise(pieces)]
            assert all(end == begin for end, begin in ends), name


def test_sentence_pieces_are_those_of_transformers_and_of_the_tokenizer_they_were_taken_from(
    tmp_path, tiny
):
    keys, origin = sentence_pieces()
    path = file_with(tmp_path, tiny, keys)
    ours, theirs = Tokenizer.from_gguf(path), by_transformers(path)
    for text in TEXTS:
        assert ours.encode(text, special=False) == origin.encode(text).ids
        assert ours.encode(text)[0] == 1, "these files begin every text with <s>"
        assert ours.decode(ours.encode(text)) == text
        if not text.startswith(" "):  # theirs adds no space there, SentencePiece does
            assert ours.encode(text) == theirs(text)["input_ids"]
    assert "<0xE8>" in ours.tokens("語"), "what is not in the vocabulary becomes bytes"
    assert ours.tokens("The capital")[:2] == ["<s>", " The"]
    assert ours.string(ours.token(" The")) == " The"


def test_tokens_of_the_beginning_and_end_are_added_where_the_file_says_so(tmp_path, tiny):
    keys, _ = byte_level("gpt-2", LETTERS)
    changed = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    path = file_with(tmp_path, tiny, keys, **changed)
    ours = Tokenizer.from_gguf(path)
    plain = ours.encode("ab", special=False)
    assert ours.encode("ab") == [1, *plain, 2]
    assert ours.decode(ours.encode("ab")) == "ab"


def test_a_conversation_is_written_as_transformers_writes_it(tmp_path, tiny):
    keys, _ = byte_level("gpt-2", LETTERS)
    path = file_with(tmp_path, tiny, keys)
    ours, theirs = Tokenizer.from_gguf(path), by_transformers(path)
    for answer in (True, False):
        expected = theirs.apply_chat_template(
            MESSAGES, tokenize=False, add_generation_prompt=answer
        )
        assert ours.chat(MESSAGES, answer=answer) == expected
    assert ours.chat("Hello") == ours.chat([{"role": "user", "content": "Hello"}])


@pytest.mark.parametrize("place", ["settings", "a file", "named"])
def test_a_folder_of_the_hugging_face_format_is_read(tmp_path, place):
    _, origin = byte_level("gpt-2", LETTERS)
    origin.save(str(tmp_path / "tokenizer.json"))
    about = {"bos_token": SPECIAL[1], "eos_token": {"__type": "AddedToken", "content": SPECIAL[2]}}
    if place == "settings":
        about["chat_template"] = TEMPLATE
    elif place == "named":
        about["chat_template"] = [{"name": "default", "template": TEMPLATE}]
    else:
        (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**about, "tokenizer_class": "PreTrainedTokenizerFast"})
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    ours = Tokenizer.from_huggingface(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]
    assert ours.special == {"bos_token": 1, "eos_token": 2}
    assert ours.stop == (2, 0)
    expected = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert ours.chat(MESSAGES) == expected
    assert "chat template" in repr(ours)


def test_padding_and_cutting_of_a_folder_are_left_out(tmp_path):
    _, origin = byte_level("gpt-2", LETTERS)
    origin.enable_padding(length=50)
    origin.enable_truncation(3)
    origin.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_huggingface(tmp_path)
    assert ours.decode(ours.encode(TEXTS[0])) == TEXTS[0]


# Tokens as strings, and where words stand -----------------------------------------------------------


def test_a_part_of_a_character_is_shown_by_its_bytes():
    ours = Tokenizer.of_bytes()
    assert ours.tokens("aé ") == ["a", "<0xC3>", "<0xA9>", " "]
    assert ours.encode("aé\n") == list("aé\n".encode())
    assert all(ours.decode(list(text.encode())) == text for text in TEXTS)
    assert ours.string(256) == "<unused 256>"
    assert len(ours) == 256


def test_tokens_of_a_tensor_are_decoded():
    ours = Tokenizer.of_bytes()
    tokens = torch.tensor([ours.encode("Köln")])
    assert ours.decode(tokens) == ours.decode(tokens[0]) == "Köln"
    assert ours.string(tokens[0, 0]) == "K"
    with pytest.raises(ValueError, match=r"one text, got shape \(2, 5\)"):
        ours.decode(tokens.repeat(2, 1))


def test_words_are_found_where_they_stand():
    ours = Tokenizer.of_bytes()
    text = "The cat sat. A category, the cat!"
    assert ours.positions(text, "sat") == [8, 9, 10]
    assert ours.positions(text, "category") == list(range(15, 23))
    assert ours.positions(text, "cat", which=0) == [4, 5, 6]
    assert ours.positions(text, "cat", which=-1) == [29, 30, 31]
    assert ours.positions(text, "egory") == list(range(18, 23)), "nowhere else than inside"
    assert ours.positions("aé b", "é") == [1, 2]
    with pytest.raises(ValueError, match="'cat' stands in the text 2 times: say which"):
        ours.positions(text, "cat")
    with pytest.raises(ValueError, match="2 times, got which=2"):
        ours.positions(text, "cat", which=2)
    with pytest.raises(ValueError, match="'dog' does not stand in the text, whose words are: The"):
        ours.positions(text, "dog")
    with pytest.raises(ValueError, match="expected a word"):
        ours.positions(text, " ")


def test_positions_count_the_tokens_that_are_added_in_front(tmp_path, tiny):
    keys, _ = sentence_pieces()
    ours = Tokenizer.from_gguf(file_with(tmp_path, tiny, keys))
    text = "The capital of France is Paris"
    places = ours.positions(text, "France")
    strings = ours.tokens(text)
    assert "".join(strings[place] for place in places).strip() == "France"
    assert 0 not in places


def test_the_one_token_of_a_string():
    ours = Tokenizer.of_bytes()
    assert ours.token("a") == 97
    with pytest.raises(ValueError, match=r"one token, got 'ab', which takes 2: \['a', 'b'\]"):
        ours.token("ab")


# What is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer.ggml.pre": "unheard-of"}, r"tokenizer\.ggml\.pre='unheard-of'.*qwen2"),
        ({"tokenizer.ggml.model": "bert"}, r"tokenizer\.ggml\.model='bert', which is not"),
        ({"tokenizer.ggml.model": None}, "holds no tokenizer"),
        ({"tokenizer.ggml.merges": None}, r"lacks tokenizer\.ggml\.merges"),
    ],
)
def test_what_is_not_built_is_named(tmp_path, tiny, changed, said):
    keys, _ = byte_level("gpt-2", LETTERS)
    with pytest.raises(ValueError, match=said):
        Tokenizer.from_gguf(file_with(tmp_path, tiny, keys, **changed))


def test_a_conversation_that_the_template_or_the_form_does_not_allow_is_refused(tmp_path, tiny):
    keys, _ = byte_level("gpt-2", LETTERS)
    ours = Tokenizer.from_gguf(file_with(tmp_path, tiny, keys))
    with pytest.raises(ValueError, match="'role' and 'content'"):
        ours.chat([{"content": "Hello"}])
    ours.chat_template = "{{ raise_exception('only two may speak') }}"
    with pytest.raises(ValueError, match="refuses these messages: only two may speak"):
        ours.chat("Hello")
    with pytest.raises(ValueError, match="no chat template"):
        Tokenizer.of_bytes().chat("Hello")


def test_missing_packages_and_files_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"folder with tokenizer\.json"):
        Tokenizer.from_huggingface(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is damaged"):
        Tokenizer.from_huggingface(tmp_path)
    ours = Tokenizer.of_bytes()
    ours.chat_template = TEMPLATE
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match="pip install jinja2"):
        ours.chat("Hello")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="pip install tokenizers"):
        Tokenizer.of_bytes()


def test_a_tokenizer_that_was_trained_can_be_wrapped():
    _, origin = byte_level("gpt-2", LETTERS)
    assert isinstance(origin, Backend)
    ours = Tokenizer(origin, stop=[2])
    assert ours.encode(TEXTS[1]) == origin.encode(TEXTS[1]).ids
    assert ours.stop == (2,)
