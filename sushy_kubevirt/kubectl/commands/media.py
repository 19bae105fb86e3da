# SPDX-License-Identifier: Apache-2.0
"""Insert an image into a virtual drive of a VM, eject it, or show the drives.

The image is a URL, which the cluster fetches, or a file of this host, which is
uploaded. The exit status is 1 if the drive cannot be filled.
"""

from __future__ import annotations

from collections import abc
import os
import sys
import time
import typing
import uuid

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import argparse

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.remote import redfish as bmc_redfish

EXAMPLES = """\
kubectl bmc media node-0 insert https://images.example.com/installer.iso
kubectl bmc media node-0 insert ./tools.qcow2 --device usb
kubectl bmc media node-0 insert https://images.example.com/private.iso \\
    --user me --password-stdin < password
kubectl bmc media node-0 eject
"""

INSERT, EJECT, SHOW = 'insert', 'eject', 'show'

#: Devices of the command line, and their Ids.
DEVICES = {'cd': 'Cd', 'usb': 'USBStick'}

#: Seconds between requests while an image is fetched.
_POLL_SECONDS = 1

#: Bytes that are sent at once; seconds that CDI may take for the last ones,
#: when it converts the image.
_CHUNK, _UPLOAD_SECONDS = 2 ** 18, 3600


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument('action', metavar='ACTION', nargs='?', default=SHOW,
                        choices=(INSERT, EJECT, SHOW),
                        help='insert, eject or show (default: %(default)s)')
    parser.add_argument('image', metavar='URL|FILE', nargs='?',
                        help='image to insert: ISO, raw, qcow2 …')
    parser.add_argument('--device', choices=DEVICES, default='cd',
                        help='the drive (default: %(default)s)')
    group = parser.add_argument_group('options of insert URL')
    group.add_argument('--user', metavar='NAME',
                       help='user name at the server of the image')
    group.add_argument('--password-stdin', action='store_true',
                       help='read the password from the first line of stdin')
    group.add_argument('--insecure', action='store_true', help='do not verify '
                       "the certificate of the image's server")


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Carry out the action."""
    from sushy_kubevirt.remote import redfish
    if (options.action == INSERT) != bool(options.image):
        raise sessions.UsageError(
            'Give the URL or the file to insert' if options.action == INSERT
            else f'"{options.action}" takes no image')
    client = session.redfish(options.name)
    if options.action == SHOW:
        devices = client.get(
            f'{redfish.SYSTEM}/VirtualMedia?$expand=.')['Members']
        sessions.table(('DEVICE', 'IMAGE', 'STATE', 'HEALTH', 'MESSAGE'),
                       map(_row, devices))
        return 0
    device = f'{redfish.SYSTEM}/VirtualMedia/{DEVICES[options.device]}'
    if options.action == EJECT:
        client.post(f'{device}/Actions/VirtualMedia.EjectMedia')
        return 0
    progress = _Progress()
    try:
        if options.image.partition('://')[0] in ('http', 'https'):
            _insert_url(client, device, options)
        else:
            _upload(client, device, options.image, progress)
        return _wait(client, device, progress)
    finally:
        progress.end()


class _Progress:
    """Sentences, and a line that is overwritten, or printed for each tenth."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._percent = self._sentence = ''

    def show(self, step: str, percent: int) -> None:
        """Show a step and its progress."""
        if not self._terminal:
            percent -= percent % 10
        text = f'{step} {percent} %'
        if text != self._percent:
            self._percent = text
            print('\r\033[K' + text if self._terminal else text + '\n',
                  end='', file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """Show a sentence, unless it is '' or the last one."""
        if text not in ('', self._sentence):
            self.end()
            self._sentence = text
            sessions.show(text, sys.stderr)

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._percent:
            self._percent = ''
            print(file=sys.stderr)


def _insert_url(client: bmc_redfish.Client, device: str,
                options: argparse.Namespace) -> None:
    body = {'Image': options.image, 'VerifyCertificate': not options.insecure}
    if options.user:
        body['UserName'] = options.user
    if options.password_stdin:
        body['Password'] = sys.stdin.readline().rstrip('\n')
    client.request('PATCH', device, json=body,
                   headers={'Prefer': 'respond-async'})


def _upload(client: bmc_redfish.Client, device: str, path: str,
            progress: _Progress) -> None:
    """Send a file as the web page does (multipart/form-data, RFC 7578)."""
    with open(path, 'rb') as image:
        target = (client.get(device).get('Oem') or {}).get(
            'SushyKubevirt', {}).get('MultipartHttpPushUri')
        if target is None:
            raise client.error(
                'does not accept uploads: the operator has no upload proxy '
                '(--upload-proxy-url), or "redfish.webPage" is false')
        boundary = uuid.uuid4().hex
        name = ''.join(character if character not in '"\\\r\n' else '_'
                       for character in os.path.basename(path))
        head = (f'--{boundary}\r\nContent-Disposition: form-data; '
                f'name="ImageFile"; filename="{name}"\r\n'
                'Content-Type: application/octet-stream\r\n\r\n').encode()
        tail = f'\r\n--{boundary}--\r\n'.encode()
        size = os.fstat(image.fileno()).st_size

        def body() -> abc.Iterator[bytes]:
            yield head
            sent = 0
            while data := image.read(min(_CHUNK, size - sent)):
                yield data
                sent += len(data)
                progress.show('Upload', 100 * sent // size)
            yield tail

        client.request('POST', target, headers={
            'Content-Type': f'multipart/form-data; boundary={boundary}',
            'Content-Length': str(len(head) + size + len(tail)),
            'Prefer': 'respond-async'},
            body=body(), timeout=_UPLOAD_SECONDS, retries=False)


def _wait(client: bmc_redfish.Client, device: str, progress: _Progress) -> int:
    """Wait until a medium is complete.

    :returns: exit status
    """
    while True:
        medium = client.get(device)
        status = medium['Status']
        if status['State'] != 'Updating':
            break
        for condition in status.get('Conditions') or ():
            if condition['MessageId'].endswith('.TaskProgressChanged'):
                progress.show('Import', int(condition['MessageArgs'][1]))
                # What it waits for follows the registry's sentence.
                progress.tell(condition['Message'].partition(
                    'percent complete.')[2].strip())
        time.sleep(_POLL_SECONDS)
    for condition in status.get('Conditions') or ():
        progress.tell(condition['Message'])
    if not medium['Inserted']:
        progress.tell('The medium was ejected meanwhile')
    return int(status['Health'] == 'Critical' or not medium['Inserted'])


def _row(device: objects.Json) -> tuple[str, ...]:
    status = device['Status']
    names = {value: key for key, value in DEVICES.items()}
    name = str(device['Id'])
    return (names.get(name, name), device['Image'] or '',
            status['State'] if device['Inserted'] else 'Empty',
            status.get('Health') or '', ' '.join(
                condition['Message'] for condition
                in status.get('Conditions') or ()))
