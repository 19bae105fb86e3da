# SPDX-License-Identifier: Apache-2.0
"""Policy for image URLs: strict parsing, allowed hosts and addresses.

A client that inserts a medium chooses a URL that the cluster fetches. To keep
it from reaching what only the cluster or its nodes can, URLs are parsed
strictly and every address of the host is checked. Nothing is fetched here;
`fetch` connects only to the addresses that were checked.

CDI resolves the name again for an import and follows redirects itself;
network policies of the VM's namespace limit what it can reach.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import re
import socket
import typing
import urllib.parse

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import option_hints

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import options

_Address: typing.TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: typing.TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_ResultT = typing.TypeVar('_ResultT')

#: Redfish property that `errors.InvalidValue` names for a refused URL.
IMAGE = 'Image'

_PORTS = {'http': 80, 'https': 443}

_WRONG_PORT = 'its port is not a number from 1 to 65535'

_ALLOWS = '; set {} to True to allow these'

#: Maximum length of a URL in characters.
MAX_LENGTH = 4096

# A label of a host name; DNS and hosts files have underscores too.
_LABEL = re.compile(r'(?!-)[a-z0-9_-]{1,63}(?<!-)')

# Characters of a path or query that are not percent-encoded (RFC 3986).
_PATH_SAFE = "/%:@!$&'()*+,;=-._~"
_QUERY_SAFE = _PATH_SAFE + '?[]'

_NETWORK = ipaddress.ip_network

#: Loopback and link-local networks.
LOOPBACK = (_NETWORK('127.0.0.0/8'), _NETWORK('::1/128'))
LINK_LOCAL = (_NETWORK('169.254.0.0/16'), _NETWORK('fe80::/10'))

# Metadata services of clouds, which give out the node's credentials. Refused
# even where link-local addresses are allowed.
_METADATA = tuple(map(_NETWORK, (
    '169.254.169.254/32', '169.254.169.253/32', '169.254.170.2/32',
    '169.254.0.23/32', '100.100.100.200/32', '168.63.129.16/32',
    '192.0.0.192/32', 'fd00:ec2::/32', 'fd20:ce::254/128',
    'fe80::a9fe:a9fe/128')))

# Addresses that no host has. (2001::/32 was Teredo's.)
_UNUSABLE = tuple(map(_NETWORK, (
    '0.0.0.0/8', '::/128', '224.0.0.0/4', 'ff00::/8', '240.0.0.0/4',
    'fec0::/10', '100::/64', '2001::/32')))

# IPv6 addresses whose last four bytes are the IPv4 address they lead to:
# translated (RFC 6052, 2765) and compatible ones (RFC 4291).
_EMBEDDING = tuple(map(_NETWORK, (
    '64:ff9b::/96', '64:ff9b:1::/48', '::ffff:0:0:0/96', '::/96')))

# The network for translation within a site (RFC 8215). It may be divided into
# prefixes of these lengths, which the IPv4 address follows, without the bits
# 64 to 71 (RFC 6052, section 2.2).
_SITE, _PREFIX_LENGTHS = _NETWORK('64:ff9b:1::/48'), (48, 56, 64)


@dataclasses.dataclass(frozen=True)
class ParsedUrl:
    """A parsed URL.

    :param text: the URL without credentials and fragment, host in lower case
    :param scheme: ``http`` or ``https``
    :param host: name or address, an IPv6 address without brackets
    :param path: path and query, as they are sent
    :param username: user name in the URL, '' for none
    :param password: password in the URL, '' for none
    """

    text: str
    scheme: str
    host: str
    port: int
    path: str
    username: str = ''
    password: str = dataclasses.field(default='', repr=False)

    @property
    def shown(self) -> str:
        """The URL for messages: without the query, which may hold signatures.
        """
        return self.text.partition('?')[0]

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port, to which credentials are limited."""
        return self.scheme, self.host, self.port


class AddressAndPort(typing.NamedTuple):
    """One port of a host."""

    address: _Address
    port: int


def parse(url: str) -> ParsedUrl:
    """Parse and check a URL.

    :param url: text from a client or a redirect
    :raises: `errors.InvalidValue`
    """
    if not isinstance(url, str) or not url:
        raise _refused('', 'it is empty')
    if len(url) > MAX_LENGTH:
        raise _refused('', f'it is longer than {MAX_LENGTH} characters')
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url) or (
            '\\' in url):
        # Parsers differ in what they take for the host of such a URL.
        raise _refused('', 'it contains a space, a backslash or a control '
                       'character')
    # JSON can hold unpaired surrogates.
    _valid(url.encode, 'it contains a character that is not Unicode')
    parts = _valid(lambda: urllib.parse.urlsplit(url),
                   'its host is not a valid address in brackets')
    scheme = parts.scheme.lower()
    if url.startswith(model.UPLOAD):
        raise _refused(model.UPLOAD + '…', 'it stands for an image that a '
                       'client has uploaded; send the file to the Upload '
                       'resource of the device')
    if scheme not in _PORTS:
        raise _refused(scheme and scheme + ':…',
                       'only http and https are supported')
    if not parts.hostname:
        raise _refused(scheme + ':…', 'it has no host')
    port = _valid(lambda: parts.port, _WRONG_PORT)
    if port == 0:
        raise _refused('', _WRONG_PORT)
    username, password = _valid(lambda: [
        urllib.parse.unquote(text or '', errors='strict')
        for text in (parts.username, parts.password)],
        'its user name or password is not UTF-8 in percent-encoding')
    host = _canonical_host(parts.hostname, parts.netloc)
    port = port or _PORTS[scheme]
    path = urllib.parse.quote(parts.path, _PATH_SAFE) or '/'
    if parts.query:
        path += '?' + urllib.parse.quote(parts.query, _QUERY_SAFE)
    shown = f'[{host}]' if ':' in host else host
    if port != _PORTS[scheme]:
        shown += f':{port}'
    return ParsedUrl(f'{scheme}://{shown}{path}', scheme, host, port,
                     path, username, password)


def _valid(function: abc.Callable[[], _ResultT], why: str) -> _ResultT:
    """Call a function.

    :raises: `errors.InvalidValue` with this reason if it raises `ValueError`
    """
    try:
        return function()
    except ValueError:
        raise _refused('', why) from None


def _canonical_host(text: str, netloc: str) -> str:
    """Return the host of a URL: an address in canonical form, or a name."""
    if '[' in netloc.rpartition('@')[2]:
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            raise _refused(text, 'it is not a valid IPv6 address') from None
        if address.scope_id:
            raise _refused(text, 'an address with a zone has a different '
                           'meaning on each host')
        return address.compressed
    try:
        return ipaddress.IPv4Address(text).compressed
    except ValueError:
        pass
    name = text.rstrip('.')
    try:
        name = name.encode('ascii').decode()
    except UnicodeError:
        try:
            name = name.encode('idna').decode()
        except UnicodeError:
            raise _refused(text, 'it is not a valid host name') from None
    labels = name.split('.')
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _refused(text, 'it is not a valid host name')
    if re.fullmatch(r'\d+|0x[0-9a-f]*', labels[-1]):
        # Resolvers accept 2130706433, 0x7f.1 and 0177.0.0.1 for 127.0.0.1.
        raise _refused(text, 'an IPv4 address has to be four decimal numbers')
    return name


def separate_credentials(source: model.Source) -> model.Source:
    """Parse a client's request and move credentials out of its URL.

    :returns: a source whose URL can be shown and stored
    :raises: `errors.InvalidValue`
    """
    url = parse(source.url)
    username, password = source.username, source.password
    if url.username or url.password:
        if (username or password) and (username, password) != (
                url.username, url.password):
            raise errors.InvalidValue(
                'UserName', username, message='UserName and Password differ '
                'from those in the URL; send only one of the two')
        username, password = url.username, url.password
    if bool(password) != bool(username):
        missing = 'Password' if username else 'UserName'
        raise errors.InvalidValue(
            missing, '', message='UserName and Password have to be sent '
            f'together; {missing} is missing')
    for name, value in (('UserName', username), ('Password', password)):
        if re.search(r'[\x00-\x1f\x7f\ud800-\udfff]', value) or (
                name == 'UserName' and ':' in value):
            # RFC 7617, section 2; and unpaired surrogates.
            raise errors.InvalidValue(
                name, '', message=f'{name} contains a character that HTTP '
                'authentication cannot send')
    if source.protocol and source.protocol != url.scheme.upper():
        raise errors.InvalidValue(
            'TransferProtocolType', source.protocol,
            message=f'TransferProtocolType {source.protocol} does not match '
            f'the scheme of the URL, {url.scheme}')
    return source._replace(url=url.text, username=username, password=password)


def check(url: str | ParsedUrl, options: options.UrlOptions
          ) -> tuple[str, ...]:
    """Resolve a URL's host and check all its addresses.

    :returns: addresses to connect to
    :raises: `errors.InvalidValue` if one of them is not allowed;
        `errors.MediaUnreachable` if the host has none; `errors.ConfigError`
        if the file of denied hosts cannot be read
    """
    if isinstance(url, str):
        url = parse(url)
    rules = _rules(options)
    if rules.denies_name(url.host):
        raise _refused(url.shown, f'{url.host} {_denied(options)}')
    addresses, canonical = _resolve(url)
    if not rules.excepted.has_name(url.host) and rules.denies_name(canonical):
        raise _refused(url.shown, f'{canonical} ({url.host}) '
                       f'{_denied(options)}')
    for address in addresses:
        why = _reason_to_refuse(address, url, options, rules)
        if why:
            shown = str(address) if str(address) == url.host else (
                f'{address} ({url.host})')
            raise _refused(url.shown, f'{shown} {why}')
    return tuple(map(str, addresses))


def is_allowed_name(url: str, options: options.UrlOptions) -> bool:
    """Return whether a URL's host is allowed by its name alone.

    CDI may then fetch from it even if the BMC cannot resolve it. Where hosts
    are denied, the name must be an exception from them: what it resolves to
    for CDI may be denied.
    """
    host = parse(url).host
    rules = _rules(options)
    return (bool(options.allowed_hosts) and rules.allowed.has_name(host)
            and (rules.excepted.has_name(host) or not (
                any(rules.denied) or rules.denied_ports)))


def _resolve(url: ParsedUrl) -> tuple[tuple[_Address, ...], str]:
    """Resolve a URL's host.

    :returns: addresses, and the canonical name, which tells a short name of a
        Service and an alias of one; '' for an address
    """
    try:
        return (ipaddress.ip_address(url.host),), ''
    except ValueError:
        pass
    try:
        answers = socket.getaddrinfo(url.host, url.port,
                                     type=socket.SOCK_STREAM,
                                     flags=socket.AI_CANONNAME)
    except (OSError, UnicodeError) as e:
        why = getattr(e, 'strerror', None) or e
        if getattr(e, 'errno', None) == socket.EAI_AGAIN:
            why = f'{why}; {errors.FILTERED} to DNS'
        raise errors.MediaUnreachable(
            f'The host of {url.shown} cannot be resolved: {why}',
            url.shown) from None
    addresses = dict.fromkeys(answer[4][0] for answer in answers)
    return (tuple(map(ipaddress.ip_address, addresses)),
            answers[0][3].lower().rstrip('.'))


def _effective_addresses(address: _Address) -> abc.Iterator[_Address]:
    """Yield an address and the IPv4 addresses that it may stand for."""
    yield address
    if isinstance(address, ipaddress.IPv4Address):
        return
    number = int(address)
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and _within(address, _EMBEDDING) and number > 1:
        inner = ipaddress.IPv4Address(number & 0xffffffff)
    if inner is not None:
        yield inner
    if address in _SITE:
        bits = number >> 64 << 56 | number & 2 ** 56 - 1
        for length in _PREFIX_LENGTHS:
            inner = ipaddress.IPv4Address(bits >> 88 - length & 0xffffffff)
            if not _within(inner, _UNUSABLE):
                yield inner


def _within(address: _Address, networks: abc.Iterable[_Network]) -> bool:
    return any(address in network for network in networks
               if network.version == address.version)


def _reason_to_refuse(address: _Address, url: ParsedUrl,
                      options: options.UrlOptions, rules: _Rules) -> str:
    """Return why an address is not allowed; '' if it is.

    :param address: of the URL's host
    """
    if getattr(address, 'scope_id', None):
        return 'has a zone; addresses have to be global'
    for plain in _effective_addresses(address):
        if _within(plain, _METADATA):
            return 'is the metadata service of a cloud'
        if _within(plain, _UNUSABLE):
            return 'is not the address of a host'
        if _within(plain, LOOPBACK) and not options.allow_loopback:
            return 'is a loopback address' + option_hints.hint(
                options, 'allow_loopback', _ALLOWS)
        if _within(plain, LINK_LOCAL) and not options.allow_link_local:
            return 'is a link-local address' + option_hints.hint(
                options, 'allow_link_local', _ALLOWS)
        if rules.denies_address(plain, url):
            return _denied(options)
    if options.allowed_hosts and not rules.allowed.has_name(
            url.host) and not _within(address, rules.allowed.networks):
        return option_hints.hint(
            options, 'allowed_hosts', 'is not in {}') or 'is not allowed'
    return ''


def _denied(options: options.UrlOptions) -> str:
    return option_hints.hint(
        options, 'denied_hosts', 'is in {}') or 'is denied'


class _Hosts(typing.NamedTuple):
    """An option with names and networks, parsed."""

    names: tuple[str, ...]
    networks: tuple[_Network, ...]

    def has_name(self, host: str) -> bool:
        return any(name in ('*', host) or (
            name.startswith('*.') and host.endswith(name[1:]))
            for name in self.names)


class _Rules(typing.NamedTuple):
    """The options ALLOWED_HOSTS, DENIED_HOSTS and DENIED_EXCEPT, parsed."""

    allowed: _Hosts
    denied: _Hosts
    excepted: _Hosts
    denied_ports: frozenset[AddressAndPort]

    def denies_name(self, host: str) -> bool:
        return (self.denied.has_name(host)
                and not self.excepted.has_name(host))

    def denies_address(self, address: _Address, url: ParsedUrl) -> bool:
        if self.excepted.has_name(url.host) or _within(
                address, self.excepted.networks):
            return False
        return AddressAndPort(address, url.port) in self.denied_ports or (
            _within(address, self.denied.networks))


def _rules(options: options.UrlOptions) -> _Rules:
    denied = options.denied_hosts
    if options.denied_hosts_file:
        denied += read_hosts(options.denied_hosts_file)
    try:
        return _parsed(options.allowed_hosts, denied, options.denied_except)
    except ValueError as e:
        raise errors.ConfigError(
            f'{options.denied_hosts_file} cannot be used: {e}') from None


def read_hosts(path: str) -> tuple[str, ...]:
    """Read a file of hosts.

    :param path: of the file
    :returns: its lines, each of which is an entry
    :raises: `errors.ConfigError`
    """
    try:
        with open(path, encoding='ascii') as stream:
            return tuple(stream.read().split())
    except (OSError, ValueError) as e:
        raise errors.ConfigError(f'{path} cannot be read: {e}') from None


@functools.lru_cache(maxsize=4)
def _parsed(allowed: tuple[str, ...], denied: tuple[str, ...],
            excepted: tuple[str, ...]) -> _Rules:
    ports = {entry: address_and_port(entry) for entry in denied}
    return _Rules(
        _hosts(allowed),
        _hosts(entry for entry in denied if ports[entry] is None),
        _hosts(excepted), frozenset(filter(None, ports.values())))


def _hosts(entries: abc.Iterable[str]) -> _Hosts:
    parsed = {entry: network(entry) for entry in entries}
    return _Hosts(
        tuple(entry.lower().rstrip('.') for entry, known in parsed.items()
              if known is None),
        tuple(filter(None, parsed.values())))


def address_and_port(entry: str) -> AddressAndPort | None:
    """Parse an entry of a list of denied hosts that is about one port.

    :param entry: such as ``192.0.2.1:6443`` and ``[2001:db8::1]:6443``
    :returns: None for any other entry
    """
    host, _colon, port = entry.rpartition(':')
    if not re.fullmatch('[1-9][0-9]{0,4}', port) or int(port) > 65535 or (
            ':' in host) != host.startswith('['):
        return None
    try:
        return AddressAndPort(ipaddress.ip_address(
            host.removeprefix('[').removesuffix(']')), int(port))
    except ValueError:
        return None


def network(entry: str) -> _Network | None:
    """Parse an entry of a list of hosts.

    :param entry: name, ``*.domain``, ``*``, address or network
    :returns: None for a name
    :raises: `ValueError` if it is none of these
    """
    try:
        return ipaddress.ip_network(entry)
    except ValueError as e:
        # A network, if invalid: report why ('has host bits set').
        if '/' in entry or ':' in entry:
            raise ValueError(str(e)) from None
    name = entry.removeprefix('*.').rstrip('.').lower()
    if entry != '*' and (
            not all(map(_LABEL.fullmatch, name.split('.')))
            or re.fullmatch(r'\d+|0x[0-9a-f]*', name.rpartition('.')[2])):
        raise ValueError(
            f'{entry!r} is not a valid host, address or network')
    return None


def _refused(value: str, why: str) -> errors.InvalidValue:
    # `redfish.services.events.subscriptions` uses what follows the colon.
    return errors.InvalidValue(
        IMAGE, value, message=f'The image URL{value and " " + value} is '
        f'refused: {why}')
