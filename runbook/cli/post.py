"""`runbook post`: the transcript as a comment on a ticket, and its files."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from runbook.cli import post_files, report
from runbook.cli.redact import check_kinds
from runbook.engine.journal import JournalError
from runbook.engine.recording import load_recording
from runbook.engine.redact import Mask
from runbook.engine.redaction.redactor import masked_lines
from runbook.model.event import AnyEvent
from runbook.render.budget import SMALLEST
from runbook.render.markdown import markdown
from runbook.render.story import Story, tell
from runbook.tickets import TRACKERS, Tracker, flow, tracker_for
from runbook.tickets import command as program
from runbook.tickets.base import Client, Draft, File, Login, Misused, NoToken, TicketError, Withheld, address
from runbook.tickets.dry import DryClient


@click.command()
@click.argument("run")
@click.argument("ticket_url", required=False)
@click.option("--dry-run", is_flag=True, help="Print what would be sent; send nothing.")
@click.option("--attach", "kinds", multiple=True, type=click.Choice(list(post_files.KINDS)), help="Attach a file; may be repeated.")
@click.option("--template", help="Webhooks: plain, slack, mattermost, discord, or @FILE.json.")
@click.option("--tracker", "name", type=click.Choice(list(TRACKERS)), help="Which tracker the address is, when it cannot be told.")
@click.option("--link", help="Where the whole run lies; in GitHub Actions and GitLab CI the job's page.")
@click.option("--post-command", "line", help="A program that posts, such as 'prog {md} {html} {url}'. No shell.")
@click.option("--allow", "allowed", multiple=True, metavar="KIND", help="Send what looks like a secret of this kind; may be repeated.")
@click.option("--allow-http", is_flag=True, help="Send the token without TLS.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(
    run: str,
    ticket_url: str | None,
    dry_run: bool,
    kinds: tuple[str, ...],
    template: str | None,
    name: str | None,
    link: str | None,
    line: str | None,
    allowed: tuple[str, ...],
    allow_http: bool,
    as_json: bool,
) -> int:
    """Post RUN to the ticket at TICKET_URL, or to the one whose address is in the variable of `env:NAME`.

    RUN is an id, its beginning, `last`, a folder, or an events.jsonl. A second post changes the first. Tokens come from the environment:
    GH_TOKEN, GITLAB_TOKEN, JIRA_API_TOKEN, REDMINE_API_KEY, …
    """
    check_kinds(allowed)
    folder, journal = report.find(run)
    try:
        events = load_recording(folder, journal)
    except JournalError as problem:
        raise click.UsageError(f"{run}: {problem}") from problem
    post = Posting(folder, journal, events, link, as_json, allowed)
    try:
        if line is not None:
            return post.by_program(line, ticket_url or "", dry_run)
        if ticket_url is None:
            raise Misused(
                "no ticket: name its address, or a program with --post-command", "runbook post last https://github.com/OWNER/REPO/issues/N"
            )
        url = from_environment(ticket_url)
        return post.to_ticket(tracker_for(url, os.environ, name, template), kinds, dry_run, allow_http)
    except Misused as mistake:
        raise click.UsageError(post.mask.text("; ".join(part for part in (mistake.summary, mistake.hint) if part))) from mistake
    except TicketError as problem:
        return post.fail(problem)


class Posting:
    """One call of the command: the run, its mask, and how it answers."""

    def __init__(
        self, folder: Path, journal: str, events: list[AnyEvent], link: str | None, as_json: bool, allowed: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.journal, self.as_json, self.allowed = folder, journal, as_json, allowed
        self.story = tell(events)
        header = self.story.header
        self.run = header.run if header else folder.name
        self.secrets = post_files.secrets(header.secrets if header else [], os.environ)
        self.mask = Mask(self.secrets, allow=allowed)
        self._raw, self._link = events, link or _job_page()

    def use(self, login: Login, kinds: Iterable[str]) -> list[AnyEvent]:
        """Mask what this login brings too; the events without any secret, so that no escaping of the renderer can hide one.

        Raises Withheld when they, or the files of these kinds, hold something else that looks like a secret.
        """
        known = {**login.secrets, **self.secrets}
        self.mask = Mask(known, allow=self.allowed)
        found = post_files.suspicious(self._raw, self.folder, kinds, known, self.allowed)
        if found.masked:
            raise Withheld(
                f"nothing was sent, because there still is what looks like a secret ({'; '.join(masked_lines(found))})",
                f"`runbook redact {self.run}` writes a copy without it, to post instead; --allow KIND sends one kind as it is",
            )
        return post_files.masked_events(self._raw, self.mask)

    def to_ticket(self, tracker: Tracker, kinds: tuple[str, ...], dry_run: bool, allow_http: bool) -> int:
        """Post to a tracker; answers the exit code."""
        login = self._login(tracker, dry_run, allow_http)
        draft, files = self._draft(login, kinds)
        if dry_run:
            dry = DryClient(login, self.mask.text)
            return self._planned(flow.post(tracker, dry, draft, files), dry)
        return self._answer(self._deliver(tracker, login, draft, files), tracker)

    def deliver(self, tracker: Tracker) -> flow.Posted:
        """Post without files and without a word. Raises TicketError."""
        login = self._login(tracker, False, False)
        return self._deliver(tracker, login, *self._draft(login, ()))

    def _deliver(self, tracker: Tracker, login: Login, draft: Draft, files: list[File]) -> flow.Posted:
        with _online(tracker, login, self.mask.text, self._say) as client:
            return flow.post(tracker, client, draft, files)

    def _draft(self, login: Login, kinds: tuple[str, ...]) -> tuple[Draft, list[File]]:
        events = self.use(login, kinds)
        footer = f"\nWhole run: {self.mask.text(self._link)}\n" if self._link else ""
        draft = Draft(
            run=self.run,
            started=self.story.header.t if self.story.header else 0.0,
            render=lambda budget: self.mask.text(markdown(events, max(budget, SMALLEST))),
            facts=self.mask.value(facts(self.story, self.run, self._link)),
            footer=footer,
        )
        return draft, [post_files.build(kind, self.folder, self.journal, self.run, events, self.mask) for kind in dict.fromkeys(kinds)]

    def _login(self, tracker: Tracker, dry_run: bool, allow_http: bool) -> Login:
        try:
            login = tracker.login(os.environ)
        except NoToken as none:
            if not dry_run:
                raise
            self._say(f"{none.summary}; {none.hint}")
            return Login(shown={"(login)": none.hint})
        parts = address(tracker.base)
        if login.headers and parts and parts.scheme == "http" and not _is_loopback(parts.hostname or "") and not (allow_http or dry_run):
            raise Misused(f"the token would travel to {parts.hostname} without TLS", "write https://, or allow it with --allow-http")
        return login

    def by_program(self, line: str, url: str, dry_run: bool) -> int:
        """Hand files to a program; answers the exit code."""
        argv = program.words(line)
        wanted = program.slots(argv)
        events = self.use(Login(), wanted)
        values = {**_texts(self.story, self.run), "url": url}
        with tempfile.TemporaryDirectory(prefix="runbook-post-") as place:
            for kind in post_files.KINDS:
                values[kind] = str(Path(place, post_files.KINDS[kind].name))
            argv = program.filled(argv, values)
            files = [
                post_files.build(kind, self.folder, self.journal, self.run, events, self.mask)
                for kind in post_files.KINDS
                if kind in wanted
            ]
            if dry_run:
                return self._tell(
                    {"run": self.run, "tracker": "command", "action": "planned", "argv": argv}, f"would run: {shlex.join(argv)}"
                )
            for kind, file in zip((kind for kind in post_files.KINDS if kind in wanted), files, strict=True):
                Path(values[kind]).write_bytes(file.data)
            said = program.perform(argv, self.mask.text)
        return self._tell({"run": self.run, "tracker": "command", "action": "sent", "said": said}, said)

    def _answer(self, done: flow.Posted, tracker: Tracker) -> int:
        code = 1 if done.files_refused else 0
        where = self.mask.text(done.comment.url or tracker.base)
        row = {
            "run": self.run,
            "tracker": done.tracker,
            "action": done.action,
            "comment": {"id": done.comment.id, "url": self.mask.text(done.comment.url)},
            "attached": done.attached,
            "not_attached": done.not_attached,
            "exit_code": code,
        }
        lines = [f"{done.action}: {where}", *(f"attached: {name}" for name in done.attached)]
        for name, why in done.not_attached.items():
            self._say(f"not attached: {name}: {why}")
        return self._tell(row, "\n".join(lines), code)

    def _planned(self, done: flow.Posted, dry: DryClient) -> int:
        text = "\n".join(_shown(request) for request in dry.requests)
        row = {"run": self.run, "tracker": done.tracker, "action": "planned", "not_attached": done.not_attached, "requests": dry.requests}
        self._say("nothing was sent; a comment of ours on this run that is already there would be changed instead of a new one")
        return self._tell(row, text)

    def fail(self, problem: TicketError) -> int:
        """Say what went wrong and what to try; answers the exit code."""
        row = self.mask.value(flow.failed(problem))
        click.echo(f"error: {row['summary']}" + (f"\nhint: {row['hint']}" if row["hint"] else ""), err=True)
        if self.as_json:
            click.echo(json.dumps({"run": self.run, "action": "failed", "error": row, "exit_code": problem.exit_code}, ensure_ascii=False))
        return problem.exit_code

    def _tell(self, row: dict[str, Any], text: str, code: int = 0) -> int:
        if self.as_json:
            click.echo(json.dumps(row, ensure_ascii=False))
        elif text:
            click.echo(text)
        return code

    def _say(self, sentence: str) -> None:
        click.echo(self.mask.text(sentence), err=True)


class _online:
    """A client over the network, closed at the end; httpx is imported here and not before."""

    def __init__(self, tracker: Tracker, login: Login, mask: Callable[[str], str], tell: Callable[[str], None]) -> None:
        from runbook.tickets.client import HttpClient

        self._client = HttpClient(tracker.base, login, mask=mask, tell=tell)

    def __enter__(self) -> Client:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def facts(story: Story, run: str, link: str) -> dict[str, Any]:
    """What a webhook's template may use, besides `markdown`."""
    closing, header = story.closing, story.header
    verdict = closing.verdict if closing else "running"
    kind = f" / {closing.kind}" if closing and closing.kind else ""
    title = (header.name or header.playbook) if header else run
    reason = closing.reason if closing else ""
    return {
        "name": title,
        "playbook": header.playbook if header else None,
        "state": story.state,
        "verdict": verdict,
        "kind": closing.kind if closing else None,
        "exit_code": closing.exit_code if closing else None,
        "reason": reason,
        "headline": f"{title}: {verdict}{kind}" + (f": {reason}" if reason else ""),
        "seconds": round(story.last_t - header.t, 3) if header else None,
        "link": link,
    }


def _texts(story: Story, run: str) -> dict[str, str]:
    known = facts(story, run, "")
    return {"run": run, "verdict": str(known["verdict"]), "exit_code": "" if known["exit_code"] is None else str(known["exit_code"])}


def _shown(request: dict[str, Any]) -> str:
    """A request as people read one: line, headers, body."""
    lines = [f"{request['method']} {request['url']}", *(f"{name}: {value}" for name, value in request["headers"].items())]
    for key in ("form", "file"):
        if key in request:
            lines.append(f"[{key}: {json.dumps(request[key], ensure_ascii=False)}]")
    return "\n".join([*lines, "", request["body"], ""] if "body" in request else [*lines, ""])


def from_environment(url: str) -> str:
    """The address itself, or the one in a variable: the address of a chat tool is a secret."""
    if not url.startswith("env:"):
        return url
    name = url.removeprefix("env:")
    if not os.environ.get(name):
        raise Misused(f"{name} is not set, and the ticket's address should be in it", f"{name}=https://… runbook post …")
    return os.environ[name].strip()


def _job_page() -> str:
    """The page of the CI job that we run in."""
    get = os.environ.get
    if get("GITHUB_ACTIONS") and get("GITHUB_SERVER_URL") and get("GITHUB_REPOSITORY") and get("GITHUB_RUN_ID"):
        return f"{get('GITHUB_SERVER_URL')}/{get('GITHUB_REPOSITORY')}/actions/runs/{get('GITHUB_RUN_ID')}"
    return get("CI_JOB_URL", "")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
