"""The table of step types. A new one is one file beside this one and one line here."""

from runbook.steps.assert_ import Assert
from runbook.steps.base import Step
from runbook.steps.copy import Copy
from runbook.steps.expect_probe import ExpectProbe
from runbook.steps.fetch import Fetch
from runbook.steps.grep import Grep
from runbook.steps.kill import Kill
from runbook.steps.launch import Launch
from runbook.steps.patch import Patch
from runbook.steps.request import Request
from runbook.steps.restore import Restore
from runbook.steps.run import Run
from runbook.steps.set_ import Set
from runbook.steps.wait_gpu_free import WaitGpuFree
from runbook.steps.wait_healthy import WaitHealthy

TABLE: dict[str, type[Step]] = {
    "kill": Kill,
    "wait_gpu_free": WaitGpuFree,
    "patch": Patch,
    "restore": Restore,
    "launch": Launch,
    "wait_healthy": WaitHealthy,
    "request": Request,
    "grep": Grep,
    "expect_probe": ExpectProbe,
    "assert": Assert,
    "run": Run,
    "copy": Copy,
    "fetch": Fetch,
    "set": Set,
}
