"""What a process makes once: by whichever thread comes first, and anew after a fork."""

import os
import threading
import time

from readers.files.stores.per_process import PerProcess


def test_threads_that_come_together_make_one_value():
    values, made, gate = PerProcess[object](2), [], threading.Barrier(16)

    def make():
        time.sleep(0.02)
        made.append(object())
        return made[-1]

    found = []
    threads = [
        threading.Thread(target=lambda: (gate.wait(), found.append(values.get("a", make))))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and set(map(id, found)) == {id(made[0])}


def test_a_forked_process_makes_its_own_though_a_thread_of_its_parent_was_making_one():
    values = PerProcess[list](2)
    kept = values.get("a", list)
    with values._lock:  # As if another thread held it.
        child = os.fork()
        if not child:
            os._exit(values.get("a", list) is kept)
    assert os.waitpid(child, 0)[1] == 0
    assert values.get("a", list) is kept
