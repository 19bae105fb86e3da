# SPDX-License-Identifier: Apache-2.0
"""What can be set about a cluster's machines, with the values to start from.

The protocol rooms read these from their own config files and hand them in;
nothing below reads a file or the environment for them.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class MediaOptions:
    """Settings of virtual media. All times are seconds, sizes bytes."""

    #: Storage class of the claims; None for the cluster's default.
    storage_class: str | None = None

    #: Access mode of the claims, such as ``ReadWriteMany``; ``auto`` for what
    #: CDI knows to be best for the storage class (its StorageProfile), which
    #: refuses claims of a provisioner that it does not know.
    access_mode: str = 'ReadWriteOnce'

    #: Who fetches an image: ``import``, CDI; ``upload``, the BMC, which
    #: streams it through CDI's upload proxy; ``auto``, CDI wherever it can.
    mode: str = 'auto'

    #: Whether an insert returns only when the medium is usable or failed.
    wait: bool = False

    #: How long such an insert waits.
    wait_seconds: float = 600.0

    #: After this long, an insert that is not done yet counts as given up by
    #: whoever made it, and what there is of it is cleaned up.
    lapse_seconds: float = 30.0

    #: Where images may come from: names, ``*.domain``, addresses, networks.
    #: Empty for everywhere that is not refused by its address.
    allowed_hosts: tuple = ()

    #: Where they may not come from, whatever else is allowed; such as the
    #: networks of the cluster's own services. The same notations.
    denied_hosts: tuple = ()

    #: Whether images may come from addresses that lead to the BMC's own host
    #: or node: 169.254.0.0/16, fe80::/10; 127.0.0.0/8, ::1.
    allow_link_local: bool = False
    allow_loopback: bool = False

    #: File of certificates, PEM, that servers of images are checked against
    #: beside the system's.
    ca_file: str | None = None

    #: Whether servers' certificates are checked, until a client says.
    verify: bool = True

    #: Size of an image whose server does not tell it or cannot be reached
    #: from the BMC, though CDI may; None to refuse those.
    default_size: int | None = None

    #: Address of CDI's upload proxy, such as
    #: ``https://cdi-uploadproxy.cdi.svc``.
    upload_proxy_url: str | None = None

    #: File with the certificates that the upload proxy is checked against;
    #: None for the system's.
    upload_proxy_ca: str | None = None

    #: No claim is made smaller than this: some storage refuses to.
    minimum_size: int = 64 << 20

    #: How long the server of an image has to tell its size.
    probe_seconds: float = 10.0


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of a `cluster.Cluster`. All times are seconds."""

    #: Run strategy a Halted VM gets when it is powered on. Under
    #: ``RerunOnFailure`` a guest that shuts itself down stays off.
    run_strategy: str = 'RerunOnFailure'

    #: Whether a one-time boot ends with the guest's own reboot, on clusters
    #: that have the gate RebootPolicy. Its price: see `keeper`.
    reboot_policy: bool = True

    #: How long a write is tried before the caller is told `Unavailable`.
    write_deadline: float = 20.0

    #: How long a read waits for the first list of the cache.
    read_deadline: float = 10.0

    #: Without a working watch for this long, reads go to the API.
    stale_seconds: float = 5.0

    #: The API server ends a watch after this long and it is renewed: the
    #: proof that it is alive. A watch that is silent beyond that, and 5 s
    #: more, is dead. Each renewal is one API call a kind and namespace.
    watch_seconds: float = 20.0

    #: Longest pause between two tries to mend a broken watch.
    watch_backoff: float = 2.0

    #: Waiting for a connection, and for the answer to one request.
    connect_timeout: float = 4.0
    request_timeout: float = 10.0

    #: Objects in one page of a list. What a page weighs while it is read is
    #: the peak of a process's memory: 7 MiB with 25, 17 with 100.
    page_size: int = 25

    #: How old the answer about feature gates may be when a write needs it.
    gates_seconds: float = 10.0

    #: Whether this process puts back what a one-time boot changed. Every BMC
    #: process should; tests and tools that only look may leave it.
    keeper: bool = True

    #: Virtual media.
    media: MediaOptions = MediaOptions()

    @property
    def read_timeout(self):
        """How long one request waits for its answer.

        Never more than half of what a write has: one that hangs is to be
        tried again.
        """
        return min(self.request_timeout, self.write_deadline / 2)
