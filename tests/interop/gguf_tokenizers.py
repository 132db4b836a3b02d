"""Small tokenizers as GGUF files hold them, trained on a few sentences."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "The capital of France is Paris, isn't it? It's 3,141,592 people's city!",
    "def f(x):\n    if x >= 10:\n\treturn {'a': [1, 2, 3]}  # what's  that\n\n\n",
    "Straße, naïve café, Ελλάδα, Москва, 東京都, 한국어, עברית 🙂👩‍👩‍👧‍👦 ½ ² ٣ 12345678",
    "tabs\t\tand   many    spaces \r\n\r\n line ends\n \n  x",
    "HTML &amp; URLs: https://example.org/a_b?c=d#e — “quotes” … I'LL DON'T we'Re",
    "ab",
    " ",
    "zzzzzzzzzz" * 5,
]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(pre: str, cut: pre_tokenizers.PreTokenizer) -> tuple[dict[str, Any], Any]:
    """The metadata of a byte-level BPE, and the tokenizer that it was taken from."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = cut, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=520,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXTS * 3, trainer)
    tokens = [made.id_to_token(i) for i in range(made.get_vocab_size())]
    merges = [" ".join(pair) for pair in _state(made)["model"]["merges"]]
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    return keys, made


def sentence_pieces() -> tuple[dict[str, Any], Any]:
    """The metadata of a BPE of SentencePiece's kind, with scores and no merges, and what it was taken from."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    made.train_from_iterator(TEXTS * 3, trainer)
    state = _state(made)
    tokens = [made.id_to_token(i) for i in range(made.get_vocab_size())]
    order = {"".join(pair): i for i, pair in reversed(list(enumerate(state["model"]["merges"])))}
    kinds = {"<unk>": 2, "<s>": 3, "</s>": 3, **dict.fromkeys(special[3:], 6)}
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(order.get(token, 100_000)) for token in tokens],
        "tokenizer.ggml.token_type": [kinds.get(token, 1) for token in tokens],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    made.pre_tokenizer = None
    return keys, made


def _state(made: Any) -> dict[str, Any]:
    import json

    return json.loads(made.to_str())
