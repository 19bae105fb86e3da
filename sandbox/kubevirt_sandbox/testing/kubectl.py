# SPDX-License-Identifier: Apache-2.0
"""The real ``kubectl``, as a user of a test."""

import json
import pathlib
import shutil
import subprocess

from kubevirt_sandbox.testing import process

KUBECTL = shutil.which('kubectl')


class Kubectl:
    """``kubectl`` as one user.

    :param kubeconfig: path of the user's file.
    :param namespace: for all commands; the file's own when None.

    Called with words, it gives what is printed; it must succeed.
    """

    def __init__(self, kubeconfig, namespace=None):
        self.kubeconfig = pathlib.Path(kubeconfig)
        self.namespace = namespace

    def within(self, namespace):
        """The same user in another namespace."""
        return Kubectl(self.kubeconfig, namespace)

    def run(self, *words, stdin=None, timeout=90, env=None):
        """Run it.

        :param stdin: text.
        :param env: further environment.
        :returns: :class:`subprocess.CompletedProcess` with text.
        """
        options = ['-n', self.namespace] if self.namespace else []
        # Discovery is cached in HOME: beside the sandbox's kubeconfig, as
        # another sandbox has other kinds.
        return subprocess.run(
            [KUBECTL, *options, *map(str, words)], input=stdin,
            capture_output=True, text=True, timeout=timeout,
            env=process.environment(self.kubeconfig.parent, {
                'KUBECONFIG': self.kubeconfig, **(env or {})}))

    def __call__(self, *words, **more):
        done = self.run(*words, **more)
        if done.returncode != 0:
            raise AssertionError('kubectl %s: exit code %d: %s%s' % (
                ' '.join(map(str, words)), done.returncode, done.stderr,
                done.stdout))
        return done.stdout

    def refused(self, *words, **more):
        """What it complains of; it must fail."""
        done = self.run(*words, **more)
        if done.returncode == 0:
            raise AssertionError('kubectl %s: not refused: %s' % (
                ' '.join(map(str, words)), done.stdout))
        return done.stderr

    def get(self, *words):
        """Objects as the API has them: a dictionary."""
        return json.loads(self('get', *words, '-o', 'json'))

    def names(self, *words):
        """``kind/name`` of what there is, sorted."""
        return sorted(self('get', *words, '-o', 'name').split())

    def apply(self, *objects, words=()):
        """Apply objects, or a text of YAML."""
        # JSON: what text Python and Go take for a number differs in YAML, and
        # a random password may be one.
        text = ''.join(one if isinstance(one, str)
                       else f'---\n{json.dumps(one)}\n' for one in objects)
        return self('apply', *words, '-f', '-', stdin=text)

    def wait(self, what, condition, seconds=60):
        """Wait as ``kubectl wait --for`` does."""
        return self('wait', what, '--for=' + condition,
                    '--timeout=%ds' % seconds, timeout=seconds + 30)

    def edit(self, what, expression):
        """Edit an object, with ``sed`` in place of an editor."""
        return self('edit', what, env={
            'KUBE_EDITOR': f"sed -i -E '{expression}'"})
