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
        Method(
            "fine_tuning",
            "fine-tuning",
            "the baseline: the original texts, L_FT",
            "mtlib.methods.table3:fine_tuning",
        ),
        Method(
            "mask_tuning",
            "Mask-tuning",
            "equation 1 on texts refilled in each step",
            "mtlib.methods.table3:mask_tuning",
            MaskTuningSettings,
            LearningRates.alike(5e-4),
            refills_in_training=True,
        ),
        Method(
            "augmented",
            "augmented",
            "the original texts and a copy refilled once, L_FT",
            "mtlib.methods.table3:augmented",
            PerturbationSettings,
        ),
        Method(
            "no_integrated_loss",
            "no integrated loss",
            "Mask-tuning without L_MLM",
            "mtlib.methods.table3:no_integrated_loss",
            SharedTrunkSettings,
            refills_in_training=True,
        ),
        Method(
            "sequential",
            "sequential",
            "masked-LM training, then fine-tuning on texts refilled once",
            "mtlib.methods.table3:sequential",
            SequentialSettings,
            LearningRates(1e-4, 1e-4, 5e-4),
        ),
        Method(
            "perturb_first",
            "perturb first",
            "texts refilled once, L_FT",
            "mtlib.methods.table3:perturb_first",
            PerturbationSettings,
        ),
        Method(
            "intermediate_pretraining",
            "intermediate pre-training",
            "masked-LM training on the texts, then L_FT",
            "mtlib.methods.table3:intermediate_pretraining",
            IntermediateSettings,
            LearningRates(1e-4, 1e-4, 5e-4),
        ),
        Method(
            "learned_mixin",
            "Learned-Mixin+H",
            "an ensemble with a frozen bias model, gated",
            "mtlib.methods.frozen_bias:learned_mixin",
            BiasSettings,
        ),
        Method(
            "product_of_experts",
            "product of experts",
            "an ensemble with a bias network trained along",
            "mtlib.methods.product_of_experts:product_of_experts",
            ProductOfExpertsSettings,
        ),
        Method(
            "bias_product",
            "Bias Product",
            "an ensemble with a frozen bias model, without a gate",
            "mtlib.methods.frozen_bias:bias_product",
            BiasSettings,
        ),
        Method(
            "reweight",
            "Reweight",
            "examples weigh the less, the better the bias model explains them",
            "mtlib.methods.frozen_bias:reweight",
            BiasSettings,
        ),
        Method(
            "confidence_regularization",
            "confidence regularization",
            "a student of a teacher whose confidence is cut where the bias model is right",
            "mtlib.methods.confidence_regularization:confidence_regularization",
            BiasSettings,
        ),
        Method(
            "span_cutoff",
            "Span Cutoff",
            "a second view with a span cut out, and agreement of the two",
            "mtlib.methods.two_views:span_cutoff",
        ),
        Method(
            "hidden_cut",
            "HiddenCut",
            "a second view with spans cut out of every layer, and agreement of the two",
            "mtlib.methods.two_views:hidden_cut",
        ),
        Method(
            "ipt",
            "IPT",
            "dependency parsing on a treebank, then fine-tuning",
            "mtlib.methods.ipt:ipt",
            ParsingSettings,
        ),
        Method(
            "masks_left",
            "masks left in",
            "texts masked once and not filled, L_FT",
            "mtlib.methods.without_words:masks_left",
            MaskingSettings,
        ),
        Method(
            "deleted",
            "words deleted",
            "texts without the masked words, L_FT",
            "mtlib.methods.without_words:deleted",
            MaskingSettings,
        ),
    )
}


def get_method(name: str) -> Method:
    check_choice("method", name, METHODS)
    return METHODS[name]


def readers(setting: str) -> list[str]:
    """The names of the methods that read a setting."""
    return [name for name, method in METHODS.items() if setting in method.reads]
