//! Error numbers with their names, so that results read the same on every machine.

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// The result of a socket call.
pub type SysResult<T> = Result<T, Errno>;

impl Errno {
    /// The error of the call that has just failed on this thread.
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The name as in errno(3), or `E<number>` for an unusual one.
    pub fn name(self) -> String {
        let name = match self.0 {
            libc::EPERM => "EPERM",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EBUSY => "EBUSY",
            libc::EINVAL => "EINVAL",
            libc::EPIPE => "EPIPE",
            libc::EPROTO => "EPROTO",
            libc::EMSGSIZE => "EMSGSIZE",
            libc::ENOPROTOOPT => "ENOPROTOOPT",
            libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::EADDRINUSE => "EADDRINUSE",
            libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
            libc::ENETDOWN => "ENETDOWN",
            libc::ENETUNREACH => "ENETUNREACH",
            libc::ENETRESET => "ENETRESET",
            libc::ECONNABORTED => "ECONNABORTED",
            libc::ECONNRESET => "ECONNRESET",
            libc::ENOBUFS => "ENOBUFS",
            libc::EISCONN => "EISCONN",
            libc::ENOTCONN => "ENOTCONN",
            libc::ETIMEDOUT => "ETIMEDOUT",
            libc::ECONNREFUSED => "ECONNREFUSED",
            libc::EHOSTDOWN => "EHOSTDOWN",
            libc::EHOSTUNREACH => "EHOSTUNREACH",
            libc::EALREADY => "EALREADY",
            libc::EINPROGRESS => "EINPROGRESS",
            other => return format!("E{other}"),
        };
        name.to_string()
    }
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::error::Error for Errno {}
