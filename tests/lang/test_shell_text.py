"""Values in shell text stay values."""

import shutil
import subprocess

import pytest

from runbook.lang.expressions import Unknown
from runbook.lang.shell_text import render_shell, shell_problems

NASTY = [
    "a b",
    "it's",
    '"',
    "$(id)",
    "`id`",
    "${HOME}",
    "a\nb",
    "; rm -rf /",
    "*",
    "~",
    "",
    "\\",
    "-n",
    "#x",
    "é",
    "!",
    "a=b",
    "if",
    "\t",
    "2",
]
SCOPE = {
    "vars": {"x": "it's a", "n": 5, "list": ["a b", 1, True], "empty": [], "map": {}, "none": None, "all": NASTY, "nested": [[1]]},
    "steps": {"chat": Unknown("skipped")},
    "secrets": {"X": "hunter2"},
}
SHELLS = [shell for shell in ("sh", "bash", "dash") if shutil.which(shell)]


def rendered(text, scope=SCOPE):
    found = render_shell(text, scope)
    assert found.problems == (), found.problems
    return found.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("kill ${{ vars.n }}", "kill 5"),
        ("cat ${{ vars.x }}/f", "cat 'it'\"'\"'s a'/f"),
        ("f ${{ vars.list }} g", "f 'a b' 1 true g"),
        ("f ${{ vars.empty }} g", "f  g"),
        ("${{ vars.list }}", "'a b' 1 true"),
        ("${{ raw('ls | wc') }}", "ls | wc"),
        ("a ${{ raw('| b') }}", "a | b"),
        ("a $${{ x }}", "a ${{ x }}"),
        ("echo ${{ vars.n }}>f", "echo '5'>f"),
    ],
)
def test_a_value_becomes_words(text, value):
    assert rendered(text) == value


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_sees_exactly_one_word_each(shell):
    text = "printf '%s\\0' ${{ vars.all[0] }} " + " ".join(f"${{{{ vars.all[{index}] }}}}" for index in range(1, len(NASTY)))
    script = rendered(text) + "\nprintf '%s\\0' \"$(printf %s ${{ vars.x }})\" ".replace("${{ vars.x }}", rendered("${{ [vars.x] }}"))
    done = subprocess.run([shell, "-c", script], capture_output=True, check=True, timeout=10)
    assert done.stdout.decode().split("\0")[:-1] == [*NASTY, "it's a"]


def test_a_real_shell_sees_a_list_as_its_words():
    done = subprocess.run(["sh", "-c", rendered("printf '%s\\0' ${{ vars.all }}")], capture_output=True, check=True, timeout=10)
    assert done.stdout.decode().split("\0")[:-1] == NASTY


@pytest.mark.parametrize("word", ["if", "PATH=/x", "done"])
def test_a_value_in_command_position_is_never_syntax(word):
    done = subprocess.run(["sh", "-c", rendered("${{ vars.x }} true", {"vars": {"x": word}})], capture_output=True, timeout=10)
    assert done.returncode == 127


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('echo "${{ vars.x }}"', "expression-in-quotes"),
        ("echo 'a ${{ vars.x }}'", "expression-in-quotes"),
        ("echo $'\\'${{ vars.x }}'", "expression-in-quotes"),
        ('echo "$(a "b ${{ vars.x }}")"', "expression-in-quotes"),
        ("echo \\${{ vars.x }}", "expression-after-backslash"),
        ("true # ${{ vars.x }}", "expression-in-comment"),
        ("cat <<EOF\n${{ vars.x }}\nEOF", "expression-in-heredoc"),
        ("cat <<-'EOF'\n\t${{ vars.x }}\n\tEOF", "expression-in-heredoc"),
        ("cat <<E${{ vars.x }}", "expression-in-heredoc"),
        ("echo `a ${{ vars.x }}`", "expression-in-backticks"),
        ("echo `a $(b ${{ vars.x }})`", "expression-in-backticks"),
        ("echo $((1 + ${{ vars.n }}))", "expression-in-arithmetic"),
        ("((a = (${{ vars.n }})))", "expression-in-arithmetic"),
        ("echo ${A:-${{ vars.x }}}", "expression-in-braces"),
        ("echo ${{ secrets.X }}", "secret-in-shell"),
    ],
)
def test_an_expression_where_quoting_cannot_help_is_an_error_in_both(text, code):
    assert [problem.code for problem in shell_problems(text)] == [code]
    found = render_shell(text, SCOPE)
    assert len(found.problems) == 1 and "hunter2" not in found.value and "it's a" not in found.value


@pytest.mark.parametrize(
    "text",
    [
        "echo \"a\" ${{ vars.x }} 'b'",
        'echo "$(cat ${{ vars.x }})"',
        "echo it\\'s ${{ vars.x }}",
        "echo a#b ${{ vars.x }} '#' $#",
        "cat <<EOF ${{ vars.x }}\nit's\nEOF\necho ${{ vars.x }}",
        "cat <<'A' <<-B\n'\nA\n\t\"\n\tB\n${{ vars.x }}",
        "x=$(cat <<E\n'\nE\n) ; echo ${{ vars.x }}",
        'cat <<< "a" ; echo ${{ vars.x }}',
        "echo $((1 << 2)) ${{ vars.x }}",
        'echo "${X:-it\'s}" ${{ vars.x }}',
        "# it's\necho ${{ vars.x }}",
        "(cd ${{ vars.x }} && ls)",
        "echo \\\\${A} ${{ vars.x }}",
        "case $1 in a) echo ${{ vars.x }};; esac",
    ],
)
def test_an_expression_in_plain_text_is_fine(text):
    assert shell_problems(text) == []
    assert render_shell(text, SCOPE).problems == ()


def test_a_static_problem_points_at_the_expression():
    text = 'a "${{ vars.x }}"'
    problem = shell_problems(text)[0]
    assert text[problem.start : problem.end] == "${{ vars.x }}" and problem.hint == "drop the quotes: it is quoted for you"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${{ vars.x }}", "must be a list or `raw(…)`"),
        ("${{ vars.n }}", "must be a list or `raw(…)`"),
        ("a ${{ vars.map }}", "json(x)"),
        ("a ${{ vars.none }}", "default"),
        ("a ${{ vars.nested }}", "json(x)"),
        ("a ${{ vars.nope }}", "no key `nope`"),
        ("a ${{ 'x\\x00' }}", "NUL"),
        ("a ${{ vars.x", "never closed"),
    ],
)
def test_a_value_that_is_no_word_is_a_problem(text, said):
    found = render_shell(text, SCOPE)
    assert [said in problem.text for problem in found.problems] == [True]


def test_an_unknown_leaves_no_command():
    found = render_shell("a ${{ steps.chat.x }}", SCOPE)
    assert isinstance(found.value, Unknown) and found.problems[0].unknown
