r"""What the chapter on the residual stream measures: a sum of parts, who reads which, and how long they are.

The *parts* of a stream are its summands: the tokens' vectors, the positions' vectors, and what each sublayer
writes. Every sublayer reads the sum of the parts before it, and the logits are read from the sum of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.mirroring import mirror_attention
from measured_transformer.analysis.residual import (
    Ledger,
    ledger,
    random_model,
    stream_norms,
    write_cosines,
    write_ratios,
)
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator, seeded
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# The parts of a stream ------------------------------------------------------------------------------


@torch.no_grad()
def parts_of(
    model: Decoder | Encoder, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "part batch position d_model"]:
    """The summands of the stream: tokens, positions (zero where the scheme adds none), then every write."""
    account = ledger(model, tokens)
    token_vectors = model.embedding_scale * model.token_embedding(tokens)
    first = torch.stack([token_vectors, account.states[0] - token_vectors])
    return torch.cat([first, account.writes])


@torch.no_grad()
def logit_parts(
    model: Decoder | Encoder, parts: Float[Tensor, "part batch position d_model"]
) -> Float[Tensor, "row batch position vocab"]:
    r"""What each part of the stream adds to the logits, and last what the final norm's bias adds.

    A norm divides by a number that depends on the whole sum. With that number held at its value in this pass
    ("frozen"), all that follows is linear, and the parts' logits add up to the model's.

    Raises:
        ValueError: when the model has no linear head, or a final norm of another kind.
    """
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError("the logits are a sum of parts only in a model with head='linear'")
    norm, reads = model.final_norm, model.unembedding.weight.T
    total = parts.sum(0)
    if isinstance(norm, LayerNorm):
        parts, total = (each - each.mean(dim=-1, keepdim=True) for each in (parts, total))
    elif not isinstance(norm, RMSNorm):
        raise ValueError(
            f"expected a LayerNorm or an RMSNorm at the end, got {type(norm).__name__}"
        )
    divisor = (total.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
    shift = norm.bias if isinstance(norm, LayerNorm) else None
    constant = torch.zeros_like(total[None]) if shift is None else shift.expand_as(total)[None]
    return torch.cat([parts / divisor * norm.weight, constant]) @ reads


@torch.no_grad()
def with_cut(
    model: Decoder | Encoder,
    tokens: Int[Tensor, "batch position"],
    sender: int,
    readers: Sequence[str],
) -> Float[Tensor, "batch position vocab"]:
    """The logits when some readers see one part as its mean, and all others see the stream as it is.

    Args:
        model: with pre-norm blocks, and positions that enter at the embedding or nowhere.
        tokens: a batch; the mean is over its sequences and positions.
        sender: the part's number in `parts_of`.
        readers: such as "queries 1" or "network 2", blocks counted from one, or "logits".

    Raises:
        ValueError: when the model is of another kind.
    """
    if model.config.placement != "pre" or model.config.positions in ("rotary", "alibi", "relative"):
        raise ValueError(
            "expected pre-norm blocks and positions that enter at the embedding, got "
            f"placement={model.config.placement!r} and positions={model.config.positions!r}"
        )
    parts = list(parts_of(model, tokens)[:2])

    def seen(reader: str) -> Tensor:
        stream = torch.stack(parts).sum(0)
        if reader not in readers or sender >= len(parts):
            return stream
        return stream - parts[sender] + parts[sender].mean(dim=(0, 1))

    for place, each in enumerate(model.blocks, start=1):
        block = cast(Block, each)
        reads = [block.attention_norm(seen(f"{what} {place}")) for what in READ]
        parts.append(attention_of(block.attention, *reads, causal=model.causal))
        parts.append(block.feedforward(block.feedforward_norm(seen(f"network {place}"))))
    return model.unembed(seen("logits"))


READ = ("queries", "keys", "values")
"""What attention reads the stream for."""


def attention_of(
    attention: MultiHeadAttention,
    for_queries: Float[Tensor, "batch position d_model"],
    for_keys: Float[Tensor, "batch position d_model"],
    for_values: Float[Tensor, "batch position d_model"],
    *,
    causal: bool,
) -> Float[Tensor, "batch position d_model"]:
    """What attention writes when its queries, keys and values read three different streams."""
    with capture(attention, "queries") as asked:
        attention(for_queries, causal=causal)
    with capture(attention, "values") as told:
        attention(for_values, causal=causal)
    with intervene(attention, {"queries": asked["queries"], "values": told["values"]}):
        return attention(for_keys, causal=causal)


@torch.no_grad()
def embedding_part(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "state batch position d_model"]:
    r"""The part of each state that comes from the embedding along the skip connections alone.

    Without a norm on the stream that is the embedding itself, everywhere. A norm *on* the stream
    (post-norm) is a linear map once its divisor is fixed at the value it has in this pass: centre, divide,
    multiply by the weight. The part goes through that map at each norm and loses size there.

    Raises:
        ValueError: when a post-norm model's norm is not a LayerNorm.
    """
    account = ledger(model, tokens)
    part = account.states[0]
    if model.config.placement == "pre" or model.config.norm == "none":
        return part.expand_as(account.states)
    if model.config.norm != "layer":
        raise ValueError(
            f"expected the norm 'layer' in a post-norm model, got {model.config.norm!r}; "
            "only LayerNorm's linear part is known here"
        )
    with capture(model, "blocks.*.scale") as scales:
        model(tokens)
    parts = [part]
    for name in account.names:
        norm = model.get_submodule(f"{name}_norm")
        weight = norm.get_parameter("weight")
        part = (part - part.mean(dim=-1, keepdim=True)) / scales[f"{name}_norm.scale"] * weight
        parts.append(part)
    return torch.stack(parts)


@torch.no_grad()
def turn_stream(model: Decoder | Encoder, rotation: Float[Tensor, "d_model d_model"]) -> None:
    r"""Give the stream another basis, in place: what writes to it is multiplied by Q, what reads by Q^T.

    With Q orthogonal and RMSNorms whose weights are one (or have been folded into the matrices that read), the
    logits stay as they are. LayerNorm subtracts the mean, which is one fixed direction, and does not allow it.
    """
    writers = [model.token_embedding.weight]
    readers = [] if model.unembedding is None else [model.unembedding.weight]
    if model.positions is not None:
        writers.append(model.positions.get_parameter("weight"))
    for each in model.blocks:
        block = cast(Block, each)
        attention, network = block.attention, block.feedforward
        readers += [attention.query.weight, attention.key.weight, attention.value.weight]
        readers.append(network.up.weight)
        for last in (attention.output, network.down):
            last.weight.copy_(rotation.T @ last.weight)
            if last.bias is not None:
                last.bias.copy_(last.bias @ rotation)
    for weight in (*writers, *readers):
        weight.copy_(weight @ rotation)


# Lengths ---------------------------------------------------------------------------------------------


def kept_cosines(
    states: Float[Tensor, "state batch position d_model"],
) -> Float[np.ndarray, "step"]:
    """Mean cosine between each state and the next: 1 when the direction is kept, 0 when it is new."""
    return _numpy(F.cosine_similarity(states[:-1], states[1:], dim=-1).mean(dim=(1, 2)))


def step_ratios(states: Float[Tensor, "state batch position d_model"]) -> Float[np.ndarray, "step"]:
    """Mean length of the change from each state to the next, divided by the mean length before it."""
    return _numpy(states.diff(dim=0).norm(dim=-1).mean(dim=(1, 2))) / stream_norms(states)[:-1]


def needed_cosine(before: float, writes: Sequence[float], after: float) -> float:
    r"""Mean cosine that the stream and its writes must have, for their lengths to add up as stated.

    From $|x + \sum_k w_k|^2 = \sum_k |v_k|^2 + 2 \sum_{k<m} |v_k||v_m| \cos_{km}$ with $v_0 = x$: the
    average of the cosines, weighted by the products of lengths. Outside [-1, 1] the lengths contradict
    one another.

    >>> needed_cosine(3.0, [4.0], 5.0)
    0.0
    >>> needed_cosine(3.0, [4.0], 7.0)
    1.0
    """
    lengths = np.array([before, *writes], dtype=float)
    squares = float(np.square(lengths).sum())
    pairs = float(lengths.sum()) ** 2 - squares
    return (after**2 - squares) / pairs


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()


# Identities -------------------------------------------------------------------------------------------

DRAWS = 100
CHECKS = (
    "step",
    "two additions",
    "sum",
    "sum in post-norm",
    "sum in a decoder",
    "difference",
    "logits",
    "rotation",
)
STATED_LENGTHS = ((2.1, 12.4), (3.8, 12.4), (1.9, 14.8), (2.7, 14.8))
"""The case study's writes, each with the stream that it is added to."""
READINGS = ("before", "after")
"""Whether 12.4 and 14.8 are lengths of the stream before the first and second block, or after them."""
STATED_GROWTH = {"before": (12.4, [2.1, 3.8], 14.8), "after": (12.4, [1.9, 2.7], 14.8)}
TOO_LONG = {"before": (12.4, [2.1, 3.8], 18.4), "after": (12.4, [1.9, 2.7], 17.1)}
"""The same with a stream that is longer than all three end to end."""


@measurement(
    seeds=1,
    coords={
        "check": CHECKS,
        "draw": tuple(range(DRAWS)),
        "placement": ("pre", "post"),
        "write": (1, 2, 3, 4),
        "reading": READINGS,
    },
    tolerance={"error": 1e-9, "control": 1e-6, "left": 1e-4},
)
def books(seed: int) -> dict[str, Any]:
    """The account of the stream in 100 drawn models each, in double precision, with controls that must fail."""
    del seed
    found = [_audit(draw) for draw in range(DRAWS)]
    return {
        "error": (("check", "draw"), [[each[check][0] for each in found] for check in CHECKS]),
        "control": (("check", "draw"), [[each[check][1] for each in found] for check in CHECKS]),
        "left": ("placement", [_left(placement) for placement in ("pre", "post")]),
        "percent": ("write", [100 * write / stream for write, stream in STATED_LENGTHS]),
        "needed": ("reading", [needed_cosine(*STATED_GROWTH[each]) for each in READINGS]),
        "impossible": ("reading", [needed_cosine(*TOO_LONG[each]) for each in READINGS]),
    }


def _audit(draw: int) -> dict[str, tuple[float, float]]:
    """For each of `CHECKS` the error and a control."""
    pre = ledger(*random_model(draw, placement="pre"))
    post = ledger(*random_model(draw, placement="post"))
    alone = ledger(*random_model(draw, residual=False))
    causal = [
        ledger(*random_model(draw, causal=True, placement=where)).sum_error()
        for where in ("pre", "post")
    ]
    free, tokens = random_model(draw, norm="none")
    with_connections = ledger(free, tokens)
    alone_there = _bare(free, with_connections)

    def largest(errors: Tensor) -> float:
        return float(errors.max())

    def short(account: Any) -> float:
        """The error of a sum that leaves the last write out."""
        left_out = account.states[-1] - account.states[0] - account.writes[:-1].sum(0)
        return float(left_out.abs().max())

    step = largest(pre.step_errors())
    return {
        "step": (step, largest(post.step_errors())),
        "two additions": (step, largest(alone.step_errors())),
        "sum": (pre.sum_error(), short(pre)),
        "sum in post-norm": (post.sum_error(), short(post)),
        "sum in a decoder": (causal[0], causal[1]),
        "difference": (
            float(
                (with_connections.states[1:] - alone_there - with_connections.states[:-1])
                .abs()
                .max()
            ),
            float((with_connections.states[1:] - alone_there).abs().amax((1, 2, 3)).min()),
        ),
        "logits": _logits(draw),
        "rotation": (_turned(draw, "rms"), _turned(draw, "layer")),
    }


@torch.no_grad()
def _bare(model: Stack, account: Ledger) -> Float[Tensor, "sublayer batch position d_model"]:
    """What the sublayers of a model without norms give as modules of their own, outside of their block."""
    given = []
    for name, state in zip(account.names, account.states, strict=False):
        sublayer = model.get_submodule(name)
        given.append(sublayer(state))
    return torch.stack(given)


@torch.no_grad()
def _logits(draw: int) -> tuple[float, float]:
    """Logits as a sum of parts; the control gives each part the divisor of its own."""
    model, tokens = random_model(draw, placement="pre")
    parts, logits = parts_of(model, tokens), model(tokens)
    own = torch.stack([model.unembed(part) for part in parts]).sum(0)
    error = (logit_parts(model, parts).sum(0) - logits).abs().max()
    return float(error), float((own - logits).abs().max())


@torch.no_grad()
def _turned(draw: int, norm: str) -> float:
    """How far the logits move when the stream of a model with this norm gets another basis."""
    model, tokens = random_model(draw, norm=norm, placement="pre", positions="rotary")
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            weight.fill_(1.0)
        if name.endswith("norm.bias"):
            weight.zero_()
    before = model(tokens)
    turn_stream(model, drawn_rotation(draw, model.config.d_model))
    return float((model(tokens) - before).abs().max())


def drawn_rotation(seed: int, width: int) -> Float[Tensor, "width width"]:
    """A random orthogonal matrix in double precision."""
    with seeded(seed):
        return torch.linalg.qr(torch.randn(width, width, dtype=torch.float64)).Q


def _left(placement: str) -> float:
    """Length of the embedding's part in the last state of twelve untrained blocks, relative to the state."""
    shares = []
    for draw in range(20):
        model = make_model(DEEP.replace(placement=placement), causal=False, seed=draw).double()
        tokens = TASK.batch(make_generator(draw, "evaluation"), 16).inputs
        whole = ledger(model, tokens).states[-1]
        shares.append((embedding_part(model, tokens)[-1].norm(dim=-1) / whole.norm(dim=-1)).mean())
    return float(torch.stack(shares).mean())


# Two blocks that reverse ------------------------------------------------------------------------------

TASK = Reversal(vocab=12, length=12)
TWO = Config(vocab=12, placement="pre", activation="relu")
"""The case study's design: two blocks of width 64 with four heads."""
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
RATE_KINDS = ("stated", "tuned", "large")
STATED, LARGE = 5e-4, 4e-3
"""The case study's learning rate, and the largest but one at which the tuning seeds reverse."""
STEPS = {"stated": 500, "tuned": 300, "large": 300}
PARTS = ("tokens", "positions", "attention 1", "network 1", "attention 2", "network 2")
READERS = (
    *("queries 1", "keys 1", "values 1", "network 1"),
    *("queries 2", "keys 2", "values 2", "network 2", "logits"),
)
ROLES = ("fetching", "other")


def two_trainings(seed: int) -> dict[str, Job]:
    """Two blocks at the case study's learning rate, at the one that suits them, and at a large one."""
    options = {"batch_size": 16}
    search = Search(
        "norm-two-blocks-pre-6", TWO, TASK, RATES, tuning_seeds(2), STEPS["tuned"], options
    )
    rates = {"stated": STATED, "tuned": tuned(search), "large": LARGE}
    return {
        kind: job(TWO, TASK, seed, steps=STEPS[kind], learning_rate=rate, **options)
        for kind, rate in rates.items()
    }


@measurement(
    seeds=20,
    coords={
        "rate": RATE_KINDS,
        "state": (0, 1, 2),
        "block": (1, 2),
        "sublayer": (0, 1, 2, 3),
        "part": PARTS,
        "role": ROLES,
        "writer": ("attention", "network"),
    },
    trainings=two_trainings,
    repeat="opening",
    tolerance={
        "accuracy": 0.05,
        "stream": 3.0,
        "ratio": 1.5,
        "log_length": 1.5,
        "cosine": 0.5,
        "kept": 0.5,
        "change": 1.5,
        "length": 5.0,
        "logit": 15.0,
        "lost": 1.0,
        "second": 1.0,
    },
)
def two(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two trained blocks: lengths of stream and writes, what parts add to the answer, what cuts cost."""
    looks = [_look(runs[kind].model, seed) for kind in RATE_KINDS]
    axes = {
        "accuracy": (),
        "second": (),
        "stream": ("state",),
        "ratio": ("role", "writer"),
        "log_length": ("role", "writer"),
        "cosine": ("role", "writer"),
        "by_block": ("sublayer",),
        "kept": ("block",),
        "change": ("block",),
        "length": ("part",),
        "logit": ("part",),
        "lost": ("part",),
    }
    return {name: (("rate", *of), [each[name] for each in looks]) for name, of in axes.items()}


@torch.no_grad()
def _look(trained: Any, seed: int) -> dict[str, Any]:
    """Everything that is asked of one trained model of two blocks."""
    model: Encoder = trained
    batch = TASK.batch(make_generator(seed, "evaluation"), 128)
    account, parts = ledger(model, batch.inputs), parts_of(model, batch.inputs)
    fetches = int(mirror_attention(model, batch.inputs).argmax())

    def by_role(values: np.ndarray) -> list[list[float]]:
        """Of one number for each sublayer: those of the block that fetches, then of the other."""
        rows = values.reshape(2, 2)[[fetches, 1 - fetches]]
        return [[float(value) for value in row] for row in rows]

    lengths = account.writes.norm(dim=-1).mean(dim=(1, 2))
    right = accuracy(model(batch.inputs), batch)
    return {
        "accuracy": right,
        "second": float(fetches == 1),
        "stream": stream_norms(account.blocks).tolist(),
        "ratio": by_role(write_ratios(account)),
        "by_block": write_ratios(account).tolist(),
        "log_length": by_role(_numpy(lengths.log())),
        "cosine": by_role(write_cosines(account)),
        "kept": kept_cosines(account.blocks).tolist(),
        "change": step_ratios(account.blocks).tolist(),
        "length": parts.norm(dim=-1).mean(dim=(1, 2)).tolist(),
        "logit": answer_parts(model, parts, batch).tolist(),
        "lost": [
            right - accuracy(with_cut(model, batch.inputs, part, READERS), batch)
            for part in range(len(PARTS))
        ],
    }


@measurement(
    seeds=10,
    coords={"rate": RATE_KINDS, "state": (0, 1, 2), "block": (1, 2), "sublayer": (0, 1, 2, 3)},
    trainings=two_trainings,
    repeat="opening",
    tolerance={"stream": 3.0, "by_block": 1.5, "kept": 0.5},
)
def two_beside_twelve(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Lengths in the first ten of these models, for claims that ask ten models of each depth."""
    looks = [_look(runs[kind].model, seed) for kind in RATE_KINDS]
    axes = {"stream": "state", "by_block": "sublayer", "kept": "block"}
    return {name: (("rate", of), [each[name] for each in looks]) for name, of in axes.items()}


def accuracy(logits: Float[Tensor, "batch position vocab"], batch: Batch) -> float:
    """Share of the scored positions at which the largest logit is that of the right answer."""
    return float((logits.argmax(-1) == batch.targets)[batch.scored].double().mean())


def answer_parts(
    model: Encoder, parts: Float[Tensor, "part batch position d_model"], batch: Batch
) -> Float[Tensor, "part"]:
    """What each part adds to the logit of the right answer, minus its mean over the other answers.

    Averaged over the scored positions; the constant of the final norm is left out.
    """
    logits = logit_parts(model, parts)[:-1]
    targets = batch.targets[None, ..., None].expand(len(parts), -1, -1, 1)
    right = logits.gather(-1, targets)[..., 0]
    others = (logits.sum(-1) - right) / (logits.shape[-1] - 1)
    return (right - others)[:, batch.scored].double().mean(dim=1)


WIRED = ("tuned", "large")
"""Learning rates at which all wires are cut."""


@measurement(
    seeds=10,
    coords={"rate": WIRED, "sender": PARTS, "reader": READERS},
    trainings=two_trainings,
    repeat="opening",
    tolerance={"lost": 1.0},
)
def wires(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Accuracy lost when one reader sees one part of the stream as its mean, in two trained blocks."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 128)
    lost = [_wires(runs[rate].model, batch) for rate in WIRED]
    return {"lost": (("rate", "sender", "reader"), lost)}


@torch.no_grad()
def _wires(trained: Any, batch: Batch) -> list[list[float]]:
    model: Encoder = trained
    right = accuracy(model(batch.inputs), batch)

    def lost(sender: int, reader: str) -> float:
        if not there_is(sender, reader):
            return 0.0
        return right - accuracy(with_cut(model, batch.inputs, sender, [reader]), batch)

    return [[lost(sender, reader) for reader in READERS] for sender in range(len(PARTS))]


def there_is(sender: int, reader: str) -> bool:
    """Return whether a reader comes after a part, so that it can see it."""
    what, _, block = reader.partition(" ")
    if what == "logits":
        return True
    sublayers_before = 2 * (int(block) - 1) + (what == "network")
    return sender < 2 + sublayers_before


# Twelve blocks -----------------------------------------------------------------------------------------

DEEP = Config(vocab=12, d_model=32, max_length=12, n_layers=12)
DEEP_STEPS = 400
LATER = 500
"""What is added to the seeds of these trainings, as in the chapter on surviving positions."""
STAGES = ("untrained", "trained")


def twelve_trainings(seed: int) -> dict[str, Job]:
    """Twelve pre-norm blocks on reversal at the learning rate that suits them."""
    options: dict[str, Any] = {"batch_size": 16, "schedule": Constant(warmup=20)}
    search = Search("surviving-pre-norm", DEEP, TASK, RATES, tuning_seeds(2), DEEP_STEPS, options)
    rate = tuned(search)
    run = job(DEEP, TASK, seed + LATER, steps=DEEP_STEPS, learning_rate=rate, **options)
    return {"trained": run}


@measurement(
    seeds=10,
    coords={
        "stage": STAGES,
        "state": tuple(range(13)),
        "block": tuple(range(1, 13)),
        "sublayer": tuple(range(24)),
    },
    trainings=twelve_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3, "stream": 30.0, "ratio": 2.0, "cosine": 0.6, "kept": 0.6},
)
@torch.no_grad()
def twelve(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twelve blocks before and after training: the stream's length, writes, and the direction that is kept."""
    trained: Any = runs["trained"].model
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    models = [make_model(DEEP, causal=False, seed=seed + LATER), trained]
    accounts = [ledger(model, batch.inputs) for model in models]
    return {
        "accuracy": evaluate(trained, TASK, seed=seed).accuracy,
        "stream": (("stage", "state"), [stream_norms(each.blocks).tolist() for each in accounts]),
        "ratio": (("stage", "sublayer"), [write_ratios(each).tolist() for each in accounts]),
        "cosine": (("stage", "sublayer"), [write_cosines(each).tolist() for each in accounts]),
        "kept": (("stage", "block"), [kept_cosines(each.blocks).tolist() for each in accounts]),
    }


@measurement(
    seeds=10,
    coords={"block": tuple(range(1, 13))},
    trainings=twelve_trainings,
    repeat="opening",
    tolerance={"mirrored": 1.0},
)
def fetched(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twelve trained blocks: how much each looks at the mirrored position, so which of them fetches."""
    model: Any = runs["trained"].model
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    return {"mirrored": ("block", mirror_attention(model, batch.inputs).tolist())}
