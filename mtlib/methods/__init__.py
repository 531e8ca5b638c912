"""The methods by name, with their settings; nothing here needs torch.

A method is one file, with its loss, its objective and the stages that it consists of, and one entry
here, which says where these stages are. To add one, write its file and its test, put its settings
into `mtlib.methods.settings`, and its entry into `METHODS`.
"""

from mtlib.method import LearningRates, Method
from mtlib.methods.settings import (
    BiasSettings,
    IntermediateSettings,
    MaskingSettings,
    MaskTuningSettings,
    ParsingSettings,
    PerturbationSettings,
    ProductOfExpertsSettings,
    SequentialSettings,
    SharedTrunkSettings,
)
from mtlib.settings import check_choice

# In the order of the paper's tables. The rates of fine-tuning and Mask-tuning were chosen on SST-2
# dev alone; the others have no grid.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("fine_tuning", "fine-tuning", "mtlib.methods.table3:fine_tuning"),
        Method(
            "mask_tuning",
            "Mask-tuning",
            "mtlib.methods.table3:mask_tuning",
            MaskTuningSettings,
            LearningRates.alike(5e-4),
            refills_in_training=True,
        ),
        Method("augmented", "augmented", "mtlib.methods.table3:augmented", PerturbationSettings),
        Method(
            "no_integrated_loss",
            "no integrated loss",
            "mtlib.methods.table3:no_integrated_loss",
            SharedTrunkSettings,
            refills_in_training=True,
        ),
        Method(
            "sequential",
            "sequential",
            "mtlib.methods.table3:sequential",
            SequentialSettings,
            LearningRates(1e-4, 1e-4, 5e-4),
        ),
        Method(
            "perturb_first",
            "perturb first",
            "mtlib.methods.table3:perturb_first",
            PerturbationSettings,
        ),
        Method(
            "intermediate_pretraining",
            "intermediate pre-training",
            "mtlib.methods.table3:intermediate_pretraining",
            IntermediateSettings,
            LearningRates(1e-4, 1e-4, 5e-4),
        ),
        Method(
            "learned_mixin",
            "Learned-Mixin+H",
            "mtlib.methods.frozen_bias:learned_mixin",
            BiasSettings,
        ),
        Method(
            "product_of_experts",
            "product of experts",
            "mtlib.methods.product_of_experts:product_of_experts",
            ProductOfExpertsSettings,
        ),
        Method(
            "bias_product", "Bias Product", "mtlib.methods.frozen_bias:bias_product", BiasSettings
        ),
        Method("reweight", "Reweight", "mtlib.methods.frozen_bias:reweight", BiasSettings),
        Method(
            "confidence_regularization",
            "confidence regularization",
            "mtlib.methods.confidence_regularization:confidence_regularization",
            BiasSettings,
        ),
        Method("span_cutoff", "Span Cutoff", "mtlib.methods.two_views:span_cutoff"),
        Method("hidden_cut", "HiddenCut", "mtlib.methods.two_views:hidden_cut"),
        Method("ipt", "IPT", "mtlib.methods.ipt:ipt", ParsingSettings),
        Method(
            "masks_left", "masks left in", "mtlib.methods.without_words:masks_left", MaskingSettings
        ),
        Method("deleted", "words deleted", "mtlib.methods.without_words:deleted", MaskingSettings),
    )
}


def get_method(name: str) -> Method:
    check_choice("method", name, METHODS)
    return METHODS[name]


def readers(setting: str) -> list[str]:
    """The names of the methods that read a setting."""
    return [name for name, method in METHODS.items() if setting in method.reads]
