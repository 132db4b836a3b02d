"""BERT's relatives: RoBERTa, XLM-R, CamemBERT, ELECTRA, ALBERT, DistilBERT and MPNet.

RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020) and MPNet (Song et al. 2020) read the position of a token
from the row that lies `pad_token_id` + 1 further down; the rows before are not read. A table here begins with
the first position. DistilBERT (Sanh et al. 2019) has no token types, MPNet has none and adds T5's bias of
distances. The embeddings of ELECTRA (Clark et al. 2020) and ALBERT (Lan et al. 2020) may be narrower than the
stream: then they are a `FactorisedEncoder`, as ALBERT always is, whose blocks share their weights in groups.
"""

from __future__ import annotations

from measured_transformer.interop.bert import Dialect, bert_family

_LM_HEAD = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")
_CLASSES = ("classifier.", "qa_outputs.")


def _roberta(name: str, classes: str, vocab: int) -> Dialect:
    return Dialect(
        name=name,
        classes=classes,
        prefix="roberta.",
        heads=("lm_head.", *_CLASSES),
        mlm=_LM_HEAD,
        mlm_activation="gelu",
        pooled=("classifier.dense", "classifier.out_proj"),
        offset=1,
        defaults={"vocab_size": vocab},
    )


ROBERTA = bert_family(_roberta("roberta", "Roberta", 50265))
XLM_ROBERTA = bert_family(_roberta("xlm-roberta", "XLMRoberta", 30522))
CAMEMBERT = bert_family(_roberta("camembert", "Camembert", 30522))
ELECTRA = bert_family(
    Dialect(
        name="electra",
        classes="Electra",
        prefix="electra.",
        heads=("generator_", "discriminator_", *_CLASSES),
        mlm=(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
            None,
        ),
        mlm_activation="gelu",
        pooled=("classifier.dense", "classifier.out_proj"),
        other_poolers=(),
        pooler_activation="gelu",
        defaults={"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
        embedding_size=128,
        widening="embeddings_project",
        choices=False,
    )
)
ALBERT = bert_family(
    Dialect(
        name="albert",
        classes="Albert",
        prefix="albert.",
        heads=("predictions.", "sop_classifier.", *_CLASSES),
        blocks="encoder.albert_layer_groups",
        groups="albert_layers",
        block={
            "attention.query": "attention.query",
            "attention.key": "attention.key",
            "attention.value": "attention.value",
            "attention.dense": "attention.output",
            "attention.LayerNorm": "attention_norm",
            "ffn": "feedforward.up",
            "ffn_output": "feedforward.down",
            "full_layer_layer_norm": "feedforward_norm",
        },
        mlm=(
            "predictions.dense",
            "predictions.LayerNorm",
            "predictions.decoder",
            "predictions.bias",
        ),
        pairs=("ForPreTraining", "sop_classifier.classifier"),
        pooled=("pooler", "classifier"),
        pooler="pooler",
        defaults={
            "vocab_size": 30000,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        embedding_size=128,
        widening="encoder.embedding_hidden_mapping_in",
        widens=True,
    )
)
DISTILBERT = bert_family(
    Dialect(
        name="distilbert",
        classes="DistilBert",
        prefix="distilbert.",
        heads=("vocab_", "pre_classifier.", *_CLASSES),
        blocks="transformer.layer",
        block={
            "attention.q_lin": "attention.query",
            "attention.k_lin": "attention.key",
            "attention.v_lin": "attention.value",
            "attention.out_lin": "attention.output",
            "sa_layer_norm": "attention_norm",
            "ffn.lin1": "feedforward.up",
            "ffn.lin2": "feedforward.down",
            "output_layer_norm": "feedforward_norm",
        },
        mlm=("vocab_transform", "vocab_layer_norm", "vocab_projector", None),
        pooled=("pre_classifier", "classifier"),
        other_poolers=(),
        pooler_activation="relu",
        defaults={"num_hidden_layers": 6, "type_vocab_size": 0},
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "layer_norm_eps": None,
            "type_vocab_size": None,
        },
    )
)
MPNET = bert_family(
    Dialect(
        name="mpnet",
        classes="MPNet",
        prefix="mpnet.",
        heads=("lm_head.", *_CLASSES),
        block={
            "attention.attn.q": "attention.query",
            "attention.attn.k": "attention.key",
            "attention.attn.v": "attention.value",
            "attention.attn.o": "attention.output",
            "attention.LayerNorm": "attention_norm",
            "intermediate.dense": "feedforward.up",
            "output.dense": "feedforward.down",
            "output.LayerNorm": "feedforward_norm",
        },
        mlm=_LM_HEAD,
        mlm_activation="gelu",
        pooled=("classifier.dense", "classifier.out_proj"),
        offset=1,
        positions="learned_and_relative",
        defaults={"vocab_size": 30527, "type_vocab_size": 0},
        keys={"type_vocab_size": None},
        needed={"relative_attention_num_buckets": 32},
    )
)
