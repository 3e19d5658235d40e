//! Error numbers that mean something here (kernel `include/uapi/asm-generic/errno-base.h`, `errno.h`).

use rustix::io::Errno;

pub(crate) const EPERM: i32 = Errno::PERM.raw_os_error();
pub(crate) const ENOENT: i32 = Errno::NOENT.raw_os_error();
pub(crate) const ESRCH: i32 = Errno::SRCH.raw_os_error();
pub(crate) const EACCES: i32 = Errno::ACCESS.raw_os_error();
pub(crate) const EBUSY: i32 = Errno::BUSY.raw_os_error();
pub(crate) const ENODEV: i32 = Errno::NODEV.raw_os_error();
pub(crate) const EINVAL: i32 = Errno::INVAL.raw_os_error();
pub(crate) const ENFILE: i32 = Errno::NFILE.raw_os_error();
pub(crate) const EMFILE: i32 = Errno::MFILE.raw_os_error();
pub(crate) const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
pub(crate) const ENOSYS: i32 = Errno::NOSYS.raw_os_error();
pub(crate) const ENODATA: i32 = Errno::NODATA.raw_os_error();
pub(crate) const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
