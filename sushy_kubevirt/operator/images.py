# SPDX-License-Identifier: Apache-2.0
"""Which images a BMC may have run.

What runs in a BMC's pod has the Secrets that the BMC names, and the rights
of its account. Whoever may make a BMC but no pod must not choose it freely.
"""

#: Takes all images.
ANY = '*'


def repository(image):
    """An image's name without tag and digest.

    :param image: such as ``registry.test:5000/virtbmc:1@sha256:…``
    """
    name = image.partition('@')[0]
    folder, slash, last = name.rpartition('/')
    return folder + slash + last.partition(':')[0]


def allowed(image, patterns):
    """Whether a BMC may name an image.

    :param image: its name
    :param patterns: repositories, such as ``registry.test/virtbmc``; all
        below one, ``registry.test/lab/*``; or `ANY`
    """
    found = repository(image)
    return any(pattern == ANY or found == pattern
               or pattern.endswith('/*') and found.startswith(pattern[:-1])
               for pattern in patterns)
