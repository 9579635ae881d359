"""A module is found as the launch's own interpreter would find it, and nothing of it is imported."""

import os
import subprocess
import sys
import zipfile

import pytest

from runbook.onhost import modules
from runbook.onhost.dispatch import Context
from runbook.onhost.errors import OpError

TRAP = "raise SystemExit('a parent was imported')\n"


@pytest.fixture
def find(tmp_path):
    def find(module, **args):
        context = Context(lambda *_: None, 1, str(tmp_path / "state"), None)
        return modules.find_module(context, {"module": module, "interpreter": sys.executable, "cwd": str(tmp_path), **args}, b"")[0]

    return find


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def refused(code, call, *args, **kwargs):
    with pytest.raises(OpError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code
    return caught.value


def test_parents_are_walked_and_never_imported(find, tmp_path):
    write(tmp_path / "engine" / "__init__.py", TRAP)
    write(tmp_path / "engine" / "models" / "__init__.py", TRAP)
    part = write(tmp_path / "engine" / "models" / "llama.py", TRAP)
    found = find("engine.models.llama")
    assert (found["path"], found["package_root"], found["interpreter"], found["others"]) == (
        part,
        str(tmp_path / "engine"),
        sys.executable,
        [],
    )
    assert find("engine.models")["path"] == str(tmp_path / "engine" / "models" / "__init__.py")
    assert not list(tmp_path.rglob("*.pyc"))


def test_namespace_packages_are_walked_to_whichever_folder_has_the_module(find, tmp_path):
    write(tmp_path / "one" / "space" / "deep" / "first.py")
    second = write(tmp_path / "two" / "space" / "deep" / "second.py")
    env = {"PYTHONPATH": f"{tmp_path / 'one'}:{tmp_path / 'two'}"}
    assert find("space.deep.second", env=env)["path"] == second
    refused("unsupported", find, "space.deep", env=env)


def test_further_copies_on_the_path_are_named(find, tmp_path):
    here = write(tmp_path / "engine" / "part.py")
    write(tmp_path / "engine" / "__init__.py")
    write(tmp_path / "lib" / "engine" / "__init__.py")
    other = write(tmp_path / "lib" / "engine" / "part.py")
    found = find("engine.part", env={"PYTHONPATH": str(tmp_path / "lib")})
    assert (found["path"], found["others"]) == (here, [other])


@pytest.mark.slow
def test_the_launchs_folder_environment_and_prelude_decide(find, tmp_path):
    part = write(tmp_path / "elsewhere" / "engine_part.py")
    refused("not_found", find, "engine_part")
    assert find("engine_part", cwd=str(tmp_path / "elsewhere"))["path"] == part
    assert find("engine_part", env={"PYTHONPATH": "elsewhere"})["path"] == part
    assert find("engine_part", prelude="cat; export PYTHONPATH=elsewhere")["path"] == part  # a prelude that reads stdin gets nothing


def test_without_an_interpreter_it_is_the_python_of_the_preludes_path(find, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    write(tmp_path / "engine_part.py")
    assert find("engine_part", interpreter="", prelude=f"PATH={folder}:$PATH")["interpreter"].startswith(str(folder))


def test_an_editable_install_is_found_through_its_finder(find, tmp_path):
    part = write(tmp_path / "src" / "engine" / "part.py", TRAP)
    write(tmp_path / "src" / "engine" / "__init__.py", TRAP)
    init, folder = str(tmp_path / "src/engine/__init__.py"), str(tmp_path / "src/engine")
    finder = f"""
import sys
from importlib.util import spec_from_file_location
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "engine":
            return spec_from_file_location(name, {init!r}, submodule_search_locations=[{folder!r}])
sys.meta_path.append(Finder)
"""
    write(tmp_path / "site" / "sitecustomize.py", finder)
    assert find("engine.part", env={"PYTHONPATH": str(tmp_path / "site")})["path"] == part


def test_a_package_that_builds_its_path_at_import_is_found_by_the_fallback_without_a_gpu(find, tmp_path):
    part = write(tmp_path / "hidden" / "part.py")
    text = f"import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == ''; __path__.append({str(tmp_path / 'hidden')!r})\n"
    write(tmp_path / "engine" / "__init__.py", text)
    found = find("engine.part", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert (found["path"], found["imported_parents"]) == (part, True)


@pytest.mark.slow
def test_what_has_no_source_file_is_refused_as_such(find, tmp_path):
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as out:
        out.writestr("zipped/__init__.py", "")
    for module, word in (("sys", "built-in"), ("_ctypes", "compiled"), ("zipped", "archive")):
        assert word in str(refused("unsupported", find, module, env={"PYTHONPATH": str(tmp_path / "lib.zip")}))


@pytest.mark.slow
def test_a_missing_part_is_named(find, tmp_path):
    write(tmp_path / "engine" / "__init__.py")
    error = refused("not_found", find, "engine.models.llama")
    assert "`engine` has no `models`" in str(error)
    assert error.hint
    assert "no `nothing_like_it` on sys.path" in str(refused("not_found", find, "nothing_like_it.part"))


@pytest.mark.parametrize("module", ["", "a/b", "a..b", "a; import os", "1a"])
def test_only_a_dotted_name_is_a_module(find, module):
    refused("bad_request", find, module)


def test_noise_around_the_answer_does_not_matter(find, tmp_path):
    write(tmp_path / "engine_part.py")
    write(tmp_path / "site" / "sitecustomize.py", "import atexit; print('{noise'); atexit.register(print, 'bye}')\n")
    assert find("engine_part", prelude="echo '{\"path\": 1}'", env={"PYTHONPATH": "site"})["path"] == str(tmp_path / "engine_part.py")


def test_something_that_is_no_interpreter_is_an_error_that_says_so(find):
    refused("not_found", find, "os.path", interpreter="/no/python")
    assert "`/bin/true`" in str(refused("failed", find, "json.tool", interpreter="/bin/true"))
    assert "exit 7" in str(refused("failed", find, "json.tool", prelude="exit 7"))


def git(folder, *words):
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, env={**os.environ, **who}).stdout.strip()


@pytest.mark.slow
def test_a_checkouts_revision_and_edits_are_told(find, tmp_path):
    part = write(tmp_path / "repo" / "engine_part.py", "a = 1\n")
    write(tmp_path / "repo" / "venv" / "other_part.py")
    assert find("engine_part", cwd=str(tmp_path / "repo"))["git"] == {}
    git(tmp_path / "repo", "init", "-q")
    git(tmp_path / "repo", "add", "engine_part.py")
    git(tmp_path / "repo", "commit", "-qm", "one")
    found = find("engine_part", cwd=str(tmp_path / "repo"))["git"]
    assert found == {"root": str(tmp_path / "repo"), "revision": git(tmp_path / "repo", "rev-parse", "HEAD"), "dirty": False}
    write(tmp_path / "repo" / "engine_part.py", "a = 2\n")
    assert find("engine_part", cwd=str(tmp_path / "repo"))["git"]["dirty"] is True
    assert find("other_part", cwd=str(tmp_path / "repo" / "venv"))["git"] == {}  # in the folder, but not of the checkout
    assert part
