"""The bugs: mistakes that real implementations made, as edits of this library's own functions.

Each edit names a function, a piece of its source that occurs exactly once, and what stands there in the
mistaken implementation. Nothing on disk changes, see `measured_transformer.exercises.zoo.infection`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One changed piece of one function.

    Attributes:
        where: module below `measured_transformer`, a colon, the function: `parts.attention:causal_mask`.
        old: a piece of its source, there exactly once.
        new: what takes its place.
    """

    where: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A mistake.

    Attributes:
        name: its name in the zoo.
        wing: where it lives: attention, positions, layers, training or generation.
        story: what is wrong, and how people come to write it.
        edits: what makes the library have it.
    """

    name: str
    wing: str
    story: str
    edits: tuple[Edit, ...]


_ATTENTION = "parts.attention:MultiHeadAttention"
_LOOK = (
    Edit(  # the fused kernel has its own softmax and mask: bugs of these need the written-out path
        f"{_ATTENTION}._mix", "if self.scores.watched or self.pattern.watched:", "if True:"
    )
)
_NO_SHORTCUT = Edit(
    "parts.attention:fused_attention",
    "if causal and mask is None and score_bias is None and n_query == n_key:",
    "if False:",
)
_SPELLED_OUT = Edit(
    f"{_ATTENTION}._pattern",
    "if past is not None and allowed is None and not self.scores.watched:",
    "if False:",
)

BUGS: tuple[Bug, ...] = (
    Bug(
        "no scale",
        "attention",
        "Dot products go into the softmax as they are. Small models train all the same, so it is noticed "
        "late.",
        (
            Edit(f"{_ATTENTION}._mix", "scale=self.scale,", "scale=self.scale or 1.0,"),
            Edit(f"{_ATTENTION}._scores", "scale=self.scale)", "scale=self.scale or 1.0)"),
        ),
    ),
    Bug(
        "scale of the whole model",
        "attention",
        "Scores are divided by the root of d_model instead of d_head. With one head there is no difference, "
        "and that is what it was tried with.",
        (
            Edit(
                f"{_ATTENTION}._mix", "scale=self.scale,", "scale=self.scale or self.d_model**-0.5,"
            ),
            Edit(
                f"{_ATTENTION}._scores",
                "scale=self.scale)",
                "scale=self.scale or self.d_model**-0.5)",
            ),
        ),
    ),
    Bug(
        "softmax over the queries",
        "attention",
        "softmax(dim=-2): columns sum to one instead of rows. Shapes are all right.",
        (
            _LOOK,
            _SPELLED_OUT,
            Edit(
                "parts.attention:attention_pattern",
                "return scores.softmax(dim=-1)\n",
                "return scores.softmax(dim=-2)\n",
            ),
            Edit(
                "parts.attention:attention_pattern",
                "return scores.softmax(dim=-1).masked_fill",
                "return scores.softmax(dim=-2).masked_fill",
            ),
        ),
    ),
    Bug(
        "one step ahead",
        "attention",
        "The diagonal of the causal mask is off by one, so that each position sees its successor: the "
        "answer. The training loss looks splendid.",
        (
            _NO_SHORTCUT,
            Edit(
                "parts.attention:causal_mask",
                "allowed.tril(n_key - n_query)",
                "allowed.tril(n_key - n_query + 1)",
            ),
        ),
    ),
    Bug(
        "blind to itself",
        "attention",
        "The causal mask hides the diagonal as well (a strict triangle). The first position sees nothing at "
        "all, and where its row is not guarded, NaN spreads from there.",
        (
            _NO_SHORTCUT,
            Edit(
                "parts.attention:causal_mask",
                "allowed.tril(n_key - n_query)",
                "allowed.tril(n_key - n_query - 1)",
            ),
        ),
    ),
    Bug(
        "mask aligned at the wrong corner",
        "attention",
        "The triangle starts at the first key instead of ending at the last. It is right for square masks, "
        "and wrong as soon as several new tokens meet a cache: PyTorch's own is_causal aligns like this.",
        (Edit("parts.attention:causal_mask", "allowed.tril(n_key - n_query)", "allowed.tril()"),),
    ),
    Bug(
        "mask upside down",
        "attention",
        "True means real in one library and ignore in the next (key_padding_mask of PyTorch). Attention "
        "reads nothing but padding.",
        (
            Edit(
                f"{_ATTENTION}._allowed",
                "real = padding_mask[:, None, None, :]",
                "real = ~padding_mask[:, None, None, :]",
            ),
        ),
    ),
    Bug(
        "zero instead of minus infinity",
        "attention",
        "Forbidden scores are set to 0 before the softmax: e to the 0 is 1, and all see everything, a "
        "little.",
        (
            _LOOK,
            _SPELLED_OUT,
            Edit(
                "parts.attention:attention_pattern",
                "scores = scores.masked_fill(~mask & ~nothing_allowed, -math.inf)",
                "scores = scores.masked_fill(~mask & ~nothing_allowed, 0.0)",
            ),
        ),
    ),
    Bug(
        "heads by reshaping",
        "attention",
        "view(batch, head, position, d_head) without the transpose: heads are cut out of the wrong axis, "
        "and each mixes features of several positions. The mask no longer keeps the future out.",
        (
            Edit(
                f"{_ATTENTION}._split",
                "return projected.view(*projected.shape[:-1], n_heads, self.d_head).transpose(1, 2)",
                "return projected.reshape(len(projected), n_heads, projected.shape[1], self.d_head)",
            ),
        ),
    ),
    Bug(
        "merged without a transpose",
        "attention",
        "The heads are put side by side with one reshape, without bringing positions to the front first.",
        (
            Edit(
                f"{_ATTENTION}._merge",
                "return self.output(mixed.transpose(1, 2).flatten(2))",
                "return self.output(mixed.reshape(len(mixed), mixed.shape[2], -1))",
            ),
        ),
    ),
    Bug(
        "groups dealt out like cards",
        "attention",
        "repeat instead of repeat_interleave: query heads 0, 1, 2, 3 ask key-value heads 0, 1, 0, 1 instead "
        "of 0, 0, 1, 1. It trains; it ruins loaded weights.",
        (
            Edit(
                f"{_ATTENTION}._share",
                "return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)",
                "return x.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)",
            ),
        ),
    ),
    Bug(
        "dropout in the examination",
        "attention",
        "Attention weights are dropped in evaluation mode, too: scaled_dot_product_attention does not know "
        "in which mode a module is.",
        (
            Edit(
                f"{_ATTENTION}._mix",
                "dropout=self.dropout if self.training else 0.0,",
                "dropout=self.dropout,",
            ),
            Edit(
                f"{_ATTENTION}._mix",
                "F.dropout(pattern, self.dropout, self.training)",
                "F.dropout(pattern, self.dropout, True)",
            ),
        ),
    ),
    Bug(
        "cross-attention to itself",
        "attention",
        "Keys and values of cross-attention come from the decoder. Teacher forcing hides it: the decoder "
        "becomes a language model.",
        (
            Edit(
                f"{_ATTENTION}.forward",
                "keys, values = self._memory(memory, cache)",
                "keys, values = self._memory(x if x.shape == memory.shape else memory, cache)",
            ),
        ),
    ),
    Bug(
        "exponent twice",
        "positions",
        "10000 ** (2 * i / d) with an i that already counts in twos: half of the frequencies are lower than "
        "the slowest one.",
        (
            Edit(
                "parts.positions:frequencies",
                "return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)",
                "return base ** (-2 * torch.arange(0, d, 2, dtype=torch.float64) / d)",
            ),
        ),
    ),
    Bug(
        "sines first, cosines after",
        "positions",
        "All sines, then all cosines. Equally good for a new model, wrong for weights of the other "
        "convention.",
        (
            Edit(
                "parts.positions:sinusoidal_encoding",
                "encoding = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)",
                "encoding = torch.cat((angles.sin(), angles.cos()), dim=-1)",
            ),
        ),
    ),
    Bug(
        "the other pairing",
        "positions",
        "Rotary pairs are neighbours in one code base and halves in another; a checkpoint of the one is "
        "read with the rotation of the other.",
        (
            Edit(
                "parts.positions:Rotation.apply",
                'if self.pairing == "halves":',
                'if self.pairing != "halves":',
            ),
        ),
    ),
    Bug(
        "keys turned backwards",
        "positions",
        "A sign is wrong in the rotation of the keys, and scores depend on the sum of two positions instead "
        "of their difference.",
        (
            Edit(
                f"{_ATTENTION}._keys_and_values",
                "keys = rotation.apply(keys)",
                "keys = Rotation(rotation.cos, -rotation.sin, rotation.pairing).apply(keys)",
            ),
        ),
    ),
    Bug(
        "values turned as well",
        "positions",
        "Queries, keys and values all go through the rotation: what is handed over depends on where it "
        "stood.",
        (
            Edit(
                f"{_ATTENTION}._keys_and_values",
                "keys = rotation.apply(keys)",
                "keys, values = rotation.apply(keys), rotation.apply(values)",
            ),
        ),
    ),
    Bug(
        "counted from zero again",
        "positions",
        "With a cache every new token believes that it stands at position 0. The first call is right.",
        (
            Edit(
                "models.token_positions:find_positions",
                "return TokenPositions(keys[past:], keys, None, past + n)",
                "return TokenPositions(keys[past:] - past, keys, None, past + n)",
            ),
            Edit(
                "models.stack:_look_up",
                "return table(n, offset=length - n)",
                "return table(where.queries, below=where.below)",
            ),
        ),
    ),
    Bug(
        "padding counted",
        "positions",
        "Prompts are padded on the left, and positions are counted from the padding: a text means something "
        "else in a batch than alone.",
        (
            Edit(
                "models.token_positions:find_positions",
                "counted = everything if mask is None else mask.to(torch.int64)",
                "counted = everything",
            ),
        ),
    ),
    Bug(
        "fond of distance",
        "positions",
        "ALiBi's bias has the wrong sign: the farther away, the better.",
        (
            Edit(
                "parts.positions:alibi_bias_between",
                "(0 - distance[..., None, :, :])",
                "(distance[..., None, :, :])",
            ),
        ),
    ),
    Bug(
        "slopes for any number of heads",
        "positions",
        "ALiBi's geometric series taken for six heads as for eight; the released code fills up from the "
        "next power of two instead.",
        (
            Edit(
                "parts.positions:alibi_slopes",
                "lower = 2 ** (n_heads.bit_length() - 1)",
                "lower = n_heads",
            ),
        ),
    ),
    Bug(
        "deviation of a sample",
        "layers",
        "A layer norm written by hand: divided by n - 1, and epsilon added to the deviation instead of the "
        "variance. The Annotated Transformer has it, and wide layers hide it.",
        (
            Edit(
                "parts.norms:LayerNorm.forward",
                "return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)",
                "x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)\n"
                "        return x * self.weight + (0.0 if self.bias is None else self.bias)",
            ),
        ),
    ),
    Bug(
        "norm over the whole sequence",
        "layers",
        "Mean and variance are taken over positions and features together, as for an image. Every position "
        "then depends on all others, later ones included.",
        (
            Edit(
                "parts.norms:LayerNorm.forward",
                "return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)",
                "x = F.layer_norm(x, x.shape[-2:], eps=self.eps) * self.weight\n"
                "        return x if self.bias is None else x + self.bias",
            ),
        ),
    ),
    Bug(
        "added to the norm",
        "layers",
        "x = norm(x); x = x + f(x): the branch is added to what the norm gave, and the stream is lost in "
        "every block.",
        (
            Edit(
                "parts.block:Block.forward",
                "x = self.residual_pre(x)",
                "x = self._before(self.attention_norm, self.residual_pre(x))",
            ),
        ),
    ),
    Bug(
        "no final norm",
        "layers",
        "Pre-norm blocks, and the unembedding reads the stream as it is. Forgotten when code for post-norm "
        "is changed to pre-norm.",
        (
            Edit(
                "models.stack:Stack.apply_final_norm",
                "return self.final_state(self.final_norm(x))",
                "return self.final_state(x)",
            ),
        ),
    ),
    Bug(
        "one layer many times",
        "layers",
        "[layer] * n puts the same module into the list n times. Depth is there, but all blocks share their "
        "weights.",
        (
            Edit(
                "models.stack:Stack.run_blocks",
                "x = block(\n",
                "block = self.blocks[0]\n        x = block(\n",
            ),
        ),
    ),
    Bug(
        "gate and value exchanged",
        "layers",
        "In SwiGLU the activation stands on the wrong one of two matrices of the same shape.",
        (
            Edit(
                "parts.feedforward:FeedForward.forward",
                "neurons = self.activate(self.pre_activation(self.gate(x))) * self.up(x)",
                "neurons = self.activate(self.pre_activation(self.up(x))) * self.gate(x)",
            ),
        ),
    ),
    Bug(
        "the approximate GELU",
        "layers",
        "The tanh formula where the checkpoint was trained with the exact function (or the other way "
        "round): a difference in the third digit, in every layer.",
        (
            Edit(
                "parts.feedforward:activation_function",
                "return _ACTIVATIONS[name][0]",
                'return _gelu_tanh if name == "gelu" else _ACTIVATIONS[name][0]',
            ),
        ),
    ),
    Bug(
        "padding is an answer",
        "training",
        "The loss is averaged over padding, too. The more padding, the better the model looks.",
        (
            Edit(
                "training.losses:cross_entropy",
                "return losses.masked_fill(~scored, 0).sum() / scored.sum()",
                "return losses.mean()",
            ),
        ),
    ),
    Bug(
        "divided by the padded length",
        "training",
        "Padding costs nothing but is counted: short sentences weigh less, and the size of the gradient "
        "depends on the batch.",
        (
            Edit(
                "training.losses:cross_entropy",
                "return losses.masked_fill(~scored, 0).sum() / scored.sum()",
                "return losses.masked_fill(~scored, 0).mean()",
            ),
        ),
    ),
    Bug(
        "smoothing that adds up to more than one",
        "training",
        "The right answer keeps its whole weight, and the share for the others comes on top.",
        (
            Edit(
                "training.losses:token_losses",
                "return (1 - label_smoothing) * right + label_smoothing * costs.mean(-1)",
                "return right + label_smoothing * costs.mean(-1)",
            ),
        ),
    ),
    Bug(
        "a first step of zero",
        "training",
        "The warm-up counts from 0: the first step is taken with a rate of zero, and the peak comes a step "
        "late.",
        (
            Edit(
                "training.schedules:_rise",
                "(_check_step(step) + 1) / max(1, warmup)",
                "_check_step(step) / max(1, warmup)",
            ),
        ),
    ),
    Bug(
        "hot instead of cold",
        "generation",
        "Logits are multiplied by the temperature. At 1, where everybody tests, it is right.",
        (
            Edit(
                "inference.sampling:with_temperature",
                "return logits / temperature",
                "return logits * temperature",
            ),
        ),
    ),
    Bug(
        "a nucleus without its edge",
        "generation",
        "Top-p drops the token that crosses the threshold: less than p is left, and sometimes nothing.",
        (
            Edit(
                "inference.sampling:keep_top_p",
                "before = probabilities.cumsum(dim=-1) - probabilities",
                "before = probabilities.cumsum(dim=-1)",
            ),
        ),
    ),
    Bug(
        "back in another order",
        "generation",
        "Top-p decides on sorted tokens and hands the decision back unsorted.",
        (
            Edit(
                "inference.sampling:keep_top_p",
                "enough.gather(-1, order.argsort(dim=-1))",
                "enough",
            ),
        ),
    ),
    Bug(
        "one token too few",
        "generation",
        "Top-k with a strict inequality: the k-th token is out as well.",
        (
            Edit(
                "inference.sampling:keep_top_k",
                "logits.masked_fill(logits < least, -math.inf)",
                "logits.masked_fill(logits <= least, -math.inf)",
            ),
        ),
    ),
    Bug(
        "beams that keep the wrong past",
        "generation",
        "Beam search goes on with other hypotheses, but the cache keeps its rows in the old order.",
        (
            Edit(
                "parts.cache:KeyValues.reorder",
                "self._keys, self._values = self._keys[rows], self._values[rows]",
                "pass",
            ),
        ),
    ),
)

WINGS: tuple[str, ...] = tuple(dict.fromkeys(bug.wing for bug in BUGS))
"""The wings of the zoo, in order."""


def bugs_of(wing: str | None = None) -> tuple[Bug, ...]:
    """The bugs of a wing; all of them when None.

    Raises:
        ValueError: when there is no such wing.
    """
    if wing is None:
        return BUGS
    if wing not in WINGS:
        raise ValueError(f"expected one of the wings {', '.join(WINGS)}, got {wing!r}")
    return tuple(bug for bug in BUGS if bug.wing == wing)
