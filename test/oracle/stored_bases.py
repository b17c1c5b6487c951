"""Checkpoints that other tools quantize: codes of a matrix by the plainest rounding, what
they stand for, and the tensors that hold them."""
import json
import pathlib
import struct

import safetensors.torch
import torch

import float8_oracle
import quantize_oracle


class Integers:
    """scale × (q - zero) with q and zero of so many bits, unsigned."""

    def __init__(self, bits, group, symmetric):
        self.bits, self.group, self.symmetric = bits, group, symmetric

    def codes(self, matrix):
        """q [out, in], zero and scale [out, groups]."""
        rows, steps = matrix.shape[0], 2 ** self.bits - 1
        groups = matrix.reshape(rows, -1, self.group)
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        if self.symmetric:
            high = torch.maximum(high, -low)
            low = -high
        scale = ((high - low) / steps).to(torch.float16)
        zero = torch.full(scale.shape, 2.0 ** (self.bits - 1))
        if not self.symmetric:
            zero = (-low / scale.float()).round().clamp(0, steps)
        q = (groups / scale.float()[..., None]).round() + zero[..., None]
        return q.clamp(0, steps).reshape(matrix.shape).long(), zero.long(), scale

    def values(self, matrix):
        q, zero, scale = self.codes(matrix)
        groups = q.reshape(*zero.shape, self.group) - zero[..., None]
        return (groups * scale.double()[..., None]).reshape(matrix.shape)


class Gptq(Integers):
    """AutoGPTQ's: transposed, 1 taken from zero points."""

    def __init__(self, bits, group):
        super().__init__(bits, group, symmetric=True)
        self.config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True,
                       "desc_act": False}

    def store(self, name, matrix, tensors):
        q, zero, scale = self.codes(matrix)
        stem = name.removesuffix("weight")
        tensors.update({
            stem + "scales": scale.T.contiguous(),
            stem + "qzeros": quantize_oracle.packed_words(zero - 1, self.bits).T.contiguous(),
            stem + "qweight": quantize_oracle.packed_words(q.T, self.bits).contiguous(),
            stem + "g_idx": (torch.arange(q.shape[1]) // self.group).to(torch.int32)})


class Awq(Integers):
    """AutoAWQ's gemm: transposed, in an order of its own."""

    def __init__(self, group):
        super().__init__(4, group, symmetric=False)
        self.config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
                       "version": "gemm", "modules_to_not_convert": None}

    def store(self, name, matrix, tensors):
        tensors.update(quantize_oracle.awq_matrix(name.removesuffix("weight"), *self.codes(matrix)))


class Float8:
    """DeepSeek-V3's and Qwen3's: e4m3 and a scale for each block."""
    BLOCK = 64

    def __init__(self):
        self.config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                       "weight_block_size": [self.BLOCK, self.BLOCK]}

    def blocks(self, matrix):
        """[down, rows, across, columns]"""
        down, across = (size // self.BLOCK for size in matrix.shape)
        return matrix.reshape(down, self.BLOCK, across, self.BLOCK)

    def codes(self, matrix):
        blocks = self.blocks(matrix)
        # Powers of two, which f16 has exactly (scale_fmt ue8m0).
        scale = torch.exp2(torch.log2(blocks.abs().amax((1, 3)) / 448).ceil())
        q = float8_oracle.as_bytes((blocks / scale[:, None, :, None]).double())
        return q.reshape(matrix.shape), scale

    def values(self, matrix):
        q, scale = self.codes(matrix)
        value = float8_oracle.MAGNITUDES[(q & 127).long()]
        value = self.blocks(torch.where(q >= 128, -value, value))
        return (value * scale.double()[:, None, :, None]).reshape(matrix.shape)

    def store(self, name, matrix, tensors):
        q, scale = self.codes(matrix)
        tensors.update({name: q, name + "_scale_inv": scale})


TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32",
         torch.uint8: "F8_E4M3"}


def save(tensors, path):
    """Bytes are e4m3, which some versions of safetensors do not know."""
    if not any(value.dtype is torch.uint8 for value in tensors.values()):
        safetensors.torch.save_file(tensors, path)
        return
    header, parts, at = {}, [], 0
    for name, value in tensors.items():
        value = value.contiguous()
        if value.dtype is torch.bfloat16:  # which numpy does not know
            data = value.view(torch.int16).numpy().tobytes()
        else:
            data = value.numpy().tobytes()
        header[name] = {"dtype": TYPES[value.dtype], "shape": list(value.shape),
                        "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
