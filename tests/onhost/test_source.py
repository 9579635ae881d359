"""What source says of stacks: which lock a line waits for and which it holds, and what its loop does. Certain, or nothing."""

import ast
import subprocess
import sys
import textwrap

import pytest

from runbook.onhost import source_locks, source_loops, source_notes, source_signals
from runbook.onhost.source_locks import Spot
from runbook.onhost.source_tree import Source


def source(text):
    raw = textwrap.dedent(text)
    return Source("/app.py", ast.parse(raw))


def lines(text, *marks):
    rows = textwrap.dedent(text).splitlines()
    return [next(number for number, row in enumerate(rows, 1) if row.endswith("# " + mark)) for mark in marks]


def read(text, *threads, objects=None):
    """Of threads, each by the marks of its lines, innermost first: (wants, holds)."""
    one = source(text)
    found = source_locks.read([[Spot(one, line, objects) for line in lines(text, *marks)] for marks in threads])
    return [(locks.wants, set(locks.holds)) for locks in found]


def test_two_threads_inside_of_blocks_of_each_others_locks():
    text = """
    A, B = Lock(), Lock()
    def one():
        with A:
            work()
            with B:  # one
                pass
    def two():
        B.acquire()
        try:
            A.acquire()  # two
        finally:
            B.release()
            A.release()
    """
    assert read(text, ["one"], ["two"]) == [("B (/app.py)", {"A (/app.py)"}), ("A (/app.py)", {"B (/app.py)"})]


def test_a_lock_is_held_over_the_calls_inside_its_block():
    text = """
    A, B = Lock(), Lock()
    def outer():
        with A:
            inner()  # outer
    def inner():
        with B:  # inner
            pass
    """
    assert read(text, ["inner", "outer"]) == [("B (/app.py)", {"A (/app.py)"})]


@pytest.mark.parametrize(
    "body",
    [
        "A.acquire()\n    A.release()\n    B.acquire()  # at",
        "if ready:\n        A.acquire()\n    B.acquire()  # at",
        "A.acquire(timeout=3)\n    B.acquire()  # at",
        "with A:\n        A.release()\n        with B:  # at\n            pass",
        "with A as held:\n        with B:  # at\n            pass",
        "with A:\n        pass\n    with B:  # at\n        pass",
        "with A:\n        A = Lock()\n        with B:  # at\n            pass",
    ],
    ids=["released", "on a condition", "with a limit", "released inside", "something else is entered", "left", "another lock by now"],
)
def test_what_may_not_be_held_is_not(body):
    text = f"A, B = Lock(), Lock()\ndef run():\n    {body}\ndef other():\n    A.acquire()\n    B.acquire()\n"
    assert read(text, ["at"])[0][1] == set()


@pytest.mark.parametrize(
    "body",
    [
        "with B: work()  # at",
        "with A, B:  # at\n        pass",
        "B.acquire(timeout=3)  # at",
        "with table[3]:  # at\n        pass",
        "work()  # at",
        "A.acquire(); B.acquire()  # at",
    ],
)
def test_a_line_that_may_wait_for_something_else_waits_for_no_known_lock(body):
    assert read(f"A, B = Lock(), Lock()\ndef run():\n    {body}\n", ["at"])[0][0] == ""


def test_a_lock_that_another_function_releases_has_no_holder():
    """A gate that a ticker opens."""
    text = """
    A = Lock()
    def ticker():
        A.release()
    def main():
        with A:  # at
            pass
    """
    assert read(text, ["at"]) == [("", set())]


@pytest.mark.parametrize("made", ["A = Semaphore(2)", "A = Lock()\ndef renew():\n    global A\n    A = Lock()"])
def test_what_several_may_hold_or_what_is_made_anew_is_no_lock(made):
    assert read(made + "\ndef main():\n    with A:  # at\n        pass\n", ["at"]) == [("", set())]


OBJECTS = """
class Pair:
    def forth(self):
        with self.first:
            work()
            with self.second:  # at
                pass
"""


def test_an_attribute_is_the_same_lock_only_of_the_same_object():
    assert read(OBJECTS, ["at"]) == [("", set())]
    assert read(OBJECTS, ["at"], objects={"self": 255}) == [("second of 0xff", {"first of 0xff"})]


CLOSURE = """
def outer():
    first, second = Lock(), Lock()
    def other():
        with second:
            with first:  # other
                pass
    start(other)
    with first:
        with second:  # outer
            pass
"""


def test_a_variable_of_a_call_is_the_same_only_while_there_is_one_such_call():
    assert read(CLOSURE, ["outer"], ["other"]) == [
        ("second (/app.py:2)", {"first (/app.py:2)"}),
        ("first (/app.py:2)", {"second (/app.py:2)"}),
    ]
    assert read(CLOSURE, ["outer"], ["outer"], ["other"]) == [("", set())] * 3
    assert read(CLOSURE, ["other"]) == [("", set())]


MADE = """
import logging, mmap, os, random, sys, threading, time
log, rng, words = logging.getLogger(), random.Random(3), ["one", "two"]
flag, event, ring, limits = [], threading.Event(), mmap.mmap(-1, 4096), [1, 2, 4]
"""


def loop(body, before="", more=""):
    text = f"{MADE}\n{more}\ndef run():\n{textwrap.indent(before, '    ')}\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return source_loops.read([Spot(source(text), *lines(text, "at"))])


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("while True:\n    log.info(f'queue {len(words)}')\n    time.sleep(2)  # at", "closed"),
        ("while True:\n    print(rng.choice(words), sum(i * i for i in range(9)))\n    time.sleep(rng.uniform(1, 2))  # at", "closed"),
        ("while True:\n    n += 1\n    print(f'alive {n}')\n    time.sleep(2)  # at", "closed"),
        ("while 1:\n    say('alive')\n    time.sleep(2)  # at", "open"),
        ("while time.monotonic() < until:\n    time.sleep(2)  # at", "open"),
        ("while True:\n    time.sleep(2)  # at\n    if done():\n        break", "open"),
        ("while True:\n    time.sleep(2)  # at\n    lock.release()", "open"),
        ("while True:\n    time.sleep(2)  # at\n    self.ready = True", "open"),
        ("while True:\n    time.sleep(2)  # at\n    flags[0] = 1", "open"),
        ("while True:\n    time.sleep(2)  # at\n    print('x', file=pipe)", "open"),
        ("for _ in range(9):\n    time.sleep(2)  # at", "open"),
        ("while not flag:\n    pass  # at", "looks"),
        ("while True:\n    if ring[0]:\n        ring[0] = 0\n    os.sched_yield()  # at", "looks"),
        ("while not event.is_set():\n    pass  # at", "looks"),
        ("while n > 1:\n    n = n // 2  # at", "open"),
        ("while not flag:\n    n += 1  # at", "open"),
        ("while not os.path.exists(path):\n    time.sleep(0.2)  # at", "open"),
        ("while not answer.exists() and time.time() < until:\n    time.sleep(0.2)  # at", "open"),
        ("native.wait()  # at", "none"),
    ],
)
def test_what_a_loop_does_by_its_source(body, kind):
    assert loop(body) == kind


@pytest.mark.parametrize(
    "line",
    [
        "monitor.log('alive')",
        "codec.encode(400)",
        "replay.sample(64)",
        "thread.join()",
        "n += 1; time.sleep(limits[n])",
        "n += 1; print(60 / (9 - n))",
        "n += 1; time.sleep(60 - n)",
        "n += 1; print(make(n))",
        "n += 1; len(range(n)) == 9 and print('x')",
        "text = card.text; print(text.format(1))",
        "total = sum(feed)",
        "[print(one) for one in feed]",
    ],
)
def test_what_bears_the_name_of_a_log_or_may_fail_one_day_does_more_than_tell(line):
    assert loop(f"n = 0\nwhile True:\n    {line}\n    time.sleep(2)  # at") == "open"


@pytest.mark.parametrize("test", ["card", "card.ready()", "card.flag", "other.value", "view[0]", "flag[n]", "card.is_set()"])
def test_what_is_looked_at_is_a_plain_value_only_where_a_line_made_it_so(test):
    """Native code, a property, or a view of a file say something else one day."""
    made = "card, view = Card(), mmap.mmap(file.fileno(), 4096)\nclass Card:\n    flag = 0\n"
    assert loop(f"while not {test}:\n    pass  # at", more=made) == "open"


def test_functions_of_the_same_file_are_read_as_well():
    body = "while True:\n    report()\n    time.sleep(2)  # at"
    assert loop(body, more="def report():\n    print('alive')\n") == "closed"
    assert loop(body, more="def report():\n    gate.release()\n") == "open"
    assert loop(body, more="def say():\n    gate.release()\n\ndef report():\n    say()\n") == "open"


def test_a_logger_whose_lines_a_handler_of_the_file_takes_may_do_anything():
    body = "while True:\n    log.info('alive')\n    time.sleep(2)  # at"
    assert loop(body) == "closed"
    assert loop(body, more="class Sink(logging.Handler):\n    def emit(self, record):\n        gate.set()\n") == "open"


def test_a_variable_of_somebody_else_makes_a_loop_an_actor():
    assert loop("while True:\n    done = True\n    time.sleep(1)  # at", before="global done") == "open"


def test_objects_are_asked_for_only_where_a_name_needs_them(tmp_path, monkeypatch):
    monkeypatch.setattr(source_notes.source_tree, "read", lambda pid, path: source(OBJECTS))
    row = {"tid": 1, "thread": "", "main": True, "frames": ["forth (app.py:6)"], "spots": [("/app.py", *lines(OBJECTS, "at"), None)]}
    again = dict(row, spots=[("/app.py", *lines(OBJECTS, "at"), {"self": 16})])
    (noted,) = source_notes.add(1, [row], lambda: [again])
    assert (noted["wants"], noted["holds"], noted["interrupts"]) == ("second of 0x10", ["first of 0x10"], False)
    assert "spots" not in noted
    (noted,) = source_notes.add(1, [row], lambda: "py-spy exited 1")
    assert (noted["wants"], noted["holds"]) == ("", [])


@pytest.mark.parametrize(
    ("text", "goes_on"),
    [
        ("def run():\n    try:\n        done.wait()  # at\n    except KeyboardInterrupt:\n        save()\n", True),
        ("def run():\n    with contextlib.suppress(KeyboardInterrupt):\n        done.wait()  # at\n", True),
        ("signal.signal(signal.SIGINT, stop)\ndef run():\n    done.wait()  # at\n", True),
        ("def run():\n    try:\n        done.wait()  # at\n    except:\n        save()\n", True),
        ("def run():\n    try:\n        done.wait()  # at\n    except BaseException:\n        save()\n", True),
        ("def run():\n    try:\n        done.wait()  # at\n    except KeyboardInterrupt:\n        log()\n        raise\n", False),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)\ndef run():\n    done.wait()  # at\n", False),
        ("def run():\n    try:\n        start()\n    except KeyboardInterrupt:\n        pass\n    done.wait()  # at\n", False),
    ],
)
def test_who_goes_on_after_the_interrupt_of_a_keyboard(text, goes_on):
    assert source_signals.goes_on([Spot(source(text), *lines(text, "at"))]) is goes_on


@pytest.mark.parametrize(("code", "goes_on"), [("try: wait()\nexcept KeyboardInterrupt: save()", True), ("wait()", False)])
def test_code_of_a_command_line_may_speak_of_the_interrupt(code, goes_on):
    text = "import time\ndef wait(): print('up', flush=True); time.sleep(60)\n" + code
    process = subprocess.Popen([sys.executable, "-uc", text], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        assert source_signals.said_in_command(process.pid) is goes_on
    finally:
        process.kill()
        process.communicate()


def test_what_stands_on_a_loop_and_was_not_read_with_it_may_do_anything():
    """The collector runs a finalizer on whatever thread makes the next object."""
    text = "import time\ndef run():\n    while True:\n        time.sleep(2)  # at\n"
    one, other = Spot(source(text), *lines(text, "at")), Spot(source("def close():\n    send()  # at\n"), 2)
    assert source_loops.read([one]) == "closed"
    assert source_loops.read([other, one]) == "none"
    assert source_loops.read([Spot(None, 2), one]) == ""


@pytest.mark.parametrize("path", ["asyncio/runners.py", "multiprocessing/process.py"])
def test_what_starts_a_program_ends_by_the_interrupt(path):
    text = "signal.signal(signal.SIGINT, sigint_handler)\ndef run():\n    try:\n        done.wait()  # at\n    except:\n        say()\n"
    one = source(text)
    assert source_signals.goes_on([Spot(one, *lines(text, "at"))])
    one.path = "/usr/lib/python3.12/" + path
    assert not source_signals.goes_on([Spot(one, *lines(text, "at"))])


@pytest.mark.parametrize(("handling", "reaches"), [("default_int_handler", True), ("SIG_IGN", False)])
def test_an_interrupt_that_is_ignored_ends_no_wait(handling, reaches):
    code = f"import signal; signal.signal(signal.SIGINT, signal.{handling}); print('up', flush=True); input()"
    text = "def run():\n    try:\n        done.wait()  # at\n    except KeyboardInterrupt:\n        save()\n"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        assert source_signals.interrupts(process.pid, [Spot(source(text), *lines(text, "at"))]) is reaches
    finally:
        process.kill()
        process.communicate()
