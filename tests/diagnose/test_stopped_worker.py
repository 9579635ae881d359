"""hung/stopped of what is no rank: an engine core, a lone worker, a detokenizer. Found on vLLM 0.32, whose lone worker has no number."""

from __future__ import annotations

import pytest

from tests.diagnose.stories import Story, answer, listener, load_profile, process


@pytest.mark.parametrize(
    ("profile", "title"),
    [("vllm", "VLLM::EngineCore"), ("vllm", "VLLM::Worker"), ("sglang", "sglang::scheduler"), ("sglang", "sglang::detokenizer")],
)
def test_a_stopped_process_of_the_engine_is_hung_and_named(profile: str, title: str) -> None:
    story = Story(profile=load_profile(profile))
    for second in range(0, 16, 3):
        story.at(second, processes=[process(read=9), process(101, ppid=100, state="T", title=title, read=0)])
    verdict = story.judge()
    assert (verdict.verdict, verdict.kind, verdict.culprit.title) == ("hung", "stopped", title)
    assert "a process of the engine, pid 101" in verdict.reason


def test_one_that_only_looks_like_it_is_nobodys_hang() -> None:
    story = Story(profile=load_profile("vllm"))
    for second in range(0, 16, 3):
        story.at(second, processes=[process(read=9), process(101, ppid=100, state="T", title="resource_tracker", read=0)])
    assert story.judge() is None


@pytest.mark.parametrize(
    ("profile", "title", "state", "expected"),
    [
        ("vllm", "VLLM::EngineCore", "T", ("hung", "stopped")),  # its API server answers without asking it
        ("vllm", "VLLM::EngineCore", "S", ("passed", None)),
        ("sglang", "sglang::scheduler", "T", ("passed", None)),  # here a good answer comes from the engine, so it went on in between
    ],
)
def test_a_health_path_that_asks_the_engine_nothing_says_nothing_of_it(
    profile: str, title: str, state: str, expected: tuple[str, str | None]
) -> None:
    story = Story(profile=load_profile(profile))
    for second in range(0, 16, 3):
        rows = [process(read=9), process(101, ppid=100, state=state, title=title, read=0)]
        story.at(second, processes=rows, check=answer(), listeners=listener())
        verdict = story.judge(about="state")
        if verdict is not None:
            break
    assert verdict is not None and (verdict.verdict, verdict.kind) == expected


@pytest.mark.parametrize(("title", "hung"), [("sglang::detokenizer", True), ("resource_tracker", False)])
def test_a_server_that_says_it_is_starting_says_nothing_of_its_workers(title: str, hung: bool) -> None:
    """Seen in SGLang: its warm-up waits for a detokenizer that is stopped, and its front answers 503 at once, again and again."""
    story = Story(profile=load_profile("sglang"))
    for second in range(0, 16, 3):
        rows = [process(read=9), process(101, ppid=100, state="T", title=title, read=0)]
        story.at(second, processes=rows, check=answer(503), listeners=listener())
    verdict = story.judge()
    assert (verdict is not None and (verdict.verdict, verdict.kind) == ("hung", "stopped")) is hung
