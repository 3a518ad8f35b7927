"""What the trainer asks of TRL is checked by signature, and options of TRL pass through."""

from __future__ import annotations

import pytest
import trl
from tiny_trainer import trainer

from swor.integrations.trl import _compatibility as compatibility

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_method_with_other_arguments(monkeypatch):
    def _generate_single_turn(self, prompts):
        """As in versions before 0.29."""

    monkeypatch.setattr(trl.RLOOTrainer, "_generate_single_turn", _generate_single_turn)
    expected = (
        r"has _generate_single_turn\(prompts\); expected _generate_single_turn\(prompt_ids, images"
    )
    with pytest.raises(ImportError, match=expected):
        compatibility.check_methods()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("_calculate_rewards", "inputs"), ("_get_per_token_logps_and_entropies", "…")],
)
def test_a_method_that_is_gone(name, arguments, monkeypatch):
    monkeypatch.setattr(trl.RLOOTrainer, name, None)
    with pytest.raises(ImportError, match=rf"has no such method; expected {name}\({arguments}"):
        compatibility.check_methods()


def test_an_attribute_that_is_gone(monkeypatch, tmp_path):
    monkeypatch.setattr(compatibility, "READ", ["_metrics", "_never_there"])
    with pytest.raises(AttributeError, match=r"has no attribute _never_there.*pip install 'trl>="):
        trainer(tmp_path)


def test_without_trl(monkeypatch):
    def gone(name):
        raise compatibility.PackageNotFoundError(name)

    monkeypatch.setattr(compatibility, "version", gone)
    with pytest.raises(ModuleNotFoundError, match="pip install 'trl>="):
        compatibility.check_methods()


def test_options_of_the_trainer_reach_trl(monkeypatch, tmp_path):
    class ReachedError(Exception):
        pass

    def record(
        self, model, reward_funcs, args, train_dataset, eval_dataset, processing_class,
        reward_processing_classes, callbacks, optimizers, quantization_config=None, peft_config=None,
    ):  # fmt: skip
        raise ReachedError(quantization_config, peft_config)

    monkeypatch.setattr(trl.RLOOTrainer, "__init__", record)
    options = {"quantization_config": "four bits", "peft_config": "an adapter"}
    with pytest.raises(ReachedError) as reached:
        trainer(tmp_path, options=options)
    assert reached.value.args == ("four bits", "an adapter")


def test_an_option_that_this_version_lacks(monkeypatch, tmp_path):
    def without(
        self, model, reward_funcs, args, train_dataset, eval_dataset, processing_class,
        reward_processing_classes, callbacks, optimizers,
    ):  # fmt: skip
        """As in versions before 1.8."""

    monkeypatch.setattr(trl.RLOOTrainer, "__init__", without)
    with pytest.raises(
        TypeError, match=r"quantization_config is given, but .* has no such argument"
    ):
        trainer(tmp_path, options={"quantization_config": "four bits"})
