# SPDX-License-Identifier: Apache-2.0
"""Values that the project aims at, shown beside the figures.

Nothing fails if one is missed. Times and rates are those of two busy
processors.
"""

_SERIAL = 'GET system, HTTP, 1 client'
_PARALLEL = 'GET system, HTTP, 32 clients'
_START = 'start to first answer, '
_SHARED = 'operator with %s BMCs in shared pods', 's, all Ready'

#: Ratio to a neighbour by the name of a row and its unit. 22bf2c24 is an
#: earlier commit of this project.
RATIOS = {
    '22bf2c24': {
        ('GET system, HTTPS, 1 client', 'a second'): 1.4,
        (_START + 'Redfish', 'ms, median'): 0.5,
        (_START + 'Redfish, kubeconfig', 'ms, median'): 0.45,
        (_START + 'IPMI', 'ms, median'): 0.5,
        (_START + 'both protocols', 'ms, median'): 0.5,
        **{(_SHARED[0] % count, _SHARED[1]): 0.5 for count in (1000, 10000)}},
    'kubevirt-redfish': {
        (_SERIAL, 'a second'): 1.0,
        (_PARALLEL, 'a second'): 1.0, (_PARALLEL, 'ms, p99'): 0.7,
        (_START + 'Redfish', 'ms, median'): 2.0,
        (_START + 'Redfish, kubeconfig', 'ms, median'): 2.5},
    'go-ipmi': {('IPMI commands to the BMC, one session', 'a second'): 1.0},
    'PUT start': {('POST Reset On', 'ms, median'): 3.5},
}

#: Value by the name of a row and its unit.
TARGETS = {
    **{(f'GET system, {way}, {clients}', unit): value
       for way in ('HTTPS', 'HTTP')
       for clients, unit, value in (
           ('1 client', 'a second', 1500), ('1 client', 'ms of CPU', 0.30),
           ('32 clients', 'a second', 1500), ('32 clients', 'ms, p99', 80))},
    (_SERIAL, 'ms of CPU'): 0.10,
    **{(what, unit): value
       for what in ('IPMI commands in one session',
                    'IPMI commands to the BMC, one session')
       for unit, value in (('a second', 6000), ('ms of CPU', 0.11))},
    ('POST Reset On', 'API calls'): 2,
    ('On to running', 'times PUT start'): 1.03,
    ('idle BMC, both protocols', 'MiB of PSS'): 24,
    ('first collection, 5000 VMs', 's'): 3,
    ('first collection, 10000 VMs', 's'): 6,
    ('GET Systems, 10000 VMs', 'ms, median'): 10,
    ('a page of it, 10000 VMs', 'ms, median'): 10,
    **{(f'memory of a VM, {count} VMs', 'KiB of PSS'): 3.2
       for count in (5000, 10000)},
    **{(f'web page, first view of the {view}', unit): value
       for view in ('login', 'overview')
       for unit, value in (('ms, median', 300), ('kB', 100))},
    ('web page, not used', 'KiB of PSS'): 1024,
    ('memory of a BMC in one process', 'KiB of PSS'): 1024,
    **{(f'GET, {what}, flood of {kind}', 'times without'): 2
       for what in ('cached', 'uncached')
       for kind in ('cached GETs', 'uncached GETs', 'TLS handshakes',
                    'IPMI packets')},
    **{(f'{what}, 30m of CPU', 'ms, p99'): 300 for what in (
        'GET system', 'GET system, not cached', 'GET system, new connection',
        'IPMI chassis status')},
    (_SHARED[0] % 1000, _SHARED[1]): 20,
    (_SHARED[0] % 10000, 'MiB of PSS'): 140,
}
