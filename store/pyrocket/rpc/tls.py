"""The broker's TLS certificate, in PEM files that may be replaced while the broker runs."""

import ssl

import grpc

from pyrocket.broker.files import WatchedFiles, read_file, refuse_if_others_can_read
from pyrocket.errors import OptionError

CODE = "BROKER_CERTIFICATE"


class Certificate:
    """A certificate and its key; each handshake uses the newest valid pair."""

    def __init__(self, certificate: str, key: str) -> None:
        """Read both files. Raises OptionError (BROKER_CERTIFICATE)."""
        self._certificate, self._key = certificate, key
        self._files = WatchedFiles([certificate, key], self._read)
        self._used = self._files.value

    def credentials(self) -> grpc.ServerCredentials:
        """Return the gRPC credentials for a port."""
        return grpc.dynamic_ssl_server_credentials(self._used, self._newer, False)

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        now = self._files.current()
        if now is self._used:
            return None
        self._used = now
        return now

    def _read(self) -> grpc.ServerCertificateConfiguration:
        refuse_if_others_can_read(self._key, code=CODE)
        certificate = read_file(self._certificate, code=CODE)
        key = read_file(self._key, code=CODE)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"{self._certificate} and {self._key} are not a certificate and its key: {error}.",
                remedy="Use PEM files of a certificate and its unencrypted key.",
                code=CODE,
            ) from None
        return grpc.ssl_server_certificate_configuration([(key, certificate)])
