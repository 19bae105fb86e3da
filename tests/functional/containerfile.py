# SPDX-License-Identifier: Apache-2.0
"""Reads ``Containerfile`` and does its steps without a container engine.

What it copies is copied, what it runs with pip is run, at another place;
Debian's packages are left to the machine (``bindep.txt`` has them too).
"""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

from kubevirt_sandbox.testing import process
from tests.functional import checkout

FILE = checkout.ROOT / 'Containerfile'

#: Where its steps put what the images have, and what they work on.
OPT = '/opt/sushy-kubevirt'

#: What pip says when it finds nobody to ask.
NO_INDEX = (r'NewConnectionError|NameResolutionError|ConnectTimeoutError|'
            r'Temporary failure in name resolution|ProxyError')


@dataclasses.dataclass
class Stage:
    """What stands between two FROM.

    :param name: after AS.
    :param base: an image, or the name of a stage.
    :param steps: list of (instruction, its words as one text).
    """

    name: str
    base: str
    steps: list

    def all(self, word):
        """The texts of one instruction."""
        return [text for one, text in self.steps if one == word]


def instructions(text):
    """(instruction, its words) of a Containerfile, lines joined."""
    lines = [line for line in text.splitlines()
             if not line.lstrip().startswith('#')]
    for line in re.sub(r'\\\n', '', '\n'.join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(' ')
            yield word.upper(), re.sub(r'\s+', ' ', rest.strip())


def read(path=FILE):
    """The stages.

    :returns: (dictionary of ARGs before the first FROM, dictionary of
        `Stage` by name)
    """
    arguments, stages, stage = {}, {}, None
    for word, text in instructions(path.read_text()):
        if word == 'FROM':
            base, _, name = text.partition(' AS ')
            stage = stages[name] = Stage(name, base, [])
        elif stage is None:
            name, _, value = text.partition('=')
            arguments[name] = value
        else:
            stage.steps.append((word, text))
    return arguments, stages


def lineage(stages, name):
    """A stage, and those it begins with, the first first."""
    found = []
    while name in stages:
        found.insert(0, stages[name])
        name = stages[name].base
    return found


def ours(text):
    """The part of a RUN that is about this project: without apt-get."""
    return '' if text.startswith('apt-get ') else text


class Builder:
    """Does the steps of stages.

    :param folder: pathlib.Path, empty; ``opt`` in it stands for `OPT`,
        ``src`` for the working directory.
    :param version: for ``--build-arg VERSION``.
    """

    def __init__(self, folder, version):
        self.folder = folder
        self.opt = folder / 'opt'
        self.src = folder / 'src'
        self.src.mkdir()
        self.env = process.environment(folder)
        # What pip has built or fetched before, whatever the file says.
        self.env['HOME'] = os.environ.get('HOME', '/')
        self.arguments = {'VERSION': version}

    def build(self, stage):
        """Do the steps of one stage.

        :raises AssertionError: one failed; with its output.
        """
        for word, text in stage.steps:
            if word == 'COPY':
                self.copy(text)
            elif word == 'ENV':
                self.set(text)
            elif word == 'RUN' and ours(text):
                self.run(text)

    def set(self, text):
        for one in shlex.split(text):
            name, _, value = one.partition('=')
            if name != 'PIP_NO_CACHE_DIR':
                self.env[name] = re.sub(
                    r'\$\{(\w+)\}', lambda m: self.arguments[m[1]], value)

    def copy(self, text):
        *sources, target = text.split()
        target = self.src / target
        for source in sources:
            for name in tracked(source):
                to = (target / name if target == self.src / '.' else
                      target / pathlib.Path(name).relative_to(source))
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkout.ROOT / name, to)

    def run(self, text):
        done = subprocess.run(
            ['sh', '-ec', text.replace(OPT, str(self.opt))], cwd=self.src,
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=600)
        if done.returncode != 0:
            if re.search(NO_INDEX, done.stdout):
                raise unittest.SkipTest(
                    'no package index can be reached: the images were not '
                    'made')
            raise AssertionError('RUN %s: exit code %d:\n%s' % (
                text, done.returncode, done.stdout[-5000:]))


def tracked(source):
    """Files that git knows at or below a path, as in a fresh clone."""
    done = subprocess.run(
        ['git', 'ls-files', '-z', '--', source], cwd=checkout.ROOT,
        capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split('\0')
            if name and (checkout.ROOT / name).exists()]
