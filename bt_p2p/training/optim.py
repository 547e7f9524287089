"""The optimizer of one block, and the course of its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from bt_p2p.protocol.manifest import OptimizerSpec, RoundSpec

FINAL_SHARE = 0.1
"""Share of the peak learning rate at the end of the decay and ever after."""
_ADAM_EPS = 1e-8
_HIDDEN = "layers."
_ADAMW_MOMENTS = {"exp_avg": "moment1/", "exp_avg_sq": "moment2/"}
_MUON_MOMENTS = {"momentum_buffer": "momentum/"}


class BlockOptimizer:
    """Muon on the matrices inside the layers, AdamW on everything else; or AdamW on all.

    Muon steps along the orthogonalised momentum of a matrix, scaled so that its updates are as
    large as those of AdamW. It keeps one moment instead of two.

    Reference: Muon, arXiv 2502.16982 (Liu et al.), section 2; AdamW, arXiv 1711.05101.
    """

    def __init__(self, spec: OptimizerSpec, parameters: Mapping[str, nn.Parameter]) -> None:
        """Keep references to the parameters, whose names decide which method they get."""
        self._spec = spec
        hidden = {
            name: parameter
            for name, parameter in parameters.items()
            if spec.name == "muon" and name.startswith(_HIDDEN) and parameter.ndim == 2
        }
        rest = {name: value for name, value in parameters.items() if name not in hidden}
        self._parameters = dict(parameters)
        self._moments = dict.fromkeys(hidden, _MUON_MOMENTS)
        self._moments |= dict.fromkeys(rest, _ADAMW_MOMENTS)
        adamw = make_adamw(spec, rest.values())
        self._peaks: list[tuple[torch.optim.Optimizer, float]] = [(adamw, spec.learning_rate)]
        if hidden:
            muon = torch.optim.Muon(
                hidden.values(),
                lr=spec.muon_learning_rate,
                momentum=spec.muon_momentum,
                weight_decay=spec.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
            self._peaks.append((muon, spec.muon_learning_rate))
        self._owner: dict[str, torch.optim.Optimizer] = dict.fromkeys(rest, adamw)
        self._owner |= dict.fromkeys(hidden, self._peaks[-1][0])
        self.num_updates = 0

    def step(self, share: float) -> None:
        """Update all parameters from their gradients, at this share of the peak rates."""
        for optimizer, peak in self._peaks:
            for group in optimizer.param_groups:
                group["lr"] = share * peak
            optimizer.step()
        self.num_updates += 1

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer, _ in self._peaks:
            optimizer.zero_grad(set_to_none=True)

    def moments(self) -> dict[str, Tensor]:
        """Copies of all moments on the CPU, by kind and parameter; empty before the first step."""
        return {
            key: self._owner[name].state[self._parameters[name]][kind].detach().to("cpu", copy=True)
            for name, kind, key in self._keys()
            if self.num_updates
        }

    def size_bytes(self) -> int:
        """Memory that the moments take."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.moments().values())

    def restore(self, tensors: Mapping[str, Tensor], num_updates: int) -> None:
        """Continue from `moments()`; nothing is changed when they do not fit.

        Raises:
            KeyError: a moment is missing.
            ValueError: a moment has another shape than its parameter.
        """
        found: dict[str, dict[str, Tensor]] = {name: {} for name in self._parameters}
        for name, kind, key in self._keys() if num_updates else ():
            if tensors[key].shape != self._parameters[name].shape:
                raise ValueError(f"{key} has shape {list(tensors[key].shape)}")
            found[name][kind] = tensors[key]
        for optimizer, _ in self._peaks:
            optimizer.state.clear()
        self.num_updates = num_updates
        for name, values in found.items():
            if not values:
                continue
            device = self._parameters[name].device
            state = {kind: value.to(device, copy=True) for kind, value in values.items()}
            if "exp_avg" in state:
                on = device if device.type == "cuda" else "cpu"
                state["step"] = torch.tensor(float(num_updates), dtype=torch.float32, device=on)
            self._owner[name].state[self._parameters[name]] = state

    def _keys(self) -> Iterator[tuple[str, str, str]]:
        for name, kinds in self._moments.items():
            for kind, prefix in kinds.items():
                yield name, kind, f"{prefix}{name}"


def make_adamw(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
    """AdamW over the parameters, in their order; vectors (norms) do not decay.

    Reference: arXiv 1711.05101, algorithm 2.
    """
    everything = list(parameters)
    groups = [
        {
            "params": [parameter for parameter in everything if parameter.ndim >= 2],
            "weight_decay": spec.weight_decay,
        },
        {
            "params": [parameter for parameter in everything if parameter.ndim < 2],
            "weight_decay": 0.0,
        },
    ]
    is_fused = all(parameter.device.type in {"cpu", "cuda"} for parameter in everything)
    return torch.optim.AdamW(
        groups,
        lr=spec.learning_rate,
        betas=(spec.beta1, spec.beta2),
        eps=_ADAM_EPS,
        fused=is_fused,
    )


def rate_share(
    spec: OptimizerSpec, rounds: RoundSpec, steps_since_fresh: int, round_index: int
) -> float:
    """Share of the peak learning rates at which the next step is taken.

    A linear warm-up over local steps, since a fresh optimizer knows no moments, times a cosine over
    the run's rounds, which all replicas share:

        share = 0.1 + 0.9 * (1 + cos(pi * min(round / decay_rounds, 1))) / 2

    Args:
        spec: length of the warm-up.
        rounds: length of the decay.
        steps_since_fresh: steps this optimizer has taken, 0 for the first.
        round_index: round of the run.
    """
    warmup = min(1.0, (steps_since_fresh + 1) / max(1, spec.warmup_steps))
    progress = min(max(round_index, 0) / rounds.decay_rounds, 1.0)
    return warmup * (FINAL_SHARE + (1 - FINAL_SHARE) * (1 + math.cos(math.pi * progress)) / 2)
