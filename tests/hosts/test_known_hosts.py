"""known_hosts: what OpenSSH would say about a key, and one appended line per new host."""

from __future__ import annotations

import base64
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.hosts import known_hosts as kh


def key(seed: int, kind: str = "ssh-ed25519") -> kh.Key:
    return kh.Key(kind, len(kind).to_bytes(4, "big") + kind.encode() + b"\0\0\0\x20" + bytes([seed]) * 32)


def entries(*lines: str) -> list[kh.Entry]:
    found, notes = kh.parse("\n".join(lines), "kh")
    assert notes == []
    return found


A, B, RSA = key(1), key(2), key(3, "ssh-rsa")


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        ("gpu1", "gpu1", True),
        ("GPU1", "gpu1", True),
        ("gpu1,gpu2", "gpu2", True),
        ("gpu*", "gpu17", True),
        ("gpu?", "gpu17", False),
        ("*,!gpu3", "gpu3", False),
        ("*,!gpu3", "gpu4", True),
        ("!gpu3", "gpu4", False),
        ("[gpu1]:2222", "[gpu1]:2222", True),
        ("gpu1", "[gpu1]:2222", False),
        ("[gpu*]:2222", "[gpu1]:2222", True),
        ("a.b", "axb", False),
    ],
)
def test_patterns_match_as_in_openssh(names: str, name: str, expected: bool) -> None:
    assert kh.matches(names, name) is expected


def test_a_hashed_line_made_by_ssh_keygen_is_known(tmp_path: Path) -> None:
    file = tmp_path / "kh"
    file.write_text(f"[box.example]:2222 {A.text}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    hashed, notes = kh.read([str(file)])
    assert notes == [] and hashed[0].names.startswith("|1|")
    assert kh.rule(hashed, kh.host_name("Box.example", 2222), A) == kh.Known()
    assert isinstance(kh.rule(hashed, kh.host_name("box.example", 2222), B), kh.Changed)


def test_a_line_that_we_hash_is_found_by_ssh_keygen(tmp_path: Path) -> None:
    file = tmp_path / "kh"
    assert kh.append(file, "box", A, hashed=True)
    found = subprocess.run(["ssh-keygen", "-F", "box", "-f", str(file)], capture_output=True, text=True, check=False)
    assert "found: line 1" in found.stdout
    assert "box" not in file.read_text()


def test_a_changed_key_names_its_line() -> None:
    ruling = kh.rule(entries("# comment", f"other {A.text}", f"box {A.text}"), "box", B)
    assert isinstance(ruling, kh.Changed) and (ruling.expected.file, ruling.expected.line) == ("kh", 3)


def test_a_host_with_only_another_type_on_record_is_changed_not_unknown() -> None:
    """Else whoever sits in between is accepted by showing a type that is not on record."""
    assert isinstance(kh.rule(entries(f"box {RSA.text}"), "box", A), kh.Changed)
    assert kh.key_types(entries(f"box {RSA.text}"), "box") == ("ssh-rsa",)


def test_a_revoked_key_is_refused_though_it_is_also_known() -> None:
    ruling = kh.rule(entries(f"box {A.text}", f"@revoked * {A.text}"), "box", A)
    assert isinstance(ruling, kh.Revoked) and ruling.entry.line == 2


def test_the_right_key_without_port_is_known_and_a_wrong_one_is_unknown() -> None:
    assert kh.rule(entries(f"box {A.text}"), "[box]:2222", A) == kh.Known()
    assert kh.rule(entries(f"box {A.text}"), "[box]:2222", B) == kh.Unknown()


def test_an_alias_stands_for_host_and_port() -> None:
    assert kh.rule(entries(f"cluster {A.text}"), kh.host_name("10.0.0.7", 2222, "Cluster"), A) == kh.Known()


def test_a_certificate_authority_is_no_key_of_the_host() -> None:
    found = entries(f"@cert-authority *.lab {A.text}")
    assert kh.rule(found, "box.lab", A) == kh.Unknown()
    assert [entry.line for entry in kh.authorities(found, "box.lab")] == [1]


def test_malformed_lines_are_skipped_and_said() -> None:
    bad = [
        "box",
        "box ssh-ed25519",
        "box ssh-ed25519 !!!",
        f"@odd box {A.text}",
        "box ssh-rsa " + A.text.split()[1],
        "|1|x|y ssh-ed25519 AAAA",
    ]
    found, notes = kh.parse("\n".join([*bad, f"box {A.text}"]), "kh")
    assert [entry.line for entry in found] == [7]
    assert [note.split()[0] for note in notes] == [f"kh:{line}" for line in range(1, 7)]


def test_the_fingerprint_is_the_one_of_ssh_keygen(tmp_path: Path) -> None:
    file = tmp_path / "k.pub"
    file.write_text(A.text + "\n")
    assert A.fingerprint in subprocess.run(["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True).stdout


def test_a_missing_file_is_empty_and_an_unreadable_one_is_said(tmp_path: Path) -> None:
    assert kh.read([str(tmp_path / "none")]) == ([], [])
    assert kh.read([str(tmp_path)])[1] == [f"{tmp_path} was not read: Is a directory"]


def test_two_that_meet_a_new_host_at_once_write_one_line(tmp_path: Path) -> None:
    file = tmp_path / "new" / "kh"
    threads = [threading.Thread(target=kh.append, args=(file, "box", A)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_text() == f"box {A.text}\n"
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_a_last_line_without_newline_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "kh"
    file.write_text(f"old {B.text}")
    kh.append(file, "box", A)
    assert file.read_text() == f"old {B.text}\nbox {A.text}\n"


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    found, _ = kh.parse(text, "kh")
    kh.rule(found, "box", A)


@given(st.sampled_from(["box", "[box]:2222", "::1", "[::1]:2200", "gpu-7.lab"]), st.binary(min_size=1, max_size=24), st.integers(0, 255))
def test_what_is_appended_is_known_and_every_other_key_is_changed(name: str, salt: bytes, seed: int) -> None:
    digest = kh._hash(name, salt)
    for names in (name, digest):
        found = entries(f"{names} {key(seed).text}")
        assert kh.rule(found, name, key(seed)) == kh.Known()
        assert isinstance(kh.rule(found, name, key(seed ^ 1)), kh.Changed)


def test_base64_with_junk_is_not_a_key() -> None:
    assert kh.parse("box ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode(), "kh")[0] == []
