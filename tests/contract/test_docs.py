"""The documentation keeps up: its links lead somewhere, its commands, options and rules exist. Its blocks are tried by tests/docs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from runbook.cli.main import COMMANDS, app
from runbook.diagnose.judge import RULES
from runbook.model.verdict import EXIT_CODES, EXIT_STILL_RUNNING, INTERRUPTED_BY
from tests.support.pages import PAGES, ROOT, blocks_of, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
ENGINES_FLAGS = ("lab", "eagle3", "steps", "contributing", "real_engines")
"""Pages that tell of flags of engines."""
STEP_RULES = {"server_identity", "port_taken_before_launch"}
"""Rules that steps apply themselves."""


def name(page: Path) -> str:
    """A page as a test id."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    return [block.text for block in blocks_of(page) if block.language in languages]


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page):
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def commands(page: Path) -> Iterator[list[str]]:
    """The `runbook …` command lines of a page as words: in shell blocks and in code spans."""
    lines = [line for text in blocks(page, "sh", "console", "") for line in text.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", prose(page))
    for line in lines:
        for part in re.split(r"[|;&]+|\s#", line.removeprefix("next: ")):
            found = re.match(r"\s*(?:\$ )?(?:\S*/)?runbook((?: +\S+)+)\s*$", part)
            if found:
                yield _words(found[1])


def _words(text: str) -> list[str]:
    """As a shell splits them: what is quoted is one word. A part of a line may hold half of a quotation."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words call, and the words after its name."""
    context = click.Context(app, **app.context_settings)
    found: click.Command | None = app.get_command(context, words[0])
    rest = words[1:]
    if isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in found.commands, f"runbook {' '.join(words)}: no such command"
        return found.commands[rest[0]], rest[1:]
    assert found is not None
    return found, rest


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_and_option_exists(page):
    for words in commands(page):
        if words[0].startswith("-") or not words[0].isalpha() or words[0].isupper():
            assert words[0] in ("--help", "--version", "--json") or not words[0].startswith("-"), words
            continue
        if words[0] not in COMMANDS:
            assert words[0] in ("name", "PLAYBOOK"), f"runbook {' '.join(words)}: no such command"
            continue
        called, rest = command(words)
        known = {option for parameter in called.params for option in parameter.opts} | {"-h", "--help"}
        for word in rest:
            option = word.partition("=")[0]
            assert not option.startswith("-") or option in known, f"runbook {' '.join(words)}: no option {option}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in ENGINES_FLAGS], ids=name)
def test_every_option_that_is_told_of_alone_exists(page):
    groups = [command([known])[0] for known in COMMANDS]
    every = [*groups, *(inner for group in groups if isinstance(group, click.Group) for inner in group.commands.values())]
    known = {option for each in every for parameter in each.params for option in parameter.opts} | {"--help", "--version"}
    told = re.findall(r"`(--[a-z-]+)[^`]*`", prose(page))
    assert [option for option in told if option not in known] == []


def test_every_command_is_documented():
    told = {words[0] for page in PAGES for words in commands(page)}
    assert not (missing := set(COMMANDS) - told), f"nowhere told of: {missing}"


def test_every_package_is_in_the_architecture():
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "runbook").glob("*/__init__.py")}
    assert not (missing := packages - set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))), missing


def test_every_rule_on_the_page_of_verdicts_exists():
    page = (ROOT / "docs" / "concepts" / "verdicts.md").read_text(encoding="utf-8")
    known = {rule.__name__ for rule in RULES} | STEP_RULES
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) <= known
    told = re.search(r"rules belong to steps: (.*?)\n\n", page, re.DOTALL)
    assert told and set(re.findall(r"`(\w+)` \(", told[1])) == STEP_RULES


def test_the_rules_of_steps_are_cited_by_them():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "runbook" / "steps").glob("*.py"))
    assert all(f'"{rule}"' in source for rule in STEP_RULES)


def test_the_table_of_exit_codes_is_the_one_of_the_code():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, ]+) \| ([a-z_, ]+) \|", readme, re.MULTILINE)
    told = {(word, code) for codes, words in rows for word in words.split(", ") for code in map(int, codes.split(", "))}
    interrupted = {("interrupted", code) for code in INTERRUPTED_BY.values()}
    assert told == {*EXIT_CODES.items(), *interrupted, ("running", EXIT_STILL_RUNNING)}


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in PAGES:
        text = "\n".join([*blocks(page, "sh", "console"), *re.findall(r"`([^`\n]+)`", prose(page))])
        for target in re.findall(r"^(?:\$ )?make (?:[A-Z_]+=\S+ )?([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{name(page)}: make {target}"


def test_every_key_of_a_playbook_is_in_the_guide():
    from runbook.playbook.keys import BLOCK, COMMON, TOP

    guide = (ROOT / "docs" / "guides" / "writing_playbooks.md").read_text(encoding="utf-8")
    assert [key for key in (*TOP, *COMMON, *BLOCK) if not re.search(rf"\b{key}\b", guide)] == []


def test_every_function_of_the_language_is_on_its_page_and_in_the_guide():
    from runbook.cli.expression_reference import FUNCTIONS
    from runbook.lang.signatures import ARITY

    guide = (ROOT / "docs" / "guides" / "writing_playbooks.md").read_text(encoding="utf-8")
    assert set(FUNCTIONS) == set(ARITY)
    assert [function for function in ARITY if not re.search(rf"`[^`\n]*\b{function}\b", guide)] == []


def test_pictures_load_nothing():
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert "@font-face" not in text and "url(http" not in text and "<script" not in text, picture.name


def test_every_test_on_the_security_page_exists_and_every_row_names_one():
    page = (ROOT / "docs" / "concepts" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line and not line.endswith("| test |")]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", row.split("|")[-2])
        assert named, f"no test: {row}"
        for file, function in named:
            assert re.search(rf"^ *def {function}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file}::{function}"
