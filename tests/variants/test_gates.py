"""Gates multiply what each head passes on, by a sigmoid of the state that its query is made of."""

import copy

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.jobs import make_jobs
from measured_transformer.training.loop import train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.training.store import Store
from measured_transformer.variants.gates import gate_heads

CONFIG = Config(vocab=9, d_model=16, n_heads=2, n_layers=2, positions="rotary", bias=False)


@pytest.fixture
def tokens():
    return torch.randint(9, (3, 7), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def pair():
    torch.manual_seed(0)
    plain = Decoder(CONFIG).double().eval()
    gated = copy.deepcopy(plain)
    gate_heads(gated)
    return plain, gated


def test_fresh_gates_halve_what_attention_writes(pair, tokens):
    plain, gated = pair
    with intervene(plain, {"*.attention.out": lambda out: out / 2}):
        wanted = plain(tokens)
    torch.testing.assert_close(gated(tokens), wanted)


def test_a_gate_multiplies_its_own_head_by_a_sigmoid_of_the_norm_of_the_stream(pair, tokens):
    _, gated = pair
    attention = gated.blocks[0].attention
    torch.nn.init.normal_(attention.mixed.gate.weight)
    with capture(gated, "blocks.0.*") as seen:
        gated(tokens)
    asking = gated.blocks[0].attention_norm(seen["blocks.0.residual_pre"])
    gates = (asking @ attention.mixed.gate.weight.T).sigmoid()
    torch.testing.assert_close(seen["blocks.0.attention.mixed.opened"], gates.transpose(1, 2))
    read = seen["blocks.0.attention.pattern"] @ seen["blocks.0.attention.values"]
    passed = gates.transpose(1, 2)[..., None] * read
    torch.testing.assert_close(seen["blocks.0.attention.mixed"], passed)


def test_gates_are_learned_kept_in_a_store_and_trained_in_stacks(tmp_path):
    task = Reversal(vocab=4, length=4)
    config = CONFIG.replace(vocab=task.vocab)
    given = {"steps": 5, "learning_rate": 0.03, "batch_size": 4, "prepare": gate_heads}
    run = train(config, task, seed=1, **given)
    weights = {name: w for name, w in run.model.named_parameters() if "mixed.gate" in name}
    assert len(weights) == 2
    assert all(bool(w.abs().sum() > 0) for w in weights.values())
    stacked, _ = train_stacked(config, task, (1, 2), **given)
    torch.testing.assert_close(stacked.losses, run.losses, rtol=1e-4, atol=1e-5)
    (job,) = make_jobs(config, task, [1], given)
    store = Store(tmp_path)
    job.load_or_train(store)
    again = job.load_or_train(store).model
    for name, weight in weights.items():
        assert torch.equal(again.get_parameter(name), weight)


def test_heads_get_gates_once(pair):
    with pytest.raises(ValueError, match="without gates"):
        gate_heads(pair[1])


def test_gates_do_not_pass_what_nobody_asked_for(pair):
    with pytest.raises(ValueError, match="state to compute the gates from"):
        pair[1].blocks[0].attention.mixed(torch.zeros(1, 2, 3, 8))
