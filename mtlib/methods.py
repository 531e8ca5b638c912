"""A row of the paper's tables: how a method trains."""

from mtlib.config import RunConfig
from mtlib.masking import masking_policy
from mtlib.objectives import FineTuning, MaskTuning, Objective


def make_objective(config: RunConfig, tokenizer) -> Objective:
    """The objective of `config.method` with the settings of a resolved `config`."""
    if config.method == "fine_tuning":
        return FineTuning()
    masking = masking_policy(config.masking, config.mask_rate, tokenizer)
    return MaskTuning(config.alpha, masking, config.fill, config.top_k or 10, config.replacement)
