"""launch: an engine of a version that the profile's marks were not read in is said so, and nothing more."""

from __future__ import annotations

import sys

import pytest

from runbook.model.profile import Profile
from runbook.steps.launch import Launch


@pytest.mark.slow
def test_a_version_outside_of_the_profiles_range_is_a_finding(patch_ctx):
    patch_ctx.profiles["engine"] = Profile(profile="engine", known={"python": "==2.7", "sglang": ">=0.4"})
    result = patch_ctx.at("server").do(Launch(command=[sys.executable, "-c", "import time; time.sleep(60)"], profile="engine", settle=0.1))
    assert result.verdict == "passed"
    assert [code for code, _ in patch_ctx.findings] == ["profile_version"] and "were read in ==2.7" in patch_ctx.findings[0][1]
