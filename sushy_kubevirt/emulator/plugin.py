# SPDX-License-Identifier: Apache-2.0
"""What a sushy-emulator config file calls to have the kubevirt driver.

    from sushy_kubevirt.emulator import plugin
    plugin.enable()

sushy-emulator has no doors for drivers, so some things of it are replaced
here, on the class `Application`: the config file is read inside its
`configure`, for a WSGI server even before the application exists as
`main.app`. All that is touched of upstream is in this module, as read in
sushy-tools 2.2.0; `tests/unit/emulator/test_plugin.py` fails when it moves.

=====================  ====================================================
`Application.systems`  picks one of four drivers by options of their own.
                       Replaced by: the driver that
                       SUSHY_EMULATOR_SYSTEM_DRIVER names, by entry point;
                       none named, upstream's choice.
`Application.vmedia`   with the kubevirt driver, the media driver of that
                       name, by entry point; else upstream's choice.
`register_blueprint`,  the first things that happen to an application once
`run`                  its config file is read, under a WSGI server and with
                       the command sushy-emulator: the place to tell of
                       options that are wrong. `run` takes TLS from whoever
                       waits for connections.
`wsgi_app`             upon the first request, when all of upstream's routes
                       are there, `routes.install` puts ours in their place.
`RedfishAuthMiddleware`  knows no sessions and no roles, asks bcrypt with
                       every request, and answers bad headers with a
                       traceback. With the kubevirt driver it lets all
                       through, to `redfish.protocol.authentication`.
=====================  ====================================================

With another driver than kubevirt the emulator is upstream's, unchanged.
"""

import functools
import logging
import os
import sys
import threading

from flask import logging as flask_logging
import stevedore

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors as machine_errors
from sushy_kubevirt.redfish.protocol import request_validation
from sushy_kubevirt.redfish.protocol import system_access
from sushy_kubevirt.redfish import routes
from sushy_kubevirt.redfish.services import service_context

#: The option that names a driver, and where drivers are looked for.
DRIVER = 'SUSHY_EMULATOR_SYSTEM_DRIVER'
NAMESPACE = 'sushy_tools.emulator.systems'

#: Where media drivers are looked for, under the name of the system driver.
MEDIA_NAMESPACE = 'sushy_tools.emulator.vmedia'

#: gunicorn gives up on code 3 ("worker failed to boot") and would start
#: workers for ever on any other.
_EXIT = 3

_KEY = 'sushy_kubevirt'

# What the stock drivers' `initialize` wants besides config and logger, as
# upstream's `Application.systems` gives it.
_ARGUMENTS = {
    'libvirt': lambda config: (config.get('SUSHY_EMULATOR_LIBVIRT_URI', ''),),
    'nova': lambda config: (config.get('SUSHY_EMULATOR_OS_CLOUD'),),
    'ironic': lambda config: (config.get('SUSHY_EMULATOR_IRONIC_CLOUD'),),
}


def enable():
    """Make drivers selectable by name in sushy-emulator.

    To be called in its config file; calling it again changes nothing.
    Options may stand before or after the call.
    """
    # Not at the top: under a WSGI server this module is half imported now,
    # and importing it first would read the config file inside this import.
    from sushy_tools.emulator import main

    application = main.Application
    if _KEY in vars(application):
        return
    setattr(application, _KEY, property(_state))
    stock = {name: getattr(application, name)
             for name in ('register_blueprint', 'run', 'wsgi_app')}

    upstream_systems = application.systems.fget
    upstream_vmedia = application.vmedia.fget
    application.systems = property(
        lambda app: _state(app).systems(upstream_systems))
    application.vmedia = property(
        lambda app: _state(app).vmedia(upstream_vmedia))

    @functools.wraps(stock['register_blueprint'])
    def register_blueprint(app, *args, **kwargs):
        _state(app).check()
        return stock['register_blueprint'](app, *args, **kwargs)

    @functools.wraps(stock['run'])
    def run(app, *args, **kwargs):
        _state(app).check()
        if _state(app).will_be_ours():
            _shake_hands_later(kwargs.get('ssl_context'))
        return stock['run'](app, *args, **kwargs)

    @functools.wraps(stock['wsgi_app'])
    def wsgi_app(app, environ, start_response):
        if _state(app).ours():
            system_access.restore_encoded_slash(environ)
            request_validation.strip_members_segment(environ)
        return stock['wsgi_app'](app, environ, start_response)

    application.register_blueprint = register_blueprint
    application.run = run
    application.wsgi_app = wsgi_app
    _replace_authentication(main.RedfishAuthMiddleware)


class _State:
    """What belongs to one application: its driver, and whether ours is in.

    :param app: `main.Application`
    """

    def __init__(self, app):
        self._app = app
        self._lock = threading.RLock()
        self._made_for = None   # name of the driver and what it was given
        self._driver = None
        #: `service_context.Services`, with the kubevirt driver; else None
        self.services = None
        self._vmedia = None     # (system driver, the media driver for it)
        self._ours = None       # not known before the first request
        self._started_in = None     # process

    def check(self):
        """End the program if the options cannot be used.

        Makes the kubevirt driver, which reads the kubeconfig, and starts
        it; that waits for nothing of the cluster. Others are left until
        they are needed, as upstream does it.
        """
        try:
            with self._lock:
                if self._is_kubevirt():
                    _log_like(self._app)
                    self._make()
                    self._driver.start()
                    self.services.start()
                    self._started_in = os.getpid()
                else:
                    self._drop()
        except (settings.InvalidSettings,
                machine_errors.ConfigError) as exc:
            for line in str(exc).splitlines():
                print(f'sushy-kubevirt: {line}', file=sys.stderr)
            sys.exit(_EXIT)

    def systems(self, upstream):
        """The system driver.

        :param upstream: getter that chooses as sushy-emulator does
        """
        if self._name() is None:
            return upstream(self._app)
        if self._driver is None:
            with self._lock:
                self._make()
        return self._driver

    def vmedia(self, upstream):
        """The virtual media driver."""
        if not self._is_kubevirt():
            return upstream(self._app)
        driver = self.systems(None)
        if self._vmedia is None or self._vmedia[0] is not driver:
            made = stevedore.DriverManager(
                MEDIA_NAMESPACE, self._name()).driver(
                    self._app.config, self._app.logger, driver)
            self._vmedia = (driver, made)
        return self._vmedia[1]

    def ours(self):
        """Whether the kubevirt driver serves; puts our routes in, once."""
        if self._ours is None:
            with self._lock:
                if self._ours is None:
                    ours = self._is_kubevirt()
                    if ours:
                        routes.install(self._app)
                        if self._started_in not in (None, os.getpid()):
                            # Loaded before the workers were forked.
                            self.services.start()
                    self._ours = ours
        return self._ours

    def will_be_ours(self):
        """Whether the options, as they are now, name the kubevirt driver.

        A name that there is not is told later, by `check`.
        """
        try:
            return self._is_kubevirt()
        except settings.InvalidSettings:
            return False

    def _name(self):
        return self._app.config.get(DRIVER)

    def _is_kubevirt(self):
        name = self._name()
        return name is not None and issubclass(_load(name),
                                               system_driver.KubeVirtDriver)

    def use(self, driver):
        """Take a driver that was made elsewhere (by a test)."""
        self._drop()
        self._driver = driver
        self.services = service_context.Services(
            self._app.config, driver.settings, driver.cluster
        )
        self._made_for = (self._name(), (), driver.settings)

    def _make(self):
        """Make the driver, unless the one there is was made for the same.

        The config file of SUSHY_EMULATOR_CONFIG is read first and that of
        --config may change all of it.
        """
        config, name = self._app.config, self._name()
        loaded = _load(name)
        arguments = _ARGUMENTS.get(name, lambda config: ())(config)
        wanted = (name, arguments)
        if issubclass(loaded, system_driver.KubeVirtDriver):
            wanted += (settings.read(config),)
        if self._driver is not None and self._made_for == wanted:
            return
        made = loaded.initialize(config, self._app.logger, *arguments)()
        services = None
        if isinstance(made, system_driver.KubeVirtDriver):
            services = service_context.Services(
                config, made.settings, made.cluster)
        self._drop()
        self._driver, self._made_for = made, wanted
        self.services = services
        self._app.logger.debug('System driver %s: %s', name, made.driver)

    def close(self):
        """Let go of the driver and its threads: the program ends."""
        with self._lock:
            self._drop()

    def _drop(self):
        if isinstance(self._driver, system_driver.KubeVirtDriver):
            self._driver.close()
        if self.services is not None:
            self.services.close()
        self._driver = self._made_for = self.services = None


def _shake_hands_later(context):
    """Leave TLS of a connection to the thread that serves it.

    Werkzeug's server has it done by the one that takes all connections, so
    whoever connected and was silent kept everybody waiting.

    :param context: `ssl.SSLContext` that the server is about to use; or None
    """
    if context is not None:
        context.wrap_socket = functools.partial(
            context.wrap_socket, do_handshake_on_connect=False)


def _state(app):
    found = app.extensions.get(_KEY)
    if found is None:
        # Two threads may come here; one of them wins, for both.
        found = app.extensions.setdefault(_KEY, _State(app))
    return found


def _log_like(app):
    """Have our log lines look like the application's and go where it does.

    Unless whoever runs this has set up logging; Flask asks the same.
    """
    log = logging.getLogger('sushy_kubevirt')
    if not flask_logging.has_level_handler(log):
        log.addHandler(flask_logging.default_handler)
    if app.debug and not log.level:
        log.setLevel(logging.DEBUG)


@functools.cache
def _load(name):
    """The class of a driver.

    :raises: `settings.InvalidSettings` if there is none of that name
    """
    try:
        return stevedore.DriverManager(NAMESPACE, name).driver
    except stevedore.exception.NoMatches:
        known = sorted(stevedore.ExtensionManager(
            NAMESPACE, on_load_failure_callback=lambda *_: None).names())
        raise settings.InvalidSettings(
            f"{DRIVER} is {name!r}; there are {', '.join(known)}"
        ) from None


def _replace_authentication(middleware):
    """Leave it to us who may come, where the kubevirt driver serves."""
    stock_init = middleware.__init__
    stock_call = middleware.__call__

    @functools.wraps(stock_init)
    def init(self, app, auth_file):
        # What it is given is the application's method `wsgi_app`.
        self.state = _state(app.__self__)
        self.app, self.auth_file = app, auth_file
        if not self.state.will_be_ours():
            stock_init(self, app, auth_file)

    @functools.wraps(stock_call)
    def call(self, environ, start_response):
        if self.state.ours():
            return self.app(environ, start_response)
        return stock_call(self, environ, start_response)

    middleware.__init__ = init
    middleware.__call__ = call
