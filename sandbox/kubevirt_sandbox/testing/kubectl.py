# SPDX-License-Identifier: Apache-2.0
"""Runs the real ``kubectl`` as a given user, for tests."""

import json
import pathlib
import shutil
import subprocess

from kubevirt_sandbox.testing import process

KUBECTL = shutil.which('kubectl')


class Kubectl:
    """``kubectl`` as one user.

    :param kubeconfig: path of the user's kubeconfig.
    :param namespace: namespace of all commands; that of the kubeconfig when
        None.

    Calling the object with arguments runs ``kubectl``, which must succeed,
    and returns its output.
    """

    def __init__(self, kubeconfig, namespace=None):
        self.kubeconfig = pathlib.Path(kubeconfig)
        self.namespace = namespace

    def within(self, namespace):
        """Return this user in a namespace."""
        return type(self)(self.kubeconfig, namespace)

    def run(self, *words, stdin=None, timeout=180, env=None):
        """Run ``kubectl``, whether it succeeds or not.

        :param words: arguments.
        :param stdin: text for standard input.
        :param timeout: seconds.
        :param env: additional environment variables.
        :returns: :class:`subprocess.CompletedProcess` with text.
        """
        options = ['-n', self.namespace] if self.namespace else []
        # kubectl caches discovery in HOME. Each sandbox gets its own, beside
        # its kubeconfig, because another sandbox serves other kinds.
        return subprocess.run(
            [KUBECTL, *options, *map(str, words)], input=stdin,
            capture_output=True, text=True, timeout=timeout,
            env=process.environment(self.kubeconfig.parent, {
                'KUBECONFIG': self.kubeconfig, **(env or {})}))

    def __call__(self, *words, **more):
        done = self.run(*words, **more)
        if done.returncode != 0:
            raise AssertionError(
                f"kubectl {' '.join(map(str, words))}: exit code "
                f"{done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def refused(self, *words, **more):
        """Run a command that must fail and return its standard error."""
        done = self.run(*words, **more)
        if done.returncode == 0:
            raise AssertionError(
                f"kubectl {' '.join(map(str, words))}: not refused: "
                f"{done.stdout}")
        return done.stderr

    def get(self, *words):
        """Get objects as the parsed JSON of the API, a dictionary."""
        return json.loads(self('get', *words, '-o', 'json'))

    def names(self, *words):
        """List the matching objects as ``kind/name``, sorted."""
        return sorted(self('get', *words, '-o', 'name').split())

    def apply(self, *objects, words=()):
        """Apply objects, given as dictionaries or as YAML text."""
        # JSON, because Python and Go differ in which YAML text they parse as
        # a number, and a random password can be such a text.
        text = ''.join(one if isinstance(one, str)
                       else f'---\n{json.dumps(one)}\n' for one in objects)
        return self('apply', *words, '-f', '-', stdin=text)

    def wait(self, what, condition, seconds=120):
        """Wait with ``kubectl wait --for``.

        :param what: ``kind/name``.
        :param condition: value of ``--for``.
        :param seconds: timeout.
        """
        return self('wait', what, '--for=' + condition,
                    f'--timeout={seconds}s', timeout=seconds + 30)

    def edit(self, what, expression):
        """Run ``kubectl edit`` with ``sed`` as the editor.

        :param what: ``kind/name``.
        :param expression: expression for ``sed``.
        """
        return self('edit', what, env={
            'KUBE_EDITOR': f"sed -i -E '{expression}'"})
