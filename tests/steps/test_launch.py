"""launch: what the server's environment tells it of GPUs, and an engine of a version that the profile's marks were not read in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runbook.model.profile import Profile
from runbook.steps.launch import Launch


@pytest.mark.slow
def test_a_version_outside_of_the_profiles_range_is_a_finding(patch_ctx):
    patch_ctx.profiles["engine"] = Profile(profile="engine", known={"python": "==2.7", "sglang": ">=0.4"})
    result = patch_ctx.at("server").do(Launch(command=[sys.executable, "-c", "import time; time.sleep(60)"], profile="engine", settle=0.1))
    assert result.verdict == "passed"
    assert [code for code, _ in patch_ctx.findings] == ["profile_version"] and "were read in ==2.7" in patch_ctx.findings[0][1]


@pytest.mark.slow
def test_a_server_sees_the_gpus_of_its_host_by_the_numbers_of_the_drivers_tool(patch_ctx):
    """CUDA by itself counts the fastest first, so that on a mixed host an index would mean another card."""
    patch_ctx.host.gpu_indices = [3, 1]
    assert patch_ctx.at("server").do(Launch(command=["sleep", "60"], settle=0.1)).verdict == "passed"
    pid = patch_ctx.launched("server").state.pid
    given = dict(pair.partition("=")[::2] for pair in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    assert (given["CUDA_VISIBLE_DEVICES"], given["CUDA_DEVICE_ORDER"]) == ("3,1", "PCI_BUS_ID")
