"""Our instruments beside those of TransformerLens, on a model that both hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from measured_book.rooms.induction.measure import prefix_matching_score
from measured_transformer import capture
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import direct_logits
from measured_transformer.analysis.circuits import compositions
from measured_transformer.analysis.induction import previous_token_score
from measured_transformer.analysis.lens import lens_logits
from measured_transformer.analysis.patching import patched
from measured_transformer.tasks.task import Batch
from torch import Tensor
from transformer_lens import patching
from transformer_lens.head_detector import (
    compute_head_attention_similarity_score,
    get_induction_head_detection_pattern,
    get_previous_token_head_detection_pattern,
)

from comparisons.hooked import hooked
from comparisons.row import Row, apart
from comparisons.subjects import Subject

TAPS = {
    "attention patterns": ("blocks.{}.attention.pattern", "pattern"),
    "the stream before a block": ("blocks.{}.residual_pre", "resid_pre"),
    "the stream after a block": ("blocks.{}.residual_post", "resid_post"),
}


def rows(subject: Subject) -> Iterator[Row]:
    """Every quantity that both have."""
    model, tokens = subject.model, subject.tokens
    layers, n = range(model.config.n_layers), tokens.shape[1]
    plain = hooked(model, length=n)
    folded = hooked(model, length=n, fold_norms=True)
    with torch.no_grad():
        logits, cache = plain.run_with_cache(tokens)
        _, in_folded = folded.run_with_cache(tokens)
        with capture(model) as seen:
            own = model(tokens)

    def row(quantity: str, ours: str, theirs: str, difference: float, **more: object) -> Row:
        told = {"same": True, **more}
        name = "TransformerLens"
        return Row(name, subject.name, quantity, ours, theirs, difference=difference, **told)  # type: ignore[arg-type]

    yield row("logits", "Decoder", "HookedTransformer", apart(own, logits))
    for quantity, (tap, hook) in TAPS.items():
        ours = torch.stack([seen[tap.format(i)] for i in layers])
        theirs = torch.stack([cache[hook, i] for i in layers])
        yield row(quantity, f"capture, {tap.format('*')}", f"cache, {hook}", apart(ours, theirs))
    ours = torch.stack([seen[f"blocks.{i}.attention.head_outputs"] for i in layers])
    theirs = torch.stack([cache["result", i] for i in layers]).permute(0, 1, 3, 2, 4)
    yield row(
        "what each head writes", "capture, *.head_outputs", "cache, result", apart(ours, theirs)
    )
    with torch.no_grad():
        stack = in_folded.accumulated_resid(apply_ln=True)
        read = folded.unembed(stack.flatten(0, 1)).unflatten(0, stack.shape[:2])
        yield row(
            "logit lens",
            "lens_logits",
            "accumulated_resid(apply_ln=True), unembed",
            apart(lens_logits(model, tokens), read),
        )
        held = in_folded.apply_ln_to_stack(in_folded.accumulated_resid())
        scale = getattr(model.final_norm, "weight", None)
        if scale is not None:
            by_held = folded.unembed(held.flatten(0, 1)).unflatten(0, held.shape[:2])
            states = torch.stack(
                [seen["embedding"], *(seen[f"blocks.{i}.residual_post"] for i in layers)]
            )
            if model.config.norm == "layer":
                states = states - states.mean(-1, keepdim=True)
            shift = getattr(model.final_norm, "bias", None)
            normed = states / seen["final_norm.scale"] * scale + (0 if shift is None else shift)
            assert model.unembedding is not None
            yield row(
                "logit lens with the last scale held",
                "lens_logits",
                "apply_ln_to_stack(accumulated_resid()), unembed",
                apart(lens_logits(model, tokens), by_held),
                same=False,
                after=apart(model.unembedding(normed), by_held),
                why="each state divided by its own scale here, by that of the last state there",
            )
        yield from _accounts(subject, folded, in_folded, row)
        yield from _patches(subject, plain, row)
        if model.config.norm == "none":
            found = compositions(model, 0, 1, offset=0)
            for kind in "QKV":
                scores = plain.all_composition_scores(kind)[0, :, 1]
                yield row(
                    f"{kind}-composition of heads",
                    "circuits.compositions(offset=0)",
                    "all_composition_scores",
                    apart(getattr(found, kind.lower()), scores.double()),
                )
        if subject.batch is not None:
            yield from _detectors(subject.batch, seen_by(subject, plain), row)


def _accounts(subject: Subject, folded: Any, cache: Any, row: Any) -> Iterator[Row]:
    """Direct logit attribution of heads and networks at the last position."""
    model, tokens = subject.model, subject.tokens
    parts = direct_logits(model, tokens)
    mine = {
        name: each[:, -1].gather(1, subject.answers[:, None])[:, 0]
        for name, each in zip(parts.names, parts.logits, strict=True)
    }
    heads = [name for name in mine if " head " in name]
    stack = cache.stack_head_results(pos_slice=-1)
    theirs = cache.logit_attrs(stack, subject.answers, pos_slice=-1, has_batch_dim=True)
    ours = torch.stack([mine[name] for name in heads])
    yield row(
        "direct logit attribution of heads", "direct_logits", "logit_attrs", apart(ours, theirs)
    )
    centred = hooked(model, length=tokens.shape[1], fold_norms=True, centre_unembedding=True)
    _, again = centred.run_with_cache(tokens)
    stack = again.stack_head_results(pos_slice=-1)
    theirs = again.logit_attrs(stack, subject.answers, pos_slice=-1, has_batch_dim=True)
    middle = torch.stack(
        [each[:, -1].mean(-1) for name, each in zip(*_pairs(parts), strict=True) if name in heads]
    )
    yield row(
        "the same, as a model is loaded there by default",
        "direct_logits",
        "logit_attrs, center_unembed=True",
        apart(ours, theirs),
        same=False,
        after=apart(ours - middle, theirs),
        why="logits as they are here, less their mean over the vocabulary there",
    )


def _pairs(parts: Any) -> tuple[Any, Any]:
    return parts.names, parts.logits


def _patches(subject: Subject, theirs: Any, row: Any) -> Iterator[Row]:
    """Activation patching, clean values into a corrupted run: of the stream, and of heads."""
    model, n = subject.model, subject.tokens.shape[1]
    clean, corrupted = subject.tokens[:1], subject.other[:1]
    target = type(subject)("", model, clean, corrupted, subject.answers[:1]).target
    _, cache = theirs.run_with_cache(clean)
    torch.set_default_dtype(torch.float64)  # of the table that they fill
    found = patching.get_act_patch_resid_pre(theirs, corrupted, cache, target)
    by_head = patching.get_act_patch_attn_head_out_all_pos(theirs, corrupted, cache, target)
    torch.set_default_dtype(torch.float32)
    ours = [
        [
            patched(
                model,
                corrupted,
                clean,
                [Component(f"blocks.{i}.residual_pre")],
                target,
                positions=[p],
            )
            for p in range(n)
        ]
        for i in range(model.config.n_layers)
    ]
    told = torch.stack([torch.cat(each) for each in ours])
    yield row(
        "activation patching of the stream, by position",
        "patched, residual_pre",
        "get_act_patch_resid_pre",
        apart(told, found),
    )
    told = torch.stack(
        [
            torch.cat(
                [
                    patched(
                        model,
                        corrupted,
                        clean,
                        [Component(f"blocks.{i}.attention.mixed", h)],
                        target,
                    )
                    for h in range(model.config.n_heads)
                ]
            )
            for i in range(model.config.n_layers)
        ]
    )
    yield row(
        "activation patching of heads",
        "patched, attention.mixed",
        "get_act_patch_attn_head_out_all_pos",
        apart(told, by_head),
    )


def seen_by(subject: Subject, theirs: Any) -> tuple[Tensor, Tensor]:
    """Patterns of a batch, (layer, example, head, query, key): ours and theirs."""
    assert subject.batch is not None
    inputs = subject.batch.inputs
    with capture(subject.model, "blocks.*.attention.pattern") as seen:
        subject.model(inputs)
    _, cache = theirs.run_with_cache(inputs)
    layers = range(subject.model.config.n_layers)
    return torch.stack(list(seen.values())), torch.stack([cache["pattern", i] for i in layers])


def detected(patterns: Tensor, batch: Batch, detector: Any) -> Tensor:
    """Their score of every head, the mean over sequences: (layer, head)."""
    found = torch.zeros(patterns.shape[0], patterns.shape[2], dtype=torch.float64)
    for example, tokens in enumerate(batch.inputs):
        wanted = detector(tokens[None])
        for layer, head in [(i, h) for i in range(found.shape[0]) for h in range(found.shape[1])]:
            found[layer, head] += compute_head_attention_similarity_score(
                patterns[layer, example, head],
                wanted,
                exclude_bos=False,
                exclude_current_token=False,
                error_measure="mul",
            )
    return found / len(batch.inputs)


def _detectors(batch: Batch, patterns: tuple[Tensor, Tensor], row: Any) -> Iterator[Row]:
    """Heads that look at the token before, and heads that look behind earlier copies of their token."""
    mine, theirs = patterns
    n = batch.inputs.shape[1]
    before = detected(theirs, batch, get_previous_token_head_detection_pattern)
    ours = torch.stack([previous_token_score(each) for each in mine])
    yield row(
        "previous-token score",
        "previous_token_score",
        "detect_head, previous_token_head",
        apart(ours, before),
        same=False,
        after=apart(ours * (n - 1) / n, before),
        why="the mean over queries that have a token before them here, over all queries there",
    )
    behind = detected(theirs, batch, get_induction_head_detection_pattern)
    ours = torch.stack([prefix_matching_score(each, batch) for each in mine])
    by_rows = torch.zeros_like(behind)
    for example, tokens in enumerate(batch.inputs):
        wanted = get_induction_head_detection_pattern(tokens[None]).double()
        weight = (theirs[:, example] * wanted).sum(-1)[..., batch.scored[example]]
        by_rows += weight.sum(-1)
    yield row(
        "induction score",
        "prefix_matching_score",
        "detect_head, induction_head",
        apart(ours, behind),
        same=False,
        after=apart(ours, by_rows / batch.scored.sum()),
        why="the mean over positions whose token has come before here, over all positions there",
    )


def found_heads(subject: Subject) -> Iterator[dict[str, Any]]:
    """Which head each library's detector puts first, and with which score."""
    assert subject.batch is not None
    batch = subject.batch
    with torch.no_grad():
        mine, theirs = seen_by(subject, hooked(subject.model, length=batch.inputs.shape[1]))
        scores = {
            "previous token": (
                torch.stack([previous_token_score(each) for each in mine]),
                detected(theirs, batch, get_previous_token_head_detection_pattern),
            ),
            "induction": (
                torch.stack([prefix_matching_score(each, batch) for each in mine]),
                detected(theirs, batch, get_induction_head_detection_pattern),
            ),
        }
    for kind, (ours, others) in scores.items():
        best = [divmod(int(each.argmax()), each.shape[1]) for each in (ours, others)]
        yield {
            "model": subject.name,
            "kind": kind,
            "ours": list(best[0]),
            "theirs": list(best[1]),
            "our score": float(ours.max()),
            "their score": float(others.max()),
        }
