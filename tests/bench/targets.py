# SPDX-License-Identifier: Apache-2.0
"""Values that the project aims at, shown beside the figures.

Nothing fails if one is missed. Times and rates are those of two busy
processors.
"""

from tests.bench import sharing

#: Value by the name of a row and its unit.
TARGETS = {
    **{(f'GET system, {way}, {clients}', unit): value
       for way in ('HTTPS', 'HTTP')
       for clients, unit, value in (
           ('1 client', 'a second', 1500), ('1 client', 'ms of CPU', 0.30),
           ('32 clients', 'a second', 1500), ('32 clients', 'ms, p99', 80))},
    **{(what, unit): value
       for what in ('IPMI commands in one session',
                    'IPMI commands to the BMC, one session')
       for unit, value in (('a second', 6000), ('ms of CPU', 0.11))},
    ('POST Reset On', 'ms, median'): 20,
    ('POST Reset On', 'API calls'): 2,
    ('On to running', 'times PUT start'): 1.03,
    ('idle BMC, both protocols', 'MiB of PSS'): 32,
    ('start to first answer, Redfish', 'ms, median'): 250,
    ('start to first answer, IPMI', 'ms, median'): 120,
    ('start to first answer, Redfish, kubeconfig', 'ms, median'): 400,
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
       for what in ('cached', 'uncached') for kind in sharing.FLOODS
       if kind != 'nothing'},
    **{(f'{what}, 30m of CPU', 'ms, p99'): 300 for what in (
        'GET system', 'GET system, new connection', 'IPMI chassis status')},
    ('operator with 1000 BMCs in shared pods', 's, all Ready'): 20,
}
