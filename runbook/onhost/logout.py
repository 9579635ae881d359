"""Whether this machine ends what a user started when he logs out: systemd's logind can, and then a keeper dies with its session."""

import glob
import os
import re

from . import procs

CONFIG = ("/etc/systemd/logind.conf", "/run/systemd/logind.conf.d/*.conf", "/etc/systemd/logind.conf.d/*.conf")
LINGER = "/var/lib/systemd/linger"
_SETTING = re.compile(r"^(#?)\s*(KillUserProcesses|KillOnlyUsers|KillExcludeUsers)\s*=\s*(.*)$", re.MULTILINE)


def ends_at_logout() -> str:
    """Why what is started here will be killed at logout; empty when it will not, or when that cannot be seen."""
    cgroup = (procs.read_bytes("/proc/self/cgroup", 65536) or b"").decode("utf-8", "replace")
    text = "\n".join(
        (procs.read_bytes(path, 65536) or b"").decode("utf-8", "replace") for pattern in CONFIG for path in sorted(glob.glob(pattern))
    )
    user = procs.user_name(os.getuid())
    return reason(cgroup, text, user, os.path.exists(os.path.join(LINGER, user)))


def reason(cgroup: str, config: str, user: str, lingers: bool) -> str:
    """The same from /proc/self/cgroup and the text of logind's configuration, whose comments show the defaults it was built with."""
    if lingers:
        return ""
    if re.search(r"/user@\d+\.service(/|$)", cgroup, re.MULTILINE):
        return "it runs in the user's own service manager, which ends with the last session: `loginctl enable-linger %s`" % user
    if not re.search(r"/session-[^/]+\.scope(/|$)", cgroup, re.MULTILINE):
        return ""
    kills, only, excluded = "", "", "root"
    for comment, name, value in _SETTING.findall(config):
        if name == "KillUserProcesses":
            kills = value.strip() if not comment or not kills else kills
        elif not comment and name == "KillOnlyUsers":
            only = value
        elif not comment:
            excluded = value
    if kills.lower() not in ("yes", "true", "on", "1") or user in excluded.split() or (only.split() and user not in only.split()):
        return ""
    return "logind kills it at logout (KillUserProcesses=yes): `loginctl enable-linger %s`" % user
