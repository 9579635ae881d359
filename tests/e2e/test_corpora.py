"""Both corpora through a whole run: what is a secret is in no file of its folder and on no stream, what is evidence is in all as it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.cli import runbook
from tests.support.secret_texts import corpus, harmless, made

pytestmark = pytest.mark.e2e
FROM_FILE, FROM_COMMAND = made("", 24), made("pw-", 20)
SAYS = "import sys; sys.stdout.write(open(sys.argv[1]).read()); sys.stdout.flush()"
STEPS = [
    {"id": "said", "run": {"argv": [sys.executable, "-c", SAYS, "{file}"], "live": True}},
    {"id": "lines", "run": {"argv": [sys.executable, "-c", SAYS, "{file}"], "parse": "lines"}},
    {"id": "fails", "run": {"shell": "tail -n 4 {file} >&2; printf '%s %s\\n' \"$A\" \"$B\" >&2; exit 3",
                            "env": {"A": "${{ secrets.A_TOKEN }}", "B": "${{ secrets.B_TOKEN }}"}}, "ignore_errors": True},
    {"id": "look", "grep": {"file": "{file}", "pattern": "TOKEN|token|KEY|key|password", "since": "start"}},
    {"id": "took", "fetch": {"path": "{file}"}},
]  # fmt: skip


def test_nothing_of_the_one_goes_out_and_nothing_of_the_other_is_lost(tmp_path):
    must, keep = corpus("must_mask"), harmless()
    assert len(must) >= 100 and len(keep) >= 100
    (tmp_path / "said.txt").write_text("\n".join([*(line.text for line in must), *keep]) + "\n")
    (tmp_path / "token").write_text(FROM_FILE + "\n")
    (tmp_path / "token").chmod(0o600)
    secrets = [
        {"name": "A_TOKEN", "file": "token"},
        {"name": "B_TOKEN", "command": ["printf", FROM_COMMAND[:10] + "%s", FROM_COMMAND[10:]]},
    ]
    book = {"runbook": 1, "hosts": {"box": "local"}, "secrets": secrets, "steps": STEPS}
    (tmp_path / "book.yaml").write_text(json.dumps(book).replace("{file}", str(tmp_path / "said.txt")))
    outcome = runbook("run", tmp_path / "book.yaml", "--json", state=tmp_path / "state", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    folder = Path(outcome.json["transcript"]["dir"])
    files = {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}
    assert {"events.jsonl", "transcript.md", "transcript.html", "junit.xml"} <= set(files) and len(files) > 5
    everything = {**files, "stdout": outcome.out, "stderr": outcome.err}
    values = [FROM_FILE, FROM_COMMAND, *(secret for line in must for secret in line.secrets)]
    assert [(name, value) for name, text in everything.items() for value in values if value in text] == []
    whole = next(text for name, text in files.items() if name.endswith("stdout.txt"))
    assert [line for line in keep if line not in whole] == []
    journal = "\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in files["events.jsonl"].splitlines())
    assert [line for line in keep if json.dumps(line, ensure_ascii=False)[1:-1] not in journal] == []
    assert "***A_TOKEN*** ***B_TOKEN***" in journal
