# SPDX-License-Identifier: Apache-2.0
from sushy_kubevirt.machine import media
from tests.unit.redfish import fakes
from tests.unit.redfish import media_case

URL = media_case.URL


class TestTasks(media_case.MediaTestCase):

    SERVICE = '/redfish/v1/TaskService'
    TASK = SERVICE + '/Tasks/attempt-1'
    MONITOR = SERVICE + '/TaskMonitors/attempt-1'

    def test_service(self):
        body = self.get(path=self.SERVICE)
        self.assertTrue(body['ServiceEnabled'])
        self.assertEqual(self.SERVICE + '/Tasks', body['Tasks']['@odata.id'])
        answer = self.client.patch(self.SERVICE, json={
            'ServiceEnabled': False})
        self.assertEqual(400, answer.status_code)

    def test_no_tasks_without_import(self):
        self.assertEqual([], self.get(path=self.SERVICE + '/Tasks')[
            'Members'])
        for path in self.TASK, self.MONITOR, self.SERVICE + '/Tasks/42':
            self.get(path=path, code=404)
            self.assertEqual(404, self.client.delete(
                path if path[-1] != '2' else self.TASK).status_code)

    def test_running_task(self):
        self.put_medium()
        self.assertEqual(
            [{'@odata.id': self.TASK}],
            self.get(path=self.SERVICE + '/Tasks')['Members'])
        body = self.get(path=self.TASK)
        self.assertEqual(('Running', 'OK', 41), (
            body['TaskState'], body['TaskStatus'], body['PercentComplete']))
        self.assertEqual(self.MONITOR, body['TaskMonitor'])
        self.assertEqual('2026-01-02T03:04:05.000Z', body['StartTime'])
        answer = self.client.get(self.MONITOR)
        self.assertEqual(202, answer.status_code)
        self.assertEqual(self.MONITOR, answer.headers['Location'])
        self.assertEqual('Running', answer.json['TaskState'])

    def test_completed_and_failed_tasks(self):
        self.put_medium(state=media.State.READY)
        body = self.get(path=self.TASK)
        self.assertEqual(('Completed', 100), (
            body['TaskState'], body['PercentComplete']))
        self.assertEqual(204, self.client.get(self.MONITOR).status_code)
        self.put_medium(state=media.State.READY, pending_restart=True)
        self.assertEqual(200, self.client.get(self.MONITOR).status_code)
        self.put_medium(state=media.State.FAILED, reason='Error',
                        message='no')
        body = self.get(path=self.TASK)
        self.assertEqual(('Exception', 'Critical'), (
            body['TaskState'], body['TaskStatus']))
        answer = self.client.get(self.MONITOR)
        self.assertEqual(400, answer.status_code)
        self.check_error(answer)

    def test_waiting_task(self):
        self.put_medium(state=media.State.WAITING, progress=None)
        body = self.get(path=self.TASK)
        self.assertEqual(('Starting', 0), (
            body['TaskState'], body['PercentComplete']))

    def test_delete_cancels_import(self):
        for path in self.TASK, self.MONITOR:
            for state in media.State.IMPORTING, media.State.FAILED:
                self.put_medium(state=state)
                self.assertEqual(204, self.client.delete(path).status_code)
                self.assertIsNone(self.machine.medium('Cd'))
                self.assertEqual(404, self.client.get(path).status_code)
            self.put_medium(state=media.State.READY)
            self.assertEqual(409, self.client.delete(path).status_code)

    def test_task_omits_query_of_url(self):
        self.put_medium(url=URL + '?signature=s3cret')
        self.assertNotIn('s3cret', self.client.get(self.TASK).text)

    def test_task_of_http_boot(self):
        self.machine.media['HttpBoot'] = fakes.MEDIUM
        self.assertIn('HttpBoot', self.get(path=self.TASK)['Description'])
