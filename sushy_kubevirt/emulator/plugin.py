# SPDX-License-Identifier: Apache-2.0
"""Enables the kubevirt driver from sushy-emulator's config file.

    from sushy_kubevirt.emulator import plugin
    plugin.enable()

sushy-emulator has no plugin interface, so `enable` replaces members of its
class `Application`: the config file is read inside `Application.configure`,
under a WSGI server even before the application exists as `main.app`. All
replaced members are in this module, as of sushy-tools 2.2.0;
`tests/unit/emulator/test_plugin.py` fails when upstream changes them.

=====================  ====================================================
`Application.systems`  Upstream chooses one of four drivers by their options.
                       Replaced by the driver that
                       SUSHY_EMULATOR_SYSTEM_DRIVER names, an entry point;
                       without that option, upstream's choice.
`Application.vmedia`   With the kubevirt driver one that refuses all calls:
                       upstream's would download images. No view uses it.
`register_blueprint`,  Called first after the config file was read, under a
`run`                  WSGI server and by the command sushy-emulator: invalid
                       options are reported here. `run` also moves TLS
                       handshakes out of the thread that accepts connections,
                       has no reloader, cleans up on SIGTERM, and lets the
                       server answer invalid HTTP with Redfish errors.
`wsgi_app`             On the first request, when all upstream routes exist,
                       `routes.install` replaces their views. Unchanged
                       responses are sent again (`response_cache`).
`url_rule_class`       Its rules are made in less time and memory.
`RedfishAuthMiddleware`  has no sessions and roles, runs bcrypt for every
                       request, and responds to malformed headers with a
                       traceback. With the kubevirt driver it passes all
                       requests to `redfish.protocol.authentication`.
=====================  ====================================================

gunicorn's `util.write_error` (gunicorn 27), which answers invalid HTTP in
HTML, is replaced in its worker.

One process serves all requests. gunicorn with more than one worker is refused
at its start; other servers are known by their requests, which PEP 3333 marks
with ``wsgi.multiprocess``.

With a driver other than kubevirt, upstream's emulator is unchanged.
"""

from __future__ import annotations

import atexit
from collections import abc
import copy
import functools
import logging
import os
import signal
import sys
import threading
import typing

from flask import logging as flask_logging
import stevedore
from sushy_tools import error

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import request_validation
from sushy_kubevirt.redfish.protocol import response_cache
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.protocol import served_hosts
from sushy_kubevirt.redfish.protocol import server_errors
from sushy_kubevirt.redfish.protocol import system_access
from sushy_kubevirt.redfish import routes
from sushy_kubevirt.redfish.services import server_threads
from sushy_kubevirt.redfish.services import service_context

if typing.TYPE_CHECKING:
    import ssl
    from wsgiref import types

LOG = logging.getLogger(__name__)

#: The option that names the system driver, and its entry point group.
DRIVER = 'SUSHY_EMULATOR_SYSTEM_DRIVER'
NAMESPACE = 'sushy_tools.emulator.systems'

#: gunicorn exits when a worker ends with code 3 ("worker failed to boot");
#: with any other it restarts workers forever.
_EXIT = 3

_KEY = 'sushy_kubevirt'

# Arguments of the stock drivers' `initialize` after config and logger, as in
# upstream's `Application.systems`.
_ARGUMENTS = {
    'libvirt': lambda config: (config.get('SUSHY_EMULATOR_LIBVIRT_URI', ''),),
    'nova': lambda config: (config.get('SUSHY_EMULATOR_OS_CLOUD'),),
    'ironic': lambda config: (config.get('SUSHY_EMULATOR_IRONIC_CLOUD'),),
}


def enable() -> None:
    """Make drivers selectable by name in sushy-emulator.

    Call it in the config file, before or after the options are set. Further
    calls change nothing.
    """
    # Imported here: under a WSGI server upstream's module is being imported
    # now, and importing it first would read the config file inside of that.
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
        lambda app: _Nothing() if _state(app).kubevirt_selected()
        else upstream_vmedia(app))

    @functools.wraps(stock['register_blueprint'])
    def register_blueprint(app: typing.Any, *args: typing.Any,
                           **kwargs: typing.Any) -> typing.Any:
        _state(app).check()
        return stock['register_blueprint'](app, *args, **kwargs)

    @functools.wraps(stock['run'])
    def run(app: typing.Any, *args: typing.Any, **kwargs: typing.Any
            ) -> typing.Any:
        _state(app).check()
        if _state(app).kubevirt_selected():
            _defer_tls_handshake(kwargs.get('ssl_context'))
            # Imported here, as other servers do not need Werkzeug's.
            from sushy_kubevirt.redfish.protocol import request_handler
            kwargs.setdefault('request_handler',
                              request_handler.RequestHandler)
            # In debug mode it would load the application in a second process.
            kwargs.setdefault('use_reloader', False)
            # The default would end the process without `close`.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        return stock['run'](app, *args, **kwargs)

    @functools.wraps(stock['wsgi_app'])
    def wsgi_app(app: typing.Any, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse
                 ) -> abc.Iterable[bytes]:
        upstream = functools.partial(stock['wsgi_app'], app)
        state = _state(app)
        if not state.serves_kubevirt():
            return upstream(environ, start_response)
        if misuse := state.misuse(environ):
            LOG.error('Request refused: %s', misuse)
            return _refuse(environ, start_response, 503, misuse)
        stored = state.responses.find_parsed(environ)
        if stored is not None:
            start_response(stored.status, stored.headers)
            return [stored.body]
        code = http_framing.check(environ) or state.refusal(environ)
        if code is not None:
            return _refuse(environ, start_response, code)
        if ('gunicorn.socket' in environ
                and 'HTTP_TRANSFER_ENCODING' in environ):
            environ['wsgi.input'] = http_framing.CheckedBody(
                environ['wsgi.input'])
        system_access.restore_encoded_slash(environ)
        request_validation.strip_members_segment(environ)
        return state.responses.call(upstream, environ, start_response)

    application.url_rule_class = routing.Rule
    application.register_blueprint = register_blueprint
    application.run = run
    application.wsgi_app = wsgi_app
    _replace_authentication(main.RedfishAuthMiddleware)


def prepare(app: typing.Any) -> None:
    """Make an application the template of others, see `clone`.

    It serves nothing itself: sushy-tools' own views refer to it, whatever
    application the request is for.

    :param app: `main.Application`
    """
    app.config[DRIVER] = 'kubevirt'
    _set_up_logging(app)
    system_driver.KubeVirtDriver.initialize(app.config, app.logger)
    app.extensions[_KEY] = _State(app, _Nothing())
    routes.install(app)


def clone(app: typing.Any, config: abc.Mapping[str, object],
          driver: system_driver.KubeVirtDriver,
          services: service_context.Services) -> typing.Any:
    """Make another application of the same routes.

    :param app: `main.Application` after `prepare`
    :param services: those of the driver
    :returns: `main.Application`
    """
    application = copy.copy(app)
    application.config = copy.copy(app.config)
    application.config.update(config)
    application.extensions = dict(app.extensions)
    application.extensions[_KEY] = _State(application, driver, services)
    return application


class _Nothing:
    """A driver that refuses all calls, such as that of the template."""

    def __getattr__(self, name: str) -> typing.NoReturn:
        raise error.NotSupportedError(
            'sushy-kubevirt does not support this route of sushy-tools')


class _State:
    """The driver and services of one application.

    :param app: `main.Application`
    :param driver: one that is not made by the options and ends with its
        owner, or None
    :param services: those of the driver
    """

    def __init__(self, app: typing.Any, driver: typing.Any = None,
                 services: service_context.Services | None = None) -> None:
        self._app = app
        self._lock = threading.RLock()
        # Name and arguments of the driver.
        self._arguments: tuple[object, ...] | None = None
        self._driver = driver
        #: With the kubevirt driver; else None.
        self.services = services
        #: Responses that may be sent again.
        self.responses = response_cache.ResponseCache(
            response_cache.MAX_BYTES if driver is None
            else response_cache.SHARED_BYTES)
        # Result of `serves_kubevirt`; None before the first request.
        self._serves_kubevirt: bool | None = None
        self._started_in: int | None = None     # process ID
        if driver is not None:
            self._serves_kubevirt = True
            return
        atexit.register(self.close)

    def check(self) -> None:
        """Start the kubevirt driver; exit the program if an option is invalid.

        It reads the kubeconfig and does not wait for the cluster. Other
        drivers are created on first use, as upstream does.
        """
        try:
            with self._lock:
                if self._is_kubevirt():
                    server_threads.require_one_process()
                    _set_up_logging(self._app)
                    _replace_gunicorn_errors()
                    self._create_driver()
                    self._driver.cluster.start()
                    assert self.services is not None
                    self.services.start()
                    self._started_in = os.getpid()
                else:
                    self._close_driver()
        except (settings.InvalidSettings, errors.ConfigError) as exc:
            for line in str(exc).splitlines():
                print(f'sushy-kubevirt: {line}', file=sys.stderr)
            sys.exit(_EXIT)

    def misuse(self, environ: types.WSGIEnvironment) -> str:
        """Tell why this process must not serve a request.

        :returns: a sentence; '' if it may
        """
        if environ.get('wsgi.multiprocess'):
            return ('The server has several processes, but one must serve '
                    'all requests: use several threads instead (gunicorn: '
                    '--threads), or sushy-kubevirt-redfish')
        if self._started_in not in (None, os.getpid()):
            return ('The server has forked after it loaded the application: '
                    'load it in one process that serves all requests (uWSGI: '
                    '--lazy-apps), or use sushy-kubevirt-redfish')
        return ''

    def systems(self, upstream: abc.Callable[[typing.Any], typing.Any]
                ) -> typing.Any:
        """Return the system driver.

        :param upstream: getter of upstream's choice
        """
        if self._name() is None:
            return upstream(self._app)
        if self._driver is None:
            with self._lock:
                self._create_driver()
        return self._driver

    def serves_kubevirt(self) -> bool:
        """Return whether the kubevirt driver serves the requests.

        The first call installs its routes. Later changes of the options have
        no effect.
        """
        if self._serves_kubevirt is None:
            with self._lock:
                if self._serves_kubevirt is None:
                    selected = self._is_kubevirt()
                    if selected:
                        routes.install(self._app)
                    self._serves_kubevirt = selected
        return self._serves_kubevirt

    def refusal(self, environ: types.WSGIEnvironment) -> int | None:
        """Check the host of a request, if no accounts are configured.

        :returns: HTTP status code with which to refuse it, or None
        """
        assert self.services is not None
        if self.services.login.required or served_hosts.serves(
                environ, self.services.settings.host_names):
            return None
        return 421

    def kubevirt_selected(self) -> bool:
        """Return whether the current options name the kubevirt driver.

        An unknown driver name is reported later, by `check`.
        """
        try:
            return self._is_kubevirt()
        except settings.InvalidSettings:
            return False

    def _name(self) -> typing.Any:
        return self._app.config.get(DRIVER)

    def _is_kubevirt(self) -> bool:
        name = self._name()
        return name is not None and issubclass(_load(name),
                                               system_driver.KubeVirtDriver)

    def _create_driver(self) -> None:
        """Create the driver, unless the present one has the same arguments.

        The config file of SUSHY_EMULATOR_CONFIG is read first; that of
        --config may change all options.
        """
        config, name = self._app.config, self._name()
        driver_class = _load(name)
        arguments = _ARGUMENTS.get(name, lambda config: ())(config)
        desired: tuple[object, ...] = (name, arguments)
        if issubclass(driver_class, system_driver.KubeVirtDriver):
            desired += (settings.read(config),)
        if self._driver is not None and self._arguments == desired:
            return
        driver = driver_class.initialize(
            config, self._app.logger, *arguments)()
        services = None
        if isinstance(driver, system_driver.KubeVirtDriver):
            services = service_context.Services(
                driver.settings, driver.cluster)
        self._close_driver()
        self._driver, self._arguments = driver, desired
        self.services = services
        self._app.logger.debug('System driver %s: %s', name, driver.driver)

    def close(self) -> None:
        """Stop the driver and its threads when the program ends."""
        with self._lock:
            self._started_in = None
            self._close_driver()

    def _close_driver(self) -> None:
        self.responses.clear()
        if isinstance(self._driver, system_driver.KubeVirtDriver):
            self._driver.cluster.close()
        if self.services is not None:
            self.services.close()
        self._driver = self._arguments = self.services = None


def _refuse(environ: types.WSGIEnvironment,
            start_response: types.StartResponse, code: int,
            detail: str = '') -> list[bytes]:
    """Answer a request with an error, see `server_errors.response`."""
    phrase, headers, body = server_errors.response_to(environ, code, detail)
    start_response(f'{code} {phrase}', list(headers.items()))
    return [body]


def _defer_tls_handshake(context: ssl.SSLContext | None) -> None:
    """Do TLS handshakes in the threads that serve connections.

    Werkzeug's server does them in the thread that accepts connections, where
    one silent client would block all others.

    :param context: the server's; None without TLS
    """
    if context is not None:
        setattr(context, 'wrap_socket', functools.partial(
            context.wrap_socket, do_handshake_on_connect=False))


def _replace_gunicorn_errors() -> None:
    """Let gunicorn answer invalid HTTP with Redfish errors, if it serves."""
    util: typing.Any = sys.modules.get('gunicorn.util')
    if util is not None:
        util.write_error = server_errors.for_gunicorn(util.write_nonblock)


def _state(app: typing.Any) -> _State:
    state: _State | None = app.extensions.get(_KEY)
    if state is None:
        # With two threads here, both get the object of the first.
        state = app.extensions.setdefault(_KEY, _State(app))
    return state


def _set_up_logging(app: typing.Any) -> None:
    """Log to the application's handler, unless logging is configured.

    Flask decides the same way for its own logger.
    """
    log = logging.getLogger('sushy_kubevirt')
    if not flask_logging.has_level_handler(log):
        log.addHandler(flask_logging.default_handler)
    if app.debug and not log.level:
        log.setLevel(logging.DEBUG)


@functools.cache
def _load(name: str) -> typing.Any:
    """Load the class of a driver.

    :param name: name of its entry point
    :raises: `settings.InvalidSettings` if there is no driver of that name
    """
    if name == 'kubevirt':
        # In a pod, whose cache is empty, stevedore reads the metadata of all
        # packages: a third of the time until it serves.
        return system_driver.KubeVirtDriver
    try:
        return stevedore.DriverManager(NAMESPACE, name).driver
    except stevedore.exception.NoMatches:
        names = sorted(stevedore.ExtensionManager(
            NAMESPACE, on_load_failure_callback=lambda *_: None).names())
        raise settings.InvalidSettings(
            f'{DRIVER} is {name!r}, which is not a driver; choose one of '
            + ', '.join(names)
        ) from None


def _replace_authentication(middleware: typing.Any) -> None:
    """Disable upstream's authentication where the kubevirt driver serves."""
    stock_init = middleware.__init__
    stock_call = middleware.__call__

    @functools.wraps(stock_init)
    def init(self: typing.Any, app: typing.Any, auth_file: object) -> None:
        # app is the bound method `wsgi_app` of the application.
        self.state = _state(app.__self__)
        self.app, self.auth_file = app, auth_file
        if not self.state.kubevirt_selected():
            stock_init(self, app, auth_file)

    @functools.wraps(stock_call)
    def call(self: typing.Any, environ: types.WSGIEnvironment,
             start_response: types.StartResponse) -> abc.Iterable[bytes]:
        if self.state.serves_kubevirt():
            return self.app(environ, start_response)
        return stock_call(self, environ, start_response)

    middleware.__init__ = init
    middleware.__call__ = call
