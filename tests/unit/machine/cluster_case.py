# SPDX-License-Identifier: Apache-2.0
"""A cluster whose API server is simulated."""

import time

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from tests.unit.machine import api

OPTIONS = dict(reconcile=False, watch_seconds=60, watch_backoff=0.2,
               stale_seconds=60, request_timeout=30, write_deadline=60,
               read_deadline=30)

#: For a cluster whose API server fails: its cache is stale soon.
STALE = dict(stale_seconds=0.5)


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
            options=options.Options(**{**OPTIONS, **scope.pop('opts', {})}),
            **scope)
        self.addCleanup(made.close)
        return made

    def until(self, check, seconds=30):
        end = time.monotonic() + seconds
        while True:
            try:
                if check():
                    return
            except (errors.Unavailable, errors.MachineNotFound):
                pass
            self.assertLess(time.monotonic(), end, 'condition not met in time')
            time.sleep(0.01)

    def annotation(self, machine, name):
        return machine.state().vm['metadata'].get(
            'annotations', {}).get(name)
