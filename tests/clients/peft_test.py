# SPDX-License-Identifier: BSD-3-Clause
"""Tests peft: adapters can be trained, merged, saved and loaded on the device."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor

from tests.clients import tiny_models
from tests.clients.comparison import (
    DEVICE,
    assert_same,
    assert_same_tensors,
    assert_trains_alike,
    on_device,
)

TARGETS = ["q_proj", "v_proj"]
ADAPTERS: dict[str, Any] = {
    "lora": lambda: peft.LoraConfig(r=4, target_modules=TARGETS, init_lora_weights=False),
    "dora": lambda: peft.LoraConfig(
        r=4, target_modules=TARGETS, use_dora=True, init_lora_weights=False
    ),
    "loha": lambda: peft.LoHaConfig(r=4, target_modules=TARGETS, init_weights=False),
    "lokr": lambda: peft.LoKrConfig(r=4, target_modules=TARGETS, init_weights=False),
    "ia3": lambda: peft.IA3Config(
        target_modules=["k_proj", "down_proj"],
        feedforward_modules=["down_proj"],
        init_ia3_weights=False,
    ),
    "oft": lambda: peft.OFTConfig(oft_block_size=8, target_modules=TARGETS, init_weights=False),
    "vera": lambda: peft.VeraConfig(r=4, target_modules=["q_proj", "o_proj"], init_weights=False),
    "prompt": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
}


def adapted(name: str) -> Any:
    torch.manual_seed(0)
    model = tiny_models.decoder("Llama")
    return peft.get_peft_model(model, ADAPTERS[name]())


def loss(model: Any, batch: Any) -> Tensor:
    return model(**batch).loss  # type: ignore[no-any-return]


def batch() -> dict[str, Tensor]:
    text = tiny_models.tokens(2, 12)
    return {"input_ids": text, "labels": text}


@pytest.mark.parametrize("name", ADAPTERS)
def test_trains(name: str) -> None:
    trained = assert_trains_alike(adapted(name), batch(), loss, rtol=1e-3, atol=1e-4)
    moved = {key for key, value in trained.named_parameters() if value.grad is not None}
    assert moved
    assert all(
        any(part in key for part in ("lora", "hada", "lokr", "ia3", "oft", "vera", "prompt"))
        for key in moved
    )


@pytest.mark.parametrize("name", ["lora", "dora", "loha", "lokr", "ia3", "oft", "vera"])
def test_merges(name: str) -> None:
    model, x = adapted(name).eval(), tiny_models.tokens(2, 7)
    ours = on_device(model)
    with torch.no_grad():
        before = ours(x.to(DEVICE)).logits
        theirs = model.merge_and_unload()(x).logits
        merged = ours.merge_and_unload()
        assert_same(merged(x.to(DEVICE)).logits, theirs, rtol=1e-3, atol=1e-3)
        assert_same(before, theirs, rtol=1e-3, atol=1e-3)


def test_saves_and_loads(tmp_path: Path) -> None:
    model = on_device(adapted("lora"))
    model.save_pretrained(tmp_path)
    base = on_device(adapted("lora").unload())
    # Do not specify the device by name: peft would pass the name to safetensors, which rejects it.
    for place in (None, 0):
        loaded = peft.PeftModel.from_pretrained(base, tmp_path, torch_device=place)
        state = peft.get_peft_model_state_dict(model)
        expected = {name: tensor.cpu() for name, tensor in state.items()}
        assert_same_tensors(peft.get_peft_model_state_dict(loaded), expected)
        base = loaded.unload()


def test_switches_adapters() -> None:
    model, x = adapted("lora").eval(), tiny_models.tokens(2, 7)
    model.add_adapter(
        "second", peft.LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False)
    )
    model.add_weighted_adapter(["default", "second"], [0.7, 0.3], "both", combination_type="cat")
    ours = on_device(model)
    with torch.no_grad():
        for name in ("default", "second", "both"):
            ours.set_adapter(name)
            model.set_adapter(name)
            assert_same(ours(x.to(DEVICE)).logits, model(x).logits, rtol=1e-4, atol=1e-4)
        with ours.disable_adapter(), model.disable_adapter():
            assert_same(ours(x.to(DEVICE)).logits, model(x).logits, rtol=1e-4, atol=1e-4)
