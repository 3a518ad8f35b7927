"""What the trainer honours, and what it refuses with a reason."""

from __future__ import annotations

import math

import pytest
import torch
from datasets import Dataset
from tiny_trainer import likes_a, trainer
from transformers import GenerationConfig
from trl import GRPOConfig, RLOOConfig

import swor
from swor.integrations.trl import UnorderedSetConfig, UnorderedSetTrainer
from swor.integrations.trl._rewards import check_models, checked
from swor.integrations.trl._sampling import check_text_only, processor_of

pytestmark = pytest.mark.filterwarnings("ignore")

BATCHING = "use_transformers_continuous_batching"
if not hasattr(RLOOConfig, BATCHING):  # before trl 1.0
    BATCHING = "use_transformers_paged"
PROMPTS = [{"prompt": "a b"}] * 4 + [{"prompt": "c d"}] * 4


# Settings that are refused.


@pytest.mark.parametrize(
    "given, message",
    [
        ({"cache_implementation": "static"}, "cache_implementation is 'static'; expected None"),
        ({BATCHING: True}, "expected False: .* can only draw independently"),
        ({"temperature": 0.0}, "temperature is 0.0; expected more than 0"),
        ({"generation_kwargs": {"num_beams": 3}}, "generation_kwargs has num_beams=3; expected only"),
        ({"generation_kwargs": {"max_new_tokens": 3}}, "generation_kwargs has max_new_tokens=3"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, **given)


def test_a_group_that_is_split_is_noticed_when_the_trainer_is_made(tmp_path):
    data = Dataset.from_dict({"prompt": ["a b", "c d"]})
    with pytest.raises(
        ValueError,
        match=r"per_device_eval_batch_size is 6 and num_generations_eval 4; .* Make it 8\.",
    ):
        trainer(tmp_path, options={"eval_dataset": data}, per_device_eval_batch_size=6)


def test_prompts_in_another_order(tmp_path):
    with pytest.raises(ValueError, match="not groups of 4 equal ones"):
        trainer(tmp_path)._generate_and_score_completions(
            [{"prompt": "a b"}] * 3 + [{"prompt": "c"}]
        )


def test_a_config_of_grpo(tmp_path):
    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    with pytest.raises(TypeError, match="args is a GRPOConfig; expected an UnorderedSetConfig"):
        UnorderedSetTrainer("any", likes_a, args)


@pytest.mark.parametrize("name", ["loss_type", "importance_sampling_level", "tools"])
def test_options_of_grpo(name, tmp_path):
    with pytest.raises(TypeError, match=f"{name} is given, but UnorderedSetConfig has no such"):
        UnorderedSetConfig(output_dir=str(tmp_path), **{name: "x"})
    with pytest.raises(TypeError, match=f"{name} is given, but UnorderedSetTrainer has no such"):
        UnorderedSetTrainer("any", likes_a, **{name: "x"})


# Settings that change the distribution.


def test_processors_are_those_of_generate(tmp_path):
    """The same next-token distribution as generate has it, with every setting."""
    run = trainer(tmp_path)
    given = {
        "temperature": 0.7, "top_k": 5, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.3,
        "typical_p": 0.98, "epsilon_cutoff": 1e-4, "suppress_tokens": [3], "no_repeat_ngram_size": 2,
    }  # fmt: skip
    config = GenerationConfig(
        **given, do_sample=True, max_new_tokens=3, pad_token_id=0, eos_token_id=1
    )
    prompts = torch.tensor([[2, 3, 2], [4, 5, 5]])
    torch.manual_seed(0)
    found = run.model.eval().generate(
        prompts, attention_mask=torch.ones_like(prompts), generation_config=config,
        output_scores=True, output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    processor = processor_of(config, "cpu")
    for step, (logits, scores) in enumerate(zip(found.logits, found.scores, strict=True)):
        context = found.sequences[:, : 3 + step]
        assert torch.equal(processor(context, logits.float()), scores)


def test_nothing_changes_the_distribution_by_default(tmp_path):
    assert processor_of(trainer(tmp_path).generation_config, "cpu") is None


@pytest.mark.parametrize("given", [{"top_k": 3}, {"generation_kwargs": {"top_k": 3}}])
def test_weights_are_those_of_the_changed_distribution(given, tmp_path):
    """All 3 · 3 · … completions that top_k leaves are drawn, so the weights are their probabilities."""
    run = trainer(
        tmp_path, num_generations=9, per_device_train_batch_size=9, max_completion_length=2,
        make_args=UnorderedSetConfig, allow_fewer=True, beta=0.0, **given,
    )  # fmt: skip
    run.model.train()
    batch = run._generate_and_score_completions([{"prompt": "a b"}] * 9)
    sample = run._sample
    drawn = sample.log_p > -torch.inf
    assert drawn.sum() >= 7 and len(set(map(tuple, sample.value[drawn].tolist()))) == drawn.sum()
    assert sample.log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    p, reward = sample.log_p.exp(), torch.where(drawn, run._rewards, 0.0)
    expected = 9 * p * (reward - (p * reward).sum())
    assert torch.allclose(batch["advantages"], expected.flatten(), atol=1e-5)
    assert run._metrics["train"]["reward"][-1] == pytest.approx((p * reward).sum().item(), abs=1e-5)
    assert (batch["old_logps"].view_as(p) < sample.log_p)[
        drawn
    ].any()  # TRL differentiates the model


def test_fewer_completions_than_places_need_to_be_allowed(tmp_path):
    sizes = {"num_generations": 8, "max_completion_length": 1, "make_args": UnorderedSetConfig}
    run = trainer(tmp_path, **sizes)  # six tokens
    with pytest.raises(ValueError, match="allow_fewer"):
        run._generate_and_score_completions([{"prompt": "a b"}] * 8)
    run = trainer(tmp_path, allow_fewer=True, max_steps=1, save_strategy="no", **sizes)
    run.train()
    assert all(p.isfinite().all() for p in run.model.parameters())
    entry = next(e for e in run.state.log_history if "reward" in e)
    assert entry["swor/mass_covered"] == pytest.approx(1.0)


# Rewards that are missing.


def test_a_prompt_without_rewards_is_left_out(tmp_path):
    run = trainer(tmp_path, beta=0.1)

    def of_c_only(prompts, completions, **_):
        return [
            r if p == "c d" else None for p, r in zip(prompts, likes_a(completions), strict=True)
        ]

    run.reward_funcs = [of_c_only]
    run.model.train()
    batch = run._generate_and_score_completions(PROMPTS)
    assert torch.equal(batch["advantages"][:4], torch.zeros(4)) and batch["advantages"][4:].any()
    weight = swor.unordered_set(run._sample).weight[1]
    expected = (weight * run._rewards[1]).sum().item()
    for name in ("reward", "rewards/likes_a/mean", "swor/reward"):
        assert run._metrics["train"][name][-1] == pytest.approx(expected, abs=1e-6)


def test_no_prompt_has_rewards(tmp_path):
    run = trainer(tmp_path, max_steps=1, save_strategy="no")
    before = [p.clone() for p in run.model.parameters()]
    run.reward_funcs = [lambda completions, **_: [None] * len(completions)]
    run.train()
    assert all(torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True))


def test_a_completion_without_a_reward_cannot_be_left_out(tmp_path):
    run = trainer(tmp_path)
    run.reward_funcs = [lambda completions, **_: [None, *likes_a(completions[1:])]]
    with pytest.raises(
        ValueError, match=r"returned None for completions \[0\] of prompt 0, but not"
    ):
        run._generate_and_score_completions(PROMPTS)


def test_a_function_may_leave_a_completion_to_the_others(tmp_path):
    run = trainer(tmp_path, options={"reward_funcs": [likes_a, likes_a]})
    run.reward_funcs[1] = lambda completions, **_: [None, *likes_a(completions[1:])]
    run._generate_and_score_completions(PROMPTS)
    factor = torch.tensor([1.0] + [2.0] * 7)
    assert torch.allclose(run._rewards.flatten(), factor * run._by_function[..., 0].flatten())


def test_a_reward_that_is_nan_is_called_nan(tmp_path):
    def broken(completions, **_):
        return [0.0, math.nan, *[0.0] * (len(completions) - 2)]

    run = trainer(tmp_path, options={"reward_funcs": broken})
    with pytest.raises(
        ValueError, match="'broken' returned NaN for completion 1; expected a number"
    ):
        run._generate_and_score_completions(PROMPTS)
    with pytest.raises(ValueError, match="'a model' returned NaN for completion 1"):
        check_models(torch.tensor([[0.0], [math.nan]]), [torch.nn.Identity()], ["a model"])


def test_functions_that_wait_and_objects_are_checked_too():
    class Judge:
        async def __call__(self, **_):
            return [math.nan]

    coroutine = checked(Judge(), "judge")()
    with pytest.raises(ValueError, match="'judge' returned NaN"):
        coroutine.send(None)


# Models.


def test_text_for_a_model_of_images():
    check_text_only(None, {"token_type_ids": [[0, 0], [0]], "mm_token_type_ids": [[0]]})
    check_text_only([None, None], {})
    for images, fields in [
        (["image"], {}),
        (None, {"token_type_ids": [[0, 1]]}),
        (None, {"pixel_values": torch.ones(1)}),
    ]:
        with pytest.raises(ValueError, match="a prompt has images; expected text only"):
            check_text_only(images, fields)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_confident_policy(dtype, tmp_path):
    """From uncertain to certain, weights are numbers that sum to 1, and so is everything made of them."""
    run = trainer(tmp_path, beta=0.1, model_init_kwargs={"dtype": dtype})
    head = run.model.lm_head.weight.detach().clone()
    run.model.train()
    for scale in (1.0, 10.0, 100.0, 1000.0):
        with torch.no_grad():
            run.model.lm_head.weight.copy_(head * scale)
        batch = run._generate_and_score_completions(PROMPTS)
        weight = swor.unordered_set(run._sample).weight
        assert torch.allclose(weight.sum(-1), torch.ones(2), atol=1e-5)
        assert weight.isfinite().all() and batch["advantages"].isfinite().all()
        loss = run.compute_loss(run.model, batch)
        gradients = torch.autograd.grad(loss, list(run.model.parameters()))
        assert loss.isfinite() and all(g.isfinite().all() for g in gradients), scale
        metrics = run._metrics["train"]
        assert all(math.isfinite(metrics[x][-1]) for x in ("reward", "kl", "entropy", "reward_std"))


def test_the_model_card_names_the_estimator(tmp_path):
    run = trainer(tmp_path)
    run.create_model_card(model_name="tiny")
    card = (tmp_path / "README.md").read_text()
    assert "the unordered set estimator" in card and "2002.06043" in card
    assert "kool2020estimating" in card and "swor" in card
