# SPDX-License-Identifier: Apache-2.0
"""An event loop without real waiting: its clock advances when all sleep."""

import asyncio
import selectors


class Loop(asyncio.SelectorEventLoop):
    """Has its own time, in seconds, which starts at 0.

    For what waits for nothing but time and itself: with sockets and threads
    the clock would run away.
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
                raise AssertionError('all wait for something that never comes')
            self._loop.now += max(timeout, 0)
        return found


def run(main):
    """Run a coroutine in such a loop.

    :param main: function of the loop, a coroutine
    :returns: what that returns
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
