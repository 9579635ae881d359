"""Thinning a long wait's samples without losing what its log said: marks and first causes stand there once only."""

from __future__ import annotations

import msgspec

from runbook.model.sample import LogSample, Sample, Seen

MOST_LINES = 400


def carry_log(dropped: Sample, kept: Sample) -> Sample:
    """`kept`, the sample after `dropped`, with the log lines of both. Beyond 400 lines those in the middle are counted as skipped."""
    if not isinstance(dropped.log, Seen):
        return kept
    if not isinstance(kept.log, Seen):
        return msgspec.structs.replace(kept, log=dropped.log)
    before, after = dropped.log.value, kept.log.value
    lines = before.lines + after.lines
    cut = max(0, len(lines) - MOST_LINES)
    if cut:
        lines = lines[: MOST_LINES // 2] + lines[-(MOST_LINES // 2) :]
    joined = LogSample(
        path=after.path,
        inode=after.inode,
        size=after.size,
        offset=before.offset,
        end=after.end,
        lines=lines,
        skipped=before.skipped + after.skipped + cut,
        rotated=before.rotated or after.rotated,
    )
    return msgspec.structs.replace(kept, log=Seen(joined))
