"""The TRL trainer trains an adapter in place of the model."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from tiny_trainer import model, trainer

peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings("ignore")


def lora(**given):
    return peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **given)


def split(run):
    """Parameters of the model and of the adapter."""
    parameters = dict(run.model.named_parameters())
    adapter = {n: p for n, p in parameters.items() if "lora" in n}
    return {n: p for n, p in parameters.items() if n not in adapter}, adapter


def test_training_an_adapter_saves_and_resumes(tmp_path):
    run = trainer(tmp_path / "run", options={"peft_config": lora()}, learning_rate=5e-2)
    before = [{n: p.clone() for n, p in part.items()} for part in split(run)]
    run.train()
    frozen, adapter = split(run)
    assert all(torch.equal(p, before[0][n]) for n, p in frozen.items())
    assert sum(not torch.equal(p, before[1][n]) for n, p in adapter.items()) == len(adapter) > 0
    assert all(len({tuple(x) for x in group}) == 4 for group in run._sample.value.tolist())
    saved = load_file(tmp_path / "run" / "checkpoint-4" / "adapter_model.safetensors")
    assert len(saved) == len(adapter)
    again = trainer(tmp_path / "run", options={"peft_config": lora()}, learning_rate=5e-2)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    for name, parameter in split(again)[1].items():
        assert torch.allclose(parameter, adapter[name], atol=1e-5)


def test_an_adapter_is_sampled_from_and_compared_with_the_model_without_it(tmp_path):
    options = {"peft_config": lora(init_lora_weights=False)}
    run = trainer(tmp_path, options=options, temperature=0.7, beta=0.1)
    batch = run._generate_and_score_completions([{"prompt": "a b"}] * 4 + [{"prompt": "c"}] * 4)
    assert torch.allclose(batch["old_logps"], run._sample.log_p.flatten(), atol=1e-4)
    assert run.ref_model is None and abs(run._metrics["train"]["kl"][0]) > 1e-3


def test_a_model_that_has_an_adapter_already(tmp_path):
    with_adapter = peft.get_peft_model(model(), lora(init_lora_weights=False))
    run = trainer(tmp_path, options={"model": with_adapter}, save_strategy="no", max_steps=2)
    run.train()
    assert [e["swor/reward"] for e in run.state.log_history if "swor/reward" in e]
