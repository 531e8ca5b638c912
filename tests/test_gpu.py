"""Training on a GPU: the losses in bf16 and with torch.compile are those of float32. `bash tests/gpu.sh` runs it."""

import pytest
import torch
from transformers import set_seed

from mtlib import MaskTuning, ObjectiveArguments, ObjectiveTrainer, SharedPLM
from mtlib.data.sources import load
from mtlib.encoding import tokenise
from mtlib.paths import MINI_MODEL_DIR

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def losses(folder, **arguments) -> list[float]:
    """Loss of each of eight steps of Mask-tuning, without dropout."""
    set_seed(0)
    plm = SharedPLM.from_pretrained(
        MINI_MODEL_DIR, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    data = tokenise(load("testbed_sentiment_train").select(range(64)), plm.tokenizer)
    settings = ObjectiveArguments(str(folder), learning_rate=1e-4, logging_steps=1, max_steps=8, **arguments)
    trainer = ObjectiveTrainer(plm, MaskTuning(alpha=0.6), settings, data)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture(scope="module")
def float32(tmp_path_factory) -> list[float]:
    return losses(tmp_path_factory.mktemp("float32"))


def test_bf16_has_the_losses_of_float32(float32, tmp_path):
    assert losses(tmp_path, bf16=True) == pytest.approx(float32, rel=0.05)


def test_compiled_training_has_the_losses_of_float32(float32, tmp_path):
    assert losses(tmp_path, torch_compile=True) == pytest.approx(float32, rel=0.02)
