# SPDX-License-Identifier: Apache-2.0
"""A cluster whose API server is simulated."""

import time

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from tests.unit.machine import api

QUICK = dict(reconcile=False, watch_seconds=20, watch_backoff=0.2,
             stale_seconds=0.5, request_timeout=1, write_deadline=3,
             read_deadline=3)


class ClusterTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = api.Api()
        self.api.start()
        self.addCleanup(self.api.stop)
        self.vm = self.api.put('virtualmachines', api.vm('a'))

    def cluster(self, **scope):
        made = cluster.Cluster(
            self.api.connection(),
            options=options.Options(**{**QUICK, **scope.pop('opts', {})}),
            **scope)
        self.addCleanup(made.close)
        return made

    def until(self, check, seconds=30):
        end = time.monotonic() + seconds
        while True:
            try:
                if check():
                    return
            except errors.Unavailable:
                pass
            self.assertLess(time.monotonic(), end, 'condition not met in time')
            time.sleep(0.01)

    def annotation(self, machine, name):
        return machine.state().vm['metadata'].get(
            'annotations', {}).get(name)
