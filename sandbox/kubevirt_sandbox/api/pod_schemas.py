# SPDX-License-Identifier: Apache-2.0
"""The schema of pods: every field, with the defaults of the API server.

It is complete, so that misspelt fields are reported and defaults are filled in
as by a real API server. Otherwise a controller that compares the desired with
the stored pod would fail only in a real cluster. The fields of volume sources
that the sandbox does not support are not validated.

Source: kubernetes/staging/src/k8s.io/api/core/v1/types.go and
pkg/apis/core/v1/defaults.go (1.36).
"""

from kubevirt_sandbox.api import core_schemas

ANYTHING, BOOLEAN, INTEGER = (
    core_schemas.ANYTHING, core_schemas.BOOLEAN, core_schemas.INTEGER)
QUANTITIES, STRING, STRINGS = (
    core_schemas.QUANTITIES, core_schemas.STRING, core_schemas.STRINGS)
TEXTS, TIME = core_schemas.TEXTS, core_schemas.TIME
about, keyed, strict = (
    core_schemas.about, core_schemas.keyed, core_schemas.strict)

#: Numbers and flags that are omitted when zero or false.
NUMBER = {**INTEGER, core_schemas.OMITTED: True}
FLAG = {**BOOLEAN, core_schemas.OMITTED: True}

PORT = {'x-kubernetes-int-or-string': True}
SELECTOR = core_schemas.SELECTOR


def _or(schema, default):
    return {**schema, 'default': default}


def _list(items):
    return {'type': 'array', 'items': items,
            'x-kubernetes-list-type': 'atomic'}


def _atomic(**properties):
    return {**strict(**properties), 'x-kubernetes-map-type': 'atomic'}


_KEY = _atomic(name=STRING, key=STRING, optional=BOOLEAN)
_FIELD = _atomic(apiVersion=_or(STRING, 'v1'), fieldPath=STRING)
_RESOURCE = _atomic(containerName=STRING, resource=STRING,
                    divisor=_or(core_schemas.QUANTITY, '0'))
_ITEMS = _list(strict(key=STRING, path=STRING, mode=INTEGER))
_RESOURCES = about(strict(
    limits=about(QUANTITIES, 'Maximum amounts.'),
    requests=about(QUANTITIES, 'Minimum amounts.'),
    claims=keyed(strict(name=STRING, request=STRING), 'name')),
    'Requests and limits of the container.')

_EXEC = strict(command=STRINGS)
_HTTP = strict(
    host=STRING, path=_or(STRING, '/'), port=PORT,
    scheme=_or(STRING, 'HTTP'),
    httpHeaders=_list(strict(name=STRING, value=STRING)))
_TCP = strict(host=STRING, port=PORT)


def _probe(text):
    return about(strict(
        exec=about(_EXEC, 'Succeeds if the command exits with 0.'),
        httpGet=about(_HTTP, 'Succeeds if the status is 200 to 399.'),
        tcpSocket=about(_TCP, 'Succeeds if the port accepts connections.'),
        grpc=strict(port=INTEGER, service=_or(STRING, '')),
        initialDelaySeconds=about(
            NUMBER, 'Seconds from the start to the first probe.'),
        timeoutSeconds=about(_or(INTEGER, 1), 'Timeout in seconds.'),
        periodSeconds=about(_or(INTEGER, 10), 'Interval in seconds.'),
        successThreshold=about(_or(INTEGER, 1),
                               'Consecutive successes to pass.'),
        failureThreshold=about(_or(INTEGER, 3),
                               'Consecutive failures to fail.'),
        terminationGracePeriodSeconds=INTEGER), text)


_HANDLER = strict(exec=_EXEC, httpGet=_HTTP, tcpSocket=_TCP,
                  sleep=strict(seconds=INTEGER))
_PROFILE = strict(type=STRING, localhostProfile=STRING)
_SELINUX = strict(user=STRING, role=STRING, type=STRING, level=STRING)
_WINDOWS = strict(gmsaCredentialSpec=STRING, gmsaCredentialSpecName=STRING,
                  hostProcess=BOOLEAN, runAsUserName=STRING)
_IDENTITY = {
    'appArmorProfile': _PROFILE, 'runAsGroup': INTEGER,
    'runAsNonRoot': BOOLEAN, 'runAsUser': INTEGER,
    'seLinuxOptions': _SELINUX, 'seccompProfile': _PROFILE,
    'windowsOptions': _WINDOWS}

_ENV = about(keyed(strict(
    name=STRING, value=STRING, valueFrom=strict(
        configMapKeyRef=_KEY, secretKeyRef=_KEY, fieldRef=_FIELD,
        resourceFieldRef=_RESOURCE, fileKeyRef=_atomic(
            volumeName=STRING, path=STRING, key=STRING,
            optional=BOOLEAN))), 'name'), 'Environment variables.')

CONTAINER = strict(
    name=STRING, image=about(STRING, 'Container image name.'),
    command=about(STRINGS, 'Entrypoint of the container.'),
    args=about(STRINGS, 'Arguments of the entrypoint.'),
    workingDir=STRING, env=_ENV, envFrom=_list(strict(
        prefix=STRING,
        configMapRef=strict(name=STRING, optional=BOOLEAN),
        secretRef=strict(name=STRING, optional=BOOLEAN))),
    ports=keyed(strict(
        name=STRING, containerPort=INTEGER, hostPort=NUMBER, hostIP=STRING,
        protocol=_or(STRING, 'TCP')), 'containerPort', 'protocol'),
    resources=_or(_RESOURCES, {}), volumeMounts=keyed(strict(
        name=STRING, mountPath=STRING, subPath=STRING, subPathExpr=STRING,
        mountPropagation=STRING, readOnly=FLAG, recursiveReadOnly=STRING),
        'mountPath'),
    volumeDevices=keyed(strict(name=STRING, devicePath=STRING),
                        'devicePath'),
    livenessProbe=_probe('A container that fails it is restarted.'),
    readinessProbe=_probe('Services use containers that pass it.'),
    startupProbe=_probe('Other probes wait until it succeeds.'),
    lifecycle=strict(postStart=_HANDLER, preStop=_HANDLER,
                     stopSignal=STRING),
    imagePullPolicy=STRING,
    terminationMessagePath=_or(STRING, '/dev/termination-log'),
    terminationMessagePolicy=_or(STRING, 'File'),
    securityContext=about(strict(
        allowPrivilegeEscalation=BOOLEAN, privileged=BOOLEAN,
        procMount=STRING, readOnlyRootFilesystem=BOOLEAN,
        capabilities=strict(add=_list(STRING), drop=_list(STRING)),
        **_IDENTITY), 'Security options.'),
    restartPolicy=STRING, restartPolicyRules=_list(ANYTHING),
    resizePolicy=_list(strict(resourceName=STRING, restartPolicy=STRING)),
    stdin=FLAG, stdinOnce=FLAG, tty=FLAG)

_DOWNWARD = _list(strict(path=STRING, fieldRef=_FIELD, mode=INTEGER,
                         resourceFieldRef=_RESOURCE))
_MODE = _or(INTEGER, 0o644)

#: Sources of volumes that nothing in the sandbox looks into.
_ELSEWHERE = (
    'awsElasticBlockStore', 'azureDisk', 'azureFile', 'cephfs', 'cinder',
    'csi', 'ephemeral', 'fc', 'flexVolume', 'flocker', 'gcePersistentDisk',
    'gitRepo', 'glusterfs', 'hostPath', 'image', 'iscsi', 'nfs',
    'photonPersistentDisk', 'portworxVolume', 'quobyte', 'rbd', 'scaleIO',
    'storageos', 'vsphereVolume')

VOLUME = strict(
    name=STRING, emptyDir=strict(medium=STRING,
                                 sizeLimit=core_schemas.QUANTITY),
    secret=strict(secretName=STRING, items=_ITEMS, defaultMode=_MODE,
                  optional=BOOLEAN),
    configMap=strict(name=STRING, items=_ITEMS, defaultMode=_MODE,
                     optional=BOOLEAN),
    downwardAPI=strict(items=_DOWNWARD, defaultMode=_MODE),
    projected=strict(defaultMode=_MODE, sources=_list(strict(
        secret=strict(name=STRING, items=_ITEMS, optional=BOOLEAN),
        configMap=strict(name=STRING, items=_ITEMS,
                         optional=BOOLEAN),
        downwardAPI=strict(items=_DOWNWARD),
        serviceAccountToken=strict(
            audience=STRING, expirationSeconds=_or(INTEGER, 3600),
            path=STRING),
        clusterTrustBundle=ANYTHING, podCertificate=ANYTHING))),
    persistentVolumeClaim=strict(claimName=STRING, readOnly=FLAG),
    **dict.fromkeys(_ELSEWHERE, ANYTHING))

SPEC = about(strict(
    containers=about(keyed(CONTAINER, 'name'), 'Containers of the pod.'),
    initContainers=about(keyed(CONTAINER, 'name'),
                         'Containers that run in order before others.'),
    ephemeralContainers=keyed(
        strict(**CONTAINER['properties'], targetContainerName=STRING),
        'name'),
    volumes=about(keyed(VOLUME, 'name'), 'Volumes that containers can mount.'),
    activeDeadlineSeconds=INTEGER,
    affinity=strict(nodeAffinity=ANYTHING, podAffinity=ANYTHING,
                    podAntiAffinity=ANYTHING),
    automountServiceAccountToken=about(
        BOOLEAN, 'Whether a token of the account is mounted.'),
    dnsConfig=strict(nameservers=_list(STRING), searches=_list(STRING),
                     options=_list(strict(name=STRING, value=STRING))),
    dnsPolicy=_or(STRING, 'ClusterFirst'), enableServiceLinks=BOOLEAN,
    hostAliases=keyed(strict(ip=STRING, hostnames=_list(STRING)), 'ip'),
    hostIPC=FLAG, hostNetwork=FLAG, hostPID=FLAG, hostUsers=BOOLEAN,
    hostname=STRING, hostnameOverride=STRING,
    imagePullSecrets=keyed(core_schemas.LOCAL_REFERENCE, 'name'),
    nodeName=about(STRING, 'Node of the pod.'),
    nodeSelector={**TEXTS, 'x-kubernetes-map-type': 'atomic',
                  'description': 'Labels that its node must have.'},
    os=strict(name=STRING), overhead=QUANTITIES, preemptionPolicy=STRING,
    priority=INTEGER, priorityClassName=STRING,
    readinessGates=_list(strict(conditionType=STRING)),
    resourceClaims=keyed(strict(
        name=STRING, resourceClaimName=STRING,
        resourceClaimTemplateName=STRING), 'name'),
    resources=_RESOURCES, restartPolicy=_or(STRING, 'Always'),
    runtimeClassName=STRING, schedulerName=_or(STRING, 'default-scheduler'),
    schedulingGates=keyed(strict(name=STRING), 'name'),
    securityContext=_or(strict(
        fsGroup=INTEGER, fsGroupChangePolicy=STRING,
        seLinuxChangePolicy=STRING, supplementalGroups=_list(INTEGER),
        supplementalGroupsPolicy=STRING,
        sysctls=_list(strict(name=STRING, value=STRING)), **_IDENTITY), {}),
    serviceAccount=STRING,
    serviceAccountName=about(STRING, 'ServiceAccount of the pod.'),
    setHostnameAsFQDN=BOOLEAN, shareProcessNamespace=BOOLEAN,
    subdomain=STRING,
    terminationGracePeriodSeconds=about(
        _or(INTEGER, 30), 'Seconds between SIGTERM and SIGKILL.'),
    tolerations=_list(strict(
        key=STRING, operator=STRING, value=STRING, effect=STRING,
        tolerationSeconds=INTEGER)),
    topologySpreadConstraints=keyed(strict(
        labelSelector=SELECTOR, matchLabelKeys=_list(STRING),
        maxSkew=INTEGER, minDomains=INTEGER, nodeAffinityPolicy=STRING,
        nodeTaintsPolicy=STRING, topologyKey=STRING,
        whenUnsatisfiable=STRING), 'topologyKey', 'whenUnsatisfiable')),
    'Desired behavior of the pod.')

_RUNNING = strict(startedAt=TIME)
_STATE = strict(
    running=_RUNNING, waiting=strict(reason=STRING, message=STRING),
    terminated=strict(
        containerID=STRING, exitCode=INTEGER, finishedAt=TIME,
        message=STRING, reason=STRING, signal=INTEGER, startedAt=TIME))
_STATUSES = _list(core_schemas.thing(
    name=STRING, image=STRING, imageID=STRING, containerID=STRING,
    ready=BOOLEAN, started=BOOLEAN, restartCount=INTEGER, state=_STATE,
    lastState=_STATE))

POD = about(strict(
    spec=SPEC,
    status=core_schemas.thing(
        phase=STRING, conditions=core_schemas.CONDITIONS, message=STRING,
        reason=STRING, hostIP=STRING, podIP=STRING, qosClass=STRING,
        startTime=TIME, observedGeneration=INTEGER,
        hostIPs=_list(strict(ip=STRING)),
        podIPs=keyed(strict(ip=STRING), 'ip'),
        containerStatuses=_STATUSES, initContainerStatuses=_STATUSES)),
    'Pod is a collection of containers that can run on a host.')

#: As Deployments and ReplicaSets have it. Its metadata has more fields than
#: anybody writes there.
TEMPLATE = strict(
    metadata=core_schemas.thing(labels=TEXTS, annotations=TEXTS), spec=SPEC)
