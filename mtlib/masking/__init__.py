"""Which tokens are masked: one file per family of policies, and their names."""

from mtlib.errors import UserError
from mtlib.masking.fixed import FixedMasking
from mtlib.masking.places import check_rate, continues_word, maskable_positions
from mtlib.masking.pointed import MetaLearnedMasking, SupervisedMasking, pointer_loss
from mtlib.masking.policy import MaskingPolicy
from mtlib.masking.random import BernoulliMasking, ExactMasking, OriginalMasking
from mtlib.masking.ranked import AttributionMasking, FrequencyMasking, PartOfSpeechMasking
from mtlib.masking.sides import OneSide
from mtlib.masking.spans import KnownCauseMasking, KnownShortcutMasking, SalientSpanMasking
from mtlib.masking.whole_word import WholeWordMasking

__all__ = [
    "AttributionMasking",
    "BernoulliMasking",
    "ExactMasking",
    "FixedMasking",
    "FrequencyMasking",
    "KnownCauseMasking",
    "KnownShortcutMasking",
    "MaskingPolicy",
    "MetaLearnedMasking",
    "OneSide",
    "OriginalMasking",
    "PartOfSpeechMasking",
    "SalientSpanMasking",
    "SupervisedMasking",
    "WholeWordMasking",
    "check_rate",
    "continues_word",
    "maskable_positions",
    "masking_policy",
    "pointer_loss",
]

# name -> (rate, tokenizer, at_least) -> policy; in the order of `settings.Masking`, which is for those without torch
POLICIES = {
    "exact": lambda rate, tokenizer, at_least: ExactMasking(rate, at_least),
    "bernoulli": lambda rate, tokenizer, at_least: BernoulliMasking(rate),
    "whole_word": lambda rate, tokenizer, at_least: WholeWordMasking(rate, tokenizer, at_least),
    "original": lambda rate, tokenizer, at_least: OriginalMasking(rate, at_least),
    "salient_spans": lambda rate, tokenizer, at_least: SalientSpanMasking(rate, at_least),
    "supervised": lambda rate, tokenizer, at_least: SupervisedMasking(),
    "supervised_top5": lambda rate, tokenizer, at_least: SupervisedMasking(best_of=5),
    "meta_learned": lambda rate, tokenizer, at_least: MetaLearnedMasking(rate, at_least),
    "frequency_rare": lambda rate, tokenizer, at_least: FrequencyMasking(rate, at_least, "rare"),
    "frequency_frequent": lambda rate, tokenizer, at_least: FrequencyMasking(rate, at_least, "frequent"),
    "part_of_speech_content": lambda rate, tokenizer, at_least: PartOfSpeechMasking(rate, at_least, "content"),
    "part_of_speech_function": lambda rate, tokenizer, at_least: PartOfSpeechMasking(rate, at_least, "function"),
    "attribution_most": lambda rate, tokenizer, at_least: AttributionMasking(rate, at_least, "most"),
    "attribution_least": lambda rate, tokenizer, at_least: AttributionMasking(rate, at_least, "least"),
    "known_shortcut": lambda rate, tokenizer, at_least: KnownShortcutMasking(rate, at_least),
    "known_cause": lambda rate, tokenizer, at_least: KnownCauseMasking(rate, at_least),
}


def masking_policy(name: str, rate: float, tokenizer) -> MaskingPolicy:
    """The policy of that name at `rate`; those that count mask at least one token, unless the rate is 0.

    Raises:
        UserError: no policy has that name.
    """
    if name not in POLICIES:
        raise UserError(f"masking is {name!r}; expected one of {', '.join(POLICIES)}.")
    return POLICIES[name](rate, tokenizer, 1 if rate > 0 else 0)
