"""Which tokens are masked: one file per family of policies, and their names."""

from mtlib.masking import (
    BernoulliMasking,
    ExactMasking,
    MaskingPolicy,
    OriginalMasking,
    WholeWordMasking,
    continues_word,
    maskable_positions,
)
from mtlib.policies.fixed import DrawMasks, FixedMasking
from mtlib.policies.known import KnownCauseMasking, KnownShortcutMasking, ShortcutFirstMasking
from mtlib.policies.meta_learned import MetaLearnedMasking
from mtlib.policies.pointer import pointer_loss
from mtlib.policies.ranked import AttributionMasking, FrequencyMasking, PartOfSpeechMasking
from mtlib.policies.salient_spans import SalientSpanMasking
from mtlib.policies.sides import OneSide
from mtlib.policies.supervised import SupervisedMasking
from mtlib.settings import ENGLISH_PIPELINE, MASK_RATE, check_choice

__all__ = [
    "AttributionMasking",
    "BernoulliMasking",
    "DrawMasks",
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
    "ShortcutFirstMasking",
    "SupervisedMasking",
    "WholeWordMasking",
    "continues_word",
    "maskable_positions",
    "masking_policy",
    "pointer_loss",
]

# name -> (rate, tokenizer, spaCy pipeline) -> policy, in the order of `settings.MASKING_POLICIES`
POLICIES = {
    "exact": lambda rate, tokenizer, pipeline: ExactMasking(rate),
    "bernoulli": lambda rate, tokenizer, pipeline: BernoulliMasking(rate),
    "whole_word": lambda rate, tokenizer, pipeline: WholeWordMasking(rate, tokenizer),
    "original": lambda rate, tokenizer, pipeline: OriginalMasking(rate),
    "salient_spans": lambda rate, tokenizer, pipeline: SalientSpanMasking(rate, pipeline),
    "supervised": lambda rate, tokenizer, pipeline: SupervisedMasking(),
    "supervised_top5": lambda rate, tokenizer, pipeline: SupervisedMasking(best_of=5),
    "meta_learned": lambda rate, tokenizer, pipeline: MetaLearnedMasking(rate),
    "frequency_rare": lambda rate, tokenizer, pipeline: FrequencyMasking(rate, "rare"),
    "frequency_frequent": lambda rate, tokenizer, pipeline: FrequencyMasking(rate, "frequent"),
    "part_of_speech_content": lambda rate, tokenizer, pipeline: PartOfSpeechMasking(rate, "content"),
    "part_of_speech_function": lambda rate, tokenizer, pipeline: PartOfSpeechMasking(rate, "function"),
    "attribution_most": lambda rate, tokenizer, pipeline: AttributionMasking(rate, "most"),
    "attribution_least": lambda rate, tokenizer, pipeline: AttributionMasking(rate, "least"),
    "known_shortcut": lambda rate, tokenizer, pipeline: KnownShortcutMasking(rate),
    "known_shortcut_first": lambda rate, tokenizer, pipeline: ShortcutFirstMasking(rate),
    "known_cause": lambda rate, tokenizer, pipeline: KnownCauseMasking(rate),
}


def masking_policy(name: str, rate: float | None, tokenizer, spacy_pipeline: str = ENGLISH_PIPELINE) -> MaskingPolicy:
    """The policy of that name at `rate`; those that count mask at least one token, unless the rate is 0.

    Without a rate it is `settings.MASK_RATE`; policies that mask a span of its own length read none. `spacy_pipeline`
    finds the named entities of salient spans.

    Raises:
        UserError: no policy has that name.
    """
    check_choice("masking", name, POLICIES)
    return POLICIES[name](MASK_RATE if rate is None else rate, tokenizer, spacy_pipeline)
