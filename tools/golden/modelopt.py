"""NVFP4 as ModelOpt writes it into Hugging Face checkpoints, both ways.

A matrix NAME.weight (out, in) becomes NAME.weight, u8 (out, in / 2), two e2m1 codes in a byte, the first in the low half;
NAME.weight_scale, e4m3 (out, in / 16); NAME.weight_scale_2, f32 (); NAME.input_scale, which only activations need. A value
is e2m1 * weight_scale * weight_scale_2.
"""

import torch

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
GROUP = 16


def quantise(name, values):
    """The tensors of one matrix."""
    groups = values.float().unflatten(-1, (-1, GROUP))
    whole = groups.abs().max() / (6.0 * 448.0)
    scales = (groups.abs().amax(-1) / 6.0 / whole).to(torch.float8_e4m3fn)
    steps = groups / (scales.float() * whole)[..., None]
    codes = (steps.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (steps < 0)
    codes = codes.flatten(-2).to(torch.uint8)
    return {
        name: codes[..., ::2] | codes[..., 1::2] << 4,
        name + "_scale": scales,
        name + "_scale_2": whole,
        name.removesuffix("weight") + "input_scale": torch.tensor(1.0),
    }


def dequantised(state):
    """The state with every quantised matrix as float32."""
    result = {}
    for name, values in state.items():
        if name + "_scale_2" in state:
            pairs = values.long()
            codes = torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(-2)
            steps = torch.where(codes >= 8, -E2M1[codes & 7], E2M1[codes & 7]).unflatten(-1, (-1, GROUP))
            scales = state[name + "_scale"].float() * state[name + "_scale_2"]
            values = (steps * scales[..., None]).flatten(-2)
        elif name.endswith(("weight_scale", "weight_scale_2", "input_scale")):
            continue
        result[name] = values
    return result
