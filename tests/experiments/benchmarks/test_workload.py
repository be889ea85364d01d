"""The models that benchmarks take, and the batches that fit them."""

import pytest

from experiments.benchmarks.workload import BatchSize, batch_size, model_config
from experiments.errors import UserError


def test_a_model_is_a_choice_a_folder_or_a_hub_id(tmp_path):
    assert model_config("nano").path == "assets/nano"
    chosen = model_config("smollm2_135m", "bfloat16")
    assert chosen.path == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert chosen.fallback and chosen.dtype == "bfloat16"
    assert model_config(str(tmp_path)).path == str(tmp_path)
    assert model_config("some/model").path == "some/model"
    with pytest.raises(UserError, match="model=nan0: no such choice; did you mean 'nano'"):
        model_config("nan0")


def test_a_larger_model_has_smaller_batches_unless_they_are_given():
    assert batch_size(model_config("nano"), None, None, None) == BatchSize(16, 8, 64)
    assert batch_size(model_config("some/model"), 2, None, 96) == BatchSize(2, 4, 96)
