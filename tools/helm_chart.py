# SPDX-License-Identifier: Apache-2.0
"""Generate the templates of the Helm chart from the manifests.

``etc/kubernetes`` is the only source of the objects; the chart adds conditions
and values. What is written by hand in ``charts/sushy-kubevirt`` is its values
with their schema, its notes and two helpers. ::

    python -m tools.helm_chart                    # write the templates
    python -m tools.helm_chart --package FOLDER   # package a release by helm

Of kustomize, what the manifests use is understood: labels, images, resources,
and in components JSON patches and ``$patch: delete``. Anything else is an
error.
"""

import argparse
from importlib import metadata
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / 'etc/kubernetes'
CHART = ROOT / 'charts/sushy-kubevirt'
TEMPLATES = CHART / 'templates'

#: The namespace in the manifests; a chart has that of its release.
NAMESPACE = 'sushy-kubevirt-system'

#: The condition of each component.
CONDITIONS = {
    'auto-create': '.Values.autoCreate',
    'bare-metal-hosts': '.Values.bareMetalHosts',
    'cert-manager': '.Values.certManager.issuerRef',
    'claim-templates': '.Values.claimTemplates',
    'namespaced': '.Values.namespaces',
    'openshift': 'include "sushy-kubevirt.openshift" .',
    'prometheus': 'or .Values.prometheus (.Values.serviceMonitor).create',
}

#: The namespaces of the component "namespaced", the first of which becomes a
#: loop.
SAMPLES = ('default', 'lab')

#: Values of options in components: start of the option, value.
_OPTIONS = {'--auto-create=': '.Values.autoCreate',
            '--bare-metal-hosts=': '.Values.bareMetalHosts',
            '--claim-templates=': '.Values.claimTemplates'}

_HAS_USER = 'ne (include "sushy-kubevirt.user" .) "none"'

#: Fields that a component removes, with another condition under which they
#: stay.
_STAY = {'runAsUser': _HAS_USER, 'runAsGroup': _HAS_USER}

#: Values instead of those of the manifests: kind, path, template. ``%s`` is
#: the manifests' value.
_VALUES = (
    ('Deployment', '/spec/replicas',
     '{{ .Values.replicaCount | default .Values.replicas }}'),
    ('Deployment', '/spec/template/spec/containers/0/image',
     '{{ include "sushy-kubevirt.image" '
     '(list .Values.images.operator .Chart) | quote }}'),
    ('Deployment', '/spec/template/spec/containers/0/env/0/value',
     '{{ include "sushy-kubevirt.image" '
     '(list .Values.images.emulator .Chart) | quote }}'),
    ('Deployment', '/spec/template/spec/containers/0/resources',
     '{{ toJson .Values.resources }}'),
    ('Deployment', '/spec/template/spec/securityContext/runAsUser',
     '{{ include "sushy-kubevirt.user" . | default "%s" }}'),
    ('Deployment', '/spec/template/spec/securityContext/runAsGroup',
     '{{ include "sushy-kubevirt.user" . | default "%s" }}'),
    ('Certificate', '/spec/issuerRef',
     '{{ toJson .Values.certManager.issuerRef }}'),
)

#: Arguments that the manifests do not have: control, argument.
_ARGUMENTS = (
    ('if ne (toString .Values.podUser) "auto"',
     '{{ printf "--pod-user=%s" (include "sushy-kubevirt.user" .) | quote }}'),
    ('with include "sushy-kubevirt.pullPolicy" .',
     '{{ printf "--image-pull-policy=%s" . | quote }}'),
    ('with include "sushy-kubevirt.bmcCpu" .',
     '{{ printf "--bmc-cpu=%s" . | quote }}'),
    ('range .Values.imagePullSecrets',
     '{{ printf "--image-pull-secret=%s" .name | quote }}'),
    ('if ne .Values.defaultPlacement "PerVM"',
     '{{ printf "--default-placement=%s" .Values.defaultPlacement | quote }}'),
    ('if ne (int .Values.bmcsPerPod) 250',
     '{{ printf "--bmcs-per-pod=%d" (int .Values.bmcsPerPod) | quote }}'),
    ('range .Values.deniedHosts',
     '{{ printf "--denied-hosts=%s" . | quote }}'),
    ('range .Values.deniedHostsExcept',
     '{{ printf "--denied-hosts-except=%s" . | quote }}'),
    ('range .Values.args', '{{ quote . }}'),
)

#: Fields of the pod that the manifests do not have, by the value's name.
_POD_FIELDS = ('nodeSelector', 'affinity', 'tolerations', 'imagePullSecrets')

#: Fields of its metadata to which a value adds keys.
_POD_METADATA = {'labels': 'podLabels', 'annotations': 'podAnnotations'}


class Unknown(Exception):
    """The manifests have what this module does not understand."""


class _Quoted(str):
    """A text whose rendered form has to be quoted."""


class _Dumper(yaml.SafeDumper):
    """Writes lists indented, as the manifests are written."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)


_Dumper.add_representer(_Quoted, lambda dumper, text: dumper.represent_scalar(
    'tag:yaml.org,2002:str', text, style="'"))


class _Object:
    """One object of the manifests.

    :param body: dict
    :param file: name of its template
    :param around: controls that it is in, such as ``if .Values.x``
    """

    def __init__(self, body, file, around=()):
        self.body = body
        self.file = file
        self.around = list(around)

    @property
    def key(self):
        return self.body['kind'], self.body['metadata']['name']


class _Generator:
    """Makes the templates.

    Template actions are represented by tokens (``<<7>>``) in the objects, as
    YAML cannot express them.
    """

    def __init__(self, manifests):
        self._manifests = manifests
        self._actions = []
        self._objects = []
        self._sources = {}

    def templates(self):
        """Return the templates: dict from file name to text."""
        self._load_crd()
        self._load_base()
        for path in sorted((self._manifests / 'components').iterdir()):
            self._load_component(path)
        self._set_values()
        return {name: self._render(name) for name in self._sources}

    # Reading

    def _documents(self, path, around=()):
        if self._sources.setdefault(path.name, path) != path:
            raise Unknown(f'{path} and {self._sources[path.name]} have the '
                          'same name; rename one of them')
        found = [_Object(self._escaped(body), path.name, around)
                 for body in yaml.safe_load_all(path.read_text())]
        self._objects += found
        return found

    def _load_crd(self):
        folder = self._manifests / 'crd'
        for name in _kustomization(folder, 'resources')['resources']:
            for one in self._documents(folder / name,
                                       ['if .Values.crd.install']):
                self._within(one.body['metadata'], 'if .Values.crd.keep', {
                    'annotations': {'helm.sh/resource-policy': 'keep'}})

    def _load_base(self):
        folder = self._manifests / 'base'
        found = _kustomization(folder, 'resources', 'labels', 'images',
                               'configurations')
        for name in found['resources']:
            if name == 'namespace.yaml':
                # Helm needs the namespace before it installs anything.
                continue
            for one in self._documents(folder / name):
                for labels in found['labels']:
                    _only(labels, 'pairs', place=folder)
                    one.body['metadata'].setdefault('labels', {}).update(
                        labels['pairs'])

    def _load_component(self, folder):
        if folder.name not in CONDITIONS:
            raise Unknown(f'{folder} has no condition in CONDITIONS of '
                          f'{pathlib.Path(__file__).name}')
        condition = CONDITIONS[folder.name]
        found = _kustomization(folder, 'resources', 'patches')
        loop = (_Loop(self) if folder.name == 'namespaced' else None)
        for name in found.get('resources', ()):
            objects = self._documents(folder / name, [f'if {condition}'])
            if loop:
                loop.objects(objects, self._objects)
        for patch in found.get('patches', ()):
            self._patch(yaml.safe_load((folder / patch['path']).read_text()),
                        patch.get('target'), condition, loop)

    def _patch(self, content, target, condition, loop):
        if isinstance(content, dict):
            if content.pop('$patch', None) != 'delete' or set(content) != {
                    'apiVersion', 'kind', 'metadata'}:
                raise Unknown(f'a patch other than $patch: delete: {content}')
            for one in self._find(content['kind'],
                                  content['metadata']['name']):
                one.around.append(f'if not ({condition})')
            return
        for one in self._find(**target):
            for operation in (loop.operations(content) if loop
                              else content):
                self._operation(one.body, operation, condition)

    def _operation(self, body, operation, condition):
        parent, key = _at(body, operation['path'])
        if operation['op'] == 'add' and key == '-':
            value = self._escaped(operation['value'])
            control = operation.get('control', f'if {condition}')
            for option, name in _OPTIONS.items():
                if isinstance(value, str) and value.startswith(option):
                    value = self._token('{{ printf "%s%%s" %s | quote }}' % (
                        option, name))
            self._append(parent, control, value)
        elif operation['op'] == 'remove' and isinstance(parent, dict):
            control = 'if ' + _STAY.get(key, f'not ({condition})')
            value = {key: parent[key]}
            _replace(parent, key,
                     lambda new: self._within(new, control, value))
        else:
            raise Unknown(f'a patch {operation}')

    def _find(self, kind, name):
        found = [one for one in self._objects if one.key == (kind, name)]
        if not found:
            raise Unknown(f'a patch of {kind} {name}, which base lacks')
        return found

    # Values

    def _set_values(self):
        for kind, path, template in _VALUES:
            for one in self._objects:
                if one.body['kind'] == kind:
                    parent, key = _at(one.body, path)
                    parent[key] = self._token(
                        template.replace('%s', str(parent[key])))
        for one in self._objects:
            if one.body['kind'] != 'Deployment':
                continue
            template = one.body['spec']['template']
            for field, name in _POD_METADATA.items():
                self._within(template['metadata'][field],
                             f'range $key, $value := .Values.{name}',
                             {self._token('{{ quote $key }}'):
                              self._token('{{ quote $value }}')})
            pod = template['spec']
            container = pod['containers'][0]
            for control, value in _ARGUMENTS:
                self._append(container['args'], control, self._token(value))
            self._within(
                container, 'with include "sushy-kubevirt.pullPolicy" .',
                {'imagePullPolicy': self._token('{{ . }}')})
            for name in _POD_FIELDS:
                self._within(pod, f'with .Values.{name}', {
                    name: self._token('{{ toJson . }}')})

    def _escaped(self, value):
        """Replace what a template would read or what is the release's."""
        if isinstance(value, dict):
            return {key: self._escaped(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._escaped(one) for one in value]
        if value == NAMESPACE:
            return self._token('{{ $.Release.Namespace | quote }}')
        if isinstance(value, str) and ('{{' in value or NAMESPACE in value):
            return _Quoted(value.replace(
                '{{', self._token('{{ "{{" }}')).replace(
                    NAMESPACE, self._token('{{ $.Release.Namespace }}')))
        return value

    # Writing

    def _token(self, action):
        self._actions.append(action)
        return f'<<{len(self._actions) - 1}>>'

    def _append(self, items, control, value):
        items += [self._token('{{- %s }}' % control), value,
                  self._token('{{- end }}')]

    def _within(self, parent, control, fields):
        """Add fields to a dict, within a control."""
        parent[self._token('{{- %s }}' % control)] = None
        parent.update(fields)
        parent[self._token('{{- end }}')] = None

    def _render(self, name):
        source = self._sources[name].relative_to(self._manifests)
        lines = ['{{- /* Generated by tools/helm_chart.py from '
                 f'etc/kubernetes/{source}; do not edit. */ -}}}}']
        for one in self._objects:
            if one.file == name:
                lines += ['{{- %s }}' % control for control in one.around]
                lines += ['---', self._dump(one.body).rstrip('\n')]
                lines += ['{{- end }}'] * len(one.around)
        return '\n'.join(lines) + '\n'

    def _dump(self, body):
        text = yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=79)
        # A token that is an item, or a key, is a control.
        text = re.sub(r'^( *)(?:- )?<<(\d+)>>(?:: null)?$', self._control,
                      text, flags=re.MULTILINE)
        return re.sub(r'<<(\d+)>>', lambda m: self._actions[int(m[1])], text)

    def _control(self, match):
        action = self._actions[int(match[2])]
        return (match[1] + action if action.startswith('{{-')
                else match[0])


class _Loop:
    """Makes a loop over namespaces of what is repeated for SAMPLES."""

    def __init__(self, generator):
        self._generator = generator
        self._this = generator._token('{{ quote . }}')

    def objects(self, found, objects):
        """Make one object in a loop of those of all samples.

        :param found: the objects; the others are removed from ``objects``
        """
        first, *others = found
        for one, namespace in zip(found, SAMPLES, strict=True):
            if one.body['metadata'].pop('namespace') != namespace:
                raise Unknown(f'{one.file}: namespace is not {namespace}')
        for one in others:
            if one.body['kind'] != first.body['kind']:
                raise Unknown(f'{one.file}: the objects differ')
            objects.remove(one)
        first.body['metadata']['namespace'] = self._this
        first.around = ['range .Values.namespaces']

    def operations(self, content):
        """Make one operation in a loop of those of all samples."""
        wanted = [{**content[0], 'value': content[0]['value'].replace(
            SAMPLES[0], namespace)} for namespace in SAMPLES]
        if content != wanted:
            raise Unknown(f'other patches than for {SAMPLES}: {content}')
        option = content[0]['value'].replace(SAMPLES[0], '%s')
        return [{**content[0], 'control': 'range .Values.namespaces',
                 'value': self._generator._token(
                     '{{ printf "%s" . | quote }}' % option)}]


def _kustomization(folder, *fields):
    found = yaml.safe_load((folder / 'kustomization.yaml').read_text())
    _only(found, 'apiVersion', 'kind', *fields, place=folder)
    return found


def _only(found, *fields, place):
    if unknown := set(found) - set(fields):
        raise Unknown(f'{place}: {sorted(unknown)} of the kustomization')


def _at(body, pointer):
    """Return the container of a JSON pointer's value, and its last part."""
    *parts, last = pointer[1:].split('/')
    for part in parts:
        body = body[int(part) if isinstance(body, list) else part]
    return body, last


def _replace(parent, key, add):
    """Replace a field of a dict, at its place.

    :param add: function that adds the new fields to a dict
    """
    fields = list(parent.items())
    parent.clear()
    for name, value in fields:
        if name == key:
            add(parent)
        else:
            parent[name] = value


def templates(manifests=MANIFESTS):
    """Generate the templates.

    :param manifests: the folder ``etc/kubernetes``
    :returns: dict from file name to text
    :raises Unknown: the manifests have what this module does not understand
    """
    return _Generator(manifests).templates()


def semantic_version(version):
    """Return the version of the chart for one of the project.

    :param version: as pbr makes it of tags, such as ``1.2.0.0rc1`` or
        ``1.2.1.dev5`` (PEP 440)
    :returns: such as ``1.2.0-rc1`` or ``1.2.1-dev5`` (Semantic Versioning
        2.0.0, which Helm needs)
    :raises ValueError: it is not a version of the project
    """
    found = re.fullmatch(
        r'(\d+\.\d+\.\d+)(?:\.0)?'
        r'(?:\.?((?:a|b|rc|dev)\d+(?:\.dev\d+)?))?(?:\+.*)?', version)
    if not found:
        raise ValueError(f'{version} is no version such as 1.2.0.0rc1')
    return found[1] + (f'-{found[2]}' if found[2] else '')


def package(folder, version, helm='helm', chart=CHART):
    """Package the chart as a release of the project.

    :param folder: where to write ``sushy-kubevirt-VERSION.tgz``
    :param version: of the project; also the default tag of the images
    :param helm: path of the program
    :param chart: folder of the chart
    """
    subprocess.run(
        [helm, 'package', chart, '--destination', folder,
         '--version', semantic_version(version),
         '--app-version', version.partition('+')[0]],
        check=True)


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog='python -m tools.helm_chart',
        description='Generate the templates of charts/sushy-kubevirt.')
    parser.add_argument('--package', metavar='FOLDER', help='package the '
                        "chart, with the version of this project's tags, "
                        'instead')
    options = parser.parse_args(argv)
    if options.package:
        package(options.package, metadata.version('sushy-kubevirt'))
        return
    for path in TEMPLATES.glob('*.yaml'):
        path.unlink()
    for name, text in templates().items():
        (TEMPLATES / name).write_text(text)


if __name__ == '__main__':
    main()
