"""The TRL trainer on a tiny random model."""

from __future__ import annotations

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import RLOOConfig

from swor.integrations.trl import UnorderedSetTrainer

WORDS = ["<pad>", "<eos>", "a", "b", "c", "d"]


def tokenizer():
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = LlamaConfig(
        vocab_size=len(WORDS),
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        initializer_range=0.3,
        **sizes,
    )
    return LlamaForCausalLM(config)


def likes_a(completions, **_):
    """The share of a's."""
    return [text.split().count("a") / 4 for text in completions]


def trainer(folder, *, options=None, make_args=RLOOConfig, **given):
    """With ``options`` of the trainer and other settings than the usual ones."""
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 4,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_steps": 2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "model_init_kwargs": {"dtype": "float32"},
    }
    model().save_pretrained(folder / "model")  # by name: the reference model is loaded from it too
    usual = {
        "model": str(folder / "model"),
        "reward_funcs": likes_a,
        "train_dataset": Dataset.from_dict({"prompt": ["a b", "c", "b d d", "d"] * 4}),
        "processing_class": tokenizer(),
    }
    return UnorderedSetTrainer(args=make_args(**settings | given), **usual | (options or {}))
