"""Profiles that contradict themselves, and profiles that extend others: every mistake at once, each with its place."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from runbook.model.diagnostic import Severity
from runbook.model.profile import Profile
from runbook.model.units import Duration
from runbook.playbook.profiles import Source, load_profile

BASE = """\
profile: base
health: {path: /ping, ready_status: [200, 204]}
phases:
  - {id: load, begin: Loading, end: Loaded, stall: 10m}
  - {id: serve, mark: Serving}
noise: [heartbeat]
cause: {oom_gpu: no memory}
not_ready: [{line: almost there, why: the port is closed}]
"""


def path_of(**files: str):
    """A search path: file name without its suffix, `__` for a folder, to text."""
    sources = [Source(f"{name.replace('__', '/')}.yaml", text.encode()) for name, text in files.items()]

    def find(name: str, without: Collection[str]) -> Source | None:
        return next((one for one in sources if one.file.split("/")[-1] == f"{name}.yaml" and one.file not in without), None)

    return find


def load(text: str, file: str = "mine.yaml", **files: str):
    """The profile and what is wrong with it, on a search path that has `base`."""
    return load_profile(text.encode(), file, path_of(base=BASE, **files), ("base",))


def test_what_extends_another_is_merged_over_it():
    profile, found = load("profile: mine\nextends: base\nhealth: {path: /live}\nphases: [{id: load, stall: 30m}]\nnoise: []\n")
    assert profile is not None and not found
    assert profile.health.path == "/live" and profile.health.ready_status == (200, 204)
    assert [(one.id, one.begin, one.stall) for one in profile.phases] == [("load", "Loading", Duration(1800)), ("serve", "", Duration(300))]
    assert profile.noise == () and profile.cause == {"oom_gpu": "no memory"}


def test_a_new_phase_comes_after_the_one_before_it():
    profile, _ = load("profile: mine\nextends: base\nphases: [{id: load}, {id: warm, mark: Warm}]\n")
    assert profile is not None and [one.id for one in profile.phases] == ["load", "warm", "serve"]


def test_one_of_the_same_name_is_extended_from_further_down_the_path():
    own = "profile: base\nextends: base\nready: Up\n"
    profile, found = load_profile(own.encode(), "own/base.yaml", path_of(own__base=own, far__base=BASE), ("base",))
    assert profile is not None and not found and profile.ready == "Up" and profile.health.path == "/ping"


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        ({}, "unknown-profile", "no profile `basse`"),
        ({"basse": "profile: basse\nextends: mine\n"}, "base-profile", "no profile `mine`"),
        ({"basse": "profile: basse\nhealth: {pth: /x}\n"}, "base-profile", "basse.yaml:2:10: unknown key `pth`"),
        ({"basse": "- a list\n"}, "base-profile", "a profile is a mapping"),
    ],
)
def test_a_base_that_cannot_be_had_is_an_error_at_extends(files, code, said):
    profile, found = load("profile: mine\nextends: basse\n", **files)
    assert profile is None and [(one.code, str(one.span)) for one in found] == [(code, "mine.yaml:2:10")]
    assert said in found[0].summary


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("profile: yours", "profile-name"),
        ("noise: ['x*']", "matches-all"),
        ("cause: {oom_gpu: '|x'}", "matches-all"),
        ("cause: {out_of_memory: x}", "unknown-kind"),
        ("line: 'x'", "group"),
        ("processes: {rank_title: 'x'}", "group"),
        ("processes: {ladder: [KILL]}", "pattern"),
        ("phases: [{id: a, mark: x}, {id: a, mark: y}]", "duplicate-id"),
        ("phases: [{id: a}]", "no-mark"),
        ("phases: [{id: a, progress: x, end: y}]", "no-begin"),
        ("phases: [{id: a, mark: x, begin: y}]", "two-marks"),
        ("phases: [{id: serve, begin: y}]", "two-marks"),
        ("health: {path: health}", "path"),
        ("health: {ready_status: [20]}", "range"),
        ("health: {json: {status: ok}}", "body"),
        ("health: {body: nothing}", "choice"),
        ("metrics: {speed: {log: 'x'}}", "group"),
        ("metrics: {speed: {log: '(x'}}", "regex"),
        ("metrics: {speed: {lgo: 'x'}}", "metric"),
        ("ready: almost", "ready-mark"),
        ("not_ready: [{line: x}]", "missing-key"),
        ("known: {sglang: '0.4 to 0.5'}", "pattern"),
        ("phases: [{id: a, mark: x, stall: 90}]", "unit"),
    ],
)
def test_a_contradiction_is_found_on_its_line(line, code):
    text = f"extends: base\n{line}\n" if line.startswith("profile") else f"profile: mine\nextends: base\n{line}\n"
    profile, found = load(text)
    assert profile is None
    assert code in [one.code for one in found] and {one.span.line for one in found if one.span} == {text.count("\n")}


def test_all_mistakes_are_told_at_once_and_none_follows_from_another():
    text = "profile: mine\nphases:\n  - {id: a, begin: '(', stall: 5}\n  - {mark: x}\nnoise: ['.*', 3]\ncause: {oom: x}\nheath: {}\n"
    _, found = load(text)
    assert [(one.span.line, one.code) for one in found if one.span] == [
        (3, "regex"),
        (3, "unit"),
        (4, "missing-key"),
        (5, "matches-all"),
        (5, "type"),
        (6, "unknown-kind"),
        (7, "unknown-key"),
    ]


JUNK = ["null", "1", "'('", "[null, [x]]", "'${{ x }}'"]
NESTED = {
    "phases: [{%s: %s}]": ("id", "mark"),
    "phases: [{id: serve, %s: %s}]": ("mark", "end", "stall"),
    "not_ready: [{%s: %s}]": ("line", "why"),
    "health: {%s: %s}": ("path", "json", "ready_status", "body"),
    "metrics: {m: {%s: %s}}": ("log", "response"),
    "processes: {%s: %s}": ("rank_title", "ladder"),
}


@pytest.mark.parametrize("junk", JUNK)
def test_a_value_of_the_wrong_kind_is_a_mistake_and_never_a_crash(junk):
    lines = [f"{field}: {junk}" for field in Profile.__struct_fields__]
    lines += [shape % (key, junk) for shape, keys in NESTED.items() for key in keys]
    for line in lines:
        profile, found = load(f"profile: mine\nextends: base\n{line}\n" if not line.startswith(("profile:", "extends:")) else line)
        assert (profile is None) == any(one.severity is Severity.ERROR for one in found), line
        assert all(one.span for one in found)
