"""What a script writes, its playbook writes: both run on this machine, in folders of their own, and the files are compared."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.cli import runbook
from tests.support.sshd import free_port

SERVER = """\
cd $DIR
PORT=$FREE
URL="http://127.0.0.1:$PORT"
note() { echo "$1" >> notes.txt; }
mkdir -p www && echo hello > www/index.html
nohup python3 -m http.server --bind 127.0.0.1 --directory www $PORT > server.log 2>&1 &
SERVER=$!
until curl -sf $URL/index.html > /dev/null; do sleep 0.2; done
note "up at $((PORT - PORT))"
curl -sf $URL/index.html | grep -q hello
curl -sf $URL/index.html -o page.html
grep -q "GET /index.html" server.log && note logged
kill -0 $SERVER && note alive
kill $SERVER
note "done"
"""
STRICT = """\
#!/bin/bash
set -euo pipefail
cd $DIR
STAMP=$(mktemp -u XXXXXX)
export STAMP
trap 'echo "bye ${#STAMP}" >> trace.txt' EXIT
echo start > log.txt
grep start log.txt
ARGS=(--a "one two" --b)
ARGS+=("${#STAMP}")
grep start log.txt
printf '%s\\n' "${ARGS[@]}" > args.txt
bash -c 'echo "${#STAMP}"' > child.txt
for i in 1 2 3; do (echo $i > part.$i) & done
wait
cat part.* > all.txt
grep start log.txt
while read -r key value; do
  case $key in
    a) A=$value ;;
    *) REST="${REST:-}$key=$value;" ;;
  esac
done <<EOF
a 1
b 2
c 3
EOF
grep start log.txt
echo "$A $REST" > read.txt
diff <(sort all.txt) <(printf '1\\n2\\n3\\n') && echo same > same.txt
false
echo never > never.txt
"""

OWNED = """\
cd $DIR
retry() { for i in 1 2 3; do "$@" && return 0; done; return 1; }
try() { touch tried; }
mkdir www
python3 -m http.server --bind 127.0.0.1 --directory www PORT > /dev/null 2>&1 &
SERVER=$!
trap "kill $SERVER; echo bye > bye" EXIT
until curl -sf http://127.0.0.1:PORT/ > /dev/null; do sleep 0.2; done
retry try && echo ok > res || echo bad > res
grep -q ok res
"""


def files(folder: Path) -> dict[str, str]:
    """What is below a folder, without times, ports and process ids."""
    found = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: re.sub(r"\[.*?\]|(?<=port )\d+|:\d+|(?<=DIR).*", "", text.replace(str(folder), "DIR")) for name, text in found.items()}


def of_both(script: str, folder: Path, expected: int) -> tuple[dict[str, str], dict[str, str]]:
    """The files of the script and those of its playbook; `expected` is the exit code of both."""
    written = []
    for name in ("script", "playbook"):
        home = folder / name
        home.mkdir(parents=True)
        file = folder / f"{name}.sh"
        file.write_text(script.replace("$DIR", str(home)).replace("$FREE", str(free_port())))
        if name == "script":
            done = subprocess.run(["bash", file], cwd=home, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
            assert done.returncode == expected, done.stderr.decode()
        else:
            book = folder / "x.yaml"
            made = runbook("new", "--from-shell", file, state=folder / "state")
            assert made.code == 0, made.err
            book.write_text(made.out)
            told = runbook("run", book, "-H", "gpu=local", state=folder / "state")
            assert told.code == expected, told.err + made.out
        written.append(files(home))
    return written[0], written[1]


@pytest.mark.e2e
@pytest.mark.parametrize(("script", "code"), [(SERVER, 0), (STRICT, 1)], ids=["server", "strict"])
def test_a_script_and_its_playbook_leave_the_same_files(script, code, tmp_path):
    ours, theirs = of_both(script, tmp_path, code)
    assert ours == theirs and len(ours) >= 3


@pytest.mark.e2e
def test_a_server_that_a_trap_ends_is_ended_and_functions_are_called_by_others(tmp_path):
    port = free_port()
    ours, theirs = of_both(OWNED.replace("PORT", str(port)), tmp_path, 0)
    assert ours == theirs == {"tried": "", "bye": "bye\n", "res": "ok\n"}
    with socket.socket() as asked:
        assert asked.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


NAMES = st.sampled_from(["A", "B", "C"])
WORDS = st.one_of(
    st.sampled_from(["x1", "'q $A'", '"${L[1]}"', "$((N+1))", '"$(echo s$B)"', "${A}z", '"${#L[@]}"']),
    NAMES.map('"${}"'.format),
    NAMES.map('"${{{}:-d}}"'.format),
)
SET = st.one_of(
    st.builds("{}={}".format, NAMES, WORDS),
    st.builds("export {}={}".format, NAMES, WORDS),
    st.builds("unset {}".format, NAMES),
    st.builds("L+=({})".format, WORDS),
    st.builds("read -r {} <<< {}".format, NAMES, WORDS),
    st.builds(': "${{{}:={}}}"'.format, NAMES, st.just("dflt")),
    st.sampled_from(["N=$((N+2))", "((N+=1))", "cd $DIR/sub", "cd ..", "L=(a b)", "true && cd $DIR/sub"]),
)
SAID = st.one_of(
    st.builds("echo {} {} >> $DIR/f1".format, WORDS, WORDS),
    st.builds("cat <<EOF >> $DIR/f2\nhi ${}\nEOF".format, NAMES),
    st.builds("fn {}".format, WORDS),
    st.sampled_from(
        ["bash -c 'echo \"$A $B $C\"' >> $DIR/f1", "echo $? $N >> $DIR/f2", "(A=5; echo $A >> $DIR/f1) &", "wait", "touch here"]
    ),
)
PARTS = st.one_of(
    SET,
    SAID,
    st.just("grep start $DIR/log.txt"),
    st.builds('if [ "$A" = x1 ]; then\n  {}\nelse\n  {}\nfi'.format, SET, SAID),
    st.builds("for i in 1 2; do\n  {}\n  {}\ndone".format, SET, SAID),
    st.builds('fn() {{ {}\n  echo "fn $1 $A" >> $DIR/f2; }}'.format, SET),
    st.builds("if [ $N -gt 4 ]; then\n  {}\n  exit 0\nfi".format, SAID),
)
HEAD = 'mkdir -p $DIR/sub\ncd $DIR\necho start > $DIR/log.txt\nN=1\nL=(l0 l1)\nfn() { echo "fn0 $1" >> $DIR/f1; }\n'


@pytest.mark.slow
@settings(max_examples=4, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(PARTS, min_size=6, max_size=14), number=st.uuids())
def test_whatever_a_script_does_with_its_shell_the_playbook_does_too(parts, number, tmp_path_factory):
    between = "\ngrep start $DIR/log.txt\n"
    script = HEAD + "".join(part + (between if at % 3 == 1 else "\n") for at, part in enumerate(parts)) + "wait\nexit 0\n"
    ours, theirs = of_both(script, tmp_path_factory.mktemp(f"s{os.getpid()}"), 0)
    assert ours == theirs, script
