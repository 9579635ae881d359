"""Several looks side by side, each on a thread of its own: one that hangs or fails takes nothing from the others."""

import queue
import threading
import time
from typing import Any, Callable, List, Sequence

AT_ONCE = 8


def together(
    tasks: Sequence[Callable[[], Any]], deadline: float, late: Any, failed: Callable[[Exception], Any], at_once: int = AT_ONCE
) -> List[Any]:
    """What each task gave, in order; `late` for one that has no answer at the (monotonic) deadline, `failed(error)` for one that raised.

    A thread that never comes back is left behind: reads of /proc can wait for as long as the process that they are about.
    """
    waiting: "queue.SimpleQueue[int]" = queue.SimpleQueue()
    done: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
    for index in range(len(tasks)):
        waiting.put(index)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answer = tasks[index]()
            except Exception as error:  # its own answer, so that the others keep theirs
                answer = failed(error)
            done.put((index, answer))

    for _ in range(min(at_once, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    answers = [late] * len(tasks)
    for _ in tasks:
        try:
            index, answer = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        answers[index] = answer
    return answers
