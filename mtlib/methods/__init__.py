"""The methods, one file each: settings, loss, objective and the trainings they consist of.

To add one, write its file and its test, and put its `Method` into `METHODS`.
"""

from mtlib.method import Method
from mtlib.methods.confidence_regularization import CONFIDENCE_REGULARIZATION
from mtlib.methods.frozen_bias import BIAS_PRODUCT, LEARNED_MIXIN, REWEIGHT
from mtlib.methods.ipt import IPT
from mtlib.methods.product_of_experts import PRODUCT_OF_EXPERTS
from mtlib.methods.table3 import (
    AUGMENTED,
    FINE_TUNING,
    INTERMEDIATE_PRETRAINING,
    MASK_TUNING,
    NO_INTEGRATED_LOSS,
    PERTURB_FIRST,
    SEQUENTIAL,
)
from mtlib.methods.two_views import HIDDEN_CUT, SPAN_CUTOFF
from mtlib.methods.without_words import DELETED, MASKS_LEFT
from mtlib.settings import check_choice

# in the order of the paper's tables
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        FINE_TUNING, MASK_TUNING, AUGMENTED, NO_INTEGRATED_LOSS, SEQUENTIAL, PERTURB_FIRST, INTERMEDIATE_PRETRAINING,
        LEARNED_MIXIN, PRODUCT_OF_EXPERTS, BIAS_PRODUCT, REWEIGHT, CONFIDENCE_REGULARIZATION, SPAN_CUTOFF, HIDDEN_CUT,
        IPT, MASKS_LEFT, DELETED,
    )
}  # fmt: skip


def get_method(name: str) -> Method:
    check_choice("method", name, METHODS)
    return METHODS[name]


def readers(setting: str) -> list[str]:
    """The methods that read a setting."""
    return [name for name, method in METHODS.items() if setting in method.reads]
