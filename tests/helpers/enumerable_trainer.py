"""The TRL trainer on a model with seven completions, given samples in the place of drawn ones."""

from __future__ import annotations

from itertools import combinations, product

import torch
from datasets import Dataset
from tiny_trainer import trainer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import swor
from swor.integrations.transformers import completion_log_probs
from swor.integrations.trl import UnorderedSetConfig
from swor.integrations.trl import trainer as trainer_module
from swor.types import Sample, Scheme

WORDS = ["<eos>", "a", "b"]
PROMPTS = ["a b", "b"]
# All completions of up to two tokens.
COMPLETIONS = torch.tensor([[0, 0], *([x, y] for x, y in product((1, 2), (0, 1, 2)))])
LENGTHS = torch.tensor([1, *([2] * 6)])
TRUNCATED = torch.tensor([False, *([False, True, True] * 2)])
REWARDS = torch.tensor([0.5, 1.0, 0.25, 0.0, 0.75, 2.0, 0.125], dtype=torch.float64)


def tokenizer():
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<eos>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<eos>", eos_token="<eos>", padding_side="left"
    )


def model():
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=3, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        pad_token_id=0, eos_token_id=0, bos_token_id=1, initializer_range=0.7,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


def reward(completion_ids, **_):
    """As in REWARDS."""
    known = {
        tuple(c[:n]): r
        for c, n, r in zip(COMPLETIONS.tolist(), LENGTHS.tolist(), REWARDS.tolist(), strict=True)
    }
    return [known[tuple(ids)] for ids in completion_ids]


def enumerable_trainer(folder, k, *, options=None, **given):
    """A trainer whose model has moved away from its reference."""
    model().save_pretrained(folder / "seven")
    usual = {
        "model": str(folder / "seven"),
        "reward_funcs": reward,
        "train_dataset": Dataset.from_dict({"prompt": PROMPTS * 2}),
        "processing_class": tokenizer(),
    }
    settings = {
        "num_generations": k,
        "per_device_train_batch_size": 2 * k,
        "max_completion_length": 2,
        "model_init_kwargs": {"dtype": "auto"},
    }
    run = trainer(
        folder, options=usual | (options or {}), make_args=UnorderedSetConfig, **settings | given
    )
    run.model.train()
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return run


def log_probs(network, run):
    """Of all completions of both prompts, (2, 7), with gradient."""
    ids = [run.processing_class(prompt)["input_ids"] for prompt in PROMPTS]
    rows = [
        completion_log_probs(
            network, torch.tensor([x]), COMPLETIONS[None], eos_token_id=0, pad_token_id=0,
            logits_processor=lambda _, logits: logits / run.temperature,
        )
        for x in ids
    ]  # fmt: skip
    return torch.cat(rows)


def sets(k):
    return [torch.tensor(found) for found in combinations(range(7), k)]


def sample_of(log_p, chosen):
    """The sample of the same completions of both prompts."""
    rest = torch.ones(7, dtype=torch.bool)
    rest[chosen] = False
    log_rest = log_p[:, rest].logsumexp(-1)
    value = COMPLETIONS[chosen].expand(len(log_p), -1, -1)
    return Sample(value, log_p[:, chosen], log_rest, scheme=Scheme.WITHOUT_REPLACEMENT)


def batch_of(run, sample, monkeypatch):
    """What the trainer makes of a sample."""
    monkeypatch.setattr(trainer_module, "sample_completions", lambda *_, **__: sample)
    inputs = [{"prompt": prompt} for prompt in PROMPTS for _ in range(sample.k)]
    return run._generate_and_score_completions(inputs)


def log_prob_set(sample):
    return swor.log_prob_set(sample.log_p, sample.log_rest)
