# SPDX-License-Identifier: BSD-3-Clause
"""Tests accelerate: training, mixed precision, accumulation, saved states, dispatched models."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from accelerate.utils import find_executable_batch_size
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from tests.clients import tiny_models
from tests.clients.comparison import DEVICE, assert_same, assert_same_tensors


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Resets Accelerator's state, which includes the device and is global to the process."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(40, 8, generator=generator), torch.randint(3, (40,), generator=generator)
    )


def train(**settings: Any) -> tuple[accelerate.Accelerator, Any, list[float]]:
    accelerator = accelerate.Accelerator(**settings)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    loader = DataLoader(data(), batch_size=8, pin_memory=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for _ in range(2):
        for x, y in loader:
            assert x.device.type == accelerator.device.type
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach()).item())
    return accelerator, model, losses


@pytest.mark.parametrize(
    "settings",
    [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}],
    ids=["plain", "accumulates", "bfloat16"],
)
def test_trains(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator, model, ours = train(**settings)
    assert accelerator.device.type == "openreg"
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    # The argument cpu=True is not enough, because the variable set by conftest.py has priority.
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    _, reference, theirs = train(**settings)
    tolerance = 5e-2 if "mixed_precision" in settings else 1e-4
    assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert_same_tensors(model.state_dict(), reference.state_dict(), rtol=tolerance, atol=tolerance)


class DeviceRandomState:
    """The state of the device's generators. accelerate itself does not save it."""

    def state_dict(self) -> dict[str, Any]:
        return {"states": torch.openreg.get_rng_state_all()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.openreg.set_rng_state_all(state["states"])


def test_saves_state(tmp_path: Path) -> None:
    accelerator, model, _ = train()
    accelerator.register_for_checkpointing(DeviceRandomState())
    accelerator.save_state(str(tmp_path))
    saved = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    expected = torch.rand(4, device=DEVICE).cpu()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(str(tmp_path))
    assert_same_tensors(model.state_dict(), saved)
    assert_same(torch.rand(4, device=DEVICE), expected)


def text_model() -> Any:
    return tiny_models.decoder("Llama").eval()


def prompt() -> Tensor:
    return tiny_models.tokens(2, 7)


def test_dispatches_over_places() -> None:
    """Some layers are on the device, the others on the CPU. Hooks move tensors between them."""
    model, x = text_model(), prompt()
    with torch.no_grad():
        theirs = model(x).logits
        places = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": "cpu"}
        places |= {"model.norm": "cpu", "model.rotary_emb": 0, "lm_head": "openreg:0"}
        ours = accelerate.dispatch_model(copy.deepcopy(model), places, main_device=0)
        assert_same(ours(x.to(DEVICE)).logits, theirs, rtol=1e-4, atol=1e-4)


def test_offloads_to_the_cpu() -> None:
    model, x = text_model(), prompt()
    with torch.no_grad():
        theirs = model(x).logits
        ours = accelerate.cpu_offload(copy.deepcopy(model), execution_device=DEVICE)
        assert_same(ours(x.to(DEVICE)).logits, theirs, rtol=1e-4, atol=1e-4)
        # A layer's weights are on the device only while the layer runs.
        assert {parameter.device.type for parameter in ours.parameters()} == {"meta"}


def test_offloads_to_the_disk(tmp_path: Path) -> None:
    model, x = text_model(), prompt()
    with torch.no_grad():
        theirs = model(x).logits
        ours = accelerate.disk_offload(copy.deepcopy(model), tmp_path, execution_device=DEVICE)
        assert_same(ours(x.to(DEVICE)).logits, theirs, rtol=1e-4, atol=1e-4)


def test_loads_a_checkpoint_over_places(tmp_path: Path) -> None:
    model, x = text_model(), prompt()
    model.save_pretrained(tmp_path)
    sizes = accelerate.utils.compute_module_sizes(model)
    with torch.no_grad():
        theirs = model(x).logits
        limits = {0: sizes[""] // 2, "cpu": "1GB"}
        with accelerate.init_empty_weights():
            empty = type(model)(model.config)
        empty.tie_weights()
        ours = accelerate.load_checkpoint_and_dispatch(
            empty,
            str(tmp_path),
            device_map="auto",
            max_memory=limits,
            no_split_module_classes=["LlamaDecoderLayer"],
        )
        assert {str(place) for place in ours.hf_device_map.values()} == {"0", "cpu"}
        assert_same(ours(x.to(DEVICE)).logits, theirs, rtol=1e-4, atol=1e-4)


def test_finds_a_batch_size() -> None:
    """The search for a batch size works, although it relies on the text of out-of-memory errors."""
    tried = []

    @find_executable_batch_size(starting_batch_size=20)  # type: ignore[untyped-decorator]
    def work(batch_size: int) -> int:
        tried.append(batch_size)
        gigabytes = 2**40 if batch_size > 16 else 2**10
        torch.empty(gigabytes, dtype=torch.uint8, device=DEVICE)
        return batch_size

    assert work() <= 16
    assert tried[0] == 20
