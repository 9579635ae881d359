"""Whole tensors to safetensors files on the host. Copied into a patched file: it must run alone, on Python ≥ 3.8.

A file is a length of 8 bytes, a JSON header of that length, and the values, little-endian and row by row.
"""

# Python 3.8 reads this source too; it is one function because it is embedded as one.
# ruff: noqa: UP031, C901
# mypy: ignore-errors
from __future__ import annotations


def saver(side, modules, most=64 << 20, most_in_all=256 << 20):
    """A function that writes tensors: (number of the hit, {name: value}, facts for the header) -> {name: what became of it}.

    side: the probes' side file; the files go beside it, while it is there. Sizes in bytes, of one tensor and of this process.
    """
    import ctypes
    import json
    import os

    kinds = {
        "float64": "F64",
        "float32": "F32",
        "float16": "F16",
        "bfloat16": "BF16",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
        "complex64": "C64",
        "int64": "I64",
        "int32": "I32",
        "int16": "I16",
        "int8": "I8",
        "uint64": "U64",
        "uint32": "U32",
        "uint16": "U16",
        "uint8": "U8",
        "bool": "BOOL",
    }
    written = [0]

    def size(bytes_):
        return "%.1f MiB" % (bytes_ / 1048576)

    def refusal(value, planned):
        """Why a value is not saved; empty when it can be."""
        torch = modules.get("torch")
        if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return "a %s.%s, not a plain tensor" % (type(value).__module__, type(value).__name__)
        if value.device.type == "meta" or value.layout != torch.strided:
            return "a tensor without values in rows (%s, %s)" % (value.device, value.layout)
        if str(value.dtype).replace("torch.", "") not in kinds:
            return "%s has no place in a safetensors file" % value.dtype
        bytes_ = value.numel() * value.element_size()
        if bytes_ > most:
            return "%s is more than %s a tensor" % (size(bytes_), size(most))
        if written[0] + planned + bytes_ > most_in_all:
            return "%s have been saved by this process, of %s at most" % (size(written[0] + planned), size(most_in_all))
        return ""

    def values_of(tensor):
        """The bytes of a tensor. One device sync, no gradient, the value left as it is."""
        torch = modules["torch"]
        with torch.no_grad():
            flat = tensor.detach()
            flat = flat.resolve_conj().resolve_neg() if hasattr(flat, "resolve_neg") else flat
            flat = flat.cpu().contiguous()
        return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""

    def write(path, parts):
        room = os.statvfs(os.path.dirname(path))
        need = sum(map(len, parts))
        if room.f_bavail * room.f_frsize < 2 * need + (64 << 20):
            raise OSError(28, "the disk would be full")
        fd = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                for part in parts:
                    view = memoryview(part)
                    while view:
                        view = view[os.write(fd, view) :]
            finally:
                os.close(fd)
            os.rename(path + ".part", path)  # whoever fetches it finds it whole
        except BaseException:
            os.unlink(path + ".part")
            raise

    def save(number, values, facts):
        told, header, parts, at = {}, {"__metadata__": facts}, [], 0
        os.stat(side)  # gone when the run is over: then nothing is left behind
        path = "%s.%d.%d.safetensors" % (side[:-6] if side.endswith(".jsonl") else side, os.getpid(), number)
        for name, value in values.items():
            why = refusal(value, at)
            if why:
                told[name] = {"error": "not saved: " + why}
                continue
            data = values_of(value)
            kind, shape = kinds[str(value.dtype).replace("torch.", "")], [int(n) for n in value.shape]
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
            told[name] = {"file": path, "name": name, "shape": shape, "dtype": str(value.dtype).replace("torch.", ""), "bytes": len(data)}
            parts.append(data)
            at += len(data)
        if parts:
            text = json.dumps(header).encode("ascii")
            text += b" " * (-len(text) % 8)
            write(path, [len(text).to_bytes(8, "little"), text, *parts])
            written[0] += at
        return told

    return save
