"""Values in few words: tensors as shape and statistics. Copied into a patched file: it must run alone, on Python ≥ 3.8."""

# Python 3.8 reads this source too; it is one function because it is embedded as one.
# ruff: noqa: UP031, B905, C901
# mypy: ignore-errors
from __future__ import annotations


def describer(modules):
    """A function (value, why, most) -> what JSON can hold. `why` values must not be read, empty when they may be; `most` characters."""

    def number(value):
        return value if value == value and abs(value) != float("inf") else repr(value)

    def statistics(torch, tensor):  # one device sync; of large tensors every n-th row is read
        note = {}
        for axis in range(tensor.dim()):
            step = -(-tensor.numel() // (1 << 22))
            if step > 1 and tensor.shape[axis] > 1:
                note["read"] = "every %d. along axis %d" % (step, axis)
                tensor = tensor[(slice(None),) * axis + (slice(None, None, step),)]
        with torch.no_grad():
            x = tensor.detach()
            x = (x.abs() if x.is_complex() else x).float()
            good = torch.isfinite(x)
            n = good.sum()
            zero = torch.zeros_like(x)
            mean = torch.where(good, x, zero).sum() / n
            std = (torch.where(good, x - mean, zero).square().sum() / (n - 1).clamp(min=1)).sqrt()
            low, high = torch.where(good, x, zero + float("inf")).min(), torch.where(good, x, zero - float("inf")).max()
            read = torch.stack([mean, std, low, high, torch.isnan(x).sum(), torch.isinf(x).sum(), n]).tolist()
        if read[6]:
            note.update(zip(("mean", "std", "min", "max"), map(number, read)))
        note.update(nan=int(read[4]), inf=int(read[5]))
        return note

    def tensor(value, why):
        told = {"shape": [int(n) for n in value.shape], "dtype": str(value.dtype).replace("torch.", "")}
        if hasattr(value, "device"):
            told["device"] = str(value.device)
        torch = modules.get("torch")
        kind = type(value)
        if not why and (torch is None or kind not in (torch.Tensor, torch.nn.Parameter)):
            why = "a %s.%s, not a plain tensor" % (kind.__module__, kind.__name__)
        if not why and (told["device"] == "meta" or 0 in told["shape"]):
            why = "it has no values"
        try:
            told.update({"values": "not read: " + why} if why else statistics(torch, value))
        except Exception as error:
            told["values"] = "not read: " + "%s: %s" % (type(error).__name__, str(error)[:150])
        return told

    def plain(value, why, most, depth=0):
        if value is None or isinstance(value, bool):
            return value
        if type(value) is int:
            return value if abs(value) < 2**63 else repr(value)[:most]
        if type(value) is float:
            return number(value)
        if type(value) is str:
            return value[:most]
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return tensor(value, why)
        if isinstance(value, (list, tuple)) and depth < 2 and len(value) <= 16:
            return [plain(part, why, most, depth + 1) for part in value]
        if why:  # a repr may read tensors
            return "<%s>" % type(value).__name__
        return repr(value)[:most]

    return plain
