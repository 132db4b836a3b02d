"""An account adds up, or says that it does not."""

import pytest
import torch
from measured_transformer.analysis.attribution import direct_logits
from measured_transformer.analysis.examination import examine
from measured_transformer.analysis.folding import as_rms_model, fold_norms
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.sums import held_norm, require_sum
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.interop.sides import TargetSide
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.variants import norms
from measured_transformer.variants.norms import DynamicTanh
from torch import nn

CONFIG = Config(vocab=20, d_model=16, n_layers=2, n_heads=4)
TOKENS = torch.randint(20, (3, 7), generator=torch.Generator().manual_seed(0))


def made(prepare=None, kind=Decoder, dtype=torch.float64, **changes):
    torch.manual_seed(0)
    model = kind(CONFIG.replace(**changes))
    if prepare is not None:
        prepare(model)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.to(dtype)


ADD_UP = {
    "plain": made,
    "rms": lambda: made(norm="rms", bias=False),
    "none": lambda: made(norm="none"),
    "tied": lambda: made(tie_embeddings=True),
    "scaled": lambda: made(logit_scale=0.3, head_bias=True),
    "scaled writes": lambda: made(residual_scale=0.3, embedding_scale=3.0, norm="rms"),
    "offset": lambda: made(norm="rms", norm_offset=1.0, bias=False, activation="geglu"),
    "parallel": lambda: made(parallel=True, shared_norm=True, positions="rotary"),
    "norms without weights": lambda: made(norm="layer_plain"),
    "rotary, grouped": lambda: made(positions="rotary", n_kv_heads=2, activation="swiglu"),
    "encoder": lambda: made(kind=Encoder, token_types=2),
    "folded": lambda: fold_norms(made()),
    "folded rms": lambda: fold_norms(made(norm="rms")),
    "as rms": lambda: as_rms_model(made(positions="rotary")),
    "head norms": lambda: made(norms.head_norms),
    "float32": lambda: made(dtype=torch.float32),
    "bfloat16": lambda: made(dtype=torch.bfloat16),
    "target side": lambda: TargetSide(made(kind=EncoderDecoder, vocab=20), TOKENS),
}
DO_NOT = {
    "sandwich": lambda: made(norms.sandwich, norm="rms", bias=False),
    "gated branches": lambda: made(norms.gated_branches, norm="rms", bias=False),
    "tanh norms": lambda: made(norms.tanh_norms),
    "hook": lambda: hooked(made()),
    "unwatched": lambda: dropped(made()),
}


def hooked(model):
    model.blocks[1].feedforward.register_forward_hook(lambda part, inputs, output: 2 * output)
    return model


def dropped(model):
    own = model.blocks[0].forward
    model.blocks[0].forward = lambda *args, **how: 2 * own(*args, **how)
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", ADD_UP)
def test_direct_logits_are_the_models(name):
    model = ADD_UP[name]()
    logits, found = model(TOKENS), direct_logits(model, TOKENS)
    eps = torch.finfo(logits.dtype).eps
    size = found.logits.abs().sum(0).max()
    # Each summand is a product over the width, rounded; so are the sums that the model itself takes.
    rounded = len(found.logits) + CONFIG.d_model
    assert (found.logits.sum(0) - logits).abs().max() < rounded * eps * size
    assert len(set(found.names)) == len(found.logits)


@pytest.mark.parametrize("name", DO_NOT)
def test_direct_logits_that_are_not_the_models_are_refused(name):
    with pytest.raises(ValueError, match=r"do not add up|no linear function"):
        direct_logits(DO_NOT[name](), TOKENS)


def test_the_error_names_the_hooks():
    with pytest.raises(ValueError, match=r"hooks change blocks\.1\.feedforward"):
        direct_logits(hooked(made()), TOKENS)


def test_an_account_under_an_intervention_is_that_of_the_changed_run():
    model = made()
    with torch.no_grad(), intervene(model, {"blocks.0.attention.mixed": 0.0}):
        changed, found = model(TOKENS), direct_logits(model, TOKENS)
    torch.testing.assert_close(found.logits.sum(0), changed)


# The target side has sources of its own for every row; an examination takes one text.
EXAMINED = [name for name in (*ADD_UP, *DO_NOT) if name != "target side"]


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_cap_is_named(norm):
    with pytest.raises(ValueError, match=r"expected logit_cap=None, got 3\.0"):
        direct_logits(made(norm=norm, logit_cap=3.0), TOKENS)
    assert examine(made(norm=norm, logit_cap=3.0), TOKENS[0]).direct_logits is None


@pytest.mark.parametrize("name", EXAMINED)
def test_an_examination_shows_direct_logits_only_where_they_add_up(name):
    model = {**ADD_UP, **DO_NOT}[name]()
    found = examine(model, TOKENS[0])
    assert (found.direct_logits is None) == (name in DO_NOT)


def test_an_examination_and_an_account_agree():
    for model in (made(), fold_norms(made()), made(norm="none")):
        account, found = direct_logits(model, TOKENS[:1]), examine(model, TOKENS[0])
        head = account.logits[account.names.index("blocks.1.attention head 2"), 0]
        apart = (head - head.mean(-1, keepdim=True)).topk(3).values
        torch.testing.assert_close(torch.tensor(found.direct_logits[1, 2, :, :3]), apart)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "rms"}, {"norm": "none"}, {"positions": "alibi"}, {"residual_scale": 0.3}],
)
@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_a_ledger_adds_up_step_by_step(kind, changes):
    account = ledger(made(kind=kind, **changes), TOKENS)
    assert account.step_errors().max() < 1e-12
    assert account.sum_error() < 1e-12


@pytest.mark.parametrize("norm", [LayerNorm(16), LayerNorm(16, bias=False), RMSNorm(16)])
def test_a_held_norm_is_linear_and_gives_what_the_norm_gives(norm):
    norm = norm.double()
    nn.init.normal_(norm.weight)
    x, y = torch.randn(2, 3, 7, 16, dtype=torch.float64)
    with capture(norm, "scale") as seen, torch.no_grad():
        wanted = norm(x)
    with torch.no_grad():
        through, constant = held_norm(norm, seen["scale"])
        own = through(x) if constant is None else through(x) + constant
        torch.testing.assert_close(own, wanted)
        torch.testing.assert_close(through(x - y), through(x) - through(y))


def test_a_norm_of_another_class_is_taken_through_its_scale():
    class Offset(RMSNorm):
        def forward(self, x):
            scale = self.scale((x.square().mean(-1, keepdim=True) + self.eps).sqrt())
            return x / scale * (1 + self.weight) + 0.25

    model = made()
    model.final_norm = Offset(16).double()
    with torch.no_grad():
        torch.testing.assert_close(direct_logits(model, TOKENS).logits.sum(0), model(TOKENS))


def test_what_is_no_linear_function_is_refused():
    with pytest.raises(ValueError, match="a DynamicTanh is no linear function"):
        held_norm(DynamicTanh(16), None)


def test_a_sum_allows_for_rounding_and_nothing_else():
    parts = torch.randn(50, 4, 6)
    require_sum(parts, parts.sum(0), what="the whole", model=nn.Identity())
    for wrong in (parts.sum(0) + 0.1, parts[:-1].sum(0), torch.full((4, 6), torch.nan)):
        with pytest.raises(ValueError, match="add up to the whole"):
            require_sum(parts, wrong, what="the whole", model=nn.Identity())
