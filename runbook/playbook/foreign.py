"""Words of other tools that stand where a key of ours is meant, and what is written for them here."""

from __future__ import annotations

_RUN = "write `run: SCRIPT`"
_LOOP = "write `loop: [...]`; `item` is one of them"
_RETRY = "write `retry: {for: 5m, every: 10s}`: a time, not a count"
_INCLUDE = "write `include: {playbook: NAME, with: {...}}`"
_ENV = "put it into the step: `run: {shell: ..., env: {...}}`"
_IGNORE = "write `ignore_errors: true`, or a list of verdicts"
_HOST = "write `host: ROLE`, and the role at the top under `hosts:`"

STEP_TYPES = {
    **dict.fromkeys(("shell", "command", "cmd", "script", "exec", "bash", "sh"), _RUN),
    **dict.fromkeys(("include_tasks", "import_tasks", "import_playbook", "include_role", "uses", "call"), _INCLUDE),
    **dict.fromkeys(("uri", "http", "curl", "get_url"), "write `request: {url: ADDRESS, get: /PATH}`"),
    **dict.fromkeys(("sleep", "wait"), "write `pause: {for: 10s}`, or wait for what is meant: `wait_healthy`, `grep: {wait: 1m}`"),
    **dict.fromkeys(("wait_for", "wait_until"), "write `wait_healthy`, `wait_gpu_free`, or a `retry:` beside the step type"),
    **dict.fromkeys(("test", "expect", "check", "fail"), "write `assert: CONDITION`"),
    "set_fact": "write `set: {NAME: VALUE}`",
}
"""Where a step's type is meant."""
STEP_KEYS = {
    **dict.fromkeys(("with", "with_items", "with_list", "with_dict", "for_each", "foreach", "matrix"), _LOOP),
    **dict.fromkeys(("retries", "delay", "attempts", "until"), _RETRY),
    **dict.fromkeys(("become", "become_user", "sudo"), "write `run: {shell: ..., sudo: true}`"),
    **dict.fromkeys(("timeout-minutes", "timeout_minutes", "timeout_seconds"), "write `timeout: 5m`: a time with its unit"),
    **dict.fromkeys(("if", "only_if", "condition"), "write `when: CONDITION`"),
    **dict.fromkeys(("continue-on-error", "continue_on_error", "allow_failure"), _IGNORE),
    **dict.fromkeys(("failed_when", "changed_when"), "write `expect:` inside the step, or an `assert` after it"),
    **dict.fromkeys(("env", "environment"), _ENV),
    **dict.fromkeys(("hosts", "target", "delegate_to", "runs-on", "on"), _HOST),
    **dict.fromkeys(("title", "desc", "description"), "write `name:`"),
    **dict.fromkeys(("finally", "ensure", "teardown"), "write `always:` beside a `block:`, or at the top for the whole playbook"),
    **dict.fromkeys(("except", "catch", "on_error"), "write `rescue:` beside a `block:`"),
    **dict.fromkeys(("notify", "depends_on", "needs"), "steps run in order: write a later step, with `when:` if it depends"),
    "register": "give the step an `id:`; later steps read `steps.ID.stdout`",
}
"""Where a key beside a step's type is meant."""
TOP_KEYS = {
    **dict.fromkeys(("tasks", "jobs", "plays", "pre_tasks", "step"), "write `steps:`"),
    **dict.fromkeys(("env", "environment", "variables"), f"write `vars:`; as the environment of a step, {_ENV}"),
    **dict.fromkeys(("post_tasks", "finally", "teardown"), "write `always:`"),
    **dict.fromkeys(("params", "parameters", "arguments", "args"), "write `inputs:`"),
    **dict.fromkeys(("target", "targets", "inventory", "runs-on"), "write `hosts: {ROLE: TARGET}`"),
    **dict.fromkeys(("title",), "write `name:`"),
    **dict.fromkeys(("desc",), "write `description:`"),
    **dict.fromkeys(("version", "apiVersion"), "write `runbook: 1`"),
    "on": "leave it out: a playbook begins by `runbook run`",
    "gather_facts": "leave it out: nothing is gathered",
    "become": "leave it out; a step asks for it: `run: {shell: ..., sudo: true}`",
    "handlers": "steps run in order: write a step with `when:`",
}
"""At the left edge."""
LOOPS = frozenset(key for key, hint in STEP_KEYS.items() if hint == _LOOP)
