"""The bugs: mistakes of real implementations, as edits of this library's own functions.

Each edit names a function, a piece of its source that occurs exactly once, and what stands there in the
mistaken implementation. Nothing on disk changes, see `measured_book.exercises.zoo.infection`.

With each goes one public discussion, of the many that there may be, in which it was found in somebody's code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One changed piece of one function.

    Attributes:
        where: module below `measured_transformer`, a colon, the function: `parts.masks:causal_mask`.
        old: a piece of its source, there exactly once.
        new: what takes its place.
        aside: whether it only leads the library onto a way on which the bug can be seen; it changes no result
            by itself, and is no part of the mistake.
    """

    where: str
    old: str
    new: str
    aside: bool = False


@dataclass(frozen=True)
class Sighting:
    """A public discussion of a mistake.

    Attributes:
        what: whose code it is about, and what it says.
        address: where it is.
        kindred: True when it is about a relative of the bug and not about the bug itself; `what` tells them
            apart.
    """

    what: str
    address: str
    kindred: bool = False


@dataclass(frozen=True)
class Bug:
    """A mistake.

    Attributes:
        name: its name in the zoo.
        wing: where it lives: attention, positions, layers, training or generation.
        story: what is wrong, and how people come to write it.
        edits: what makes the library have it.
        seen: where somebody made it, as far as known.
    """

    name: str
    wing: str
    story: str
    edits: tuple[Edit, ...]
    seen: Sighting | None = None


_ATTENTION = "parts.attention:MultiHeadAttention"
_LOOK = (
    Edit(  # the fused kernel has its own softmax and mask: bugs of these need the written-out path
        f"{_ATTENTION}._mix",
        "if self._written_out:",
        "if True:",
        aside=True,
    )
)
_NO_SHORTCUT = Edit(
    "parts.attention_functions:fused_attention",
    "if causal and mask is None and score_bias is None and n_query == n_key:",
    "if False:",
    aside=True,
)
_SPELLED_OUT = (
    Edit(
        f"{_ATTENTION}._pattern",
        "if past is not None and allowed is None and self.sinks is None and not self.scores.watched:",
        "if False:",
        aside=True,
    ),
    Edit(
        "parts.attention_functions:pattern_of",
        "if past is not None and allowed is None and sinks is None:",
        "if False:",
        aside=True,
    ),
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
        seen=Sighting(
            "The scaled_dot_product_attention of cntkx did not scale. A user asked whether that was "
            "intended; it was not.",
            "https://github.com/delzac/cntkx/issues/10",
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
        seen=Sighting(
            "The code of a lecture in which a GPT is written from scratch scaled by the number of "
            "channels of the whole model.",
            "https://github.com/karpathy/ng-video-lecture/pull/6",
        ),
    ),
    Bug(
        "softmax over the queries",
        "attention",
        "softmax(dim=-2): columns sum to one instead of rows. Shapes are all right.",
        (
            _LOOK,
            *_SPELLED_OUT,
            Edit(
                "parts.attention_functions:attention_pattern",
                "return scores.softmax(dim=-1)\n",
                "return scores.softmax(dim=-2)\n",
            ),
            Edit(
                "parts.attention_functions:attention_pattern",
                "return scores.softmax(dim=-1).masked_fill",
                "return scores.softmax(dim=-2).masked_fill",
            ),
        ),
        seen=Sighting(
            "The annotated U-Net of labml.ai normalised over the queries. A reader who trained both "
            "versions measured no difference.",
            "https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146",
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
                "parts.masks:causal_mask",
                "allowed.tril(n_key - n_query)",
                "allowed.tril(n_key - n_query + 1)",
            ),
        ),
        seen=Sighting(
            "In Octo, a policy for robots, whose mask is one of groups of tokens: a token attends to the "
            "next one, of a group that it must not see. The proposed correction calls it off by one.",
            "https://github.com/octo-models/octo/issues/75",
            kindred=True,
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
                "parts.masks:causal_mask",
                "allowed.tril(n_key - n_query)",
                "allowed.tril(n_key - n_query - 1)",
            ),
        ),
        seen=Sighting(
            "The text of a tutorial masked the diagonal as well, though its code did not. A reader saw "
            "the first row turn into NaN.",
            "https://github.com/pbloem/former/issues/10",
        ),
    ),
    Bug(
        "mask aligned at the wrong corner",
        "attention",
        "The triangle starts at the first key instead of ending at the last. It is right for square masks, "
        "and wrong as soon as several new tokens meet a cache: PyTorch's own is_causal aligns like this.",
        (Edit("parts.masks:causal_mask", "allowed.tril(n_key - n_query)", "allowed.tril()"),),
        seen=Sighting(
            "The issue that shows PyTorch's masks for two queries and five keys, and proposes the other "
            "corner because of decoding with a cache.",
            "https://github.com/pytorch/pytorch/issues/108108",
        ),
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
        seen=Sighting(
            "x-transformers handed over a mask in which True meant ignore; scaled_dot_product_attention "
            "reads True as attend.",
            "https://github.com/lucidrains/x-transformers/issues/160",
        ),
    ),
    Bug(
        "zero instead of minus infinity",
        "attention",
        "Forbidden scores are set to 0 before the softmax: e to the 0 is 1, and all see everything, a "
        "little.",
        (
            _LOOK,
            *_SPELLED_OUT,
            Edit(
                "parts.attention_functions:attention_pattern",
                "scores = scores.masked_fill(~mask & ~nothing_allowed, -math.inf)",
                "scores = scores.masked_fill(~mask & ~nothing_allowed, 0.0)",
            ),
        ),
        seen=Sighting(
            "GluonTS wrote 1e-9 where -1e9 was meant: as good as zero.",
            "https://github.com/awslabs/gluonts/pull/1401",
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
        seen=Sighting(
            "FuxiCTR: view(batch * heads, -1, d_head) without a transpose, taken over from an article on "
            "the web. It reached three models.",
            "https://github.com/reczoo/FuxiCTR/issues/30",
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
        seen=Sighting(
            "A Transformer from scratch, written for teaching, lacked the permute before the last "
            "reshape. Its test, training on a copying task, passed all the same.",
            "https://github.com/jsbaan/transformer-from-scratch/pull/6",
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
        seen=Sighting(
            "jax-js used tile for key-value heads where repeat is right (NumPy's names): grouped queries "
            "had not been tested well enough.",
            "https://github.com/ekzhang/jax-js/pull/180",
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
        seen=Sighting(
            "nanoGPT handed its dropout to the fused function in evaluation mode, too.",
            "https://github.com/karpathy/nanoGPT/pull/240",
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
        seen=Sighting(
            "A notebook with a Transformer from scratch: the decoder's second attention is given the "
            "encoder's output, and takes keys and values from the decoder.",
            "https://github.com/keitakurita/Practical_NLP_in_PyTorch/issues/1",
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
        seen=Sighting(
            "A Transformer for teaching lets i run over 0, 2, 4 and doubles it in the exponent. A reply "
            "takes the factor away.",
            "https://github.com/SamLynnEvans/Transformer/issues/25",
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
                "encoding = torch.stack((angles.sin(), angles.cos()), dim=axis).flatten(-2)",
                "encoding = torch.cat((angles.sin(), angles.cos()), dim=-1)",
            ),
        ),
        seen=Sighting(
            "Reported for AllenNLP as a difference from the paper. The answer: tensor2tensor does the "
            "same, and the order is arbitrary.",
            "https://github.com/allenai/allennlp/issues/2993",
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
        seen=Sighting(
            "The Mimi model in candle rotates neighbours, and the checkpoint that it loads is stored in "
            "halves. What it decodes still sounds like speech.",
            "https://github.com/huggingface/candle/issues/3948",
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
        seen=Sighting(
            "Proposed as a correction of LLaMA in transformers, in the belief that equal rotations add up"
            " the positions. It was not taken over.",
            "https://github.com/huggingface/transformers/issues/30900",
            kindred=True,
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
        seen=Sighting(
            "x-transformers rotated values until version 1.20.0, which began as an experiment and had "
            "been left in.",
            "https://github.com/lucidrains/x-transformers/issues/182",
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
        seen=Sighting(
            "A library of rotary embeddings kept its angles by length and not by offset: whatever the "
            "offset, a later call of the same length got the angles of the first.",
            "https://github.com/lucidrains/rotary-embedding-torch/issues/11",
            kindred=True,
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
        seen=Sighting(
            "TransformerBridge in TransformerLens did not derive positions from the mask. Left-padded "
            "input had other logits, without any error.",
            "https://github.com/TransformerLensOrg/TransformerLens/issues/1609",
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
        seen=Sighting(
            "attention-gym, the examples for FlexAttention in PyTorch, multiplied the slope by query "
            "minus key instead of key minus query.",
            "https://github.com/meta-pytorch/attention-gym/pull/86",
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
        seen=Sighting(
            "MLX took one geometric series for any number of heads, until the algorithm of the released "
            "code took its place.",
            "https://github.com/ml-explore/mlx/pull/3071",
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
                "return F.layer_norm(x, weight.shape, weight, bias, self.eps)",
                "x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)\n"
                "        return x * self.weight + (0.0 if self.bias is None else self.bias)",
            ),
        ),
        seen=Sighting(
            "BERT-pytorch copied the layer norm of the Annotated Transformer. A reply shows its output "
            "beside that of nn.LayerNorm.",
            "https://github.com/codertimo/BERT-pytorch/issues/30",
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
                "return F.layer_norm(x, weight.shape, weight, bias, self.eps)",
                "x = F.layer_norm(x, x.shape[-2:], eps=self.eps) * self.weight\n"
                "        return x if self.bias is None else x + self.bias",
            ),
        ),
        seen=Sighting(
            "A proposed correction of the baseline published with GATr: its norm went over all dimensions"
            " but the first, while that of GATr itself was right.",
            "https://github.com/Qualcomm-AI-research/geometric-algebra-transformer/pull/8",
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
        seen=Sighting(
            "PyTorch's own TransformerEncoderLayer, when norm_first was new: the input was overwritten by"
            " its norm.",
            "https://github.com/pytorch/pytorch/issues/61165",
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
                "state = self.final_norm(x)",
                "state = x",
            ),
        ),
        seen=Sighting(
            "The pre-norm encoder and decoder of NeMo were given their final norm by a later correction.",
            "https://github.com/NVIDIA-NeMo/Speech/pull/2197",
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
        seen=Sighting(
            "The additional heads of an example for Liger Kernel each held one block several times over, "
            "as a list of references to it.",
            "https://github.com/linkedin/Liger-Kernel/pull/269",
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
        seen=Sighting(
            "A wrapper in mlx-lm computed silu(x) * gate instead of silu(gate) * x: one commit had not "
            "reached it.",
            "https://github.com/ml-explore/mlx-lm/pull/767",
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
        seen=Sighting(
            "Megatron-Bridge, the other way round: the exact function for the weights of Gemma, which "
            "were trained with the tanh formula.",
            "https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4661",
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
        seen=Sighting(
            "DALLE-pytorch had an argument ignore_index that its loss did not use.",
            "https://github.com/lucidrains/DALLE-pytorch/issues/57",
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
        seen=Sighting(
            "The Transformer tutorial of TensorFlow took the mean of masked losses, padding included.",
            "https://github.com/tensorflow/docs/pull/1460",
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
        seen=Sighting(
            "A RandAugment for PyTorch, with the targets printed: 1.0000 for the right one of seven "
            "classes, 0.0143 for each of the others.",
            "https://github.com/ildoonet/pytorch-randaugment/issues/30",
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
        seen=Sighting(
            "GPT-NeoX: in every Pythia model the checkpoint after one step equals the one before it.",
            "https://github.com/EleutherAI/gpt-neox/issues/1373",
        ),
    ),
    Bug(
        "hot instead of cold",
        "generation",
        "Logits are multiplied by the temperature. At 1, where everybody tests, it is right.",
        (
            Edit(
                "inference.sampling:with_temperature",
                "divided = logits / temperature",
                "divided = logits * temperature",
            ),
        ),
        seen=Sighting(
            "In the targets of a contrastive loss, not in a sampler: BLEEP divided logits by the "
            "temperature and multiplied targets by it. All its experiments had been run at 1.",
            "https://github.com/bowang-lab/BLEEP/issues/5",
            kindred=True,
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
        seen=Sighting(
            "transformers-neuronx kept tokens while their cumulative sum was at most p.",
            "https://github.com/aws-neuron/transformers-neuronx/issues/46",
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
        seen=Sighting(
            "Routing Transformer gathered twice instead of gathering and scattering: the largest logit "
            "came back in another place.",
            "https://github.com/lucidrains/routing-transformer/issues/1",
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
        seen=Sighting(
            "One token too many, in Mesh Transformer JAX: > in place of >=, so that top-1 left two.",
            "https://github.com/kingoflolz/mesh-transformer-jax/issues/164",
            kindred=True,
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
        seen=Sighting(
            "Sockeye sorted the states of its hypotheses and did not assign the result.",
            "https://github.com/awslabs/sockeye/pull/731",
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
