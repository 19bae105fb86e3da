# SPDX-License-Identifier: Apache-2.0
"""An event loop whose clock advances as soon as all tasks sleep."""

import asyncio
import selectors


class Loop(asyncio.SelectorEventLoop):
    """A loop with its own clock, in seconds from 0.

    Only for code that waits for timers and other tasks. With sockets or
    threads the clock would run ahead of them.
    """

    def __init__(self):
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self):
        return self.now


class _Selector(selectors.DefaultSelector):

    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        found = super().select(0)
        if not found:
            if timeout is None:
                raise AssertionError('all tasks wait, and no timer is pending')
            self._loop.now += max(timeout, 0)
        return found


def run(main):
    """Run a coroutine in a `Loop`.

    :param main: coroutine function of the loop
    :returns: the result of the coroutine
    """
    loop = Loop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
