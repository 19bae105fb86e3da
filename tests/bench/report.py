# SPDX-License-Identifier: Apache-2.0
"""Format the figures as a table."""


def _number(value):
    return '-' if value is None else f'{value:.3g}' if value < 100 \
        else f'{value:.0f}'


def rows(result):
    """Yield the table's rows: name, unit, ours, stock, ratio.

    :param result: result of :func:`tests.bench.plan.run`.
    """
    if 'turns' in result:
        yield from _emulators(result)
    for figures in result.get('scale', ()):
        yield from ((*row[:2], _number(row[2]), '-', '-')
                    for row in _scale(**figures))
    if result.get('operator'):
        yield from ((*row[:2], _number(row[2]), '-', '-')
                    for row in _operator(**result['operator']))
    if result.get('cluster'):
        yield from ((*row[:2], _number(row[2]), '-', '-')
                    for row in _cluster(**result['cluster']))


def _emulators(result):
    for name, turn in result['turns'].items():
        for key, unit in (('median_ms', 'ms, median'), ('p95_ms', 'ms, p95'),
                          ('per_second', 'a second')):
            figures = [turn.get(subject, {}).get(key) for subject in NAMES]
            if figures == [None, None]:
                continue
            ratio = turn.get('ratio', {}).get(key)
            if ratio is None:
                shown = '-'
            else:
                low, high = ratio['quartiles']
                shown = f"{ratio['middle']:.2f} ({low:.2f} to {high:.2f})"
            yield (name, unit, *map(_number, figures), shown)
    for key, unit in (('per_second', 'a second'), ('cpu_ms', 'ms of CPU')):
        figures = [result['commands'].get(subject, {}).get(key)
                   for subject in NAMES]
        yield ('IPMI commands in one session', unit, *map(_number, figures),
               '-' if None in figures else f'{figures[0] / figures[1]:.2f}')
    if 'api_calls' in result:
        yield ('API calls of a GET', '',
               _number(result['api_calls']['per_get']), '-', '-')
    for key, what in (('cdi', 'import of 1 MiB, CDI alone'),
                      ('insert', 'import of 1 MiB, inserted'),
                      ('post', 'POST InsertMedia')):
        if 'insert' in result:
            yield (what, 'ms, median', _number(result['insert'][key]), '-',
                   '-')
    if 'events' in result:
        figures = result['events']
        what = f"event to {figures['subscribers']} subscribers"
        yield what, 'ms, median', _number(figures['median_ms']), '-', '-'
        yield what, 'a second', _number(figures['per_second']), '-', '-'
    if 'listing' in result:
        figures = result['listing']
        yield ('ipmitool sdr list', 'ms, median', _number(figures['sdr']),
               '-', '-')
        yield (f"ipmitool sel list, {figures['entries']} records",
               'ms, median', _number(figures['sel']), '-', '-')
    if 'console' in result:
        yield from ((*row[:2], _number(row[2]), '-', '-')
                    for row in _console(**result['console']))
    soak = result['memory']
    for part in 'emulator', 'vbmcd':
        figures = [soak.get(subject, {}).get('after', {}).get(part)
                   for subject in NAMES]
        most = max(len(tree['processes']) for tree in figures if tree)
        for number in range(most):
            role = f'child {number}' if number else 'parent'
            yield (f'{part}, {role}', 'MiB of PSS',
                   *(_number(tree['processes'][number])
                     if tree and number < len(tree['processes']) else '-'
                     for tree in figures), '-')
        yield (f'{part}, all', 'MiB of PSS',
               *(_number(tree and tree['total']) for tree in figures),
               f"{soak['ratio'][part]:.2f}" if 'ratio' in soak else '-')
    for count, figures in result['bmcs'].items():
        yield (f"vbmcd with {count} BMC{'' if count == '1' else 's'}",
               'MiB of PSS',
               *(_number(figures.get(subject, {}).get('total'))
                 for subject in NAMES),
               f"{figures['ratio']:.2f}" if 'ratio' in figures else '-')


def _console(**figures):
    yield ('serial console, output', 'KiB a second',
           figures['bytes_per_second'] / 1024)
    what = 'serial console, key and echo'
    yield what, 'ms, median', figures['key_median_ms']
    yield what, 'ms, p95', figures['key_p95_ms']
    yield 'the same without the BMC', 'ms, median', figures[
        'kubevirt_median_ms']
    for name, what in (('idle', 'IPMI container, no console'),
                       ('open', 'IPMI container, open console'),
                       ('after', 'the same after the output'),
                       ('pod', 'pod, open console')):
        yield what, 'MiB of PSS', figures[name]


def _scale(vms, first_s, whole_ms, page_ms, kib_per_vm):
    yield f'first collection, {vms} VMs', 's', first_s
    yield f'GET Systems, {vms} VMs', 'ms, median', whole_ms
    yield f'a page of it, {vms} VMs', 'ms, median', page_ms
    yield f'memory of a VM, {vms} VMs', 'KiB of PSS', kib_per_vm


def _operator(one, many):
    yield 'BMC, from applied to Ready', 'ms, median', one['ready_ms']
    yield "of these the operator's", 'ms, median', many['ready_ms']
    for number, name in enumerate(('redfish', 'ipmi')):
        yield 'idle BMC, ' + name, 'MiB of PSS', one['pss'][number]
        yield ('idle BMC, ' + name, 'CPU, m',
               one['rest']['millicores'][number])
    yield 'idle BMC, all', 'MiB of PSS', sum(one['pss'])
    yield 'idle BMC, all', 'CPU, m', sum(one['rest']['millicores'])
    yield 'idle BMC', 'API calls a minute', one['rest']['calls_a_minute']
    what = f"operator with {many['bmcs']} BMCs"
    yield what, 'MiB of PSS', many['pss']
    yield what + ', rested', 'MiB of PSS', many['pss_rested']
    yield what, 'CPU, m', many['rest']['millicores'][0]
    yield what, 'API calls a minute', many['rest']['calls_a_minute']
    yield what, 's, all Ready', many['all_ready_s']


def _cluster(nodes, pair, single, enrol):
    what = f'apply {nodes} nodes'
    yield what, 's, median', pair['command']
    yield what + ', kubectl', 's, median', pair['kubectl']
    for one in single:
        for key, step in (('apply_s', 'apply'), ('unchanged_s', 'unchanged'),
                          ('teardown_s', 'teardown')):
            yield f"{step}, {one['nodes']} nodes", 's', one[key]
    what = f"enrol {enrol['nodes']} nodes"
    yield what, 's', enrol['enrol_s']
    yield what + ', the client', 's of CPU', enrol['client_cpu_s']
    yield what + ', Ironic', 's of CPU', enrol['ironic_cpu_s']
    yield f"unchanged, {enrol['nodes']} nodes in Ironic", 's', enrol['again_s']


NAMES = ('ours', 'stock')


def table(result):
    """Format the rows as text."""
    lines = [('', '', *NAMES, 'ours to stock (quartiles)'), *rows(result)]
    widths = [max(len(line[column]) for line in lines)
              for column in range(len(lines[0]))]
    aligned = ('%-*s', '%-*s', '%*s', '%*s', '%-*s')
    return '\n'.join(
        '  '.join(form % (width, cell) for form, width, cell
                  in zip(aligned, widths, line)).rstrip()
        for line in lines)
