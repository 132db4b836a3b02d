"""Harmless rewrites: the places in which the bugs live, written in another way that is as right.

A test of the zoo must pass on these too. One that fails takes this library's own code, or its own numbers to
the last digit, for the only right ones.
"""

from __future__ import annotations

from measured_book.exercises.zoo.bugs import BUGS, Edit

_ATTENTION = "parts.attention:MultiHeadAttention"

_OTHERWISE: tuple[Edit, ...] = (
    Edit(f"{_ATTENTION}._mix", "scale=self.scale,", "scale=(self.scale),"),
    Edit(f"{_ATTENTION}._scores", "scale=self.scale)", "scale=getattr(self, 'scale'))"),
    Edit(
        "parts.attention_functions:attention_pattern",
        "return scores.softmax(dim=-1)\n",
        "return torch.softmax(scores - scores.amax(-1, keepdim=True), -1)\n",
    ),
    Edit(
        "parts.attention_functions:attention_pattern",
        "return scores.softmax(dim=-1).masked_fill",
        "return torch.softmax(scores - scores.amax(-1, keepdim=True), -1).masked_fill",
    ),
    Edit(
        "parts.attention_functions:attention_pattern",
        "scores = scores.masked_fill(~mask & ~nothing_allowed, -math.inf)",
        "scores = torch.where(mask | nothing_allowed, scores, -math.inf)",
    ),
    Edit(
        "parts.masks:causal_mask",
        "allowed.tril(n_key - n_query)",
        "~allowed.triu(1 + n_key - n_query)",
    ),
    Edit(
        f"{_ATTENTION}._allowed",
        "real = padding_mask[:, None, None, :]",
        "real = padding_mask.unsqueeze(1).unsqueeze(1)",
    ),
    Edit(
        f"{_ATTENTION}._split",
        "return projected.view(*projected.shape[:-1], n_heads, self.d_head).transpose(1, 2)",
        "return projected.unflatten(-1, (n_heads, self.d_head)).movedim(-2, 1)",
    ),
    Edit(
        f"{_ATTENTION}._merge",
        "return self.output(mixed.transpose(1, 2).flatten(2))",
        "return self.output(torch.cat(mixed.unbind(1), dim=-1))",
    ),
    Edit(
        f"{_ATTENTION}._share",
        "return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)",
        "return torch.stack([x] * (self.n_heads // self.n_kv_heads), dim=2).flatten(1, 2)",
    ),
    Edit(
        f"{_ATTENTION}._mix",
        "dropout=self.dropout if self.training else 0.0,",
        "dropout=self.training * self.dropout,",
    ),
    Edit(
        f"{_ATTENTION}._mix",
        "F.dropout(pattern, self.dropout, self.training)",
        "(F.dropout(pattern, self.dropout) if self.training else pattern)",
    ),
    Edit(
        f"{_ATTENTION}.forward",
        "keys, values = self._memory(memory, cache)",
        "keys, values = tuple(self._memory(memory, cache))",
    ),
    Edit(
        "parts.positions:frequencies",
        "return base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)",
        "return 1 / base ** (2 * torch.arange((d + 1) // 2, dtype=torch.float64) / d)",
    ),
    Edit(
        "parts.positions:sinusoidal_encoding",
        "encoding = torch.stack((angles.sin(), angles.cos()), dim=axis).flatten(-2)",
        "encoding = torch.cat((angles.sin()[..., None], angles.cos()[..., None]), -1).flatten(-2)",
    ),
    Edit(
        "parts.positions:Rotation.apply",
        'if self.pairing == "halves":',
        'if not self.pairing != "halves":',
    ),
    Edit(
        f"{_ATTENTION}._keys_and_values",
        "keys = rotation.apply(keys)",
        "keys = type(rotation).apply(rotation, keys)",
    ),
    Edit(
        "models.token_positions:find_positions",
        "return TokenPositions(keys[past:], keys, None, past + n)",
        "return TokenPositions(keys[len(keys) - n :], keys, None, len(keys))",
    ),
    Edit(
        "models.stack:_look_up",
        "return table(n, offset=length - n)",
        "return table(n, offset=-n + length)",
    ),
    Edit(
        "models.token_positions:find_positions",
        "counted = everything if mask is None else mask.to(torch.int64)",
        "counted = everything * (1 if mask is None else mask.to(torch.int64))",
    ),
    Edit(
        "parts.positions:alibi_bias_between",
        "(0 - distance[..., None, :, :])",
        "(-1 * distance.unsqueeze(-3))",
    ),
    Edit(
        "parts.positions:alibi_slopes",
        "lower = 2 ** (n_heads.bit_length() - 1)",
        "lower = 1 << (n_heads.bit_length() - 1)",
    ),
    Edit(
        "parts.norms:LayerNorm.forward",
        "return F.layer_norm(x, weight.shape, weight, bias, self.eps)",
        "return F.layer_norm(x, (x.shape[-1],), None, None, self.eps) * weight + "
        "(0 if bias is None else bias)",
    ),
    Edit("parts.block:Block.forward", "x = self.residual_pre(x)", "x = 1 * self.residual_pre(x)"),
    Edit(
        "models.stack:Stack.apply_final_norm",
        "state = self.final_norm(x)",
        "state = (self.final_norm)(1 * x)",
    ),
    Edit("models.stack:Stack.run_blocks", "x = block(\n", "x = self.blocks[i](\n"),
    Edit(
        "parts.feedforward:FeedForward.forward",
        "neurons = self.activate(self.pre_activation(self.gate(x))) * self.up(x)",
        "neurons = 1 * self.activate(self.pre_activation(self.gate(x))) * self.up(x)",
    ),
    Edit(
        "parts.feedforward:activation_function",
        "return _ACTIVATIONS[name][0]",
        "return next(iter(_ACTIVATIONS[name]))",
    ),
    Edit(
        "training.losses:cross_entropy",
        "return losses.masked_fill(~scored, 0).sum() / scored.sum()",
        "return losses[scored].sum() / scored.sum()",
    ),
    Edit(
        "training.losses:token_losses",
        "return (1 - label_smoothing) * right + label_smoothing * costs.mean(-1)",
        "return right + label_smoothing * (costs.mean(-1) - right)",
    ),
    Edit(
        "training.schedules:_rise",
        "(_check_step(step) + 1) / max(1, warmup)",
        "(1 + _check_step(step)) / max(warmup, 1)",
    ),
    Edit(
        "inference.sampling:with_temperature",
        "divided = logits / temperature",
        "divided = torch.div(logits, temperature)",
    ),
    Edit(
        "inference.sampling:keep_top_p",
        "before = probabilities.cumsum(dim=-1) - probabilities",
        "before = -probabilities + probabilities.cumsum(dim=-1)",
    ),
    Edit(
        "inference.sampling:keep_top_p",
        "enough.gather(-1, order.argsort(dim=-1))",
        "torch.zeros_like(enough).scatter(-1, order, enough)",
    ),
    Edit(
        "inference.sampling:keep_top_k",
        "logits.masked_fill(logits < least, -math.inf)",
        "logits.where(logits >= least, -math.inf)",
    ),
    Edit(
        "parts.cache:KeyValues.reorder",
        "self._keys, self._values = self._keys[rows], self._values[rows]",
        "self._values, self._keys = self._values[rows], self._keys[rows]",
    ),
)

REWRITES: tuple[Edit, ...] = (
    *_OTHERWISE,
    *dict.fromkeys(edit for bug in BUGS for edit in bug.edits if edit.aside),
)
"""Edits that change no result beyond rounding, one at least for every function that a bug changes.

:meta hide-value:
"""
