# SPDX-License-Identifier: Apache-2.0
"""Writes the reference of VirtualMachineBMC, field by field, from its CRD.

What it prints is doc/source/operator/resource.rst::

    python -m tools.resource_reference > doc/source/operator/resource.rst
"""

import pathlib
import sys
import textwrap

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
CRD = ROOT / 'etc/kubernetes/crd/virtualmachinebmc.yaml'
PAGE = ROOT / 'doc/source/operator/resource.rst'

_WIDTH = 79

_HEAD = '''\
.. Made by tools/resource_reference.py from the definition; do not edit.

============================
The resource, field by field
============================

%(kind)s, group ``%(group)s``, version ``%(version)s``, namespaced; kubectl
knows it as %(names)s too. This page is made from its definition,
``%(path)s``, and ``kubectl explain %(short)s.spec`` says the same at a
cluster.

A field is left out, or has one of the values named. "needed" is meant of a
field's object: who gives that, has to give the field. All may be changed
later, but for the virtual machine. Where a change takes a new pod, sessions of
clients end with the old one.

What ``kubectl get %(short)s`` shows are %(columns)s.
'''


def page(definition):
    """The page.

    :param definition: dict, a CustomResourceDefinition
    :returns: text, in reStructuredText
    """
    spec = definition['spec']
    version, = spec['versions']
    schema = version['schema']['openAPIV3Schema']
    names = spec['names']
    lines = [textwrap.dedent(_fill(_HEAD % {
        'kind': names['kind'], 'group': spec['group'],
        'version': version['name'], 'path': CRD.relative_to(ROOT),
        'names': _and(f'``{one}``' for one in (
            names['plural'], names['singular'], *names['shortNames'])),
        'short': names['shortNames'][0],
        'columns': _and(f"{one['name']} (``{one['jsonPath']}``)"
                        for one in version['additionalPrinterColumns'])}))]
    for part in 'spec', 'status':
        title = f'``{part}``'
        lines += ['', title, '=' * len(title), '']
        lines += _field(part, schema['properties'][part], True, top=True)
        lines += _fields(part, schema['properties'][part])
    return '\n'.join(lines).rstrip('\n') + '\n'


def _fill(text):
    paragraphs = text.split('\n\n')
    # A title and a comment are as they are.
    return '\n\n'.join(paragraphs[:2] + [
        textwrap.fill(' '.join(one.split()), _WIDTH, break_long_words=False,
                      break_on_hyphens=False)
        for one in paragraphs[2:]]) + '\n'


def _fields(where, schema):
    for name, one in (schema.get('properties') or {}).items():
        path = f'{where}.{name}'
        yield from _field(path, one, name in schema.get('required', ()))
        yield from _fields(path, one)
        items = one.get('items') or {}
        yield from _fields(path + '[]', items)


def _field(path, schema, needed, top=False):
    facts = [_type(schema)]
    if needed and not top:
        facts.append('needed')
    facts += _limits(schema)
    text = f"{', '.join(facts)}."
    if 'default' in schema and schema['default'] != {}:
        text += f" Default: ``{_value(schema['default'])}``."
    enum = (schema.get('items') or schema).get('enum')
    if enum:
        text += ' One of %s.' % _and(
            ('``%s``' % _value(one) for one in enum), 'or')
    text = text[0].upper() + text[1:]
    indent = '' if top else '    '
    if not top:
        yield f'``{path}``'
    if schema.get('description'):
        yield _wrap(_sentence(schema['description']), indent)
        yield ''
    yield _wrap(text, indent)
    yield ''
    rules = schema.get('x-kubernetes-validations') or ()
    if rules:
        yield indent + 'What breaks a rule is refused, in its words:'
        yield ''
        for rule in rules:
            yield _wrap(rule['message'], indent + '- ', indent + '  ')
        yield ''


def _type(schema):
    if schema.get('x-kubernetes-int-or-string'):
        return 'number or text, such as ``10m`` or ``64Mi``'
    if schema['type'] == 'array':
        return f"list of {_plural(_type(schema['items']))}"
    if 'additionalProperties' in schema:
        return 'object, each field of it: %s' % _type(
            schema['additionalProperties'])
    if schema.get('format') == 'date-time':
        return 'time'
    return {'string': 'text', 'integer': 'whole number',
            'boolean': '``true`` or ``false``', 'object': 'object'}[
                schema['type']]


def _plural(word):
    return {'text': 'texts', 'object': 'objects'}[word]


def _limits(schema):
    for least, most, unit in (
            ('minimum', 'maximum', ''), ('minLength', 'maxLength', 'letters'),
            ('minItems', 'maxItems', 'of them'),
            ('minProperties', 'maxProperties', 'fields')):
        if most in schema:
            yield (f'{schema[least]} to {schema[most]} {unit}'
                   if schema.get(least) is not None
                   else f'at most {schema[most]} {unit}').strip()
        elif least in schema:
            yield (f'at least {schema[least]} {unit}').strip()


def _value(value):
    return {True: 'true', False: 'false'}.get(value, value)


def _sentence(text):
    text = text[0].upper() + text[1:]
    return text if text.endswith('.') else text + '.'


def _and(words, word='and'):
    *words, last = words
    return f"{', '.join(words)} {word} {last}" if words else last


def _wrap(text, first, further=None):
    # What looks like a mark of the text is none: *.domain.
    return textwrap.fill(text.replace('*', '\\*'), _WIDTH,
                         initial_indent=first,
                         subsequent_indent=first if further is None
                         else further, break_long_words=False,
                         break_on_hyphens=False)


def main():
    sys.stdout.write(page(yaml.safe_load(CRD.read_text())))


if __name__ == '__main__':
    main()
