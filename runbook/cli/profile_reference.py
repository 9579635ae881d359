"""The reference page of engine profiles: their keys, from the struct, and what the packaged ones say, from their files."""

from __future__ import annotations

from runbook.cli.profiles import PACKAGED, Profiles
from runbook.cli.reference import DO_NOT_EDIT
from runbook.model.profile import Profile
from runbook.model.units import format_duration
from runbook.playbook.reference import keys_of, keys_table
from runbook.playbook.shape import type_of


def profiles_page() -> str:
    """The page in Markdown."""
    known = Profiles([PACKAGED])
    names = ["generic", *sorted(known.names() - {"generic"})]
    parts = [
        "# Profiles",
        f"Made from the struct of a profile and from the packaged ones {DO_NOT_EDIT} What the keys are for:"
        " [Engine profiles](../concepts/profiles.md); how to write one: [Write a profile](../guides/writing_profiles.md).",
        "## Keys",
        keys_table(keys_of(type_of(Profile))),
    ]
    for name in names:
        parts += _packaged(known.read(name))
    return "\n\n".join(part for part in parts if part) + "\n"


def _packaged(profile: Profile) -> list[str]:
    versions = ", ".join(f"{package} {span}" for package, span in profile.known.items()) or profile.read_in
    health = profile.health
    facts = [
        f"extends `{profile.extends}`" if profile.extends else "",
        f"marks read in {versions}" if versions else "",
        "never held against a running server" if profile.untried else "",
        f"port {profile.default_port}" if profile.default_port else "",
        f"ready: status {_numbers(health.ready_status)} of `{health.path}`, body {health.body}" if health.path else "no health path",
        f"starting: status {_numbers(health.starting_status)}" if health.starting_status else "",
        f"its port opens {health.listens.replace('_', ' the ')}" if health.listens != "unknown" else "",
    ]
    rows = "\n".join(
        f"| `{phase.id}` | {format_duration(phase.stall)} | {'yes' if phase.per_rank else ''} | {'' if phase.optional else 'yes'} |"
        for phase in profile.phases
    )
    return [
        f"## {profile.profile}",
        f"For {profile.describes}.",
        "\n".join(f"- {fact}" for fact in facts if fact),
        f"| phase | stall budget | of each rank | in every start |\n|---|---|---|---|\n{rows}" if rows else "",
    ]


def _numbers(statuses: tuple[int, ...]) -> str:
    return ", ".join(map(str, statuses))
