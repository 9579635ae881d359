"""Step types and playbooks of installed packages: found when they are named, checked as ours are, refused by name when they are broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.cli import library
from runbook.playbook.build import load_playbook
from runbook.steps import TABLE, plugins, refused

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "plugin_package"
BOOK = """\
runbook: 1
hosts: {box: local}
defaults: {read_sensor: {settle: 0s}}
steps:
  - {id: one, read_sensor: FILE}
  - {id: cool, include: {playbook: sensors/is_cool, with: {file: FILE, limit: 60}}}
  - assert: steps.one.celsius == 45 and steps.cool.celsius == 45
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution on the path as an installer leaves it: its folder of metadata, and what it brings."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def forget() -> None:
        plugins.found.cache_clear()
        plugins.load.cache_clear()
        for name in [name for name in sys.modules if name.startswith("runbook_sensors")]:
            del sys.modules[name]

    def go(name: str, entry: str, *, package: Path | None = None, group: str = "runbook.steps") -> None:
        info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        with (info / "entry_points.txt").open("a") as points:
            points.write(f"[{group}]\n{entry}\n")
        if package is not None:
            shutil.copytree(package, folder / package.name, dirs_exist_ok=True)
        forget()

    yield go
    forget()


def problems(steps: str) -> list[tuple[str, str, int]]:
    text = f"runbook: 1\nhosts: {{box: local}}\nsteps:\n{steps}"
    found = load_playbook(text.encode(), "b.yaml", table=TABLE, profiles=["generic"], find=library.find)[1]
    return [(one.code, one.summary, one.span.line if one.span else 0) for one in found]


def test_a_step_type_of_a_package_is_checked_as_ours_are(install):
    install("runbook-sensors", "read_sensor = runbook_sensors.steps:ReadSensor", package=PACKAGE / "runbook_sensors")
    assert problems("  - read_sensor: /t\n") == []
    assert "read_sensor" in TABLE and list(TABLE)[-1] == "read_sensor"
    assert problems(
        "  - read_sensor: {fil: /t}\n  - read_sensor: {file: t}\n  - {id: a, read_sensor: /t}\n  - assert: steps.a.kelvin > 1\n"
    ) == [
        ("unknown-key", "unknown key `fil`", 4),
        ("step", "`t` is not an absolute path", 5),
        ("unknown-result", "a `read_sensor` step has no result `kelvin`", 7),
    ]
    assert [one[0] for one in problems("  - read_sensr: /t\n")] == ["unknown-step"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("broken = runbook_sensors.nothing:X", "cannot be loaded: ModuleNotFoundError: No module named 'runbook_sensors.nothing'"),
        ("broken = runbook_sensors.steps:Nothing", "cannot be loaded: AttributeError"),
        ("broken = runbook_sensors.steps:StepResult", "is none: it is no subclass of `runbook.steps.plugin.PluginStep`"),
        ("broken = runbook_sensors.steps:ReadSensor", "is none: its `TYPE` is `read_sensor`, not `broken`"),
    ],
)
def test_a_package_that_gives_no_step_type_is_named_where_it_is_used(install, entry, why):
    install("runbook-sensors", entry, package=PACKAGE / "runbook_sensors")
    steps = "  - {id: a, broken: {x: 1}}\n  - {id: b, broken: 1, wehn: 1}\n  - assert: steps.a.exit == 0\n"
    found = problems(steps)
    assert [(code, line) for code, _, line in found] == [("broken-step-type", 4), ("broken-step-type", 5)]
    assert found[0][1].startswith("the step type `broken` of the package runbook-sensors 1.2") and why in found[0][1]
    top = "runbook: 1\nhosts: {box: local}\ndefaults: {broken: {x: 1}}\nsteps: [{run: 'true'}]\n"
    assert [one.code for one in load_playbook(top.encode(), "b", table=TABLE, profiles=["generic"])[1]] == ["broken-step-type"]


def test_two_packages_with_one_name_are_both_named(install):
    install("runbook-sensors", "read_sensor = runbook_sensors.steps:ReadSensor", package=PACKAGE / "runbook_sensors")
    install("other-sensors", "read_sensor = other:X")
    ((_, summary, _),) = problems("  - read_sensor: /t\n")
    assert summary == "the step type `read_sensor` comes from two packages: other-sensors 1.2 and runbook-sensors 1.2"


def test_a_built_in_name_stays_what_it_is(install):
    install("runbook-sensors", "run = runbook_sensors.steps:ReadSensor", package=PACKAGE / "runbook_sensors")
    assert TABLE["run"].__module__ == "runbook.steps.run" and problems("  - run: 'true'\n") == []
    assert refused() == ["the step type `run` of the package runbook-sensors 1.2 is not used: `run` is built in"]


def test_the_reserved_keys_are_those_of_every_step_and_block():
    from runbook.playbook.keys import BLOCK, COMMON

    assert {*COMMON, *BLOCK} == plugins.RESERVED


def test_a_package_of_playbooks_is_found_and_not_imported(install, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    install("runbook-sensors", "sensors = runbook_sensors", package=PACKAGE / "runbook_sensors", group="runbook.playbooks")
    place = str(tmp_path / "site" / "runbook_sensors" / "playbooks" / "is_cool.yaml")
    assert library.find("playbooks/is_cool", "a.yaml") == library.find("sensors/playbooks/is_cool", "a.yaml") == place
    assert "runbook_sensors" not in sys.modules and library.find("./is_cool", "a.yaml") is None


def runbook(*argv: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), path])), "XDG_STATE_HOME": str(cwd / "state")}
    return subprocess.run(
        [sys.executable, "-m", "runbook.cli.main", *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_what_is_installed_is_not_read_for_what_is_built_in(tmp_path):
    (tmp_path / "book.yaml").write_text("runbook: 1\nhosts: {box: local}\nsteps: [{run: 'true'}]\n")
    code = (
        "import sys; from runbook.cli.main import exit_code; exit_code(sys.argv[1:]);"
        "print([name for name in ('importlib.metadata', 'runbook.steps.plugins') if name in sys.modules])"
    )
    for argv in (["--help"], ["validate", "book.yaml"], ["plan", "book.yaml"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *argv],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "[]", argv


@pytest.mark.slow
def test_a_package_as_pip_installs_it(tmp_path):
    """Built by its own backend and installed; then its step type has a page, a schema, checks, check mode, and runs."""
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(PACKAGE, source)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
        "--target",
        str(site),
        str(source),
    ]
    subprocess.run(pip, check=True, timeout=120)
    temperature = tmp_path / "temperature"
    temperature.write_text("45000\n")
    (tmp_path / "book.yaml").write_text(BOOK.replace("FILE", str(temperature)))
    page = runbook("steps", "read_sensor", cwd=tmp_path, path=str(site))
    assert "Read a temperature from a file of the host." in page.stdout and "thousandths of a degree" in page.stdout
    assert '"#/$defs/read_sensor"' in runbook("schema", cwd=tmp_path, path=str(site)).stdout
    plan = runbook("plan", "book.yaml", cwd=tmp_path, path=str(site)).stdout
    assert f"read {temperature}" in plan and "by defaults: settle: 0s" in plan
    check = runbook("run", "--check", "book.yaml", cwd=tmp_path, path=str(site))
    assert check.returncode == 0 and f"would read {temperature}" in check.stderr
    done = runbook("run", "book.yaml", cwd=tmp_path, path=str(site))
    assert done.returncode == 0 and "45.0 °C" in done.stderr, done.stderr
    assert runbook("validate", "book.yaml", cwd=tmp_path).returncode == 2, "without the package"


def test_the_class_in_the_guide_is_the_one_that_is_tested():
    guide = (ROOT / "docs" / "guides" / "writing_step_types.md").read_text(encoding="utf-8")
    shown = guide.split("```python\n")[1].split("```")[0].splitlines()
    real = (PACKAGE / "runbook_sensors" / "steps.py").read_text(encoding="utf-8").splitlines()
    assert len(shown) > 20 and [line for line in shown if line not in real] == []
