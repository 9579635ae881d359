"""The run as one zip file: every format and the evidence, bounded, and the same bytes for the same run."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runbook.model.units import format_size
from runbook.render.inert import one_line

LIMIT = 24 * 1024 * 1024
"""Bytes: GitHub's drop zone takes 25 MB."""
CONTENTS = "contents.txt"
NO_TIME = (1980, 1, 1, 0, 0, 0)


class Piece(NamedTuple):
    """A file, or its end where it was too large to be read whole; `size` is that of the whole."""

    data: bytes
    size: int


def bundle(texts: Mapping[str, str], files: Mapping[str, Piece], missing: Sequence[str] = (), limit: int = LIMIT) -> bytes:
    """A zip of at most `limit` bytes: the texts, then the files, small ones before large ones. `contents.txt` says what is not in it."""
    encoded = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
    pieces = {name: Piece(data, len(data)) for name, data in encoded.items()}
    order = [*pieces.items(), *sorted(files.items(), key=lambda item: (len(item[1].data), item[0]))]
    told = [f"{one_line(name, 500)}: missing" for name in missing]
    room = limit - 64 * 1024  # for the list of contents
    packed: list[tuple[zipfile.ZipInfo, bytes]] = []
    for name, piece in order:
        cost = len(_alone(name, piece.data))
        if cost > room:
            told.append(f"{one_line(name, 500)}: {format_size(piece.size)}, left out, too large for a bundle of {format_size(limit)}")
            continue
        room -= cost
        packed.append((_info(name), piece.data))
        part = "" if len(piece.data) == piece.size else f", only the last {format_size(len(piece.data))}"
        told.append(f"{one_line(name, 500)}: {format_size(piece.size)}{part}")
    listing = "\n".join(["What is in this file, and what is not:", "", *told])
    packed.insert(0, (_info(CONTENTS), listing.encode("utf-8", "replace")[: 48 * 1024] + b"\n"))
    return _zip(packed)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, NO_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _alone(name: str, data: bytes) -> bytes:
    return _zip([(_info(name), data)])


def _zip(members: Sequence[tuple[zipfile.ZipInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for info, data in members:
            archive.writestr(info, data)
    return out.getvalue()
