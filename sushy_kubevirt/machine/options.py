# SPDX-License-Identifier: Apache-2.0
"""Options of a cluster's machines, with their defaults.

The Redfish and IPMI services read them from their own configuration files.
The `machine` package reads neither a file nor the environment for them.
"""

from __future__ import annotations

import dataclasses
import typing


#: Valid values of `MediaOptions.size_margin`.
SIZE_MARGINS = range(1001)

#: Key of `MediaOptions.ca_config_map`.
CA_KEY = 'ca.pem'


@dataclasses.dataclass(frozen=True)
class UrlOptions:
    """Which hosts of clients' URLs are allowed, see `media.url_policy`."""

    #: Hosts that are allowed: names, ``*.domain``, addresses, networks. Empty
    #: to allow all whose address is not refused.
    allowed_hosts: tuple[str, ...] = ()

    #: Hosts that are refused even if they are allowed, such as the networks
    #: of the cluster's own services; same notation, and ADDRESS:PORT for one
    #: port of an address.
    denied_hosts: tuple[str, ...] = ()

    #: File of more of them, an entry a line. It is read for every URL, so it
    #: may change.
    denied_hosts_file: str | None = None

    #: Exceptions from both; same notation.
    denied_except: tuple[str, ...] = ()

    #: True to allow addresses that lead to the BMC's own host or node:
    #: 169.254.0.0/16, fe80::/10 (link-local); 127.0.0.0/8, ::1 (loopback).
    allow_link_local: bool = False
    allow_loopback: bool = False

    #: What messages to clients call these options, by field; see
    #: `option_hints`.
    names: dict[str, str] | None = dataclasses.field(
        default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class MediaOptions(UrlOptions):
    """Options of virtual media. Times are in seconds, sizes in bytes."""

    #: Storage class of the PVCs; None for the cluster's default.
    storage_class: str | None = None

    #: Access mode of the PVCs, such as ``ReadWriteMany``; ``auto`` for what
    #: CDI's StorageProfile recommends for the storage class. CDI then refuses
    #: PVCs of a provisioner that it does not know.
    access_mode: str = 'ReadWriteOnce'

    #: Volume mode of the PVCs, ``Filesystem`` or ``Block``; None for what
    #: CDI's StorageProfile recommends for storage class and access mode.
    volume_mode: str | None = None

    #: Per cent by which a PVC is larger than its image, as for a storage
    #: class whose overhead is larger than CDI assumes.
    size_margin: int = 0

    #: What downloads an image: ``import``, CDI; ``upload``, the BMC, which
    #: streams it through CDI's upload proxy; ``auto``, CDI where possible.
    mode: str = 'auto'

    #: True if an insert returns only when the medium is usable or failed.
    wait: bool = False

    #: Longest wait of such an insert.
    wait_seconds: float = 600.0

    #: Age at which an unfinished insert counts as abandoned by the process
    #: that made it, and its objects are cleaned up.
    lapse_seconds: float = 30.0

    #: File of CA certificates (PEM) for servers of images, in addition to the
    #: system's.
    ca_file: str | None = None

    #: ConfigMap in the VM's namespace with more of them, under `CA_KEY`. It is
    #: read for every image, so it may change.
    ca_config_map: str | None = None

    #: Default of certificate verification; clients can change it by device.
    verify: bool = True

    #: Size of an image whose server does not report it, or that the BMC
    #: cannot reach although CDI may; None to refuse such images.
    default_size: int | None = None

    #: URL of CDI's upload proxy, such as
    #: ``https://cdi-uploadproxy.cdi.svc``.
    upload_proxy_url: str | None = None

    #: File of CA certificates (PEM) for the upload proxy; None for the
    #: system's.
    upload_proxy_ca: str | None = None

    #: Smallest size of a PVC, as some storage refuses smaller ones.
    minimum_size: int = 64 << 20

    #: Time for the server of an image to report its size.
    probe_seconds: float = 10.0


class Options(typing.NamedTuple):
    """Options of a `cluster.Cluster`. Times are in seconds."""

    #: Run strategy that replaces Halted at power-on. Under
    #: ``RerunOnFailure`` a guest that shuts itself down stays off.
    run_strategy: str = 'RerunOnFailure'

    #: True if a one-time boot ends with the guest's own reboot, on clusters
    #: with the feature gate RebootPolicy. See `one_time_boot` for its price.
    reboot_policy: bool = True

    #: Time for a write and its retries; then `errors.Unavailable` is raised.
    write_deadline: float = 20.0

    #: Longest wait of a read for the first list of the cache.
    read_deadline: float = 10.0

    #: Reads call the API after a watch has been down for this long.
    stale_seconds: float = 5.0

    #: Duration of a watch. The API server ends it after this time and the
    #: client opens it again, which proves that the server is alive. A watch
    #: that is silent for 5 s longer counts as dead. Each renewal is one API
    #: call for each kind and namespace.
    watch_seconds: float = 20.0

    #: Longest pause between two attempts to open a broken watch again.
    watch_backoff: float = 2.0

    #: Timeouts of a connection and of the response to one request.
    connect_timeout: float = 4.0
    request_timeout: float = 10.0

    #: Objects in one page of a list. Parsing a page causes the process's
    #: memory peak: 7 MiB with 25 objects, 17 MiB with 100.
    page_size: int = 25

    #: Longest age of the known feature gates when a write depends on them.
    gates_seconds: float = 10.0

    #: True to run the one-time boot reconciler. Every BMC process should;
    #: tests and tools that only read need not.
    reconcile: bool = True

    #: Virtual media.
    media: MediaOptions = MediaOptions()

    @property
    def read_timeout(self) -> float:
        """Timeout of the response to one request.

        At most half of the write deadline, so that a request that hangs can
        be repeated.
        """
        return min(self.request_timeout, self.write_deadline / 2)
