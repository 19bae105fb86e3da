# SPDX-License-Identifier: Apache-2.0
"""VirtualMedia v1.6: the media devices of a system, insert, upload and eject.

The same devices are served below the system and below its manager, because
clients look in one or the other. Links stay within the tree of the request.
"""

from __future__ import annotations

import typing

import flask

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine.media import image_size
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import multipart
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import request_validation
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import media_status
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.resources import tasks

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

_INSERT = 'VirtualMedia.InsertMedia'
_EJECT = 'VirtualMedia.EjectMedia'

_UPLOAD = 'Upload'

# Parts of an upload, and what the JSON object of the first may have.
_PARAMETERS_PART, _FILE_PART = 'InsertParameters', 'ImageFile'
_UPLOAD_PARAMETERS = {'WriteProtected': bool | None, 'Size': int | None}

_TYPES = {media.Kind.CD: ('Virtual CD', ['CD', 'DVD']),
          media.Kind.USB_STICK: ('Virtual USB Stick', ['USBStick'])}

# Parameters of InsertMedia. PATCH accepts properties of the same names with
# the same meaning.
_PARAMETERS: payload.Shape = {
    'Image': str,
    'Inserted': bool | None,
    'WriteProtected': bool | None,
    'UserName': str | None,
    'Password': str | None,
    'TransferProtocolType': ('HTTP', 'HTTPS', None),
    'TransferMethod': ('Stream', 'Upload', None),
}

# Members beyond the standard's that clients send, which must agree with what
# the request does: gofish's and iLO's scripts'.
_OEM = payload.Extension(
    'Vendors\' extensions are not supported. To boot from the medium, set '
    'Boot/BootSourceOverrideTarget of the system.')
_TARGETS = ('/Oem/Hp', '/OEM/Hp', '/Oem/Hpe', '/OEM/Hpe')
_ACTIONS = {
    _INSERT: (_INSERT, '#' + _INSERT, 'InsertMedia', 'InsertVirtualMedia'),
    _EJECT: (_EJECT, '#' + _EJECT, 'EjectMedia', 'EjectVirtualMedia')}

_SHAPE: payload.Shape = {
    **_PARAMETERS,
    'Image': str | None,
    'VerifyCertificate': bool,
    'Oem': _OEM,
    **payload.read_only(
        'Id', 'Name', 'Description', 'MediaTypes', 'ImageName',
        'ConnectedVia', 'Status', 'Certificates', 'Actions', 'EjectPolicy'),
}


# Paths

def path(machine: machine.Machine, *names: str) -> str:
    """Return the path of the collection, or of a resource below it.

    Below the system or its manager, as in the request.

    :param names: path segments below the collection
    """
    place = resource_paths.place(flask.request.path)
    return place(machine, 'VirtualMedia', *names)


def find(machine: machine.Machine, name: str) -> media.Device:
    """Find a device by its id.

    :param name: id of the device
    :raises: `error_responses.RedfishError`, 404
    """
    return resource_paths.member('VirtualMedia', name, {
        device.id: device for device in machine.media_devices()})


# Properties (GET)

def collection(machine: machine.Machine) -> responses.Json:
    """GET …/VirtualMedia"""
    return responses.collection(
        'VirtualMedia', 'Virtual Media Collection', path(machine),
        [device.id for device in machine.media_devices()])


def resource(machine: machine.Machine, device: str) -> responses.Json:
    """GET …/VirtualMedia/<device>"""
    media_device = find(machine, device)
    here = path(machine, media_device.id)
    medium = machine.medium(media_device.id)
    name, types = _TYPES[media_device.kind]
    body: responses.Json = {
        '@odata.id': here,
        '@odata.type': '#VirtualMedia.v1_6_5.VirtualMedia',
        'Id': media_device.id,
        'Name': name,
        'Description':
            f'{name} of KubeVirt VirtualMachine {machine.qualified_name}',
        'MediaTypes': types,
        'Image': None,
        'ImageName': None,
        'Inserted': False,
        'ConnectedVia': 'NotConnected',
        'WriteProtected': None,
        'UserName': None,
        # DSP0268: null in responses.
        'Password': None,
        'TransferMethod': None,
        'TransferProtocolType': None,
        'VerifyCertificate': machine.media_verify(media_device.id),
        'Status': media_status.status(machine, media_device.id, medium,
                                      here),
        'Actions': {
            '#' + _INSERT: {
                'target': f'{here}/Actions/{_INSERT}',
                '@Redfish.ActionInfo': here + '/InsertMediaActionInfo',
            },
            '#' + _EJECT: {'target': f'{here}/Actions/{_EJECT}'},
        },
    }
    if application.current().feature_set == 'full':
        body['Certificates'] = responses.link(here + '/Certificates')
    if oem := _oem(here, medium):
        body['Oem'] = {'SushyKubevirt': oem}
    if medium is not None:
        body.update({
            'Image': medium.url,
            'ImageName': medium.image_name,
            'Inserted': True,
            'ConnectedVia': 'Applet' if medium.uploaded else 'URI',
            'WriteProtected': medium.write_protected,
            'UserName': None,
            'TransferMethod': medium.method,
            'TransferProtocolType': _protocol(medium),
        })
    return body


def _oem(here: str, medium: media.Medium | None) -> responses.Json:
    """Return where to upload an image, and the task of its import."""
    settings = application.current().systems.settings
    body: responses.Json = {}
    if settings.web_page and settings.machine.media.upload_proxy_url:
        body['MultipartHttpPushUri'] = f'{here}/{_UPLOAD}'
    if medium is not None and medium.task and _serves_tasks():
        body['Task'] = responses.link(f'{tasks.TASKS}/{medium.task}')
    return body


def _protocol(medium: media.Medium) -> str | None:
    """Return the TransferProtocolType of a medium; None for an upload."""
    return None if medium.uploaded else medium.url.partition(':')[0].upper()


def insert_info(machine: machine.Machine, device: str) -> responses.Json:
    """GET …/VirtualMedia/<device>/InsertMediaActionInfo"""
    return responses.action_info(
        path(machine, find(machine, device).id, 'InsertMediaActionInfo'),
        'Insert Media Action Info', *(responses.parameter(
            name, name == 'Image',
            'Boolean' if kind == bool | None else 'String',
            filter(None, kind) if isinstance(kind, tuple) else ())
            for name, kind in _PARAMETERS.items()))


# Actions

def _extras(device: media.Device, action: str) -> payload.Shape:
    """Return parameters that are accepted and have no effect.

    sushy-tools 2.2 ignores all others.
    """
    types = (*_TYPES[device.kind][1], None)
    return {'MediaType': types, 'MediaTypes': payload.ListOf(types),
            'Action': _ACTIONS[action], 'Target': _TARGETS, 'Oem': _OEM}


_Answer: typing.TypeAlias = 'flask.Response | responses.Json | None'


def insert(machine: machine.Machine, device: str) -> _Answer:
    """POST …/VirtualMedia/<device>/Actions/VirtualMedia.InsertMedia"""
    media_device = find(machine, device)
    values = payload.parameters(
        _INSERT, {**_PARAMETERS, **_extras(media_device, _INSERT)},
        required=['Image'])
    if values.get('Inserted') is False:
        raise error_responses.base_error(
            400, 'ActionParameterValueError', 'Inserted', _INSERT,
            detail='InsertMedia supports only true.')
    try:
        return _insert(machine, media_device, values)
    except errors.InvalidValue as exc:
        raise error_responses.base_error(
            400, 'ActionParameterValueError', exc.property, _INSERT,
            detail=str(exc), related=['#/' + exc.property]) from exc


def eject(machine: machine.Machine, device: str) -> _Answer:
    """POST …/VirtualMedia/<device>/Actions/VirtualMedia.EjectMedia"""
    media_device = find(machine, device)
    payload.parameters(_EJECT, _extras(media_device, _EJECT))
    return _eject(machine, media_device)


def _insert(machine: machine.Machine, device: media.Device,
            values: responses.Json) -> _Answer:
    write_protected = values.get('WriteProtected')
    wants_task = _wants_task()
    medium = machine.insert_media(device.id, media.Source(
        url=values['Image'],
        username=values.get('UserName') or '',
        password=values.get('Password') or '',
        write_protected=True if write_protected is None else write_protected,
        verify=values.get('VerifyCertificate'),
        method=values.get('TransferMethod'),
        protocol=values.get('TransferProtocolType')),
        wait=False if wants_task else None,
        verify=values.get('VerifyCertificate'))
    return _inserted(machine, device, medium, wants_task)


def _inserted(machine: machine.Machine, device: media.Device,
              medium: media.Medium, wants_task: bool) -> _Answer:
    flask.current_app.logger.info(
        '%s inserted into %s of %s', media_status.url_without_query(medium),
        device.id, machine.qualified_name)
    if media_status.in_progress(medium) and wants_task:
        return tasks.task_accepted(machine, device.id, medium)
    return tasks.task_result(machine, device.id, medium)


def _serves_tasks() -> bool:
    return routing.current().serves(tasks.MONITORS + '/<task>')


def _wants_task() -> bool:
    """Check that Prefer: respond-async was sent and tasks are served."""
    return _serves_tasks() and request_validation.prefers('respond-async')


def upload(machine: machine.Machine, device: str) -> _Answer:
    """POST …/VirtualMedia/<device>/Upload

    Modelled on UpdateService's MultipartHttpPushUri (DSP0266, "Multipart HTTP
    push updates"): multipart/form-data with an optional JSON object,
    ``InsertParameters``, and the image, ``ImageFile``. Responds when CDI has
    the whole image.
    """
    media_device = find(machine, device)
    if not application.current().systems.settings.web_page:
        raise error_responses.uri_not_found()
    machine.require_media_upload()
    slot = authentication.services().uploads.take(
        authentication.owner())
    if slot is None:
        raise error_responses.unavailable(
            'The maximum number of images is being uploaded.', 30)
    with slot:
        return _upload(machine, media_device)


def _upload(machine: machine.Machine, device: media.Device) -> _Answer:
    settings = application.current().systems.settings
    form = multipart.Form(_PARAMETERS_PART, _FILE_PART)
    form.read_head(image_size.NEEDED)
    values = payload.validated(form.values, _UPLOAD_PARAMETERS)
    size = values.get('Size')
    if size is not None and (size is True or size < 1):
        raise errors.InvalidValue(
            'Size', size, message='Size is the number of bytes of the disk')
    if not form.head:
        raise errors.InvalidValue(
            _FILE_PART, form.name, message=f'{form.name} is empty')
    wants_task = _wants_task()
    medium = machine.upload_media(
        device.id, media.ClientImage(form.name, form.readinto,
                                     authentication.still_authorized()),
        image_size.of_upload(
            form.name, form.head, size, flask.request.content_length,
            settings.machine.media),
        values.get('WriteProtected') is not False,
        wait=False if wants_task else None)
    return _inserted(machine, device, medium, _serves_tasks())


def _eject(machine: machine.Machine, device: media.Device,
           verify: bool | None = None) -> responses.Json | None:
    machine.eject_media(device.id, verify)
    flask.current_app.logger.info('%s of %s ejected', device.id,
                                  machine.qualified_name)
    medium = machine.medium(device.id)
    if medium is None or medium.state is not media.State.EJECTING:
        return None
    return error_responses.error_body(
        media_status.extended_info(machine, device.id, medium))


# Changes (PATCH)

def patch(machine: machine.Machine, device: str) -> _Answer:
    """PATCH …/VirtualMedia/<device>"""
    media_device = find(machine, device)
    values = payload.properties(_SHAPE)
    wrong: list[messages.Message] = []
    image, inserted = values.get('Image'), values.get('Inserted')
    if image and inserted is False:
        wrong.append(messages.message(
            'PropertyValueConflict', 'Inserted', 'Image',
            related=['#/Inserted', '#/Image']))
    out = inserted is False or 'Image' in values and not image
    if out and inserted:
        wrong.append(messages.message(
            'PropertyMissing', 'Image', related=['#/Image']))
    if not image and not out:
        wrong += _without_image(machine, media_device, values)
    if wrong:
        raise error_responses.RedfishError(400, *wrong)
    verify = values.get('VerifyCertificate')
    answer: _Answer = None
    if image:
        answer = _insert(machine, media_device, values)
    elif out:
        answer = _eject(machine, media_device, verify)
    elif verify is not None:
        machine.set_media_verify(media_device.id, verify)
    if verify is not None:
        flask.current_app.logger.info(
            'VerifyCertificate of %s of %s set to %s', media_device.id,
            machine.qualified_name, verify)
    return answer


def _without_image(machine: machine.Machine, device: media.Device,
                   values: responses.Json) -> list[messages.Message]:
    """Create errors for properties that need the insert of an image."""
    medium = machine.medium(device.id)
    problems = []
    if values.get('Inserted') and medium is None:
        problems.append(messages.message(
            'PropertyMissing', 'Image', related=['#/Image']))
    now = {} if medium is None else {
        'WriteProtected': medium.write_protected,
        'TransferMethod': medium.method,
        'TransferProtocolType': _protocol(medium)}
    for name in ('WriteProtected', 'UserName', 'Password',
                 'TransferProtocolType', 'TransferMethod'):
        value = values.get(name)
        if value is not None and value != now.get(name):
            problems.append(messages.message(
                'PropertyMissing', 'Image', related=['#/Image'],
                detail=f'{name} can only be set together with Image.'))
    return problems


# Start of upstream's endpoints.
_UPSTREAM = 'VirtualMedia.virtual_media_'

_DEVICES = '/<identity>/VirtualMedia'
_MANAGERS = resource_paths.MANAGERS + _DEVICES
_DEVICE = _MANAGERS + '/<device>'
_SYSTEM_DEVICE = resource_paths.SYSTEMS + _DEVICES + '/<device>'

ROUTES = (
    routing.replace(_UPSTREAM + 'collection_resource', collection, 'vmedia'),
    routing.replace(_UPSTREAM + 'resource', resource, 'vmedia'),
    routing.replace(_UPSTREAM + 'patch', None, 'vmedia', patch=patch),
    routing.replace(_UPSTREAM + 'insert', None, 'vmedia', post=insert),
    routing.replace(_UPSTREAM + 'eject', None, 'vmedia', post=eject),
    routing.add(_MANAGERS, collection, 'vmedia'),
    routing.add(_DEVICE, resource, 'vmedia', patch=patch),
    routing.add(f'{_DEVICE}/Actions/{_INSERT}', None, 'vmedia', post=insert),
    routing.add(f'{_DEVICE}/Actions/{_EJECT}', None, 'vmedia', post=eject),
    *(routing.add(f'{device}/InsertMediaActionInfo', insert_info, 'vmedia')
      for device in (_DEVICE, _SYSTEM_DEVICE)),
    *(routing.add(f'{device}/{_UPLOAD}', None, 'vmedia', post=upload,
                  body=multipart.CONTENT_TYPE)
      for device in (_DEVICE, _SYSTEM_DEVICE)),
)
