"""The code that a patched file carries. Its source text is copied into the file, so it must run alone, on Python ≥ 3.8.

`arm(config)` answers one object, `P`. A probe is one expression statement:

    P(0) and P.hit(0, {'hidden': lambda: hidden_states})

`P(0)` is all that a call costs while the bucket is empty. An exit probe (exits.py) uses three more: `P.out[0](value)` keeps what is
returned and gives it back, `P.failed(0)` keeps the exception, `P.left(0)` is its `P(0)`. What is kept belongs to the frame, so
threads, recursion, generators and tasks do not mix, and is let go when the frame is left. With an empty bucket nothing is kept.
`P.built[0](self)` and `P.loaded(0)` tell that a class was constructed and that the import came to its end. Rules that the code below
keeps:

- The server never notices: every Exception ends here. Nothing but Exception is caught, so Ctrl-C and exits pass through.
- No file stays open and no lock is held while values are read: a forked child starts clean, a closed fd is never reused.
- A write that could block (a full pipe behind stderr) is not made.
- Under torch.compile `P(0)` is a constant (`_dynamo_marked_constant`), false, so that the graph is what it was without probes.
- While a CUDA graph is captured nothing is computed: only plain names are looked at, and of tensors only their shape.
- Silence can be read: a bucket that is used up says so (`dropped`, `spent`) and until when; graphs are told once (`graph`).
"""

# Python 3.8 reads this source too; it is one function because it is embedded as one.
# ruff: noqa: UP004, C901
# mypy: disable-error-code="assignment,call-overload,misc,var-annotated"
from __future__ import annotations


def arm(config, clock=None):
    import hashlib
    import json
    import os
    import select
    import sys
    import threading
    import time

    clock = clock or time.monotonic
    modules = sys.modules
    frame, ident = sys._getframe, id
    busy = threading.local()
    home, probes, standing = config["home"], config["probes"], config.get("standing")
    own, arm_code = frame().f_globals, frame().f_code
    saver = config.get("saver")
    plain = config["describer"](modules)
    file = os.path.abspath(home.get("__file__") or "")  # before a server changes its working directory

    def tracing():  # torch.compile is running this Python to make a graph of it
        guards = modules.get("torch._guards")
        return guards is not None and guards.CompileContext.try_get() is not None

    def on_cuda():
        torch = modules.get("torch")
        return torch is not None and torch.cuda.is_initialized()

    def capturing():
        return on_cuda() and modules["torch"].cuda.is_current_stream_capturing()

    def lazily():  # tensors are being recorded, not computed
        torch = modules.get("torch")
        return torch is not None and (torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack() > 0)

    def quiet(question):
        try:
            return question()
        except Exception:  # another version of torch, or one that is half imported
            return False

    def mode():
        return "CUDA graph capture" if quiet(capturing) else "torch tracing" if quiet(tracing) or quiet(lazily) else ""

    def problem(error):
        return (type(error).__name__ + ": " + str(error))[:200]

    def form(value):  # what tells one kind of call from another: shapes, or the type
        shape = getattr(value, "shape", None)
        return type(value).__name__ if shape is None else tuple(shape)

    def label(kind):
        return (str(kind.__module__) + "." + kind.__qualname__)[:300]

    def rank():
        group = modules.get("torch.distributed")
        return group.get_rank() if group is not None and group.is_available() and group.is_initialized() else None

    class Probes(object):
        def __init__(self):
            self.lock = threading.RLock()
            self.pid, self.seq, self.start = 0, 0, 0
            self.shut = [float("-inf")] * len(probes)  # clock() before which a call is not looked at
            self.buckets = [{} for _ in probes]  # form -> [end of its window, hits left, dropped was told]
            self.rest = [config["total"]] * len(probes)
            self.told, self.cuda, self.shielded = set(), False, False
            self.kept = [{} for _ in probes]  # id of a frame -> (result, error), from `out` or `failed` to `left`
            self.out = [self.keeper(i, kept) for i, kept in enumerate(self.kept)]
            self.built = [self.maker(name) for name in config.get("alive", ())]
            self.save = saver(config["side"], modules) if saver else None
            self.files = 0

        def __reduce__(self):  # pickled with a function of __main__: silent in the copy
            import functools
            import operator

            never, same = functools.partial(operator.is_, None), functools.partial(next, iter(()))
            parts = {"out": [same] * len(self.out), "built": [never] * len(self.built), "left": never, "failed": never}
            return functools.partial, (operator.is_, None), (operator.is_, (None,), {}, parts)

        def __call__(self, i):
            if frame(1).f_globals is not home and quiet(tracing):  # asking torch takes 1 us: only when something else calls us
                self.once(i, "graph", "torch.compile")
                return False
            if clock() >= self.shut[i]:
                return True
            if self.cuda and quiet(capturing):
                self.once(i, "graph", "CUDA graph capture")
            return False

        def awake(self, i):  # as a call, but from our own code: constant false for torch.compile, which calls it from its own
            if frame(1).f_globals is not own and (self.compiling() or quiet(tracing)):
                self.once(i, "graph", "torch.compile")
                return False
            if clock() >= self.shut[i]:
                return True
            if self.cuda and quiet(capturing):
                self.once(i, "graph", "CUDA graph capture")
            return False

        def failed(self, i):
            if clock() >= self.shut[i] and (frame(1).f_globals is home or not quiet(tracing)):
                self.kept[i][ident(frame(1))] = (None, sys.exc_info()[1])
            return False

        def left(self, i):  # what was not kept, since the bucket was empty then, is not looked at now
            kept = self.kept[i]
            return ident(frame(1)) in kept if kept else False

        def ours(self):
            return frame(1).f_globals is own or self.compiling()

        def compiling(self):  # what runs uncompiled around a graph calls us as well: our own code is no work for the compiler
            skip = getattr(modules.get("torch._dynamo.eval_frame"), "skip_code", None)
            todo = [] if self.shielded or skip is None else [arm_code]
            self.shielded = self.shielded or skip is not None
            while todo:
                one = todo.pop()
                skip(one)
                todo += [part for part in one.co_consts if hasattr(part, "co_consts")]
            return False

        for constant in (__call__, awake, failed, left, ours):
            constant.__dict__["_dynamo_marked_constant"] = True

        def keeper(self, i, kept):
            awake = self.awake

            def out(value):
                if awake(i):
                    kept[ident(frame(1))] = (value, None)
                return value

            return out

        def maker(self, name):
            seen = set()

            def built(made):
                if self.ours() and type(made) not in seen and len(seen) < 8:  # each class that comes of it, once
                    seen.add(type(made))
                    inside = {i: probe["at"][len(name) + 1 :] for i, probe in enumerate(probes) if probe["at"].startswith(name + ".")}
                    self.report({"kind": "built", "alive": name, "class": label(type(made))}, made, inside)

            return built

        def loaded(self, _):
            self.report({"kind": "loaded"}, home, {i: probe["at"] for i, probe in enumerate(probes)})

        def report(self, record, owner, paths):
            try:
                found = {
                    i: standing and standing(owner, path.split("."), arm_code.co_filename, probes[i]["at"]) for i, path in paths.items()
                }
                record["replaced"] = dict([(str(i), how[:200]) for i, how in found.items() if how][:8])
                record["unseen"] = [i for i, how in found.items() if how is None][:100]
                self.write(record)
            except Exception:
                return

        def once(self, i, kind, how):
            quiet(self.compiling)
            if (i, kind, how, os.getpid()) not in self.told:
                self.told.add((i, kind, how, os.getpid()))
                quiet(lambda: self.write({"kind": kind, "probe": i, "how": how}))

        def hit(self, i, show, when=None, save=None):
            probe = probes[i]
            given = self.kept[i].pop(ident(frame(1)), (None, None)) if "of_result" in probe else ()
            if getattr(busy, "now", False):  # this call is ours: a repr, or what an expression calls, is watched as well
                return
            busy.now = True
            try:
                self.look(i, probe, show, when, save, given)
            except Exception:  # a probe that fails stays silent: the server comes first
                return
            finally:
                busy.now = False

        def look(self, i, probe, show, when, save, given):
            began, why, lost = clock(), mode(), ()
            record, self.cuda = {"kind": "hit", "probe": i}, quiet(on_cuda)
            if given:
                record["exit"] = "return" if given[1] is None else "raise"
                if given[1] is not None:
                    record["raised"], lost = problem(given[1]), probe["of_result"]
            if why:
                record["mode"] = why
                self.once(i, "graph", why)
            if when is not None:
                if why and not probe["when_plain"]:
                    record["condition"] = "not evaluated: " + why
                else:
                    try:
                        if not when(*given):
                            return
                    except Exception as error:
                        record["condition"] = problem(error)
            values, failed = {}, {}
            for name, read in show.items():
                if name in lost:
                    failed[name] = {"error": "there is no result"}
                    continue
                try:
                    if why and name not in probe["plain"]:
                        raise RuntimeError("not evaluated: " + why)
                    values[name] = read(*given)
                except Exception as error:
                    failed[name] = {"error": problem(error)}
            verdict = self.take(i, tuple(map(form, values.values())) + tuple(failed) + (record.get("raised", "").split(":")[0],))
            if verdict is None:
                if save and self.save:
                    record["saved"] = self.saved(save, given, lost, why)
                self.write(record, values, failed, why)
            else:  # looking again costs at most 1 % of the time, so another form of call is still noticed
                self.shut[i] = min(verdict.pop("end"), clock() + max(0.001, 100 * (clock() - began)))
                if verdict:
                    self.write(dict(verdict, probe=i))

        def saved(self, save, given, lost, why):
            with self.lock:
                self.files += 1
                number = self.files
            values, told = {}, {}
            for name, read in save.items():
                if why or name in lost:
                    told[name] = {"error": "not saved: " + (why or "there is no result")}
                    continue
                try:
                    values[name] = read(*given)
                except Exception as error:
                    told[name] = {"error": problem(error)}
            try:
                facts = {"runbook": config["marker"], "pid": str(os.getpid()), "rank": str(quiet(rank)), "time": repr(time.time())}
                told.update(self.save(number, values, facts))
            except Exception as error:  # a full disk, a folder that is gone
                told.update({name: {"error": "not saved: " + problem(error)} for name in values})
            return [dict(one, name=name[:80]) for name, one in told.items()]

        def take(self, i, key):
            with self.lock:
                now, buckets = clock(), self.buckets[i]
                if self.rest[i] <= 0:
                    told = (i, "spent", os.getpid()) in self.told
                    self.told.add((i, "spent", os.getpid()))
                    return {"end": float("inf")} if told else {"end": float("inf"), "kind": "spent"}
                if len(buckets) >= 64 and key not in buckets:
                    for old in [form for form, bucket in buckets.items() if bucket[0] <= now]:
                        del buckets[old]
                    key = key if len(buckets) < 64 else "more"
                bucket = buckets.get(key)
                if bucket is None or now >= bucket[0]:
                    bucket = buckets[key] = [now + probes[i]["per"], probes[i]["hits"], False]
                if bucket[1] > 0:
                    bucket[1] -= 1
                    self.rest[i] -= 1
                    return None
                told, bucket[2] = bucket[2], True
                return {"end": bucket[0]} if told else {"end": bucket[0], "kind": "dropped", "until": time.time() + bucket[0] - now}

        def write(self, record, values=None, failed=None, why=""):
            if self.pid != os.getpid() and record["kind"] != "armed":
                self.armed("late")
            with self.lock:
                self.seq += 1
                head = {"runbook": config["marker"], "seq": self.seq, "pid": os.getpid(), "start": self.start, "time": time.time()}
            mine = quiet(rank)
            head["rank"] = None if mine is False else mine
            head.update(record)
            if values is not None:
                head["shown"] = dict({name: plain(value, why, 400) for name, value in values.items()}, **failed)
            line = json.dumps(head)
            for most in (100, 20):
                if len(line) >= 4096:
                    head["cut"] = True
                    head["shown"] = {name[:most]: short(value, most) for name, value in head.get("shown", {}).items()}
                    line = json.dumps(head)
            if len(line) >= 4096:
                head.pop("shown", None)
                if "saved" in head:
                    head["saved"] = [dict(one, name=one["name"][:20]) for one in head["saved"][:8]]
                line = json.dumps({name: value[:300] if isinstance(value, str) else value for name, value in head.items()})
            self.send((line + "\n").encode("ascii"))

        def send(self, line):  # each way alone: a full disk or a closed stderr must not cost the other
            try:
                fd = os.open(config["side"], os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)  # never created: the run may be over
                try:
                    os.write(fd, line)
                finally:
                    os.close(fd)
            except OSError:
                fd = -1
            try:
                poll = select.poll()
                poll.register(2, select.POLLOUT)
                if self.stderr and poll.poll(0) == [(2, select.POLLOUT)]:
                    os.write(2, line)
            except (OSError, AttributeError):  # some event loops take select.poll away
                fd = -1

        def armed(self, how):
            self.pid, self.start = os.getpid(), 0
            try:
                os.fstat(2)
                self.stderr = True
            except OSError:
                self.stderr = False
            try:
                with open("/proc/self/stat", "rb") as stat:
                    self.start = int(stat.read().rpartition(b")")[2].split()[19])
                with open(file, "rb") as source:
                    sha = hashlib.sha256(source.read()).hexdigest()
            except OSError as error:
                sha = problem(error)
            argv0 = str((getattr(sys, "argv", None) or [""])[0])
            told = {"kind": "armed", "how": how, "file": file, "sha256": sha, "module": home.get("__name__")}
            self.write(dict(told, python=sys.executable, argv0=argv0, ppid=os.getppid()))

        def forked(self):
            self.lock = threading.RLock()  # another thread of the parent may have held it
            try:
                self.armed("fork")
            except Exception:
                self.pid = 0  # the next hit tries again

    def short(value, most):
        if isinstance(value, dict):
            return {key: short(part, most) for key, part in value.items() if key != "values"}
        return value[:most] if isinstance(value, (str, list)) else value

    made = Probes()
    try:
        made.armed("import")
    except Exception:
        made.pid = 0  # as when json itself is being imported: the first hit tries again
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.forked)
    return made
