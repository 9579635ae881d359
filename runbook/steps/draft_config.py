"""What a draft model's files say about its fusion of target layers and its token map. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runbook.steps.tensor_names import Entries

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def fusion(config: Mapping[str, Any], entries: Entries) -> dict[str, Any]:
    """{architectures, layer_ids, taps, use_aux_hidden_state, fc, fc_taps}; null where the files do not say.

    `taps`: how many target layers the configuration names; `fc_taps`: how many hidden states side by side the weight `fc` takes.
    """
    eagle = config.get("eagle_config")
    eagle = eagle if isinstance(eagle, Mapping) else {}
    ids = eagle.get(LAYER_IDS, config.get(LAYER_IDS))
    named = config.get("num_aux_hidden_states", len(ids) if isinstance(ids, Sequence) and not isinstance(ids, str) else None)
    fc = next((key for key, entry in entries.items() if key.split(".")[-2:] == ["fc", "weight"] and len(entry.shape) == 2), None)
    width = config.get("target_hidden_size", config.get("hidden_size"))
    taps = None
    if fc is not None and isinstance(width, int) and width > 0:
        wide = entries[fc].shape[1]
        taps = wide // width if wide % width == 0 else wide / width
    return {
        "architectures": config.get("architectures"),
        "layer_ids": ids,
        "taps": named,
        "use_aux_hidden_state": eagle.get("use_aux_hidden_state", config.get("use_aux_hidden_state")),
        "fc": {"key": fc, "shape": list(entries[fc].shape)} if fc else None,
        "fc_taps": taps,
    }


def fusion_findings(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(code, text) of what contradicts itself."""
    findings = []
    fc, taps, named = found["fc"], found["fc_taps"], found["taps"]
    if fc and isinstance(named, int) and taps is not None and taps != named:
        text = f"`{fc['key']}` {fc['shape']} takes {taps:g} hidden states side by side, config.json names {named} target layers"
        findings.append(("fusion_width", text))
    if fc and found["use_aux_hidden_state"] is False:
        text = f"`use_aux_hidden_state` is false although `{fc['key']}` fuses: engines then hand over one layer and skip `fc` in silence"
        findings.append(("aux_off", text))
    return findings


def map_finding(found: Mapping[str, Any]) -> tuple[str, str]:
    """(code, text) of one token map, both readings with their evidence."""
    if "problem" in found:
        return "token_map", f"`{found['key']}` could not be read: {found['problem']}"
    how = {
        "offsets": "looks like offsets: the target's id is the draft's id plus the value",
        "absolute": "looks like absolute ids of the target",
        "either": "can be read as offsets and as absolute ids",
        "neither": "can be read neither as offsets nor as absolute ids",
    }[found["reading"]]
    evidence = "; ".join(f"as {words}: {_evidence(found[name])}" for name, words in (("offsets", "offsets"), ("absolute", "absolute ids")))
    return "token_map", f"`{found['key']}` {how} ({evidence})"


def _evidence(reading: Mapping[str, Any]) -> str:
    parts = [
        f"ids {reading['min']} to {reading['max']}",
        "within the vocabulary" if reading["in_range"] else "out of the vocabulary",
        "each once" if reading["unique"] else "some twice",
        "increasing" if reading["increasing"] else "not increasing",
    ]
    if reading["matches_mask"] is not None:
        parts.append("the very ids that t2d marks" if reading["matches_mask"] else "not the ids that t2d marks")
    return ", ".join(parts)
