# SPDX-License-Identifier: Apache-2.0
"""What a process knows of virtual media."""

import queue

from oslotest import base

from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options
from tests.unit.machine import api


def vm(uid, version, slot):
    made = api.vm('a')
    made['metadata'].update(namespace='default', uid=uid,
                            resourceVersion=version)
    record = media_annotation.Record()
    record.media[model.CD.id] = media_annotation.Entry(
        id=uid, url='http://images.example/x.iso', uid='of-' + uid,
        volume=media_annotation.slots('a', model.CD.id)[slot])
    media_annotation.write(made, record)
    return made


class ManagerTestCase(base.BaseTestCase):

    def test_vm_replaced_without_a_watch_is_watched_no_more(self):
        server = api.Api()
        server.start()
        self.addCleanup(server.stop)
        machines = cluster.Cluster(
            server.connection(), vm='default/a',
            options=options.Options(reconcile=False, read_deadline=30))
        self.addCleanup(machines.close)
        machines.wait_ready()
        watched = machines.media.volumes._watchers
        # Called after the manager.
        told = queue.SimpleQueue()
        machines.subscribe(lambda *change: told.put(change))
        for uid, version, slot in ('u1', '1000', 0), ('u2', '1001', 1):
            machines.cache.put_vm(vm(uid, version, slot))
            name = media_annotation.slots('a', model.CD.id)[slot]
            while [key.name for key in watched] != [name]:
                told.get(timeout=30)
