"""What the driver's tool says becomes figures, or a reason why there are none."""

from pathlib import Path

import pytest
import yaml

from runbook.onhost.gpu_read import app_question, gpu_question, read_apps, read_gpus, read_minor

CASES = sorted((Path(__file__).parents[1] / "data" / "signals" / "gpu_memory").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_captured_answers(path):
    case = yaml.safe_load(path.read_text())
    assert case["origin"]
    got = read_gpus(case.get("exit_code", 0), case.get("stdout", ""), case.get("stderr", ""))
    expected = case["expect"]
    if "blind" in expected:
        assert got["blind"].startswith(expected["blind"]) and "gpus" not in got
    else:
        wanted = [{name: gpu[name] for name in ("index", "used", "total", "utilisation")} for gpu in got["gpus"]]
        assert wanted == expected["gpus"] and got["faults"] == expected.get("faults", [])


def test_holders_without_a_figure_are_still_holders():
    text = "GPU-a, 4711, 1024\nGPU-a, 4712, [N/A]\n"
    assert read_apps(0, text, "")["apps"] == [
        {"uuid": "GPU-a", "pid": 4711, "used": 1 << 30},
        {"uuid": "GPU-a", "pid": 4712, "used": None},
    ]
    assert read_apps(0, "No running processes found\n", "")["apps"] == []
    assert read_apps(6, "", "No devices")["blind"] == "nvidia-smi: exited 6: No devices"


def test_the_device_file_of_a_gpu_is_found_by_its_uuid():
    text = "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1ab0\nDevice Minor: \t 3\n"
    assert read_minor(text) == ("GPU-1ab0", 3) and read_minor("Model: x") is None


def test_the_questions_ask_for_plain_figures():
    assert gpu_question("smi")[1].startswith("--query-gpu=index,uuid,name,memory.used") and gpu_question("smi")[2].endswith("nounits")
    assert app_question("smi")[1] == "--query-compute-apps=gpu_uuid,pid,used_memory"


def test_power_and_throttle_reasons_come_with_the_memory():
    text = "0, GPU-a, NVIDIA H200, 1000, 2000, 100, 699.52, 700.00, 0x0000000000000044\n1, GPU-b, A, B, 1, 2, 0, [N/A], [N/A], [Not Supported]\n"
    first, second = read_gpus(0, text, "")["gpus"]
    assert (first["utilisation"], first["power_w"], first["power_limit_w"]) == (100, 699.52, 700.0)
    assert first["throttle"] == ["power cap", "thermal, by hardware"]
    assert (second["name"], second["power_w"], second["throttle"]) == ("A, B", None, None)


def test_an_idle_gpu_is_not_throttled():
    assert read_gpus(0, "0, GPU-a, X, 1, 2, 0, 70.00, 700.00, 0x0000000000000001\n", "")["gpus"][0]["throttle"] == []
