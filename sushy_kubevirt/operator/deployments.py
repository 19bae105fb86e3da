# SPDX-License-Identifier: Apache-2.0
"""The Deployment of a BMC: one pod with one container.

Here and in `config_map` are its command, environment variables, mounts and
ports.
"""

from __future__ import annotations

import dataclasses
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import naming
from sushy_kubevirt.pod import options_file

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec

#: Name of the container.
BMC = 'bmc'

#: Names of the protocols' ports, and of their parts of the resources.
REDFISH, IPMI = 'redfish', 'ipmi'

#: Name of the port with HTTP beside HTTPS.
HTTP = 'redfish-http'

#: UDP port of IPMI in the pod; TCP port of probes and metrics.
IPMI_PORT = 6230
HEALTH_PORT = 8081

#: Environment that saves 1 MiB: one malloc arena for all threads (glibc), no
#: columns in tracebacks (CPython).
_MEMORY_VARIABLES = (('MALLOC_ARENA_MAX', '1'), ('PYTHONNODEBUGRANGES', '1'))

#: Requests and limits of the container, the parts of its protocols, of a BMC
#: that has none. Memory at rest is in doc/source/reference/benchmarks.rst.
RESOURCES: dict[str, objects.Json] = {
    REDFISH: {'requests': {'memory': '32Mi'}, 'limits': {'memory': '160Mi'}},
    IPMI: {'requests': {'memory': '16Mi'}, 'limits': {'memory': '64Mi'}},
}

#: CPU request of a container that has none: its weight while others take all
#: CPU, by measurement (doc/source/reference/benchmarks.rst). No limit, which
#: would make a start slow.
CPU = '30m'

#: Resources whose requests may be below their limits.
_OVERCOMMITTED = 'cpu', 'memory', 'ephemeral-storage'

#: Reason of a Deployment's condition Progressing when its pods were ready
#: (pkg/controller/deployment/util).
_COMPLETE = 'NewReplicaSetAvailable'

#: Labels and annotations of pods that keep service meshes out: Istio with
#: sidecars and in ambient mode, and Linkerd. Meshes carry TCP only; a proxy
#: needs more memory than a BMC and, to set up its redirection, capabilities
#: that Pod Security `restricted` refuses.
MESH_LABELS = {'sidecar.istio.io/inject': 'false',
               'istio.io/dataplane-mode': 'none'}
MESH_ANNOTATIONS = {'sidecar.istio.io/inject': 'false',
                    'linkerd.io/inject': 'disabled'}

_ON_OPENSHIFT = (' On OpenShift, install the operator by etc/kubernetes/'
                 'overlays/openshift, and without --pod-user.')

#: uid and gid of the containers, where the cluster does not assign them.
USER = 65532


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Settings of the operator for all pods.

    :param image: of BMCs that name none
    :param allowed_images: patterns of `permissions.image_allowed`, for BMCs
        that name one
    :param resources: parts of the resources by protocol, for BMCs that have
        none
    :param pull_policy: or None for Kubernetes' default
    :param pull_secrets: names of Secrets with which images are pulled
    :param user: uid and gid of the container and gid of their volumes; None
        if the cluster assigns them
    :param labels: of the pods, beside those of `naming.labels`
    :param annotations: of the pods
    :param cpu: CPU request of BMCs that have none, a quantity
    """

    image: str
    resources: dict[str, objects.Json] = dataclasses.field(
        default_factory=RESOURCES.copy)
    pull_policy: str | None = None
    pull_secrets: tuple[str, ...] = ()
    proxy: config_map.Proxy | None = None
    denied: config_map.Denied = config_map.Denied()
    user: int | None = USER
    labels: dict[str, str] = dataclasses.field(
        default_factory=MESH_LABELS.copy)
    annotations: dict[str, str] = dataclasses.field(
        default_factory=MESH_ANNOTATIONS.copy)
    cpu: str = CPU
    allowed_images: tuple[str, ...] = ()


def with_cluster_hosts(defaults: Defaults, hosts: tuple[str, ...]) -> Defaults:
    """Replace the cluster's hosts in the settings for all pods.

    :param hosts: see `config_map.Denied`
    """
    return dataclasses.replace(defaults, denied=dataclasses.replace(
        defaults.denied, cluster=hosts))


def deployment(bmc: spec.Bmc, defaults: Defaults, account: str = ''
               ) -> objects.Json:
    """Make the Deployment.

    :param account: uid of the ServiceAccount
    """
    env: list[objects.Json] = [{'name': options_file.AUTH_VARIABLE,
                                'value': config_map.AUTH_FOLDER}]
    mounts = [mount('auth', config_map.AUTH_FOLDER)]
    ports: list[objects.Json] = []
    for enabled, add in ((bmc.redfish.enabled, _redfish), (bmc.ipmi, _ipmi)):
        if enabled:
            add(bmc, env, mounts, ports)
    pod = pod_spec(naming.base(bmc.name), defaults, [container(
        BMC, bmc.image or defaults.image, defaults, ['sushy-kubevirt-bmc'],
        env, mounts, ports, HEALTH_PORT, resources(bmc, defaults))],
        _volumes(bmc))
    if bmc.node_selector:
        pod['nodeSelector'] = bmc.node_selector
    if bmc.tolerations:
        pod['tolerations'] = list(bmc.tolerations)
    template = {'labels': {**defaults.labels, **naming.labels(bmc.name)},
                'annotations': {**defaults.annotations,
                                stored_names.ACCOUNT: account}}
    if bmc.redfish.enabled:
        template['annotations'][
            stored_names.CONFIGURATION] = config_map.digest(
            bmc, defaults.proxy, defaults.denied)
    return whole(naming.metadata(bmc, naming.base(bmc.name)),
                 naming.selector(bmc.name), template, pod)


def whole(metadata: objects.ObjectMeta, selector: dict[str, str],
          template: objects.Json, pod: objects.Json) -> objects.Json:
    """Make a Deployment of one pod.

    :param metadata: of the Deployment
    :param selector: the labels of its pod
    :param template: metadata of the pod
    :param pod: of `pod_spec`
    """
    return {
        'apiVersion': 'apps/v1', 'kind': 'Deployment', 'metadata': metadata,
        'spec': {
            'replicas': 1,
            # Otherwise two pods would serve one BMC during an update.
            'strategy': {'type': 'Recreate'},
            'revisionHistoryLimit': 1,
            'selector': {'matchLabels': selector},
            'template': {'metadata': template, 'spec': pod}}}


def pod_spec(account: str, defaults: Defaults, containers: list[objects.Json],
             volumes: list[objects.Json]) -> objects.Json:
    """Make the spec of a pod.

    :param account: name of its ServiceAccount
    """
    pod: objects.Json = {
        'serviceAccountName': account,
        'automountServiceAccountToken': True,
        'enableServiceLinks': False,
        'terminationGracePeriodSeconds': 10,
        'securityContext': {
            'runAsNonRoot': True, 'seccompProfile': {'type': 'RuntimeDefault'},
            **({} if defaults.user is None else dict.fromkeys(
                ('runAsUser', 'runAsGroup', 'fsGroup'), defaults.user))},
        'containers': containers,
        'volumes': volumes,
    }
    if defaults.pull_secrets:
        pod['imagePullSecrets'] = [
            {'name': name} for name in defaults.pull_secrets]
    return pod


def images(deployment: objects.Json) -> tuple[str, ...]:
    """List the images of a Deployment's pod."""
    return tuple(container.get('image', '') for container in deployment[
        'spec']['template']['spec']['containers'])


def account(deployment: objects.Json) -> str | None:
    """Find the uid of the ServiceAccount of a Deployment's pod."""
    return (deployment['spec']['template']['metadata'].get(
        'annotations') or {}).get(stored_names.ACCOUNT)


def is_ready(deployment: objects.Json) -> bool:
    """Tell whether the present pod of a Deployment is ready.

    The Deployment's controller may count late: for a moment the previous pod,
    which is gone, is counted as ready beside the new one (``kubectl rollout
    status`` checks the same).

    :param deployment: as the cluster has it
    """
    present = deployment.get('status') or {}
    return (present.get('observedGeneration', 0)
            >= deployment['metadata'].get('generation', 0)
            and present.get('updatedReplicas', 0) > 0
            and present.get('replicas', 0) <= present['updatedReplicas']
            and present.get('readyReplicas', 0) > 0)


def is_progressing(deployment: objects.Json) -> bool:
    """Tell by its conditions whether a Deployment is progressing.

    :param deployment: as the cluster has it
    """
    present = deployment.get('status') or {}
    if (present.get('observedGeneration', 0)
            < deployment['metadata'].get('generation', 0)):
        return True
    by_type: dict[str | None, objects.Condition] = {
        condition.get('type'): condition
        for condition in present.get('conditions') or ()}
    if by_type.get('ReplicaFailure', {}).get('status') == 'True':
        return False
    progress = by_type.get('Progressing', {})
    return (progress.get('status', 'True') == 'True'
            and progress.get('reason') != _COMPLETE)


def failure_message(present: objects.Json) -> str:
    """Find why a Deployment does not progress.

    :param present: its status
    :returns: message of its condition, with a space before it and advice
        after it; '' if it has none
    """
    message = next((
        f" {condition['message']}"
        for condition in present.get('conditions') or ()
        if condition.get('message')
        and (condition.get('type'), condition.get('status')) in (
            ('ReplicaFailure', 'True'), ('Progressing', 'False'))), '')
    # OpenShift's pkg/securitycontextconstraints/sccadmission/admission.go.
    return message + (
        _ON_OPENSHIFT if 'security context constraint' in message else '')


def auth_secret(bmc: spec.Bmc) -> str:
    """Find the Secret with user name and password that is mounted."""
    if bmc.auth is None or credentials.copies(bmc):
        return naming.auth(bmc.name)
    return bmc.auth.name


def tls_secret(bmc: spec.Bmc) -> str | None:
    """Find the Secret with the certificate, None for HTTP."""
    if bmc.redfish.plain or not bmc.redfish.enabled:
        return None
    return bmc.redfish.secret or naming.tls(bmc.name)


def is_issued(bmc: spec.Bmc) -> bool:
    """Tell whether the operator issues the certificate of a BMC."""
    return tls_secret(bmc) == naming.tls(bmc.name)


def _redfish(bmc: spec.Bmc, env: list[objects.Json],
             mounts: list[objects.Json], ports: list[objects.Json]) -> None:
    """Add Redfish's part of the container to three lists."""
    mounts.append(mount('config', options_file.FOLDER))
    env.append({'name': options_file.VARIABLE,
                'value': f'{options_file.FOLDER}/{options_file.FILE}'})
    if tls_secret(bmc):
        mounts.append(mount('tls', config_map.TLS_FOLDER))
        env.append({'name': options_file.TLS_VARIABLE,
                    'value': config_map.TLS_FOLDER})
    ports.append(_port(REDFISH, config_map.PORT))
    if bmc.redfish.both:
        ports.append(_port(HTTP, config_map.HTTP_PORT))
        env.append({'name': config_map.HTTP_VARIABLE,
                    'value': str(config_map.HTTP_PORT)})


def _ipmi(bmc: spec.Bmc, env: list[objects.Json],
          mounts: list[objects.Json], ports: list[objects.Json]) -> None:
    """Add IPMI's part of the container to three lists."""
    env += [{'name': 'VIRTBMC_VM', 'value': str(bmc.vm)},
            {'name': 'VIRTBMC_PORT', 'value': str(IPMI_PORT)},
            {'name': 'VIRTBMC_SERVICE_PORT', 'value': str(client_port(bmc))}]
    if not bmc.account_management:
        env.append({'name': 'VIRTBMC_ACCOUNT_MANAGEMENT', 'value': 'false'})
    if bmc.run_strategy:
        env.append({'name': 'VIRTBMC_RUN_STRATEGY',
                    'value': bmc.run_strategy})
    ports.append(_port(IPMI, IPMI_PORT, 'UDP'))


def resources(bmc: spec.Bmc, defaults: Defaults) -> objects.Json:
    """Make the resources of the container.

    Those of the BMC are those of the container, or parts for the protocols. A
    part that is missing is the default one. CPU and memory have a limit if all
    parts limit it.
    """
    total = bmc.resources.get(BMC) or _total(bmc, defaults)
    if 'cpu' not in {**(total.get('limits') or {}),
                     **(total.get('requests') or {})}:
        return {**total, 'requests': {**(total.get('requests') or {}),
                                      'cpu': defaults.cpu}}
    return total


def _total(bmc: spec.Bmc, defaults: Defaults) -> objects.Json:
    """Add up the parts of the protocols; parameters as of `resources`.

    A resource of which no container gets more than it requests has a limit in
    any case: ``ValidateContainerResourceRequirements`` of Kubernetes.
    """
    parts = [bmc.resources.get(name) or defaults.resources.get(name) or {}
             for name, enabled in ((REDFISH, bmc.redfish.enabled),
                                   (IPMI, bmc.ipmi)) if enabled]
    limits = [part.get('limits') or {} for part in parts]
    # Kubernetes' default of a request is the limit.
    requests = [{**limit, **(part.get('requests') or {})}
                for part, limit in zip(parts, limits)]
    total: objects.Json = {}
    for kind, amounts in (('requests', requests), ('limits', limits)):
        for name in dict.fromkeys(name for part in amounts for name in part):
            values = [part[name] for part in amounts if name in part]
            if (kind == 'requests' or len(values) == len(parts)
                    or name not in _OVERCOMMITTED):
                total.setdefault(kind, {})[name] = quantity.total(values)
    return total


def _port(name: str, port: int, protocol: str = 'TCP') -> objects.Json:
    return {'name': name, 'containerPort': port, 'protocol': protocol}


def client_port(bmc: spec.Bmc) -> int:
    """Choose the UDP port that Serial over LAN reports.

    Clients compare it with the port that they use. A node port is chosen for
    clients outside of the cluster.
    """
    service = bmc.service
    if service.type == 'NodePort' and service.ipmi_node_port:
        return service.ipmi_node_port
    return service.ipmi_port


def container(name: str, image: str, defaults: Defaults, command: list[str],
              env: list[objects.Json], mounts: list[objects.Json],
              ports: list[objects.Json], health_port: int,
              resources: objects.Json | None) -> objects.Json:
    """Make a container.

    :param env: variables, beside those that all containers have
    :param mounts: the same
    :param ports: the same
    :param health_port: TCP port of probes and metrics
    """
    result: objects.Json = {
        'name': name,
        'image': image,
        'command': command,
        'env': [{'name': 'POD_IP', 'valueFrom': {
            'fieldRef': {'fieldPath': 'status.podIP'}}},
            {'name': 'VIRTBMC_HEALTH_PORT', 'value': str(health_port)},
            *({'name': variable, 'value': value} for variable, value
              in _MEMORY_VARIABLES),
            *env],
        'ports': [*ports, _port(name + '-health', health_port)],
        'volumeMounts': [{'name': 'tmp', 'mountPath': '/tmp'}, *mounts],
        'startupProbe': _probe(name, '/livez', 1, 60),
        'livenessProbe': _probe(name, '/livez', 20, 3),
        'readinessProbe': _probe(name, '/readyz', 10, 2),
        'resources': resources or {},
        'securityContext': {
            'allowPrivilegeEscalation': False,
            'readOnlyRootFilesystem': True,
            'capabilities': {'drop': ['ALL']}},
    }
    if defaults.pull_policy:
        result['imagePullPolicy'] = defaults.pull_policy
    return result


def _probe(name: str, path: str, period: int, failures: int) -> objects.Json:
    return {'httpGet': {'path': path, 'port': name + '-health',
                        'scheme': 'HTTP'},
            'periodSeconds': period, 'timeoutSeconds': 5,
            'failureThreshold': failures}


def mount(volume: str, folder: str) -> objects.Json:
    """Make the mount of a volume that is only read."""
    # A whole folder: single files (subPath) are never updated.
    return {'name': volume, 'mountPath': folder, 'readOnly': True}


def temporary_folder() -> objects.Json:
    """Build the volume at /tmp.

    Nothing is written to it, but sushy-tools cannot be imported without a
    writable folder (`tempfile.gettempdir`), and all others are read-only.
    """
    return {'name': 'tmp', 'emptyDir': {'medium': 'Memory',
                                        'sizeLimit': '16Mi'}}


def _volumes(bmc: spec.Bmc) -> list[objects.Json]:
    volumes: list[objects.Json] = [
        {'name': 'auth', 'secret': {'secretName': auth_secret(bmc),
                                    'defaultMode': 0o440}},
        temporary_folder()]
    if bmc.redfish.enabled:
        volumes.append({'name': 'config', 'configMap': {
            'name': naming.base(bmc.name)}})
    if tls_secret(bmc):
        volumes.append({'name': 'tls', 'secret': {
            'secretName': tls_secret(bmc), 'defaultMode': 0o440}})
    return volumes
