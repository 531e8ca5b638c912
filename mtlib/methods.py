"""A row of the paper's tables: how a method trains."""

from mtlib.config import RunConfig
from mtlib.masking import BernoulliMasking, ExactMasking, MaskingPolicy, WholeWordMasking
from mtlib.objectives import FineTuning, MaskTuning, Objective


def make_objective(config: RunConfig, tokenizer) -> Objective:
    """The objective of `config.method` with the settings of a resolved `config`."""
    if config.method == "fine_tuning":
        return FineTuning()
    masking = make_masking(config, tokenizer)
    return MaskTuning(config.alpha, masking, config.fill, config.top_k or 10, config.replacement)


def make_masking(config: RunConfig, tokenizer) -> MaskingPolicy:
    at_least = 1 if config.mask_rate > 0 else 0
    if config.masking == "bernoulli":
        return BernoulliMasking(config.mask_rate)
    if config.masking == "whole_word":
        return WholeWordMasking(config.mask_rate, tokenizer, at_least)
    return ExactMasking(config.mask_rate, at_least)
