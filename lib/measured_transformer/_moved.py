"""Former names, of modules and in them: they work for one version, with a warning that names the new ones."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]

# Former module -> where its names are now, all below the package.
MOVED: dict[str, tuple[str, ...]] = {
    "analysis.activations": ("chapters.feed_forward.measure",),
    "analysis.activations_and_widths": ("chapters.activations_and_widths.measure",),
    "analysis.allocation": ("chapters.allocation.measure",),
    "analysis.attention": (
        "chapters.attention.measure",
        "analysis.drawn_cases",
    ),
    "analysis.attention_only": ("variants.feedforward",),
    "analysis.branch_factor": ("variants.initialisation",),
    "analysis.contributions": ("chapters.layers_as_steps.measure",),
    "analysis.curvature": ("chapters.warm_up.measure",),
    "analysis.entropy_signal": ("chapters.training_attention.measure",),
    "analysis.facts": ("analysis.fact_lookups",),
    "analysis.far_apart": ("chapters.transformer_or_recurrent.measure",),
    "analysis.feed_forward": ("chapters.feed_forward.measure",),
    "analysis.first_weights": ("variants.initialisation",),
    "analysis.fixed_tables": ("variants.embeddings",),
    "analysis.frozen_scores": ("variants.attention",),
    "analysis.head_roles": ("chapters.one_head.measure",),
    "analysis.heads": ("chapters.one_head.measure",),
    "analysis.heads_split": ("chapters.heads.measure",),
    "analysis.initialisation": (
        "chapters.initialisation.measure",
        "analysis.states",
    ),
    "analysis.layer_edits": ("chapters.layers_as_steps.measure",),
    "analysis.learned_scale": ("variants.attention",),
    "analysis.learning_rate": ("chapters.learning_rate.measure",),
    "analysis.left_out": ("variants.component_ablation",),
    "analysis.network_or_attention": (
        "chapters.feed_forward.measure",
        "chapters.feed_forward.reading",
    ),
    "analysis.neuron_patterns": ("chapters.neurons.measure",),
    "analysis.norm_arms": (
        "variants.norms",
        "variants.gradients",
        "chapters.norm_gradients.measure",
    ),
    "analysis.norm_gradients": (
        "chapters.norm_gradients.measure",
        "variants.gradients",
    ),
    "analysis.norm_placement": (
        "analysis.solving",
        "chapters.norm_placement.measure",
    ),
    "analysis.norm_substitutes": ("variants.norms",),
    "analysis.norms": ("analysis.folding", "chapters.layer_norm.measure"),
    "analysis.one_layer": ("chapters.one_layer.measure",),
    "analysis.pieces": ("chapters.pieces.measure",),
    "analysis.position_training": ("variants.positions",),
    "analysis.projections": ("chapters.projections.measure",),
    "analysis.pruning": ("chapters.one_head.measure",),
    "analysis.pruning_arms": ("chapters.one_head.measure",),
    "analysis.published": ("chapters.feed_forward.measure",),
    "analysis.regularisation": (
        "analysis.calibration",
        "chapters.regularisation.measure",
        "variants.dropout",
    ),
    "analysis.relations": ("chapters.heads_and_grammar.measure",),
    "analysis.rotary": ("chapters.rotary_and_alibi.measure",),
    "analysis.scale": ("chapters.scale.measure",),
    "analysis.schedules": ("chapters.schedules.measure",),
    "analysis.small_steps": ("chapters.step_size.measure",),
    "analysis.squared_relu": ("variants.feedforward",),
    "analysis.substitutes": ("variants.substitutes",),
    "analysis.tied": ("variants.attention",),
    "analysis.training_attention": ("chapters.training_attention.measure",),
    "analysis.very_deep": (
        "chapters.step_size.measure",
        "analysis.states",
    ),
    "analysis.warm_up": (
        "chapters.warm_up.measure",
        "analysis.alarms",
        "analysis.curves",
    ),
    "analysis.without_norms": ("chapters.step_size.measure",),
    "exercises.activations_and_widths": ("chapters.activations_and_widths.exercises",),
    "exercises.allocation": ("chapters.allocation.exercises",),
    "exercises.attention": ("chapters.attention.exercises",),
    "exercises.cost": ("chapters.cost.exercises",),
    "exercises.entropy_signal": ("chapters.training_attention.exercises",),
    "exercises.facts": ("chapters.facts.exercises",),
    "exercises.far_apart": ("chapters.transformer_or_recurrent.exercises",),
    "exercises.feed_forward": ("chapters.feed_forward.exercises",),
    "exercises.head_roles": ("chapters.one_head.exercises",),
    "exercises.heads": ("chapters.heads.exercises",),
    "exercises.heads_and_grammar": ("chapters.heads_and_grammar.exercises",),
    "exercises.initialisation": ("chapters.initialisation.exercises",),
    "exercises.layer_norm": ("chapters.layer_norm.exercises",),
    "exercises.layers": ("chapters.layers.exercises",),
    "exercises.layers_as_steps": ("chapters.layers_as_steps.exercises",),
    "exercises.learning_rate": ("chapters.learning_rate.exercises",),
    "exercises.network_or_attention": ("chapters.feed_forward.exercises",),
    "exercises.neurons": ("chapters.neurons.exercises",),
    "exercises.norm_gradients": ("chapters.norm_gradients.exercises",),
    "exercises.norm_placement": ("chapters.norm_placement.exercises",),
    "exercises.one_layer": ("chapters.one_layer.exercises",),
    "exercises.pieces": ("chapters.pieces.exercises",),
    "exercises.positions": (
        "chapters.positional_encoding.exercises",
        "chapters.rotary_and_alibi.exercises",
        "chapters.extrapolation.exercises",
        "chapters.surviving.exercises",
    ),
    "exercises.projections": ("chapters.projections.exercises",),
    "exercises.pruning": ("chapters.one_head.exercises",),
    "exercises.regularisation": ("chapters.regularisation.exercises",),
    "exercises.residual": (
        "chapters.residual_stream.exercises",
        "chapters.without_skips.exercises",
    ),
    "exercises.scale": ("chapters.scale.exercises",),
    "exercises.schedules": ("chapters.schedules.exercises",),
    "exercises.small_steps": ("chapters.step_size.exercises",),
    "exercises.training_attention": ("chapters.training_attention.exercises",),
    "exercises.very_deep": ("chapters.step_size.exercises",),
    "exercises.warm_up": ("chapters.warm_up.exercises",),
    "exercises.without_norms": ("chapters.step_size.exercises",),
    "figures.activations_and_widths": ("chapters.activations_and_widths.figures",),
    "figures.allocation": ("chapters.allocation.figures",),
    "figures.attention": ("chapters.attention.figures",),
    "figures.cost": ("chapters.cost.figures",),
    "figures.entropy_signal": ("chapters.training_attention.figures",),
    "figures.extrapolation": ("chapters.extrapolation.figures",),
    "figures.facts": (
        "chapters.facts.figures",
        "figures.fact_tables",
    ),
    "figures.far_apart": ("chapters.transformer_or_recurrent.figures",),
    "figures.feed_forward": ("chapters.feed_forward.figures",),
    "figures.head_roles": ("chapters.one_head.figures",),
    "figures.heads": ("chapters.heads.figures",),
    "figures.initialisation": ("chapters.initialisation.figures",),
    "figures.layers": ("chapters.layers.figures",),
    "figures.layers_as_steps": ("chapters.layers_as_steps.figures",),
    "figures.learning_rate": ("chapters.learning_rate.figures",),
    "figures.network_or_attention": ("chapters.feed_forward.figures",),
    "figures.neurons": ("chapters.neurons.figures",),
    "figures.norm_gradients": ("chapters.norm_gradients.figures",),
    "figures.norm_placement": (
        "chapters.norm_placement.figures",
        "figures.solving",
    ),
    "figures.norms": ("chapters.layer_norm.figures",),
    "figures.one_layer": ("chapters.one_layer.figures",),
    "figures.pieces": ("chapters.pieces.figures",),
    "figures.positions": (
        "figures.schemes",
        "chapters.positional_encoding.figures",
        "chapters.rotary_and_alibi.figures",
        "chapters.surviving.figures",
    ),
    "figures.projections": ("chapters.projections.figures",),
    "figures.pruning": ("chapters.one_head.figures",),
    "figures.regularisation": ("chapters.regularisation.figures",),
    "figures.relations": ("chapters.heads_and_grammar.figures",),
    "figures.residual": (
        "chapters.residual_stream.figures",
        "chapters.without_skips.figures",
    ),
    "figures.scale": ("chapters.scale.figures",),
    "figures.schedules": ("chapters.schedules.figures",),
    "figures.small_steps": ("chapters.step_size.figures",),
    "figures.training_attention": ("chapters.training_attention.figures",),
    "figures.very_deep": ("chapters.step_size.figures",),
    "figures.warm_up": ("chapters.warm_up.figures",),
    "figures.without_norms": (
        "chapters.step_size.figures",
        "figures.solving",
    ),
    "analysis.until_solved": (
        "analysis.early_stopping",
        "chapters.norm_gradients.measure",
    ),
    "models.places": ("models.token_positions",),
    "parts.linear": ("parts.kernels.linear",),
}


def _all_in(home: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), home)


# Module -> a name that it had -> where that is now: a module, and the name there if it is another one.
CHANGED: dict[str, dict[str, str]] = {
    "analysis.allocation": {
        name: f"chapters.allocation.measure:{now}"
        for name, now in (
            ("mass", "total_weight"),
            ("needed_lead", "needed_margin"),
            ("led_weights", "margin_weights"),
            ("marked_mass", "marked_weight"),
            ("learnt_lead", "learned_margin"),
        )
    },
    "analysis.attention_only": {
        "Given": "variants.feedforward:FixedEmbeddings",
        "NoNetwork": "variants.substitutes:Silent",
    },
    "analysis.circuits": {"offset_turn": "analysis.circuits:offset_rotation"},
    "analysis.cost": _all_in(
        "chapters.cost.measure",
        "Array Crossovers Measured Times counted_attention counted_network crossovers drawn_sizes "
        "equal_from measured_sublayers pattern_to_stream",
    ),
    "analysis.extrapolation": _all_in("chapters.extrapolation.measure", "by_bucket longest_within"),
    "analysis.ffn_memory": _all_in(
        "chapters.neurons.measure",
        "Reader activations convention_error firing_rates forced forced_changes kinds pushes rise "
        "set_auc silenced table variance_explained",
    ),
    "analysis.gradients": _all_in(
        "chapters.without_skips.measure",
        "branch_gains by_length every_path finite_difference last_gradient shares",
    ),
    "analysis.grammar_probes": _all_in(
        "chapters.layers.measure", "agreement_learnt carrying_model pronouns_learnt word_kinds"
    ),
    "analysis.layers": _all_in(
        "chapters.layers.measure",
        "Lens lens locality null_distances random_attention rise_without row_statistics thirds",
    ),
    "analysis.positions": {
        "score_map": "chapters.rotary_and_alibi.measure",
        **_all_in(
            "chapters.surviving.measure",
            "changed_positions explained_by_position loss_without_places task_loss untrained",
        ),
    },
    "analysis.residual": {
        **_all_in(
            "chapters.residual_stream.measure",
            "embedding_part growth kept_cosines needed_cosine step_ratios",
        ),
        "deleted": "chapters.without_skips.measure",
        "mirror_attention": "analysis.mirroring",
        **_all_in("chapters.one_layer.measure", "nested six_operations staged"),
    },
    "analysis.substitutes": {"Nothing": "variants.substitutes:Silent"},
    "analysis.training_attention": {
        "evenness": "chapters.training_attention.measure:normalised_entropy",
        "head_evenness": "chapters.training_attention.measure:head_entropy",
        "model_evenness": "chapters.training_attention.measure:model_entropy",
        "predicted_evenness": "chapters.training_attention.measure:predicted_entropy",
    },
    "figures.diagrams": {"block_placements": "figures.diagrams:plot_block_placements"},
    "interop.bert": {"write_config": "interop.bert:BERT.write_config"},
    "interop.gpt2": {"write_config": "interop.gpt2:GPT2.write_config"},
    "interop.llama": {"write_config": "interop.llama:LLAMA.write_config"},
    "interop.t5": {"write_config": "interop.t5:T5.write_config"},
    "models.head": {"HeadedStack": "models.stack:Stack"},
    "models.places": {
        "Places": "models.token_positions:TokenPositions",
        "find_places": "models.token_positions:find_positions",
    },
}


def former_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that goes on knowing the names it had, each with a warning."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        now = CHANGED.get(_short(module), {}).get(name)
        if now is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, new = _split(now, name)
        warnings.warn(
            f"{module}.{name} is now {home}.{new}; the former name works for one version",
            DeprecationWarning,
            stacklevel=2,
        )
        return attrgetter(new)(import_module(home))

    return __getattr__


def _split(now: str, name: str) -> tuple[str, str]:
    home, _, new = now.partition(":")
    return f"{_PACKAGE}.{home}", new or name


class _Former(ModuleType):
    """A module under its former name: its names are looked up where they are now."""

    def __getattr__(self, name: str) -> Any:
        homes = [import_module(f"{_PACKAGE}.{home}") for home in MOVED[_short(self.__name__)]]
        if name == "__all__":
            names = {key for home in homes for key in vars(home) if not key.startswith("_")}
            return sorted(names | {key.removeprefix("plot_") for key in names})
        if (now := CHANGED.get(_short(self.__name__), {}).get(name)) is not None:
            module, new = _split(now, name)
            return attrgetter(new)(import_module(module))
        for home in homes:
            for new in (name, f"plot_{name}"):  # what draws a figure was called by what it shows
                if not name.startswith("__") and new in vars(home):
                    return getattr(home, new)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Finder(MetaPathFinder, Loader):
    """Finds modules under their former names, when nothing else does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if _short(fullname) in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Former(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        homes = " and ".join(f"{_PACKAGE}.{home}" for home in MOVED[_short(module.__name__)])
        warnings.warn(
            f"{module.__name__} is now {homes}; the former name works for one version",
            DeprecationWarning,
            stacklevel=2,
        )


def _short(fullname: str) -> str:
    return fullname.removeprefix(f"{_PACKAGE}.")


def install() -> None:
    """Let imports find what has moved."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
