# SPDX-License-Identifier: Apache-2.0
"""Messages of events: from DMTF's registries, else from our own.

The texts of ResourceEvent 1.3 and TaskEvent 1.0 are DMTF's (DSP8011); only
messages that are sent are included. Events without a DMTF message use the
registry ``SushyKubeVirt``, which this service publishes.
"""

from __future__ import annotations

from collections import abc
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

PREFIX = 'SushyKubeVirt'
VERSION = '1.0.0'

#: Prefixes of the registries whose messages are sent.
PREFIXES = ('ResourceEvent', 'TaskEvent', 'Base', PREFIX)

_RESOURCE = 'ResourceEvent.1.3'
_TASK = 'TaskEvent.1.0'
_BASE = 'Base.1.18'
_OWN = PREFIX + '.1.0'


class Message(typing.NamedTuple):
    """A message of a registry.

    :param registry: name and version, such as ``ResourceEvent.1.3``
    :param key: the message's key in the registry
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param text: with %1, %2 … for the arguments
    :param resolution: how to resolve the situation
    :param about: description, for our own registry
    :param arguments: descriptions of the arguments, for our own registry
    """

    registry: str
    key: str
    severity: str
    text: str
    resolution: str = 'None.'
    about: str = ''
    arguments: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its MessageId."""
        return f'{self.registry}.{self.key}'

    def format(self, args: abc.Sequence[str]) -> str:
        """Return the text with arguments inserted."""
        # Split first, so that a %1 in an argument is not replaced.
        first, *parts = self.text.split('%')
        return first + ''.join(args[int(part[0]) - 1] + part[1:]
                               for part in parts)


CREATED = Message(
    _RESOURCE, 'ResourceCreated', 'OK',
    'The resource has been created successfully.', 'None')
REMOVED = Message(
    _RESOURCE, 'ResourceRemoved', 'OK',
    'The resource has been removed successfully.', 'None')
POWERED_ON = Message(
    _RESOURCE, 'ResourcePoweredOn', 'OK', 'The resource `%1` has powered on.')
POWERING_ON = Message(
    _RESOURCE, 'ResourcePoweringOn', 'OK', 'The resource `%1` is powering on.')
POWERED_OFF = Message(
    _RESOURCE, 'ResourcePoweredOff', 'OK',
    'The resource `%1` has powered off.')
POWERING_OFF = Message(
    _RESOURCE, 'ResourcePoweringOff', 'OK',
    'The resource `%1` is powering off.')
PAUSED = Message(
    _RESOURCE, 'ResourcePaused', 'OK', 'The resource `%1` has been paused.')
HEALTH_OK = Message(
    _RESOURCE, 'ResourceStatusChangedOK', 'OK',
    "The health of resource '%1' has changed to %2.")
TEST = Message(_RESOURCE, 'TestMessage', 'OK', 'Test message.')
TASK_STARTED = Message(
    _TASK, 'TaskStarted', 'OK', "The task with Id '%1' has started.")
TASK_COMPLETED = Message(
    _TASK, 'TaskCompletedOK', 'OK', "The task with Id '%1' has completed.")
TASK_ABORTED = Message(
    _TASK, 'TaskAborted', 'Critical',
    "The task with Id '%1' has completed with errors.")
BUFFER_EXCEEDED = Message(
    _BASE, 'EventBufferExceeded', 'Warning',
    'Undelivered events may have been lost due to a lack of buffer space in '
    'the service.',
    'To determine if events were discarded, check other system logs or the '
    'resources that events were to tell of.')

STARTED = Message(
    _OWN, 'ServiceStarted', 'OK', 'The service has started.',
    about='The service has started. Events that occurred while it was not '
    'running were not sent.')
START_FAILED = Message(
    _OWN, 'SystemStartFailed', 'Critical',
    "The system '%1' cannot start (%2): %3",
    'Resolve the problem that the message names. The system then starts; if '
    'not, reset it again.',
    'KubeVirt cannot start the VM.',
    ('The namespace and name of the VM.', "KubeVirt's reason, one word.",
     "KubeVirt's explanation."))
IMPAIRED = Message(
    _OWN, 'SystemImpaired', 'Critical',
    "The guest of the system '%1' does not work (%2): %3",
    'Resolve the problem that the message names; then resume a paused guest, '
    'or reset the system.',
    'A guest that was running does not work: an I/O error has paused it, or '
    'its node did not respond.',
    ('The namespace and name of the VM.', "KubeVirt's reason, one word.",
     "KubeVirt's explanation."))
BOOT_SET = Message(
    _OWN, 'BootOverrideSet', 'OK',
    "The system '%1' will boot from '%2' (%3, mode %4).",
    about='A boot source override was set or changed.',
    arguments=('The namespace and name of the VM.',
               'BootSourceOverrideTarget.', 'BootSourceOverrideEnabled.',
               'BootSourceOverrideMode.'))
BOOT_CONSUMED = Message(
    _OWN, 'BootOverrideConsumed', 'OK',
    "The system '%1' has started its one-time boot from '%2'.",
    about='A one-time boot source override was used and is now disabled.',
    arguments=('The namespace and name of the VM.',
               'The previous BootSourceOverrideTarget.'))
BOOT_REMOVED = Message(
    _OWN, 'BootOverrideRemoved', 'OK',
    "The system '%1' will no longer boot from '%2', but in its own boot "
    'order.',
    about='A boot source override was removed without having been used.',
    arguments=('The namespace and name of the VM.',
               'The previous BootSourceOverrideTarget.'))
MEDIA_INSERTED = Message(
    _OWN, 'MediaInserted', 'OK',
    "'%2' was inserted into device '%3' of the system '%1'.",
    about='A medium was inserted; its image is being imported.',
    arguments=('The namespace and name of the VM.', 'The URL of the image.',
               'The device.'))
MEDIA_READY = Message(
    _OWN, 'MediaImported', 'OK',
    "'%2' in device '%3' of the system '%1' was imported completely.",
    about='The import of the image of a medium is complete.',
    arguments=('The namespace and name of the VM.', 'The URL of the image.',
               'The device.'))
MEDIA_FAILED = Message(
    _OWN, 'MediaImportFailed', 'Critical',
    "'%2' in device '%3' of the system '%1' cannot be fetched (%4): %5",
    'Resolve the problem that the message names, or eject the medium.',
    'The image of a medium cannot be fetched.',
    ('The namespace and name of the VM.', 'The URL of the image.',
     'The device.', "CDI's reason, one word.", "CDI's explanation."))
MEDIA_EJECTED = Message(
    _OWN, 'MediaEjected', 'OK',
    "'%2' was ejected from device '%3' of the system '%1'.",
    about='A medium was ejected.',
    arguments=('The namespace and name of the VM.', 'The URL of the image.',
               'The device.'))
KUBERNETES = Message(
    _OWN, 'KubernetesEvent', 'OK', '%1 (%2): %3',
    about='A Kubernetes Event about a VM, its instance or its media, in a '
    'log. The entry has the severity of the Event.',
    arguments=('The reporting component.', 'The reason, one word.',
               "The Event's message."))
WATCHDOG_EXPIRED = Message(
    _OWN, 'WatchdogExpired', 'Warning',
    "The watchdog timer (%2) of the system '%1' has expired; action: %3.",
    'Find out why the client that sets the timer no longer resets it.',
    'The IPMI watchdog timer of a system has expired.',
    ('The namespace and name of the VM.', 'The timer use.',
     'The timeout action.'))
SEL_ENTRY = Message(
    _OWN, 'SelEntryAdded', 'OK',
    "An IPMI client added a record to the log of the system '%1': %2",
    about='A client added a record with the IPMI commands Add SEL Entry or '
    'Platform Event.',
    arguments=('The namespace and name of the VM.',
               'The record in hexadecimal, without its id.'))
LOGIN_FAILED = Message(
    _OWN, 'LoginFailed', 'Warning',
    "A login as '%1' from '%2' was refused.",
    'If this was not a typing error, find out who uses the address.',
    'A login with a wrong user name or password was refused.',
    ('The user name.', 'The IP address of the client.'))

_ACCOUNT_ARGUMENTS = (
    'The user name.', 'The id of the account.',
    'The user who did it, and the protocol.')
ACCOUNT_CREATED = Message(
    _OWN, 'AccountCreated', 'OK',
    "The account '%1' (%2) was created by %3.",
    about='An account was created.', arguments=_ACCOUNT_ARGUMENTS)
ACCOUNT_CHANGED = Message(
    _OWN, 'AccountChanged', 'OK',
    "The account '%1' (%2) was changed by %3: %4.",
    about='An account was changed.', arguments=(
        *_ACCOUNT_ARGUMENTS, 'The properties that were changed.'))
ACCOUNT_DELETED = Message(
    _OWN, 'AccountDeleted', 'OK',
    "The account '%1' (%2) was deleted by %3.",
    about='An account was deleted.', arguments=_ACCOUNT_ARGUMENTS)


def registry() -> objects.Json:
    """Return our own messages as a MessageRegistry resource."""
    own = [message for message in globals().values()
           if isinstance(message, Message) and message.registry == _OWN]
    return {
        '@odata.type': '#MessageRegistry.v1_6_2.MessageRegistry',
        'Id': f'{PREFIX}.{VERSION}',
        'Name': 'Messages of sushy-kubevirt',
        'Language': 'en',
        'Description': 'Events of KubeVirt virtual machines and of the '
        'service for which the registries of DMTF have no message.',
        'RegistryPrefix': PREFIX,
        'RegistryVersion': VERSION,
        'OwningEntity': 'sushy-kubevirt',
        'Messages': {message.key: _entry(message) for message in own},
    }


def _entry(message: Message) -> objects.Json:
    entry: objects.Json = {
        'Description': message.about,
        'LongDescription': message.about,
        'Message': message.text,
        'MessageSeverity': message.severity,
        'Severity': message.severity,
        'NumberOfArgs': len(message.arguments),
        'Resolution': message.resolution,
    }
    if message.arguments:
        entry['ParamTypes'] = ['string'] * len(message.arguments)
        entry['ArgDescriptions'] = list(message.arguments)
        entry['ArgLongDescriptions'] = list(message.arguments)
    return entry
