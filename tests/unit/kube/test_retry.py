# SPDX-License-Identifier: Apache-2.0
import math
import threading
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

LOST = errors.ConnectionLost('lost', maybe_done=True)
BUSY = errors.ServerError('busy')


class LateAnswersTestCase(base.BaseTestCase):

    def run_step(self, outcomes, shown, deadline=20.0):
        """Run a step with outcomes: exceptions to raise, values to return.

        :param shown: what the watch shows after each failure
        """
        self.shown = mock.Mock(side_effect=shown)
        with mock.patch.object(retry, 'FIRST_PAUSE', 0.001):
            return retry.run(
                mock.Mock(side_effect=outcomes),
                deadline, threading.Event(), self.shown)

    def test_effect_of_a_lost_answer_is_the_result(self):
        self.assertEqual('done', self.run_step([LOST], [('done',)]))
        self.assertIsNone(self.run_step([LOST, BUSY], [None, (None,)]))

    def test_step_is_repeated_while_nothing_shows(self):
        self.assertEqual(7, self.run_step([LOST, LOST, 7], [None, None]))

    def test_nothing_is_looked_for_if_nothing_was_sent(self):
        self.assertEqual(7, self.run_step([BUSY, 7], [('done',)]))
        self.shown.assert_not_called()

    def test_effect_may_show_after_the_deadline(self):
        self.assertEqual('done', self.run_step([LOST], [('done',)], 0.0))
        self.shown.assert_called_once_with(retry.LATE_SECONDS)
        self.assertRaises(errors.ConnectionLost, self.run_step, [LOST],
                          [None], 0.0)


class LimitTestCase(base.BaseTestCase):

    def test_thread_has_a_shorter_deadline(self):
        step = mock.Mock(side_effect=BUSY)
        self.assertRaises(
            errors.ServerError, retry.within, 0.0, retry.run, step, 20.0,
            threading.Event())
        step.assert_called_once_with()
        self.assertEqual(0.0, retry.within(0.0, retry.limit))
        self.assertEqual(math.inf, retry.limit())
