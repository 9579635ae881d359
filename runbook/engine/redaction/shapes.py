"""Secrets that are known by their shape alone: tokens with a vendor's prefix, headers, addresses with a password.

One line each. Every pattern begins with a literal and is bounded, so a text costs time in proportion to its length, whoever wrote it. The
group `v`, where there is one, is the secret; what stands around it is evidence and stays.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

from runbook.engine.redaction.values import has_digit_and_letter, is_plain, is_random

_BEFORE = [r"(?<![A-Za-z0-9]{})", r"(?<=\\[nrt]{})", r"(?<=%[0-9A-Fa-f][0-9A-Fa-f]{})"]
_BEFORE += [rf"(?<={escape}\[{code}m{{}})" for escape in (r"\x1b", r"\\u001b") for code in (r"\d", r"\d\d", r"\d;\d\d")]


def word(literal: str, rest: str) -> str:
    """A pattern for a literal that begins a word, and what follows it; a word begins also after an escape of JSON or a URL, or a colour.

    The literal stands first, where searching for it is fast, and the pattern looks back over it.
    """
    return f"{literal}(?:{'|'.join(before.format(literal) for before in _BEFORE)}){rest}"


class Shape(NamedTuple):
    """One shape, tried in a text that holds `needle` in small letters; `passes` judges its group `body` or `v`, or the whole."""

    kind: str
    needle: str
    pattern: str
    passes: Callable[[str], bool] | None = None


def _prefixed(kind: str, rest: str, *literals: str, passes: Callable[[str], bool] | None = None) -> list[Shape]:
    return [Shape(kind, literal.lower(), word(re.escape(literal), rest), passes) for literal in literals]


PREFIXED: tuple[Shape, ...] = (
    *_prefixed("hf-token", r"[A-Za-z0-9]{30,}", "hf_", "api_org_"),
    *_prefixed("anthropic-key", r"[A-Za-z0-9_-]{20,}", "sk-ant-"),
    *_prefixed("openai-key", r"(?:proj-|svcacct-|admin-|or-v1-)?(?P<body>[A-Za-z0-9_-]{20,})", "sk-", passes=is_random),
    *_prefixed("nvidia-key", r"[A-Za-z0-9_-]{20,}", "nvapi-"),
    *_prefixed("wandb-key", r"[A-Za-z0-9_]{20,}", "wandb_v1_"),
    *_prefixed("aws-key-id", r"[A-Z0-9]{16}(?![A-Za-z0-9])", "AKIA", "ASIA", "ABIA", "ACCA"),
    *_prefixed("gcp-key", r"[A-Za-z0-9_-]{35}", "AIza"),
    *_prefixed("gcp-key", r"[A-Za-z0-9_-]{20,}", "ya29.", "GOCSPX-"),
    *_prefixed("github-token", r"[A-Za-z0-9_]{30,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    *_prefixed("gitlab-token", r"[A-Za-z0-9_.-]{16,}", *(f"gl{kind}-" for kind in "pat dt rt cbt ptt ft soat agent oas".split())),
    *_prefixed("slack-token", r"[A-Za-z0-9-]{10,}", *(f"xox{kind}-" for kind in "abeoprs"), "xapp-", passes=has_digit_and_letter),
    Shape("jwt", "eyj", r"eyJ(?:(?<![\w-]eyJ)|(?<=\\[nrt]eyJ))[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
    *_prefixed("vendor-key", r"[A-Za-z0-9]{16,}", *(f"{kind}k_{stage}_" for kind in "prs" for stage in ("live", "test"))),
    *_prefixed("vendor-key", r"[\w-]{16,}\.[\w-]{16,}", "SG."),
    *_prefixed("vendor-key", r"[A-Za-z0-9_-]{30,}", "npm_", "pypi-AgE", "dckr_pat_", "dckr_oat_", "tgp_v1_"),
    *_prefixed("vendor-key", r"[0-9a-f]{32}(?![0-9a-f])", "dapi"),
    *_prefixed("vendor-key", r"[0-9a-f]{60,}", "dop_v1_", "doo_v1_", "dor_v1_"),
    *_prefixed("vendor-key", r"[\w-]{20,}", "hvs.", "hvb.", "hvr.", "ATATT3", "ATCTT3"),
    *_prefixed(
        "vendor-key",
        r"(?P<body>[\w+/=-]{24,})",
        *"lin_api_ lin_oauth_ ntn_ sntrys_ sntryu_ glsa_ glc_ rpa_ gsk_ r8_ fw_ xai- pplx- tskey-".split(),
        passes=is_random,
    ),
    *_prefixed("private-key", r"[0-9A-Z]{50,}", "AGE-SECRET-KEY-1"),
    Shape("vendor-key", ":aa", r":AA(?<=[0-9]{8}:AA)[\w-]{32,}"),
)
OTHERS: tuple[Shape, ...] = (
    Shape("azure-key", "accountkey=", r"(?i)AccountKey=(?P<v>[A-Za-z0-9+/]{30,}={0,2})"),
    Shape("azure-key", "accesskey=", r"(?i)SharedAccessKey=(?P<v>[A-Za-z0-9+/]{30,}={0,2})"),
    Shape("azure-key", "q~", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,40}"),
    Shape("webhook-url", "hooks.slack", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<v>[\w/-]{10,})"),
    Shape("webhook-url", "/webhooks/", r"/webhooks/[0-9]+/(?P<v>[\w-]{20,})"),
    Shape("webhook-url", "/webhookb2/", r"/webhookb2/(?P<v>[\w@/-]{20,})"),
    *(Shape("password-hash", f"${kind}$", rf"\${kind}\$[./A-Za-z0-9$=]{{20,}}") for kind in "6 5 y 2a 2b 2y".split()),
    Shape(
        "authorization",
        "authorization",
        r"(?i)authorization[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"
        r"(?:(?:bearer|basic|token|apikey|negotiate|digest)\s{1,4})?(?P<v>[^\s\"'\\,;<>&(){}]{6,2000})",
        lambda value: is_plain(value) and not value.isalpha(),
    ),
    Shape("bearer", "bearer", r"(?i)bearer\s{1,4}(?P<v>[A-Za-z0-9._~+/-]{8,2000}=*)", has_digit_and_letter),
    Shape(
        "cookie",
        "cookie",
        r"(?i)cookie[\"'\\]{0,4}\s?:\s?[\"'\\]{0,4}(?P<v>[\w.-]{1,80}=[^\s\"'\\;]{6,2000}(?:;\s?[^\s\"'\\;]{1,2000}){0,20})",
    ),
    Shape("url-password", "://", r"://(?<=[A-Za-z0-9]://)[^\s/:@\"'<>\\]{0,200}:(?P<v>[^\s/@\"'<>\\]{3,300})@", is_plain),
    Shape("url-password", "://", r"://(?<=[A-Za-z0-9]://)(?P<v>[^\s/:@\"'<>\\]{16,300})@", is_random),
    *(
        Shape("signed-url", f"{name.lower()}=", rf"(?i){name}(?<=[?&]{name})=(?P<v>[^&\s\"'<>\\]{{8,2000}})", is_plain)
        for name in "X-Amz-Signature X-Amz-Security-Token X-Amz-Credential X-Goog-Signature X-Goog-Credential Signature sig".split()
    ),
    Shape(
        "netrc",
        "machine",
        r"machine\s{1,20}\S{1,200}\s{1,20}(?:login\s{1,20}\S{1,200}\s{1,20})?password\s{1,20}(?P<v>\S{3,300})",
        is_plain,
    ),
    Shape("basic-login", " -u", r" -u[= ]?[\"']?[^\s:\"']{1,80}:(?P<v>[^\s\"'\\]{4,200})", is_plain),
    Shape("basic-login", "--user", r"--user[= ][\"']?[^\s:\"']{1,80}:(?P<v>[^\s\"'\\]{4,200})", is_plain),
    Shape("basic-login", "sshpass", r"sshpass\s{1,4}-p\s?[\"']?(?P<v>[^\s\"'\\]{3,200})", is_plain),
)
CUT = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|sk-(?:ant-|proj-)?|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|nvapi-|AIza|eyJ)(?P<body>[A-Za-z0-9_-]{8,200})(?:…|\.\.\.)?\Z"
)
"""The beginning of a token at the end of a text that was cut there."""


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when it is first needed: most texts need none."""
    return re.compile(pattern)
