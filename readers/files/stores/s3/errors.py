"""What the errors of boto3 mean."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from readers.files import backoff
from readers.files.stores.errors import Errors, one_line

NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
)

# Error codes that mean the same as an HTTP status, which differs between stores.
_STATUSES = dict.fromkeys(
    [
        "AuthFailure",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    ],
    401,
) | dict.fromkeys(
    [
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "InternalError",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    ],
    503,
)


class BeyondEnd(OSError):
    """A range that begins at or after the end of its object."""


def may_pass(error: BotoCoreError | ClientError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, ClientError):
        return backoff.may_pass(_status(error))
    return isinstance(error, HTTPClientError)  # No answer arrived, or only a part of one.


def code_may_pass(code: str) -> bool:
    """Whether what failed with an error code, for one object of several, may succeed a moment later."""
    return backoff.may_pass(_STATUSES.get(code, 0))


def _status(error: ClientError) -> int:
    """The HTTP status of an answer, or the one that its error code stands for."""
    answered = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return _STATUSES.get(error.response.get("Error", {}).get("Code", ""), answered)


def meaning(
    error: BotoCoreError | ClientError, path: str, errors: Errors, reads: bool
) -> Exception:
    """What one of boto3's errors means; arguments as for `Errors.refusal`."""
    if isinstance(error, NO_CREDENTIALS):
        return errors.no_credentials(path, error)
    if isinstance(error, ParamValidationError):
        bucket = path.split("/")[2]
        is_name = "bucket name" not in str(error)
        what = one_line(error) if is_name else f"{bucket!r} is no name of a bucket"
        return errors.refused(f"{path}: {what}")
    if not isinstance(error, ClientError):
        return errors.failing(path, error)
    status, details = _status(error), error.response.get("Error", {})
    code = str(details.get("Code", ""))
    if code == "NoSuchBucket":
        return errors.no_bucket(path)
    if status == 416:
        return BeyondEnd(f"{path}: it ends before")
    answered = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    words = dict.fromkeys([str(answered), code])  # Without a body, the code repeats the status.
    answer = one_line(f"{' '.join(words)}: {details.get('Message', '')}")
    return errors.refusal(path, status, answer, reads)
