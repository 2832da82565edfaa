"""The broker's TLS certificate, in PEM files that may be replaced while the broker runs."""

import asyncio
import logging
import ssl
from dataclasses import dataclass

import grpc
from cryptography import x509

from pyrocket.base.clock import Clock, system_clock
from pyrocket.broker.files import WatchedFiles, read_file, refuse_if_others_can_read
from pyrocket.errors import OptionError
from pyrocket.wire.tls_errors import shown

CODE = "BROKER_CERTIFICATE"

_DAY_S = 24 * 3600
_WARN_S = 14 * _DAY_S
"""Time before the expiry from which on it is logged, once a day."""

_LOOK_S = 3600
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Pair:
    """A certificate and its key; `expiry_s` is the earliest expiry in its chain, in epoch s."""

    configuration: grpc.ServerCertificateConfiguration
    expiry_s: float


class Certificate:
    """A certificate and its key; each handshake uses the newest valid pair."""

    def __init__(self, certificate: str, key: str, clock: Clock = system_clock) -> None:
        """Read both files. Raises OptionError (BROKER_CERTIFICATE)."""
        self._certificate, self._key, self._clock = certificate, key, clock
        self._files = WatchedFiles([certificate, key], self._read)
        self._used = self._files.value
        self._logged: tuple[_Pair, int] | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Return the gRPC credentials for a port."""
        return grpc.dynamic_ssl_server_credentials(self._used.configuration, self._newer, False)

    @property
    def expiry_s(self) -> float:
        """When the certificate expires, in epoch seconds."""
        return self._files.current().expiry_s

    async def log_expiry(self) -> None:
        """Call `log_if_it_expires` after every hour, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(self.log_if_it_expires)

    def log_if_it_expires(self) -> None:
        """Log, once a day, a warning in the 14 days before the expiry, and then an error."""
        pair = self._files.current()
        left_s = pair.expiry_s - self._clock() / 1000
        if left_s > _WARN_S or self._logged == (pair, left_s // _DAY_S):
            return
        self._logged = pair, int(left_s // _DAY_S)
        if left_s > 0:
            _log.warning(
                "the certificate %s expires at %s", self._certificate, shown(pair.expiry_s)
            )
        else:
            _log.error(
                "the certificate %s expired at %s: no client can connect",
                *(self._certificate, shown(pair.expiry_s)),
            )

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        now = self._files.current()
        if now is self._used:
            return None
        self._used = now
        return now.configuration

    def _read(self) -> _Pair:
        refuse_if_others_can_read(self._key, code=CODE)
        certificate = read_file(self._certificate, code=CODE)
        key = read_file(self._key, code=CODE)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            chain = x509.load_pem_x509_certificates(certificate)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"{self._certificate} and {self._key} are not a certificate and its key: {error}.",
                remedy="Use PEM files of a certificate and its unencrypted key.",
                code=CODE,
            ) from None
        expiry_s = min(link.not_valid_after_utc.timestamp() for link in chain)
        return _Pair(grpc.ssl_server_certificate_configuration([(key, certificate)]), expiry_s)
