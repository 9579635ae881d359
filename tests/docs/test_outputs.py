"""What pages show to be printed by parts that need no run is what those parts print."""

from __future__ import annotations

import ast
import hashlib
import hmac
import re
import shlex

import pytest

from runbook.cli.main import exit_code
from runbook.hosts.bundle import helper_argv
from runbook.hosts.local import connect_local
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform
from runbook.steps.checkpoint import Against, Checkpoint
from runbook.tickets.webhook import SIGNATURE
from tests.docs.claims import executed
from tests.support.context import LocalContext
from tests.support.pages import PAGES, ROOT, blocks_of, missing, shown_as
from tests.support.tensor_files import save, tensor

DRAFT = ROOT / "runbook" / "lab" / "weights" / "tiny-eagle3"
LAYER = ("hidden_norm.weight", "input_layernorm.weight")


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """This machine."""
    host = connect_local(env={"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))})
    yield host
    host.close()


@pytest.fixture
def ctx(host, tmp_path):
    """A run on it."""
    return LocalContext(host, tmp_path / "run", box_s=60)


def findings(ctx: LocalContext, step: Checkpoint) -> str:
    """All that a step on checkpoints remarks."""
    ctx.do(step)
    return "\n".join(text for _, text in ctx.findings)


def test_the_rename_that_explains_it(ctx, tmp_path):
    for side in ("layers.0", "midlayer"):
        save(tmp_path / side / "model.safetensors", {f"{side}.{name}": tensor([4]) for name in LAYER})
    printed = findings(ctx, Checkpoint(path=str(tmp_path / "layers.0"), against=Against(path=str(tmp_path / "midlayer"))))
    assert missing(shown_as("docs/concepts/checkpoints.md", "rename"), printed) is None, printed


def test_how_the_labs_map_is_read(ctx):
    printed = findings(ctx, Checkpoint(path=str(DRAFT)))
    assert missing(shown_as("docs/concepts/checkpoints.md", "reading"), printed) is None, printed


def test_the_table_of_two_captures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    same, one = tensor([2]), [float(n) for n in range(1, 65)]
    save(tmp_path / "before.safetensors", {"a": same, "model.norm.weight": tensor([64], one, "float16")})
    save(tmp_path / "after.safetensors", {"a": same, "model.norm.weight": tensor([64], [2 * x for x in one], "float16")})
    assert exit_code(["tensors", "before.safetensors", "after.safetensors", "--rtol", "0.01"]) == 1
    printed = capsys.readouterr().out
    assert missing(shown_as("docs/guides/comparing_tensors.md", "table"), printed) is None, printed


def test_the_line_that_a_probe_becomes():
    source = b"class LlamaModel:\n    def forward(self, embeds, h):\n        hidden_states = h\n        return hidden_states\n"
    probe = Probe(at="LlamaModel.forward", after="hidden_states = h", show={"hidden": "hidden_states", "embeds": "embeds"})
    done = transform(source, [probe], marker="run1/taps/1", side_file="/tmp/none", path="/srv/model.py", run="run1")
    assert isinstance(done, Transformed)
    marks = {node.id for node in ast.walk(ast.parse(done.data)) if isinstance(node, ast.Name) and node.id.startswith("_rb_")}
    (mark,) = {name for name in marks if "_" not in name.removeprefix("_rb_")}
    shown = shown_as("docs/concepts/probes.md", "inserted").replace("_rb_4f2a91c0", mark)
    assert missing(shown, done.data.decode()) is None, done.data.decode()


def test_the_line_that_the_login_shell_gets():
    line = "exec [VIA …] " + shlex.join(helper_argv())
    assert missing(shown_as("docs/reference/helper.md", "stub"), line) is None, line


def test_a_receiver_of_webhooks_can_check_the_signature():
    (block,) = [block for block in blocks_of(ROOT / "docs/guides/posting.md") if block.language == "python"]
    names = executed(block)
    signature = "sha256=" + hmac.new(b"s", b"body", hashlib.sha256).hexdigest()
    assert names["is_ours"](b"s", b"body", {SIGNATURE: signature})
    assert not names["is_ours"](b"s", b"other", {SIGNATURE: signature})


def test_the_step_type_of_the_page_on_the_code_runs(ctx):
    (block,) = [block for block in blocks_of(ROOT / "docs/concepts/architecture.md") if block.language == "python"]
    result = ctx.do(executed(block)["Uptime"]())
    assert result.verdict == "passed" and result.fields["up"] > 0


def test_every_picture_is_shown_and_made_by_a_command():
    folder = ROOT / "docs" / "images"
    makers = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = [path for path in folder.rglob("*") if path.suffix in (".svg", ".png")]
    assert len(pictures) > 5
    for picture in pictures:
        assert any(f'"{picture.stem}"' in maker for maker in makers.values()), f"{picture.name}: no command makes it"
        assert f"images/{picture.relative_to(folder)}" in text, f"{picture.name}: no page shows it"


def test_every_message_of_the_troubleshooting_page_is_one_of_ours():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "runbook").rglob("*.py"))
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    pieces = [piece.strip() for row in rows for span in re.findall(r"`([^`]+)`", row) for piece in span.split("…")]
    assert [piece for piece in pieces if piece and piece not in source] == []
