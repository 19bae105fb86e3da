# SPDX-License-Identifier: Apache-2.0
"""Label selectors in objects (``metav1.LabelSelector``).

Selectors in queries are in :mod:`api.selectors`.
"""


def has_requirements(selector):
    """Tell whether a selector has any requirement."""
    selector = selector or {}
    return bool(selector.get('matchLabels')
                or selector.get('matchExpressions'))


def matches(selector, labels):
    """Tell whether labels are selected; an empty selector selects all.

    :param selector: dict with ``matchLabels`` and ``matchExpressions``.
    :param labels: dict, or None.
    """
    selector, labels = selector or {}, labels or {}
    if not (selector.get('matchLabels') or {}).items() <= labels.items():
        return False
    for term in selector.get('matchExpressions') or ():
        value, values = labels.get(term.get('key')), term.get('values') or ()
        if not {'In': value in values,
                'NotIn': value not in values,
                'Exists': value is not None,
                'DoesNotExist': value is None}.get(
                    term.get('operator'), False):
            return False
    return True


def text(selector):
    """Format a selector as ``kubectl`` does."""
    selector = selector or {}
    parts = [f'{k}={v}' for k, v in sorted(
        (selector.get('matchLabels') or {}).items())]
    for term in selector.get('matchExpressions') or ():
        key, values = term.get('key'), ','.join(term.get('values') or ())
        parts.append({'In': f'{key} in ({values})',
                      'NotIn': f'{key} notin ({values})',
                      'Exists': key}.get(term.get('operator'), f'!{key}'))
    return ','.join(parts) or '<none>'
