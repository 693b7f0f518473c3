"""Reasons of the operating system, in Chinese as well."""

from __future__ import annotations

import errno
import os

import pytest

from gecompiler.lang import translate

COMMON = (
    "EACCES", "EBADF", "EBUSY", "EDQUOT", "EEXIST", "EFBIG", "EINVAL", "EIO", "EISDIR", "ELOOP",
    "EMFILE", "ENAMETOOLONG", "ENFILE", "ENODEV", "ENOENT", "ENOMEM", "ENOSPC", "ENOTDIR",
    "ENOTEMPTY", "ENXIO", "EPERM", "EPIPE", "EROFS", "ESTALE", "ETXTBSY", "EXDEV",
)  # fmt: skip


@pytest.mark.parametrize("name", COMMON)
def test_common_reasons_are_in_chinese(name: str) -> None:
    reason = os.strerror(getattr(errno, name))
    assert translate(reason, "zh") != reason
    assert translate(reason, "en") == reason


def test_they_are_found_within_messages() -> None:
    reason = os.strerror(errno.ENOENT)
    assert "没有这个文件或目录" in translate(f"cannot be read: {reason}", "zh")
